-- The reasons why jobs or events wait, for operators. Each part is bounded; the whole is read every two seconds for all who watch.

-- name: read_signals
-- In one answer: what workers report, what is paused and by whom, order keys that a dead letter stopped, and how many jobs were due at an
-- earlier census, by queue.
SELECT json_build_object(
    'reports', (SELECT json_agg(json_build_array(r.name, r.heartbeat_at, r.report)) FROM (
        SELECT w.name, w.heartbeat_at, w.report FROM holdfast.worker w
        WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute' AND w.report IS NOT NULL
        ORDER BY w.heartbeat_at DESC LIMIT 200) AS r),
    'pauses', (SELECT json_agg(json_build_array(p.what, p.name, p.paused_at, p.paused_by, p.paused_reason)) FROM (
        (SELECT 'queue' AS what, q.name, q.paused_at, q.paused_by, q.paused_reason FROM holdfast.queue q WHERE q.paused ORDER BY q.name LIMIT 100)
        UNION ALL
        (SELECT 'schedule', s.name, s.paused_at, s.paused_by, s.paused_reason FROM holdfast.schedule s WHERE s.paused ORDER BY s.name LIMIT 100)
        UNION ALL
        (SELECT 'relay', u.name, u.paused_at, u.paused_by, u.paused_reason FROM holdfast.subscription u WHERE u.paused ORDER BY u.name LIMIT 100)) AS p),
    'stops', (SELECT json_agg(json_build_array(s.order_key, s.job_id, s.stopped_at, f.kind, f.last_error_code, s.waiting) ORDER BY s.stopped_at) FROM (
        SELECT o.*, (SELECT count(*) FROM (SELECT FROM holdfast.job j WHERE j.order_key = o.order_key LIMIT 1000) AS few) AS waiting
        FROM (SELECT * FROM holdfast.order_stop LIMIT 1000) AS o ORDER BY o.stopped_at LIMIT 20) AS s
        LEFT JOIN LATERAL (
            SELECT d.kind, d.last_error_code FROM holdfast.job_failed d
            WHERE d.id = s.job_id AND d.finished_at BETWEEN s.stopped_at - interval '1 hour' AND s.stopped_at + interval '1 hour' LIMIT 1) AS f ON true),
    'earlier', (SELECT json_build_array(c.at, (
            SELECT json_object_agg(l.queue, l.due) FROM (
                SELECT e.value ->> 'queue' AS queue, sum((e.value ->> 'due')::bigint) AS due FROM json_array_elements(c.lines -> 'waiting') AS e GROUP BY 1) AS l))
        FROM holdfast.census c WHERE c.at < now() - %(earlier_ms)s * interval '1 millisecond' ORDER BY c.at DESC LIMIT 1))::text

-- name: read_lockers
-- Sessions that keep others from a table of this schema, the longest first. Of a session of another user, its own age may be hidden: then it
-- is the longest wait for it. Vacuum and the statements of the application are not among them.
SELECT l.pid, a.usename::text, nullif(a.application_name, ''), c.relname::text, extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, w.since))::double precision,
    w.waiting
FROM pg_catalog.pg_locks l
    JOIN pg_catalog.pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p') AND c.relnamespace = 'holdfast'::regnamespace
    JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
    CROSS JOIN LATERAL (SELECT min(o.waitstart) AS since, count(*) AS waiting FROM pg_catalog.pg_locks o
        WHERE o.relation = l.relation AND o.database = l.database AND NOT o.granted) AS w
WHERE l.granted AND l.pid <> pg_backend_pid() AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
    AND coalesce(a.xact_start, w.since) IS NOT NULL
ORDER BY 5 DESC LIMIT 5

-- name: count_held
-- How many jobs each of these workers holds, of the first 20,000 that run.
SELECT h.locked_by, count(*) FROM (SELECT j.locked_by FROM holdfast.job j WHERE j.status = 'processing' LIMIT 20000) AS h
WHERE h.locked_by = ANY (%(workers)s::bigint[]) GROUP BY h.locked_by LIMIT 500

-- name: read_recent_ends
-- By kind, the attempts that ended within the last `minutes`, and within the last of these alone.
SELECT queue, kind, outcome::text, sum(jobs)::bigint, coalesce(sum(jobs) FILTER (WHERE minute >= date_trunc('minute', now()) - interval '1 minute'), 0)::bigint
FROM holdfast.tally WHERE minute >= date_trunc('minute', now()) - (%(minutes)s - 1) * interval '1 minute'
GROUP BY queue, kind, outcome LIMIT %(limit)s
