package main

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	vitess "github.com/dolthub/vitess/go/mysql"
	"github.com/go-sql-driver/mysql"
	"golang.org/x/term"

	_ "github.com/lakesql/lakesql/sqlplan/driver" // "lakesql" opens a folder in process
)

// sqlConfig is what `lakesql sql` runs with.
type sqlConfig struct {
	data                  string // open this folder in process; "": a server
	host, user, password  string
	port                  int
	socket                string
	database              string
	execute               string
	format                format
	noNames               bool
	execGiven             bool
	stdinTerm, stdoutTerm bool
}

func loadSQLConfig(args []string, getenv func(string) string, help io.Writer) (sqlConfig, error) {
	var c sqlConfig
	set := flag.NewFlagSet("lakesql sql", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&c.data, "data", "", "open this data `folder` in process, without a server")
	set.StringVar(&c.host, "host", "127.0.0.1", "server to connect to")
	set.IntVar(&c.port, "port", 3306, "its port")
	set.StringVar(&c.socket, "socket", "", "connect by this unix socket instead (`path`)")
	set.StringVar(&c.user, "user", "root", "account to log in with")
	set.StringVar(&c.password, "password", getenv("LAKESQL_PASSWORD"), "its password (default $LAKESQL_PASSWORD)")
	set.Lookup("password").DefValue = ""
	set.StringVar(&c.database, "database", "", "default database")
	set.StringVar(&c.execute, "e", "", "run these `statements` and end")
	set.StringVar(&c.execute, "execute", "", "the same as -e (`statements`)")
	asTable := set.Bool("table", false, "print tables (default on a terminal)")
	asTabs := set.Bool("tsv", false, "print tab-separated lines (default in a pipe)")
	asJSON := set.Bool("json", false, "print one JSON object a row")
	asCSV := set.Bool("csv", false, "print comma-separated lines; NULL is empty, an empty text is \"\"")
	set.BoolVar(&c.noNames, "N", false, "leave out the line of column names (tab- and comma-separated)")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(help, "Usage: lakesql sql [--data DIR | --host HOST] [-e STATEMENTS] [flags]\n\nStatements come from -e, from standard input, or from the keyboard.\n\n")
			set.SetOutput(help)
			set.PrintDefaults()
		}
		return c, err
	}
	if set.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q (statements go after -e)", set.Arg(0))
	}
	server := ""
	set.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "e", "execute":
			c.execGiven = true
		case "host", "port", "socket":
			server = "--" + f.Name
		}
	})
	if c.data != "" && server != "" {
		return c, fmt.Errorf("--data opens the folder in process, %s names a server: give one of them", server)
	}
	n := 0
	for _, f := range []struct {
		on   bool
		form format
	}{{*asTable, formatTable}, {*asTabs, formatTabs}, {*asJSON, formatJSON}, {*asCSV, formatCSV}} {
		if f.on {
			c.format = f.form
			n++
		}
	}
	if n > 1 {
		return c, errors.New("give one of --table, --tsv, --json and --csv")
	}
	return c, nil
}

func runSQL(ctx context.Context, args []string, s streams) int {
	cfg, err := loadSQLConfig(args, os.Getenv, s.out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(s.err, "lakesql sql: %v\n", err)
		return 2
	}
	cfg.stdinTerm, cfg.stdoutTerm = isTerminal(s.in), isTerminal(s.out)
	if cfg.format == formatAuto {
		cfg.format = formatTabs
		if cfg.stdoutTerm {
			cfg.format = formatTable
		}
	}
	c, err := openClient(ctx, cfg, s)
	if err != nil {
		fmt.Fprintln(s.err, errorText(err, 0))
		return 1
	}
	defer func() {
		if err := c.close(); err != nil {
			fmt.Fprintln(s.err, errorText(err, 0))
		}
	}()
	switch {
	case cfg.execGiven:
		return c.batch(ctx, strings.NewReader(cfg.execute), false)
	case cfg.stdinTerm:
		return c.interactive(ctx)
	}
	return c.batch(ctx, s.in, true)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// client is one session: one connection, so that transactions and variables live from statement to statement.
type client struct {
	cfg  sqlConfig
	s    streams
	out  *bufio.Writer
	db   *sql.DB
	conn *sql.Conn
	id   uint64      // the connection's, as the server numbers it; 0 in process
	lock *folderLock // in process only
}

func openClient(ctx context.Context, cfg sqlConfig, s streams) (*client, error) {
	c := &client{cfg: cfg, s: s, out: bufio.NewWriter(s.out)}
	var err error
	if cfg.data != "" {
		if c.lock, err = lockFolder(cfg.data, ""); err != nil {
			var used *folderInUseError
			if errors.As(err, &used) && used.Addr != "" {
				return nil, fmt.Errorf("%w; connect to it with --host and --port", err)
			}
			return nil, err
		}
		c.db, err = sql.Open("lakesql", cfg.data)
	} else {
		my := mysql.NewConfig()
		my.User, my.Passwd, my.DBName = cfg.user, cfg.password, cfg.database
		my.Net, my.Addr = "tcp", net.JoinHostPort(cfg.host, strconv.Itoa(cfg.port))
		if cfg.socket != "" {
			my.Net, my.Addr = "unix", cfg.socket
		}
		my.Logger = &mysql.NopLogger{} // the errors are returned as well
		var connector driver.Connector
		if connector, err = mysql.NewConnector(my); err == nil {
			c.db = sql.OpenDB(connector)
		}
	}
	if err == nil {
		err = c.connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// connect takes a fresh connection for the session.
func (c *client) connect(ctx context.Context) (err error) {
	if c.conn != nil {
		c.conn.Close() // it is lost already
	}
	if c.conn, err = c.db.Conn(ctx); err != nil {
		return err
	}
	if c.cfg.data == "" {
		return c.conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&c.id)
	}
	if c.cfg.database != "" {
		_, err = c.conn.ExecContext(ctx, "USE "+quoteName(c.cfg.database))
	}
	return err
}

// interruptible returns a context for one statement that Ctrl-C ends. Over the wire the server is asked to
// cancel the statement, because a cancelled context would cost the connection and the session with it.
func (c *client) interruptible(ctx context.Context) (context.Context, func()) {
	if c.cfg.data != "" {
		return signal.NotifyContext(ctx, os.Interrupt)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-signals:
				if _, err := c.db.ExecContext(ctx, fmt.Sprintf("KILL QUERY %d", c.id)); err != nil {
					fmt.Fprintln(c.s.err, errorText(err, 0))
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

func (c *client) close() error {
	var errs []error
	if c.conn != nil {
		errs = append(errs, c.conn.Close())
	}
	if c.db != nil {
		errs = append(errs, c.db.Close())
	}
	if c.lock != nil {
		c.lock.release()
	}
	return errors.Join(errs...)
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// batch runs statements up to the first error. numbered errors name the line of their statement.
func (c *client) batch(ctx context.Context, in io.Reader, numbered bool) int {
	var sp splitter
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			fmt.Fprintf(c.s.err, "lakesql sql: reading statements: %v\n", err)
			return 1
		}
		end := err != nil
		var stmts []statement
		if line != "" {
			stmts = sp.feed(line)
		}
		if end {
			stmts = append(stmts, sp.finish()...)
		}
		for _, st := range stmts {
			if st.quit {
				return 0
			}
			if err := c.run(ctx, st); err != nil {
				n := 0
				if numbered {
					n = st.line
				}
				fmt.Fprintln(c.s.err, errorText(err, n))
				return 1
			}
		}
		if end {
			return 0
		}
	}
}

// run executes one statement and prints what it gives. An interrupt from the keyboard cancels it.
func (c *client) run(ctx context.Context, st statement) error {
	defer c.out.Flush()
	ctx, stop := c.interruptible(ctx)
	defer stop()
	if path, ok := localInfile(st.text); ok && c.cfg.data == "" {
		mysql.RegisterLocalFile(path) // this statement names the file: no server may ask for another
		defer mysql.DeregisterLocalFile(path)
	}
	start := time.Now()
	if !givesRows(st.text) {
		res, err := c.conn.ExecContext(ctx, st.text)
		if err != nil {
			return err
		}
		if c.talks() {
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "Query OK, %s affected (%s)\n\n", plural(n, "row"), seconds(start))
		}
		return nil
	}
	rows, err := c.conn.QueryContext(ctx, st.text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		names, err := rows.Columns()
		if err != nil {
			return err
		}
		if len(names) == 0 {
			if c.talks() {
				fmt.Fprintf(c.out, "Query OK (%s)\n\n", seconds(start))
			}
		} else {
			f := c.cfg.format
			if st.vertical {
				f = formatVertical
			}
			n, err := printRows(c.out, rows, f, c.cfg.noNames, c.talks())
			if err != nil {
				return err
			}
			if c.talks() {
				if n == 0 {
					fmt.Fprintf(c.out, "Empty set (%s)\n\n", seconds(start))
				} else {
					fmt.Fprintf(c.out, "%s in set (%s)\n\n", plural(n, "row"), seconds(start))
				}
			}
		}
		if !rows.NextResultSet() {
			return rows.Err()
		}
	}
}

// talks says whether a person reads along: then counts and times are printed as well.
func (c *client) talks() bool { return c.cfg.stdoutTerm && c.cfg.format == formatTable }

func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func seconds(start time.Time) string { return fmt.Sprintf("%.3f sec", time.Since(start).Seconds()) }

// errorText words an error as MySQL's clients do; line 0 leaves out the place.
func errorText(err error, line int) string {
	at := ""
	if line > 0 {
		at = fmt.Sprintf(" at line %d", line)
	}
	var remote *mysql.MySQLError
	if errors.As(err, &remote) {
		state := string(remote.SQLState[:])
		if remote.SQLState == [5]byte{} {
			state = "HY000"
		}
		return fmt.Sprintf("ERROR %d (%s)%s: %s", remote.Number, state, at, remote.Message)
	}
	var local *vitess.SQLError
	if errors.As(err, &local) {
		return fmt.Sprintf("ERROR %d (%s)%s: %s", local.Num, local.State, at, local.Message)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Sprintf("ERROR 2003 (HY000)%s: cannot connect to the server at %s: %v", at, op.Addr, op.Err)
	}
	if lostConnection(err) {
		return fmt.Sprintf("ERROR 2013 (HY000)%s: lost connection to the server during the statement", at)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Sprintf("ERROR 1317 (70100)%s: Query execution was interrupted", at)
	}
	return fmt.Sprintf("ERROR 1105 (HY000)%s: %v", at, err)
}

func lostConnection(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
}
