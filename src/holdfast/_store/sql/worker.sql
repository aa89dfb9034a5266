-- name: register_worker
SELECT holdfast.register_worker(%(name)s, %(host)s, %(pid)s, %(version)s, %(queues)s::text[], %(kinds)s::text[],
    %(identity)s::uuid, %(versions)s::json, %(limits)s::json, %(settings)s::json, %(app_version)s)

-- name: served_version
-- The newest payload of a kind that a live worker takes.
SELECT max((w.versions ->> %(kind)s::text)::integer) FROM holdfast.worker w
WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute' AND w.versions IS NOT NULL

-- name: served_runtime
-- How long live workers let a job of this kind and queue run, and whether that is the default of three leases.
SELECT max(coalesce((l.own ->> 'max_runtime')::bigint, 3 * coalesce(q.lease_ms, (l.own ->> 'lease')::bigint))), bool_and(l.own ->> 'max_runtime' IS NULL)
FROM holdfast.worker w CROSS JOIN LATERAL (SELECT w.limits -> %(kind)s::text AS own) AS l
    LEFT JOIN holdfast.queue q ON q.name = %(queue)s::text
WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute' AND l.own IS NOT NULL

-- name: live_settings
-- The settings of all live workers in one: null where they differ.
SELECT s.name, CASE WHEN min(s.value) = max(s.value) AND count(s.value) = count(*) THEN min(s.value) END
FROM holdfast.worker w CROSS JOIN LATERAL (
    SELECT e.key AS name, e.value::bigint AS value FROM json_each_text(w.settings) AS e) AS s
WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute' AND w.settings IS NOT NULL
GROUP BY s.name LIMIT 100

-- name: stop_worker
UPDATE holdfast.worker SET stopped_at = clock_timestamp(), stop_reason = %(reason)s,
    counters = coalesce(%(counters)s::json, counters)
WHERE id = %(worker)s AND identity = coalesce(%(identity)s::uuid, identity) AND stopped_at IS NULL RETURNING id

-- name: isolate_worker
SELECT holdfast.isolate_worker(%(worker)s, %(ms)s)

-- name: ensure_partitions
SELECT holdfast.ensure_partitions(%(ahead)s)

-- name: partition_lockers
-- Sessions whose locks may prevent the creation of partitions, the longest transaction first.
SELECT a.pid, a.usename::text FROM pg_catalog.pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND EXISTS (
    SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation
    WHERE l.pid = a.pid AND l.granted AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
        AND c.relnamespace = 'holdfast'::regnamespace AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))
ORDER BY a.xact_start LIMIT 5

-- name: beat_worker
-- Never waits: a locked row is left as it is. Returns whether the row is this worker's own, the control table, and its place among the live
-- workers of the same kinds, which take turns. A worker is live here until its last heartbeat is `ms` milliseconds old. One that was taken
-- for dead, see reap_jobs, lives again.
WITH own AS MATERIALIZED (
    SELECT w.id, w.kinds, w.heartbeat_at FROM holdfast.worker w, (SELECT %(identity)s::uuid AS identity) AS mine
    WHERE w.id = %(worker)s AND w.identity = coalesce(mine.identity, w.identity)),
beat AS (
    UPDATE holdfast.worker SET heartbeat_at = clock_timestamp(), counters = %(counters)s::json, report = %(report)s::json,
        stop_reason = CASE WHEN stopped_at IS NOT NULL THEN stop_reason END
    WHERE id = (SELECT w.id FROM holdfast.worker w WHERE w.id = (SELECT own.id FROM own) FOR UPDATE SKIP LOCKED) RETURNING id),
live AS MATERIALIZED (
    SELECT w.id, w.kinds FROM holdfast.worker w
    WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - %(ms)s * interval '1 millisecond' LIMIT 1000)
SELECT EXISTS (SELECT FROM own), (SELECT count(*) FROM live, own WHERE live.kinds = own.kinds AND live.id < own.id),
    (SELECT count(*) FROM live, own WHERE live.kinds = own.kinds AND live.id <> own.id) + 1,
    extract(epoch FROM clock_timestamp())::double precision,
    (SELECT json_agg(json_build_array(q.name, q.paused, q.concurrency, q.lease_ms, q.rate))::text
     FROM (SELECT * FROM holdfast.queue ORDER BY name LIMIT 1000) AS q),
    (SELECT holdfast.note_set_back(own.heartbeat_at)::text FROM own WHERE own.heartbeat_at > now() + interval '2 minutes')

-- name: read_queues
SELECT name, paused, concurrency, lease_ms, rate FROM holdfast.queue ORDER BY name LIMIT 1000

-- name: identify_database
SELECT (SELECT system_identifier FROM pg_control_system())::text || '-' || oid FROM pg_database WHERE datname = current_database()

-- name: read_identity
SELECT id FROM holdfast.identity LIMIT 1

-- name: list_workers
-- Workers that have not stopped, the latest heartbeat first, then the latest of all. Silent: after one and a half of its intervals and two
-- seconds, or of an unknown interval a minute, so well before its leases end.
SELECT w.id, w.name, w.host, w.pid, w.version, CASE WHEN w.stopped_at IS NOT NULL THEN 'stopped'
        WHEN w.heartbeat_at > now() - coalesce(1.5 * (w.settings ->> 'heartbeat_ms')::integer + 2000, 60000) * interval '1 millisecond'
            THEN 'live' ELSE 'silent' END AS state,
    w.started_at, w.heartbeat_at, w.reaped_at, w.stopped_at, w.stop_reason, w.queues, w.kinds, w.counters::text, w.app_version
FROM (SELECT id FROM (SELECT id FROM holdfast.worker WHERE stopped_at IS NULL ORDER BY heartbeat_at DESC LIMIT %(limit)s) AS live
      UNION SELECT id FROM (SELECT id FROM holdfast.worker ORDER BY id DESC LIMIT %(latest)s) AS latest) AS chosen
    JOIN holdfast.worker w USING (id)
ORDER BY w.stopped_at IS NOT NULL, w.heartbeat_at DESC LIMIT %(limit)s

-- name: is_queue_known
-- A worker's row is kept for days after its end. Of jobs, those of the last census count, and one that came since.
SELECT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = %(name)s)
    OR EXISTS (SELECT FROM (SELECT w.queues FROM holdfast.worker w ORDER BY w.id DESC LIMIT 1000) AS w WHERE %(name)s::text = ANY (w.queues))
    OR EXISTS (SELECT FROM holdfast.job j WHERE j.status = 'pending' AND j.later IS NULL AND j.queue = %(name)s LIMIT 1)
    OR EXISTS (SELECT FROM (SELECT c.lines FROM holdfast.census c ORDER BY c.at DESC LIMIT 1) AS c, json_array_elements(c.lines -> 'waiting') AS e
        WHERE e.value ->> 'queue' = %(name)s)

-- name: set_queue
INSERT INTO holdfast.queue AS q (name, concurrency, lease_ms, rate) VALUES (%(name)s, %(concurrency)s, %(lease_ms)s, %(rate)s)
ON CONFLICT (name) DO UPDATE SET concurrency = EXCLUDED.concurrency, lease_ms = EXCLUDED.lease_ms, rate = EXCLUDED.rate,
    updated_at = clock_timestamp()
RETURNING name

-- name: pause_queue
-- No row: it was paused already.
INSERT INTO holdfast.queue AS q (name, paused, paused_at, paused_by, paused_reason)
VALUES (%(name)s, true, clock_timestamp(), coalesce(%(by)s::text, current_user::text), %(reason)s::text)
ON CONFLICT (name) DO UPDATE SET paused = true, paused_at = EXCLUDED.paused_at, paused_by = EXCLUDED.paused_by, paused_reason = EXCLUDED.paused_reason,
    updated_at = clock_timestamp() WHERE NOT q.paused
RETURNING name

-- name: resume_queue
UPDATE holdfast.queue SET paused = false, paused_at = NULL, paused_by = NULL, paused_reason = NULL, updated_at = clock_timestamp() WHERE name = %(name)s AND paused RETURNING name
