-- Everything that waits for the code of an application, in pages, for a rehearsal of a deployment.

-- name: waiting_jobs
SELECT j.id, j.kind, coalesce(j.payload_version, 1), coalesce(j.payload::text, '{}'), j.steps IS TRUE FROM holdfast.job j
WHERE j.id > %(after)s ORDER BY j.id LIMIT %(limit)s

-- name: recorded_steps
SELECT s.job_id, s.name, s.state::text, s.result::text FROM holdfast.step s WHERE s.job_id = ANY (%(jobs)s::bigint[]) ORDER BY s.job_id, s.at

-- name: waiting_messages
SELECT m.job_id, m.name, m.payload::text FROM holdfast.message m
WHERE m.job_id = ANY (%(jobs)s::bigint[]) AND m.taken IS NULL ORDER BY m.job_id, m.id

-- name: waiting_schedules
SELECT s.name, s.job ->> 'kind', coalesce((s.job ->> 'payload_version')::integer, 1), coalesce((s.job -> 'payload')::text, '{}')
FROM holdfast.schedule s WHERE s.what = 'job' AND NOT s.paused ORDER BY s.name

-- name: reading_subscriptions
SELECT s.name, s.makes_jobs, s.topics, coalesce((SELECT min(p.seen_id) FROM (
    SELECT DISTINCT ON (p.partition) p.seen_id FROM holdfast.position p WHERE p.subscription_id = s.id ORDER BY p.partition, p.seq DESC) AS p), 0)
FROM holdfast.subscription s ORDER BY s.name

-- name: waiting_events
-- With the payload of the job that feed_jobs makes of each.
SELECT e.id, json_build_object('event', json_build_object('id', e.id, 'topic', e.topic, 'key', e.key, 'payload', e.payload,
    'headers', coalesce(e.headers, '{}'), 'version', e.version, 'published_at', e.published_at, 'trace', e.trace))::text
FROM holdfast.event e WHERE e.id > %(after)s AND e.topic = ANY (%(topics)s::text[]) ORDER BY e.id LIMIT %(limit)s
