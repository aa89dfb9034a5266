-- name: complete_job
-- As text first: see publish_event.
SELECT holdfast.complete_job(%(id)s, %(token)s, %(worker)s, %(result)s::text::json, %(next)s::text::json, %(ran_ms)s::integer)

-- name: complete_batch
SELECT id, token, answer FROM holdfast.complete_batch(%(worker)s, %(endings)s)

-- name: complete_chain
SELECT answer, m.place, m.moved_id
FROM holdfast.complete_chain(%(chain)s::bigint, %(result)s::text::json, %(next)s::text::json) AS answer,
    LATERAL holdfast.place_after(answer, %(chain)s::bigint, true) AS m

-- name: delete_chains
-- As text: asyncpg, on a caller's connection, would accept only a list for an array.
SELECT holdfast.delete_chains(%(chains)s::text::bigint[], %(cascade)s)

-- name: chain_ends
SELECT chain_id, job_id, coalesce(status::text, CASE WHEN error_code = 'moved' THEN 'moved' ELSE 'not_found' END), result::text, error_code, error FROM holdfast.chain_ends(%(chains)s::bigint[])

-- name: unfinished_job
-- The live job of a chain, for the message of a wait that timed out. Live worker: a heartbeat within the last minute.
SELECT j.id, j.kind, j.queue, j.status::text, j.attempt, j.available_at > now() AS later,
    EXISTS (SELECT FROM holdfast.queue q WHERE q.name = j.queue AND q.paused) AS paused,
    EXISTS (SELECT FROM holdfast.worker w WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 minute'
        AND j.queue = ANY (w.queues) AND j.kind = ANY (w.kinds)) AS served
FROM holdfast.job j WHERE j.id = %(chain)s::bigint AND j.chain_id IS NULL OR j.chain_id = %(chain)s::bigint
ORDER BY j.id DESC LIMIT 1

-- name: read_chain
SELECT found.id, found.kind, coalesce(found.status::text, 'moved'), found.queue, found.attempt, found.created_at, found.available_at, found.finished_at,
    found.result::text, found.last_error_code, found.last_error, found.next_id, found.replay_of, found.blockers_left, found.progress,
    found.progress_note
FROM (SELECT %(chain)s::bigint AS id) AS chain, LATERAL (
    SELECT j.id, j.kind, j.status, j.queue, j.attempt, j.created_at, j.available_at, NULL::timestamptz AS finished_at, NULL::json AS result,
        j.last_error_code, j.last_error, NULL::bigint AS next_id, j.replay_of, j.blockers_left, j.progress, j.progress_note
    FROM holdfast.job j WHERE j.id = chain.id AND j.chain_id IS NULL OR j.chain_id = chain.id
    UNION ALL
    SELECT h.id, h.kind, h.status, h.queue, h.attempt, h.created_at, h.available_at, h.finished_at, h.result,
        h.last_error_code, h.last_error, h.next_id, h.replay_of, NULL, NULL, NULL
    FROM holdfast.job_history h WHERE h.id = chain.id AND h.chain_id IS NULL OR h.chain_id = chain.id
    UNION ALL
    SELECT f.id, f.kind, f.status, f.queue, f.attempt, f.created_at, f.available_at, f.finished_at, NULL,
        f.last_error_code, f.last_error, f.next_id, f.replay_of, NULL, NULL, NULL
    FROM holdfast.job_failed f WHERE f.id = chain.id AND f.chain_id IS NULL OR f.chain_id = chain.id
    UNION ALL
    SELECT m.job_id, '', NULL, '', 0, d.departed_at, d.departed_at, d.arrived_at, NULL, NULL, d.place, m.new_chain_id, NULL, NULL, NULL, NULL
    FROM holdfast.moved m JOIN holdfast.departure d ON d.id = m.departure
    WHERE m.job_id = chain.id AND m.chain_id IS NULL OR m.chain_id = chain.id) AS found
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
SELECT job_id, chain_id, status::text, result::text, error_code, error FROM holdfast.blocker
WHERE job_id = ANY (%(jobs)s::bigint[]) ORDER BY job_id, ordinal

-- name: repair_blockers
SELECT until, repaired FROM holdfast.repair_blockers(%(since)s, %(limit)s)

-- name: report_progress
SELECT id, token
FROM holdfast.report_progress(%(worker)s, %(ids)s::bigint[], %(tokens)s::bigint[], %(fractions)s::real[], %(notes)s::text[])
