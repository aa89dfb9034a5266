-- name: register_worker
SELECT holdfast.register_worker(%(name)s, %(host)s, %(pid)s, %(version)s, %(queues)s::text[], %(kinds)s::text[],
    %(identity)s::uuid, %(versions)s::json, %(limits)s::json)

-- name: served_version
-- The newest payload of a kind that a live worker takes.
SELECT max((w.versions ->> %(kind)s::text)::integer) FROM holdfast.worker w
WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute' AND w.versions IS NOT NULL

-- name: served_runtime
-- For how long live workers let a job of this kind and queue run, and whether that is the default of three leases.
SELECT max(coalesce((l.own ->> 'max_runtime')::bigint, 3 * coalesce(q.lease_ms, (l.own ->> 'lease')::bigint))), bool_and(l.own ->> 'max_runtime' IS NULL)
FROM holdfast.worker w CROSS JOIN LATERAL (SELECT w.limits -> %(kind)s::text AS own) AS l
    LEFT JOIN holdfast.queue q ON q.name = %(queue)s::text
WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute' AND l.own IS NOT NULL

-- name: stop_worker
UPDATE holdfast.worker SET stopped_at = clock_timestamp(), stop_reason = %(reason)s,
    counters = coalesce(%(counters)s::json, counters)
WHERE id = %(worker)s AND identity = coalesce(%(identity)s::uuid, identity) AND stopped_at IS NULL RETURNING id

-- name: isolate_worker
SELECT holdfast.isolate_worker(%(worker)s, %(ms)s)

-- name: ensure_partitions
SELECT holdfast.ensure_partitions(%(ahead)s)

-- name: beat_worker
-- Never waits: a row that somebody has locked is left as it is. Answers whether the row is this worker's own.
WITH own AS MATERIALIZED (
    SELECT w.id FROM holdfast.worker w, (SELECT %(identity)s::uuid AS identity) AS mine
    WHERE w.id = %(worker)s AND w.identity = coalesce(mine.identity, w.identity)),
beat AS (
    UPDATE holdfast.worker SET heartbeat_at = clock_timestamp(), counters = %(counters)s::json
    WHERE id = (SELECT w.id FROM holdfast.worker w WHERE w.id = (SELECT own.id FROM own) FOR UPDATE SKIP LOCKED) RETURNING id)
SELECT EXISTS (SELECT FROM own)

-- name: read_queues
SELECT name, paused, concurrency, lease_ms, rate FROM holdfast.queue ORDER BY name LIMIT 1000

-- name: reaped
-- Never waits for the row, and answers the time of the pass. Written when the last time is long ago: each costs a transaction id.
WITH told AS (
    UPDATE holdfast.worker SET reaped_at = now()
    WHERE id = (SELECT w.id FROM holdfast.worker w WHERE w.id = %(worker)s
        AND coalesce(w.reaped_at < now() - %(ms)s * interval '1 millisecond', true) FOR UPDATE SKIP LOCKED) RETURNING id)
SELECT now()
