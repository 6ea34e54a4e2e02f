// Package timeline owns what stands in a table's .hoodie folder: hoodie.properties, the instants of the active and the
// archived timeline, commit metadata, Avro plans, markers, partition metadata, and the view that groups data files into
// file slices. It knows file names, never what data files hold.
//
// Table version 6 (timeline layout 1) is read and written, versions 8 and 9 (layout 2) are read; every other version is refused by name
// in one place, layoutOf. A layout says where files stand and how they are named (Instant), how commit metadata is written (CommitMeta),
// how the archive is (Archived) and to which slice a log belongs (View); all else is the same.
//
// The metadata table in .hoodie/metadata is read (Metadata) and, where the properties ask for it, kept up to date by whatever completes an
// instant here; else the first instant takes one that another engine made out of use.
//
// Invariants:
//   - The appearance of the completed file is the commit. Each file of an instant is created only if its name is free,
//     in the order requested, inflight, completed, and pending files go in the opposite order: inflight, then requested.
//   - A completed commit that does not decode is a *storage.CorruptError that names its file; it never counts as empty.
//   - A Timeline and a View never change once they are built; Apply makes a new View that shares what did not change.
package timeline
