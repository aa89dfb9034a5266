-- name: register_schedules
-- A schedule that was added at run time keeps its name.
INSERT INTO holdfast.schedule (name, what, schedule, declared, job, missed, next_at)
SELECT name, CASE WHEN job IS NULL THEN 'runner' ELSE 'job' END, schedule, concat_ws(' ', schedule, job::text), job, missed,
    CASE WHEN at_start THEN now() END
FROM json_to_recordset(%(given)s::json) AS given (name text, schedule text, job json, missed text, at_start boolean)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET what = EXCLUDED.what, schedule = EXCLUDED.schedule, declared = EXCLUDED.declared, job = EXCLUDED.job,
    missed = EXCLUDED.missed,
    next_at = CASE WHEN schedule.schedule = EXCLUDED.schedule THEN schedule.next_at WHEN schedule.last_at IS NULL THEN EXCLUDED.next_at END
WHERE schedule.declared <> EXCLUDED.declared OR schedule.declared IS NOT NULL AND schedule.missed <> EXCLUDED.missed
RETURNING name

-- name: add_schedule
-- No row: the code declares a schedule of this name. One that keeps its times keeps its next slot, so that none runs twice.
INSERT INTO holdfast.schedule (name, what, schedule, job, missed)
VALUES (%(name)s, 'job', %(schedule)s, %(job)s::text::json, %(missed)s)
ON CONFLICT (name) DO UPDATE SET schedule = EXCLUDED.schedule, job = EXCLUDED.job, missed = EXCLUDED.missed,
    next_at = CASE WHEN schedule.schedule = EXCLUDED.schedule THEN schedule.next_at END
WHERE schedule.declared IS NULL
RETURNING last_at IS NULL AND next_at IS NULL AND xmax = 0

-- name: taken_schedules
SELECT name FROM holdfast.schedule WHERE name = ANY (%(names)s::text[]) AND declared IS NULL

-- name: declare_schedules
UPDATE holdfast.worker SET schedules = %(names)s::text[] WHERE id = %(worker)s RETURNING id

-- part: skipped
missed OPERATOR(pg_catalog.=) 'skip' AND triggered_at IS NULL AND slot_at IS NULL
    AND next_at OPERATOR(pg_catalog.+) '1 minute'::interval OPERATOR(pg_catalog.<) pg_catalog.now()

-- name: look_at_schedule
-- Idle workers send it: with qualified names it needs no transaction behind a pooler.
SELECT schedule, pg_catalog.now(), next_at, {{skipped}}, paused, triggered_at IS NOT NULL, slot_at, locked_until
FROM holdfast.schedule WHERE name OPERATOR(pg_catalog.=) %(name)s::text AND what OPERATOR(pg_catalog.=) 'runner'

-- name: set_next
-- Slots that are skipped, or were set by a clock that was ahead, move as if they had never been set.
UPDATE holdfast.schedule s SET next_at = given.following
FROM unnest(%(names)s::text[], %(seen)s::text[], %(seen_next)s::timestamptz[], %(following)s::timestamptz[])
    AS given (name, seen, seen_next, following)
WHERE s.name = given.name AND s.schedule = given.seen AND s.next_at IS NOT DISTINCT FROM given.seen_next
RETURNING s.name

-- name: claim_slot
SELECT slot_at, started_at, lock_token, attempt, run_id
FROM holdfast.claim_slot(%(name)s, %(worker)s, %(lease_ms)s, %(seen)s, %(seen_next)s::timestamptz, %(following)s::timestamptz)

-- name: renew_slot
UPDATE holdfast.schedule SET locked_until = now() + %(lease_ms)s * interval '1 millisecond'
WHERE name = %(name)s AND lock_token = %(token)s AND locked_by = %(worker)s
RETURNING name

-- name: end_slot
SELECT holdfast.end_slot(%(name)s, %(worker)s, %(token)s, %(again)s, %(outcome)s, %(counts)s::json, %(error_code)s, %(error)s)

-- name: look_at_periodic_jobs
-- Those that this application registered, and those that were added. Idle workers send it: with qualified names it needs no
-- transaction behind a pooler.
SELECT schedule, pg_catalog.now(), next_at, {{skipped}}, name, triggered_at IS NOT NULL OR next_at OPERATOR(pg_catalog.<=) pg_catalog.now()
FROM holdfast.schedule WHERE what OPERATOR(pg_catalog.=) 'job' AND (NOT paused OR triggered_at IS NOT NULL)
    AND (declared IS NULL OR name OPERATOR(pg_catalog.=) ANY (%(names)s::text[]))
ORDER BY triggered_at IS NULL, next_at NULLS FIRST, name LIMIT %(limit)s

-- name: enqueue_slots
-- The slots move on and their jobs are enqueued in one statement: all or none. The payloads are passed on unchanged.
WITH due AS MATERIALIZED (
    SELECT s.name, s.job, least(s.next_at, now()) AS slot, given.following FROM holdfast.schedule s
        JOIN unnest(%(names)s::text[], %(seen)s::text[], %(seen_next)s::timestamptz[], %(following)s::timestamptz[])
            AS given (name, seen, seen_next, following) ON given.name = s.name
    WHERE s.what = 'job' AND s.schedule = given.seen AND s.next_at = given.seen_next
        AND (s.triggered_at IS NOT NULL OR NOT s.paused AND s.next_at <= now())
    ORDER BY s.name FOR UPDATE OF s SKIP LOCKED),
moved AS (
    UPDATE holdfast.schedule s SET last_at = due.slot, triggered_at = NULL,
        next_at = CASE WHEN s.next_at <= now() THEN due.following ELSE s.next_at END
    FROM due WHERE s.name = due.name
    RETURNING due.name, due.job ->> 'kind' AS kind, coalesce(due.job ->> 'queue', 'default') AS queue, CASE WHEN due.job -> 'unique_key' IS NULL
        THEN '{"unique_key":' || to_json('schedule:' || due.name || ':' || to_char(due.slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
            || ',' || substr(ltrim(due.job::text, E' \t\r\n'), 2)
        ELSE due.job::text END AS job)
SELECT enqueued.id, batch.kinds[enqueued.place], batch.queues[enqueued.place], batch.names[enqueued.place], enqueued.created
FROM (SELECT '[' || string_agg(job, ',' ORDER BY name) || ']' AS jobs, array_agg(name ORDER BY name) AS names,
        array_agg(kind ORDER BY name) AS kinds, array_agg(queue ORDER BY name) AS queues FROM moved HAVING count(*) > 0) AS batch,
    LATERAL holdfast.enqueue_jobs(batch.jobs, false) WITH ORDINALITY AS enqueued (id, chain_id, created, place)

-- name: pause_schedule
UPDATE holdfast.schedule SET paused = true, paused_at = CASE WHEN paused THEN paused_at ELSE clock_timestamp() END,
    paused_by = CASE WHEN paused THEN paused_by ELSE coalesce(%(by)s::text, current_user::text) END,
    paused_reason = CASE WHEN paused THEN paused_reason ELSE %(reason)s::text END
WHERE name = %(name)s RETURNING name

-- name: resume_schedule
-- Slots missed during the pause are not run.
UPDATE holdfast.schedule SET paused = false, paused_at = NULL, paused_by = NULL, paused_reason = NULL,
    next_at = CASE WHEN paused THEN NULL ELSE next_at END WHERE name = %(name)s RETURNING name

-- name: trigger_schedule
UPDATE holdfast.schedule SET triggered_at = clock_timestamp() WHERE name = %(name)s RETURNING name

-- name: edit_schedule
UPDATE holdfast.schedule SET schedule = %(schedule)s, next_at = NULL WHERE name = %(name)s RETURNING name

-- name: remove_schedule
DELETE FROM holdfast.schedule WHERE name = %(name)s RETURNING name

-- name: is_schedule_declared
SELECT EXISTS (SELECT FROM holdfast.schedule s JOIN holdfast.worker w ON s.name = ANY (w.schedules)
    WHERE s.name = %(name)s AND s.declared IS NOT NULL AND w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute')

-- name: list_schedules
SELECT s.name, s.what, s.schedule, s.schedule IS DISTINCT FROM split_part(s.declared, ' {', 1), s.paused, s.triggered_at IS NOT NULL, s.next_at,
    s.last_at, s.slot_at, s.started_at, s.attempt, s.locked_by, s.locked_until, s.missed, s.declared IS NULL, EXISTS (
        SELECT FROM holdfast.worker w WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute'
            AND (s.name = ANY (w.schedules) OR s.what = 'job' AND s.declared IS NULL))
FROM holdfast.schedule s ORDER BY s.name LIMIT %(limit)s

-- name: read_scheduled_jobs
SELECT name, job ->> 'kind', CASE WHEN octet_length((job -> 'payload')::text) <= %(largest)s THEN (job -> 'payload')::text END
FROM holdfast.schedule WHERE what = 'job' ORDER BY name LIMIT %(limit)s

-- name: take_singleton
SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(%(key)s, 0))

-- name: keep_singleton
-- For a transaction that stays open and idle as long as the runner runs: no timeout of the server may end it.
SELECT count(set_config(name, '0', true)) FROM pg_catalog.pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')

-- name: start_run
SELECT pg_catalog.nextval('holdfast.run_id_seq'), pg_catalog.now()

-- name: record_run
SELECT holdfast.record_run(%(id)s, %(started_at)s::timestamptz, %(worker)s, %(runner)s, %(outcome)s, %(counts)s::json, %(error_code)s, %(error)s)

-- part: run_columns
id, runner, started_at, finished_at, worker_id, outcome, counts::text, error_code, error

-- name: list_runs
SELECT {{run_columns}} FROM holdfast.run
WHERE finished_at IS NOT NULL
ORDER BY started_at DESC LIMIT %(limit)s

-- name: list_runs_of
-- Between two places in the index by runner and time. With `runner = ...` the planner would scan the index by time alone, through the runs of
-- all other runners.
SELECT {{run_columns}} FROM holdfast.run
WHERE (runner, started_at) >= (%(runner)s::text, '-infinity'::timestamptz)
    AND (runner, started_at) <= (%(runner)s::text, 'infinity'::timestamptz) AND finished_at IS NOT NULL
ORDER BY runner DESC, started_at DESC LIMIT %(limit)s

-- name: last_runs
-- The last run of each runner within the last days, found by going from name to name in the index by runner and time.
WITH RECURSIVE names AS (
    (SELECT runner FROM holdfast.run WHERE started_at > now() - %(days)s * interval '1 day' ORDER BY runner LIMIT 1)
    UNION ALL
    SELECT (SELECT r.runner FROM holdfast.run r WHERE r.runner > n.runner AND r.started_at > now() - %(days)s * interval '1 day'
            ORDER BY r.runner LIMIT 1)
    FROM names n WHERE n.runner IS NOT NULL)
SELECT last.* FROM names n, LATERAL (
    SELECT {{run_columns}} FROM holdfast.run r
    WHERE (r.runner, r.started_at) >= (n.runner, '-infinity'::timestamptz) AND (r.runner, r.started_at) <= (n.runner, 'infinity'::timestamptz)
        AND r.finished_at IS NOT NULL
    ORDER BY r.runner DESC, r.started_at DESC LIMIT 1) AS last
WHERE n.runner IS NOT NULL
LIMIT %(limit)s

-- name: list_running
-- Slots that are held, and ticks without a schedule whose worker is alive. A dead process is left out when the lease of its slot has ended,
-- or a minute after its last heartbeat.
SELECT s.name, s.started_at, s.locked_by, coalesce(w.name, s.locked_by::text)
FROM holdfast.schedule s LEFT JOIN holdfast.worker w ON w.id = s.locked_by
WHERE s.what = 'runner' AND s.locked_until > now() AND w.stopped_at IS NULL
UNION ALL
SELECT r.runner, r.started_at, r.worker_id, w.name FROM holdfast.run r JOIN holdfast.worker w ON w.id = r.worker_id
WHERE r.finished_at IS NULL AND w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute'
    AND NOT EXISTS (SELECT FROM holdfast.schedule s WHERE s.name = r.runner AND s.what = 'runner')
ORDER BY 2 LIMIT %(limit)s

-- name: end_lost_runs
-- Runs whose worker died before it could record how they ended.
WITH lost AS MATERIALIZED (
    SELECT r.id, r.started_at FROM holdfast.run r
    WHERE r.finished_at IS NULL AND r.started_at < now() - interval '1 minute' AND NOT EXISTS (
        SELECT FROM holdfast.worker w WHERE w.id = r.worker_id AND w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute')
        AND NOT EXISTS (SELECT FROM holdfast.schedule s WHERE s.name = r.runner AND s.run_id = r.id AND s.locked_until > now())
    ORDER BY r.started_at LIMIT %(limit)s),
ended AS (
    UPDATE holdfast.run r SET finished_at = clock_timestamp(), outcome = 'lost', error_code = 'lost',
        error = 'its worker sent no heartbeat for a minute, or stopped before the run ended'
    FROM lost WHERE r.id = lost.id AND r.started_at = lost.started_at AND r.finished_at IS NULL
    RETURNING r.id)
SELECT count(*) FROM ended
