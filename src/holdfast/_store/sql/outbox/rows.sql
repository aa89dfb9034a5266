-- Statements on a table of the user's. A word in << >> stands for a quoted name or a type, both read from the catalog, or for a part below.
-- Values are parameters.

-- name: count_rows
SELECT r.<<type>>::text, count(*) FROM <<table>> AS r
WHERE NOT EXISTS (SELECT FROM holdfast.imported i WHERE i.source = %(source)s AND i.row_id = r.<<id>>::text)<<conditions>>
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(limit)s

-- name: read_rows
SELECT r.<<id>>::text, r.<<type>>::text, <<payload>>, <<key>>::text, <<due>>::timestamptz::text, <<created>>::text FROM <<table>> AS r
WHERE (%(types)s::text[] IS NULL OR r.<<type>>::text = ANY (%(types)s::text[]))<<conditions>><<after>>
ORDER BY <<order>> LIMIT %(limit)s

-- name: lock_rows
-- The old worker cannot take these rows meanwhile. A row that it has taken is skipped, and read again once it is free.
<<read_rows>> FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: mark_rows
-- Runs with the search_path of the user, because triggers of the table may need it.
UPDATE <<table>> AS r SET <<assignments>> WHERE r.<<id>> OPERATOR(pg_catalog.=) ANY (%(ids)s::text[]::<<id_type>>[]) RETURNING 1

-- name: delete_rows
DELETE FROM <<table>> AS r WHERE r.<<id>> OPERATOR(pg_catalog.=) ANY (%(ids)s::text[]::<<id_type>>[]) RETURNING 1

-- name: equals
 AND r.<<column>>::text = ANY (%(<<param>>)s::text[])

-- name: is_null
 AND r.<<column>> IS NULL

-- name: after_id
 AND r.<<id>> > %(after_id)s::text::<<id_type>>

-- name: after_created
 AND (<<created>>, r.<<id>>) > (%(after_created)s::text::<<created_type>>, %(after_id)s::text::<<id_type>>)

-- name: created_or_first
coalesce(r.<<column>>, '-infinity')

-- name: assigned
<<column>> = %(<<param>>)s::text::<<column_type>>
