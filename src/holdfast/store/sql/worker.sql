-- name: register_worker
SELECT holdfast.register_worker(%(name)s, %(host)s, %(pid)s, %(version)s, %(queues)s::text[], %(kinds)s::text[])

-- name: stop_worker
UPDATE holdfast.worker SET stopped_at = clock_timestamp(), stop_reason = %(reason)s WHERE id = %(worker)s AND stopped_at IS NULL RETURNING id

-- name: ensure_partitions
SELECT holdfast.ensure_partitions(%(ahead)s)

-- name: beat_worker
-- Never waits: a row that somebody has locked is left as it is.
UPDATE holdfast.worker SET heartbeat_at = clock_timestamp(), counters = %(counters)s::json
WHERE id = (SELECT w.id FROM holdfast.worker w WHERE w.id = %(worker)s FOR UPDATE SKIP LOCKED) RETURNING id

-- name: read_queues
SELECT name, paused, concurrency, lease_ms, rate FROM holdfast.queue ORDER BY name LIMIT 1000

-- name: reaped
-- Never waits for the row, and answers the time of the pass.
WITH told AS (
    UPDATE holdfast.worker SET reaped_at = now()
    WHERE id = (SELECT w.id FROM holdfast.worker w WHERE w.id = %(worker)s FOR UPDATE SKIP LOCKED) RETURNING id)
SELECT now()
