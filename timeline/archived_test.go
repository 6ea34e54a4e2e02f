package timeline

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/lakesql/lakesql/storage"
)

// Every state of the instants that Hudi archived is found, and each archived commit counts. // D11 D14
func TestArchived(t *testing.T) {
	ctx := context.Background()
	const name = "v6_cow_archived"
	s := unpack(t, name)
	tl := must(Load(ctx, s, name))(t)
	states := map[Instant]int{}
	var order []storage.InstantTime
	for in, err := range Archived(ctx, s, name) {
		if err != nil {
			t.Fatal(err)
		}
		states[Instant{Time: in.Time, Action: in.Action}] |= 1 << in.State
		if in.Time >= tl.Start() || len(in.Transition) != 17 {
			t.Errorf("%+v with a timeline from %s", in, tl.Start())
		}
		if in.Action == Commit && !tl.Counts(in.Time) {
			t.Errorf("%+v does not count", in)
		}
		order = append(order, in.Time)
	}
	actions := map[Action]int{}
	for in, got := range states {
		actions[in.Action]++
		if got != 1<<Requested|1<<Inflight|1<<Completed {
			t.Errorf("%v: states %b", in, got)
		}
	}
	if actions[Commit] == 0 || actions[Clean] == 0 {
		t.Errorf("actions %v", actions)
	}
	if newest := slices.Max(order); newest < order[len(order)-1] || order[0] <= order[len(order)-1] {
		t.Errorf("not the newest file first: %v", order)
	}
	const plain = "v6_cow_plain"
	for in, err := range Archived(ctx, unpack(t, plain), plain) {
		t.Errorf("nothing was archived: %v, %v", in, err)
	}
	for _, err := range Archived(ctx, memStore(), "t") {
		if !errors.Is(err, storage.ErrNotExist) {
			t.Errorf("no table: %v", err)
		}
	}
}
