package catalog

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/lakesql/lakesql/index"
)

// changeFilter tells of keys that they were not changed after a sequence: it has, for each of many classes of keys, the last
// commit that changed one of the class. So who has locked a key knows whether the snapshot that he has still speaks for it.
type changeFilter struct {
	slots [1 << 15]atomic.Uint64
}

var changeSeed = maphash.MakeSeed()

func changeSlot(t index.TableID, space int64, key []byte) uint64 {
	h := maphash.Bytes(changeSeed, key)
	h ^= (uint64(t)<<32 ^ uint64(space)) * 0x9e3779b97f4a7c15
	return (h ^ h>>31) % (1 << 15)
}

// note says that a commit changes a key; called with commitMu held, so sequences rise.
func (f *changeFilter) note(t index.TableID, space int64, key []byte, seq index.Seq) {
	f.slots[changeSlot(t, space, key)].Store(uint64(seq))
}

// maybe tells whether a key may have been changed after a sequence.
func (f *changeFilter) maybe(t index.TableID, space int64, key []byte, after index.Seq) bool {
	return f.slots[changeSlot(t, space, key)].Load() > uint64(after)
}
