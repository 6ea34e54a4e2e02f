package catalog

import "slices"

// lockKeys are locked keys in order: chunks of at most lockChunk, each below the next.
type lockKeys struct {
	chunks [][]*lockPoint
	n      int
}

const lockChunk = 128

// chunk gives the number of the chunk in which a key stands if it does.
func (k *lockKeys) chunk(key string) int {
	lo, hi := 1, len(k.chunks)
	for lo < hi {
		mid := (lo + hi) / 2
		if k.chunks[mid][0].key <= key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// in gives the place of a key in a chunk.
func lockPlace(c []*lockPoint, key string) (int, bool) {
	lo, hi := 0, len(c)
	for lo < hi {
		mid := (lo + hi) / 2
		if c[mid].key < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(c) && c[lo].key == key
}

func (k *lockKeys) get(key string) *lockPoint {
	if k.n == 0 {
		return nil
	}
	c := k.chunks[k.chunk(key)]
	if i, ok := lockPlace(c, key); ok {
		return c[i]
	}
	return nil
}

// put adds a key that is not there.
func (k *lockKeys) put(p *lockPoint) {
	k.n++
	if len(k.chunks) == 0 {
		k.chunks = append(k.chunks, make([]*lockPoint, 0, 8))
	}
	n := k.chunk(p.key)
	c := k.chunks[n]
	i, _ := lockPlace(c, p.key)
	if len(c) < lockChunk {
		k.chunks[n] = slices.Insert(c, i, p)
		return
	}
	if n == len(k.chunks)-1 && i == len(c) { // keys that rise fill their chunks
		k.chunks = append(k.chunks, append(make([]*lockPoint, 0, lockChunk), p))
		return
	}
	half := len(c) / 2
	right := append(make([]*lockPoint, 0, lockChunk), c[half:]...)
	clear(c[half:])
	c = c[:half]
	if i > half {
		right = slices.Insert(right, i-half, p)
	} else {
		c = slices.Insert(c, i, p)
	}
	k.chunks[n] = c
	k.chunks = slices.Insert(k.chunks, n+1, right)
}

// remove takes a key away.
func (k *lockKeys) remove(key string) {
	if k.n == 0 {
		return
	}
	n := k.chunk(key)
	c := k.chunks[n]
	i, ok := lockPlace(c, key)
	if !ok {
		return
	}
	k.n--
	if c = slices.Delete(c, i, i+1); len(c) > 0 || len(k.chunks) == 1 {
		k.chunks[n] = c
		return
	}
	k.chunks = slices.Delete(k.chunks, n, n+1)
}

// within calls f for the keys at or above low and below high (open: to the end) until it answers false.
func (k *lockKeys) within(low, high string, open bool, f func(*lockPoint) bool) {
	if k.n == 0 {
		return
	}
	n := k.chunk(low)
	i, _ := lockPlace(k.chunks[n], low)
	for ; n < len(k.chunks); n, i = n+1, 0 {
		for _, p := range k.chunks[n][i:] {
			if !open && p.key >= high || !f(p) {
				return
			}
		}
	}
}
