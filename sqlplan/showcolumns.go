package sqlplan

import (
	"errors"
	"io"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/rowexec"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// frontRows runs a node as the front end does, to the end.
func frontRows(ctx *sql.Context, n sql.Node) ([]sql.Row, error) {
	iter, err := rowexec.NewBuilder(nil, sql.EngineOverrides{}).Build(ctx, n, nil)
	if err != nil {
		return nil, err
	}
	defer iter.Close(ctx)
	var rows []sql.Row
	for {
		row, err := iter.Next(ctx)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}

// showColumns runs SHOW COLUMNS with types as MySQL writes them, each column's own collation, and defaults without quotes.
func showColumns(ctx *sql.Context, n *plan.ShowColumns) (sql.RowIter, error) {
	rows, err := frontRows(ctx, n)
	if err != nil {
		return nil, err
	}
	sch := n.TargetSchema()
	for _, row := range rows {
		i := sch.IndexOfColName(row[0].(string))
		if i < 0 {
			continue
		}
		col := sch[i]
		def, extra := 4, 5
		row[1] = columnType(col.Type)
		if n.Full {
			def, extra = 5, 6
			row[2] = nil
			if t, ok := col.Type.(sql.TypeWithCollation); ok && !types.IsBinaryType(col.Type) && t.Collation() != sql.Collation_binary {
				row[2] = t.Collation().Name()
			}
			row[7] = "select,insert,update,references"
		}
		switch {
		case col.Generated != nil:
			row[def] = nil
			row[extra] = "STORED GENERATED"
			if col.Virtual {
				row[extra] = "VIRTUAL GENERATED"
			}
			continue
		case col.Default != nil:
			row[def] = defaultValue(ctx, col)
		}
		var words []string
		switch {
		case col.AutoIncrement:
			words = append(words, "auto_increment")
		case col.Default != nil && !col.Default.IsLiteral():
			words = append(words, "DEFAULT_GENERATED")
		}
		if col.OnUpdate != nil {
			words = append(words, "on update "+col.OnUpdate.String())
		}
		if col.Hidden {
			words = append(words, "INVISIBLE")
		}
		row[extra] = strings.Join(words, " ")
	}
	return sql.RowsToRowIter(rows...), nil
}

// columnType writes a type without its collation.
func columnType(t sql.Type) string {
	if c, ok := t.(sql.TypeWithCollation); ok {
		return c.StringWithTableCollation(c.Collation())
	}
	return t.String()
}

// defaultValue writes a default as SHOW COLUMNS does: a literal's value, or the expression.
func defaultValue(ctx *sql.Context, col *sql.Column) any {
	f := tableFormatter{}
	text, ok := defaultText(col.Default)
	if !ok {
		var err error
		if text, err = f.value(ctx, col.Default); err != nil {
			return col.Default.String()
		}
	}
	switch {
	case text == "NULL":
		return nil
	case !col.Default.IsLiteral():
		if len(text) > 2 && text[0] == '(' && text[len(text)-1] == ')' {
			return text[1 : len(text)-1]
		}
		return text
	case len(text) >= 2 && text[0] == '\'' && text[len(text)-1] == '\'':
		return strings.ReplaceAll(text[1:len(text)-1], "''", "'")
	}
	return text
}

// showIndexes runs SHOW INDEX with prefix lengths, and the table's row count as the cardinality of what is unique.
func showIndexes(ctx *sql.Context, n *plan.ShowIndexes) (sql.RowIter, error) {
	const key, seq, collation, cardinality, subPart, comment, indexComment = 2, 3, 5, 6, 7, 11, 12
	rows, err := frontRows(ctx, n)
	if err != nil {
		return nil, err
	}
	var t *ownTable
	if r, ok := n.Child.(*plan.ResolvedTable); ok {
		t, _ = inside[*ownTable](r.Table)
	}
	for _, row := range rows {
		row[collation] = "A"
		row[comment], row[indexComment] = "", row[comment]
		if t == nil {
			continue
		}
		parts, unique := t.def.table.PrimaryKey, true
		if i := t.def.table.indexNumber(row[key].(string)); i >= 0 {
			parts, unique = t.def.table.Indexes[i].Columns, t.def.table.Indexes[i].Unique
		}
		at, ok := row[seq].(int)
		if !ok || at < 1 || at > len(parts) {
			continue
		}
		if p := parts[at-1].Prefix; p > 0 {
			row[subPart] = int64(p)
		}
		row[cardinality] = nil
		if unique && at == len(parts) {
			row[cardinality] = t.t.RowCount()
		}
	}
	return sql.RowsToRowIter(rows...), nil
}
