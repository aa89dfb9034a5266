-- For users' tests: time is moved in the rows, and jobs are run by the claims and finishes of production. All times of a row are moved back
-- together, so that a delay stays the distance between two of its times.

-- name: catch_up
-- In a transaction now() does not advance. Jobs that were enqueued since, or have become due, lie between it and the clock, where no claim
-- looks: they are moved to now().
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
late AS MATERIALIZED (
    SELECT j.id, greatest(
        CASE WHEN j.available_at <= clock.at THEN j.available_at - now() END, CASE WHEN j.expires_at <= clock.at THEN j.expires_at - now() END,
        CASE WHEN j.locked_until <= clock.at THEN j.locked_until - now() + interval '1 microsecond' END) AS by
    FROM holdfast.job j, clock
    WHERE j.available_at > now() AND j.available_at <= clock.at OR j.expires_at > now() AND j.expires_at <= clock.at
        OR j.locked_until >= now() AND j.locked_until <= clock.at
    ORDER BY j.id LIMIT %(limit)s FOR UPDATE OF j SKIP LOCKED)
UPDATE holdfast.job j SET created_at = j.created_at - late.by, available_at = j.available_at - late.by, expires_at = j.expires_at - late.by,
    locked_until = j.locked_until - late.by
FROM late WHERE j.id = late.id RETURNING j.id

-- name: due_queues
-- The queue of the most urgent job first.
SELECT first.queue FROM (
    SELECT DISTINCT ON (j.queue) j.queue, j.priority, j.available_at, j.id FROM holdfast.job j
    WHERE j.status = 'pending' AND j.available_at <= now() AND j.kind = ANY (%(kinds)s::text[])
    ORDER BY j.queue, j.priority, j.available_at, j.id) AS first
ORDER BY first.priority, first.available_at, first.id LIMIT %(limit)s

-- name: lend_job
-- A waiting job, due or not, goes to a queue of its own, so that a claim of that queue takes this one and no other.
WITH found AS MATERIALIZED (
    SELECT j.id, j.queue, j.kind, greatest(j.available_at - now(), interval '0') AS by FROM holdfast.job j
    WHERE j.id = %(id)s AND j.status = 'pending' FOR UPDATE NOWAIT)
UPDATE holdfast.job j SET queue = %(lent)s::text, created_at = j.created_at - found.by, available_at = j.available_at - found.by,
    expires_at = j.expires_at - found.by
FROM found WHERE j.id = found.id RETURNING found.queue, found.kind

-- name: return_job
UPDATE holdfast.job j SET queue = %(queue)s::text
WHERE j.id = %(id)s AND j.queue = %(lent)s::text
    AND j.lock_token IS NOT DISTINCT FROM %(token)s::bigint AND j.locked_by IS NOT DISTINCT FROM %(worker)s::bigint
RETURNING j.id

-- name: advance_jobs
WITH live AS MATERIALIZED (SELECT j.id FROM holdfast.job j WHERE j.id > %(after)s::bigint ORDER BY j.id LIMIT %(limit)s FOR UPDATE NOWAIT),
span AS MATERIALIZED (SELECT %(span)s::interval AS by),
steps AS (UPDATE holdfast.step s SET due = s.due - span.by FROM live, span WHERE s.job_id = live.id AND s.due IS NOT NULL)
UPDATE holdfast.job j SET created_at = j.created_at - span.by, available_at = j.available_at - span.by, expires_at = j.expires_at - span.by,
    locked_until = j.locked_until - span.by
FROM live, span WHERE j.id = live.id RETURNING j.id

-- name: suspended_stories
SELECT s.name, CASE s.state WHEN 'sleep' THEN s.due - clock_timestamp() END FROM holdfast.step s JOIN holdfast.job j ON j.id = s.job_id
WHERE j.status IN ('pending', 'blocked') AND (s.state IN ('waits', 'gathers') OR s.state = 'sleep' AND s.due > clock_timestamp()) ORDER BY s.due LIMIT %(limit)s

-- name: open_windows
SELECT w.job_id, extract(epoch FROM w.ends_at - clock_timestamp())::double precision FROM holdfast.unique_window w
WHERE w.ends_at > clock_timestamp() ORDER BY w.ends_at LIMIT %(limit)s

-- name: end_windows
DELETE FROM holdfast.unique_window w WHERE w.job_id = ANY (%(jobs)s::bigint[]) AND w.ends_at > clock_timestamp() RETURNING w.job_id

-- name: enqueued_jobs
-- Jobs of one kind, in whichever table they are, the newest if there are too many. The history does not have the time when a job would have
-- expired, nor, except for dead letters, the chains it waited for.
SELECT j.id, j.status::text, j.payload::text, j.headers::text, j.queue, j.priority, j.max_attempts, j.created_at, j.available_at,
    j.expires_at, j.order_key, j.order_block IS TRUE, coalesce(j.unique_key, w.unique_key),
    CASE WHEN j.waits THEN ARRAY(SELECT b.chain_id FROM holdfast.blocker b WHERE b.job_id = j.id ORDER BY b.ordinal)
        || ARRAY(SELECT m.chain_id FROM holdfast.members_of(ARRAY[j.id]) AS m ORDER BY m.place) ELSE j.blockers END,
    j.run_anyway
FROM (SELECT %(kind)s::text AS name) AS kind, LATERAL (
    SELECT l.id, l.status, l.payload, l.headers, l.queue, l.priority, l.max_attempts, l.created_at, l.available_at, l.expires_at,
        l.order_key, l.order_block, l.unique_key, true AS waits, NULL::bigint[] AS blockers, l.run_anyway IS TRUE AS run_anyway
    FROM holdfast.job l WHERE l.kind = kind.name
    UNION ALL SELECT h.id, h.status, h.payload, h.headers, h.queue, h.priority, h.max_attempts, h.created_at, h.available_at, NULL,
        h.order_key, h.order_block, h.unique_key, false, NULL, NULL
    FROM holdfast.job_history h WHERE h.kind = kind.name
    UNION ALL SELECT f.id, f.status, f.payload, f.headers, f.queue, f.priority, f.max_attempts, f.created_at, f.available_at, NULL,
        f.order_key, f.order_block, f.unique_key, false, coalesce(f.blockers, '{}'), f.run_anyway IS TRUE
    FROM holdfast.job_failed f WHERE f.kind = kind.name
    ORDER BY 1 DESC LIMIT %(limit)s) AS j
    LEFT JOIN holdfast.unique_window w ON w.job_id = j.id
ORDER BY j.id

-- name: enqueued_kinds
SELECT j.kind, count(*) FROM (
    SELECT kind FROM holdfast.job UNION ALL SELECT kind FROM holdfast.job_history UNION ALL SELECT kind FROM holdfast.job_failed) AS j
GROUP BY j.kind ORDER BY j.kind LIMIT %(limit)s

-- name: unread_events
-- The events of these topics after an id, each with the payload of the job that the function feed_jobs makes of it. Also uncommitted ones of
-- this transaction, which no reader of the log would see.
SELECT e.id, e.key, e.trace, json_build_object('event', json_build_object('id', e.id, 'topic', e.topic, 'key', e.key, 'payload', e.payload,
    'headers', coalesce(e.headers, '{}'), 'version', e.version, 'published_at', e.published_at, 'trace', e.trace))::text
FROM holdfast.event e WHERE e.id > %(after)s AND e.topic = ANY (%(topics)s::text[]) ORDER BY e.id LIMIT %(limit)s
