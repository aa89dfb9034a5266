-- Searches. Each scans a bounded number of jobs, newest first, whatever its filter is, and returns how far it scanned: so no job pays for
-- an index that only searches need, and no search can delay the jobs. The next scan begins where this one ended. Each of the three tables
-- is scanned alone, in one snapshot, and the results are merged by id: one view over all three would scan as fast, but live jobs have no
-- day by which a found row is read again. The scan keeps only ids, and only the rows that are shown are read again. Payloads are not
-- searched here: a redacted value must not be found, and only the application knows which values those are.

-- name: follow_ids
-- Before a search, in its transaction. A day that has just begun has no statistics, nor has a table whose jobs came after it was last
-- analyzed. PostgreSQL then estimates any range of ids as a two-hundredth of the table, and would collect and sort all of it, where an
-- index scan ends after a few hundred rows.
SELECT pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true)

-- name: begin_search
-- As limit_time and follow_ids together, on a caller's connection, for the transaction. It returns what was set before, for end_search. A shorter
-- timeout of the caller's stays.
WITH before AS MATERIALIZED (
    SELECT pg_catalog.current_setting('enable_seqscan') AS seqscan, pg_catalog.current_setting('enable_bitmapscan') AS bitmapscan,
        pg_catalog.current_setting('statement_timeout') AS timeout, pg_catalog.current_setting('plan_cache_mode') AS plans, pg_catalog.current_setting('search_path') AS path)
SELECT b.seqscan, b.bitmapscan, b.timeout, b.path, b.plans, pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true), pg_catalog.set_config('enable_seqscan', 'off', true),
    pg_catalog.set_config('enable_bitmapscan', 'off', true),
    pg_catalog.set_config('statement_timeout', CASE WHEN b.timeout OPERATOR(pg_catalog.=) '0' OR b.timeout::interval
        OPERATOR(pg_catalog.>) %(timeout)s::text::interval THEN %(timeout)s::text ELSE b.timeout END, true),
    pg_catalog.set_config('search_path', %(path)s::text, true)
FROM before b

-- name: end_search
SELECT pg_catalog.set_config('enable_seqscan', %(seqscan)s, true), pg_catalog.set_config('enable_bitmapscan', %(bitmapscan)s, true),
    pg_catalog.set_config('statement_timeout', %(timeout)s, true), pg_catalog.set_config('search_path', %(path)s, true),
    pg_catalog.set_config('plan_cache_mode', %(plans)s, true)

-- part: live_columns
j.id, j.status::text, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.created_at, j.available_at,
    NULL::timestamptz, j.locked_by, j.order_key, j.unique_key, j.last_error_code, coalesce(j.first_due_at, j.available_at), j.claimed_at,
    holdfast.with_before(holdfast.waited(j.available_at, j.claimed_at), j.waited_ms), j.ran_ms, coalesce(j.tags::text[], '{}')

-- part: ended_columns
j.id, j.status::text, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.created_at, j.available_at,
    j.finished_at, j.worker_id, j.order_key, j.unique_key, j.last_error_code, coalesce(j.first_due_at, j.available_at), NULL::timestamptz,
    j.waited_ms, j.ran_ms, coalesce(j.tags::text[], '{}')

-- part: matches
(%(status)s::holdfast.status IS NULL OR j.status = %(status)s::holdfast.status)
    AND (%(kind)s::text IS NULL OR j.kind = %(kind)s::text) AND (%(queue)s::text IS NULL OR j.queue = %(queue)s::text)
    AND (%(order_key)s::text IS NULL OR j.order_key = %(order_key)s::text)
    AND (%(unique_key)s::text IS NULL OR j.unique_key = %(unique_key)s::text)
    AND (%(error_code)s::text IS NULL OR j.last_error_code = %(error_code)s::text)
    AND (%(tag)s::text IS NULL OR %(tag)s::text = ANY (j.tags))
    AND j.created_at >= (SELECT %(created_from)s::text::timestamptz) AND j.created_at < (SELECT %(created_until)s::text::timestamptz)

-- name: search_live_jobs
WITH scanned AS MATERIALIZED (
    SELECT count(*) AS jobs, min(l.id) AS least, min(l.created_at) AS back_to, array_agg(l.id) FILTER (WHERE l.found) AS ids
    FROM (SELECT j.id, j.created_at,
              {{matches}}
                 AND (NOT %(first)s::boolean OR j.chain_id IS NULL AND (j.awaited OR j.blockers_left IS NOT NULL) IS TRUE) AS found
          FROM holdfast.job j
          WHERE j.id < %(before)s::bigint AND j.id >= %(least)s::bigint AND (%(tag)s::text IS NULL OR j.tags IS NOT NULL)
          ORDER BY j.id DESC LIMIT %(scan)s) AS l)
SELECT r.jobs, r.least, r.back_to, coalesce(cardinality(r.ids), 0), {{live_columns}}
FROM scanned r LEFT JOIN LATERAL (SELECT * FROM unnest(r.ids) AS g (id) LIMIT %(limit)s) AS h ON true
    LEFT JOIN LATERAL (SELECT * FROM holdfast.job j WHERE j.id = h.id LIMIT 1) AS j ON true
ORDER BY j.id DESC NULLS LAST LIMIT %(limit)s

-- name: search_ended_jobs
WITH scanned AS MATERIALIZED (
    SELECT count(*) AS jobs, min(l.id) AS least, min(l.created_at) AS back_to, array_agg(l.id) FILTER (WHERE l.found) AS ids,
        array_agg(l.finished_at) FILTER (WHERE l.found) AS times
    FROM (SELECT j.id, j.created_at, j.finished_at,
              {{matches}}
                 AND (NOT %(first)s::boolean OR j.chain_id IS NULL AND j.next_id IS NOT NULL) AS found
          FROM holdfast.job_history j
          WHERE j.id < %(before)s::bigint AND j.id >= %(least)s::bigint AND (%(tag)s::text IS NULL OR j.tags IS NOT NULL) AND j.finished_at >= (SELECT %(kept_from)s::text::timestamptz)
          ORDER BY j.id DESC LIMIT %(scan)s) AS l)
SELECT r.jobs, r.least, r.back_to, coalesce(cardinality(r.ids), 0), {{ended_columns}}
FROM scanned r LEFT JOIN LATERAL (SELECT * FROM unnest(r.ids, r.times) AS g (id, finished_at) LIMIT %(limit)s) AS h ON true
    LEFT JOIN LATERAL (SELECT * FROM holdfast.job_history j WHERE j.id = h.id AND j.finished_at = h.finished_at LIMIT 1) AS j ON true
ORDER BY j.id DESC NULLS LAST LIMIT %(limit)s

-- name: search_failed_jobs
WITH scanned AS MATERIALIZED (
    SELECT count(*) AS jobs, min(l.id) AS least, min(l.created_at) AS back_to, array_agg(l.id) FILTER (WHERE l.found) AS ids,
        array_agg(l.finished_at) FILTER (WHERE l.found) AS times
    FROM (SELECT j.id, j.created_at, j.finished_at,
              {{matches}}
                 AND (NOT %(first)s::boolean OR j.chain_id IS NULL AND j.blockers IS NOT NULL)
                 AND (%(replayed)s::boolean OR NOT EXISTS (SELECT FROM holdfast.replay r WHERE r.job_id = j.id)) AS found
          FROM holdfast.job_failed j
          WHERE j.id < %(before)s::bigint AND j.id >= %(least)s::bigint AND (%(tag)s::text IS NULL OR j.tags IS NOT NULL) AND j.finished_at >= (SELECT %(kept_from)s::text::timestamptz)
          ORDER BY j.id DESC LIMIT %(scan)s) AS l)
SELECT r.jobs, r.least, r.back_to, coalesce(cardinality(r.ids), 0), {{ended_columns}}
FROM scanned r LEFT JOIN LATERAL (SELECT * FROM unnest(r.ids, r.times) AS g (id, finished_at) LIMIT %(limit)s) AS h ON true
    LEFT JOIN LATERAL (SELECT * FROM holdfast.job_failed j WHERE j.id = h.id AND j.finished_at = h.finished_at LIMIT 1) AS j ON true
ORDER BY j.id DESC NULLS LAST LIMIT %(limit)s

-- name: read_payloads
-- The payloads of these jobs, each from the table and the day that has it. A payload that is too large is not searched.
SELECT g.id, CASE WHEN octet_length(p.payload::text) <= %(largest)s THEN p.payload::text END
FROM unnest(%(ids)s::text::bigint[], %(ended)s::text::timestamptz[]) AS g (id, ended), LATERAL (
    SELECT j.payload FROM holdfast.job j WHERE g.ended IS NULL AND j.id = g.id
    UNION ALL SELECT j.payload FROM holdfast.job_history j WHERE j.id = g.id AND j.finished_at = g.ended
    UNION ALL SELECT j.payload FROM holdfast.job_failed j WHERE j.id = g.id AND j.finished_at = g.ended LIMIT 1) AS p
LIMIT %(limit)s

-- name: read_landmarks
-- The ids between which jobs created within these times lie. An id may be drawn long after its transaction began, and created_at is the
-- time of the transaction.
SELECT coalesce((SELECT last_id FROM holdfast.landmark WHERE at <= %(created_from)s::text::timestamptz ORDER BY at DESC LIMIT 1), 0),
    coalesce((SELECT last_id + 1 FROM holdfast.landmark WHERE at >= %(created_until)s::text::timestamptz + interval '1 hour' ORDER BY at LIMIT 1),
        9223372036854775807)

-- name: group_dead_letters
-- Those that are not replayed. The versions are those of the application that ran their last attempts, the latest first.
-- Of a dismissed group only if a job of it has failed since, unless all are asked for.
WITH scanned AS MATERIALIZED (
    SELECT f.* FROM (
        SELECT j.id, j.created_at, j.finished_at, j.worker_id, j.kind, j.queue, j.last_error_code, j.last_error FROM holdfast.job_failed j
        WHERE j.id < %(before)s::bigint AND j.id >= %(least)s::bigint AND j.finished_at >= %(kept_from)s::text::timestamptz
        ORDER BY j.id DESC LIMIT %(scan)s) AS f),
reach AS (SELECT count(*) AS jobs, min(created_at) AS back_to FROM scanned),
by_worker AS MATERIALIZED (
    SELECT l.kind, l.queue, coalesce(l.last_error_code, '') AS error_code, l.worker_id, count(*) AS jobs, min(l.finished_at) AS first_at,
        max(l.finished_at) AS last_at, max(l.id) AS newest
    FROM scanned l
    WHERE (%(kind)s::text IS NULL OR l.kind = %(kind)s::text) AND (%(queue)s::text IS NULL OR l.queue = %(queue)s::text)
      AND l.created_at >= %(created_from)s::text::timestamptz AND l.created_at < %(created_until)s::text::timestamptz
      AND NOT EXISTS (SELECT FROM holdfast.replay r WHERE r.job_id = l.id)
    GROUP BY l.kind, l.queue, coalesce(l.last_error_code, ''), l.worker_id),
groups AS (
    SELECT o.kind, o.queue, o.error_code, sum(o.jobs)::bigint AS jobs, min(o.first_at) AS first_at, max(o.last_at) AS last_at, max(o.newest) AS newest
    FROM by_worker o GROUP BY o.kind, o.queue, o.error_code
    HAVING %(dismissed)s::boolean OR NOT EXISTS (SELECT FROM holdfast.dismissal d
        WHERE d.kind = o.kind AND d.queue = o.queue AND d.error_code = o.error_code AND d.last_at >= max(o.last_at))
    ORDER BY sum(o.jobs) DESC, max(o.newest) DESC LIMIT %(limit)s)
SELECT r.jobs, r.back_to, g.kind, g.queue, g.error_code, l.last_error, g.jobs, g.first_at, g.last_at, g.newest, d.who, d.dismissed_at,
    (SELECT json_agg(json_build_array(v.app_version, v.jobs, v.first_at, v.last_at) ORDER BY v.first_at DESC)::text FROM (
        SELECT w.app_version, sum(o.jobs) AS jobs, min(o.first_at) AS first_at, max(o.last_at) AS last_at
        FROM by_worker o JOIN holdfast.worker w ON w.id = o.worker_id
        WHERE o.kind = g.kind AND o.queue = g.queue AND o.error_code = g.error_code AND w.app_version IS NOT NULL
        GROUP BY w.app_version ORDER BY min(o.first_at) DESC LIMIT 10) AS v)
FROM reach r LEFT JOIN (groups g JOIN scanned l ON l.id = g.newest
        LEFT JOIN holdfast.dismissal d ON d.kind = g.kind AND d.queue = g.queue AND d.error_code = g.error_code AND d.last_at >= g.last_at) ON true
ORDER BY g.jobs DESC NULLS LAST, g.newest DESC LIMIT %(limit)s

-- name: dismiss_group
INSERT INTO holdfast.dismissal AS d (kind, queue, error_code, last_at, who)
VALUES (%(kind)s, %(queue)s, %(error_code)s, %(last_at)s::text::timestamptz, %(who)s)
ON CONFLICT (kind, queue, error_code) DO UPDATE SET last_at = greatest(d.last_at, excluded.last_at), dismissed_at = excluded.dismissed_at,
    who = excluded.who
RETURNING d.kind

-- name: restore_group
DELETE FROM holdfast.dismissal WHERE kind = %(kind)s AND queue = %(queue)s AND error_code = %(error_code)s RETURNING kind

-- name: read_last_error
-- Of the latest dead letters, the one that ended last: ids are drawn in another order than jobs end.
SELECT coalesce(f.last_error, f.last_error_code), f.finished_at
FROM (SELECT j.last_error, j.last_error_code, j.finished_at FROM holdfast.job_failed j ORDER BY j.id DESC LIMIT 100) AS f
ORDER BY f.finished_at DESC LIMIT 1

-- name: find_named_jobs
-- In whichever table they are.
SELECT f.* FROM unnest(%(ids)s::text::bigint[]) AS g (id), LATERAL (
    SELECT {{live_columns}}
    FROM holdfast.job j WHERE j.id = g.id
    UNION ALL SELECT {{ended_columns}}
    FROM holdfast.job_failed j WHERE j.id = g.id
    UNION ALL SELECT {{ended_columns}}
    FROM holdfast.job_history j WHERE j.id = g.id LIMIT 1) AS f
LIMIT %(limit)s

-- name: read_clock
SELECT now()

-- name: last_of_chains
-- The last job of each of these chains.
SELECT c.id, last.id, last.kind, last.status::text, last.finished_at
FROM unnest(%(chains)s::text::bigint[]) AS c (id), LATERAL (
    SELECT found.* FROM (
        (SELECT j.id, j.kind, j.status, NULL::timestamptz AS finished_at FROM holdfast.job j WHERE j.id = c.id)
        UNION ALL (SELECT h.id, h.kind, h.status, h.finished_at FROM holdfast.job_history h WHERE h.id = c.id LIMIT 1)
        UNION ALL (SELECT f.id, f.kind, f.status, f.finished_at FROM holdfast.job_failed f WHERE f.id = c.id LIMIT 1)
        UNION ALL (SELECT j.id, j.kind, j.status, NULL FROM holdfast.job j WHERE j.chain_id = c.id ORDER BY j.id DESC LIMIT 1)
        UNION ALL (SELECT h.id, h.kind, h.status, h.finished_at FROM holdfast.job_history h WHERE h.chain_id = c.id ORDER BY h.id DESC LIMIT 1)
        UNION ALL (SELECT f.id, f.kind, f.status, f.finished_at FROM holdfast.job_failed f WHERE f.chain_id = c.id ORDER BY f.id DESC LIMIT 1)
    ) AS found ORDER BY found.id DESC LIMIT 1) AS last
LIMIT 1000

-- name: list_blocked
-- The live jobs that wait for this chain.
SELECT coalesce(j.chain_id, j.id), {{live_columns}}
FROM (SELECT b.job_id FROM holdfast.blocker b WHERE b.chain_id = %(chain)s AND b.status IS NULL
      UNION SELECT w.id FROM holdfast.job m JOIN holdfast.job w ON w.id = m.group_id AND w.blockers_left > 0
      WHERE m.id = %(chain)s AND m.chain_id IS NULL OR m.chain_id = %(chain)s) AS b
    JOIN holdfast.job j ON j.id = b.job_id
ORDER BY b.job_id LIMIT %(limit)s

-- name: act_on_jobs
SELECT id, done, answer
FROM holdfast.act_on_jobs(%(action)s, %(ids)s::text::bigint[], %(ended)s::text::timestamptz[], %(due)s::text::timestamptz, %(again)s)
