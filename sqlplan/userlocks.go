package sqlplan

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
)

// Limits of the locks of GET_LOCK.
const (
	userLockName = 64      // characters of a name, as in MySQL
	userLocksMax = 1 << 16 // names locked at a time
)

// Errors of GET_LOCK.
var (
	errUserDeadlock = mysql.NewSQLError(3058, stateGeneral, "Deadlock found when trying to get user-level lock; "+
		"try rolling back transaction/releasing locks and restarting lock acquisition.")
	errUserLocksFull = mysql.NewSQLError(1041, stateGeneral, "Out of memory: %d user-level locks are taken", userLocksMax)
)

// userLocks are the locks of GET_LOCK. They belong to sessions and mean what the clients agree on. Its zero value is ready.
type userLocks struct {
	mu    sync.Mutex
	locks map[string]*userLock   // by folded name, guarded by mu
	held  map[*Session][]string  // names, guarded by mu
	waits map[*Session]*userLock // guarded by mu
}

// userLock is a name that is locked. Who waits for it gets it in the order of asking.
type userLock struct {
	name    string
	owner   *Session
	count   int // how often the owner took it
	waiters []*userWait
}

type userWait struct {
	session *Session
	granted chan struct{}
}

// take locks a name for a session. It gives false when the timeout, which is endless if negative, is over.
func (u *userLocks) take(ctx *sql.Context, s *Session, name string, timeout time.Duration) (bool, error) {
	u.mu.Lock()
	l := u.locks[name]
	switch {
	case l == nil:
		defer u.mu.Unlock()
		if len(u.locks) >= userLocksMax {
			return false, errUserLocksFull
		}
		if u.locks == nil {
			u.locks, u.held, u.waits = map[string]*userLock{}, map[*Session][]string{}, map[*Session]*userLock{}
		}
		u.locks[name] = &userLock{name: name, owner: s, count: 1}
		u.held[s] = append(u.held[s], name)
		return true, nil
	case l.owner == s:
		l.count++
		u.mu.Unlock()
		return true, nil
	case timeout == 0:
		u.mu.Unlock()
		return false, nil
	}
	// A session waits for one lock at a time and a lock has one owner, so a circle is a chain that comes back.
	for next := l; next != nil; next = u.waits[next.owner] {
		if next.owner == s {
			u.mu.Unlock()
			return false, errUserDeadlock
		}
	}
	w := &userWait{s, make(chan struct{})}
	l.waiters = append(l.waiters, w)
	u.waits[s] = l
	u.mu.Unlock()

	var over <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		over = t.C
	}
	s.engine.waiting.Store(s.ID(), stateUserLock)
	defer s.engine.waiting.Delete(s.ID())
	select {
	case <-w.granted:
		return true, nil
	case <-over:
		return u.giveUp(l, w), nil
	case <-ctx.Done():
		if u.giveUp(l, w) {
			u.release(s, name)
		}
		return false, mysqlError(context.Cause(ctx))
	}
}

// giveUp ends a wait; true if the lock was granted at the last moment.
func (u *userLocks) giveUp(l *userLock, w *userWait) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, x := range l.waiters {
		if x == w {
			l.waiters = append(l.waiters[:i:i], l.waiters[i+1:]...)
			delete(u.waits, w.session)
			return false
		}
	}
	return true
}

// release gives a name up once: 1 done, 0 another session has it, -1 nobody has it.
func (u *userLocks) release(s *Session, name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.locks[name]
	switch {
	case l == nil:
		return -1
	case l.owner != s:
		return 0
	}
	if l.count--; l.count == 0 {
		u.pass(l)
	}
	return 1
}

// pass gives a lock to who waits first; u.mu is held.
func (u *userLocks) pass(l *userLock) {
	names := u.held[l.owner]
	for i, n := range names {
		if n == l.name {
			names = append(names[:i:i], names[i+1:]...)
			break
		}
	}
	if u.held[l.owner] = names; len(names) == 0 {
		delete(u.held, l.owner)
	}
	if len(l.waiters) == 0 {
		delete(u.locks, l.name)
		return
	}
	w := l.waiters[0]
	l.waiters = l.waiters[1:]
	l.owner, l.count = w.session, 1
	u.held[w.session] = append(u.held[w.session], l.name)
	delete(u.waits, w.session)
	close(w.granted)
}

// releaseAll gives up what a session holds, and tells how often it had taken it.
func (u *userLocks) releaseAll(s *Session) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for names := u.held[s]; len(names) > 0; names = u.held[s] {
		l := u.locks[names[0]]
		n += l.count
		u.pass(l)
	}
	return n
}

// owner gives the session that holds a name, nil if nobody does.
func (u *userLocks) owner(name string) *Session {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.locks[name]; l != nil {
		return l.owner
	}
	return nil
}

// UserLocks is how many names are locked by GET_LOCK.
func (e *Engine) UserLocks() int {
	e.userLocks.mu.Lock()
	defer e.userLocks.mu.Unlock()
	return len(e.userLocks.locks)
}

// lockCall is one of the functions of these locks.
type lockCall struct {
	name  string
	typ   sql.Type
	locks *userLocks
	args  []sql.Expression
	eval  func(ctx *sql.Context, u *userLocks, lock string, timeout any) (any, error)
}

var (
	_ sql.FunctionExpression            = (*lockCall)(nil)
	_ sql.CollationCoercible            = (*lockCall)(nil)
	_ sql.NonDeterministicExpression    = (*lockCall)(nil)
	_ func(string) (sql.Function, bool) = (&userLocks{}).function
)

// function gives the function of a name.
func (u *userLocks) function(name string) (sql.Function, bool) {
	of := func(typ sql.Type, args int, eval func(*sql.Context, *userLocks, string, any) (any, error)) (sql.Function, bool) {
		return sql.FunctionN{Name: name, Fn: func(_ *sql.Context, e ...sql.Expression) (sql.Expression, error) {
			if len(e) != args {
				return nil, sql.ErrInvalidArgumentNumber.New(name, args, len(e))
			}
			return &lockCall{name, typ, u, e, eval}, nil
		}}, true
	}
	switch name {
	case "get_lock":
		return of(types.Int64, 2, getLock)
	case "release_lock":
		return of(types.Int64, 1, func(ctx *sql.Context, u *userLocks, lock string, _ any) (any, error) {
			if n := u.release(sessionOf(ctx), lock); n >= 0 {
				return int64(n), nil
			}
			return nil, nil
		})
	case "is_free_lock":
		return of(types.Int64, 1, func(_ *sql.Context, u *userLocks, lock string, _ any) (any, error) {
			if u.owner(lock) == nil {
				return int64(1), nil
			}
			return int64(0), nil
		})
	case "is_used_lock":
		return of(types.Uint64, 1, func(_ *sql.Context, u *userLocks, lock string, _ any) (any, error) {
			if s := u.owner(lock); s != nil {
				return uint64(s.ID()), nil
			}
			return nil, nil
		})
	case "release_all_locks":
		return of(types.Int64, 0, func(ctx *sql.Context, u *userLocks, _ string, _ any) (any, error) {
			return int64(u.releaseAll(sessionOf(ctx))), nil
		})
	}
	return nil, false
}

func getLock(ctx *sql.Context, u *userLocks, lock string, timeout any) (any, error) {
	v, _, err := types.Float64.Convert(ctx, timeout)
	seconds, ok := v.(float64)
	if err != nil || !ok {
		return nil, mysql.NewSQLError(erWrongArguments, stateGeneral, "Incorrect arguments to get_lock")
	}
	wait := time.Duration(-1)
	if seconds >= 0 && seconds < 1<<32 {
		wait = time.Duration(seconds+0.5) * time.Second // rounded, as the integer that MySQL takes
	}
	got, err := u.take(ctx, sessionOf(ctx), lock, wait)
	if err != nil {
		return nil, err
	}
	if got {
		return int64(1), nil
	}
	return int64(0), nil
}

func (f *lockCall) FunctionName() string         { return f.name }
func (f *lockCall) Description() string          { return "works with locks by name" }
func (f *lockCall) Type(*sql.Context) sql.Type   { return f.typ }
func (f *lockCall) IsNullable(*sql.Context) bool { return true }
func (f *lockCall) IsNonDeterministic() bool     { return true }
func (f *lockCall) Children() []sql.Expression   { return f.args }
func (f *lockCall) Resolved() bool {
	for _, a := range f.args {
		if !a.Resolved() {
			return false
		}
	}
	return true
}

func (f *lockCall) String() string {
	texts := make([]string, len(f.args))
	for i, a := range f.args {
		texts[i] = a.String()
	}
	return f.name + "(" + strings.Join(texts, ", ") + ")"
}

// CollationCoercibility implements sql.CollationCoercible.
func (f *lockCall) CollationCoercibility(*sql.Context) (collation sql.CollationID, coercibility byte) {
	return sql.Collation_binary, 5
}

// WithChildren implements sql.Expression.
func (f *lockCall) WithChildren(_ *sql.Context, children ...sql.Expression) (sql.Expression, error) {
	if len(children) != len(f.args) {
		return nil, sql.ErrInvalidChildrenNumber.New(f, len(children), len(f.args))
	}
	n := *f
	n.args = children
	return &n, nil
}

// Eval implements sql.Expression.
func (f *lockCall) Eval(ctx *sql.Context, row sql.Row) (any, error) {
	var values [2]any
	for i, a := range f.args {
		v, err := a.Eval(ctx, row)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	name := ""
	if len(f.args) > 0 {
		v, _, err := types.LongText.Convert(ctx, values[0])
		if err != nil {
			return nil, err
		}
		text, _ := v.(string)
		if b, ok := v.([]byte); ok {
			text = string(b)
		}
		switch {
		case text == "":
			shown := "NULL"
			if v != nil {
				shown = ""
			}
			return nil, mysql.NewSQLError(3057, "42000", "Incorrect user-level lock name '%s'.", shown)
		case utf8.RuneCountInString(text) > userLockName:
			return nil, mysql.NewSQLError(4163, stateGeneral, "User-level lock name '%s' should not exceed %d characters.", text, userLockName)
		}
		name = strings.ToLower(text)
	}
	return f.eval(ctx, f.locks, name, values[1])
}
