-- Counts of ended attempts, for operators, and how long they waited and ran.

-- name: read_tallies
-- Within so many steps up to now: the numbers of attempts by outcome, and in rows without one how long they waited and ran, as in `tally.times`.
-- `by`: kinds apart too. `whole`: all steps as one. The days that were not asked for are not opened.
WITH asked AS MATERIALIZED (
    SELECT date_bin(s.step, now(), '2000-01-01Z') - (%(steps)s - 1) * s.step AS since, s.step
    FROM (SELECT %(seconds)s * interval '1 second' AS step) AS s),
seen AS MATERIALIZED (
    SELECT CASE WHEN %(whole)s::boolean THEN 'infinity' ELSE date_bin((SELECT step FROM asked), t.minute, '2000-01-01Z') END AS at, t.queue,
        CASE WHEN %(kinds)s::boolean THEN t.kind ELSE '' END AS kind, t.outcome, t.jobs, t.times
    FROM holdfast.tally t
    WHERE t.minute >= (SELECT since FROM asked) AND (%(queue)s::text IS NULL OR t.queue = %(queue)s::text)
        AND (%(kind)s::text IS NULL OR t.kind = %(kind)s::text)
    LIMIT %(most)s),
-- Millions of counts are added up by one number each: by several columns they would be sorted.
lanes AS MATERIALIZED (SELECT row_number() OVER () AS lane, at, queue, kind FROM (SELECT DISTINCT at, queue, kind FROM seen) AS d),
spread AS MATERIALIZED (
    SELECT l.lane * 512 + (c & 511) AS place, sum(c >> 9)::bigint AS n
    FROM seen s JOIN lanes l ON l.at = s.at AND l.queue = s.queue AND l.kind = s.kind, unnest(s.times) AS c GROUP BY 1)
(SELECT nullif(at, 'infinity'), queue, nullif(kind, ''), outcome::text, sum(jobs)::bigint, NULL FROM seen GROUP BY at, queue, kind, outcome LIMIT %(limit)s)
UNION ALL
(SELECT nullif(l.at, 'infinity'), l.queue, nullif(l.kind, ''), NULL, NULL, b.times
 FROM (SELECT place >> 9 AS lane, json_agg(512 * n + (place & 511))::text AS times FROM spread GROUP BY 1 LIMIT %(limit)s) AS b JOIN lanes l USING (lane))

-- name: sum_tallies
-- Jobs that ended within the time that their history is kept.
SELECT t.outcome::text, sum(t.jobs)::bigint FROM holdfast.tally t JOIN holdfast.retention r
    ON r.family = CASE t.outcome WHEN 'completed' THEN 'job_history' WHEN 'failed' THEN 'job_failed' END
WHERE t.outcome IN ('completed', 'failed') AND t.minute >= date_trunc('day', now() - r.keep, 'UTC')
GROUP BY t.outcome LIMIT 2

-- name: unfolded_spans
-- Spans that are over and have more rows than they need: minutes for two hours, then five minutes for seven hours, quarters for 26 hours, hours
-- for eight days, and days: so each range that is shown has sixty steps or more. The last two minutes are left alone: other transactions may
-- still write them.
SELECT DISTINCT since, until FROM (
    SELECT s.since, s.until FROM holdfast.tally t, LATERAL (
        SELECT d.since, d.since + d.length AS until FROM (SELECT
            CASE WHEN t.minute < date_trunc('day', now(), 'UTC') - interval '8 days' THEN interval '1 day'
                 WHEN t.minute < date_trunc('hour', now(), 'UTC') - interval '26 hours' THEN interval '1 hour'
                 WHEN t.minute < date_trunc('hour', now(), 'UTC') - interval '7 hours' THEN interval '15 minutes'
                 WHEN t.minute < date_trunc('hour', now(), 'UTC') - interval '2 hours' THEN interval '5 minutes'
                 ELSE interval '1 minute' END AS length) AS l,
            LATERAL (SELECT date_bin(l.length, t.minute, '2000-01-01Z') AS since, l.length) AS d) AS s
    WHERE t.minute < date_trunc('minute', now()) - interval '2 minutes' AND t.minute >= date_trunc('day', now(), 'UTC') - %(days)s * interval '1 day'
    GROUP BY s.since, s.until, t.outcome, t.queue, t.kind HAVING count(*) > 1) AS unfolded
ORDER BY since LIMIT %(limit)s

-- name: fold_tallies
WITH gone AS (
    DELETE FROM holdfast.tally WHERE minute >= %(since)s::timestamptz AND minute < %(until)s::timestamptz
    RETURNING jobs, times, outcome, queue, kind),
counted AS (SELECT outcome, queue, kind, sum(jobs) AS jobs FROM gone GROUP BY outcome, queue, kind),
spread AS (
    SELECT outcome, queue, kind, array_agg(512 * n + bucket) AS times
    FROM (SELECT outcome, queue, kind, c & 511 AS bucket, sum(c >> 9)::bigint AS n FROM gone, unnest(times) AS c GROUP BY outcome, queue, kind, 4) AS b
    GROUP BY outcome, queue, kind),
folded AS (
    INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)
    SELECT %(since)s::timestamptz, jobs, times, outcome, queue, kind FROM counted LEFT JOIN spread USING (outcome, queue, kind)
    RETURNING minute)
SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM folded)
