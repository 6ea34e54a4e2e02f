package sqlplan

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression"
	"github.com/dolthub/go-mysql-server/sql/planbuilder"
	"github.com/dolthub/go-mysql-server/sql/transform"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// newExpressionText gives the text of a default, generated or ON UPDATE expression, nil if there is none.
func newExpressionText(ctx *sql.Context, v *sql.ColumnDefaultValue) (*expressionText, error) {
	if v == nil || v.Expr == nil {
		return nil, nil
	}
	if u, ok := v.Expr.(*sql.UnresolvedColumnDefault); ok {
		// A column that came out of a definition: the text is the one that was written there.
		return unresolvedText(u.ExprString), nil
	}
	own, _, err := transform.Expr(ctx, v, portable)
	if err != nil {
		return nil, fmt.Errorf("writing the expression %s: %w", v, err)
	}
	return &expressionText{Text: own.String(), Literal: v.Literal, Parenthesized: v.Parenthesized}, nil
}

// unresolvedText reads the flags back from a text.
func unresolvedText(text string) *expressionText {
	paren := strings.HasPrefix(text, "(")
	now := strings.HasPrefix(text, "CURRENT_TIMESTAMP")
	return &expressionText{Text: text, Literal: !paren && !now, Parenthesized: paren}
}

// unresolved gives the value that the front end resolves when it binds a statement.
func (e *expressionText) unresolved() *sql.ColumnDefaultValue {
	if e == nil {
		return nil
	}
	return sql.NewUnresolvedColumnDefaultValue(e.Text)
}

// portable makes an expression whose text can be read back anywhere: columns without their table and in back quotes,
// literals in a form that the parser takes for the same value.
func portable(ctx *sql.Context, e sql.Expression) (sql.Expression, transform.TreeIdentity, error) {
	switch e := e.(type) {
	case *expression.GetField:
		f := expression.NewGetField(e.Index(), e.Type(ctx), e.Name(), e.IsNullable(ctx))
		return f.WithQuotedNames(sql.DefaultMySQLSchemaFormatter, true), transform.NewTree, nil
	case *expression.Literal:
		if text, ok := literalText(e); ok {
			return &textLiteral{Literal: e, text: text}, transform.NewTree, nil
		}
	}
	return e, transform.SameTree, nil
}

// textLiteral is a literal that is printed as the given text.
type textLiteral struct {
	*expression.Literal
	text string
}

func (l *textLiteral) String() string { return l.text }

// WithChildren keeps the text.
func (l *textLiteral) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != 0 {
		return nil, sql.ErrInvalidChildrenNumber.New(l, len(children), 0)
	}
	return l, nil
}

// literalText gives the SQL text of a literal whose own text would not be read back as the same value.
func literalText(l *expression.Literal) (string, bool) {
	switch v := l.Val.(type) {
	case string:
		if types.IsBinaryType(l.Typ) {
			return fmt.Sprintf("X'%X'", v), true
		}
		return quoteText(v), true
	case []byte:
		return fmt.Sprintf("X'%X'", v), true
	case time.Time:
		if types.IsDateType(l.Typ) {
			return v.Format("DATE'2006-01-02'"), true
		}
		return v.Format("TIMESTAMP'2006-01-02 15:04:05.999999'"), true
	case types.Timespan:
		return "TIME'" + v.String() + "'", true
	case *apd.Decimal:
		return v.Text('f'), true
	case float32:
		return strconv.FormatFloat(float64(v), 'E', -1, 32), true
	case float64:
		return strconv.FormatFloat(v, 'E', -1, 64), true
	case sql.JSONWrapper:
		text, err := types.JsonToMySqlString(sql.NewEmptyContext(), v)
		return "CAST(" + quoteText(text) + " AS JSON)", err == nil
	}
	return "", false
}

// resolveLiterals replaces the texts of literal defaults in sch by resolved values, which spares the front end from parsing
// them again for every statement.
func resolveLiterals(ctx *sql.Context, db, table string, sch sql.Schema, d *tableDefinition) (err error) {
	// The front end's builder reports errors by panics.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("table %s.%s: reading the column defaults: %v", db, table, r)
		}
	}()
	var literal sql.Schema
	for i, c := range d.Columns {
		if c.Default != nil && c.Default.Literal {
			literal = append(literal, sch[i])
		}
	}
	if len(literal) == 0 {
		return nil
	}
	b := planbuilder.NewBuilderForColumnDefaultResolution(ctx, sql.EngineOverrides{})
	for i, col := range b.ResolveSchemaDefaults(db, table, literal) {
		if col.Default != nil && col.Default.Literal {
			literal[i].Default = col.Default
		}
	}
	return nil
}
