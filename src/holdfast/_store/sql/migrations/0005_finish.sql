-- Writes after a claim: renewals and endings. Each names (id, lock_token, locked_by); a row that no longer matches is not touched, and the
-- answer is the reason. Nothing here waits for a row: it uses SKIP LOCKED, and answers `busy`.

-- Why a claim is lost. `busy`: it is held, but another transaction has the row locked now.
CREATE FUNCTION holdfast.lost_reason(job_id bigint, token bigint, worker bigint) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    ours boolean;
    ended holdfast.status;
BEGIN
    SELECT j.lock_token IS NOT DISTINCT FROM token AND j.locked_by IS NOT DISTINCT FROM worker INTO ours FROM holdfast.job j WHERE j.id = job_id;
    IF FOUND THEN
        RETURN CASE WHEN ours THEN 'busy' ELSE 'taken_by_another_worker' END;
    END IF;
    SELECT e.status INTO ended FROM holdfast.find_ended(job_id, now() - interval '7 days') AS e;
    RETURN CASE ended WHEN 'completed' THEN 'already_completed' WHEN 'cancelled' THEN 'cancelled'
        WHEN 'failed' THEN 'taken_by_another_worker' ELSE 'not_found' END;
END $$;

-- Renews every lease that a worker holds. Returns only claims with a special state: asked to stop (`cancelled`, but renewed), `busy`, or
-- why it is lost. NO KEY: a transaction that waits for this chain only prevents its row from leaving.
CREATE FUNCTION holdfast.renew_leases(worker bigint, ids bigint[], tokens bigint[], leases integer[])
    RETURNS TABLE (id bigint, token bigint, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_indexscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH given AS MATERIALIZED (SELECT * FROM unnest(ids, tokens, leases) AS g (id, token, lease)),
    held AS MATERIALIZED (
        SELECT j.id FROM holdfast.job j JOIN given g ON j.id = g.id AND j.lock_token = g.token
        WHERE j.id = ANY (ids) AND j.locked_by = worker ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED),
    renewed AS (
        UPDATE holdfast.job j SET locked_until = now() + g.lease * interval '1 millisecond' FROM given g
        WHERE j.id = ANY (ARRAY(SELECT id FROM held)) AND g.id = j.id AND g.token = j.lock_token RETURNING j.id, j.lock_token, j.cancel_requested_at IS NOT NULL AS stop)
    SELECT g.id, g.token, CASE WHEN r.stop THEN 'cancelled' ELSE holdfast.lost_reason(g.id, g.token, worker) END
    FROM given g LEFT JOIN renewed r ON r.id = g.id AND r.lock_token = g.token WHERE r.id IS NULL OR r.stop;
END $$;

-- Returns those claims of a worker that were cancelled or are lost, and why. A worker runs it when it is notified of a loss: any login can
-- send such a notification, so it only causes a check.
CREATE FUNCTION holdfast.check_claims(worker bigint, ids bigint[], tokens bigint[]) RETURNS TABLE (id bigint, token bigint, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT g.id, g.token, CASE WHEN j.id IS NULL THEN holdfast.lost_reason(g.id, g.token, worker) ELSE 'cancelled' END
    FROM unnest(ids, tokens) AS g (id, token)
        LEFT JOIN holdfast.job j ON j.id = g.id AND j.lock_token = g.token AND j.locked_by = worker
    WHERE j.id IS NULL OR j.cancel_requested_at IS NOT NULL;
END $$;

-- How one attempt ended. `holder` is the worker that claimed it.
CREATE TYPE holdfast.ending AS (
    id         bigint,
    token      bigint,
    holder     bigint,
    outcome    holdfast.outcome,
    delay_ms   bigint,
    result     json,
    error_code text,
    error      text,
    next       json,                -- the job that follows in the chain, if this one completes: an object of new_job's fields
    forget     boolean,             -- true: it was deleted, and nothing is kept of it
    next_id    bigint,              -- its id: given here
    verdict    holdfast.status,     -- what the job becomes: decided here, from the outcome and the row
    ran_ms     integer,             -- how long the handler ran; null: not known
    traceback  text,
    at         timestamptz          -- when it is to run again, in place of delay_ms
);

-- The common batch: completed, without order keys or blockers, and not itself a blocker. One statement; jobs in it that need more are
-- passed to settle_jobs. Returns only jobs that were not simply completed. `tokens` is one per job, or one for all; `results` is one per
-- job, or none; `ran`, the milliseconds that handlers ran, is one per job, with `ids` in ascending order, or one for all, or none. It does
-- not lock before it deletes, which would cost a tenth; it waits for a locked row at most 100 ms: then it fails with lock_not_available,
-- and settle_jobs does it without waiting. It gives up before the deadlock detector runs.
CREATE FUNCTION holdfast.complete_jobs(worker bigint, ids bigint[], tokens bigint[], results json[], ran integer[] DEFAULT '{}')
    RETURNS TABLE (id bigint, token bigint, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
    SET jit = off SET enable_seqscan = off SET enable_indexscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    done integer;
    chains bigint[];                -- of those that were not the first of theirs
    ran_all integer := CASE WHEN cardinality(ran) = 1 THEN ran[1] END;
    others holdfast.ending[];
BEGIN
    PERFORM holdfast.need_partitions();
    IF cardinality(tokens) = 1 AND cardinality(results) = 0 THEN
        -- The jobs of one claim without results need no join: 0.53 ms for 50 jobs instead of 0.61 ms with the statement below, so both are
        -- kept. `ran` is found by a binary search, in a copy of `ids` that is made once: the variable itself would be flattened for every row.
        WITH gone AS (
            DELETE FROM holdfast.job j
            WHERE j.id = ANY (ids) AND j.lock_token = tokens[1] AND j.locked_by = worker AND j.order_key IS NULL
                AND j.awaited IS NULL AND j.blockers_left IS NULL
            RETURNING j.id, j.created_at, j.available_at, j.lock_token, j.attempt, j.max_attempts, j.priority, j.payload_version, j.chain_id,
                j.replay_of, j.queue, j.kind, j.payload, j.headers, j.unique_key, j.last_error_code, j.last_error,
                coalesce(ran_all, ran[width_bucket(j.id, (SELECT ids))]) AS ran_ms),
        attempts AS (
            INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, ran_ms)
            SELECT id, now(), worker, lock_token, 'completed', attempt, ran_ms FROM gone WHERE attempt > 1),
        tallied AS (
            INSERT INTO holdfast.tally (minute, jobs, latency, latency_max, bucket, outcome, queue, kind)
            SELECT date_trunc('minute', now()), count(*), sum(now() - available_at), max(now() - available_at),
                holdfast.latency_bucket(now() - available_at), 'completed', queue, kind
            FROM gone GROUP BY queue, kind, 5),
        kept AS (
            INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, ran_ms, attempt, max_attempts, priority,
                payload_version, chain_id, replay_of, queue, kind, payload, headers, unique_key, last_error_code, last_error)
            SELECT id, created_at, available_at, now(), worker, 'completed', ran_ms, attempt, max_attempts, priority,
                payload_version, chain_id, replay_of, queue, kind, payload, headers, unique_key, last_error_code, last_error
            FROM gone)
        SELECT count(*), array_agg(chain_id) FILTER (WHERE chain_id IS NOT NULL) INTO done, chains FROM gone;
    ELSE
        WITH gone AS (
            DELETE FROM holdfast.job j USING unnest(ids, tokens, results, ran) AS g (id, token, result, ms)
            WHERE j.id = ANY (ids) AND j.id = g.id AND j.lock_token = coalesce(g.token, tokens[1]) AND j.locked_by = worker AND j.order_key IS NULL
                AND j.awaited IS NULL AND j.blockers_left IS NULL
            RETURNING j.id, j.created_at, j.available_at, j.lock_token, j.attempt, j.max_attempts, j.priority, j.payload_version, j.chain_id,
                j.replay_of, j.queue, j.kind, j.payload, j.headers, j.unique_key, j.last_error_code, j.last_error, g.result,
                coalesce(ran_all, g.ms) AS ran_ms),
        attempts AS (
            INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, ran_ms)
            SELECT id, now(), worker, lock_token, 'completed', attempt, ran_ms FROM gone WHERE attempt > 1),
        tallied AS (
            INSERT INTO holdfast.tally (minute, jobs, latency, latency_max, bucket, outcome, queue, kind)
            SELECT date_trunc('minute', now()), count(*), sum(now() - available_at), max(now() - available_at),
                holdfast.latency_bucket(now() - available_at), 'completed', queue, kind
            FROM gone GROUP BY queue, kind, 5),
        kept AS (
            INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, ran_ms, attempt, max_attempts, priority,
                payload_version, chain_id, replay_of, queue, kind, payload, headers, result, unique_key, last_error_code, last_error)
            SELECT id, created_at, available_at, now(), worker, 'completed', ran_ms, attempt, max_attempts, priority,
                payload_version, chain_id, replay_of, queue, kind, payload, headers, result, unique_key, last_error_code, last_error
            FROM gone)
        SELECT count(*), array_agg(chain_id) FILTER (WHERE chain_id IS NOT NULL) INTO done, chains FROM gone;
    END IF;
    -- A statement of its own, after the delete. Nearly always no client waits, and this one look-up is the only cost.
    IF EXISTS (SELECT FROM holdfast.watcher WHERE until > now()) THEN
        PERFORM holdfast.notify_watchers(c.ended, ARRAY(SELECT 'ended ' || e FROM unnest(c.ended) AS e)) FROM (SELECT ids || chains AS ended) AS c;
    END IF;
    IF done = cardinality(ids) THEN
        RETURN;
    END IF;
    -- Jobs that are in the history now are done; but the same job may be given twice, also under the token of an earlier claim.
    WITH asked AS MATERIALIZED (
        SELECT g.id, coalesce(g.token, tokens[1]) AS token, g.result, coalesce(ran_all, g.ms) AS ran_ms
        FROM unnest(ids, tokens, results, ran) AS g (id, token, result, ms))
    SELECT array_agg(ROW (a.id, a.token, worker, 'completed', NULL, a.result, NULL, NULL, NULL, NULL, NULL, NULL, a.ran_ms, NULL, NULL)::holdfast.ending) INTO others
    FROM asked a
    WHERE a.id NOT IN (SELECT h.id FROM holdfast.job_history h WHERE h.id = ANY (ids) AND h.finished_at = now() AND h.worker_id = worker)
       OR a.token < (SELECT max(o.token) FROM asked o WHERE o.id = a.id);
    -- Still held, but not for the fast way: another job waits for it, or it waited for others. Or lost: settle_jobs finds out why.
    RETURN QUERY SELECT s.id, s.token, s.answer FROM holdfast.settle_jobs(others) AS s;
END $$;

-- The work of settle_jobs, for endings that may fail together. Four steps: lock the own rows; lock the other rows they affect, which are
-- the keys of jobs that leave, their successors, and the jobs that wait for their chains; write; promote. It does not wait for a
-- transaction that keeps one of these locks: the ending that needs it is `busy`.
CREATE FUNCTION holdfast.settle_batch(given holdfast.ending[]) RETURNS TABLE (id bigint, token bigint, answer text, next_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    clock timestamptz := clock_timestamp();
    settled holdfast.ending[];
    keyed bigint[];                 -- jobs that leave an order key
    ends bigint[];                  -- chains that end here
    enders bigint[];                -- jobs that end a chain for which another job waits
    waiters bigint[] := '{}';
    named bigint[];                 -- jobs whose next comes after other chains
    had_blockers bigint[];
    leaving bigint[];
    successors bigint[];
    following bigint[];             -- the jobs that follow in their chains
    busy bigint[] := '{}';
BEGIN
    PERFORM holdfast.need_partitions();
    given := ARRAY(SELECT DISTINCT ON (g.id, g.token, g.holder) g FROM unnest(given) AS g ORDER BY g.id, g.token, g.holder);
    ids := ARRAY(SELECT g.id FROM unnest(given) AS g);
    WITH held AS MATERIALIZED (
        SELECT g.*, j.order_key, coalesce(j.chain_id, j.id) AS chain_id, j.awaited, j.blockers_left,
            CASE WHEN g.outcome IN ('completed', 'failed', 'cancelled') THEN g.outcome::text::holdfast.status
                 WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                 WHEN g.outcome IN ('retry', 'lost') AND j.attempt >= j.max_attempts THEN 'failed'
                 ELSE 'pending' END AS became
        FROM holdfast.job j JOIN unnest(given) AS g ON j.id = g.id AND j.lock_token = g.token AND j.locked_by = g.holder
        WHERE j.id = ANY (ids) ORDER BY j.id FOR UPDATE OF j SKIP LOCKED),
    decided AS MATERIALIZED (
        SELECT h.*, CASE WHEN became = 'completed' AND next IS NOT NULL THEN nextval('holdfast.job_id_seq') END AS follower FROM held h)
    SELECT coalesce(array_agg(ROW (id, token, holder, outcome, delay_ms, result, error_code, error, next, forget, follower,
            became, ran_ms, traceback, at)::holdfast.ending), '{}'),
        coalesce(array_agg(id) FILTER (WHERE order_key IS NOT NULL AND became <> 'pending'), '{}'),
        array_agg(chain_id) FILTER (WHERE became <> 'pending' AND follower IS NULL),
        coalesce(array_agg(id) FILTER (WHERE became <> 'pending' AND follower IS NULL AND awaited), '{}'),
        coalesce(array_agg(id) FILTER (WHERE follower IS NOT NULL AND next -> 'blockers' IS NOT NULL), '{}'),
        coalesce(array_agg(id) FILTER (WHERE became <> 'pending' AND blockers_left IS NOT NULL), '{}')
    INTO settled, keyed, ends, enders, named, had_blockers FROM decided;

    IF current_setting('transaction_isolation') <> 'read committed' AND keyed || enders || named <> '{}' THEN
        PERFORM holdfast.need_own_jobs(keyed || enders || named,
            ARRAY(SELECT j.order_key FROM holdfast.job j WHERE j.id = ANY (keyed)));
    END IF;
    IF keyed <> '{}' THEN
        busy := holdfast.lock_order_keys(keyed);
    END IF;
    IF named <> '{}' THEN
        busy := busy || holdfast.hold_named_chains(ARRAY(SELECT s FROM unnest(settled) AS s WHERE s.id = ANY (named)));
    END IF;
    IF enders <> '{}' THEN
        SELECT w.locked, busy || w.stuck INTO waiters, busy FROM holdfast.lock_waiters(enders) AS w;
    END IF;
    IF keyed <> '{}' THEN
        SELECT n.locked, busy || n.stuck INTO successors, busy
        FROM holdfast.lock_successors(ARRAY(SELECT s FROM unnest(settled) AS s WHERE s.id = ANY (keyed) AND s.id <> ALL (busy))) AS n;
    END IF;
    IF busy <> '{}' THEN
        settled := ARRAY(SELECT s FROM unnest(settled) AS s WHERE s.id <> ALL (busy));
    END IF;

    IF waiters <> '{}' THEN
        PERFORM holdfast.update_waiters(waiters, ARRAY(
            SELECT ROW (coalesce(j.chain_id, j.id), j.id, s.verdict, s.result, s.error_code, s.error)::holdfast.chain_end
            FROM holdfast.job j JOIN unnest(settled) AS s ON s.id = j.id WHERE j.id = ANY (enders)));
    END IF;

    leaving := ARRAY(SELECT s.id FROM unnest(settled) AS s WHERE s.verdict <> 'pending');
    IF leaving <> '{}' THEN
        PERFORM holdfast.leave_jobs(settled, clock);
        IF had_blockers <> '{}' THEN
            DELETE FROM holdfast.blocker b WHERE b.job_id = ANY (had_blockers) AND b.job_id = ANY (leaving);
        END IF;
    END IF;
    following := ARRAY(SELECT s.next_id FROM unnest(settled) AS s WHERE s.next_id IS NOT NULL);
    IF following <> '{}' THEN
        PERFORM holdfast.check_following(settled);
    END IF;

    IF cardinality(leaving) < cardinality(settled) THEN
        PERFORM holdfast.give_back_jobs(settled, clock);
    END IF;

    IF successors <> '{}' THEN
        UPDATE holdfast.job j SET status = 'pending', available_at = greatest(j.available_at, clock),
            later = holdfast.is_later(j.available_at, NULL, clock)
        WHERE j.id = ANY (successors);
    END IF;

    IF EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock) THEN
        PERFORM holdfast.wake_sleepers(array_agg(j.queue), array_agg(j.kind)) FROM holdfast.job j
        WHERE j.id = ANY (ids || successors || waiters || following) AND j.status = 'pending' HAVING count(*) > 0;
    END IF;
    IF EXISTS (SELECT FROM holdfast.watcher WHERE until > clock) THEN
        PERFORM holdfast.notify_watchers(ends, ARRAY(SELECT 'ended ' || e FROM unnest(ends) AS e));
    END IF;

    RETURN QUERY SELECT g.id, g.token, coalesce(s.verdict::text, holdfast.lost_reason(g.id, g.token, g.holder)), s.next_id
    FROM unnest(given) AS g LEFT JOIN unnest(settled) AS s ON s.id = g.id AND s.token = g.token;
END $$;

-- Moves ended jobs to the history or to the dead letters, and writes all that depends on it.
CREATE FUNCTION holdfast.leave_jobs(settled holdfast.ending[], clock timestamptz) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    IF EXISTS (SELECT FROM unnest(settled) AS s WHERE s.verdict = 'failed') THEN
        INSERT INTO holdfast.order_stop (order_key, job_id, stopped_at)
        SELECT j.order_key, j.id, clock FROM holdfast.job j
        WHERE j.id = ANY (ARRAY(SELECT s.id FROM unnest(settled) AS s WHERE s.verdict = 'failed')) AND j.order_block AND j.order_key IS NOT NULL
        ON CONFLICT (order_key) DO UPDATE SET job_id = excluded.job_id, stopped_at = excluded.stopped_at;
    END IF;
    WITH gone AS (
        DELETE FROM holdfast.job j WHERE j.id = ANY (ARRAY(SELECT s.id FROM unnest(settled) AS s WHERE s.verdict <> 'pending')) RETURNING j.*),
    ended AS MATERIALIZED (
        SELECT gone.*, s.verdict, s.outcome, s.result, s.error, s.error_code, s.next, s.next_id, s.ran_ms, s.traceback, coalesce(s.forget, false) AS forget
        FROM gone JOIN unnest(settled) AS s ON s.id = gone.id),
    kept AS (
        INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, ran_ms, attempt, max_attempts, priority,
            payload_version, order_block, chain_id, replay_of, order_seq, queue, kind, payload, headers, result, order_key, unique_key,
            last_error_code, last_error, next_id)
        SELECT id, created_at, available_at, clock, nullif(locked_by, 0), verdict, ran_ms, attempt, max_attempts, priority, payload_version,
            order_block, chain_id, replay_of, order_seq, queue, kind, payload, headers, result, order_key, unique_key,
            coalesce(error_code, last_error_code), coalesce(error, last_error), next_id
        FROM ended WHERE verdict <> 'failed' AND NOT forget),
    buried AS (
        INSERT INTO holdfast.job_failed (id, created_at, available_at, finished_at, worker_id, status, ran_ms, attempt, max_attempts, priority,
            payload_version, order_block, chain_id, replay_of, order_seq, queue, kind, payload, headers, order_key, unique_key,
            last_error_code, last_error, run_anyway, blockers)
        SELECT id, created_at, available_at, clock, locked_by, verdict, ran_ms, attempt, max_attempts, priority, payload_version, order_block,
            chain_id, replay_of, order_seq, queue, kind, payload, headers, order_key, unique_key,
            coalesce(error_code, last_error_code), coalesce(error, last_error), run_anyway, CASE WHEN blockers_left IS NOT NULL THEN
                ARRAY(SELECT b.chain_id FROM holdfast.blocker b WHERE b.job_id = ended.id ORDER BY b.ordinal) END
        FROM ended WHERE verdict = 'failed'),
    -- From the deleted rows, so that the next jobs may take their unique keys. In the same order key they take their place.
    followed AS (
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
            chain_id, order_seq, queue, kind, payload, headers, order_key, unique_key, status, blockers_left, run_anyway, awaited, later)
        SELECT e.next_id, clock, holdfast.due_at(n.at, n.delay_ms, clock), nullif(coalesce(n.max_attempts, 3), -1), coalesce(n.priority, 5),
            holdfast.shard_of(e.next_id, n.order_key), n.payload_version, nullif(n.order_block, false),
            coalesce(n.expires_at, clock + n.expires_ms * interval '1 millisecond'), coalesce(e.chain_id, e.id),
            CASE WHEN n.order_key = e.order_key THEN e.order_seq WHEN n.order_key IS NOT NULL THEN e.next_id END,
            coalesce(n.queue, 'default'), n.kind, n.payload, coalesce(n.headers, e.headers), n.order_key, n.unique_key,
            CASE WHEN cardinality(n.blockers) > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status,
            nullif(cardinality(n.blockers), 0), nullif(n.run_anyway, false), e.awaited, holdfast.is_later(n.at, n.delay_ms, clock)
        FROM ended e, LATERAL json_populate_record(NULL::holdfast.new_job, e.next) AS n WHERE e.next_id IS NOT NULL
        ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING),
    attempts AS (
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, error_code, error, ran_ms, traceback)
        SELECT id, clock, locked_by, lock_token, CASE WHEN outcome = 'lost' THEN 'lost' ELSE verdict::text::holdfast.outcome END,
            attempt, error_code, error, ran_ms, traceback
        FROM ended WHERE (attempt > 1 OR verdict <> 'completed') AND locked_by <> 0)
    INSERT INTO holdfast.tally (minute, jobs, latency, latency_max, bucket, outcome, queue, kind)
    SELECT date_trunc('minute', clock), count(*), sum(clock - available_at) FILTER (WHERE locked_by <> 0),
        max(clock - available_at) FILTER (WHERE locked_by <> 0),
        CASE WHEN locked_by <> 0 THEN holdfast.latency_bucket(clock - available_at) END, verdict::text::holdfast.outcome, queue, kind
    FROM ended WHERE NOT forget GROUP BY verdict, queue, kind, 5;
END $$;

-- Returns jobs that run again to their queues.
CREATE FUNCTION holdfast.give_back_jobs(settled holdfast.ending[], clock timestamptz) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    -- Never into the past: a job that reappears below the claim floors would wait for a wide scan. A release and a reschedule do not use up
    -- the attempt.
    WITH back AS (
        UPDATE holdfast.job j SET status = 'pending', locked_until = NULL, lock_token = NULL, locked_by = NULL,
            available_at = holdfast.due_at(s.at, s.delay_ms, clock),
            attempt = j.attempt - CASE WHEN s.outcome IN ('released', 'reschedule') THEN 1 ELSE 0 END,
            -- A job whose worker was lost is a suspect until it ends in any other way. One that a worker releases has not ended.
            suspect = CASE WHEN s.outcome = 'lost' THEN least(coalesce(j.suspect + 1, 0), 32767)
                           WHEN s.outcome = 'released' AND s.error_code = 'lost_in_trial' THEN 1
                           WHEN s.outcome = 'released' AND coalesce(s.delay_ms, 0) = 0 THEN j.suspect END,
            -- A suspect has an index of its own.
            later = CASE WHEN s.outcome <> 'lost' AND s.error_code IS DISTINCT FROM 'lost_in_trial' THEN holdfast.is_later(s.at, s.delay_ms, clock) END,
            progress = NULL, progress_note = NULL,
            last_error_code = coalesce(s.error_code, j.last_error_code), last_error = coalesce(s.error, j.last_error)
        FROM unnest(settled) AS s
        WHERE j.id = ANY (ARRAY(SELECT x.id FROM unnest(settled) AS x WHERE x.verdict = 'pending')) AND s.id = j.id
        RETURNING j.id, s.holder, s.token, s.outcome, s.error_code, s.error, s.ran_ms, s.traceback, j.attempt, j.queue, j.kind),
    attempts AS (
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, error_code, error, ran_ms, traceback)
        SELECT id, clock, holder, token, outcome, attempt + CASE WHEN outcome IN ('released', 'reschedule') THEN 1 ELSE 0 END,
            error_code, error, ran_ms, traceback FROM back)
    INSERT INTO holdfast.tally (minute, jobs, latency, latency_max, outcome, queue, kind)
    SELECT date_trunc('minute', clock), count(*), NULL, NULL, outcome, queue, kind FROM back GROUP BY outcome, queue, kind;
END $$;

-- Ends a mixed batch in one call: plain completions as complete_jobs takes them, and all other endings. `endings` is the text of a
-- JSON array of objects whose keys are the fields of `ending`. `next_id`: the job that follows in the chain.
CREATE FUNCTION holdfast.finish_jobs(worker bigint, ids bigint[], tokens bigint[], results json[], endings text, ran integer[] DEFAULT '{}')
    RETURNS TABLE (id bigint, token bigint, answer text, next_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF ids <> '{}' THEN
        RETURN QUERY SELECT c.id, c.token, c.answer, NULL::bigint FROM holdfast.complete_jobs(worker, ids, tokens, results, ran) AS c;
    END IF;
    RETURN QUERY SELECT * FROM holdfast.settle_jobs(ARRAY(
        SELECT ROW (e.id, e.token, worker, e.outcome, e.delay_ms, e.result, e.error_code, e.error, e.next, NULL, NULL, NULL, e.ran_ms,
            e.traceback, e.at)::holdfast.ending
        FROM json_populate_recordset(NULL::holdfast.ending, endings::json) AS e));
END $$;

-- Takes back jobs whose lease expired, oldest first. The attempt was counted at the claim. Any of these jobs may have ended the process of
-- its worker, so they run apart from then on. If the worker is lost again while it runs other suspects too, the attempt does not count, and
-- the job runs alone. If it is lost while the job runs alone, the job has ended the process.
--   kinds    null: all of them
--   delays   JSON: kind to the list of retry delays in milliseconds, by attempt; the last one repeats; '*' is for kinds not listed
-- leases that ended before are left to a wider pass: below are the dead entries of old leases
CREATE FUNCTION holdfast.reap_jobs(kinds text[], delays json, jitter_ms integer, since timestamptz, most integer)
    RETURNS TABLE (id bigint, kind text, worker_id bigint, lock_token bigint, attempt smallint, locked_until timestamptz, answer text,
        error_code text, error text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    expired holdfast.job[];
    endings holdfast.ending[];
BEGIN
    WITH due AS MATERIALIZED (
        SELECT j AS lost FROM holdfast.job j
        WHERE j.status = 'processing' AND j.locked_until < now() AND j.locked_until >= since AND (kinds IS NULL OR j.kind = ANY (kinds))
        ORDER BY j.locked_until LIMIT most FOR UPDATE SKIP LOCKED)
    SELECT array_agg(lost) INTO expired FROM due;
    IF expired IS NULL THEN
        RETURN;
    END IF;
    endings := ARRAY(
        SELECT ROW (x.id, x.lock_token, x.locked_by, CASE WHEN x.suspect = 0 THEN 'released' ELSE 'lost' END,
            coalesce((d.list ->> least(x.attempt, json_array_length(d.list)) - 1)::bigint, 0) + (random() * jitter_ms)::bigint, NULL,
            CASE WHEN x.suspect IS NULL THEN 'lease_expired' WHEN x.suspect = 0 THEN 'lost_in_trial' ELSE 'crashed_alone' END,
            CASE WHEN x.suspect > 0 THEN 'the worker''s process ended while this job ran alone, '
                                         || CASE x.suspect WHEN 1 THEN 'once' ELSE x.suspect || ' times' END
                 ELSE 'worker ' || x.locked_by || ' did not renew the lease' END,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL)::holdfast.ending
        FROM unnest(expired) AS x, LATERAL (SELECT coalesce(delays -> x.kind, delays -> '*', '[0]') AS list) AS d);
    RETURN QUERY
    SELECT x.id, x.kind, x.locked_by, x.lock_token, x.attempt, x.locked_until, s.answer, e.error_code, e.error
    FROM holdfast.settle_jobs(endings) AS s JOIN unnest(expired) AS x ON x.id = s.id JOIN unnest(endings) AS e ON e.id = s.id
    ORDER BY x.locked_until;
    -- The holder may be alive, only slow: notified now, it need not wait for its next heartbeat to find out.
    PERFORM pg_notify('holdfast_' || x.locked_by, format('lost %s %s taken_by_another_worker', x.id, x.lock_token))
    FROM unnest(expired) AS x
        LEFT JOIN holdfast.job j ON j.id = ANY (ARRAY(SELECT e.id FROM unnest(expired) AS e))
            AND j.id = x.id AND j.lock_token = x.lock_token AND j.locked_by = x.locked_by
    WHERE j.id IS NULL;
END $$;
