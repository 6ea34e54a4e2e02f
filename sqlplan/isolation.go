package sqlplan

import (
	"context"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	ast "github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// System variables of transactions.
const (
	isolationVariable = "transaction_isolation"
	readOnlyVariable  = "transaction_read_only"
	rowWaitVariable   = "innodb_lock_wait_timeout"
	tableWaitVariable = "lock_wait_timeout"
)

// oldVariables are the names that these variables have in older servers and in MariaDB.
var oldVariables = map[string]string{"tx_isolation": isolationVariable, "tx_read_only": readOnlyVariable}

// transactionVariables are variables that the front end knows, with values that InnoDB has and it has not.
func transactionVariables() []sql.SystemVariable {
	return []sql.SystemVariable{
		&sql.MysqlSystemVariable{
			Name: rowWaitVariable, Scope: sql.GetMysqlScope(sql.SystemVariableScope_Both), Dynamic: true,
			Type: types.NewSystemIntType(rowWaitVariable, 1, 1<<30, false), Default: int64(catalog.LockTimeoutDefault / time.Second),
		},
	}
}

// GetSessionVariable reads a variable of the session.
func (s *Session) GetSessionVariable(ctx *sql.Context, name string) (any, error) {
	if now, old := oldVariables[strings.ToLower(name)]; old {
		name = now
	}
	return s.BaseSession.GetSessionVariable(ctx, name)
}

// SetSessionVariable sets a variable of the session, an old name of one and the present name together.
func (s *Session) SetSessionVariable(ctx *sql.Context, name string, value any) error {
	s.settings = nil
	if now, old := oldVariables[strings.ToLower(name)]; old {
		name = now
	}
	if err := s.BaseSession.SetSessionVariable(ctx, name, value); err != nil {
		return err
	}
	for old, now := range oldVariables {
		if strings.EqualFold(now, name) {
			return s.BaseSession.SetSessionVariable(ctx, old, value)
		}
	}
	return nil
}

// characteristics are what SET TRANSACTION said about the next transaction.
type characteristics struct {
	isolation string // "": the session's
	readOnly  *bool  // nil: the session's
}

// isolationOf gives the level of a value of @@transaction_isolation.
func isolationOf(value string) catalog.Isolation {
	switch strings.ToUpper(value) {
	case "READ-COMMITTED", "READ-UNCOMMITTED":
		return catalog.ReadCommitted
	case "SERIALIZABLE":
		return catalog.Serializable
	}
	return catalog.RepeatableRead
}

// isolation is the level at which the session's transaction runs; the first statement that reads or writes a table decides.
func (s *Session) isolation(ctx *sql.Context) catalog.Isolation {
	if !s.tx.leveled {
		level := s.next.isolation
		if level == "" {
			if v, err := s.GetSessionVariable(ctx, isolationVariable); err == nil {
				level, _ = v.(string)
			}
		}
		s.tx.level, s.tx.leveled = isolationOf(level), true
		s.next = characteristics{}
	}
	return s.tx.level
}

// startsReadOnly says whether a transaction that the client began without a word about it may only read.
func (s *Session) startsReadOnly(ctx *sql.Context) bool {
	if s.next.readOnly != nil {
		return *s.next.readOnly
	}
	v, err := s.GetSessionVariable(ctx, readOnlyVariable)
	n, _ := v.(int8)
	return err == nil && n != 0
}

// rowWait is how long a statement of the session waits for a lock.
func (s *Session) rowWait(ctx *sql.Context) time.Duration { return s.seconds(ctx, rowWaitVariable) }

func (s *Session) seconds(ctx *sql.Context, variable string) time.Duration {
	v, err := s.GetSessionVariable(ctx, variable)
	n, ok := v.(int64)
	if err != nil || !ok {
		return catalog.LockTimeoutDefault
	}
	return time.Duration(n) * time.Second
}

// inTransaction says whether statements of the session go into one transaction until the client ends it.
func (s *Session) inTransaction(ctx *sql.Context) bool {
	if s.GetIgnoreAutoCommit() {
		return true
	}
	auto, err := plan.IsSessionAutocommit(ctx)
	return err == nil && !auto
}

// ValidateSession is called by the front end before each statement, also before each one of a procedure.
func (s *Session) ValidateSession(ctx *sql.Context) error {
	s.statements++
	return s.BaseSession.ValidateSession(ctx)
}

// startStatement tells the transactions that have begun that another statement runs.
func (s *Session) startStatement(ctx *sql.Context) error {
	if s.tx.statement == s.statements {
		return nil
	}
	s.tx.statement = s.statements
	for _, tx := range s.tx.txs {
		tx.SetLockTimeout(s.rowWait(ctx))
		if err := tx.StartStatement(); err != nil {
			return mysqlError(err)
		}
	}
	return nil
}

// failed translates an error of a read or a write. One that ended the transaction below ends the session's.
func (s *Session) failed(err error) error {
	if lostTransaction(err) && s.tx != nil {
		s.tx.rollback()
		s.tx = nil
	}
	return mysqlError(err)
}

// errInTransaction is the answer to SET TRANSACTION inside of one.
var errInTransaction = mysql.NewSQLError(1568, "25001", "Transaction characteristics can't be changed while a transaction is in progress")

// nextOf reads SET TRANSACTION and its like, nil if stmt is another statement.
func (p *parser) nextOf(stmt ast.Statement) (ast.Statement, error) {
	set, ok := stmt.(*ast.Set)
	if !ok {
		return nil, nil
	}
	n := 0
	for _, e := range set.Exprs {
		if dialect.NextTransaction(e) {
			n++
		}
	}
	switch {
	case n == 0:
		return nil, nil
	case n < len(set.Exprs):
		return nil, mysql.NewSQLError(erNotSupportedYet, "42000",
			"This version of lakesql doesn't yet support 'SET of the next transaction together with other variables'")
	}
	in := ast.InjectedStatement{Auth: ast.AuthInformation{AuthType: ast.AuthType_IGNORE}}
	next := nextTransaction{}
	for _, e := range set.Exprs {
		next.names = append(next.names, strings.ToLower(e.Name.Name.String()))
		value := e.Expr
		if c, ok := value.(*ast.ColName); ok && c.Qualifier.IsEmpty() && !strings.HasPrefix(c.Name.String(), "@") {
			value = ast.NewStrVal([]byte(c.Name.String())) // a word, such as SERIALIZABLE
		}
		in.Children = append(in.Children, value)
	}
	in.Statement = next
	return in, nil
}

// nextTransaction is SET TRANSACTION, or SET @@transaction_isolation, as it is bound.
type nextTransaction struct {
	statementNode
	names  []string
	values []sql.Expression
}

// WithResolvedChildren implements ast.Injectable.
func (n nextTransaction) WithResolvedChildren(_ context.Context, children []any) (any, error) {
	out := &nextTransaction{statementNode: "SET TRANSACTION", names: n.names}
	for _, c := range children {
		e, ok := c.(sql.Expression)
		if !ok {
			return nil, sql.ErrSyntaxError.New("SET TRANSACTION")
		}
		out.values = append(out.values, e)
	}
	return out, nil
}

func (n *nextTransaction) WithChildren(*sql.Context, ...sql.Node) (sql.Node, error) { return n, nil }

// RowIter implements sql.ExecSourceRel.
func (n *nextTransaction) RowIter(ctx *sql.Context, row sql.Row) (sql.RowIter, error) {
	s := sessionOf(ctx)
	if s.GetIgnoreAutoCommit() || s.inTransaction(ctx) && s.tx != nil && len(s.tx.txs) > 0 {
		return nil, errInTransaction
	}
	next := s.next
	for i, e := range n.values {
		v, err := e.Eval(ctx, row)
		if err != nil {
			return nil, err
		}
		name := n.names[i]
		if name == "transaction" {
			text, _ := v.(string)
			text = strings.ToLower(text)
			level, isLevel := strings.CutPrefix(text, "isolation level ")
			if !isLevel {
				readOnly := text == ast.TxReadOnly
				next.readOnly = &readOnly
				continue
			}
			name, v = isolationVariable, strings.ReplaceAll(level, " ", "-")
		}
		if now, old := oldVariables[name]; old {
			name = now
		}
		variable, _, _ := sql.SystemVariables.GetGlobal(name)
		value, _, err := variable.GetType().Convert(ctx, v)
		if err != nil {
			return nil, sql.ErrInvalidSystemVariableValue.New(name, v)
		}
		switch value := value.(type) {
		case string:
			next.isolation = value
		case int8:
			readOnly := value != 0
			next.readOnly = &readOnly
		}
	}
	s.next = next
	return okRows(0), nil
}

// chainOf reads COMMIT AND CHAIN, nil if stmt is another statement.
func chainOf(stmt ast.Statement) ast.Statement {
	in, ok := stmt.(ast.InjectedStatement)
	if !ok {
		return nil
	}
	c, ok := in.Statement.(dialect.Chain)
	if !ok {
		return nil
	}
	in.Statement = chain{statementNode: "AND CHAIN", rollback: c.Rollback}
	return in
}

// chain is COMMIT AND CHAIN or ROLLBACK AND CHAIN.
type chain struct {
	statementNode
	rollback bool
}

// WithResolvedChildren implements ast.Injectable.
func (n chain) WithResolvedChildren(context.Context, []any) (any, error) { return &n, nil }

func (n *chain) WithChildren(*sql.Context, ...sql.Node) (sql.Node, error) { return n, nil }

// RowIter implements sql.ExecSourceRel.
func (n *chain) RowIter(ctx *sql.Context, _ sql.Row) (sql.RowIter, error) {
	s := sessionOf(ctx)
	var old transaction
	if s.tx != nil {
		old = *s.tx
	}
	if n.rollback {
		s.release()
		ctx.SetTransaction(nil)
	}
	c := sql.ReadWrite
	if old.readOnly {
		c = sql.ReadOnly
	}
	if err := s.startExplicit(ctx, c); err != nil {
		return nil, err
	}
	s.tx.level, s.tx.leveled = old.level, old.leveled
	return okRows(0), nil
}

// snapshotOf reads START TRANSACTION WITH CONSISTENT SNAPSHOT, nil if stmt is another statement.
func snapshotOf(stmt ast.Statement) ast.Statement {
	b, ok := stmt.(*ast.Begin)
	if !ok {
		return nil
	}
	snapshot, readOnly := dialect.ConsistentSnapshot(b)
	if !snapshot {
		return nil
	}
	return ast.InjectedStatement{
		Statement: startSnapshot{statementNode: "START TRANSACTION", readOnly: readOnly},
		Auth:      ast.AuthInformation{AuthType: ast.AuthType_IGNORE},
	}
}

// startSnapshot is START TRANSACTION WITH CONSISTENT SNAPSHOT.
type startSnapshot struct {
	statementNode
	readOnly bool
}

// WithResolvedChildren implements ast.Injectable.
func (n startSnapshot) WithResolvedChildren(context.Context, []any) (any, error) { return &n, nil }

func (n *startSnapshot) WithChildren(*sql.Context, ...sql.Node) (sql.Node, error) { return n, nil }

// RowIter implements sql.ExecSourceRel.
func (n *startSnapshot) RowIter(ctx *sql.Context, _ sql.Row) (sql.RowIter, error) {
	s := sessionOf(ctx)
	c := sql.ReadWrite
	if n.readOnly {
		c = sql.ReadOnly
	}
	if err := s.startExplicit(ctx, c); err != nil {
		return nil, err
	}
	tx, err := s.txOf(ctx, s.engine.catalog)
	if err != nil {
		return nil, err
	}
	tx.KeepSnapshot()
	return okRows(0), nil
}

// startExplicit is what START TRANSACTION does: it commits what is open and gives up the locks of LOCK TABLES.
func (s *Session) startExplicit(ctx *sql.Context, c sql.TransactionCharacteristic) error {
	if old := ctx.GetTransaction(); old != nil {
		if err := s.CommitTransaction(ctx, old); err != nil {
			return err
		}
	}
	if s.held != nil && !s.held.all {
		s.unhold()
	}
	tx, err := s.StartTransaction(ctx, c)
	if err != nil {
		return err
	}
	ctx.SetTransaction(tx)
	ctx.SetIgnoreAutoCommit(true)
	return nil
}

// statementNode is a plan without children that answers OK; it is the statement's name.
type statementNode string

func (n statementNode) Resolved() bool                 { return true }
func (n statementNode) IsReadOnly() bool               { return true }
func (n statementNode) String() string                 { return string(n) }
func (n statementNode) Schema(*sql.Context) sql.Schema { return types.OkResultSchema }
func (n statementNode) Children() []sql.Node           { return nil }

// okRows is the answer of a statement that changed n rows.
func okRows(n uint64) sql.RowIter { return sql.RowsToRowIter(sql.NewRow(types.NewOkResult(int(n)))) }
