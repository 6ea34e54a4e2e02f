package dialect

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"
)

// The engine hands on of CREATE TABLE to a database only name, schema, collation and comment; of
// CREATE TABLE … SELECT not even the comment; of LIKE nothing of the source but its columns; and of
// ALTER TABLE none of the options. So what a statement says beyond that travels in a place that
// the engine keeps: in CREATE as the comment of one additional column, in ALTER as the comment.

// Carrier is what a statement says about a table beyond what the engine hands on.
type Carrier struct {
	Options  Options // table options in the statement
	Location string  // LOCATION 'path'
	Attach   bool    // no columns given: take the table that lies at Location as it is

	// CREATE TABLE … LIKE: the table whose definition and options are taken. LikeDatabase "" is the
	// session's database.
	LikeDatabase, LikeTable string

	// Comment is the table's comment; HasComment says that one was given. CREATE TABLE … SELECT has
	// it nowhere else.
	Comment    string
	HasComment bool
}

// carrierName is the column's name. No client can write it by accident: it holds a NUL.
const carrierName = "__lakesql\x00carrier"

// carrierMark begins the encoded text.
const carrierMark = "\x00lakesql:"

type carrierJSON struct {
	Options  json.RawMessage `json:"options,omitempty"`
	Location string          `json:"location,omitempty"`
	Attach   bool            `json:"attach,omitempty"`
	LikeDB   string          `json:"like_database,omitempty"`
	Like     string          `json:"like,omitempty"`
	Comment  *string         `json:"comment,omitempty"`
}

func (c Carrier) encode() string {
	j := carrierJSON{Location: c.Location, Attach: c.Attach, LikeDB: c.LikeDatabase, Like: c.LikeTable}
	if !c.Options.Empty() {
		j.Options = json.RawMessage(c.Options.Marshal())
	}
	if c.HasComment {
		j.Comment = &c.Comment
	}
	b, err := json.Marshal(j)
	if err != nil {
		panic(fmt.Sprintf("dialect: encoding a carrier: %v", err)) // strings and booleans only
	}
	return carrierMark + string(b)
}

// empty says that the statement holds nothing but what the engine hands on.
func (c Carrier) empty() bool {
	return c.Options.Empty() && c.Location == "" && !c.Attach && c.LikeTable == ""
}

// DecodeComment takes the carrier out of the comment that ALTER TABLE sets. ok is false for an
// ordinary comment. A statement with both sets them one after the other.
func DecodeComment(comment string) (c Carrier, ok bool, err error) {
	text, ok := strings.CutPrefix(comment, carrierMark)
	if !ok {
		return Carrier{}, false, nil
	}
	var j carrierJSON
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return Carrier{}, true, fmt.Errorf("decoding table options of a statement: %w", err)
	}
	c = Carrier{Location: j.Location, Attach: j.Attach, LikeDatabase: j.LikeDB, LikeTable: j.Like}
	if j.Comment != nil {
		c.Comment, c.HasComment = *j.Comment, true
	}
	if len(j.Options) > 0 {
		if c.Options, err = ParseOptions(string(j.Options)); err != nil {
			return Carrier{}, true, err
		}
	}
	return c, true, nil
}

// TakeCarrier takes the carrier out of the schema that CREATE TABLE hands to a database, and gives
// the schema without it. ok is false, and the schema is the one passed, when there is none. Every
// CREATE TABLE with options, LOCATION or LIKE has one, also CREATE TEMPORARY TABLE.
func TakeCarrier(schema sql.PrimaryKeySchema) (c Carrier, clean sql.PrimaryKeySchema, ok bool, err error) {
	at := -1
	for i, col := range schema.Schema {
		if col.Name == carrierName {
			at = i
		}
	}
	if at < 0 {
		return Carrier{}, schema, false, nil
	}
	c, marked, err := DecodeComment(schema.Schema[at].Comment)
	if err != nil || !marked {
		return Carrier{}, schema, true, err
	}
	clean.Schema = make(sql.Schema, 0, len(schema.Schema)-1)
	clean.Schema = append(append(clean.Schema, schema.Schema[:at]...), schema.Schema[at+1:]...)
	clean.PkOrdinals = make([]int, 0, len(schema.PkOrdinals))
	for _, o := range schema.PkOrdinals {
		if o > at {
			o--
		}
		clean.PkOrdinals = append(clean.PkOrdinals, o)
	}
	return c, clean, true, nil
}

// carrierColumn is the column that CREATE TABLE carries.
func carrierColumn(c Carrier) *ast.ColumnDefinition {
	return &ast.ColumnDefinition{
		Name: ast.NewColIdent(carrierName),
		Type: ast.ColumnType{Type: "int", Comment: ast.NewStrVal([]byte(c.encode()))},
	}
}
