-- Workers and queues, for people.

-- name: list_workers
-- Those that have not stopped, the last heard of first, then the latest of all. Live: heard of within a minute.
SELECT w.id, w.name, w.host, w.pid, w.version, CASE WHEN w.stopped_at IS NOT NULL THEN 'stopped'
        WHEN w.heartbeat_at > now() - interval '1 minute' THEN 'live' ELSE 'silent' END AS state,
    w.started_at, w.heartbeat_at, w.reaped_at, w.stopped_at, w.stop_reason, w.queues, w.kinds, w.counters::text
FROM (SELECT id FROM (SELECT id FROM holdfast.worker WHERE stopped_at IS NULL ORDER BY heartbeat_at DESC LIMIT %(most)s) AS live
      UNION SELECT id FROM (SELECT id FROM holdfast.worker ORDER BY id DESC LIMIT %(latest)s) AS latest) AS chosen
    JOIN holdfast.worker w USING (id)
ORDER BY w.stopped_at IS NOT NULL, w.heartbeat_at DESC LIMIT %(most)s

-- name: set_queue
INSERT INTO holdfast.queue AS q (name, concurrency, lease_ms, rate) VALUES (%(name)s, %(concurrency)s, %(lease_ms)s, %(rate)s)
ON CONFLICT (name) DO UPDATE SET concurrency = EXCLUDED.concurrency, lease_ms = EXCLUDED.lease_ms, rate = EXCLUDED.rate,
    updated_at = clock_timestamp()
RETURNING name

-- name: pause_queue
INSERT INTO holdfast.queue AS q (name, paused) VALUES (%(name)s, %(paused)s)
ON CONFLICT (name) DO UPDATE SET paused = EXCLUDED.paused, updated_at = clock_timestamp()
RETURNING name
