-- name: complete_job
-- As text first: see publish_event.
SELECT holdfast.complete_job(%(id)s, %(token)s, %(worker)s, %(result)s::text::json, %(next)s::text::json, %(ran_ms)s::real)

-- name: complete_batch
SELECT id, token, answer FROM holdfast.complete_batch(%(worker)s, %(endings)s)

-- name: complete_chain
SELECT holdfast.complete_chain(%(chain)s::bigint, %(result)s::text::json, %(next)s::text::json)

-- name: delete_chains
-- As text: asyncpg, on a caller's connection, would accept only a list for an array.
SELECT holdfast.delete_chains(%(chains)s::text::bigint[], %(cascade)s)

-- name: chain_ends
SELECT chain_id, job_id, coalesce(status::text, 'not_found'), result::text, error_code, error FROM holdfast.chain_ends(%(chains)s::bigint[])

-- name: unfinished_job
-- The live job of a chain, for the message of a wait that timed out. Live worker: a heartbeat within the last minute.
SELECT j.id, j.kind, j.queue, j.status::text, j.attempt, j.available_at > now() AS later,
    EXISTS (SELECT FROM holdfast.queue q WHERE q.name = j.queue AND q.paused) AS paused,
    EXISTS (SELECT FROM holdfast.worker w WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute'
        AND j.queue = ANY (w.queues) AND j.kind = ANY (w.kinds)) AS served,
    j.last_error_code, j.last_error
FROM holdfast.job j WHERE j.id = %(chain)s::bigint AND j.chain_id IS NULL OR j.chain_id = %(chain)s::bigint
ORDER BY j.id DESC LIMIT 1

-- The columns of a JobInfo, of a live job `j`, and of a job `h` that has ended.

-- part: live_info
j.id, coalesce(j.chain_id, j.id) AS chain_id, j.kind, j.queue, j.status::text, j.priority, j.attempt, j.max_attempts, j.created_at, j.available_at,
    NULL::timestamptz AS finished_at, j.unique_key, j.order_key, j.cancel_requested_at IS NOT NULL AS cancel_requested, NULL::text AS result,
    j.last_error_code, j.last_error, NULL::bigint AS next_id, j.replay_of,
    holdfast.chains_left(j.id, j.blockers_left) AS blockers_left,
    j.locked_by AS worker_id, j.headers::text, CASE WHEN %(payloads)s THEN j.payload END::text AS payload, j.claimed_at AS started_at,
    holdfast.group_progress(j.id, j.blockers_left) AS progress_of_group, j.tags::text[],
    j.progress, j.progress_note

-- part: ended_info
h.id, coalesce(h.chain_id, h.id), h.kind, h.queue, h.status::text, h.priority, h.attempt, h.max_attempts, h.created_at, h.available_at,
    h.finished_at, h.unique_key, h.order_key, false, h.result::text, h.last_error_code, h.last_error, h.next_id, h.replay_of, NULL, h.worker_id,
    h.headers::text, CASE WHEN %(payloads)s THEN h.payload END::text,
    CASE WHEN h.attempt = 1 AND h.first_due_at IS NULL THEN h.finished_at - h.ran_ms * interval '1 millisecond' END, NULL, h.tags::text[], NULL, NULL

-- part: info
found.id, found.chain_id, found.kind, found.queue, found.status, found.priority, found.attempt, found.max_attempts, found.created_at,
    found.available_at, found.finished_at, found.unique_key, found.order_key, found.cancel_requested, found.result, found.last_error_code,
    found.last_error, found.next_id, found.replay_of, found.blockers_left,
    (SELECT w.name FROM holdfast.worker w WHERE w.id = found.worker_id), found.started_at, found.progress_of_group, found.tags, found.headers, found.payload, found.progress,
    found.progress_note

-- name: read_chain
SELECT {{info}}
FROM (SELECT %(chain)s::bigint AS id) AS chain, LATERAL (
    SELECT {{live_info}} FROM holdfast.job j WHERE j.id = chain.id AND j.chain_id IS NULL OR j.chain_id = chain.id
    UNION ALL SELECT {{ended_info}} FROM holdfast.job_history h WHERE h.id = chain.id AND h.chain_id IS NULL OR h.chain_id = chain.id
    UNION ALL SELECT {{ended_info}} FROM holdfast.job_failed h WHERE h.id = chain.id AND h.chain_id IS NULL OR h.chain_id = chain.id) AS found
ORDER BY found.id DESC LIMIT %(limit)s

-- name: read_found_jobs
-- Jobs that a search has found, each with the time when it ended, or null. One that ended since then is searched for by its id.
SELECT {{info}}
FROM unnest(%(ids)s::text::bigint[], %(ended)s::text::timestamptz[]) AS g (id, ended), LATERAL (
    SELECT {{live_info}} FROM holdfast.job j WHERE j.id = g.id
    UNION ALL SELECT {{ended_info}} FROM holdfast.job_history h WHERE h.id = g.id AND h.finished_at = g.ended
    UNION ALL SELECT {{ended_info}} FROM holdfast.job_failed h WHERE h.id = g.id AND h.finished_at = g.ended
    UNION ALL SELECT {{ended_info}} FROM holdfast.job_history h WHERE h.id = g.id AND g.ended IS NULL
    UNION ALL SELECT {{ended_info}} FROM holdfast.job_failed h WHERE h.id = g.id AND g.ended IS NULL LIMIT 1) AS found
ORDER BY found.id DESC LIMIT %(limit)s

-- name: list_chains
-- By their first jobs, newest first, each with its last. A chain whose first job has expired from the history is not listed.
SELECT first.id, first.kind, last.id, last.kind, last.status::text, first.created_at, last.finished_at
FROM (SELECT %(kind)s::text AS kind, %(status)s::text AS status, %(before)s::bigint AS before) AS wanted, LATERAL (
        (SELECT j.id, j.kind, j.status, j.created_at, NULL::timestamptz AS finished_at, NULL::bigint AS next_id
         FROM holdfast.job j WHERE j.chain_id IS NULL AND j.id < wanted.before AND (wanted.kind IS NULL OR j.kind = wanted.kind))
        UNION ALL
        (SELECT h.id, h.kind, h.status, h.created_at, h.finished_at, h.next_id
         FROM holdfast.job_history h WHERE h.chain_id IS NULL AND h.id < wanted.before AND (wanted.kind IS NULL OR h.kind = wanted.kind))
        UNION ALL
        (SELECT f.id, f.kind, f.status, f.created_at, f.finished_at, f.next_id
         FROM holdfast.job_failed f WHERE f.chain_id IS NULL AND f.id < wanted.before AND (wanted.kind IS NULL OR f.kind = wanted.kind))
    ) AS first, LATERAL (
        SELECT found.* FROM (
            (SELECT first.id, first.kind, first.status, first.finished_at)
            UNION ALL (SELECT j.id, j.kind, j.status, NULL FROM holdfast.job j WHERE j.chain_id = first.id ORDER BY j.id DESC LIMIT 1)
            UNION ALL (SELECT h.id, h.kind, h.status, h.finished_at FROM holdfast.job_history h
                       WHERE h.chain_id = first.id ORDER BY h.id DESC LIMIT 1)
            UNION ALL (SELECT f.id, f.kind, f.status, f.finished_at FROM holdfast.job_failed f
                       WHERE f.chain_id = first.id ORDER BY f.id DESC LIMIT 1)) AS found
        ORDER BY found.id DESC LIMIT 1) AS last
WHERE wanted.status IS NULL OR last.status::text = wanted.status
ORDER BY first.id DESC LIMIT %(limit)s

-- name: read_blockers
-- A result that many jobs share comes with the first of them.
SELECT a.job_id, a.end_id, a.chain_id, a.status::text, a.result::text, a.error_code, a.error
FROM (
    SELECT false AS in_group, b.ordinal AS place, b.job_id, b.end_id, b.chain_id, b.status,
        CASE WHEN b.end_id IS NULL THEN b.result WHEN b.nth = 1 THEN k.result END AS result, coalesce(b.error_code, k.error_code) AS error_code,
        coalesce(b.error, k.error) AS error
    FROM (
        SELECT b.*, row_number() OVER (PARTITION BY b.end_id ORDER BY b.job_id, b.ordinal) AS nth
        FROM holdfast.blocker b WHERE b.job_id = ANY (%(jobs)s::bigint[]) AND (b.ordinal > 0 OR %(gathered)s)) AS b
        LEFT JOIN holdfast.kept_end k ON k.id = b.end_id
    UNION ALL
    SELECT true, m.place, m.group_id, NULL, m.chain_id, m.status, m.result, m.error_code, m.error
    FROM holdfast.members_of(%(jobs)s::bigint[]) AS m) AS a
ORDER BY a.job_id, a.in_group, a.place LIMIT %(most)s

-- name: read_group
SELECT holdfast.group_progress(j.id, j.blockers_left) FROM holdfast.job j WHERE j.id = %(id)s

-- name: release_waiters
SELECT holdfast.release_waiters(%(limit)s)

-- name: delete_kept_ends
-- Those that no waiter needs any more, among those after `since`.
WITH looked AS MATERIALIZED (SELECT k.id FROM holdfast.kept_end k WHERE k.id > %(since)s ORDER BY k.id LIMIT %(limit)s),
gone AS (
    DELETE FROM holdfast.kept_end k USING looked l
    WHERE k.id = l.id AND k.release_at IS NULL AND NOT EXISTS (SELECT FROM holdfast.blocker b WHERE b.end_id = k.id) RETURNING k.id)
SELECT CASE WHEN (SELECT count(*) FROM looked) = %(limit)s THEN (SELECT max(id) FROM looked) ELSE 0 END, (SELECT count(*) FROM gone)

-- name: delete_groups
SELECT until, gone FROM holdfast.delete_groups(%(since)s, %(limit)s)

-- name: repair_blockers
SELECT until, repaired FROM holdfast.repair_blockers(%(since)s, %(limit)s)

-- name: report_progress
SELECT id, token
FROM holdfast.report_progress(%(worker)s, %(ids)s::bigint[], %(tokens)s::bigint[], %(fractions)s::real[], %(notes)s::text[])
