-- Statements for operators. Each has a LIMIT and runs after limit_time, in the same transaction, so that no request, however broad, can
-- delay the jobs. The history has an index on id and none on the filtered columns, so a search for a rare kind may take all the time.

-- name: limit_time
SELECT pg_catalog.set_config('statement_timeout', %(statement_ms)s::text, true),
    pg_catalog.set_config('lock_timeout', %(lock_ms)s::text, true), pg_catalog.set_config('TimeZone', 'UTC', true),
    pg_catalog.set_config('jit', 'off', true),
    pg_catalog.set_config('search_path', coalesce(%(path)s::text, pg_catalog.current_setting('search_path')), true)

-- name: pin_names
-- From here on, unqualified names are resolved in `pg_catalog` only: for the session, or with `local` for the transaction.
SELECT pg_catalog.set_config('search_path', %(path)s::text, %(local)s)

-- name: pin_plans
-- For plain statements that claim and finish jobs. The functions have settings of their own.
SELECT pg_catalog.set_config(setting, value, false) FROM (VALUES ('jit', 'off'), ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'),
    ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), ('plan_cache_mode', 'force_generic_plan')) AS pinned (setting, value)

-- name: read_job
SELECT found.said FROM (SELECT %(id)s::bigint AS id) AS wanted, LATERAL (
    SELECT to_json(j)::text FROM holdfast.job j WHERE j.id = wanted.id
    UNION ALL SELECT to_json(h)::text FROM holdfast.job_history h WHERE h.id = wanted.id
    UNION ALL SELECT to_json(f)::text FROM holdfast.job_failed f WHERE f.id = wanted.id) AS found (said)
LIMIT 1

-- name: read_waiting
-- The reasons why a live job does not run: null or false where a reason does not apply.
SELECT CASE WHEN j.available_at > now() THEN j.available_at END, coalesce(q.paused, false), q.paused_at, q.paused_by, q.paused_reason,
    CASE WHEN j.blockers_left > 0 THEN holdfast.chains_left(j.id, j.blockers_left) END, s.job_id,
    (SELECT o.id FROM holdfast.job o WHERE o.order_key = j.order_key AND (o.order_seq, o.id) < (j.order_seq, j.id)
     ORDER BY o.order_seq, o.id LIMIT 1)
FROM holdfast.job j LEFT JOIN holdfast.queue q ON q.name = j.queue LEFT JOIN holdfast.order_stop s ON s.order_key = j.order_key
WHERE j.id = %(id)s AND j.status IN ('pending', 'blocked') LIMIT 1

-- name: read_key_stop
-- How many jobs wait because this dead letter stopped its order key, at most 1,000 counted. No row: it stopped none, or the key goes on.
SELECT (SELECT count(*) FROM (SELECT FROM holdfast.job j WHERE j.order_key = s.order_key LIMIT 1000) AS few)
FROM holdfast.order_stop s WHERE s.order_key = %(key)s AND s.job_id = %(id)s

-- name: list_attempts
-- If there are too many, the latest, and the tracebacks of only the last twenty and the logs of the last five, because they are long. A first attempt that completed has
-- no row there: it is read from the job's own row.
SELECT a.attempt, a.outcome::text, a.ended_at, a.worker_id, w.name, a.error_code, a.error,
    coalesce(a.ended_at - a.ran_ms * interval '1 millisecond', a.claimed_at), a.ran_ms / 1000.0::double precision,
    CASE WHEN row_number() OVER (ORDER BY a.ended_at DESC, a.lock_token DESC) <= 20 THEN a.traceback END, a.due_at,
    extract(epoch FROM a.claimed_at - a.due_at)::double precision, w.app_version,
    CASE WHEN row_number() OVER (ORDER BY a.ended_at DESC, a.lock_token DESC) <= 5 THEN a.log END
FROM (SELECT %(id)s::bigint AS id) AS asked, LATERAL (
    SELECT t.attempt, t.outcome, t.ended_at, t.worker_id, t.lock_token, t.error_code, t.error, t.ran_ms, t.traceback, t.log, t.due_at, t.claimed_at
    FROM holdfast.attempt t WHERE t.job_id = asked.id
    UNION ALL SELECT h.attempt, 'completed', h.finished_at, h.worker_id, NULL, NULL, NULL, h.ran_ms, NULL, NULL, h.available_at,
        h.available_at + h.waited_ms * interval '1 millisecond'
    FROM holdfast.job_history h
    WHERE h.id = asked.id AND h.status = 'completed' AND h.attempt = 1 AND h.first_due_at IS NULL AND h.worker_id IS NOT NULL) AS a
    LEFT JOIN holdfast.worker w ON w.id = a.worker_id
ORDER BY a.ended_at DESC, a.lock_token DESC LIMIT %(limit)s

-- name: list_replays
SELECT r.replay_id, found.status, r.replayed_at FROM holdfast.replay r, LATERAL (
    SELECT j.status::text FROM holdfast.job j WHERE j.id = r.replay_id
    UNION ALL SELECT h.status::text FROM holdfast.job_history h WHERE h.id = r.replay_id
    UNION ALL SELECT f.status::text FROM holdfast.job_failed f WHERE f.id = r.replay_id LIMIT 1) AS found (status)
WHERE r.job_id = %(id)s ORDER BY r.replay_id DESC LIMIT %(limit)s

-- name: read_worker
SELECT w.id, w.name, w.started_at, w.heartbeat_at, w.stopped_at, w.stop_reason, w.app_version FROM holdfast.worker w WHERE w.id = %(id)s LIMIT 1

-- name: delete_job
SELECT holdfast.delete_job(%(id)s)

-- name: read_server
-- A session's backend type is visible only to some roles: a session without one that is in a database counts as a client.
SELECT current_setting('server_version_num')::integer, pg_backend_pid(), current_user::text, r.rolsuper,
    current_setting('max_connections')::integer,
    current_setting('superuser_reserved_connections')::integer + coalesce(current_setting('reserved_connections', true), '0')::integer,
    used.in_all, nullif(d.datconnlimit, -1), used.of_database, nullif(r.rolconnlimit, -1), used.of_user
FROM pg_roles r, pg_database d,
    LATERAL (SELECT count(*) AS in_all, count(*) FILTER (WHERE a.datname = d.datname) AS of_database,
                 count(*) FILTER (WHERE a.usename = r.rolname) AS of_user
             FROM pg_stat_activity a
             WHERE a.datid IS NOT NULL AND coalesce(a.backend_type, 'client backend') = 'client backend') AS used
WHERE r.rolname = current_user AND d.datname = current_database() LIMIT 1

-- name: read_isolation
SELECT pg_catalog.current_setting('default_transaction_isolation'), current_user::text

-- name: is_read_only
SELECT pg_catalog.current_setting('transaction_read_only')::boolean

-- name: list_roles
SELECT r.rolname::text, pg_has_role(r.oid, 'USAGE') FROM pg_roles r
WHERE r.rolname IN ('holdfast_producer', 'holdfast_worker', 'holdfast_viewer', 'holdfast_operator') ORDER BY r.rolname LIMIT 4

-- name: read_rights
SELECT has_table_privilege('holdfast.job', 'SELECT'),
    has_table_privilege('holdfast.job', 'UPDATE') AND has_table_privilege('holdfast.job', 'DELETE'),
    has_any_column_privilege('holdfast.audit', 'INSERT') LIMIT 1

-- name: take_census
SELECT holdfast.take_census(%(every_ms)s * interval '1 millisecond', %(whole)s)

-- name: read_census
SELECT now(), c.at, c.seconds, c.sampled, c.lines::text
FROM (SELECT) AS always LEFT JOIN (SELECT * FROM holdfast.census ORDER BY at DESC LIMIT 1) AS c ON true

-- name: count_live_jobs
SELECT count(*) FROM (SELECT FROM holdfast.job LIMIT %(limit)s) AS live
