package sqlplan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/rowexec"
	"github.com/dolthub/go-mysql-server/sql/types"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// commitModeVariable is the system variable that says when other engines see a commit: buffered (default) or instant.
const commitModeVariable = "lakesql_commit_mode"

// directWriteVariable is the system variable that allows statements which need little of the front end to go around it. They
// do the same either way; it is there to find out, should anyone doubt it.
const directWriteVariable = "lakesql_direct_write"

// DefaultCollation is MySQL's default for new databases and connections. The front end's own default compares bytes.
const DefaultCollation = sql.Collation_utf8mb4_0900_ai_ci

// Options say how an Engine serves a catalog. The zero value works.
type Options struct {
	User     string // the account with all privileges; default root
	Password string // of that account
	// Collation is the default of new databases and connections; default DefaultCollation.
	Collation sql.CollationID
	// Function gives functions that stand before the front end's own of that name (lower case); nil: none.
	Function func(name string) (sql.Function, bool)
	// Parser reads statements; nil: the one of package dialect.
	Parser sql.Parser
	// Version is appended to the answer of VERSION().
	Version string
	// ReadOnly refuses statements that change anything.
	ReadOnly bool
}

// Engine is the SQL engine over one catalog.
type Engine struct {
	catalog     *catalog.Catalog
	sql         *sqle.Engine
	user        string
	collation   sql.CollationID
	parser      sql.Parser
	localIDs    atomic.Uint32 // of sessions without a connection
	writeLocks  writeLocks
	userLocks   userLocks
	waiting     sync.Map     // connection id → what it waits for, but for locks of the catalog, as SHOW PROCESSLIST says it
	planAll     bool         // the planner plans every statement (see point.go); tests compare both ways
	pointsTotal atomic.Int64 // statements that needed no planner
	shorts      shortForms
	shortsTotal atomic.Int64 // statements that needed no parser either (see short.go)

	lastDatabase atomic.Pointer[readDatabase]
	plainText    bool // SHOW, EXPLAIN, counts and codes of warnings as the front end has them, which its own test suite compares

	mu          sync.Mutex
	definitions map[*catalog.Table]*definition // guarded by mu
	references  *references                    // guarded by mu; nil: to be built
	moreStatus  []func() map[string]int64      // guarded by mu
	temps       *catalog.Catalog               // guarded by mu; nil: no session made a temporary table yet
}

// localIDsFrom is where the connection ids of sessions inside the process begin, above those of the wire server.
const localIDsFrom = 1 << 31

// NewEngine makes the engine of a catalog. The catalog stays the caller's to close, after the engine.
func NewEngine(ctx context.Context, c *catalog.Catalog, o Options) (*Engine, error) {
	e := &Engine{catalog: c, user: o.User, collation: o.Collation, definitions: map[*catalog.Table]*definition{}}
	if e.user == "" {
		e.user = "root"
	}
	if e.collation == sql.Collation_Unspecified {
		e.collation = DefaultCollation
	}
	e.localIDs.Store(localIDsFrom)
	if err := setVariables(e.collation, c.DropRetention()); err != nil {
		return nil, err
	}
	inner := o.Parser
	if inner == nil {
		inner = &dialect.Parser{}
	}
	if d, ok := inner.(*dialect.Parser); ok {
		e.plainText = d.EngineErrors
		if d.TableColumns == nil {
			d.TableColumns = e.tableColumns
		}
	}
	e.parser = &parser{Parser: inner, engine: e}

	b := analyzer.NewBuilder(newProvider(e, o.Function)).AddOverrides(sql.EngineOverrides{
		Builder: sql.BuilderOverrides{Parser: e.parser},
	})
	b.AddPreAnalyzeRule(noImplicitCommit, keepTransaction)
	b.AddPreAnalyzeRule(clausesMended, mendDropCheck)
	a := b.Build()
	a.Catalog.AuthHandler = lockHandler{a.Catalog.AuthHandler}
	if !e.plainText {
		mendLiveTables(a.Catalog.InfoSchema)
	}
	a.ExecBuilder.PriorityBuilder = execBuilder{front: a.ExecBuilder, plain: e.plainText}
	e.sql = sqle.New(a, &sqle.Config{VersionPostfix: o.Version, IsReadOnly: o.ReadOnly})
	if err := e.loadUsers(ctx, o.Password); err != nil {
		return nil, err
	}
	return e, nil
}

// SQL gives the front end's engine.
func (e *Engine) SQL() *sqle.Engine { return e.sql }

// Catalog gives the catalog that the engine serves.
func (e *Engine) Catalog() *catalog.Catalog { return e.catalog }

// NewContext makes the context of a statement. Its time is the hybrid clock's, so that NOW(6) read after an
// acknowledgement is never before that commit.
func (e *Engine) NewContext(ctx context.Context, opts ...sql.ContextOption) *sql.Context {
	c := sql.NewContext(ctx, opts...)
	c.SetQueryTime(e.catalog.Clock().Now())
	return c
}

// Close ends the engine. Sessions must have ended before.
func (e *Engine) Close() error {
	err := e.sql.Close()
	e.mu.Lock()
	temps := e.temps
	e.temps = nil
	e.mu.Unlock()
	if temps != nil {
		err = errors.Join(err, temps.Close(context.Background()))
	}
	return err
}

var addVariables sync.Once

// setVariables gives the process-wide system variables lakesql's values.
func setVariables(collation sql.CollationID, retention time.Duration) error {
	addVariables.Do(func() {
		sql.SystemVariables.AddSystemVariables([]sql.SystemVariable{&sql.MysqlSystemVariable{
			Name:    commitModeVariable,
			Scope:   sql.GetMysqlScope(sql.SystemVariableScope_Both),
			Dynamic: true,
			Type:    types.NewSystemEnumType(commitModeVariable, "buffered", "instant"),
			Default: "buffered",
		}, &sql.MysqlSystemVariable{
			Name:    directWriteVariable,
			Scope:   sql.GetMysqlScope(sql.SystemVariableScope_Both),
			Dynamic: true,
			Type:    types.NewSystemBoolType(directWriteVariable),
			Default: int8(1),
		}, dropRetentionOption()})
		addLockRule()
		addMissing(missingVariables())
		sql.SystemVariables.AddSystemVariables(transactionVariables())
		mendInformationSchema()
	})
	charset := collation.CharacterSet().Name()
	err := sql.SystemVariables.AssignValues(map[string]any{
		"collation_connection":     collation.Name(),
		"collation_server":         collation.Name(),
		"collation_database":       collation.Name(),
		"character_set_connection": charset,
		"character_set_server":     charset,
		"character_set_database":   charset,
		dropRetentionVariable:      int64(max(retention, 0) / time.Second),
	})
	if err != nil {
		return fmt.Errorf("setting the default collation: %w", err)
	}
	return nil
}

// execBuilder runs the plan nodes that the front end would run otherwise; it is asked first for every node.
type execBuilder struct {
	front *rowexec.BaseBuilder
	plain bool // Engine.plainText
}

func (b execBuilder) Build(ctx *sql.Context, n sql.Node, row sql.Row) (sql.RowIter, error) {
	if s, ok := ctx.Session.(*Session); ok && s.held != nil {
		if err := s.checkHeld(ctx, n); err != nil {
			return nil, err
		}
	}
	if !b.plain {
		if iter, err := buildShow(ctx, n); iter != nil || err != nil {
			return iter, err
		}
	}
	mended, changed, err := mendExpressions(ctx, n)
	if err != nil {
		return nil, err
	}
	if changed {
		return b.front.Build(ctx, mended, row)
	}
	switch n := n.(type) {
	case *plan.Filter:
		c, changed, err := collateIn(ctx, n)
		if err != nil || !changed {
			return nil, err
		}
		return b.front.Build(ctx, c, row)
	case *plan.Limit, *plan.TopN:
		if iter, err := b.lockFirst(ctx, n, row); err != nil || iter != nil {
			return iter, err
		}
	case *plan.Distinct:
		if iter, err := b.buildDistinct(ctx, n, row); err != nil || iter != nil {
			return iter, err
		}
	case *plan.SetOp:
		if u, changed := unionInParts(ctx, n); changed {
			return b.front.Build(ctx, u, row)
		}
	case *plan.ShowCreateTable:
		return buildShowCreate(ctx, n)
	case *plan.CreateTable:
		return b.createTable(ctx, n, row)
	case *plan.AlterIndex:
		if iter, err := b.alterIndex(ctx, n); iter != nil || err != nil {
			return iter, err
		}
		return b.wholeStatement(ctx, n, row)
	case *plan.DropTable:
		return b.dropTables(ctx, n)
	case *plan.Block:
		if alters(n) {
			return b.wholeStatement(ctx, n, row)
		}
	case *plan.CreateCheck:
		if err := nameCheck(ctx, n); err != nil {
			return nil, err
		}
		if iter, err := b.wholeStatement(ctx, n, row); iter != nil || err != nil {
			return iter, err
		}
	case *plan.AddColumn, *plan.ModifyColumn, *plan.RenameColumn, *plan.DropColumn, *plan.AlterPK, *plan.AlterDefaultSet, *plan.AlterDefaultDrop,
		*plan.AlterTableCollation, *plan.AlterTableComment, *plan.AlterAutoIncrement, *plan.DropCheck,
		*plan.CreateForeignKey, *plan.DropForeignKey, *plan.RenameForeignKey, *plan.DropConstraint, *plan.RenameTable, *plan.CreateView, *plan.DropView,
		*plan.TableCopier:
		if iter, err := b.wholeStatement(ctx, n, row); iter != nil || err != nil {
			return iter, err
		}
	case *plan.Update:
		u, changed, err := updateExactly(ctx, n, false)
		if err != nil {
			return nil, err
		}
		if changed {
			return b.front.Build(ctx, u, row)
		}
	case *plan.LockTables:
		return sql.RowsToRowIter(), sessionOf(ctx).lockTables(ctx, n)
	case *plan.UnlockTables:
		return sql.RowsToRowIter(), sessionOf(ctx).unlockTables(ctx)
	case *plan.StartTransaction:
		return sql.RowsToRowIter(), sessionOf(ctx).startExplicit(ctx, n.TransChar)
	case *exactRows:
		return b.front.Build(ctx, n.rows, row)
	case *plan.InsertInto:
		i, changed, err := insertExactly(ctx, n)
		if err != nil {
			return nil, err
		}
		if changed {
			return b.front.Build(ctx, i, row)
		}
		if iter, err := b.insert(ctx, n, row); err != nil || iter != nil {
			return iter, err
		}
	}
	return buildAssignments(ctx, b.front, n, row)
}

// tableColumns names the columns of a table for the parser.
func (e *Engine) tableColumns(ctx context.Context, db, name string) ([]string, bool) {
	c, ok := ctx.(*sql.Context)
	if !ok {
		return nil, false
	}
	t, err := e.tableOf(c, db, name)
	if err != nil || t == nil {
		return nil, false
	}
	var names []string
	for _, col := range t.def.pk.Schema {
		names = append(names, col.Name)
	}
	return names, true
}

// tableOf finds a table; nil: there is none. Database "" is the session's.
func (e *Engine) tableOf(ctx *sql.Context, db, name string) (*table, error) {
	if db == "" {
		db = ctx.GetCurrentDatabase()
	}
	p := provider{engine: e}
	d, err := p.Database(ctx, db)
	if err != nil {
		return nil, err
	}
	own, ok := d.(*database)
	if !ok {
		return nil, nil
	}
	return own.table(ctx, name)
}
