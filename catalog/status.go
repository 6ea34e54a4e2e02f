package catalog

// Status is what a warehouse holds at this moment, in numbers: everything that has a bound, and what was counted since Open.
type Status map[string]int64

// Status gives the present numbers. Names say what is counted; those that end in _bytes are bytes, in _limit the bound of another one.
func (c *Catalog) Status() Status {
	m := &c.metrics
	s := Status{
		"commits": m.CommitsTotal.Load(), "conflicts": m.ConflictsTotal.Load(), "flushes": m.FlushesTotal.Load(),
		"adoptions": m.AdoptionsTotal.Load(), "late_rows": m.LateRowsTotal.Load(),
		"flushes_overtaken": m.OvertakenTotal.Load(), "table_locks_lost": m.LocksLostTotal.Load(),
		"writes_refused": m.FullTotal.Load(), "disk_full": m.DiskFullTotal.Load(),
		"hot_bytes": c.hotBytes.Load(), "hot_bytes_limit": c.o.HotBytesMax,
		"transaction_bytes": c.txBytes.Load(), "transaction_bytes_limit": c.o.TxBytesMax, "transaction_rows_spilled": m.SpilledTotal.Load(),
		"journal_bytes_limit": c.o.JournalBytes,
		"runs_bytes":          c.runBytes.Load(), "runs_bytes_limit": allRunBytes,
		"row_locks": m.LocksHeld.Load(), "row_locks_limit": locksMax, "row_locks_refused": m.LocksRefusedTotal.Load(),
		"row_lock_escalations": m.LockEscalationsTotal.Load(), "row_lock_waits": m.LockWaitsTotal.Load(), "deadlocks": m.DeadlocksTotal.Load(),
		"transactions": int64(len(c.Transactions())),
		"snapshots":    int64(c.pins.count()),
		"kept_bytes":   m.KeptBytes.Load(), "kept_bytes_limit": c.o.KeptBytes,
	}
	var rows, waiting, journal int64
	tables := c.tablesByID()
	c.commitMu.Lock()
	for _, t := range tables {
		rows += t.buf.rows
		if t.buf.cause != nil {
			waiting++
		}
	}
	c.commitMu.Unlock()
	for _, t := range tables {
		if cold := c.cold(t.id); cold != nil {
			for _, o := range cold.own {
				if o.cut > cold.trimmed {
					journal += o.bytes
				}
			}
		}
	}
	s["tables"], s["hot_rows"], s["flushes_failing"], s["journal_flushed_bytes"] = int64(len(tables)), rows, waiting, journal
	c.disk.mu.Lock()
	s["ballast_bytes"] = c.disk.ballast
	c.disk.mu.Unlock()
	if free := c.disk.free.Load(); free>>50 == 0 {
		s["disk_free_bytes"] = free
	}
	r := &c.reader.Metrics
	s["reader_cache_bytes"], s["reader_cache_bytes_limit"] = r.CacheBytes.Load(), c.o.CacheBytes
	s["reader_cache_evictions"] = r.Evictions.Load()
	s["base_files_opened"], s["base_files_hits"] = r.BaseOpens.Load(), r.BaseHits.Load()
	s["log_merges"], s["log_merge_hits"] = r.Merges.Load(), r.MergeHits.Load()
	p := c.db.Metrics()
	s["state_cache_bytes"] = p.BlockCache.Size
	s["state_memtable_bytes"] = int64(p.MemTable.Size)
	s["state_memtables"], s["state_memtables_limit"] = p.MemTable.Count, memTablesMax
	s["state_wal_bytes"] = int64(p.WAL.Size)
	s["state_disk_bytes"] = int64(p.DiskSpaceUsage())
	s["state_open_files_limit"] = stateFilesMax
	s["state_compaction_debt_bytes"] = int64(p.Compact.EstimatedDebt)
	return s
}

func (p *pins) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}
