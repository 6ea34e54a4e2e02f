package sqlplan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// showable is a table that writes its own statement.
type showable interface {
	// createText gives the statement that makes the table; sch has the columns with their defaults resolved.
	createText(ctx *sql.Context, sch sql.Schema) (string, error)
}

// buildShowCreate runs SHOW CREATE TABLE of a table of ours; nil is another's, or a view.
func buildShowCreate(ctx *sql.Context, n *plan.ShowCreateTable) (sql.RowIter, error) {
	resolved, ok := n.Child.(*plan.ResolvedTable)
	if !ok || n.IsView {
		return nil, nil
	}
	t, ok := inside[showable](resolved.Table)
	if !ok {
		return nil, nil
	}
	text, err := t.createText(ctx, n.TargetSchema())
	if err != nil {
		return nil, err
	}
	return sql.RowsToRowIter(sql.NewRow(resolved.Name(), text)), nil
}

// inside finds a table of a type inside of what the front end puts around tables.
func inside[T any](t sql.Table) (found T, ok bool) {
	for {
		if found, ok = t.(T); ok {
			return found, true
		}
		w, wrapped := t.(sql.TableWrapper)
		if !wrapped {
			return found, false
		}
		t = w.Underlying()
	}
}

func (t *table) createText(ctx *sql.Context, sch sql.Schema) (string, error) {
	s := shownTable{
		db: t.db.name, name: t.Name(), def: t.def.table, collation: t.def.collation, temporary: t.temporary,
		options: t.optionsJSON(), plain: t.db.engine.plainText,
	}
	var err error
	if s.keys, err = (&ownTable{t}).GetDeclaredForeignKeys(ctx); err != nil {
		return "", err
	}
	if t.def.spec.AutoIncrement != "" {
		if s.auto, err = t.PeekNextAutoIncrementValue(ctx); err != nil {
			return "", err
		}
	}
	return s.text(ctx, sch)
}

// shownTable is what SHOW CREATE TABLE says of a table.
type shownTable struct {
	db, name  string
	def       *tableDefinition
	collation sql.CollationID
	keys      []sql.ForeignKeyConstraint
	auto      uint64 // next AUTO_INCREMENT value; 0 and 1 are not written
	temporary bool
	options   string // JSON; "" if all are the defaults
	plain     bool   // in the front end's words
}

// text writes the statement. That of a table with options ends with a comment that MySQL and MariaDB skip and lakesql reads,
// so that a dump restores here with them and loads elsewhere without.
func (s *shownTable) text(ctx *sql.Context, sch sql.Schema) (string, error) {
	def := s.def
	f := &tableFormatter{plain: s.plain}
	var parts []string
	for _, col := range sch {
		if col.HiddenSystem {
			continue
		}
		var text, onUpdate string
		var err error
		if col.Default != nil && col.Generated == nil {
			if text, err = f.value(ctx, col.Default); err != nil {
				return "", err
			}
		}
		if col.OnUpdate != nil {
			if onUpdate, err = f.value(ctx, col.OnUpdate); err != nil {
				return "", err
			}
		}
		parts = append(parts, f.GenerateCreateTableColumnDefinition(col, text, onUpdate, s.collation))
	}
	if len(def.PrimaryKey) > 0 {
		parts = append(parts, "  PRIMARY KEY ("+f.keyText(def, sch, def.PrimaryKey)+")")
	}
	for _, x := range s.indexes() {
		text, _ := f.GenerateCreateTableIndexDefinition(x.Unique, false, false, false, x.Name, []string{f.keyText(def, sch, x.Columns)}, x.Comment)
		parts = append(parts, text)
	}
	for _, fk := range s.keys {
		action := func(a sql.ForeignKeyReferentialAction) string {
			if a == sql.ForeignKeyReferentialAction_DefaultAction {
				return ""
			}
			return string(a)
		}
		parent := f.QuoteIdentifier(fk.ParentTable)
		if !strings.EqualFold(fk.ParentDatabase, s.db) && fk.ParentDatabase != "" {
			parent = f.QuoteIdentifier(fk.ParentDatabase) + "." + parent
		}
		text := "  CONSTRAINT " + f.QuoteIdentifier(fk.Name) + " FOREIGN KEY (" + strings.Join(f.QuoteIdentifiers(fk.Columns), ",") + ") REFERENCES " +
			parent + " (" + strings.Join(f.QuoteIdentifiers(fk.ParentColumns), ",") + ")"
		if a := action(fk.OnDelete); a != "" {
			text += " ON DELETE " + a
		}
		if a := action(fk.OnUpdate); a != "" {
			text += " ON UPDATE " + a
		}
		parts = append(parts, text)
	}
	for _, c := range def.Checks {
		parts = append(parts, f.GenerateCreateTableCheckConstraintClause(c.Name, c.Expression, c.Enforced))
	}
	auto, temporary := "", ""
	if s.auto > 1 {
		auto = strconv.FormatUint(s.auto, 10)
	}
	if s.temporary {
		temporary = " TEMPORARY"
	}
	comment := ""
	if def.Comment != "" {
		comment = " COMMENT='" + sql.EscapeSpecialCharactersInComment(def.Comment) + "'"
	}
	text := f.GenerateCreateTableStatement(s.name, parts, temporary, auto, s.collation.CharacterSet().Name(), s.collation.Name(), "")
	if !s.plain {
		text = elsewhere(text, " COLLATE="+s.collation.Name(), s.collation)
	}
	text += comment
	if s.options != "" {
		text += " " + optionsComment(s.options)
	}
	return text, nil
}

// indexes gives the secondary indexes in MySQL's order, unique ones first. The front end orders them by name.
func (s *shownTable) indexes() []indexDefinition {
	out := slices.Clone(s.def.Indexes)
	slices.SortStableFunc(out, func(a, b indexDefinition) int {
		switch {
		case s.plain:
			return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
		case a.Unique == b.Unique:
			return 0
		case a.Unique:
			return -1
		}
		return 1
	})
	return out
}

// keyText writes the columns of a key with their prefix lengths. A column that the front end made for an index on an
// expression is written as the expression.
func (f *tableFormatter) keyText(def *tableDefinition, sch sql.Schema, key []keyPart) string {
	cols := make([]string, len(key))
	for i, p := range key {
		cols[i] = f.QuoteIdentifier(p.Column)
		if n := def.columnNumber(p.Column); n >= 0 && n < len(sch) {
			cols[i] = f.QuoteIdentifier(def.Columns[n].Name)
			if sch[n].HiddenSystem && def.Columns[n].Generated != nil {
				cols[i] = "(" + def.Columns[n].Generated.Text + ")"
			}
		}
		if p.Prefix > 0 {
			cols[i] += "(" + strconv.Itoa(p.Prefix) + ")"
		}
	}
	return strings.Join(cols, ",")
}

// value writes a default or ON UPDATE value.
func (f *tableFormatter) value(ctx *sql.Context, v *sql.ColumnDefaultValue) (string, error) {
	text := v.String()
	t := v.Type(ctx)
	if !v.IsLiteral() || text == "NULL" || types.IsTime(t) || types.IsText(t) {
		return text, nil
	}
	x, err := v.Eval(ctx, nil)
	if err != nil {
		return "", err
	}
	if types.IsBit(v.OutType) {
		return fmt.Sprintf("b'%b'", x), nil
	}
	return fmt.Sprintf("'%v'", x), nil
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
	plain bool // in the front end's words, which leave out what MySQL says without need
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
	if !f.plain {
		if t, ok := c.Type.(sql.TypeWithCollation); ok {
			text = elsewhere(text, " COLLATE "+t.Collation().Name(), t.Collation())
		}
		text = spelledOut(&c, text)
	}
	if col.Hidden {
		text += " /*!80023 INVISIBLE */"
	}
	return text
}

// elsewhere puts the first clause that names a collation which MariaDB does not know into a comment that MariaDB skips and
// MySQL reads, so that a dump loads in both.
func elsewhere(text, clause string, c sql.CollationID) string {
	if !strings.Contains(c.Name(), "_0900_") {
		return text
	}
	return strings.Replace(text, clause, " /*!80000"+clause+" */", 1)
}

// spelledOut adds to a column what MySQL's own statement has: VIRTUAL, DEFAULT NULL, and NULL for a TIMESTAMP, which older
// servers take for NOT NULL without it.
func spelledOut(col *sql.Column, text string) string {
	comment := ""
	if col.Comment != "" {
		comment = " COMMENT '" + sql.EscapeSpecialCharactersInComment(col.Comment) + "'"
		text = strings.TrimSuffix(text, comment)
	}
	switch {
	case col.Generated != nil:
		if col.Virtual {
			text += " VIRTUAL"
		}
		return text + comment
	case !col.Nullable:
		return text + comment
	}
	if types.IsTimestampType(col.Type) {
		at := strings.Index(text, " DEFAULT ")
		if at < 0 {
			at = len(text)
		}
		text = text[:at] + " NULL" + text[at:]
	}
	if col.Default == nil && !types.IsTextBlob(col.Type) {
		text += " DEFAULT NULL"
	}
	return text + comment
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
