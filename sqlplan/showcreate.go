package sqlplan

import (
	"strconv"
	"strings"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/rowexec"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// optionsTable is a table that has options of its own.
type optionsTable interface {
	sql.Table
	// optionsJSON gives the options as a JSON object, "" if all are the defaults.
	optionsJSON() string
}

// buildShowCreate runs SHOW CREATE TABLE. The engine's exec builder asks it first for every node; nil means another
// statement. The statement of a table with options ends with a comment that MySQL and MariaDB skip and lakesql reads, so
// that a dump restores here with them and loads elsewhere without.
func buildShowCreate(ctx *sql.Context, n sql.Node, row sql.Row) (sql.RowIter, error) {
	show, ok := n.(*plan.ShowCreateTable)
	if !ok {
		return nil, nil
	}
	iter, err := rowexec.NewBuilder(nil, sql.EngineOverrides{SchemaFormatter: &tableFormatter{}}).Build(ctx, show, row)
	if err != nil {
		return nil, err
	}
	resolved, ok := show.Child.(*plan.ResolvedTable)
	if !ok {
		return iter, nil
	}
	table := resolved.Table
	for {
		if t, ok := table.(optionsTable); ok {
			if options := t.optionsJSON(); options != "" {
				return &showCreateIter{RowIter: iter, suffix: " " + optionsComment(options)}, nil
			}
			return iter, nil
		}
		w, ok := table.(sql.TableWrapper)
		if !ok {
			return iter, nil
		}
		table = w.Underlying()
	}
}

// showCreateIter appends to the statement in the second column.
type showCreateIter struct {
	sql.RowIter
	suffix string
}

func (i *showCreateIter) Next(ctx *sql.Context) (sql.Row, error) {
	row, err := i.RowIter.Next(ctx)
	if err != nil {
		return nil, err
	}
	text, ok := row[1].(string)
	if !ok {
		return row, nil
	}
	return sql.NewRow(row[0], text+i.suffix), nil
}

// optionsComment gives the clause that carries options. 99999 is above every version of MySQL and MariaDB.
func optionsComment(options string) string {
	// JSON may spell a slash with a backslash: the text cannot end the comment then.
	options = strings.ReplaceAll(options, "*/", `*\/`)
	return "/*!99999 ENGINE_ATTRIBUTE=" + quoteText(options) + " */"
}

// tableFormatter writes the parts of SHOW CREATE TABLE. It is the front end's writer, mended where that writes something
// that is read back as another table.
type tableFormatter struct {
	sql.MySqlSchemaFormatter
}

var _ sql.SchemaFormatter = (*tableFormatter)(nil)

// GenerateCreateTableColumnDefinition writes a column.
func (f *tableFormatter) GenerateCreateTableColumnDefinition(col *sql.Column, def, onUpdate string, table sql.CollationID) string {
	if col.Default != nil && col.Generated == nil {
		if text, ok := defaultText(col.Default); ok {
			def = text
		}
	}
	c := *col
	switch t := col.Type.(type) {
	case types.EnumType:
		c.Type = labelType{anyType: t, TypeWithCollation: t, text: "enum(" + quoteList(t.Values()) + ")"}
	case types.SetType:
		c.Type = labelType{anyType: t, TypeWithCollation: t, text: "set(" + quoteList(t.Values()) + ")"}
	}
	text := f.MySqlSchemaFormatter.GenerateCreateTableColumnDefinition(&c, def, onUpdate, table)
	if col.Hidden {
		text += " /*!80023 INVISIBLE */"
	}
	return text
}

// GenerateCreateTableIndexDefinition escapes the comment, which the front end leaves as it is.
func (f *tableFormatter) GenerateCreateTableIndexDefinition(unique, spatial, fullText, vector bool, id string, cols []string, comment string) (string, bool) {
	return f.MySqlSchemaFormatter.GenerateCreateTableIndexDefinition(unique, spatial, fullText, vector, id, cols,
		sql.EscapeSpecialCharactersInComment(comment))
}

// anyType is sql.Type under a name that its method Type leaves free.
type anyType = sql.Type

// labelType is an ENUM or SET whose text has its labels escaped.
type labelType struct {
	anyType
	sql.TypeWithCollation
	text string
}

// StringWithTableCollation gives the text, with the collation if it is not the table's.
func (t labelType) StringWithTableCollation(table sql.CollationID) string {
	c := t.Collation()
	s := t.text
	if c.CharacterSet() != table.CharacterSet() {
		s += " CHARACTER SET " + c.CharacterSet().Name()
	}
	if c != table {
		s += " COLLATE " + c.Name()
	}
	return s
}

// defaultText writes a literal default whose value the front end would print in its Go form: ENUM as its number, SET as its
// bits, DECIMAL and DOUBLE with an exponent.
func defaultText(def *sql.ColumnDefaultValue) (string, bool) {
	if !def.Literal || def.OutType == nil {
		return "", false
	}
	v, err := def.Eval(sql.NewEmptyContext(), nil)
	if err != nil || v == nil {
		return "", false
	}
	switch t := def.OutType.(type) {
	case types.EnumType:
		if i, ok := v.(uint16); ok {
			label, ok := t.At(int(i))
			return quoteText(label), ok
		}
	case types.SetType:
		if bits, ok := v.(uint64); ok {
			text, err := t.BitsToString(bits)
			return quoteText(text), err == nil
		}
	}
	switch v := v.(type) {
	case *apd.Decimal:
		return "'" + v.Text('f') + "'", true
	case float64:
		return "'" + floatText(v, 64) + "'", true
	case float32:
		return "'" + floatText(float64(v), 32) + "'", true
	}
	return "", false
}

// floatText writes a number as MySQL does: plain digits, an exponent only where there would be many.
func floatText(f float64, bits int) string {
	if a := max(f, -f); a != 0 && (a < 1e-15 || a >= 1e15) {
		return strconv.FormatFloat(f, 'e', -1, bits)
	}
	return strconv.FormatFloat(f, 'f', -1, bits)
}
