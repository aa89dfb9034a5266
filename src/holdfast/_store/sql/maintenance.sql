-- part: expired
-- Or of a clock that was set back since: these records are of the next seconds.
WHERE until NOT BETWEEN now() - interval '1 minute' AND now() + interval '1 minute' LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: set_back_jobs
SELECT until, rows FROM holdfast.set_back_jobs(%(since)s, %(limit)s)

-- name: delete_sleepers
WITH gone AS (
    DELETE FROM holdfast.sleeper WHERE ctid = ANY (ARRAY(SELECT ctid FROM holdfast.sleeper {{expired}})) RETURNING until)
SELECT count(*) FROM gone

-- name: delete_watchers
WITH gone AS (
    DELETE FROM holdfast.watcher WHERE ctid = ANY (ARRAY(SELECT ctid FROM holdfast.watcher {{expired}})) RETURNING until)
SELECT count(*) FROM gone

-- name: delete_sweeps
WITH gone AS (
    DELETE FROM holdfast.sweep WHERE ctid = ANY (ARRAY(SELECT ctid FROM holdfast.sweep {{expired}})) RETURNING until)
SELECT count(*) FROM gone

-- name: delete_workers
-- Workers without a heartbeat for longer than any history is kept that may name them. A family without a row is kept for ever. Only the
-- history needs the row, since an id is never issued twice, but a worker that still holds something stays, for operators to see. Only among
-- the oldest: the table has no index by time.
WITH gone AS (
    DELETE FROM holdfast.worker WHERE id = ANY (ARRAY(
        SELECT w.id FROM holdfast.worker w
        WHERE w.id <= (SELECT max(o.id) FROM (SELECT id FROM holdfast.worker ORDER BY id LIMIT 10000) AS o)
          AND greatest(w.stopped_at, w.heartbeat_at) < (SELECT holdfast.expiry_clock()) - (
              SELECT max(keep) FROM holdfast.retention WHERE family IN ('job_history', 'job_failed', 'attempt', 'run') HAVING count(*) = 4)
          AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.status = 'processing' AND j.locked_by = w.id)
          AND NOT EXISTS (SELECT FROM holdfast.schedule s WHERE s.locked_by = w.id)
        ORDER BY w.id LIMIT %(limit)s FOR UPDATE OF w SKIP LOCKED))
    RETURNING id)
SELECT count(*) FROM gone

-- name: unread_days
-- Expired days of the log that are kept because a subscription has not read them.
SELECT c.relname::text
FROM holdfast.retention r JOIN pg_class c ON c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^event_[0-9]{8}$'
WHERE r.family = 'event' AND CASE WHEN (right(c.relname, 8)::date + 1)::timestamp AT TIME ZONE 'UTC' <= (SELECT holdfast.expiry_clock()) - r.keep
    THEN NOT holdfast.day_is_read(c.relname::text) ELSE false END
ORDER BY c.relname LIMIT %(limit)s

-- name: expired_partitions
SELECT part, commands FROM holdfast.expired_partitions(%(limit)s)

-- name: delete_replays
-- Of dead letters that no longer exist. A day that is archived stays longer than `keep` until its file is verified, so the days that are there
-- decide: a replay that is older than all of them is of a dead letter that was dropped, since it came after it. A dead letter that was written
-- late may be of any day, and the hour allows for a clock that was set back.
WITH oldest AS MATERIALIZED (
    SELECT min(right(c.relname, 8)::date)::timestamp AT TIME ZONE 'UTC' AS starts_at FROM pg_class c
    WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^job_failed_[0-9]{8}$'
        AND NOT EXISTS (SELECT FROM holdfast.job_failed f WHERE f.late)),
gone AS (
    DELETE FROM holdfast.replay WHERE ctid = ANY (ARRAY(
        SELECT r.ctid FROM holdfast.replay r WHERE r.replayed_at < (SELECT starts_at FROM oldest) - interval '1 hour' LIMIT %(limit)s))
    RETURNING job_id)
SELECT count(*) FROM gone

-- name: delete_dismissals
-- Of dead letters that have expired.
DELETE FROM holdfast.dismissal WHERE (kind, queue, error_code) IN (
    SELECT d.kind, d.queue, d.error_code FROM holdfast.dismissal d, holdfast.retention r
    WHERE r.family = 'job_failed' AND d.last_at < holdfast.expiry_clock() - r.keep LIMIT %(limit)s) RETURNING kind

-- name: delete_landmarks
-- Older than any history of jobs.
WITH gone AS (
    DELETE FROM holdfast.landmark WHERE at = ANY (ARRAY(
        SELECT at FROM holdfast.landmark WHERE at < (SELECT holdfast.expiry_clock()) - (
            SELECT max(keep) FROM holdfast.retention WHERE family IN ('job_history', 'job_failed') HAVING count(*) = 2)
        ORDER BY at LIMIT %(limit)s))
    RETURNING at)
SELECT count(*) FROM gone

-- name: delete_windows
-- From `since` on: below are windows that were deleted before, which an old snapshot may keep in the index. The hour allows for a clock
-- that is set back.
WITH gone AS (
    DELETE FROM holdfast.unique_window WHERE ctid = ANY (ARRAY(
        SELECT w.ctid FROM holdfast.unique_window w WHERE w.ends_at >= %(since)s::timestamptz AND w.ends_at < (SELECT holdfast.expiry_clock()) - interval '1 hour'
        ORDER BY w.ends_at LIMIT %(limit)s))
    RETURNING ends_at)
SELECT count(*), max(ends_at) FROM gone

-- name: delete_messages
WITH gone AS (
    DELETE FROM holdfast.inbox WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM holdfast.inbox i WHERE i.received_at >= %(since)s::timestamptz
            AND i.received_at < (SELECT holdfast.expiry_clock()) - (SELECT keep FROM holdfast.retention WHERE family = 'inbox')
        ORDER BY i.received_at LIMIT %(limit)s))
    RETURNING received_at)
SELECT count(*), max(received_at) FROM gone
