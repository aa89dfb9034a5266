-- name: unfolded_minutes
-- Minutes that are over and have more rows than they need. The last two are left alone: somebody may still be writing them.
SELECT DISTINCT minute FROM (
    SELECT minute FROM holdfast.tally
    WHERE minute < date_trunc('minute', now()) - interval '2 minutes' AND minute >= now() - %(hours)s * interval '1 hour'
    GROUP BY minute, outcome, queue, kind HAVING count(*) > 1) AS unfolded
ORDER BY minute LIMIT %(most)s

-- name: fold_tallies
WITH gone AS (
    DELETE FROM holdfast.tally WHERE minute = %(minute)s::timestamptz RETURNING minute, latency, latency_max, jobs, outcome, queue, kind),
folded AS (
    INSERT INTO holdfast.tally (minute, latency, latency_max, jobs, outcome, queue, kind)
    SELECT minute, sum(latency), max(latency_max), sum(jobs), outcome, queue, kind FROM gone GROUP BY minute, outcome, queue, kind
    RETURNING minute)
SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM folded)

-- name: delete_sleepers
WITH gone AS (
    DELETE FROM holdfast.sleeper WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.sleeper WHERE until < now() - interval '1 minute' LIMIT %(most)s FOR UPDATE SKIP LOCKED))
    RETURNING until)
SELECT count(*) FROM gone

-- name: delete_watchers
WITH gone AS (
    DELETE FROM holdfast.watcher WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.watcher WHERE until < now() - interval '1 minute' LIMIT %(most)s FOR UPDATE SKIP LOCKED))
    RETURNING until)
SELECT count(*) FROM gone

-- name: delete_sweeps
WITH gone AS (
    DELETE FROM holdfast.sweep WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.sweep WHERE until < now() - interval '1 minute' LIMIT %(most)s FOR UPDATE SKIP LOCKED))
    RETURNING until)
SELECT count(*) FROM gone

-- name: delete_workers
-- Who was last heard of longer ago than any history is kept that may name it. A family without a row is kept for ever. Nothing but
-- history needs the row, since an id is never issued twice, but who still holds something stays, for people to see. Only among the
-- oldest: the table has no index by time.
WITH gone AS (
    DELETE FROM holdfast.worker WHERE id = ANY (ARRAY(
        SELECT w.id FROM holdfast.worker w
        WHERE w.id <= (SELECT max(o.id) FROM (SELECT id FROM holdfast.worker ORDER BY id LIMIT 10000) AS o)
          AND greatest(w.stopped_at, w.heartbeat_at) < now() - (
              SELECT max(keep) FROM holdfast.retention WHERE family IN ('job_history', 'job_failed', 'attempt', 'run') HAVING count(*) = 4)
          AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.status = 'processing' AND j.locked_by = w.id)
          AND NOT EXISTS (SELECT FROM holdfast.schedule s WHERE s.locked_by = w.id)
        ORDER BY w.id LIMIT %(most)s FOR UPDATE OF w SKIP LOCKED))
    RETURNING id)
SELECT count(*) FROM gone

-- name: unread_days
-- Days of the log that are past their time and stay, because a subscription is not past them.
SELECT c.relname::text
FROM holdfast.retention r JOIN pg_class c ON c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^event_[0-9]{8}$'
WHERE r.family = 'event' AND CASE WHEN (right(c.relname, 8)::date + 1)::timestamp AT TIME ZONE 'UTC' <= now() - r.keep
    THEN NOT holdfast.day_is_read(c.relname::text) ELSE false END
ORDER BY c.relname LIMIT %(most)s

-- name: expired_partitions
SELECT part, commands FROM holdfast.expired_partitions(%(most)s)
