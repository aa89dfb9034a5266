-- The statements about limits. The functions in schema/30_limits.sql explain what they do, and why.

-- name: declare_limits
SELECT holdfast.declare_limits(%(limits)s::json)

-- name: set_limit
-- Values that hold until they are reset, whatever the code declares. No row: there is no such limit.
UPDATE holdfast.limit_rule SET concurrency = %(concurrency)s, starts = %(starts)s, period_ms = %(period_ms)s, burst = %(burst)s,
    set_by = %(who)s::text, set_at = clock_timestamp()
WHERE name = %(name)s RETURNING name

-- name: reset_limit
-- Back to what the code declares. No row: there is no such limit, or no code declares it.
UPDATE holdfast.limit_rule SET concurrency = (declared ->> 'concurrency')::integer, starts = (declared ->> 'starts')::integer,
    period_ms = (declared ->> 'period_ms')::bigint, burst = (declared ->> 'burst')::integer, set_by = NULL, set_at = NULL
WHERE name = %(name)s AND declared IS NOT NULL RETURNING name

-- name: mend_limits
SELECT until, mended FROM holdfast.mend_limits(%(since)s::text, %(name)s::text, %(limit)s)

-- name: delete_limit_rates
-- All their tokens are there again, as without a row.
WITH gone AS (
    DELETE FROM holdfast.limit_rate WHERE ctid = ANY (ARRAY(
        SELECT b.ctid FROM holdfast.limit_rate b WHERE b.full_at < now() LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING limit_key)
SELECT count(*) FROM gone

-- name: read_limit_wait
SELECT name, value, parameters, concurrency, starts, period_ms, running, ahead FROM holdfast.limit_wait(%(id)s)

-- name: list_limits
-- How many jobs run under each and wait, over all its keys, at most 10,000 of each counted, and since when the first of these is due.
SELECT r.name, r.parameters, r.concurrency, r.starts, r.period_ms, r.burst, r.declared::text, r.set_by, r.set_at, run.jobs, wait.jobs,
    extract(epoch FROM now() - wait.since)::double precision
FROM holdfast.limit_rule r,
    LATERAL (SELECT count(*) AS jobs FROM (
        SELECT FROM holdfast.job j WHERE j.status = 'processing' AND (j.limit_key = r.name OR j.limit_key > r.name || ':' AND j.limit_key < r.name || chr(59))
        UNION ALL
        SELECT FROM holdfast.limit_place p JOIN holdfast.job j ON j.id = p.job_id AND j.status = 'processing'
        WHERE p.limit_key = r.name OR p.limit_key > r.name || ':' AND p.limit_key < r.name || chr(59)
        LIMIT 10000) AS few) AS run,
    LATERAL (SELECT count(*) AS jobs, min(few.available_at) AS since FROM (
        SELECT j.available_at FROM holdfast.job j
        WHERE j.status IN ('pending', 'blocked') AND (j.limit_key = r.name OR j.limit_key > r.name || ':' AND j.limit_key < r.name || chr(59))
        LIMIT 10000) AS few) AS wait
ORDER BY r.name LIMIT %(limit)s
