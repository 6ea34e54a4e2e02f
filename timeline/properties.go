package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lakesql/lakesql/storage"
)

// Keys of hoodie.properties that this package reads or writes.
const (
	KeyName             = "hoodie.table.name"
	KeyDatabase         = "hoodie.database.name"
	KeyType             = "hoodie.table.type"
	KeyVersion          = "hoodie.table.version"
	KeyLayoutVersion    = "hoodie.timeline.layout.version"
	KeyChecksum         = "hoodie.table.checksum"
	KeyRecordKeyFields  = "hoodie.table.recordkey.fields"
	KeyPartitionFields  = "hoodie.table.partition.fields"
	KeyPrecombineField  = "hoodie.table.precombine.field"
	KeyOrderingFields   = "hoodie.table.ordering.fields"
	KeyKeyGenerator     = "hoodie.table.keygenerator.class"
	KeyKeyGeneratorType = "hoodie.table.keygenerator.type"
	KeyPayloadClass     = "hoodie.compaction.payload.class"
	KeyMergeMode        = "hoodie.record.merge.mode"
	KeyMergeStrategy    = "hoodie.compaction.record.merger.strategy"
	keyMergeStrategyID  = "hoodie.record.merge.strategy.id"
	KeyCreateSchema     = "hoodie.table.create.schema"
	KeyBaseFileFormat   = "hoodie.table.base.file.format"
	KeyPopulateMeta     = "hoodie.populate.meta.fields"
	KeyHiveStyle        = "hoodie.datasource.write.hive_style_partitioning"
	KeyURLEncode        = "hoodie.datasource.write.partitionpath.urlencode"
	KeyDropPartition    = "hoodie.datasource.write.drop.partition.columns"
	KeyPartitionMeta    = "hoodie.partition.metafile.use.base.format"
	KeyTimezone         = "hoodie.table.timeline.timezone"
	KeyArchiveFolder    = "hoodie.archivelog.folder"
	KeyMetadata         = "hoodie.table.metadata.partitions"
	KeyMetadataInflight = "hoodie.table.metadata.partitions.inflight"
	KeyBootstrapBase    = "hoodie.bootstrap.base.path"
	KeyCDC              = "hoodie.table.cdc.enabled"
	KeyTimelinePath     = "hoodie.timeline.path"
	KeyHistoryPath      = "hoodie.timeline.history.path"
	KeyPartialUpdate    = "hoodie.table.partial.update.mode"
	KeyTableFormat      = "hoodie.table.format"
	KeyBaseFormats      = "hoodie.table.multiple.base.file.formats.enable"
)

// Values of KeyType and the payload classes that stand for the two orderings.
const (
	CopyOnWrite = "COPY_ON_WRITE"
	MergeOnRead = "MERGE_ON_READ"

	PayloadOverwrite = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
	PayloadDefault   = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
)

const (
	metaFolder     = ".hoodie"
	propertiesFile = "hoodie.properties"
	backupFile     = "hoodie.properties.backup"
)

// Properties are the settings of a table, unescaped. Keys that this package does not know are kept.
type Properties map[string]string

// join makes an object name of its parts; empty ones (the folder of a store's root, no partition) vanish.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "" }), "/")
}

// readObject gives the whole content of an object.
func readObject(ctx context.Context, s storage.Store, name string) ([]byte, error) {
	o, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	b := make([]byte, o.Size())
	if len(b) == 0 {
		return b, nil
	}
	if n, err := o.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// retryPauses are the waits before a file is read once more that another engine may be in the middle of writing: Hudi
// itself creates files of a local timeline under their final names and fills them afterwards.
var retryPauses = []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 150 * time.Millisecond}

// settle calls f until it succeeds, fails with something else than damage, or the pauses are used up.
func settle(ctx context.Context, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		var damage *storage.CorruptError
		if err == nil || try == len(retryPauses) || !errors.As(err, &damage) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryPauses[try]):
		}
	}
}

// ReadProperties reads the hoodie.properties of the table in folder dir. While another engine replaces the file, its
// backup is read. An error wraps storage.ErrNotExist if there is no such table, or is a *storage.CorruptError.
func ReadProperties(ctx context.Context, s storage.Store, dir string) (Properties, error) {
	var p Properties
	err := settle(ctx, func() (err error) {
		p, err = readPropertiesFile(ctx, s, join(dir, metaFolder, propertiesFile))
		var damage *storage.CorruptError
		if !errors.Is(err, storage.ErrNotExist) && !errors.As(err, &damage) {
			return err
		}
		backup, berr := readPropertiesFile(ctx, s, join(dir, metaFolder, backupFile))
		if berr == nil {
			p, err = backup, nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading table properties: %w", err)
	}
	return p, nil
}

func readPropertiesFile(ctx context.Context, s storage.Store, name string) (Properties, error) {
	b, err := readObject(ctx, s, name)
	if err != nil {
		return nil, err
	}
	p, err := ParseProperties(b)
	if err != nil {
		return nil, &storage.CorruptError{Name: name, Offset: -1, Err: err}
	}
	if p[KeyName] == "" {
		return nil, &storage.CorruptError{Name: name, Offset: -1, Err: errors.New("no " + KeyName)}
	}
	if sum, ok := p[KeyChecksum]; ok && sum != p.Checksum() {
		return nil, &storage.CorruptError{Name: name, Offset: -1, Err: fmt.Errorf("%s is %s, not %s", KeyChecksum, sum, p.Checksum())}
	}
	return p, nil
}

// WriteProperties replaces the hoodie.properties of the table in folder dir at once; the checksum is set.
func WriteProperties(ctx context.Context, s storage.Store, dir string, p Properties) error {
	if p[KeyName] == "" {
		return fmt.Errorf("writing table properties: no %s", KeyName)
	}
	p = maps.Clone(p)
	p[KeyChecksum] = p.Checksum()
	name := join(dir, metaFolder, propertiesFile)
	// Hadoop refuses a file whose checksum file is of another content, and does without one that is missing: it goes first.
	if err := s.Remove(ctx, join(dir, metaFolder, "."+propertiesFile+".crc")); err != nil {
		return fmt.Errorf("writing table properties: %w", err)
	}
	if err := s.Replace(ctx, name, p.format("Properties saved on "+now().UTC().Format(time.RFC3339Nano))); err != nil {
		return fmt.Errorf("writing table properties: %w", err)
	}
	// A backup holds what was before; a reader that met a damaged main file would go back to it.
	if err := s.Remove(ctx, join(dir, metaFolder, backupFile), join(dir, metaFolder, "."+backupFile+".crc")); err != nil {
		return fmt.Errorf("writing table properties: %w", err)
	}
	return nil
}

// now dates the comments that Java puts on top of properties files and the durations in rollback metadata.
var now = time.Now

// Checksum gives the value of hoodie.table.checksum: it covers the names of database and table alone.
func (p Properties) Checksum() string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(p[KeyDatabase]+"."+p[KeyName]))), 10)
}

// layoutOf gives the timeline layout of tables of a version; a version that is not read is refused by name.
func layoutOf(version int) (Layout, error) {
	switch version {
	case 6:
		return Layout1, nil
	case 8, 9:
		return Layout2, nil
	}
	return 0, fmt.Errorf("table version %d: %w", version, storage.ErrUnsupported)
}

// Layout gives the arrangement of the timeline; that of version 6 where nothing is said. The error wraps storage.ErrUnsupported.
func (p Properties) Layout() (Layout, error) {
	switch text, ok := p[KeyLayoutVersion]; {
	case text == "1":
		return Layout1, nil
	case text == "2":
		return Layout2, nil
	case ok:
		return 0, fmt.Errorf("%s=%s: %w", KeyLayoutVersion, text, storage.ErrUnsupported)
	}
	if _, ok := p[KeyVersion]; !ok {
		return Layout1, nil
	}
	version, err := p.TableVersion()
	if err != nil {
		return 0, err
	}
	return layoutOf(version)
}

// TableVersion gives hoodie.table.version. The error wraps storage.ErrUnsupported for a version that is not read, or if there is none.
func (p Properties) TableVersion() (int, error) {
	text, ok := p[KeyVersion]
	if !ok {
		return 0, fmt.Errorf("%s without %s: %w", propertiesFile, KeyVersion, storage.ErrUnsupported)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", KeyVersion, text, storage.ErrUnsupported)
	}
	_, err = layoutOf(n)
	return n, err
}

// Supported says whether tables with these properties are read; the error names the feature that is not, and wraps storage.ErrUnsupported.
func (p Properties) Supported() error {
	version, err := p.TableVersion()
	if err != nil {
		return err
	}
	layout, err := p.Layout()
	if err != nil {
		return err
	}
	refuse := func(key string) error { return fmt.Errorf("%s=%s: %w", key, p[key], storage.ErrUnsupported) }
	switch of, _ := layoutOf(version); {
	case of != layout:
		return refuse(KeyLayoutVersion)
	case layout == Layout2 && p[KeyTimelinePath] != "" && p[KeyTimelinePath] != timelineFolder:
		return refuse(KeyTimelinePath)
	case layout == Layout2 && p[KeyHistoryPath] != "" && p[KeyHistoryPath] != historyFolder:
		return refuse(KeyHistoryPath)
	case p[KeyTableFormat] != "" && !strings.EqualFold(p[KeyTableFormat], "native"):
		return refuse(KeyTableFormat)
	case p.flag(KeyBaseFormats):
		return refuse(KeyBaseFormats)
	case p[KeyBaseFileFormat] != "" && !strings.EqualFold(p[KeyBaseFileFormat], "PARQUET"):
		return refuse(KeyBaseFileFormat)
	case strings.EqualFold(p[KeyPopulateMeta], "false"):
		return refuse(KeyPopulateMeta)
	case p.flag(KeyDropPartition):
		return refuse(KeyDropPartition)
	case p[KeyBootstrapBase] != "":
		return refuse(KeyBootstrapBase)
	}
	return nil
}

// Writable says whether tables with these properties are written, too: those of version 6.
func (p Properties) Writable() error {
	version, err := p.TableVersion()
	if err != nil {
		return err
	}
	if layout, err := layoutOf(version); err != nil || layout != Layout1 {
		return cmp.Or(err, fmt.Errorf("table version %d (timeline layout 2) is read only: %w", version, storage.ErrUnsupported))
	}
	return p.Supported()
}

func (p Properties) flag(key string) bool { return strings.EqualFold(p[key], "true") }

// list takes a comma list apart; nil if it is empty or absent.
func (p Properties) list(key string) []string {
	var out []string
	for f := range strings.SplitSeq(p[key], ",") {
		if f = strings.TrimSpace(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}

// RecordKeyFields gives the columns of the record key; nil if keys were generated.
func (p Properties) RecordKeyFields() []string { return p.list(KeyRecordKeyFields) }

// UnusualKeys names the key generator if record keys or partition paths are not made of the values of their columns as they are; "" if
// they are. Keys of one column of the complex generator are among the unusual: some releases put the column's name in front of them.
func (p Properties) UnusualKeys() string {
	class := p[KeyKeyGenerator]
	name := cmp.Or(strings.ToUpper(p[KeyKeyGeneratorType]), class[strings.LastIndexByte(class, '.')+1:])
	for _, f := range p.list(KeyPartitionFields) {
		if _, kind, ok := strings.Cut(f, ":"); ok && !strings.EqualFold(kind, "SIMPLE") {
			return cmp.Or(name, f)
		}
	}
	switch name {
	case "", "SIMPLE", "NON_PARTITION", "SimpleKeyGenerator", "NonpartitionedKeyGenerator":
		return ""
	case "COMPLEX", "ComplexKeyGenerator":
		if len(p.RecordKeyFields()) != 1 {
			return ""
		}
		return name + " with one column"
	}
	return name
}

// PartitionFields gives the columns of the partition path; nil if the table has no partitions.
func (p Properties) PartitionFields() []string {
	fields := p.list(KeyPartitionFields)
	for i, f := range fields {
		fields[i], _, _ = strings.Cut(f, ":") // the custom key generator may add ":SIMPLE" or ":TIMESTAMP"
	}
	return fields
}

// OrderingFields gives the columns that order the versions of a record; nil if there are none.
func (p Properties) OrderingFields() []string {
	if f := p.list(KeyOrderingFields); f != nil {
		return f
	}
	return p.list(KeyPrecombineField)
}

// TableType gives CopyOnWrite or MergeOnRead.
func (p Properties) TableType() string {
	if t := strings.ToUpper(p[KeyType]); t != "" {
		return t
	}
	return CopyOnWrite
}

// HiveStyle says whether partition paths read "column=value".
func (p Properties) HiveStyle() bool { return p.flag(KeyHiveStyle) }

// URLEncode says whether values in partition paths are URL-encoded.
func (p Properties) URLEncode() bool { return p.flag(KeyURLEncode) }

// Merging is how versions of a record merge.
type Merging struct {
	Ordering storage.Ordering
	Rules    storage.MergeRules
	// Payload names what the properties ask for and is not supported: a payload class, or a setting; "" if nothing.
	Payload string
}

// Payload classes and settings that have their own rules.
const (
	payloadPackage        = "org.apache.hudi.common.model."
	payloadEventTime      = payloadPackage + "EventTimeAvroPayload"
	payloadNonDefaults    = payloadPackage + "OverwriteNonDefaultsWithLatestAvroPayload"
	payloadPartialUpdate  = payloadPackage + "PartialUpdateAvroPayload"
	payloadDMS            = payloadPackage + "AWSDmsAvroPayload"
	payloadKeyPrefix      = "hoodie.record.merge.property."
	KeyDeleteField        = payloadKeyPrefix + "hoodie.payload.delete.field"
	KeyDeleteMarker       = payloadKeyPrefix + "hoodie.payload.delete.marker"
	KeyUnavailable        = payloadKeyPrefix + "hoodie.write.partial.update.unavailable.value"
	commitTimeMode        = "COMMIT_TIME_ORDERING"
	eventTimeMode         = "EVENT_TIME_ORDERING"
	customMode            = "CUSTOM"
	partialIgnoreDefaults = "IGNORE_DEFAULTS"
	partialUnavailable    = "FILL_UNAVAILABLE"
)

// Ordering is Merging without its rules.
func (p Properties) Ordering() (o storage.Ordering, payload string) {
	m := p.Merging()
	return m.Ordering, m.Payload
}

// Merging says how versions of a record merge. In version 6 the payload class decides, whatever the merge strategy says, in version 8 the
// merge mode, and the payload class under CUSTOM; in version 9 modes and properties say what payload classes said before. For
// OverwriteWithLatestAvroPayload the last write wins, as Hudi 1.1 and hudi-rs have it (0.15 orders log records among themselves).
func (p Properties) Merging() Merging {
	var m Merging
	fields := p.OrderingFields()
	class, mode := p[KeyPayloadClass], strings.ToUpper(p[KeyMergeMode])
	if layout, err := p.Layout(); err == nil && layout == Layout1 && class != "" {
		mode = customMode
	}
	switch mode {
	case commitTimeMode:
	case eventTimeMode:
		m.Ordering = storage.EventTime
	case "", customMode:
		switch class {
		case PayloadOverwrite:
		case PayloadDefault, payloadEventTime:
			m.Ordering = storage.EventTime
		case payloadNonDefaults:
			m.Rules.Combine, m.Rules.DeletesByTime = storage.KeepDefaults, len(fields) > 0
		case payloadPartialUpdate:
			m.Ordering, m.Rules.Combine = storage.EventTime, storage.KeepDefaults
		case payloadDMS:
			m.Rules.DeleteField, m.Rules.DeleteMarker = "Op", "D"
		case "":
			if mode == customMode {
				m.Payload = cmp.Or(p[keyMergeStrategyID], customMode)
			} else if fields != nil {
				m.Ordering = storage.EventTime
			}
		default:
			m.Payload = class
		}
	default:
		m.Payload = mode
	}
	switch partial := strings.ToUpper(p[KeyPartialUpdate]); {
	case partial == "":
	case partial == partialIgnoreDefaults:
		m.Rules.Combine = storage.KeepDefaults
	case partial == partialUnavailable && p[KeyUnavailable] != "":
		m.Rules.Combine, m.Rules.Unavailable = storage.KeepUnavailable, p[KeyUnavailable]
	default:
		m.Payload = KeyPartialUpdate + "=" + p[KeyPartialUpdate]
	}
	if p[KeyDeleteField] != "" {
		m.Rules.DeleteField, m.Rules.DeleteMarker = p[KeyDeleteField], p[KeyDeleteMarker]
	}
	if m.Rules.DeletesByTime || m.Ordering == storage.EventTime && len(fields) > 1 {
		m.Rules.OrderingFields = fields
	}
	return m
}

// Timezone gives the zone in which instant times are drawn: UTC, or the zone of this process.
func (p Properties) Timezone() *time.Location {
	if strings.EqualFold(p[KeyTimezone], "UTC") {
		return time.UTC
	}
	return time.Local
}

// ArchiveFolder gives the folder of the archived timeline below .hoodie; "" is .hoodie itself.
func (p Properties) ArchiveFolder() string { return p[KeyArchiveFolder] }

// Create makes the table in folder dir: its hoodie.properties, with the defaults of version 6 where p says nothing. The
// folders of a table are implied by the objects in them. The error wraps storage.ErrExist if there is a table already.
func Create(ctx context.Context, s storage.Store, dir string, p Properties) error {
	p = maps.Clone(p)
	for key, value := range map[string]string{
		KeyType: CopyOnWrite, KeyVersion: "6", KeyLayoutVersion: "1", KeyDatabase: "", KeyBaseFileFormat: "PARQUET",
		KeyPopulateMeta: "true", KeyArchiveFolder: "archived", KeyTimezone: "UTC", KeyPartitionFields: "",
		KeyHiveStyle: "false", KeyURLEncode: "false", KeyDropPartition: "false", KeyPartitionMeta: "false", KeyCDC: "false",
	} {
		if _, ok := p[key]; !ok {
			p[key] = value
		}
	}
	if p[KeyName] == "" {
		return fmt.Errorf("creating table in %s: no %s", dir, KeyName)
	}
	if err := p.Writable(); err != nil {
		return fmt.Errorf("creating table in %s: %w", dir, err)
	}
	p[KeyChecksum] = p.Checksum()
	comment := "Properties saved on " + now().UTC().Format(time.RFC3339Nano)
	if err := s.PutNew(ctx, join(dir, metaFolder, propertiesFile), p.format(comment)); err != nil {
		return fmt.Errorf("creating table in %s: %w", dir, err)
	}
	return nil
}
