package catalog

import (
	"slices"
	"time"

	"github.com/lakesql/lakesql/index"
	"github.com/lakesql/lakesql/storage"
)

// Locks lists the locks that transactions hold or wait for, by table, space and key.
func (c *Catalog) Locks() []LockInfo {
	m := c.rowLocks
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]index.TableID, 0, len(m.tables))
	for id := range m.tables {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var out []LockInfo
	for _, id := range ids {
		lt := m.tables[id]
		spaces := slices.Clone(lt.spaces)
		slices.SortFunc(spaces, func(a, b *lockSpace) int { return int(a.no - b.no) })
		for _, s := range spaces {
			s.points.within("", "", true, func(p *lockPoint) bool {
				for _, h := range append([]lockHolder{p.one}, p.more...) {
					if h.tx != nil {
						out = append(out, m.info(s, h, p.key, "", false, true))
					}
				}
				return true
			})
			s.ranges.each(func(g *lockRange) bool {
				out = append(out, m.info(s, g.lockHolder, g.low, g.high, g.open, false))
				return true
			})
			for _, set := range s.sets {
				i := m.info(s, set.lockHolder, "", "", true, true)
				i.Key = "the rows of a large statement"
				out = append(out, i)
			}
			for r := s.first; r != nil; r = r.next {
				i := m.info(s, lockHolder{r.tx, r.mask, r.since}, r.low, r.high, r.open, r.point)
				i.Granted = false
				out = append(out, i)
			}
		}
	}
	return out
}

func (m *lockManager) info(s *lockSpace, h lockHolder, low, high string, open, point bool) LockInfo {
	d := s.table.t.def.Load()
	i := LockInfo{
		Database: d.database, Table: d.name, Kind: "RECORD", Mode: h.mask.String(), Granted: true,
		Tx: h.tx.id, Connection: h.tx.o.Connection, Since: m.base.Add(time.Duration(h.since)),
	}
	if s.no == spaceTable {
		i.Kind = "TABLE"
		return i
	}
	var cols []index.Column
	if s.no == spaceRecord {
		cols = d.keyCols
	} else {
		for _, x := range d.indexes {
			if int64(x.no) == s.no {
				i.Index, cols = x.spec.Name, x.cols
			}
		}
	}
	var types []storage.Type
	if s.no == spaceRecord { // a partition path, a generated key
		if d.spec.PerPartition {
			types = append(types, storage.Type{Kind: storage.String})
		}
		if d.hidden() {
			types = append(types, storage.Type{Kind: storage.String})
		}
	}
	for _, c := range cols {
		t := d.spec.Schema.Fields[c.Field].Type
		if c.Sort != nil {
			t = storage.Type{Kind: storage.Bytes} // of the weight there is no way back to the text
		}
		types = append(types, t)
	}
	i.Key = index.KeyText(types, []byte(low))
	if !point {
		i.Kind = "RANGE"
		end := "…"
		if !open {
			end = index.KeyText(types, []byte(high))
		}
		if low == "" {
			i.Key = "…"
		}
		i.Key += " – " + end
	}
	return i
}

func (m lockMask) String() string {
	switch {
	case m&lockX != 0:
		return "X"
	case m&lockS != 0 && m&lockIX != 0:
		return "SIX"
	case m&lockS != 0:
		return "S"
	case m&lockIX != 0:
		return "IX"
	}
	return "IS"
}

// Transactions lists the transactions under way, the oldest first.
func (c *Catalog) Transactions() []TxInfo {
	m := c.rowLocks
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []TxInfo
	for l := m.first; l != nil; l = l.next {
		i := TxInfo{
			ID: l.id, Connection: l.o.Connection, Isolation: l.o.Isolation, Started: l.started,
			Writes: int(l.weight.Load()), Locks: len(l.points) + l.ranges + len(l.sets),
		}
		for _, r := range l.owner.waits {
			if r.tx == l {
				i.Waiting = m.base.Add(time.Duration(r.since))
			}
		}
		if l.tx != nil {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b TxInfo) int { return int(a.ID) - int(b.ID) })
	return out
}

// ID names the transaction among those of this run, as TxInfo and LockInfo do.
func (tx *Tx) ID() uint64 { return tx.locks.id }
