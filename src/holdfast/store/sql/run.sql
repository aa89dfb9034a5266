-- name: begin_run
SELECT pg_catalog.nextval('holdfast.run_id_seq'), pg_catalog.now()

-- name: record_run
SELECT holdfast.record_run(%(id)s, %(started_at)s::timestamptz, %(worker)s, %(runner)s, %(outcome)s, %(counts)s::json, %(error_code)s, %(error)s)

-- name: list_runs
SELECT id, runner, started_at, finished_at, worker_id, outcome, counts::text, error_code, error FROM holdfast.run
ORDER BY started_at DESC LIMIT %(most)s

-- name: list_runs_of
-- Between two places in the index by runner and time. With `runner = …` the planner would walk the index by time alone, past everybody
-- else's runs.
SELECT id, runner, started_at, finished_at, worker_id, outcome, counts::text, error_code, error FROM holdfast.run
WHERE (runner, started_at) >= (%(runner)s::text, '-infinity'::timestamptz)
    AND (runner, started_at) <= (%(the_runner)s::text, 'infinity'::timestamptz)
ORDER BY runner DESC, started_at DESC LIMIT %(most)s

-- name: last_runs
-- The last run of each runner within the last days, found by going from name to name in the index by runner and time.
WITH RECURSIVE names AS (
    (SELECT runner FROM holdfast.run WHERE started_at > now() - %(days)s * interval '1 day' ORDER BY runner LIMIT 1)
    UNION ALL
    SELECT (SELECT r.runner FROM holdfast.run r WHERE r.runner > n.runner AND r.started_at > now() - %(days_again)s * interval '1 day'
            ORDER BY r.runner LIMIT 1)
    FROM names n WHERE n.runner IS NOT NULL)
SELECT last.* FROM names n, LATERAL (
    SELECT id, runner, started_at, finished_at, worker_id, outcome, counts::text, error_code, error FROM holdfast.run r
    WHERE (r.runner, r.started_at) <= (n.runner, 'infinity'::timestamptz)
    ORDER BY r.runner DESC, r.started_at DESC LIMIT 1) AS last
WHERE n.runner IS NOT NULL
LIMIT %(most)s
