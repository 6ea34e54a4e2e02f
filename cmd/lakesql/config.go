package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
)

// serverConfig is what `lakesql server` runs with. The zero value is not valid: start from loadServerConfig.
type serverConfig struct {
	Data            string     // data folder; holds warehouse/, state/ and lakesql.lock
	Listen          string     // HOST:PORT
	Socket          string     // path of a unix socket beside TCP; "" for none
	User            string     // the account that may do everything
	Password        string     // "" only on loopback
	LogLevel        slog.Level // least level that is logged
	AcceptLostState bool       // open tables whose state/ is missing or older than they are
	MemoryLimit     int64      // bytes that the process may use; 0: what the machine has
}

// setting is one option of the server: the same name stands on the command line (--log-level), in the
// environment (LAKESQL_LOG_LEVEL) and in the configuration file (log-level or log_level).
type setting struct {
	name, value, help string
	bool              bool
}

func serverSettings() []setting {
	return []setting{
		{name: "data", value: "./lakesql-data", help: "data folder"},
		{name: "listen", value: "127.0.0.1:3306", help: "`HOST:PORT` to listen on; anything but loopback demands a password"},
		{name: "socket", help: "`path` of a unix socket to listen on as well"},
		{name: "user", value: "root", help: "name of the account that may do everything"},
		{name: "password", help: "its password (LAKESQL_PASSWORD keeps it out of the process list)"},
		{name: "log-level", value: "info", help: "debug, info, warn or error"},
		{name: "memory-limit", help: "`SIZE` of memory to keep to, such as 2GiB; a statement that needs too much is ended (default: most of the machine's)"},
		{name: "accept-lost-state", value: "false", bool: true, help: "open tables although the state folder that they were last written with is gone"},
	}
}

func envName(setting string) string {
	return "LAKESQL_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// textValue is a flag that remembers its text: settings are parsed once, after all sources were merged.
type textValue struct {
	text string
	bool bool
}

func (v *textValue) String() string     { return v.text }
func (v *textValue) Set(s string) error { v.text = s; return nil }
func (v *textValue) IsBoolFlag() bool   { return v.bool }

// loadServerConfig merges flags, environment, configuration file and defaults, the first of them that names an
// option winning. help is where --help prints; it then returns flag.ErrHelp.
func loadServerConfig(args []string, getenv func(string) string, help io.Writer) (serverConfig, error) {
	settings := serverSettings()
	set := flag.NewFlagSet("lakesql server", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	values := map[string]*textValue{}
	for _, s := range settings {
		values[s.name] = &textValue{text: s.value, bool: s.bool}
		set.Var(values[s.name], s.name, s.help)
	}
	file := set.String("config", "", "configuration `file` (see docs/configuration.md)")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(help, "Usage: lakesql server [flags]\n\nEach flag can also be set by LAKESQL_<FLAG> in the environment, or in the file of --config.\n\n")
			set.SetOutput(help)
			set.PrintDefaults()
		}
		return serverConfig{}, err
	}
	if set.NArg() > 0 {
		return serverConfig{}, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	source := map[string]string{} // option → where its value came from, for errors
	for name := range given {
		source[name] = "--" + name
	}
	if !given["config"] {
		*file = getenv("LAKESQL_CONFIG")
	}
	var fromFile map[string]fileValue
	if *file != "" {
		var err error
		if fromFile, err = readConfigFile(*file, settings); err != nil {
			return serverConfig{}, err
		}
	}
	for _, s := range settings {
		if given[s.name] {
			continue
		}
		if text := getenv(envName(s.name)); text != "" {
			values[s.name].text, source[s.name] = text, envName(s.name)
		} else if v, ok := fromFile[s.name]; ok {
			values[s.name].text, source[s.name] = v.text, fmt.Sprintf("%s:%d: %s", *file, v.line, s.name)
		}
	}
	c := serverConfig{
		Data:     values["data"].text,
		Listen:   values["listen"].text,
		Socket:   values["socket"].text,
		User:     values["user"].text,
		Password: values["password"].text,
	}
	if c.Data == "" {
		return c, fmt.Errorf("%s: the data folder has no name", source["data"])
	}
	if c.User == "" {
		return c, fmt.Errorf("%s: the user has no name", source["user"])
	}
	if err := c.LogLevel.UnmarshalText([]byte(values["log-level"].text)); err != nil {
		return c, fmt.Errorf("%s: %q is not debug, info, warn or error", source["log-level"], values["log-level"].text)
	}
	var err error
	if c.AcceptLostState, err = strconv.ParseBool(values["accept-lost-state"].text); err != nil {
		return c, fmt.Errorf("%s: %q is not true or false", source["accept-lost-state"], values["accept-lost-state"].text)
	}
	if text := values["memory-limit"].text; text != "" {
		if c.MemoryLimit, err = parseSize(text); err != nil {
			return c, fmt.Errorf("%s: %w", source["memory-limit"], err)
		}
	}
	if c.Password == "" {
		local, err := isLoopback(c.Listen)
		if err != nil {
			return c, fmt.Errorf("--listen %s: %w", c.Listen, err)
		}
		if !local {
			return c, fmt.Errorf("--listen %s can be reached from other machines: set a password (--password, LAKESQL_PASSWORD or the configuration file)", c.Listen)
		}
	}
	return c, nil
}

// isLoopback says whether every address behind hostPort is reachable from this machine alone.
func isLoopback(hostPort string) (bool, error) {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return false, errors.New("is not HOST:PORT")
	}
	if host == "" {
		return false, nil
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback(), nil
	}
	ips, err := net.LookupIP(host)
	if err != nil {
		return false, fmt.Errorf("looking up the host: %w", err)
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false, nil
		}
	}
	return true, nil
}

type fileValue struct {
	text string
	line int
}

// readConfigFile reads `name = value` lines: the part of TOML that holds top-level strings, numbers and
// booleans. Text may stand in "double" quotes (with \" \\ \n \t), in 'single' quotes (as it is) or, as an
// extension, bare. `#` starts a comment. A name that is no setting, or that stands twice, is an error.
func readConfigFile(path string, settings []setting) (map[string]fileValue, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close()
	known := map[string]bool{}
	for _, s := range settings {
		known[s.name] = true
	}
	values := map[string]fileValue{}
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, "=")
		name = strings.ReplaceAll(strings.TrimSpace(name), "_", "-")
		switch {
		case !ok:
			return nil, fmt.Errorf("%s:%d: not `name = value`: %s", path, n, line)
		case !known[name]:
			return nil, fmt.Errorf("%s:%d: unknown option %q", path, n, name)
		}
		if before, twice := values[name]; twice {
			return nil, fmt.Errorf("%s:%d: %s is set on line %d already", path, n, name, before.line)
		}
		text, err := configText(strings.TrimSpace(rest))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", path, n, name, err)
		}
		values[name] = fileValue{text, n}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return values, nil
}

func configText(s string) (string, error) {
	if s == "" {
		return "", errors.New("has no value")
	}
	quote := s[0]
	if quote != '"' && quote != '\'' {
		text, _, _ := strings.Cut(s, "#")
		return strings.TrimSpace(text), nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == quote:
			if rest := strings.TrimSpace(s[i+1:]); rest != "" && rest[0] != '#' {
				return "", fmt.Errorf("text after the closing quote: %s", rest)
			}
			return b.String(), nil
		case s[i] == '\\' && quote == '"':
			i++
			if i == len(s) {
				break
			}
			switch s[i] {
			case '"', '\\':
				b.WriteByte(s[i])
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			default:
				return "", fmt.Errorf(`unknown escape \%c`, s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return "", errors.New("the quote is not closed")
}
