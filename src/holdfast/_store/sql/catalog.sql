-- The catalog of PostgreSQL: columns, keys and references of the application's tables. Names are qualified, since the connection may be the
-- application's. A table is given as SQL writes it, quoted.

-- name: read_types
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = pg_catalog.to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum LIMIT 1600

-- name: read_archived_table
SELECT pg_catalog.obj_description(c.oid, 'pg_class'), pg_catalog.pg_get_partkeydef(c.oid)
FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass(%(table)s)

-- name: list_references
SELECT cn.nspname || '.' || c.relname, pn.nspname || '.' || p.relname FROM pg_catalog.pg_constraint f
JOIN pg_catalog.pg_class c ON c.oid = f.conrelid JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace
JOIN pg_catalog.pg_class p ON p.oid = f.confrelid JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
WHERE f.contype = 'f' AND f.conparentid = 0 LIMIT 10000

-- name: references_to
SELECT n.nspname::text, c.relname::text,
    ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(f.conkey) WITH ORDINALITY AS k (num, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.num ORDER BY k.place),
    ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(f.confkey) WITH ORDINALITY AS k (num, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.num ORDER BY k.place)
FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE f.contype = 'f' AND f.conparentid = 0 AND f.confrelid = pg_catalog.to_regclass(%(table)s) LIMIT 1000

-- name: read_primary_key
SELECT a.attname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = pg_catalog.to_regclass(%(table)s) AND i.indisprimary AND i.indnkeyatts = 1
    AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)

-- name: is_read_by_place
SELECT c.relkind = 'r' AND NOT c.relhassubclass AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = %(at)s)
FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass(%(table)s)

-- name: table_exists
SELECT pg_catalog.to_regclass(%(table)s) IS NOT NULL

-- name: schema_exists
SELECT pg_catalog.to_regnamespace(%(schema)s) IS NOT NULL

-- name: proven_type
--- The text itself, if it is the name of its type in the catalog, with modifiers of words and numbers at most. That `to_regtype` finds a type
--- is not enough: it passes over comments. It raises an error of syntax for text that is no type.
SELECT x.text FROM (SELECT %(text)s::text AS text, pg_catalog.to_regtype(%(text)s) AS type) AS x
WHERE ARRAY[pg_catalog.format_type(x.type, -1), pg_catalog.format_type(x.type, NULL)] && ARRAY[x.text, pg_catalog.regexp_replace(
    pg_catalog.regexp_replace(x.text, '\(-?[A-Za-z0-9_]+(,-?[A-Za-z0-9_]+)*\)(?=[^()]*$)', ''),
    '^interval (year|month|day|hour|minute|second)( to (month|hour|minute|second))?(?=(\[\])?$)', 'interval')]
