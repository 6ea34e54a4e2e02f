package storage

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumChunk is how much of a file Sum reads at a time, in bytes.
const sumChunk = 1 << 20

// Sum reads an object and gives its CRC-32C and its size in bytes.
func Sum(ctx context.Context, s Store, name string) (sum uint32, size int64, err error) {
	o, err := s.Open(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	defer o.Close()
	size = o.Size()
	buf := make([]byte, min(sumChunk, size))
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return 0, 0, context.Cause(ctx)
		}
		n, err := o.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		sum = crc32.Update(sum, castagnoli, buf[:n])
		at += int64(n)
		if err != nil && (err != io.EOF || at < size) {
			return 0, 0, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return sum, size, nil
}
