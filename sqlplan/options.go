package sqlplan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/vitess/go/mysql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
	"github.com/lakesql/lakesql/storage"
	"github.com/lakesql/lakesql/timeline"
)

// Options that the catalog keeps as text.
const (
	optionMinBytes = "bin.min_bytes"
	optionMaxBytes = "bin.max_bytes"
	optionMaxAge   = "bin.max_age"
)

func errOption(format string, args ...any) error {
	return mysql.NewSQLError(erWrongArguments, stateGeneral, format, args...)
}

func errKeyType(c *sql.Column) error {
	return mysql.NewSQLError(mysql.ERNotSupportedYet, stateNotSupported, "Column '%s' of type %s cannot stand in a key", c.Name, c.Type)
}

func errReservedColumn(name string) error {
	return mysql.NewSQLError(erWrongColumnName, "42000", "Incorrect column name '%s': it is one of the meta columns that every table has", name)
}

func errNoColumns() error {
	return mysql.NewSQLError(erNoColumns, "42000", "A table must have at least one visible column")
}

const (
	erWrongColumnName = 1166
	erNoColumns       = 4028
)

// applyOptions lays table options over a specification whose schema and key are set. Column names are given the spelling of
// the schema.
func applyOptions(spec *catalog.TableSpec, o dialect.Options) error {
	column := func(option, name string) (string, error) {
		i := fieldIndex(spec.Schema, name)
		if i < 0 {
			return "", errOption("Table option '%s' names column '%s', which the table does not have", option, name)
		}
		return spec.Schema.Fields[i].Name, nil
	}
	spec.MergeOnRead = o.Type != "cow"
	spec.HiveStyle = o.HiveStyle == nil || *o.HiveStyle
	spec.PerPartition = o.Global != nil && !*o.Global
	spec.Partition = nil
	for _, name := range o.Partition {
		c, err := column("partition", name)
		if err != nil {
			return err
		}
		spec.Partition = append(spec.Partition, c)
	}
	if spec.PerPartition && len(spec.Partition) == 0 {
		return errOption("Table option 'global' is false, but the table has no partition columns")
	}
	if len(o.Ordering) > 1 {
		return mysql.NewSQLError(mysql.ERNotSupportedYet, stateNotSupported, "This version of lakesql doesn't yet support more than one ordering column")
	}
	mode := o.MergeMode
	if mode == "" {
		mode = "commit_time"
		if len(o.Ordering) > 0 {
			mode = "event_time"
		}
	}
	spec.Ordering, spec.OrderingField = storage.CommitTime, ""
	if len(o.Ordering) > 0 {
		c, err := column("ordering", o.Ordering[0])
		if err != nil {
			return err
		}
		spec.OrderingField = c
	}
	if mode == "event_time" {
		if spec.OrderingField == "" {
			return errOption("Table option 'merge_mode' is event_time, but no 'ordering' column is named")
		}
		if len(spec.Key) == 0 {
			return errOption("Table option 'merge_mode' is event_time, but the table has no key")
		}
		spec.Ordering = storage.EventTime
	}
	if v, ok := o.Hoodie[timeline.KeyMetadataEnable]; ok && !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
		return errOption("Table option '%s' is '%s', which is neither true nor false", timeline.KeyMetadataEnable, v)
	}
	spec.Options = maps.Clone(o.Hoodie)
	put := func(name, value string) {
		if spec.Options == nil {
			spec.Options = map[string]string{}
		}
		spec.Options[name] = value
	}
	if o.MinBytes > 0 {
		put(optionMinBytes, strconv.FormatInt(o.MinBytes, 10))
	}
	if o.MaxBytes > 0 {
		put(optionMaxBytes, strconv.FormatInt(o.MaxBytes, 10))
	}
	if o.MaxAge > 0 {
		put(optionMaxAge, o.MaxAge.String())
	}
	return nil
}

// optionsOf gives the options that make this specification, without the ones that are defaults.
func optionsOf(spec *catalog.TableSpec) dialect.Options {
	var o dialect.Options
	if !spec.MergeOnRead {
		o.Type = "cow"
	}
	if len(spec.Partition) > 0 {
		o.Partition = slices.Clone(spec.Partition)
		if !spec.HiveStyle {
			o.HiveStyle = new(bool)
		}
	}
	if spec.PerPartition {
		o.Global = new(bool)
	}
	if spec.OrderingField != "" {
		o.Ordering = []string{spec.OrderingField}
		if spec.Ordering == storage.CommitTime {
			o.MergeMode = "commit_time"
		}
	}
	for name, value := range spec.Options {
		switch name {
		case optionMinBytes:
			o.MinBytes, _ = strconv.ParseInt(value, 10, 64)
		case optionMaxBytes:
			o.MaxBytes, _ = strconv.ParseInt(value, 10, 64)
		case optionMaxAge:
			o.MaxAge, _ = time.ParseDuration(value)
		default:
			if o.Hoodie == nil {
				o.Hoodie = map[string]string{}
			}
			o.Hoodie[name] = value
		}
	}
	return o
}

// optionsJSON is what SHOW CREATE TABLE prints of the options, "" if all are the defaults.
func (t *table) optionsJSON() string {
	o := optionsOf(t.def.spec)
	if o.Empty() {
		return ""
	}
	return o.Marshal()
}

// keyOption makes the option 'key' the primary key of a table that has none; one that it has it may not contradict.
func keyOption(pk sql.PrimaryKeySchema, key []string) (sql.PrimaryKeySchema, error) {
	if key == nil {
		return pk, nil
	}
	if have := keyOrdinals(pk); len(have) > 0 {
		names := make([]string, len(have))
		for i, n := range have {
			names[i] = pk.Schema[n].Name
		}
		if !slices.EqualFunc(names, key, strings.EqualFold) {
			return pk, errOption("Table option 'key' (%s) contradicts the PRIMARY KEY (%s)", strings.Join(key, ", "), strings.Join(names, ", "))
		}
		return pk, nil
	}
	sch := pk.Schema.Copy()
	ordinals := make([]int, len(key))
	for i, name := range key {
		n := slices.IndexFunc(sch, func(c *sql.Column) bool { return strings.EqualFold(c.Name, name) })
		if n < 0 {
			return pk, errOption("Table option 'key' names column '%s', which the table does not have", name)
		}
		sch[n].PrimaryKey, sch[n].Nullable = true, false
		ordinals[i] = n
	}
	return sql.NewPrimaryKeySchema(sch, ordinals...), nil
}

// setOptions changes the options of a table for real, by ALTER TABLE.
func (t *ownTable) setOptions(ctx *sql.Context, o dialect.Options) error {
	if o.Key != nil {
		names := make([]string, len(t.def.table.PrimaryKey))
		for i, p := range t.def.table.PrimaryKey {
			names[i] = p.Column
		}
		if !slices.EqualFunc(names, o.Key, strings.EqualFold) {
			return errOption("Table option 'key' (%s) contradicts the PRIMARY KEY (%s)", strings.Join(o.Key, ", "), strings.Join(names, ", "))
		}
		o.Key = nil
	}
	spec := *t.def.spec
	if err := applyOptions(&spec, optionsOf(t.def.spec).Merge(o)); err != nil {
		return err
	}
	return t.alterSpec(ctx, spec, nil)
}

// identity is the column map of an alteration that leaves the columns alone.
func identity(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// firstNonZero is cmp.Or for collations.
func firstCollation(list ...sql.CollationID) sql.CollationID { return cmp.Or(list...) }

func errMetaWrite(name string) error {
	return mysql.NewSQLError(erGeneratedValue, stateGeneral, "The value of meta column '%s' is Hudi's: it cannot be written", name)
}

func errMetaSelf(table string) error {
	return mysql.NewSQLError(mysql.ERNotSupportedYet, stateNotSupported,
		"This version of lakesql doesn't yet support INSERT INTO '%s' with meta columns of the same table", table)
}

// erGeneratedValue is MySQL's number for a value given to a generated column.
const erGeneratedValue = 3105
