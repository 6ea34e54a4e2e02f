package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Keyspaces of the hot tier that this package owns (package index owns 'r', 'l', 's', 'g', 'd'):
//
//	'm' name                 → values of the warehouse: id, clock, next table id
//	't' table                → tableRecord (JSON)
//	'j' sequence             → commit record: tables that it changed, rows and bytes of each
//	'p' table sequence ord   → packet row: one changed row of a commit
//	'n' table                → next AUTO_INCREMENT value
//	'i' table                → flush intent (JSON)
//	'u' table                → dropped table that can be brought back (JSON)
//	'o' table instant        → cut: the last sequence that the instant of ours holds, bytes of its rows in the journal, effect
//	'e' table instant        → effect of an instant that was adopted (JSON)
//	'v' table sequence       → definition that the table had from then on (JSON)
const (
	prefixMeta    = 'm'
	prefixTable   = 't'
	prefixJournal = 'j'
	prefixPacket  = 'p'
	prefixAuto    = 'n'
	prefixIntent  = 'i'
	prefixOwn     = 'o'
	prefixDropped = 'u'
	prefixEffect  = 'e'
	prefixDefined = 'v'
)

func metaKey(name string) []byte { return append([]byte{prefixMeta}, name...) }

// metaDatabases names the list of databases and their objects (JSON).
const metaDatabases = "databases"

// metaNext names the next table id.
const metaNext = "next"

// metaCeiling names the time up to which times may have been shown without a commit.
const metaCeiling = "ceiling"

// metaFloor names the largest sequence at or below which every commit is flushed.
const metaFloor = "floor"

func idKey(prefix byte, t index.TableID) []byte {
	return binary.BigEndian.AppendUint32([]byte{prefix}, uint32(t))
}

func journalKey(seq index.Seq) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixJournal}, uint64(seq))
}

func packetKey(t index.TableID, seq index.Seq, ord uint32) []byte {
	k := make([]byte, 17)
	putPacketKey(k, t, seq, ord)
	return k
}

func putPacketKey(k []byte, t index.TableID, seq index.Seq, ord uint32) {
	k[0] = prefixPacket
	binary.BigEndian.PutUint32(k[1:], uint32(t))
	binary.BigEndian.PutUint64(k[5:], uint64(seq))
	binary.BigEndian.PutUint32(k[13:], ord)
}

func ownKey(t index.TableID, it storage.InstantTime) []byte {
	return append(idKey(prefixOwn, t), it...)
}

// commitRecord is the journal's record of one commit.
//
//	version <1b> | tables <uvarint> | per table: id <uvarint>, rows <uvarint>, bytes <uvarint>
type commitRecord struct {
	tables []commitTable
}

type commitTable struct {
	id    index.TableID
	rows  uint64
	bytes uint64
}

const commitVersion = 1

func (r *commitRecord) encode() []byte {
	b := append([]byte{commitVersion}, binary.AppendUvarint(nil, uint64(len(r.tables)))...)
	for _, t := range r.tables {
		b = binary.AppendUvarint(b, uint64(t.id))
		b = binary.AppendUvarint(b, t.rows)
		b = binary.AppendUvarint(b, t.bytes)
	}
	return b
}

var errJournal = errors.New("catalog: journal entry is damaged")

func decodeCommit(b []byte) (*commitRecord, error) {
	if len(b) == 0 {
		return nil, errJournal
	}
	if b[0] != commitVersion {
		return nil, fmt.Errorf("catalog: journal entry of version %d, this program knows %d", b[0], commitVersion)
	}
	d := decoder{b: b[1:]}
	r := &commitRecord{}
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		r.tables = append(r.tables, commitTable{index.TableID(d.uvarint()), d.uvarint(), d.uvarint()})
	}
	if d.bad {
		return nil, errJournal
	}
	return r, nil
}

// packetRow is one changed row of a commit: the last state that the commit gave a key, and with packetBefore the one before.
//
//	flags <1b> | schema version <uvarint> | index key, record key, partition path, cold key <uvarint length, bytes> | row (Avro)
//	| row before (Avro, of the same schema version) | number of the file group that it stood in <4b> | its length <4b>
//
// Commits of releases before 0.2 lack packetKnown: they do not tell what was before.
type packetRow struct {
	del     bool
	again   bool   // the key was deleted before it was written again
	schema  int    // schema version of row
	ikey    []byte // index key
	key     string // record key text
	part    string // partition path
	coldKey string // record key text that the cold row of the same index key has, if it is another one
	row     []byte // Avro; empty for a delete

	known  bool   // had and before say what was before the commit
	had    bool   // there was a row
	before []byte // Avro of it; nil if an earlier commit of the same flush made it
	group  uint32 // number of the file group that before stood in; noGroup: in the journal
}

const noGroup = ^uint32(0)

const (
	packetDelete  = 1
	packetAgain   = 2
	packetColdKey = 4
	packetKnown   = 8
	packetHad     = 16
	packetBefore  = 32
)

const beforeLength = 8 // bytes of the file group and the length of a row before

// setPacket writes an encoded packet row with the row before the commit, nil if the journal has it.
func setPacket(b *pebble.Batch, t index.TableID, seq index.Seq, ord uint32, packet []byte, known, had bool, before []byte, group uint32) error {
	n := len(packet)
	if before != nil {
		n += len(before) + beforeLength
	}
	const keyLength = 17
	op := b.SetDeferred(keyLength, n)
	putPacketKey(op.Key, t, seq, ord)
	rest := op.Value[copy(op.Value, packet):]
	if known {
		op.Value[0] |= packetKnown
	}
	if had {
		op.Value[0] |= packetHad
	}
	if before != nil {
		op.Value[0] |= packetBefore
		rest = rest[copy(rest, before):]
		binary.BigEndian.PutUint32(rest, group)
		binary.BigEndian.PutUint32(rest[4:], uint32(len(before)))
	}
	return op.Finish()
}

// barePacket gives a packet row without the row before; it is made in dst if there is one.
func barePacket(dst *arena, b []byte) []byte {
	if len(b) < 1+beforeLength || b[0]&packetBefore == 0 {
		return dst.keep(b)
	}
	n := int64(len(b)) - beforeLength
	if n -= int64(binary.BigEndian.Uint32(b[n+4:])); n < 1 {
		return dst.keep(b) // viewPacket finds the damage
	}
	out := dst.keep(b[:n])
	out[0] &^= packetBefore
	return out
}

func (p *packetRow) append(dst []byte) []byte {
	var flags byte
	if p.del {
		flags |= packetDelete
	}
	if p.again {
		flags |= packetAgain
	}
	if p.coldKey != "" {
		flags |= packetColdKey
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(p.schema))
	dst = binary.AppendUvarint(dst, uint64(len(p.ikey)))
	dst = append(dst, p.ikey...)
	dst = binary.AppendUvarint(dst, uint64(len(p.key)))
	dst = append(dst, p.key...)
	dst = binary.AppendUvarint(dst, uint64(len(p.part)))
	dst = append(dst, p.part...)
	if p.coldKey != "" {
		dst = binary.AppendUvarint(dst, uint64(len(p.coldKey)))
		dst = append(dst, p.coldKey...)
	}
	return append(dst, p.row...)
}

// packetKeyOf gives the index key of a packet row that is whole.
func packetKeyOf(b []byte) []byte {
	d := decoder{b: b[1:]}
	d.uvarint()
	return d.bytes()
}

// decodePacket reads a packet row; ikey and row point into b.
func decodePacket(b []byte) (packetRow, error) {
	p, err := viewPacket(b)
	p.key, p.part, p.coldKey = strings.Clone(p.key), strings.Clone(p.part), strings.Clone(p.coldKey)
	return p, err
}

// viewPacket is decodePacket of bytes that do not change any more: the texts point into b as well. The row before always does.
func viewPacket(b []byte) (packetRow, error) {
	if len(b) == 0 {
		return packetRow{}, errJournal
	}
	flags := b[0]
	p := packetRow{del: flags&packetDelete != 0, again: flags&packetAgain != 0, known: flags&packetKnown != 0, had: flags&packetHad != 0}
	if flags&packetBefore != 0 {
		n := int64(len(b)) - beforeLength
		if n < 1 || n-int64(binary.BigEndian.Uint32(b[n+4:])) < 1 {
			return packetRow{}, errJournal
		}
		from := n - int64(binary.BigEndian.Uint32(b[n+4:]))
		p.before, p.group, b = b[from:n:n], binary.BigEndian.Uint32(b[n:]), b[:from]
	}
	d := decoder{b: b[1:]}
	p.schema = int(d.uvarint())
	p.ikey = d.bytes()
	p.key = textView(d.bytes())
	p.part = textView(d.bytes())
	if flags&packetColdKey != 0 {
		p.coldKey = textView(d.bytes())
	}
	if d.bad {
		return packetRow{}, errJournal
	}
	p.row = d.b
	return p, nil
}

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	n, k := binary.Uvarint(d.b)
	if k <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[k:]
	return n
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

// packet reads one packet row.
func readPacket(r pebble.Reader, t index.TableID, seq index.Seq, ord uint32) (packetRow, error) {
	v, closer, err := r.Get(packetKey(t, seq, ord))
	if err != nil {
		return packetRow{}, fmt.Errorf("read journal row %d/%d: %w", seq, ord, err)
	}
	b := append([]byte(nil), v...)
	closer.Close()
	return decodePacket(b)
}

// eachPacket calls f for the packet rows of a table with a sequence in (after, upTo], in order. The row is valid during the call.
func eachPacket(r pebble.Reader, t index.TableID, after, upTo index.Seq, f func(seq index.Seq, ord uint32, p packetRow) error) error {
	return eachRaw(r, t, after, upTo, func(seq index.Seq, ord uint32, b []byte) error {
		p, err := decodePacket(b)
		if err != nil {
			return err
		}
		return f(seq, ord, p)
	})
}

// eachRaw is eachPacket of rows as they stand.
func eachRaw(r pebble.Reader, t index.TableID, after, upTo index.Seq, f func(seq index.Seq, ord uint32, b []byte) error) error {
	if upTo <= after {
		return nil
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: packetKey(t, after+1, 0), UpperBound: packetKey(t, upTo+1, 0)})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		k := it.Key()
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := f(index.Seq(binary.BigEndian.Uint64(k[5:13])), binary.BigEndian.Uint32(k[13:17]), v); err != nil {
			return err
		}
	}
	return it.Error()
}
