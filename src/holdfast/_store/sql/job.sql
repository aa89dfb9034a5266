-- The statements of the worker. The functions in schema/ explain what they do, and why.

-- name: enqueue_job
SELECT holdfast.enqueue(%(kind)s::text, %(payload)s::text::json, %(queue)s::text, %(priority)s::integer, %(max_attempts)s::integer,
    headers => %(headers)s::text::json)

-- name: enqueue_jobs
SELECT id, chain_id, created FROM holdfast.enqueue_jobs(%(jobs)s, %(plain)s)

-- name: enqueue_group
SELECT id, chain_id, created FROM holdfast.enqueue_group(%(jobs)s, %(last)s, %(run_anyway)s, %(plain)s)

-- name: claim_jobs
SELECT * FROM holdfast.claim_jobs(%(worker)s, %(queues)s::text[], %(slots)s::integer[], %(limit)s::integer, %(start)s::integer,
    %(kinds)s::text[], %(leases)s::integer[], %(lease_kinds)s::text[], %(lane_queues)s::text[], %(lane_kinds)s::text[],
    %(lane_levels)s::smallint[], %(lane_times)s::timestamptz[], %(lane_ids)s::bigint[], %(reach)s::interval,
    %(shard_from)s::smallint, %(shard_to)s::smallint, %(windows)s::integer, %(first_window)s::integer,
    %(later_at)s::timestamptz, %(later_id)s::bigint)

-- name: claim_named
-- The jobs of these ids, whatever else is due. A name is not proof: the job is taken only if the worker may claim it anyway, and not if
-- claim_jobs would have to decide something about it. A locked row cannot move before the statement ends, so its ctid identifies it.
UPDATE holdfast.job j SET status = 'processing', claimed_at = now(), attempt = least(j.attempt + 1, 32767), locked_by = %(worker)s::bigint,
    lock_token = (SELECT nextval('holdfast.token')), locked_until = now() + (%(leases)s::integer[])
        [coalesce(array_position(%(lease_kinds)s::text[], j.kind), 0) + 1] * interval '1 millisecond'
WHERE j.ctid = ANY (ARRAY(
    SELECT i.ctid FROM holdfast.job i
    WHERE i.id = ANY (%(ids)s::bigint[]) AND i.status = 'pending' AND {{due}} AND {{plain}}
        AND i.queue = ANY (%(queues)s::text[]) AND i.kind = ANY (%(kinds)s::text[])
        AND i.shard BETWEEN %(shard_from)s::smallint AND %(shard_to)s::smallint
        AND NOT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = i.queue AND q.paused)
    FOR NO KEY UPDATE OF i SKIP LOCKED))
RETURNING {{claimed}}

-- The parts of plain claims. `due`: as the index of pending jobs has it, where scheduled jobs and suspects stand apart. `plain`: nothing has to be
-- decided about the job. `claimed`: the columns of claim_jobs.

-- name: claim_plain
-- The jobs of one queue that claim_jobs would take next: from the floors of these lanes on, most urgent first, then oldest. It takes nothing
-- where more has to be decided: if it asks for all windows and one is taken, a scheduled job is due, the queue is paused, a priority between the lanes has a due job
-- (kinds, lows, highs), or one of the next jobs is not plain. It leaves what is less urgent than all lanes. The snapshot is a little older
-- than the lock of the window: rows that another claim took in between are passed over, and locked until the statement ends.
-- windows: 0, it scans all and locks none. 8, it locks and scans all. Else it locks and scans one, the first free one from first_window on, and
-- if none is free, it scans all.
WITH free AS MATERIALIZED (
    SELECT 8 * (w & 7) AS first_shard, 8 * (w & 7) + 7 AS last_shard
    FROM generate_series(%(first_window)s::integer, %(first_window)s::integer + 7) AS w
    WHERE %(windows)s::integer NOT IN (0, 8)
        AND (SELECT pg_try_advisory_xact_lock_shared(hashtext('holdfast.claim ' || %(queue)s::text), 8))
        AND pg_try_advisory_xact_lock(hashtext('holdfast.claim ' || %(queue)s::text), w & 7) LIMIT 1),
seen AS MATERIALIZED (
    SELECT * FROM free UNION ALL SELECT 0, 63 WHERE NOT EXISTS (SELECT FROM free)
        AND CASE %(windows)s::integer WHEN 8 THEN pg_try_advisory_xact_lock(hashtext('holdfast.claim ' || %(queue)s::text), 8) ELSE true END)
UPDATE holdfast.job j SET status = 'processing', claimed_at = now(), attempt = least(j.attempt + 1, 32767), locked_by = %(worker)s::bigint,
    lock_token = (SELECT nextval('holdfast.token')), locked_until = now() + (%(leases)s::integer[])
        [coalesce(array_position(%(lease_kinds)s::text[], j.kind), 0) + 1] * interval '1 millisecond'
WHERE j.ctid = ANY ((
    SELECT CASE WHEN bool_and(next.plain) THEN array_agg(next.ctid) END FROM (
        SELECT f.ctid, f.plain
        FROM seen, unnest(%(lane_kinds)s::text[], %(lane_levels)s::smallint[], %(lane_times)s::timestamptz[], %(lane_ids)s::bigint[])
            AS l (kind, level, since, last), LATERAL (
            SELECT i.ctid, i.priority, i.available_at, i.id, {{plain}} AS plain FROM holdfast.job i
            WHERE i.status = 'pending' AND {{due}} AND i.queue = %(queue)s::text AND i.kind = l.kind AND i.priority = l.level
                AND (i.available_at, i.id) > (CASE WHEN l.since <= now() THEN l.since ELSE '-infinity' END, l.last)
                AND i.shard BETWEEN seen.first_shard AND seen.last_shard
            ORDER BY i.available_at, i.id LIMIT %(limit)s::integer FOR NO KEY UPDATE SKIP LOCKED) AS f
        WHERE NOT EXISTS (SELECT FROM holdfast.job s WHERE s.later AND s.status = 'pending'
                AND s.priority = ANY ('{0,1,2,3,4,5,6,7,8,9}'::smallint[]) AND s.available_at <= now())
            AND NOT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = %(queue)s::text AND q.paused)
            AND NOT EXISTS (SELECT FROM unnest(%(kinds)s::text[], %(lows)s::smallint[], %(highs)s::smallint[]) AS r (kind, low, high), LATERAL (
                SELECT FROM holdfast.job i
                WHERE i.status = 'pending' AND {{due}} AND i.queue = %(queue)s::text AND i.kind = r.kind
                    AND i.priority BETWEEN r.low AND r.high LIMIT 1) AS other)
        ORDER BY f.priority, f.available_at, f.id LIMIT %(limit)s::integer) AS next)::tid[])
RETURNING {{claimed}}

-- part: due
i.later IS NULL AND i.suspect IS NULL AND i.available_at <= now()

-- part: plain
(i.order_key IS NULL AND i.limits IS NULL AND i.tenant IS NULL)

-- part: claimed
j.id, j.lock_token, j.queue, j.kind, j.payload::text, j.headers::text, coalesce(j.payload_version, 1::smallint), j.attempt,
    j.max_attempts, j.priority, j.available_at, coalesce(j.chain_id, j.id), j.order_key, coalesce(j.expires_at <= now(), false),
    j.cancel_requested_at IS NOT NULL, j.created_at > now() - interval '10 minutes', j.blockers_left IS NOT NULL,
    j.blocker_failed IS TRUE AND j.run_anyway IS NOT TRUE, (1000000 * date_part('epoch', j.created_at))::bigint,
    (1000000 * date_part('epoch', j.claimed_at - j.available_at))::bigint

-- name: shorten_leases
SELECT holdfast.shorten_leases()

-- name: claim_suspects
SELECT * FROM holdfast.claim_suspects(%(worker)s, %(queues)s::text[], %(kinds)s::text[], %(leases)s::integer[], %(limit)s)

-- name: next_suspect
SELECT pg_catalog.date_part('epoch', holdfast.next_suspect(%(queues)s::text[], %(kinds)s::text[]))

-- name: renew_leases
SELECT id, token, answer FROM holdfast.renew_leases(%(worker)s, %(ids)s::bigint[], %(tokens)s::bigint[], %(leases)s::integer[])

-- name: check_claims
SELECT id, token, answer FROM holdfast.check_claims(%(worker)s, %(ids)s::bigint[], %(tokens)s::bigint[])

-- name: complete_jobs
SELECT id, token, answer FROM holdfast.complete_jobs(%(worker)s, %(ids)s::bigint[], %(tokens)s::bigint[], %(results)s::json[],
    %(ran)s::real[])

-- name: complete_plain
-- As complete_jobs, without the function around it. Returns null if all were completed, else the ids of those that were. It needs the partitions
-- of today, and completes nothing without them. Every part of the statement but notify_ended has one snapshot: that looks for
-- watchers in a later one, when the transaction has an id.
WITH gone AS (
    DELETE FROM holdfast.job j USING unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(results)s::json[], %(ran)s::real[]) AS g (id, token, result, ms)
    WHERE j.id = g.id AND j.lock_token = coalesce(g.token, (%(tokens)s::bigint[])[1]) AND j.locked_by = %(worker)s::bigint
        AND j.order_key IS NULL AND j.awaited IS NULL AND j.blockers_left IS NULL AND j.steps IS NULL AND j.limits IS NULL
        AND (SELECT to_regclass('holdfast.job_history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL
            AND set_config('lock_timeout', '100ms', true) IS NOT NULL)
    RETURNING j.id, j.created_at, j.available_at, j.lock_token, j.attempt, j.max_attempts, j.priority, j.payload_version, j.chain_id,
        j.replay_of, j.group_id, j.queue, j.kind, j.payload, j.headers, j.unique_key, j.last_error_code, j.last_error, j.tags,
        j.first_due_at, holdfast.waited(j.available_at, j.claimed_at) AS waited, j.claimed_at, j.waited_ms, j.ran_ms, g.result,
        coalesce(g.ms, (SELECT (%(ran)s::real[])[1] WHERE cardinality(%(ran)s::real[]) = 1)) AS ms),
attempts AS (
    INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, ran_ms, due_at, claimed_at)
    SELECT id, now(), %(worker)s::bigint, lock_token, 'completed', attempt, ms, available_at, claimed_at FROM gone
    WHERE attempt > 1 OR first_due_at IS NOT NULL),
tallied AS (
    INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)
    SELECT date_trunc('minute', now()), sum(n) FILTER (WHERE ran IS NULL), array_agg(512 * n + coalesce(ran + 256, waited)), 'completed', queue, kind
    FROM (SELECT queue, kind, holdfast.time_bucket(waited) AS waited, holdfast.time_bucket(ms) AS ran, count(*) AS n
          FROM gone GROUP BY GROUPING SETS ((queue, kind, 3), (queue, kind, 4))) AS t
    GROUP BY queue, kind),
kept AS (
    INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, ran_ms, waited_ms, first_due_at,
        attempt, max_attempts, priority,
        payload_version, chain_id, replay_of, queue, kind, payload, headers, result, unique_key, last_error_code, last_error, tags)
    SELECT id, created_at, available_at, now(), %(worker)s::bigint, 'completed', holdfast.with_before(ms, ran_ms),
        holdfast.with_before(waited, waited_ms), first_due_at, attempt, max_attempts, priority,
        payload_version, chain_id, replay_of, queue, kind, payload, headers, result, unique_key, last_error_code, last_error, tags
    FROM gone)
SELECT CASE WHEN done.jobs < cardinality(%(ids)s::bigint[]) THEN coalesce(done.ids, '{}') END, holdfast.notify_ended(done.ids || done.chains),
    CASE WHEN done.groups IS NOT NULL THEN holdfast.end_members(done.groups, done.member_chains, done.results) END
FROM (SELECT count(*) AS jobs, array_agg(id) AS ids, array_agg(chain_id) FILTER (WHERE chain_id IS NOT NULL) AS chains,
        array_agg(group_id) FILTER (WHERE group_id IS NOT NULL) AS groups, array_agg(coalesce(chain_id, id)) FILTER (WHERE group_id IS NOT NULL) AS member_chains,
        array_agg(result) FILTER (WHERE group_id IS NOT NULL) AS results FROM gone) AS done

-- name: finish_jobs
SELECT id, token, next_id, answer FROM holdfast.finish_jobs(%(worker)s, %(ids)s::bigint[], %(tokens)s::bigint[], %(results)s::json[], %(endings)s,
    %(ran)s::real[])

-- name: release_strays
SELECT id FROM holdfast.release_strays(%(worker)s, %(ids)s::bigint[], %(tokens)s::bigint[], %(identity)s::uuid)

-- name: reap_jobs
-- One row at least, with the time of the pass, whether the clock was set back since the last heartbeat of a worker or the last landmark,
-- and the workers that died: those without a heartbeat for a whole lease of theirs, each found
-- once. It looks back a day at most, so that it never scans all workers that ever died. The worker's row gets the time of the pass without
-- waiting, if its last time is long ago: each write costs a transaction id. Idle workers send it: with qualified names it needs no
-- transaction behind a pooler.
WITH recorded AS (
    UPDATE holdfast.worker SET reaped_at = pg_catalog.now()
    WHERE id OPERATOR(pg_catalog.=) (SELECT w.id FROM holdfast.worker w WHERE w.id OPERATOR(pg_catalog.=) %(worker)s
        AND coalesce(w.reaped_at OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => %(seconds)s::float8))
            OR w.reaped_at OPERATOR(pg_catalog.>) pg_catalog.now(), true)
        FOR UPDATE SKIP LOCKED) RETURNING id),
died AS (
    UPDATE holdfast.worker AS lost SET stop_reason = 'lost' FROM (
        SELECT w.id FROM holdfast.worker w
        WHERE w.stopped_at IS NULL AND w.stop_reason IS NULL AND w.id OPERATOR(pg_catalog.<>) %(worker)s
            AND w.heartbeat_at OPERATOR(pg_catalog.>) (pg_catalog.now() OPERATOR(pg_catalog.-) pg_catalog.make_interval(days => 1))
            AND w.heartbeat_at OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) pg_catalog.make_interval(
                secs => coalesce(w.settings OPERATOR(pg_catalog.->>) 'processing_timeout_ms', '60000')::float8 OPERATOR(pg_catalog./) 1000))
        ORDER BY w.heartbeat_at LIMIT 100 FOR UPDATE SKIP LOCKED) AS silent
    WHERE lost.id OPERATOR(pg_catalog.=) silent.id RETURNING lost.id, lost.name, lost.host, lost.pid, lost.heartbeat_at)
SELECT pg_catalog.now(), coalesce((SELECT true FROM holdfast.worker w WHERE w.stopped_at IS NULL
        AND w.heartbeat_at OPERATOR(pg_catalog.>) (pg_catalog.now() OPERATOR(pg_catalog.+) '1 minute'::interval) LIMIT 1),
        (SELECT true FROM holdfast.landmark l WHERE l.at OPERATOR(pg_catalog.>) (pg_catalog.now() OPERATOR(pg_catalog.+) '1 minute'::interval) LIMIT 1)),
    (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(d.id, d.name, d.host, d.pid, d.heartbeat_at)) FROM died d)::text,
    r.id, r.kind, r.worker_id, r.lock_token, r.attempt, r.locked_until, pg_catalog.now() OPERATOR(pg_catalog.-) r.locked_until, r.error_code, r.error, r.answer
FROM (SELECT) AS pass LEFT JOIN holdfast.reap_jobs(%(kinds)s::text[], %(delays)s::json, %(jitter_ms)s, %(since)s::timestamptz, %(limit)s) AS r
    ON true

-- name: cancel_job
SELECT holdfast.cancel_job(%(id)s::bigint)

-- name: replay_job
SELECT holdfast.replay_job(%(id)s, again => %(again)s)

-- name: resume_order_key
SELECT holdfast.resume_order_key(%(key)s)

-- name: get_job
SELECT g.id, g.chain_id, g.kind, g.queue, g.status, g.priority, g.attempt, g.max_attempts, g.created_at, g.available_at, g.finished_at,
    g.unique_key, g.order_key, g.cancel_requested, g.result::text, g.error_code, g.error, g.next_id, g.replay_of,
    g.blockers_left, g.worker, g.started_at, g.progress_of_group, g.tags, g.headers::text, g.payload::text, g.progress, g.progress_note
FROM holdfast.get_job(%(id)s) AS g

-- name: retry_job
SELECT r.answer, r.made, r.chain_id, r.kind, r.queue FROM holdfast.retry_job(%(id)s, again => %(again)s) AS r

-- name: reschedule_job
SELECT holdfast.reschedule_job(%(id)s, coalesce(%(due)s::text::timestamptz, clock_timestamp() + make_interval(secs => %(seconds)s::float8)))
