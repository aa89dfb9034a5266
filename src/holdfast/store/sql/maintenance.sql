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

-- name: delete_sweeps
WITH gone AS (
    DELETE FROM holdfast.sweep WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.sweep WHERE until < now() - interval '1 minute' LIMIT %(most)s FOR UPDATE SKIP LOCKED))
    RETURNING until)
SELECT count(*) FROM gone

-- name: expired_partitions
SELECT part, commands FROM holdfast.expired_partitions(%(most)s)
