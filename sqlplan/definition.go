package sqlplan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"
)

// definitionVersion is the version of the JSON that this package writes. A reader refuses a newer one instead of dropping
// what it does not know.
const definitionVersion = 1

// tableDefinition is what MySQL knows about a table beyond the table schema of its files. It is kept as JSON beside the
// table's properties, so that the folder alone restores the table.
type tableDefinition struct {
	Version       int                    `json:"version"`
	Columns       []columnDefinition     `json:"columns"`
	PrimaryKey    []keyPart              `json:"primaryKey,omitempty"`
	Indexes       []indexDefinition      `json:"indexes,omitempty"`
	Checks        []checkDefinition      `json:"checks,omitempty"`
	ForeignKeys   []foreignKeyDefinition `json:"foreignKeys,omitempty"`
	Collation     string                 `json:"collation"`
	Comment       string                 `json:"comment,omitempty"`
	Engine        string                 `json:"engine,omitempty"`        // as the statement wrote it; it changes nothing
	AutoIncrement uint64                 `json:"autoIncrement,omitempty"` // first value that CREATE or ALTER TABLE asked for
}

// columnDefinition is one column, in table order.
type columnDefinition struct {
	Name          string          `json:"name"`
	Type          string          `json:"type"` // MySQL's text, with the collation spelled out
	Nullable      bool            `json:"nullable,omitempty"`
	Default       *expressionText `json:"default,omitempty"`
	OnUpdate      *expressionText `json:"onUpdate,omitempty"`
	Generated     *expressionText `json:"generated,omitempty"`
	Virtual       bool            `json:"virtual,omitempty"` // generated on reading, else stored
	AutoIncrement bool            `json:"autoIncrement,omitempty"`
	Hidden        bool            `json:"hidden,omitempty"`       // INVISIBLE
	HiddenSystem  bool            `json:"hiddenSystem,omitempty"` // made by the front end for a functional index
	Comment       string          `json:"comment,omitempty"`
	Extra         string          `json:"extra,omitempty"` // of information_schema.columns
}

// expressionText is an expression as SQL text that the front end parses again, with its own columns unqualified. A text in
// parentheses is an expression default, one without a literal or CURRENT_TIMESTAMP.
type expressionText struct {
	Text          string `json:"text"`
	Literal       bool   `json:"literal,omitempty"`
	Parenthesized bool   `json:"parenthesized,omitempty"`
}

// keyPart is a column of a key or an index.
type keyPart struct {
	Column string `json:"column"`
	Prefix int    `json:"prefix,omitempty"` // characters (text) or bytes; 0: the whole value
}

// indexDefinition is a secondary index.
type indexDefinition struct {
	Name    string    `json:"name"`
	Columns []keyPart `json:"columns"`
	Unique  bool      `json:"unique,omitempty"`
	Comment string    `json:"comment,omitempty"`
}

// checkDefinition is a CHECK constraint.
type checkDefinition struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
	Enforced   bool   `json:"enforced,omitempty"`
	NotValid   bool   `json:"notValid,omitempty"` // existing rows were not checked
}

// foreignKeyDefinition is a foreign key that the table declares.
type foreignKeyDefinition struct {
	Name           string   `json:"name"`
	Database       string   `json:"database"`
	Table          string   `json:"table"`
	Columns        []string `json:"columns"`
	ParentDatabase string   `json:"parentDatabase"`
	ParentTable    string   `json:"parentTable"`
	ParentColumns  []string `json:"parentColumns"`
	OnUpdate       string   `json:"onUpdate,omitempty"`
	OnDelete       string   `json:"onDelete,omitempty"`
	Resolved       bool     `json:"resolved,omitempty"`
	NotValid       bool     `json:"notValid,omitempty"`
	Match          uint8    `json:"match,omitempty"`
}

// newTableDefinition describes a table as CREATE TABLE gives it. Indexes, checks and foreign keys come by their own
// statements of the front end and are added with the methods below.
func newTableDefinition(ctx *sql.Context, pk sql.PrimaryKeySchema, collation sql.CollationID, comment string) (*tableDefinition, error) {
	d := &tableDefinition{Version: definitionVersion, Collation: collation.Name(), Comment: comment}
	if err := d.setSchema(ctx, pk); err != nil {
		return nil, err
	}
	return d, nil
}

// setSchema replaces columns and primary key. Prefix lengths of key columns that stay are kept: the front end's schema does
// not carry them.
func (d *tableDefinition) setSchema(ctx *sql.Context, pk sql.PrimaryKeySchema) error {
	columns := make([]columnDefinition, 0, len(pk.Schema))
	for _, col := range pk.Schema {
		c, err := newColumnDefinition(ctx, col)
		if err != nil {
			return err
		}
		columns = append(columns, c)
	}
	var key []keyPart
	for _, i := range keyOrdinals(pk) {
		part := keyPart{Column: pk.Schema[i].Name}
		if old := slices.IndexFunc(d.PrimaryKey, func(p keyPart) bool { return strings.EqualFold(p.Column, part.Column) }); old >= 0 {
			part.Prefix = d.PrimaryKey[old].Prefix
		}
		key = append(key, part)
	}
	d.Columns, d.PrimaryKey = columns, key
	return nil
}

// keyOrdinals gives the positions of the primary key columns in key order.
func keyOrdinals(pk sql.PrimaryKeySchema) []int {
	if len(pk.PkOrdinals) > 0 {
		return pk.PkOrdinals
	}
	var out []int
	for i, col := range pk.Schema {
		if col.PrimaryKey {
			out = append(out, i)
		}
	}
	return out
}

func newColumnDefinition(ctx *sql.Context, col *sql.Column) (columnDefinition, error) {
	c := columnDefinition{
		Name: col.Name, Type: typeText(col.Type), Nullable: col.Nullable, Virtual: col.Virtual, AutoIncrement: col.AutoIncrement,
		Hidden: col.Hidden, HiddenSystem: col.HiddenSystem, Comment: col.Comment, Extra: col.Extra,
	}
	var err error
	if c.Default, err = newExpressionText(ctx, col.Default); err != nil {
		return c, err
	}
	if c.OnUpdate, err = newExpressionText(ctx, col.OnUpdate); err != nil {
		return c, err
	}
	c.Generated, err = newExpressionText(ctx, col.Generated)
	return c, err
}

// newIndexDefinition describes an index. Kinds that tables do not have are error 1235.
func newIndexDefinition(def sql.IndexDef) (indexDefinition, error) {
	for kind, is := range map[string]bool{"FULLTEXT": def.IsFullText(), "SPATIAL": def.IsSpatial(), "VECTOR": def.IsVector()} {
		if is {
			return indexDefinition{}, mysql.NewSQLError(mysql.ERNotSupportedYet, stateNotSupported,
				"This version of lakesql doesn't yet support %s indexes ('%s')", kind, def.Name)
		}
	}
	x := indexDefinition{Name: def.Name, Unique: def.IsUnique(), Comment: def.Comment}
	for _, c := range def.Columns {
		if c.Name == "" {
			return indexDefinition{}, mysql.NewSQLError(mysql.ERNotSupportedYet, stateNotSupported,
				"This version of lakesql doesn't yet support indexes on expressions ('%s')", def.Name)
		}
		x.Columns = append(x.Columns, keyPart{Column: c.Name, Prefix: int(c.Length)})
	}
	return x, nil
}

// indexNumber finds an index by name, -1 if there is none.
func (d *tableDefinition) indexNumber(name string) int {
	return slices.IndexFunc(d.Indexes, func(x indexDefinition) bool { return strings.EqualFold(x.Name, name) })
}

// columnNumber finds a column by name, -1 if there is none.
func (d *tableDefinition) columnNumber(name string) int {
	return slices.IndexFunc(d.Columns, func(c columnDefinition) bool { return strings.EqualFold(c.Name, name) })
}

func newCheckDefinition(c *sql.CheckDefinition) checkDefinition {
	return checkDefinition{Name: c.Name, Expression: c.CheckExpression, Enforced: c.Enforced, NotValid: c.IsNotValid}
}

func (c checkDefinition) sql() sql.CheckDefinition {
	return sql.CheckDefinition{Name: c.Name, CheckExpression: c.Expression, Enforced: c.Enforced, IsNotValid: c.NotValid}
}

func newForeignKeyDefinition(f sql.ForeignKeyConstraint) foreignKeyDefinition {
	return foreignKeyDefinition{
		Name: f.Name, Database: f.Database, Table: f.Table, Columns: slices.Clone(f.Columns),
		ParentDatabase: f.ParentDatabase, ParentTable: f.ParentTable, ParentColumns: slices.Clone(f.ParentColumns),
		OnUpdate: string(f.OnUpdate), OnDelete: string(f.OnDelete),
		Resolved: f.IsResolved, NotValid: f.IsNotValid, Match: uint8(f.MatchType),
	}
}

func (f foreignKeyDefinition) sql() sql.ForeignKeyConstraint {
	return sql.ForeignKeyConstraint{
		Name: f.Name, Database: f.Database, Table: f.Table, Columns: slices.Clone(f.Columns),
		ParentDatabase: f.ParentDatabase, ParentTable: f.ParentTable, ParentColumns: slices.Clone(f.ParentColumns),
		OnUpdate: sql.ForeignKeyReferentialAction(f.OnUpdate), OnDelete: sql.ForeignKeyReferentialAction(f.OnDelete),
		IsResolved: f.Resolved, IsNotValid: f.NotValid, MatchType: sql.ForeignKeyMatchType(f.Match),
	}
}

// encode gives the JSON that is kept with the table.
func (d *tableDefinition) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		return nil, fmt.Errorf("writing a table definition: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// decodeTableDefinition reads what encode wrote.
func decodeTableDefinition(b []byte) (*tableDefinition, error) {
	d := new(tableDefinition)
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("reading a table definition: %w", err)
	}
	if d.Version < 1 || d.Version > definitionVersion {
		return nil, fmt.Errorf("reading a table definition: version %d, this lakesql knows %d", d.Version, definitionVersion)
	}
	return d, nil
}

// clone gives a copy that can be changed.
func (d *tableDefinition) clone() *tableDefinition {
	c := *d
	c.Columns = slices.Clone(d.Columns)
	c.PrimaryKey = slices.Clone(d.PrimaryKey)
	c.Indexes = slices.Clone(d.Indexes)
	c.Checks = slices.Clone(d.Checks)
	c.ForeignKeys = slices.Clone(d.ForeignKeys)
	return &c
}

// collation gives the table's default collation.
func (d *tableDefinition) collation() (sql.CollationID, error) {
	return sql.ParseCollation("", d.Collation, false)
}

// schema gives the front end's schema of the table under a name. Nothing in it changes afterwards: it serves all sessions.
// Literal defaults are resolved here once; expressions are left as text, which the front end resolves for each statement,
// because their columns get the statement's own numbers.
func (d *tableDefinition) schema(ctx *sql.Context, db, table string) (sql.PrimaryKeySchema, error) {
	sch := make(sql.Schema, len(d.Columns))
	for i, c := range d.Columns {
		t, err := parseType(ctx, c.Type)
		if err != nil {
			return sql.PrimaryKeySchema{}, fmt.Errorf("table %s.%s, column %s: %w", db, table, c.Name, err)
		}
		sch[i] = &sql.Column{
			Name: c.Name, Type: t, Nullable: c.Nullable, Source: table, DatabaseSource: db,
			Default: c.Default.unresolved(), OnUpdate: c.OnUpdate.unresolved(), Generated: c.Generated.unresolved(),
			Virtual: c.Virtual, AutoIncrement: c.AutoIncrement, Hidden: c.Hidden, HiddenSystem: c.HiddenSystem,
			Comment: c.Comment, Extra: c.Extra,
		}
	}
	ordinals := make([]int, len(d.PrimaryKey))
	for i, part := range d.PrimaryKey {
		n := d.columnNumber(part.Column)
		if n < 0 {
			return sql.PrimaryKeySchema{}, fmt.Errorf("table %s.%s: primary key column %s is not a column", db, table, part.Column)
		}
		sch[n].PrimaryKey = true
		ordinals[i] = n
	}
	if err := resolveLiterals(ctx, db, table, sch, d); err != nil {
		return sql.PrimaryKeySchema{}, err
	}
	return sql.NewPrimaryKeySchema(sch, ordinals...), nil
}
