package wire

import (
	"fmt"
	"strings"

	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// mendTimes repairs date and time parameters of the binary protocol: the
// protocol layer writes their microseconds without leading zeros, which would
// make .6 of six microseconds, and an empty text of a zero date.
func mendTimes(p *mysql.PrepareData) {
	for i, t := range p.ParamsType {
		switch querypb.Type(t) {
		case sqltypes.Timestamp, sqltypes.Datetime, sqltypes.Date, sqltypes.Time:
		default:
			continue
		}
		v := p.BindVars[fmt.Sprintf("v%d", i+1)]
		if v == nil || v.Type != sqltypes.VarChar {
			continue
		}
		s := string(v.Value)
		if s == " " {
			s = "0000-00-00 00:00:00"
			if querypb.Type(t) == sqltypes.Date {
				s = "0000-00-00"
			}
		} else if whole, frac, ok := strings.Cut(s, "."); ok && len(frac) < 6 {
			s = whole + "." + strings.Repeat("0", 6-len(frac)) + frac
		}
		v.Value = []byte(s)
	}
}
