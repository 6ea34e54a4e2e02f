package sqlplan

import (
	"errors"
	"slices"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/analyzer/analyzererrors"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"

	"github.com/lakesql/lakesql/catalog"
	"github.com/lakesql/lakesql/sqlplan/dialect"
)

// CreateTable makes a table. Indexes, checks and foreign keys follow by calls of their own.
func (d *database) CreateTable(ctx *sql.Context, name string, pk sql.PrimaryKeySchema, collation sql.CollationID, comment string) error {
	return d.create(ctx, name, pk, nil, collation, comment, false)
}

// CreateIndexedTable is CreateTable for a primary key that is declared apart from the columns, maybe with prefixes.
func (d *database) CreateIndexedTable(ctx *sql.Context, name string, pk sql.PrimaryKeySchema, key sql.IndexDef, collation sql.CollationID, comment string) error {
	return d.create(ctx, name, pk, &key, collation, comment, false)
}

// CreateTemporaryTable makes a table that only this session sees and that ends with it.
func (d *database) CreateTemporaryTable(ctx *sql.Context, name string, pk sql.PrimaryKeySchema, collation sql.CollationID) error {
	return d.create(ctx, name, pk, nil, collation, "", true)
}

func (d *database) create(ctx *sql.Context, name string, pk sql.PrimaryKeySchema, key *sql.IndexDef, collation sql.CollationID, comment string, temporary bool) error {
	c, pk, _, err := dialect.TakeCarrier(pk)
	if err != nil {
		return mysqlError(err)
	}
	if c.HasComment && comment == "" {
		comment = c.Comment
	}
	s := sessionOf(ctx)
	if !temporary {
		if _, ok := d.engine.catalog.Table(d.name, name); ok {
			return sql.ErrTableAlreadyExists.New(name)
		}
		if err := s.commitBeforeDDL(ctx); err != nil {
			return err
		}
		if c.Attach {
			return d.attach(ctx, name, c.Location)
		}
		if c.Location != "" {
			return mysql.NewSQLError(mysql.ERNotSupportedYet, stateNotSupported,
				"This version of lakesql doesn't yet support LOCATION with columns; without columns it attaches the table that lies there")
		}
	}
	if pk, err = keyOption(pk, c.Options.Key); err != nil {
		return err
	}
	c.Options.Key = nil
	def, err := newTableDefinition(ctx, pk, firstCollation(collation, d.collation), comment)
	if err != nil {
		return mysqlError(err)
	}
	if key != nil {
		for _, part := range key.Columns {
			for i := range def.PrimaryKey {
				if def.PrimaryKey[i].Column == part.Name {
					def.PrimaryKey[i].Prefix = int(part.Length)
				}
			}
		}
	}
	options := c.Options
	if c.LikeTable != "" {
		if options, err = d.like(ctx, c, def); err != nil {
			return err
		}
	}
	spec, err := newSpec(ctx, def, d.name, name)
	if err != nil {
		return mysqlError(err)
	}
	if err := applyOptions(spec, options); err != nil {
		return err
	}
	if temporary {
		return d.createTemporary(ctx, name, *spec)
	}
	return s.changing(ctx, func(c *change) error {
		if err := c.begin(ctx); err != nil {
			return err
		}
		t, err := d.engine.catalog.CreateDraft(ctx, d.name, name, *spec)
		if errors.Is(err, catalog.ErrExists) {
			return sql.ErrTableAlreadyExists.New(name)
		}
		if err != nil {
			return mysqlError(err)
		}
		p := &pendingTable{catalog: d.engine.catalog, t: t, db: t.Database(), name: t.Name(), draft: true}
		c.tables = append(c.tables, p)
		c.names[tableKey(p.db, p.name)] = p
		return nil
	})
}

// attach takes a table that another engine wrote.
func (d *database) attach(ctx *sql.Context, name, location string) error {
	_, err := d.engine.catalog.AttachTable(ctx, d.name, name, location)
	if errors.Is(err, catalog.ErrExists) {
		return sql.ErrTableAlreadyExists.New(name)
	}
	d.engine.forgetReferences()
	return mysqlError(err)
}

// like takes over options and checks of the table that CREATE TABLE … LIKE names; the front end does the rest.
func (d *database) like(ctx *sql.Context, c dialect.Carrier, def *tableDefinition) (dialect.Options, error) {
	from := d
	if c.LikeDatabase != "" {
		spelled, body, ok := d.engine.catalog.Database(c.LikeDatabase)
		if !ok {
			return dialect.Options{}, sql.ErrDatabaseNotFound.New(c.LikeDatabase)
		}
		p := provider{engine: d.engine}
		var err error
		if from, err = p.database(spelled, body); err != nil {
			return dialect.Options{}, err
		}
	}
	src, err := from.table(ctx, c.LikeTable)
	if err != nil {
		return dialect.Options{}, err
	}
	if src == nil {
		return dialect.Options{}, sql.ErrTableNotFound.New(c.LikeTable)
	}
	return optionsOf(src.def.spec).Merge(c.Options), nil
}

// newSpec makes the catalog's specification of a definition, with default options.
func newSpec(ctx *sql.Context, def *tableDefinition, db, name string) (*catalog.TableSpec, error) {
	pk, err := def.schema(ctx, db, name)
	if err != nil {
		return nil, err
	}
	spec := &catalog.TableSpec{MergeOnRead: true, HiveStyle: true}
	if spec.Schema, err = tableSchema(kept(def, pk.Schema)); err != nil {
		return nil, err
	}
	if err := fillSpec(spec, def, pk); err != nil {
		return nil, err
	}
	return spec, nil
}

// fillSpec sets what of a specification follows from the definition, the table schema aside.
func fillSpec(spec *catalog.TableSpec, def *tableDefinition, pk sql.PrimaryKeySchema) error {
	var err error
	if spec.Key, err = keyColumns(pk.Schema, def.PrimaryKey); err != nil {
		return err
	}
	if spec.Indexes, err = indexSpecs(pk.Schema, def.Indexes); err != nil {
		return err
	}
	spec.AutoIncrement = ""
	if i := slices.IndexFunc(pk.Schema, func(c *sql.Column) bool { return c.AutoIncrement }); i >= 0 {
		spec.AutoIncrement = pk.Schema[i].Name
	}
	spec.Definition, err = def.encode()
	return err
}

// rowBytesMax is MySQL's limit of a row, without what lies outside of it (TEXT, BLOB, JSON).
const rowBytesMax = 65535

// ValidateSchema refuses a table whose rows MySQL would find too long.
func (d *database) ValidateSchema(sch sql.Schema) error {
	var n uint64
	for _, c := range sch {
		switch t := c.Type.(type) {
		case sql.StringType:
			if types.IsTextBlob(t) {
				n += textPointerBytes
				continue
			}
			n += uint64(t.MaxByteLength())
		case types.JsonType:
			n += textPointerBytes
		default:
			n += 8
		}
	}
	if n > rowBytesMax {
		return analyzererrors.ErrInvalidRowLength.New(rowBytesMax, n)
	}
	return nil
}

// textPointerBytes is what a value that lies outside of the row takes in it.
const textPointerBytes = 12
