-- The speed of a server, for `holdfast capacity --measure`. Nothing here reads or writes a table.

-- name: spend_cpu
-- A fixed amount of computing on one core.
SELECT max(md5(n::text)) FROM generate_series(1, 40000) AS n LIMIT 1

-- name: write_wal
-- A message in the WAL without a reader. Its commit makes it durable.
SELECT pg_logical_emit_message(true, 'holdfast', repeat('x', %(bytes)s::int))::text LIMIT 1
