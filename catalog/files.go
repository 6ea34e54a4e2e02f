package catalog

// FileCounts says what a scan of a table has to read.
type FileCounts struct {
	Slices, Base, Logs int
	BufferedRows       int64 // rows and deletes that are not in files yet
}

// Files counts the newest file slices and what waits in the hot tier.
func (t *Table) Files() FileCounts {
	var n FileCounts
	if cold := t.c.cold(t.id); cold != nil {
		for _, fs := range cold.newest() {
			n.Slices++
			if fs.Base != nil {
				n.Base++
			}
			n.Logs += len(fs.Logs)
		}
	}
	t.c.commitMu.Lock()
	defer t.c.commitMu.Unlock()
	n.BufferedRows = t.buf.rows
	return n
}
