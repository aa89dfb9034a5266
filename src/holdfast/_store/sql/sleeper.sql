-- name: record_sleep
INSERT INTO holdfast.sleeper (until, worker_id, queue, kinds)
SELECT now() + interval '10 seconds', %(worker)s, queue, %(kinds)s::text[] FROM unnest(%(queues)s::text[]) AS queue
RETURNING until

-- name: end_sleep
DELETE FROM holdfast.sleeper WHERE worker_id = %(worker)s AND until > now() - interval '1 minute' RETURNING queue

-- name: look_ahead
-- A transaction id of its own: the xmax of a snapshot is only the last one that has ended, and a transaction with a later one may be
-- running.
SELECT pg_catalog.pg_current_xact_id()::text, holdfast.next_due(%(worker)s::bigint, %(queues)s::text[], %(kinds)s::text[])

-- name: others_ended
SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %(xmax)s::text::xid8

-- name: wake_sleepers
SELECT holdfast.wake_sleepers(%(queues)s::text[], %(kinds)s::text[])::text

-- name: watch_chains
INSERT INTO holdfast.watcher (until, chain_id, listener)
SELECT pg_catalog.now() + interval '10 seconds', chain_id, %(listener)s FROM pg_catalog.unnest(%(chains)s::bigint[]) AS chain_id
RETURNING until

-- name: forget_watcher
DELETE FROM holdfast.watcher WHERE listener = %(listener)s AND until > now() RETURNING chain_id

-- name: watch_horizon
-- A transaction id of its own: the xmax of a snapshot is only the last one that has ended, and a transaction with a later one may be
-- running.
SELECT pg_catalog.pg_current_xact_id()::text
