-- name: begin_run
SELECT pg_catalog.nextval('holdfast.run_id_seq'), pg_catalog.now()

-- name: record_run
SELECT holdfast.record_run(%(id)s, %(started_at)s::timestamptz, %(worker)s, %(runner)s, %(outcome)s, %(counts)s::json, %(error_code)s, %(error)s)

-- name: list_runs
SELECT id, runner, started_at, finished_at, worker_id, outcome, counts::text, error_code, error FROM holdfast.run
WHERE finished_at IS NOT NULL
ORDER BY started_at DESC LIMIT %(most)s

-- name: list_runs_of
-- Between two places in the index by runner and time. With `runner = …` the planner would walk the index by time alone, past everybody
-- else's runs.
SELECT id, runner, started_at, finished_at, worker_id, outcome, counts::text, error_code, error FROM holdfast.run
WHERE (runner, started_at) >= (%(runner)s::text, '-infinity'::timestamptz)
    AND (runner, started_at) <= (%(runner)s::text, 'infinity'::timestamptz) AND finished_at IS NOT NULL
ORDER BY runner DESC, started_at DESC LIMIT %(most)s

-- name: last_runs
-- The last run of each runner within the last days, found by going from name to name in the index by runner and time.
WITH RECURSIVE names AS (
    (SELECT runner FROM holdfast.run WHERE started_at > now() - %(days)s * interval '1 day' ORDER BY runner LIMIT 1)
    UNION ALL
    SELECT (SELECT r.runner FROM holdfast.run r WHERE r.runner > n.runner AND r.started_at > now() - %(days)s * interval '1 day'
            ORDER BY r.runner LIMIT 1)
    FROM names n WHERE n.runner IS NOT NULL)
SELECT last.* FROM names n, LATERAL (
    SELECT id, runner, started_at, finished_at, worker_id, outcome, counts::text, error_code, error FROM holdfast.run r
    WHERE (r.runner, r.started_at) >= (n.runner, '-infinity'::timestamptz) AND (r.runner, r.started_at) <= (n.runner, 'infinity'::timestamptz)
        AND r.finished_at IS NOT NULL
    ORDER BY r.runner DESC, r.started_at DESC LIMIT 1) AS last
WHERE n.runner IS NOT NULL
LIMIT %(most)s

-- name: list_running
-- Slots that somebody holds, and ticks without a schedule whose worker is alive. A process that died is no longer here when the lease of
-- its slot has ended, or a minute after its last heartbeat.
SELECT s.name, s.started_at, s.locked_by FROM holdfast.schedule s
WHERE s.what = 'runner' AND s.locked_until > now()
    AND NOT EXISTS (SELECT FROM holdfast.worker w WHERE w.id = s.locked_by AND w.stopped_at IS NOT NULL)
UNION ALL
SELECT r.runner, r.started_at, r.worker_id FROM holdfast.run r JOIN holdfast.worker w ON w.id = r.worker_id
WHERE r.finished_at IS NULL AND w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute'
ORDER BY 2 LIMIT %(most)s

-- name: end_lost_runs
-- Runs whose worker died before it could write how they ended.
WITH lost AS MATERIALIZED (
    SELECT r.id, r.started_at FROM holdfast.run r
    WHERE r.finished_at IS NULL AND r.started_at < now() - interval '1 minute' AND NOT EXISTS (
        SELECT FROM holdfast.worker w WHERE w.id = r.worker_id AND w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute')
    ORDER BY r.started_at LIMIT %(most)s),
ended AS (
    UPDATE holdfast.run r SET finished_at = clock_timestamp(), outcome = 'lost', error_code = 'lost',
        error = 'its worker was not heard of for a minute, or stopped before the run ended'
    FROM lost WHERE r.id = lost.id AND r.started_at = lost.started_at AND r.finished_at IS NULL
    RETURNING r.id)
SELECT count(*) FROM ended
