package storage

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// statBytesMax is the longest minimum or maximum of a row group that goes into the footer.
const statBytesMax = 128

// decimalBounds are the least and the greatest value of a decimal column.
type decimalBounds struct {
	any      bool
	min, max decimal128.Num
}

func (b *decimalBounds) add(v decimal128.Num) {
	if !b.any {
		b.any, b.min, b.max = true, v, v
		return
	}
	if v.Less(b.min) {
		b.min = v
	}
	if b.max.Less(v) {
		b.max = v
	}
}

// baseSink passes on what the parquet library writes. With hold it keeps the end of the file, so that finish can correct the footer.
type baseSink struct {
	out     *bufio.Writer
	written int64
	sum     uint32 // CRC-32C of what was written
	hold    bool
	held    []byte
}

func (s *baseSink) Write(b []byte) (int, error) {
	if s.hold {
		s.held = append(s.held, b...)
		return len(b), nil
	}
	s.sum = crc32.Update(s.sum, castagnoli, b) // before the writer may change the buffer; a short write ends the file
	n, err := s.out.Write(b)
	s.written += int64(n)
	return n, err
}

// finish writes what was held with a footer as Hudi's writer makes it, by which readers can prune. The library orders decimals as unsigned bytes,
// where readers expect the order of numbers: their bounds are replaced and their column index, which has them by page, is
// no longer referred to. Long texts are dropped from the bounds.
func (s *baseSink) finish(columns []baseColumn, groups [][]decimalBounds) error {
	const tail = 8 // length, magic
	at := len(s.held) - tail
	if at < 0 {
		return errors.New("the footer is missing")
	}
	at -= int(binary.LittleEndian.Uint32(s.held[len(s.held)-tail:]))
	if at < 0 {
		return errors.New("the footer is cut")
	}
	var meta format.FileMetaData
	protocol := new(thrift.CompactProtocol)
	if err := thrift.Unmarshal(protocol, s.held[at:len(s.held)-tail], &meta); err != nil {
		return fmt.Errorf("reading back the footer: %w", err)
	}
	if len(meta.RowGroups) != len(groups) {
		return fmt.Errorf("%d row groups in the footer, %d were written", len(meta.RowGroups), len(groups))
	}
	if len(meta.Schema) != len(columns)+1 {
		return fmt.Errorf("%d elements in the footer's schema for %d columns", len(meta.Schema), len(columns))
	}
	for i := range columns {
		if t := columns[i].field.Type; t.Avro == "" && (t.Kind == Int32 || t.Kind == Int64) {
			// The library marks plain numbers as INT(32,true) and INT(64,true), Hudi does not.
			meta.Schema[i+1].LogicalType = format.LogicalType{}
			meta.Schema[i+1].ConvertedType = thrift.Null[deprecated.ConvertedType]{}
		}
	}
	for g := range meta.RowGroups {
		for i := range meta.RowGroups[g].Columns {
			chunk := &meta.RowGroups[g].Columns[i]
			st := &chunk.MetaData.Statistics
			st.Min, st.Max = nil, nil
			if columns[i].field.Type.Kind == Decimal {
				chunk.ColumnIndexOffset, chunk.ColumnIndexLength = 0, 0
				st.MinValue, st.MaxValue = nil, nil
				if b := groups[g][i]; b.any {
					width := max(columns[i].leaf.width, decimalWidth(columns[i].field.Type.Precision))
					st.MinValue, _ = appendDecimal(nil, b.min, width)
					st.MaxValue, _ = appendDecimal(nil, b.max, width)
				}
			}
			if len(st.MinValue) > statBytesMax || len(st.MaxValue) > statBytesMax {
				st.MinValue, st.MaxValue = nil, nil
			}
		}
	}
	footer, err := thrift.Marshal(protocol, &meta)
	if err != nil {
		return fmt.Errorf("writing the footer: %w", err)
	}
	out := append(s.held[:at:at], footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	out = append(out, "PAR1"...)
	s.hold, s.held = false, nil
	if _, err := s.Write(out); err != nil {
		return err
	}
	return s.out.Flush()
}
