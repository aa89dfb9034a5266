-- Counts for people: the census of live jobs, and tallies of what ended.

-- name: take_census
SELECT holdfast.take_census(%(every_ms)s * interval '1 millisecond', %(whole)s)

-- name: read_census
SELECT now(), c.at, c.seconds, c.sampled, c.lines::text
FROM (SELECT) AS always LEFT JOIN (SELECT * FROM holdfast.census ORDER BY at DESC LIMIT 1) AS c ON true

-- name: read_tallies
SELECT minute, queue, outcome::text, bucket, sum(jobs)::bigint FROM holdfast.tally
WHERE minute >= date_trunc('minute', now()) - (%(minutes)s - 1) * interval '1 minute'
GROUP BY minute, queue, outcome, bucket ORDER BY minute LIMIT %(most)s

-- name: read_kind_tallies
SELECT queue, kind, outcome::text, bucket, sum(jobs)::bigint FROM holdfast.tally
WHERE minute >= date_trunc('minute', now()) - (%(minutes)s - 1) * interval '1 minute'
GROUP BY queue, kind, outcome, bucket LIMIT %(most)s

-- name: sum_tallies
-- What ended within the time that its history is kept.
SELECT t.outcome::text, sum(t.jobs)::bigint FROM holdfast.tally t JOIN holdfast.retention r
    ON r.family = CASE t.outcome WHEN 'completed' THEN 'job_history' WHEN 'failed' THEN 'job_failed' END
WHERE t.outcome IN ('completed', 'failed') AND t.minute >= date_trunc('day', now() - r.keep, 'UTC')
GROUP BY t.outcome LIMIT 2
