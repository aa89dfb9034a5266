-- name: register_worker
SELECT holdfast.register_worker(%(name)s, %(host)s, %(pid)s, %(version)s, %(queues)s::text[], %(kinds)s::text[])

-- name: stop_worker
UPDATE holdfast.worker SET stopped_at = clock_timestamp(), stop_reason = %(reason)s WHERE id = %(worker)s AND stopped_at IS NULL RETURNING id

-- name: ensure_partitions
SELECT holdfast.ensure_partitions(%(ahead)s)
