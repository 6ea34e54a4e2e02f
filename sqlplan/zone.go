package sqlplan

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
)

// A TIMESTAMP is an instant in the files and, in the front end, a time in UTC whose clock shows what the session's zone shows
// then. The way between the two stands here; DATETIME has no zone.

// secondClock is the location of a TIMESTAMP whose clock time has been there before: clocks were set back. It lets the value
// find its instant again when a row that was read is written.
var secondClock = time.FixedZone("", 0)

// zoneReach is further than clocks are ever changed.
const zoneReach = 26 * time.Hour

// zone is the session's time zone; it is looked up once for each value of @@time_zone.
func (s *Session) zone(ctx *sql.Context) (*time.Location, error) {
	v, err := ctx.GetSessionVariable(ctx, "time_zone")
	if err != nil {
		return nil, mysqlError(err)
	}
	if name, _ := v.(string); s.zoneOf == nil || name != s.zoneName {
		loc, err := sessionZone(ctx)
		if err != nil {
			return nil, err
		}
		s.zoneName, s.zoneOf = name, loc
	}
	return s.zoneOf, nil
}

func isTimestamp(t sql.Type) bool { return t.Type() == sqltypes.Timestamp }

// zoned gives the codec for a session's zone.
func (r *rowCodec) zoned(ctx *sql.Context) (*rowCodec, error) {
	stamps := false
	for i := range r.cols {
		stamps = stamps || isTimestamp(r.cols[i].codec.typ)
	}
	if !stamps {
		return r, nil
	}
	loc, err := sessionOf(ctx).zone(ctx)
	if err != nil || isUTC(loc) {
		return r, err
	}
	out := &rowCodec{width: r.width, cols: append([]rowColumn(nil), r.cols...), byName: make(map[string]*columnCodec, len(r.byName))}
	for name, c := range r.byName {
		out.byName[name] = c
	}
	for i := range out.cols {
		if c := &out.cols[i]; isTimestamp(c.codec.typ) {
			c.codec = c.codec.zoned(loc)
			out.byName[c.codec.name] = c.codec
		}
	}
	return out, nil
}

func isUTC(loc *time.Location) bool {
	if loc == time.UTC {
		return true
	}
	name, offset := time.Time{}.In(loc).Zone()
	return offset == 0 && (name == "UTC" || name == "+00:00")
}

// zoned gives the codec of a TIMESTAMP column for a zone.
func (c *columnCodec) zoned(loc *time.Location) *columnCodec {
	z := *c
	clock := func(v any, err error) (any, error) {
		if t, ok := v.(time.Time); ok && err == nil && !t.Equal(types.ZeroTime) {
			return clockOf(t, loc), nil
		}
		return v, err
	}
	z.encode = func(v any) (any, error) {
		t, ok := v.(time.Time)
		if !ok {
			var err error
			if t, err = exact(c.typ, v, func(t time.Time) time.Time { return t }); err != nil {
				return nil, err
			}
		}
		if t.Equal(types.ZeroTime) {
			return c.encode(t)
		}
		first, second, ok := instantsOf(t, loc)
		if !ok {
			return nil, mysql.NewSQLError(mysql.ERTruncatedWrongValue, "22007", "Incorrect datetime value: '%s' for column '%s' at row 1",
				t.Format("2006-01-02 15:04:05"), c.name)
		}
		if t.Location() == secondClock {
			first = second
		}
		return c.encode(first)
	}
	decode, read := c.decode, c.read
	z.decode = func(v any) (any, error) { return clock(decode(v)) }
	z.read = func(a arrow.Array, row int) (any, error) { return clock(read(a, row)) }
	return &z
}

// clockOf gives the clock of an instant in a zone.
func clockOf(t time.Time, loc *time.Location) time.Time {
	_, offset := t.In(loc).Zone()
	clock := t.UTC().Add(time.Duration(offset) * time.Second)
	if _, before := t.Add(-zoneReach).In(loc).Zone(); before > offset {
		if first, _, ok := instantsOf(clock, loc); ok && first.Before(t) {
			return clock.In(secondClock)
		}
	}
	return clock
}

// instantsOf gives the instants at which clocks of a zone show a time: mostly one; two, in order, where they were set back;
// none, and ok false, where they were set forward.
func instantsOf(clock time.Time, loc *time.Location) (first, second time.Time, ok bool) {
	first, second = clockBounds(clock, loc)
	shows := func(t time.Time) bool {
		_, offset := t.In(loc).Zone()
		return t.Add(time.Duration(offset) * time.Second).Equal(clock)
	}
	switch a, b := shows(first), shows(second); {
	case a && b:
		return first, second, true
	case a:
		return first, first, true
	case b:
		return second, second, true
	}
	return first, second, false
}

// clockBounds gives the earliest and the latest instant that a clock time may stand for.
func clockBounds(clock time.Time, loc *time.Location) (earliest, latest time.Time) {
	clock = clock.UTC()
	_, before := clock.Add(-zoneReach).In(loc).Zone()
	_, after := clock.Add(zoneReach).In(loc).Zone()
	return clock.Add(-time.Duration(max(before, after)) * time.Second), clock.Add(-time.Duration(min(before, after)) * time.Second)
}

// stampBound gives the end of a key range over a TIMESTAMP column for a clock time: no row in the range lies beyond it, though
// some inside may not be in the range, since clocks do not always run forward.
func stampBound(ctx *sql.Context, codec *columnCodec, clock time.Time, upper bool) (any, error) {
	loc, err := sessionOf(ctx).zone(ctx)
	if err != nil {
		return nil, err
	}
	if clock.Equal(types.ZeroTime) || isUTC(loc) {
		return codec.toStorage(clock)
	}
	earliest, latest := clockBounds(clock, loc)
	if upper {
		return codec.toStorage(latest)
	}
	return codec.toStorage(earliest)
}
