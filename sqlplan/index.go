package sqlplan

import (
	"bytes"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/catalog"
)

// primaryIndex is MySQL's name of the primary key's index, which has the name "" in the catalog.
const primaryIndex = "PRIMARY"

// filteredRanges is up to how many ranges a lookup compares its rows itself. Above, the filter that the front end keeps over
// every lookup does (PreciseMatch is false); joins and foreign keys look up one range at a time.
const filteredRanges = 8

// index is an index of a table as the planner sees it.
type index struct {
	db, table string
	name      string
	columns   sql.Schema
	prefix    []uint16
	unique    bool
	comment   string
	def       *definition
}

var (
	_ sql.Index         = (*index)(nil)
	_ sql.ExtendedIndex = (*index)(nil)
)

func (x *index) ID() string                            { return x.name }
func (x *index) Database() string                      { return x.db }
func (x *index) Table() string                         { return x.table }
func (x *index) IsUnique() bool                        { return x.unique }
func (x *index) IsSpatial() bool                       { return false }
func (x *index) IsFullText() bool                      { return false }
func (x *index) IsVector() bool                        { return false }
func (x *index) Comment() string                       { return x.comment }
func (x *index) IndexType() string                     { return "BTREE" }
func (x *index) IsGenerated() bool                     { return false }
func (x *index) CanSupportOrderBy(sql.Expression) bool { return false }
func (x *index) PrefixLengths() []uint16               { return x.prefix }
func (x *index) CoversColumns(names []string) bool     { return false }

// CanSupport refuses ranges over an ENUM that are not points: the front end makes them by the place among the members, also where
// the comparison is one of texts.
func (x *index) CanSupport(_ *sql.Context, ranges ...sql.Range) bool {
	for _, r := range ranges {
		cols, ok := r.(sql.MySQLRange)
		if !ok {
			return false
		}
		for i, c := range cols {
			if i < len(x.columns) && types.IsEnum(x.columns[i].Type) && !pointOrAll(c) {
				return false
			}
		}
	}
	return true
}

// pointOrAll says whether a range holds one value, NULL alone, or does not bound a column by values.
func pointOrAll(c sql.MySQLRangeColumnExpr) bool {
	low, lowOK := c.LowerBound.(sql.Below)
	high, highOK := c.UpperBound.(sql.Above)
	if lowOK && highOK {
		return low.Key == high.Key
	}
	if lowOK || highOK {
		return false
	}
	_, above := c.LowerBound.(sql.Above)
	_, below := c.UpperBound.(sql.Below)
	return !above && !below
}

func (x *index) Expressions() []string {
	out := make([]string, len(x.columns))
	for i, c := range x.columns {
		out[i] = x.table + "." + c.Name
	}
	return out
}

func (x *index) ColumnExpressionTypes(*sql.Context) []sql.ColumnExpressionType {
	out := make([]sql.ColumnExpressionType, len(x.columns))
	for i, c := range x.columns {
		out[i] = sql.ColumnExpressionType{Expression: x.table + "." + c.Name, Type: c.Type}
	}
	return out
}

// ExtendedExpressions are those of the index with the primary key behind: rows of equal values stand in its order.
func (x *index) ExtendedExpressions(ctx *sql.Context) []string {
	out := x.Expressions()
	for _, c := range x.rest() {
		out = append(out, x.table+"."+c.Name)
	}
	return out
}

func (x *index) ExtendedColumnExpressionTypes(ctx *sql.Context) []sql.ColumnExpressionType {
	out := x.ColumnExpressionTypes(ctx)
	for _, c := range x.rest() {
		out = append(out, sql.ColumnExpressionType{Expression: x.table + "." + c.Name, Type: c.Type})
	}
	return out
}

// rest gives the primary key columns that are not in the index.
func (x *index) rest() sql.Schema {
	var out sql.Schema
	for _, n := range x.def.pk.PkOrdinals {
		c := x.def.pk.Schema[n]
		if x.columns.IndexOfColName(c.Name) < 0 {
			out = append(out, c)
		}
	}
	return out
}

// PreciseMatch is false: an index may find rows that only look alike, so the front end filters again.
func (t *ownTable) PreciseMatch() bool { return false }

func (t *ownTable) GetIndexes(ctx *sql.Context) ([]sql.Index, error) {
	var out []sql.Index
	for _, x := range t.indexes() {
		out = append(out, x)
	}
	return out, nil
}

func (t *table) indexes() []*index {
	var out []*index
	if len(t.def.table.PrimaryKey) > 0 {
		out = append(out, t.newIndex(indexDefinition{Name: primaryIndex, Columns: t.def.table.PrimaryKey, Unique: true}))
	}
	for _, x := range t.def.table.Indexes {
		out = append(out, t.newIndex(x))
	}
	return out
}

func (t *table) newIndex(d indexDefinition) *index {
	x := &index{db: t.db.name, table: t.Name(), name: d.Name, unique: d.Unique, comment: d.Comment, def: t.def}
	prefixed := false
	for _, p := range d.Columns {
		x.columns = append(x.columns, t.def.pk.Schema[t.def.column(p.Column)])
		x.prefix = append(x.prefix, uint16(p.Prefix))
		prefixed = prefixed || p.Prefix > 0
	}
	if !prefixed {
		x.prefix = nil
	}
	return x
}

// IndexedAccess gives the table as an index shows it. What is looked up comes with LookupPartitions.
func (t *ownTable) IndexedAccess(ctx *sql.Context, l sql.IndexLookup) sql.IndexedTable {
	return &indexedTable{ownTable: t}
}

// indexedTable reads what an index finds.
type indexedTable struct{ *ownTable }

var _ sql.IndexedTable = (*indexedTable)(nil)

func (t *indexedTable) WithProjections(ctx *sql.Context, names []string) (sql.Table, error) {
	p, err := t.project(names)
	if err != nil {
		return nil, err
	}
	return &indexedTable{ownTable: &ownTable{p}}, nil
}

func (t *indexedTable) LookupPartitions(ctx *sql.Context, l sql.IndexLookup) (sql.PartitionIter, error) {
	if l.IsEmptyRange {
		return sql.PartitionsToPartitionIter(), nil
	}
	look, err := t.newLookup(ctx, l)
	if err != nil {
		return nil, mysqlError(err)
	}
	return onePartition(&partition{lookup: look}), nil
}

// lookup is what is looked up in an index.
type lookup struct {
	index  string // the catalog's name
	ranges []catalog.KeyRange
	filter *rangeFilter // nil: the front end filters
	extra  sql.Schema   // columns of the filter that the table's projection leaves out
}

func (t *indexedTable) newLookup(ctx *sql.Context, l sql.IndexLookup) (*lookup, error) {
	x, ok := l.Index.(*index)
	if !ok {
		return nil, sql.ErrIndexNotFound.New(l.Index.ID())
	}
	out := &lookup{index: x.name}
	if x.name == primaryIndex {
		out.index = ""
	}
	ranges, ok := l.Ranges.(sql.MySQLRangeCollection)
	if !ok {
		return nil, sql.ErrIndexNotFound.New(l.Index.ID())
	}
	for _, r := range ranges {
		kr, err := x.keyRange(ctx, r)
		if err != nil {
			return nil, err
		}
		out.ranges = append(out.ranges, kr)
	}
	if len(ranges) <= filteredRanges {
		out.filter = &rangeFilter{ranges: ranges}
		columns := append(x.columns[:len(x.columns):len(x.columns)], x.rest()...)
		for _, c := range columns[:min(len(columns), len(ranges[0]))] {
			at := t.schema.IndexOfColName(c.Name)
			if at < 0 {
				at = len(t.schema) + len(out.extra)
				out.extra = append(out.extra, c)
			}
			out.filter.places = append(out.filter.places, at)
			out.filter.types = append(out.filter.types, c.Type)
		}
	}
	return out, nil
}

// rangeFilter tells whether a row lies in one of the planner's ranges.
type rangeFilter struct {
	ranges sql.MySQLRangeCollection
	places []int // of the index's columns in the row
	types  []sql.Type
}

func (f *rangeFilter) holds(ctx *sql.Context, row sql.Row) (bool, error) {
	for _, r := range f.ranges {
		in := true
		for i, c := range r {
			if i >= len(f.places) {
				break
			}
			v := row[f.places[i]]
			above, err := beyond(ctx, f.types[i], v, c.LowerBound)
			if err != nil {
				return false, err
			}
			below := true
			if above {
				if below, err = beyond(ctx, f.types[i], v, c.UpperBound); err != nil {
					return false, err
				}
				below = !below
			}
			if in = above && below; !in {
				break
			}
		}
		if in {
			return true, nil
		}
	}
	return false, nil
}

// beyond says whether a value lies above a cut between values. NULL lies below all others.
func beyond(ctx *sql.Context, typ sql.Type, v any, cut sql.MySQLRangeCut) (bool, error) {
	var key any
	var keyType sql.Type
	at := false // is the key itself above the cut
	switch c := cut.(type) {
	case sql.BelowNull:
		return true, nil
	case sql.AboveNull:
		return v != nil, nil
	case sql.AboveAll:
		return false, nil
	case sql.Below:
		key, keyType, at = c.Key, c.Typ, true
	case sql.Above:
		key, keyType = c.Key, c.Typ
	}
	if v == nil || key == nil {
		return v != nil, nil
	}
	if types.IsBinaryType(typ) {
		if a, b, ok := bothBytes(v, key); ok {
			cmp := bytes.Compare(a, b)
			return cmp > 0 || cmp == 0 && at, nil
		}
	}
	// The column's type knows how its values compare (a collation, the order of ENUM); a key that it cannot hold, such as
	// 1.5 for an INT, compares by its own.
	if keyType == nil || exactly(ctx, typ, keyType, key) {
		keyType = typ
	}
	cmp, err := keyType.Compare(ctx, v, key)
	return cmp > 0 || cmp == 0 && at, err
}

// exactly says whether a column type holds a value of another type without change.
func exactly(ctx *sql.Context, typ, keyType sql.Type, key any) bool {
	conv, in, err := typ.Convert(ctx, key)
	if err != nil || in != sql.InRange || conv == nil {
		return false
	}
	if types.IsBinaryType(typ) {
		a, b, ok := bothBytes(conv, key)
		return ok && bytes.Equal(a, b)
	}
	cmp, err := keyType.Compare(ctx, conv, key)
	return err == nil && cmp == 0
}

// bothBytes gives two values of binary strings.
func bothBytes(a, b any) (x, y []byte, ok bool) {
	get := func(v any) ([]byte, bool) {
		switch v := v.(type) {
		case []byte:
			return v, true
		case string:
			return []byte(v), true
		}
		return nil, false
	}
	x, okX := get(a)
	y, okY := get(b)
	return x, y, okX && okY
}

// keyRange translates a range of the planner: equal leading columns, then at most one column with bounds. What the catalog
// cannot say is left open, since the rows are filtered again.
func (x *index) keyRange(ctx *sql.Context, r sql.MySQLRange) (catalog.KeyRange, error) {
	var out catalog.KeyRange
	for i, c := range r {
		if i >= len(x.columns) {
			break
		}
		col := x.columns[i]
		codec := x.def.codec.byName[col.Name]
		_, ordered, _ := keyCollation(col.Type)
		if x.prefix != nil && x.prefix[i] > 0 {
			ordered = false
		}
		low, lowOpen, lowOK := x.bound(ctx, col, codec, c.LowerBound, false)
		high, highOpen, highOK := x.bound(ctx, col, codec, c.UpperBound, true)
		if lowOK && highOK && !lowOpen && !highOpen && same(low, high) {
			out.Low, out.High = append(out.Low, low), append(out.High, high)
			if x.prefix != nil && x.prefix[i] > 0 {
				break // values that share a prefix do not end the range
			}
			continue
		}
		if ordered {
			if lowOK {
				out.Low, out.LowOpen = append(out.Low, low), lowOpen
			}
			if highOK {
				out.High, out.HighOpen = append(out.High, high), highOpen
			}
		}
		break
	}
	return out, nil
}

// bound gives the key value of a range's end and whether the value itself is left out; ok is false where there is none.
func (x *index) bound(ctx *sql.Context, col *sql.Column, codec *columnCodec, cut sql.MySQLRangeCut, upper bool) (v any, open, ok bool) {
	var key any
	var typ sql.Type
	switch c := cut.(type) {
	case sql.Below:
		key, typ, open = c.Key, c.Typ, upper
	case sql.Above:
		key, typ, open = c.Key, c.Typ, !upper
	case sql.BelowNull:
		return nil, upper, true
	case sql.AboveNull:
		return nil, !upper, true
	default:
		return nil, false, false
	}
	// A value that the column cannot hold exactly (1.5 for an INT) bounds nothing.
	if typ == nil {
		typ = col.Type
	}
	if !exactly(ctx, col.Type, typ, key) {
		return nil, false, false
	}
	conv, _, err := col.Type.Convert(ctx, key)
	if err != nil {
		return nil, false, false
	}
	var sv any
	if clock, ok := conv.(time.Time); ok && isTimestamp(col.Type) {
		sv, err = stampBound(ctx, codec, clock, upper)
	} else {
		sv, err = codec.toStorage(conv)
	}
	if err != nil {
		return nil, false, false
	}
	return sv, open, true
}

// same compares two key values of one column.
func same(a, b any) bool {
	switch a := a.(type) {
	case []byte:
		bb, ok := b.([]byte)
		return ok && string(a) == string(bb)
	}
	return a == b
}
