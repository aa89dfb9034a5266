-- What must not happen to events. As in checks.sql.

-- name: events lost
-- An event was committed, and never arrived in the broker's stream.
SELECT format('event %s, at place %s of key %s', s.event, s.n, s.key)
FROM chaos.published s
WHERE NOT EXISTS (SELECT FROM chaos.arrival a WHERE a.event = s.event);

-- name: events made up
-- An event arrived that was not committed, as of a transaction or savepoint that was rolled back, or with other content.
SELECT format('event %s, at place %s of key %s', a.event, a.n, a.key)
FROM chaos.arrival a
WHERE NOT EXISTS (SELECT FROM chaos.published s WHERE (s.event, s.key, s.n) = (a.event, a.key, a.n));

-- name: events out of order
-- An event arrived, for the first time, after one of its key that was published when it was committed already.
SELECT format('key %s: event %s, at place %s, came after place %s', key, event, n, before)
FROM (
    SELECT s.key, s.n, s.event,
        max(s.n) OVER (PARTITION BY s.key ORDER BY a.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM chaos.published s JOIN (SELECT event, min(place) AS place FROM chaos.arrival GROUP BY event) AS a ON a.event = s.event) AS k
WHERE n < before;

-- name: events without their job
-- An event that was committed made no job, or two; or a job was made of an event that was not.
SELECT format('event %s: %s jobs', s.event, count(h.job))
FROM chaos.published s LEFT JOIN chaos.received h ON h.event = s.event
GROUP BY s.event HAVING count(h.job) <> 1
UNION ALL
SELECT format('event %s was not committed: job %s', h.event, h.job)
FROM chaos.received h WHERE NOT EXISTS (SELECT FROM chaos.published s WHERE s.event = h.event);

-- name: effects of events doubled or missing
-- The effects of an event's handler, written with `job.complete`, do not exist exactly once.
SELECT format('event %s: %s entries', s.event, count(l.job))
FROM chaos.published s LEFT JOIN chaos.received h ON h.event = s.event LEFT JOIN chaos.ledger l ON l.job = h.job AND l.amount = s.event
GROUP BY s.event HAVING count(l.job) <> 1;

-- name: stale positions accepted
-- A position was moved by a worker after another had taken the partition, or it went back.
SELECT format('subscription %s, partition %s: token %s at %s, after token %s at %s', subscription_id, partition, lock_token, seen_id, token_before,
    seen_before)
FROM (
    SELECT p.*, max(lock_token) OVER before AS token_before, max(seen_id) OVER before AS seen_before
    FROM holdfast.position p
    WINDOW before AS (PARTITION BY subscription_id, partition ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS p
WHERE lock_token < token_before OR seen_id < seen_before;
