-- name: watch_chains
INSERT INTO holdfast.watcher (until, chain_id, listener)
SELECT pg_catalog.now() + interval '10 seconds', chain_id, %(listener)s FROM pg_catalog.unnest(%(chains)s::bigint[]) AS chain_id
RETURNING until

-- name: forget_watcher
DELETE FROM holdfast.watcher WHERE listener = %(listener)s AND until > now() RETURNING chain_id

-- name: watch_horizon
-- A number of its own: the xmax of a snapshot is only the last one that has ended, and somebody with a later one may be under way.
SELECT pg_catalog.pg_current_xact_id()::text
