package sqlplan

import (
	"context"
	"errors"
	"hash/crc32"
	"strings"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
	"github.com/lakesql/lakesql/storage"
)

// maintenance is ANALYZE, CHECK, CHECKSUM, OPTIMIZE or REPAIR TABLE.
type maintenance struct {
	engine *Engine
	what   string // lower case
	tables [][2]string
	quick  bool // CHECKSUM TABLE … QUICK: what is kept with the table, which is nothing
	level  catalog.CheckLevel
}

// maintenanceOf reads one of these statements, nil if stmt is another. The parser of package dialect writes all but ANALYZE
// as calls.
func (p *parser) maintenanceOf(ctx context.Context, stmt ast.Statement) ast.Statement {
	m := &maintenance{engine: p.engine}
	switch s := stmt.(type) {
	case *ast.Analyze:
		if s.Action != "" || s.Columns != nil {
			return nil // histograms are the front end's
		}
		m.what = "analyze"
		for _, t := range s.Tables {
			m.tables = append(m.tables, [2]string{t.DbQualifier.String(), t.Name.String()})
		}
	case *ast.Call:
		name, ok := strings.CutPrefix(strings.ToLower(s.ProcName.Name.String()), "lakesql_")
		what, isTable := strings.CutSuffix(name, "_table")
		if !ok || !isTable || !maintained[what] {
			return nil
		}
		m.what, m.level = what, catalog.CheckMedium
		for _, e := range s.Params {
			v, ok := e.(*ast.SQLVal)
			if !ok {
				return nil
			}
			if option, value := dialect.Argument(string(v.Val)); option != "" {
				m.quick, m.level = strings.Contains(value, "QUICK"), checkLevel(value)
				continue
			}
			db, table, ok := dialect.SplitName(string(v.Val))
			if !ok {
				return nil
			}
			m.tables = append(m.tables, [2]string{db, table})
		}
	default:
		return nil
	}
	current := ""
	if c, ok := ctx.(*sql.Context); ok {
		current = c.GetCurrentDatabase()
	}
	var names []string
	for i := range m.tables {
		if m.tables[i][0] == "" {
			m.tables[i][0] = current
		}
		names = append(names, m.tables[i][0], m.tables[i][1])
	}
	return ast.InjectedStatement{Statement: m, Auth: ast.AuthInformation{
		AuthType: ast.AuthType_SELECT, TargetType: ast.AuthTargetType_MultipleTableIdentifiers, TargetNames: names,
	}}
}

var maintained = map[string]bool{"check": true, "checksum": true, "optimize": true, "repair": true}

// WithResolvedChildren implements ast.Injectable.
func (m *maintenance) WithResolvedChildren(context.Context, []any) (any, error) { return m, nil }

var _ sql.ExecSourceRel = (*maintenance)(nil)

func (m *maintenance) Resolved() bool       { return true }
func (m *maintenance) IsReadOnly() bool     { return true }
func (m *maintenance) String() string       { return strings.ToUpper(m.what) + " TABLE" }
func (m *maintenance) Children() []sql.Node { return nil }

func (m *maintenance) WithChildren(_ *sql.Context, children ...sql.Node) (sql.Node, error) {
	if len(children) != 0 {
		return nil, sql.ErrInvalidChildrenNumber.New(m, len(children), 0)
	}
	return m, nil
}

// Schema implements sql.Node.
func (m *maintenance) Schema(*sql.Context) sql.Schema {
	if m.what == "checksum" {
		return sql.Schema{{Name: "Table", Type: types.LongText}, {Name: "Checksum", Type: types.Int64, Nullable: true}}
	}
	return sql.Schema{
		{Name: "Table", Type: types.LongText},
		{Name: "Op", Type: types.LongText},
		{Name: "Msg_type", Type: types.LongText},
		{Name: "Msg_text", Type: types.LongText},
	}
}

// RowIter implements sql.ExecSourceRel.
func (m *maintenance) RowIter(ctx *sql.Context, _ sql.Row) (sql.RowIter, error) {
	if m.what == "check" {
		return pullRows(m.checks(ctx)), nil
	}
	var rows []sql.Row
	for _, name := range m.tables {
		full := name[0] + "." + name[1]
		say := func(kind, text string) { rows = append(rows, sql.NewRow(full, m.what, kind, text)) }
		t, err := m.engine.tableOf(ctx, name[0], name[1])
		if err != nil && !sql.ErrDatabaseNotFound.Is(err) {
			return nil, err
		}
		if m.what == "checksum" {
			sum := any(nil)
			if t == nil {
				ctx.Warn(erNoSuchTable, "Table '%s' doesn't exist", full)
			} else if !m.quick {
				if sum, err = m.read(ctx, t); err != nil {
					return nil, err
				}
			}
			rows = append(rows, sql.NewRow(full, sum))
			continue
		}
		if t == nil {
			say("Error", "Table '"+full+"' doesn't exist")
			say("status", "Operation failed")
			continue
		}
		switch m.what {
		case "optimize":
			say("note", "This version of lakesql doesn't yet support OPTIMIZE TABLE: nothing was changed")
		case "repair":
			say("note", "The storage engine for the table doesn't support repair")
			continue
		}
		say("status", "OK")
	}
	return sql.RowsToRowIter(rows...), nil
}

// read reads a whole table and gives a checksum of its rows, which does not depend on their order or on where they lie.
func (m *maintenance) read(ctx *sql.Context, t *table) (any, error) {
	tx, err := sessionOf(ctx).txOf(ctx, t.catalog)
	if err != nil {
		return nil, err
	}
	var sum uint32
	var row storage.Row
	var text []byte
	for b, err := range tx.Scan(ctx, t.t, catalog.ScanOptions{}) {
		if err != nil {
			return nil, mysqlError(err)
		}
		for i := range b.Rows {
			row = b.Row(i, row)
			if text, err = storage.EncodeRow(t.def.spec.Schema, row, text[:0]); err != nil {
				return nil, mysqlError(errors.Join(errors.New("reading a row"), err))
			}
			sum += crc32.ChecksumIEEE(text)
		}
	}
	return int64(sum), nil
}
