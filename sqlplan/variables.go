package sqlplan

import (
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// optimizerSwitch is the value that @@optimizer_switch begins with. Dump and diagnosis programs set parts of it and expect
// no more than that it can be set; the planner has no such switches.
const optimizerSwitch = "index_merge=on,index_merge_union=on,index_merge_sort_union=on,index_merge_intersection=on,engine_condition_pushdown=on," +
	"index_condition_pushdown=on,mrr=on,mrr_cost_based=on,block_nested_loop=on,batched_key_access=off,materialization=on,semijoin=on," +
	"loosescan=on,firstmatch=on,duplicateweedout=on,subquery_materialization_cost_based=on,use_index_extensions=on," +
	"condition_fanout_filter=on,derived_merge=on,use_invisible_indexes=off,skip_scan=on,hash_join=on,subquery_to_derived=off," +
	"prefer_ordering_index=on,hypergraph_optimizer=off,derived_condition_pushdown=on"

// missingVariables are system variables of MySQL that programs read or set when they connect and that the front end does
// not know.
func missingVariables() []sql.SystemVariable {
	text := func(name, value string, dynamic bool) sql.SystemVariable {
		return &sql.MysqlSystemVariable{
			Name: name, Scope: sql.GetMysqlScope(sql.SystemVariableScope_Both), Dynamic: dynamic,
			Type: types.NewSystemStringType(name), Default: value,
		}
	}
	global := func(name, value string) sql.SystemVariable {
		return &sql.MysqlSystemVariable{
			Name: name, Scope: sql.GetMysqlScope(sql.SystemVariableScope_Global),
			Type: types.NewSystemStringType(name), Default: value,
		}
	}
	flag := func(name string, value int8, scope sql.MysqlSVScopeType) sql.SystemVariable {
		return &sql.MysqlSystemVariable{
			Name: name, Scope: sql.GetMysqlScope(scope), Dynamic: true,
			Type: types.NewSystemBoolType(name), Default: value,
		}
	}
	return []sql.SystemVariable{
		text("optimizer_switch", optimizerSwitch, true),
		global("have_ssl", "DISABLED"),
		global("have_openssl", "DISABLED"),
		global("have_geometry", "YES"),
		global("have_compress", "NO"),
		global("have_profiling", "NO"),
		global("have_query_cache", "NO"),
		global("have_rtree_keys", "NO"),
		global("have_statement_timeout", "YES"),
		global("have_symlink", "DISABLED"),
		global("authentication_policy", "*,,"),
		global("innodb_version", "8.0.44"),
		flag("profiling", 0, sql.SystemVariableScope_Both),
		flag("innodb_file_per_table", 1, sql.SystemVariableScope_Global),
		flag("innodb_read_only", 0, sql.SystemVariableScope_Global),
		flag("innodb_strict_mode", 1, sql.SystemVariableScope_Both),
		&sql.MysqlSystemVariable{
			Name: "innodb_flush_log_at_trx_commit", Scope: sql.GetMysqlScope(sql.SystemVariableScope_Global),
			Type: types.NewSystemIntType("innodb_flush_log_at_trx_commit", 1, 1, false), Default: int64(1),
		},
	}
}

// addMissing adds the variables of a list that the front end does not have.
func addMissing(list []sql.SystemVariable) {
	var add []sql.SystemVariable
	for _, v := range list {
		if _, _, known := sql.SystemVariables.GetGlobal(v.GetName()); !known {
			add = append(add, v)
		}
	}
	sql.SystemVariables.AddSystemVariables(add)
}
