package sqlplan

import (
	"fmt"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// asOfLayout is how times are written in messages.
const asOfLayout = "2006-01-02 15:04:05.000000"

// asOfLayouts are the forms of times that AS OF reads, in the session's time zone.
var asOfLayouts = []string{
	"2006-01-02 15:04:05.999999", "2006-01-02T15:04:05.999999", "2006-01-02 15:04", "2006-01-02",
	"2006-01-02 15:04:05.999999Z07:00", "2006-01-02T15:04:05.999999Z07:00",
}

// asOfTime gives the table as it was at a time.
func (t *table) asOfTime(ctx *sql.Context, at any) (sql.Table, error) {
	if text, ok := at.(string); ok && text == dialect.AsOfUnbound {
		return t, nil // only the columns count while a statement is prepared
	}
	when, err := resolveAsOf(ctx, at)
	if err != nil {
		return nil, err
	}
	s := sessionOf(ctx)
	snap := s.stmt.snapshots[when]
	if snap == nil {
		if snap, err = t.catalog.AsOf(ctx, when); err != nil {
			return nil, mysqlError(err)
		}
		if s.stmt.snapshots == nil {
			s.stmt.snapshots = map[catalog.AsOf]*catalog.Snapshot{}
		}
		s.stmt.snapshots[when] = snap
	}
	spec, err := snap.Definition(ctx, t.t)
	if err != nil {
		return nil, mysqlError(err)
	}
	old := *t
	if spec != t.def.spec { // the columns of then
		def, err := newDefinition(ctx, t.t.Database(), t.def.name, t.def.version, spec)
		if err != nil {
			return nil, mysqlError(fmt.Errorf("table %s.%s as of then: %w", t.t.Database(), t.t.Name(), err))
		}
		old = *tableOf(ctx, t.db, t.catalog, t.t, def, t.temporary)
	}
	old.old = snap
	return &old, nil
}

// resolveAsOf reads a time: text and times of the front end in the session's time zone, 14 or 17 digits as an instant of
// the table's timeline.
func resolveAsOf(ctx *sql.Context, at any) (catalog.AsOf, error) {
	loc, err := sessionZone(ctx)
	if err != nil {
		return catalog.AsOf{}, err
	}
	switch v := at.(type) {
	case time.Time:
		// The front end's times are the session's wall clock under the name of UTC.
		return catalog.AsOf{Time: time.Date(v.Year(), v.Month(), v.Day(), v.Hour(), v.Minute(), v.Second(), v.Nanosecond(), loc).UTC()}, nil
	case string:
		text := strings.TrimSpace(v)
		if isInstant(text) {
			return catalog.AsOf{Instant: text}, nil
		}
		for _, layout := range asOfLayouts {
			if t, err := time.ParseInLocation(layout, text, loc); err == nil {
				return catalog.AsOf{Time: t.UTC()}, nil
			}
		}
	case int64, uint64, int32, uint32:
		return resolveAsOf(ctx, fmt.Sprint(v))
	}
	if at == nil {
		at = "NULL"
	}
	return catalog.AsOf{}, mysql.NewSQLError(mysql.ERTruncatedWrongValueForField, stateBadValue,
		"Incorrect AS OF value: '%v': give 'YYYY-MM-DD hh:mm:ss[.ffffff]' or an instant of 14 or 17 digits", at)
}

// isInstant says whether a text is the time of an instant.
func isInstant(text string) bool {
	if len(text) != 14 && len(text) != 17 {
		return false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// sessionZone gives the location of @@time_zone.
func sessionZone(ctx *sql.Context) (*time.Location, error) {
	v, err := ctx.GetSessionVariable(ctx, "time_zone")
	if err != nil {
		return nil, mysqlError(err)
	}
	name, _ := v.(string)
	if strings.EqualFold(name, "SYSTEM") || name == "" {
		name = sql.SystemTimezoneOffset()
	}
	offset := name
	if len(name) == len("+5:00") && (name[0] == '+' || name[0] == '-') {
		offset = name[:1] + "0" + name[1:]
	}
	if t, err := time.Parse("-07:00", offset); err == nil {
		_, seconds := t.Zone()
		return time.FixedZone(name, seconds), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, sql.ErrInvalidTimeZone.New(name)
	}
	return loc, nil
}
