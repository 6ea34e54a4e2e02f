package wire

import (
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"

	"github.com/lakesql/lakesql/sqlplan"
)

// shortAnswers are how a connection answers statements that go the short way: the columns of such a one are described once.
type shortAnswers struct {
	results   sql.CharacterSetID
	database  string
	described map[*sqlplan.ShortColumns]*shortAnswer
}

type shortAnswer struct {
	fields       []*querypb.Field
	text, binary []converter
}

// shortAnswersMax bounds the descriptions that a connection keeps.
const shortAnswersMax = 64

func (a *shortAnswers) of(ctx *sql.Context, c *sqlplan.ShortColumns) *shortAnswer {
	results, db := ctx.GetCharacterSetResults(), ctx.GetCurrentDatabase()
	if results != a.results || db != a.database || len(a.described) >= shortAnswersMax {
		a.described = nil
	}
	if d := a.described[c]; d != nil {
		return d
	}
	d := &shortAnswer{fields: fieldsOf(ctx, c.Schema, c.Stmt), text: converters(ctx, c.Schema, false), binary: converters(ctx, c.Schema, true)}
	if a.described == nil {
		a.described = map[*sqlplan.ShortColumns]*shortAnswer{}
	}
	a.results, a.database = results, db
	a.described[c] = d
	return d
}

// answerShort answers a statement that needs neither parser nor planner. done false: it does, and nothing has happened.
func (h *handler) answerShort(ctx *sql.Context, c *mysql.Conn, st *statement) (done bool, err error) {
	w, ok := c.Conn.(*conn)
	if !ok || h.s.o.Short == nil || st.whole || st.cursor {
		return false, nil
	}
	var params map[string]*querypb.BindVariable
	if st.prepared != nil {
		params = st.prepared.BindVars
	}
	short := h.s.o.Short(ctx, st.text, st.prepared != nil, params)
	if short == nil {
		return false, nil
	}
	out, done, err := short.Run(ctx)
	if err != nil {
		return done, interrupted(ctx, err)
	}
	if !done {
		return false, nil
	}
	ctx.ProcessList.EndQuery(ctx)
	setStatus(ctx, c, st)
	if short.Inserts() {
		h.s.Metrics.DirectTotal.Add(1)
	}
	if out.Columns == nil {
		r := okResult(out.OK)
		if r.Info != "" {
			return true, sendInfo(c, func() error { return st.send(r, false) })
		}
		return true, st.send(r, false)
	}
	a := w.short.of(ctx, out.Columns)
	rows := &rowWriter{ctx: ctx, schema: out.Columns.Schema, fields: a.fields, st: st, metrics: &h.s.Metrics, convert: a.text}
	if st.binary {
		rows.convert = a.binary
	}
	if out.Row != nil {
		rows.cells = make([]sqltypes.Value, 0, len(out.Row))
		if err := rows.add(out.Row); err != nil {
			return true, err
		}
	}
	return true, rows.flush()
}
