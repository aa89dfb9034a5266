-- Importing rows of other tables: their columns, and the record of imported rows. The statements on the other table are in outbox/.

-- name: list_columns
SELECT a.attname, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, NULL), a.attnotnull,
    EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
        AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = %(schema)s AND c.relname = %(table)s AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum LIMIT 1600

-- name: list_tables
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'holdfast')
ORDER BY 1 LIMIT 1000

-- name: imported_rows
SELECT row_id FROM holdfast.imported WHERE source = %(source)s AND row_id = ANY (%(ids)s::text[])

-- name: record_imports
-- Returns the rows that no other import has recorded. A second import waits here for the end of the first.
INSERT INTO holdfast.imported (source, row_id)
SELECT %(source)s, g.id FROM unnest(%(ids)s::text[]) WITH ORDINALITY AS g (id, place) ORDER BY g.place
ON CONFLICT DO NOTHING RETURNING row_id

-- name: read_path
SELECT pg_catalog.current_setting('search_path')
