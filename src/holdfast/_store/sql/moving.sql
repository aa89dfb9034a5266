-- Moving jobs to another database. The functions in migrations/0017_moving.sql explain how.

-- name: last_job_id
SELECT s.last_value FROM holdfast.job_id_seq s

-- name: depart_jobs
SELECT d.jobs, d.until FROM holdfast.depart_jobs(%(destination)s::uuid, %(place)s::text, %(queues)s::text[], %(kinds)s::text[],
    %(since)s::bigint, %(last)s::bigint, %(limit)s::integer) AS d

-- name: next_departure
-- The oldest batch that has not arrived.
SELECT d.id::text, d.body::text FROM holdfast.departure d WHERE d.destination = %(destination)s::uuid AND d.arrived_at IS NULL
ORDER BY d.seq LIMIT 1

-- name: late_departures
-- By destination, of the oldest batches.
SELECT d.place, count(*), sum(cardinality(d.job_ids))::bigint, (extract(epoch FROM clock_timestamp() - min(d.departed_at)))::float8
FROM (SELECT * FROM holdfast.departure o WHERE o.arrived_at IS NULL ORDER BY o.destination, o.seq LIMIT %(limit)s) AS d
GROUP BY d.destination, d.place ORDER BY min(d.departed_at) LIMIT 100

-- name: count_held_keys
-- By the database that their jobs have moved to.
SELECT s.place, count(*), (extract(epoch FROM clock_timestamp() - min(s.stopped_at)))::float8
FROM (SELECT o.place, o.stopped_at FROM holdfast.order_stop o WHERE o.moved_to IS NOT NULL LIMIT %(limit)s) AS s
GROUP BY s.place ORDER BY min(s.stopped_at) LIMIT 100

-- part: moved_chain
-- Where the chain of an open blocker is, if none of its jobs is here.
LATERAL (
    SELECT d.place, u.new_chain_id FROM (
        SELECT m.job_id, m.new_chain_id, m.departure FROM holdfast.moved m WHERE m.job_id = b.chain_id AND m.chain_id IS NULL
        UNION ALL SELECT m.job_id, m.new_chain_id, m.departure FROM holdfast.moved m WHERE m.chain_id = b.chain_id) AS u
        JOIN holdfast.departure d ON d.id = u.departure
    WHERE NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = b.chain_id AND j.chain_id IS NULL)
        AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.chain_id = b.chain_id)
    ORDER BY u.job_id DESC LIMIT 1) AS gone

-- name: count_left_waiters
-- By the database that a chain has moved to that they wait for, of the oldest chains.
SELECT gone.place, count(DISTINCT b.job_id)
FROM (SELECT o.job_id, o.chain_id FROM holdfast.blocker o WHERE o.status IS NULL ORDER BY o.chain_id LIMIT %(limit)s) AS b, {{moved_chain}}
GROUP BY gone.place ORDER BY 2 DESC, 1 LIMIT 100

-- name: list_moved_blockers
SELECT b.chain_id, gone.place, gone.new_chain_id
FROM (SELECT o.chain_id FROM holdfast.blocker o WHERE o.job_id = %(id)s AND o.status IS NULL ORDER BY o.ordinal LIMIT %(limit)s) AS b, {{moved_chain}}
ORDER BY b.chain_id LIMIT %(limit)s

-- name: arrive_jobs
SELECT a.refused, a.job_ids, a.new_ids, a.chain_ids, a.made
FROM holdfast.arrive_jobs(%(departure)s::uuid, %(source)s::uuid, %(body)s::text) AS a

-- name: refuse_arrival
SELECT a.refused, a.job_ids, a.new_ids, a.chain_ids, a.made FROM holdfast.refuse_arrival(%(departure)s::uuid, %(source)s::uuid) AS a

-- name: mark_arrived
SELECT holdfast.mark_arrived(%(departure)s::uuid, %(ids)s::bigint[], %(new_ids)s::bigint[], %(chains)s::bigint[])

-- name: call_back_jobs
SELECT c.jobs, c.duplicates FROM holdfast.call_back_jobs(%(departure)s::uuid) AS c

-- name: unconfirmed_arrivals
SELECT a.departure::text FROM holdfast.arrival a WHERE a.confirmed_at IS NULL AND a.source = %(source)s::uuid LIMIT %(limit)s

-- name: unfinished_departures
-- Those of these batches that a mover may still deliver.
SELECT d.id::text FROM holdfast.departure d WHERE d.id = ANY (%(departures)s::uuid[]) AND d.arrived_at IS NULL

-- name: confirm_arrivals
SELECT holdfast.confirm_arrivals(%(departures)s::uuid[])

-- name: held_keys
-- Where all batches have arrived, the destination knows every job of the key that has left, until `stopped_at` changes.
SELECT s.order_key, s.stopped_at,
    NOT EXISTS (SELECT FROM holdfast.departure d WHERE d.destination = %(destination)s::uuid AND d.arrived_at IS NULL)
FROM holdfast.order_stop s
WHERE s.moved_to = %(destination)s::uuid AND s.job_id = 0 AND s.order_key > %(after)s::text ORDER BY s.order_key LIMIT %(limit)s

-- name: held_key
SELECT s.place FROM holdfast.order_stop s WHERE s.order_key = %(key)s::text AND s.job_id = 0 LIMIT 1

-- name: keys_under_way
-- Those of these order keys of which jobs that came from the source may not have ended: they are live here, with places before all others, or
-- the key is stopped here by a job that failed, or because its jobs moved on. Jobs that went back to the source are there once they have arrived.
SELECT k.name FROM unnest(%(keys)s::text[]) AS k (name)
WHERE EXISTS (SELECT FROM holdfast.job j WHERE j.order_key = k.name AND j.order_seq < 0)
    OR EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = k.name AND (s.moved_to IS DISTINCT FROM %(source)s::uuid
        OR EXISTS (SELECT FROM holdfast.departure d WHERE d.destination = %(source)s::uuid AND d.arrived_at IS NULL)))

-- name: release_key
SELECT holdfast.release_key(%(key)s::text, %(stopped)s::timestamptz)

-- part: stays
CASE WHEN j.status = 'processing' THEN 'running'
    WHEN j.order_key IS NOT NULL AND EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = j.order_key
        AND (s.job_id <> 0 OR s.moved_to IS DISTINCT FROM %(destination)s::uuid)) THEN 'key_stopped'
    WHEN j.order_key IS NOT NULL AND EXISTS (SELECT FROM holdfast.job r WHERE r.order_key = j.order_key AND r.status = 'processing')
        THEN 'key_running'
    WHEN j.blockers_left IS NOT NULL AND EXISTS (SELECT FROM holdfast.blocker b WHERE b.job_id = j.id AND b.status IS NULL
        AND holdfast.arrived_chain(b.chain_id, %(destination)s::uuid) IS NULL) THEN 'awaits_chain'
    ELSE 'movable' END

-- name: count_movable
-- By queue, kind and what keeps them here, of the oldest jobs: a table of millions would take too long.
SELECT c.queue, c.kind, c.stays, count(*) FROM (
    SELECT j.queue, j.kind, {{stays}} AS stays FROM (
        SELECT * FROM holdfast.job o WHERE o.id <= %(last)s::bigint
            AND (%(queues)s::text[] IS NULL OR o.queue = ANY (%(queues)s::text[])) AND (%(kinds)s::text[] IS NULL OR o.kind = ANY (%(kinds)s::text[]))
        ORDER BY o.id LIMIT %(limit)s) AS j) AS c
GROUP BY c.queue, c.kind, c.stays ORDER BY c.queue, c.kind, c.stays LIMIT 10000

-- name: find_moved
-- Where a job is now. Without a new id, it has not arrived.
SELECT m.job_id, d.place, m.new_id, m.new_chain_id, d.departed_at, d.arrived_at
FROM holdfast.moved m JOIN holdfast.departure d ON d.id = m.departure WHERE m.job_id = %(id)s LIMIT 1

-- name: find_moved_jobs
SELECT m.job_id, d.place, m.new_id, m.new_chain_id, d.departed_at, d.arrived_at
FROM holdfast.moved m JOIN holdfast.departure d ON d.id = m.departure WHERE m.job_id = ANY (%(ids)s::text::bigint[]) LIMIT %(limit)s

-- name: unserved_there
-- Those of these queues and kinds that no live worker of this database takes.
SELECT g.queue, g.kind FROM unnest(%(queues)s::text[], %(kinds)s::text[]) AS g (queue, kind)
WHERE NOT EXISTS (SELECT FROM holdfast.worker w WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute'
    AND g.queue = ANY (w.queues) AND g.kind = ANY (w.kinds))

-- name: delete_moved
SELECT holdfast.delete_moved(%(limit)s::integer)
