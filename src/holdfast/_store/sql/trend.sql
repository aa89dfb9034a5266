-- The backlog and the work of each worker, for charts of the past.

-- name: keep_census
-- The last count as a row of past_census, and thins the older ones out: see there.
WITH kept AS (
    INSERT INTO holdfast.past_census (minute, waiting, workers)
    SELECT date_trunc('minute', c.at), coalesce((
            SELECT json_agg(json_build_object('queue', l.queue, 'kind', l.kind, 'due', l.due, 'processing', l.processing, 'oldest', l.oldest))
            FROM (SELECT w.queue, w.kind, sum(w.due) AS due, sum(w.processing) AS processing,
                      greatest(extract(epoch FROM c.at - min(w.oldest_due_at)), 0) AS oldest
                  FROM (SELECT * FROM json_to_recordset(c.lines -> 'waiting') AS e (queue text, kind text, due bigint, processing bigint, oldest_due_at timestamptz)
                        UNION ALL
                        SELECT p.queue, p.kind, 0, p.processing, NULL FROM json_to_recordset(c.lines -> 'processing') AS p (queue text, kind text, processing bigint)) AS w
                  GROUP BY w.queue, w.kind ORDER BY sum(coalesce(w.due, 0) + coalesce(w.processing, 0)) DESC LIMIT 500) AS l), '[]'),
        coalesce((SELECT json_agg(json_build_object('id', w.id, 'name', w.name, 'completed', w.counters -> 'job_completed', 'failed', w.counters -> 'job_failed',
                'retried', w.counters -> 'job_retried'))
            FROM (SELECT * FROM holdfast.worker o WHERE o.stopped_at IS NULL AND o.heartbeat_at > now() - interval '1 minute'
                  ORDER BY o.heartbeat_at DESC LIMIT 200) AS w), '[]')
    FROM (SELECT * FROM holdfast.census ORDER BY at DESC LIMIT 1) AS c
    ON CONFLICT DO NOTHING RETURNING minute),
thinned AS (
    DELETE FROM holdfast.past_census WHERE minute = ANY (ARRAY(
        SELECT p.minute FROM holdfast.past_census p
        WHERE p.minute < now() - interval '8 days' OR p.minute > now() + interval '1 hour'
            OR p.minute <> date_bin(CASE WHEN p.minute < now() - interval '26 hours' THEN interval '1 hour'
                WHEN p.minute < now() - interval '7 hours' THEN interval '15 minutes'
                WHEN p.minute < now() - interval '2 hours' THEN interval '5 minutes' ELSE interval '1 minute' END, p.minute, '2000-01-01Z')
        LIMIT %(limit)s))
    RETURNING minute)
SELECT (SELECT count(*) FROM kept) + (SELECT count(*) FROM thinned)

-- name: read_steps
-- The beginnings of so many steps up to now, as read_tallies has them.
SELECT g.at FROM (SELECT %(seconds)s * interval '1 second' AS step) AS s,
    LATERAL generate_series(date_bin(s.step, now(), '2000-01-01Z') - (%(steps)s - 1) * s.step, now(), s.step) AS g (at) ORDER BY g.at LIMIT %(steps)s

-- name: read_backlog
-- The most that waited and ran at one count of each step, by queue, with `kinds` by kind too.
SELECT c.at, c.queue, c.kind, max(c.due)::bigint, max(c.processing)::bigint, max(c.oldest)::double precision
FROM (SELECT date_bin(%(seconds)s * interval '1 second', p.minute, '2000-01-01Z') AS at, p.minute, l.queue, CASE WHEN %(kinds)s::boolean THEN l.kind END AS kind,
          sum(l.due) AS due, sum(l.processing) AS processing, max(l.oldest) AS oldest
      FROM (SELECT * FROM holdfast.past_census o WHERE o.minute >= %(since)s::timestamptz ORDER BY o.minute LIMIT 600) AS p,
          json_to_recordset(p.waiting) AS l (queue text, kind text, due bigint, processing bigint, oldest double precision)
      WHERE (%(queue)s::text IS NULL OR l.queue = %(queue)s::text) AND (%(kind)s::text IS NULL OR l.kind = %(kind)s::text)
      GROUP BY 1, 2, 3, 4) AS c
GROUP BY c.at, c.queue, c.kind LIMIT %(limit)s

-- name: read_counted_steps
-- In which of these steps was counted what waits.
SELECT DISTINCT date_bin(%(seconds)s * interval '1 second', p.minute, '2000-01-01Z') FROM holdfast.past_census p
WHERE p.minute >= %(since)s::timestamptz LIMIT 600

-- name: read_worker_totals
-- The totals of each worker at its last count in each step, oldest first.
SELECT DISTINCT ON (at, l.id) date_bin(%(seconds)s * interval '1 second', p.minute, '2000-01-01Z') AS at, l.id, l.name, coalesce(l.completed, 0),
    coalesce(l.failed, 0), coalesce(l.retried, 0)
FROM (SELECT * FROM holdfast.past_census o WHERE o.minute >= %(since)s::timestamptz ORDER BY o.minute LIMIT 600) AS p,
    json_to_recordset(p.workers) AS l (id bigint, name text, completed bigint, failed bigint, retried bigint)
ORDER BY at, l.id, p.minute DESC LIMIT %(limit)s

-- name: list_versions
-- Versions of the application that began within this time, with when their first worker started. Of the newest 10,000 workers.
SELECT v.app_version, v.first FROM (
    SELECT w.app_version, min(w.started_at) AS first
    FROM (SELECT * FROM holdfast.worker o ORDER BY o.id DESC LIMIT 10000) AS w WHERE w.app_version IS NOT NULL GROUP BY w.app_version) AS v
WHERE v.first >= %(since)s::timestamptz ORDER BY v.first DESC LIMIT 20
