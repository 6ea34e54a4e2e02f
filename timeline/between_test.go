package timeline

import (
	"context"
	"slices"
	"testing"

	"github.com/lakesql/lakesql/storage"
)

// Ranges go by instant times in layout 1 and by completion times in layout 2, the first bound excluded, also over archived instants.
func TestBetween(t *testing.T) {
	ctx := context.Background()
	times := func(list []Instant) (out []storage.InstantTime) {
		for _, in := range list {
			out = append(out, in.Time[14:])
		}
		return out
	}
	s := laterTable(t, []string{
		instantName("100", "101", "commit"), instantName("110", "130", "commit"), instantName("120", "125", "commit"), instantName("140", "", "commit.requested"),
	}, nil)
	tl := must(Load(ctx, s, "t"))(t)
	for _, c := range []struct {
		from, to string
		want     []storage.InstantTime
	}{
		{"", "", []storage.InstantTime{"100", "120", "110"}},
		{"101", "", []storage.InstantTime{"120", "110"}},
		{"101", "129", []storage.InstantTime{"120"}},
		{"125", "130", []storage.InstantTime{"110"}},
		{"130", "999", nil},
	} {
		r := Range{}
		if c.from != "" {
			r.From = day + storage.InstantTime(c.from)
		}
		if c.to != "" {
			r.To = day + storage.InstantTime(c.to)
		}
		list, old, archived, err := tl.Between(ctx, s, "t", r)
		if err != nil || !slices.Equal(times(list), c.want) || old != nil || archived {
			t.Errorf("(%s, %s]: %v, %v, %t, %v", c.from, c.to, list, old, archived, err)
		}
	}
	counts := tl.CountsAt(day + "129")
	for it, want := range map[storage.InstantTime]bool{"100": true, "110": false, "120": true, "140": false} {
		if got := counts(day + it); got != want {
			t.Errorf("%s counts at 129: %t", it, got)
		}
	}
	for name, from := range map[string]storage.InstantTime{"v6_cow_archived": "20261130101920037", "v8_cow_archived": "20261130103735031"} {
		s := unpack(t, name)
		tl := must(Load(ctx, s, name))(t)
		list, old, archived, err := tl.Between(ctx, s, name, Range{From: from})
		if err != nil || len(list) != 1 || old != nil || archived {
			t.Errorf("%s after %s: %v, %v, %t, %v", name, from, list, old, archived, err)
		}
		list, old, archived, err = tl.Between(ctx, s, name, Range{})
		if err != nil || len(list) != 2 || len(old) < 5 || !archived || slices.Max(old) >= list[0].Time {
			t.Errorf("%s: %v, %v, %t, %v", name, list, old, archived, err)
		}
	}
}

// A reader of the past that does not see a compaction yet sees the logs over it.
func TestLogsOverUnseenCompaction(t *testing.T) {
	ctx := context.Background()
	s := laterTable(t, []string{
		instantName("100", "101", "deltacommit"), instantName("120", "140", "commit"), instantName("125", "130", "deltacommit"), instantName("141", "142", "deltacommit"),
	}, []string{baseAt("100"), baseAt("120"), logAt("125"), logAt("141")})
	tl := must(Load(ctx, s, "t"))(t)
	v := must(BuildView(ctx, s, "t", tl))(t)
	for at, want := range map[string]string{"": "000120 000120: 000125.1 000141.1", "141": "000120 000120: 000125.1", "135": "000100 000100: 000125.1", "129": "000100 000100:"} {
		bound := storage.InstantTime("")
		if at != "" {
			bound = day + storage.InstantTime(at)
		}
		list := v.Slices("", tl.CountsAt(bound))
		if len(list) != 1 || short(list[0]) != want {
			t.Errorf("at %s: %v, want %s", at, list, want)
		}
	}
}
