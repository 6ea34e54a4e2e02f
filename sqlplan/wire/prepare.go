package wire

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/apd/v3"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// mendParameters repairs parameters of the binary protocol. The protocol layer
// writes the microseconds of times without leading zeros, which would make .6
// of six microseconds, and an empty text of a zero date; and it takes decimals
// for text, with which the engine computes as doubles.
func mendParameters(p *mysql.PrepareData) {
	for i, t := range p.ParamsType {
		v := p.BindVars[fmt.Sprintf("v%d", i+1)]
		switch querypb.Type(t) {
		case sqltypes.Timestamp, sqltypes.Datetime, sqltypes.Date, sqltypes.Time:
		case sqltypes.Decimal:
			if v == nil || v.Type != sqltypes.VarBinary && v.Type != sqltypes.VarChar {
				continue
			}
			if d, _, err := apd.NewFromString(string(v.Value)); err == nil && d.Form == apd.Finite {
				v.Type, v.Value = sqltypes.Decimal, []byte(d.Text('f')) // an exponent would make it a double
			}
			continue
		default:
			continue
		}
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
