-- How attempts end. Each ending names (id, lock_token, locked_by); a row that no longer matches is not touched, and the answer is the reason.
-- Nothing here waits for a row: it uses SKIP LOCKED, and answers `busy`.

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
    next       json,                -- the job that follows in the chain, if this one completes: an object of new_job's fields, and `group`:
                                    -- a list of others, after whose chains it runs
    forget     boolean,             -- true: it was deleted, and nothing is kept of it
    next_id    bigint,              -- its id: given here
    verdict    holdfast.status,     -- what the job becomes: decided here, from the outcome and the row
    ran_ms     real,                -- how long the handler ran; null: not known
    traceback  text,
    at         timestamptz,         -- when it is to run again, in place of delay_ms
    log        text
);

-- The common batch: completed, without order keys, limits or blockers, and not itself a blocker. One statement; jobs in it that need more are
-- passed to settle_jobs. Returns only jobs that were not simply completed. `tokens` is one per job, or one for all; `results` is one per
-- job, or none; `ran`, the milliseconds that handlers ran, is one per job, with `ids` in ascending order, or one for all, or none. It does
-- not lock before it deletes, which would cost a tenth; it waits for a locked row at most 100 ms: then it fails with lock_not_available,
-- and settle_jobs does it without waiting. It gives up before the deadlock detector runs.
-- Called by finish_jobs, job.sql complete_jobs.
CREATE FUNCTION holdfast.complete_jobs(worker bigint, ids bigint[], tokens bigint[], results json[], ran real[] DEFAULT '{}')
    RETURNS TABLE (id bigint, token bigint, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
    SET jit = off SET enable_seqscan = off SET enable_indexscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    done integer;
    chains bigint[];                -- of those that were not the first of theirs
    groups bigint[];                -- of those that are in one, with their chains and results
    member_chains bigint[];
    member_results json[];
    ran_all real := CASE WHEN cardinality(ran) = 1 THEN ran[1] END;
    others holdfast.ending[];
BEGIN
    PERFORM holdfast.need_partitions();
    IF cardinality(tokens) = 1 AND cardinality(results) = 0 THEN
        -- The jobs of one claim without results need no join: 0.53 ms for 50 jobs instead of 0.61 ms with the statement below, so both are
        -- kept. `ran` is found by a binary search, in a copy of `ids` that is made once: the variable itself would be flattened for every row.
        WITH gone AS (
            DELETE FROM holdfast.job j
            WHERE j.id = ANY (ids) AND j.lock_token = tokens[1] AND j.locked_by = worker AND j.order_key IS NULL
                AND j.awaited IS NULL AND j.blockers_left IS NULL AND j.steps IS NULL AND j.limits IS NULL
            RETURNING j.id, j.created_at, j.available_at, j.lock_token, j.attempt, j.max_attempts, j.priority, j.payload_version, j.chain_id, j.group_id,
                j.replay_of, j.queue, j.kind, j.payload, j.headers, j.unique_key, j.last_error_code, j.last_error, j.tags,
                j.first_due_at, holdfast.waited(j.available_at, j.claimed_at) AS waited, j.claimed_at, j.waited_ms, j.ran_ms,
                coalesce(ran_all, ran[width_bucket(j.id, (SELECT ids))]) AS ms),
        attempts AS (
            INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, ran_ms, due_at, claimed_at)
            SELECT id, now(), worker, lock_token, 'completed', attempt, ms, available_at, claimed_at FROM gone
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
                payload_version, chain_id, replay_of, queue, kind, payload, headers, unique_key, last_error_code, last_error, tags)
            SELECT id, created_at, available_at, now(), worker, 'completed', holdfast.with_before(ms, ran_ms),
                holdfast.with_before(waited, waited_ms), first_due_at, attempt, max_attempts, priority,
                payload_version, chain_id, replay_of, queue, kind, payload, headers, unique_key, last_error_code, last_error, tags
            FROM gone)
        SELECT count(*), array_agg(chain_id) FILTER (WHERE chain_id IS NOT NULL), array_agg(group_id) FILTER (WHERE group_id IS NOT NULL),
            array_agg(coalesce(chain_id, id)) FILTER (WHERE group_id IS NOT NULL), '{}' INTO done, chains, groups, member_chains, member_results FROM gone;
    ELSE
        WITH gone AS (
            DELETE FROM holdfast.job j USING unnest(ids, tokens, results, ran) AS g (id, token, result, ms)
            WHERE j.id = ANY (ids) AND j.id = g.id AND j.lock_token = coalesce(g.token, tokens[1]) AND j.locked_by = worker AND j.order_key IS NULL
                AND j.awaited IS NULL AND j.blockers_left IS NULL AND j.steps IS NULL AND j.limits IS NULL
            RETURNING j.id, j.created_at, j.available_at, j.lock_token, j.attempt, j.max_attempts, j.priority, j.payload_version, j.chain_id, j.group_id,
                j.replay_of, j.queue, j.kind, j.payload, j.headers, j.unique_key, j.last_error_code, j.last_error, j.tags,
                j.first_due_at, holdfast.waited(j.available_at, j.claimed_at) AS waited, j.claimed_at, j.waited_ms, j.ran_ms, g.result,
                coalesce(ran_all, g.ms) AS ms),
        attempts AS (
            INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, ran_ms, due_at, claimed_at)
            SELECT id, now(), worker, lock_token, 'completed', attempt, ms, available_at, claimed_at FROM gone
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
            SELECT id, created_at, available_at, now(), worker, 'completed', holdfast.with_before(ms, ran_ms),
                holdfast.with_before(waited, waited_ms), first_due_at, attempt, max_attempts, priority,
                payload_version, chain_id, replay_of, queue, kind, payload, headers, result, unique_key, last_error_code, last_error, tags
            FROM gone)
        SELECT count(*), array_agg(chain_id) FILTER (WHERE chain_id IS NOT NULL), array_agg(group_id) FILTER (WHERE group_id IS NOT NULL),
            array_agg(coalesce(chain_id, id)) FILTER (WHERE group_id IS NOT NULL), array_agg(result) FILTER (WHERE group_id IS NOT NULL)
        INTO done, chains, groups, member_chains, member_results FROM gone;
    END IF;
    IF groups IS NOT NULL THEN
        PERFORM holdfast.end_members(groups, member_chains, member_results);
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
    SELECT array_agg(ROW (a.id, a.token, worker, 'completed', NULL, a.result, NULL, NULL, NULL, NULL, NULL, NULL, a.ran_ms, NULL, NULL, NULL)::holdfast.ending) INTO others
    FROM asked a
    WHERE a.id NOT IN (SELECT h.id FROM holdfast.job_history h WHERE h.id = ANY (ids) AND h.finished_at = now() AND h.worker_id = worker)
       OR a.token < (SELECT max(o.token) FROM asked o WHERE o.id = a.id);
    -- Still held, but not for the fast way: another job waits for it, or it waited for others. Or lost: settle_jobs finds out why.
    RETURN QUERY SELECT s.id, s.token, s.answer FROM holdfast.settle_jobs(others) AS s;
END $$;

-- The work of settle_jobs, for endings that may fail together. Four steps: lock the own rows; lock the other rows they affect, which are
-- the keys of jobs that leave, their successors, the keys of limits, and the jobs that wait for their chains; write; promote. It does not wait for a
-- transaction that keeps one of these locks: the ending that needs it is `busy`.
-- Called by settle_jobs, settle_apart.
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
    crowded bigint[];               -- chains that end here, and whose waiters release_waiters releases
    named bigint[];                 -- jobs whose next comes after other chains
    had_blockers bigint[];
    stories bigint[];               -- jobs that have recorded steps
    leaving bigint[];
    successors bigint[];
    limited bigint[];               -- jobs with limits
    grouped bigint[];               -- jobs whose next comes after a group that is enqueued now
    members bigint[];               -- jobs that end a chain of a group
    dead bigint[];                  -- dead letters that have a job for that ...
    dead_rows holdfast.job[];       -- ... and their rows, which are gone then
    limit_keys text[];
    limit_heads bigint[];           -- parked jobs that may be promoted ...
    head_keys text[];               -- ... and for which of these keys
    following bigint[];             -- the jobs that follow in their chains, or on failures
    busy bigint[] := '{}';
BEGIN
    PERFORM holdfast.need_partitions();
    given := ARRAY(SELECT DISTINCT ON (g.id, g.token, g.holder) g FROM unnest(given) AS g ORDER BY g.id, g.token, g.holder);
    ids := ARRAY(SELECT g.id FROM unnest(given) AS g);
    WITH held AS MATERIALIZED (
        SELECT g.*, j.order_key, coalesce(j.chain_id, j.id) AS chain_id, j.awaited, j.blockers_left, j.steps, j.limits, j.group_id,
            j.on_failure IS NOT NULL AS reports,
            CASE WHEN g.outcome IN ('completed', 'failed', 'cancelled') THEN g.outcome::text::holdfast.status
                 WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                 WHEN g.outcome IN ('retry', 'lost') AND j.attempt >= j.max_attempts THEN 'failed'
                 ELSE 'pending' END AS became
        FROM holdfast.job j JOIN unnest(given) AS g ON j.id = g.id AND j.lock_token = g.token AND j.locked_by = g.holder
        WHERE j.id = ANY (ids) ORDER BY j.id FOR UPDATE OF j SKIP LOCKED),
    decided AS MATERIALIZED (
        SELECT h.*, CASE WHEN became = 'completed' AND next IS NOT NULL THEN nextval('holdfast.job_id_seq') END AS follower FROM held h)
    SELECT coalesce(array_agg(ROW (id, token, holder, outcome, delay_ms, result, error_code, error, next, forget, follower,
            became, ran_ms, traceback, at, log)::holdfast.ending), '{}'),
        coalesce(array_agg(id) FILTER (WHERE order_key IS NOT NULL AND became <> 'pending'), '{}'),
        array_agg(chain_id) FILTER (WHERE became <> 'pending' AND follower IS NULL),
        coalesce(array_agg(id) FILTER (WHERE became <> 'pending' AND follower IS NULL AND awaited), '{}'),
        coalesce(array_agg(id) FILTER (WHERE follower IS NOT NULL AND next -> 'blockers' IS NOT NULL), '{}'),
        coalesce(array_agg(id) FILTER (WHERE became <> 'pending' AND blockers_left IS NOT NULL), '{}'),
        coalesce(array_agg(id) FILTER (WHERE steps), '{}'),
        coalesce(array_agg(id) FILTER (WHERE limits IS NOT NULL), '{}'),
        coalesce(array_agg(id) FILTER (WHERE became = 'failed' AND reports), '{}'),
        coalesce(array_agg(id) FILTER (WHERE follower IS NOT NULL AND next -> 'group' IS NOT NULL), '{}'),
        coalesce(array_agg(id) FILTER (WHERE became <> 'pending' AND follower IS NULL AND group_id IS NOT NULL), '{}')
    INTO settled, keyed, ends, enders, named, had_blockers, stories, limited, dead, grouped, members FROM decided;

    -- An old snapshot may lack a message to a story: it would neither rouse the story nor leave with it.
    IF current_setting('transaction_isolation') <> 'read committed' AND keyed || enders || named || stories <> '{}' THEN
        PERFORM holdfast.need_own_jobs(keyed || enders || named || stories,
            ARRAY(SELECT j.order_key FROM holdfast.job j WHERE j.id = ANY (keyed)));
    END IF;
    IF keyed <> '{}' THEN
        busy := holdfast.lock_order_keys(keyed);
    END IF;
    IF named <> '{}' THEN
        busy := busy || holdfast.hold_named_chains(ARRAY(SELECT s FROM unnest(settled) AS s WHERE s.id = ANY (named)));
    END IF;
    IF enders <> '{}' THEN
        SELECT w.locked, busy || w.stuck, w.crowded INTO waiters, busy, crowded FROM holdfast.lock_waiters(enders) AS w;
    END IF;
    IF keyed <> '{}' THEN
        SELECT n.locked, busy || n.stuck INTO successors, busy
        FROM holdfast.lock_successors(ARRAY(SELECT s FROM unnest(settled) AS s WHERE s.id = ANY (keyed) AND s.id <> ALL (busy))) AS n;
    END IF;
    IF limited <> '{}' THEN
        SELECT l.keys, l.heads, l.head_keys, busy || l.stuck INTO limit_keys, limit_heads, head_keys, busy FROM holdfast.lock_limits(limited) AS l;
    END IF;
    IF members <> '{}' AND NOT holdfast.lock_members(members) THEN
        busy := busy || members;
    END IF;
    IF busy <> '{}' THEN
        settled := ARRAY(SELECT s FROM unnest(settled) AS s WHERE s.id <> ALL (busy));
        limited := ARRAY(SELECT l FROM unnest(limited) AS l WHERE l <> ALL (busy));
    END IF;

    IF waiters <> '{}' OR crowded <> '{}' THEN
        PERFORM holdfast.end_chains(ARRAY(SELECT s FROM unnest(settled) AS s WHERE s.id = ANY (enders)), waiters, crowded);
    END IF;

    IF members <> '{}' THEN
        waiters := waiters || holdfast.end_chains_of_groups(ARRAY(SELECT s FROM unnest(settled) AS s WHERE s.id = ANY (members)));
    END IF;

    leaving := ARRAY(SELECT s.id FROM unnest(settled) AS s WHERE s.verdict <> 'pending');
    IF leaving <> '{}' THEN
        IF dead <> '{}' THEN
            dead_rows := ARRAY(SELECT j FROM holdfast.job j WHERE j.id = ANY (dead) AND j.id <> ALL (busy) ORDER BY j.id);
        END IF;
        PERFORM holdfast.leave_jobs(settled, clock);
        IF had_blockers <> '{}' THEN
            DELETE FROM holdfast.blocker b WHERE b.job_id = ANY (had_blockers) AND b.job_id = ANY (leaving);
        END IF;
        IF stories <> '{}' THEN
            PERFORM holdfast.delete_steps(ARRAY(SELECT unnest(stories) INTERSECT SELECT unnest(leaving)));
        END IF;
    END IF;
    following := ARRAY(SELECT s.next_id FROM unnest(settled) AS s WHERE s.next_id IS NOT NULL);
    IF following <> '{}' THEN
        PERFORM holdfast.check_following(settled);
        IF grouped <> '{}' THEN
            PERFORM holdfast.enqueue_members(s.next_id, (s.next -> 'group')::text) FROM unnest(settled) AS s WHERE s.id = ANY (grouped);
        END IF;
    END IF;
    IF dead_rows IS NOT NULL THEN
        following := following || holdfast.enqueue_on_failure(dead_rows, settled);
    END IF;

    IF cardinality(leaving) < cardinality(settled) THEN
        PERFORM holdfast.give_back_jobs(settled, clock);
        IF stories <> '{}' THEN
            PERFORM holdfast.rouse_stories(ARRAY(SELECT s.id FROM unnest(settled) AS s WHERE s.outcome = 'reschedule' AND s.id = ANY (stories)));
        END IF;
    END IF;

    IF successors <> '{}' THEN
        UPDATE holdfast.job j SET status = 'pending', available_at = greatest(j.available_at, clock),
            later = holdfast.is_later(j.available_at, NULL, clock)
        WHERE j.id = ANY (successors);
    END IF;

    IF limited <> '{}' THEN
        PERFORM holdfast.leave_limits(limited, limit_keys, limit_heads, head_keys);
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
-- Called by settle_batch.
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
        SELECT gone.*, s.verdict, s.outcome, s.result, s.error, s.error_code, s.next, s.next_id, s.ran_ms AS ms, holdfast.waited(gone.available_at, gone.claimed_at) AS waited,
            s.traceback, s.log, coalesce(s.forget, false) AS forget
        FROM gone JOIN unnest(settled) AS s ON s.id = gone.id),
    kept AS (
        INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, ran_ms, waited_ms, first_due_at,
                attempt, max_attempts, priority,
            payload_version, order_block, chain_id, replay_of, order_seq, queue, kind, payload, headers, result, order_key, unique_key,
            last_error_code, last_error, next_id, tags, steps)
        SELECT id, created_at, available_at, clock, nullif(locked_by, 0), verdict, holdfast.with_before(ms, ran_ms),
            holdfast.with_before(waited, waited_ms), first_due_at, attempt, max_attempts, priority, payload_version,
            order_block, chain_id, replay_of, order_seq, queue, kind, payload, headers, result, order_key, unique_key,
            coalesce(error_code, last_error_code), coalesce(error, last_error), next_id, tags,
            CASE WHEN steps THEN holdfast.journal_of(id) END
        FROM ended WHERE verdict <> 'failed' AND NOT forget),
    buried AS (
        INSERT INTO holdfast.job_failed (id, created_at, available_at, finished_at, worker_id, status, ran_ms, waited_ms, first_due_at,
                attempt, max_attempts, priority,
            payload_version, order_block, chain_id, replay_of, order_seq, queue, kind, payload, headers, order_key, unique_key,
            last_error_code, last_error, run_anyway, limits, on_failure, tenant, tags, blockers, steps)
        SELECT id, created_at, available_at, clock, locked_by, verdict, holdfast.with_before(ms, ran_ms),
            holdfast.with_before(waited, waited_ms), first_due_at, attempt, max_attempts, priority, payload_version, order_block,
            chain_id, replay_of, order_seq, queue, kind, payload, headers, order_key, unique_key,
            coalesce(error_code, last_error_code), coalesce(error, last_error), run_anyway, limits, on_failure, tenant, tags, CASE WHEN blockers_left IS NOT NULL THEN
                nullif(ARRAY(SELECT b.chain_id FROM holdfast.blocker b WHERE b.job_id = ended.id AND b.ordinal > 0 ORDER BY b.ordinal)
                    || ARRAY(SELECT m.chain_id FROM holdfast.members_of(ARRAY[ended.id]) AS m ORDER BY m.place), '{}') END,
            CASE WHEN steps THEN holdfast.journal_of(id) END
        FROM ended WHERE verdict = 'failed'),
    -- From the deleted rows, so that the next jobs may take their unique keys. In the same order key they take their place.
    followed AS (
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
            chain_id, group_id, order_seq, queue, kind, payload, headers, order_key, unique_key, status, blockers_left, run_anyway, awaited, later,
            limits, on_failure, tenant, tags)
        SELECT e.next_id, clock, holdfast.due_at(n.at, n.delay_ms, clock), nullif(coalesce(n.max_attempts, 3), -1), coalesce(n.priority, 5),
            holdfast.shard_of(e.next_id, n.order_key), n.payload_version, nullif(n.order_block, false),
            coalesce(n.expires_at, clock + n.expires_ms * interval '1 millisecond'), coalesce(e.chain_id, e.id), e.group_id,
            CASE WHEN n.order_key = e.order_key THEN e.order_seq WHEN n.order_key IS NOT NULL THEN e.next_id END,
            coalesce(n.queue, 'default'), n.kind, n.payload, coalesce(n.headers, e.headers), n.order_key, n.unique_key,
            CASE WHEN cardinality(n.blockers) > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status,
            nullif(cardinality(n.blockers), 0), nullif(n.run_anyway, false), e.awaited, holdfast.is_later(n.at, n.delay_ms, clock), n.limits, n.on_failure, n.tenant, n.tags
        FROM ended e, LATERAL json_populate_record(NULL::holdfast.new_job, e.next) AS n WHERE e.next_id IS NOT NULL
        ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING),
    attempts AS (
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, error_code, error, ran_ms, traceback, log, due_at, claimed_at)
        SELECT id, clock, locked_by, lock_token, CASE WHEN outcome = 'lost' THEN 'lost' ELSE verdict::text::holdfast.outcome END,
            attempt, error_code, error, ms, traceback, log, available_at, claimed_at
        FROM ended WHERE (attempt > 1 OR first_due_at IS NOT NULL OR verdict <> 'completed') AND locked_by <> 0)
    INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)
    SELECT date_trunc('minute', clock), sum(n) FILTER (WHERE ran IS NULL), array_agg(512 * n + coalesce(ran + 256, waited)), verdict::text::holdfast.outcome,
        queue, kind
    FROM (SELECT verdict, queue, kind, holdfast.time_bucket(waited) AS waited, holdfast.time_bucket(ms) AS ran, count(*) AS n
          FROM ended WHERE NOT forget GROUP BY GROUPING SETS ((verdict, queue, kind, 4), (verdict, queue, kind, 5))) AS t
    GROUP BY verdict, queue, kind;
END $$;

-- Enqueues the jobs that were given for the case that these become dead letters. Each reads how its chain failed as a blocker that it did not
-- wait for, so that nothing here can wait or fail. It has the headers of the dead letter, unless it has its own.
-- Called by settle_batch.
CREATE FUNCTION holdfast.enqueue_on_failure(dead holdfast.job[], settled holdfast.ending[]) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    -- Null: a job with its unique key was there.
    made bigint[] := ARRAY(
        SELECT CASE WHEN e.created THEN e.id END
        FROM holdfast.enqueue_unique_jobs(ARRAY(
            SELECT json_populate_record(json_populate_record(NULL::holdfast.new_job, json_build_object('headers', d.headers)), d.on_failure)
            FROM unnest(dead) WITH ORDINALITY AS d ORDER BY d.ordinality)) WITH ORDINALITY AS e (id, chain_id, created, place)
        ORDER BY e.place);
BEGIN
    INSERT INTO holdfast.blocker (job_id, chain_id, ordinal, status, error_code, error)
    SELECT m.made, coalesce(m.chain_id, m.id), 1, 'failed', coalesce(s.error_code, m.last_error_code), coalesce(s.error, m.last_error)
    FROM unnest(made, dead) AS m (made) JOIN unnest(settled) AS s ON s.id = m.id WHERE m.made IS NOT NULL;
    UPDATE holdfast.job j SET blockers_left = 0, run_anyway = true WHERE j.id = ANY (made);
    RETURN array_remove(made, NULL);
END $$;

-- Returns jobs that run again to their queues.
-- Called by settle_batch.
CREATE FUNCTION holdfast.give_back_jobs(settled holdfast.ending[], clock timestamptz) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    -- Never into the past: a job that reappears below the claim floors would wait for a wide scan. A release and a reschedule do not use up
    -- the attempt.
    WITH held AS MATERIALIZED (
        SELECT h.id, h.available_at, h.claimed_at FROM holdfast.job h
        WHERE h.id = ANY (ARRAY(SELECT x.id FROM unnest(settled) AS x WHERE x.verdict = 'pending'))),
    back AS (
        UPDATE holdfast.job j SET status = 'pending', locked_until = NULL, lock_token = NULL, locked_by = NULL, claimed_at = NULL,
            first_due_at = coalesce(j.first_due_at, was.available_at),
            waited_ms = holdfast.with_before(holdfast.waited(was.available_at, was.claimed_at), j.waited_ms),
            ran_ms = holdfast.with_before(s.ran_ms, j.ran_ms),
            available_at = holdfast.due_at(s.at, s.delay_ms, clock),
            attempt = j.attempt - CASE WHEN s.outcome IN ('released', 'reschedule') THEN 1 ELSE 0 END,
            -- A job whose worker was lost is a suspect until it ends in any other way. One that a worker releases has not ended.
            suspect = CASE WHEN s.outcome = 'lost' THEN least(coalesce(j.suspect + 1, 0), 32767)
                           WHEN s.outcome = 'released' AND s.error_code = 'lost_in_trial' THEN 1
                           WHEN s.outcome = 'released' AND coalesce(s.delay_ms, 0) = 0 THEN j.suspect END,
            -- A suspect has an index of its own.
            later = CASE WHEN s.outcome <> 'lost' AND s.error_code IS DISTINCT FROM 'lost_in_trial' THEN holdfast.is_later(s.at, s.delay_ms, clock) END,
            progress = NULL, progress_note = NULL, limit_key = NULL,
            last_error_code = coalesce(s.error_code, j.last_error_code), last_error = coalesce(s.error, j.last_error)
        FROM unnest(settled) AS s, held AS was
        WHERE j.id = ANY (ARRAY(SELECT h.id FROM held h)) AND s.id = j.id AND was.id = j.id
        RETURNING j.id, s.holder, s.token, s.outcome, s.error_code, s.error, s.ran_ms, s.traceback, s.log, j.attempt, j.queue, j.kind,
            was.available_at AS due_at, was.claimed_at),
    attempts AS (
        INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, lock_token, outcome, attempt, error_code, error, ran_ms, traceback, log, due_at, claimed_at)
        SELECT id, clock, holder, token, outcome, attempt + CASE WHEN outcome IN ('released', 'reschedule') THEN 1 ELSE 0 END,
            error_code, error, ran_ms, traceback, log, due_at, claimed_at FROM back)
    INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)
    SELECT date_trunc('minute', clock), sum(n) FILTER (WHERE ran IS NULL), array_agg(512 * n + coalesce(ran + 256, waited)), outcome, queue, kind
    FROM (SELECT outcome, queue, kind, holdfast.time_bucket(holdfast.waited(due_at, claimed_at)) AS waited, holdfast.time_bucket(ran_ms) AS ran,
              count(*) AS n
          FROM back GROUP BY GROUPING SETS ((outcome, queue, kind, 4), (outcome, queue, kind, 5))) AS t
    GROUP BY outcome, queue, kind;
END $$;

-- Ends a mixed batch in one call: plain completions as complete_jobs takes them, and all other endings. `endings` is the text of a
-- JSON array of objects whose keys are the fields of `ending`. `next_id`: the job that follows in the chain.
-- Called by job.sql finish_jobs.
CREATE FUNCTION holdfast.finish_jobs(worker bigint, ids bigint[], tokens bigint[], results json[], endings text, ran real[] DEFAULT '{}')
    RETURNS TABLE (id bigint, token bigint, answer text, next_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF ids <> '{}' THEN
        RETURN QUERY SELECT c.id, c.token, c.answer, NULL::bigint FROM holdfast.complete_jobs(worker, ids, tokens, results, ran) AS c;
    END IF;
    RETURN QUERY SELECT * FROM holdfast.settle_jobs(ARRAY(
        SELECT ROW (e.id, e.token, worker, e.outcome, e.delay_ms, e.result, e.error_code, e.error, e.next, NULL, NULL, NULL, e.ran_ms,
            e.traceback, e.at, e.log)::holdfast.ending
        FROM json_populate_recordset(NULL::holdfast.ending, endings::json) AS e));
END $$;

-- The one way out of `processing` for all jobs that complete_jobs does not handle, including order keys, chains and blockers. Returns for
-- every job its new status, `busy`, or why it is lost. A job that is not claimed leaves this way too: with holder 0, which is no worker's
-- id. A next job with a unique key or after other chains or a group, and one that is enqueued on a failure, may have to wait for an open transaction of
-- another session. Such endings are written apart from all others, and wait for no lock longer than 100 ms: then all of them are `busy`. Try again one by one.
-- Called by release_strays, complete_jobs, finish_jobs, settle_patiently, settle_in_parts, cancel_job.
CREATE FUNCTION holdfast.settle_jobs(given holdfast.ending[]) RETURNS TABLE (id bigint, token bigint, answer text, next_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    plain holdfast.ending[];
    apart holdfast.ending[];
BEGIN
    SELECT array_agg(g.ending) FILTER (WHERE NOT g.waits), array_agg(g.ending) FILTER (WHERE g.waits) INTO plain, apart
    FROM (SELECT e AS ending, e.next ->> 'unique_key' IS NOT NULL OR e.next -> 'blockers' IS NOT NULL
                OR e.next -> 'group' IS NOT NULL OR e.outcome IN ('failed', 'retry', 'lost') AND (SELECT j.on_failure IS NOT NULL FROM holdfast.job j WHERE j.id = e.id) IS TRUE AS waits
          FROM unnest(given) AS e) AS g;
    IF plain IS NOT NULL THEN
        RETURN QUERY SELECT * FROM holdfast.settle_batch(plain);
    END IF;
    IF apart IS NOT NULL THEN
        BEGIN
            RETURN QUERY SELECT * FROM holdfast.settle_apart(apart);
        EXCEPTION WHEN lock_not_available THEN
            RETURN QUERY SELECT a.id, a.token, 'busy', NULL::bigint FROM unnest(apart) AS a;
        END;
    END IF;
END $$;

-- It gives up before the deadlock detector runs.
-- Called by settle_jobs.
CREATE FUNCTION holdfast.settle_apart(given holdfast.ending[]) RETURNS TABLE (id bigint, token bigint, answer text, next_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    RETURN QUERY SELECT * FROM holdfast.settle_batch(given);
END $$;

-- Settles endings that must not be `busy`: waits for a transaction that has a row locked, as long as lock_timeout, at most two seconds.
-- Called by complete_job, complete_batch, complete_chain, delete_job, delete_chains.
CREATE FUNCTION holdfast.settle_patiently(given holdfast.ending[]) RETURNS TABLE (id bigint, token bigint, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    busy bigint[];
    patience interval := current_setting('lock_timeout')::interval;
    deadline timestamptz := clock_timestamp() + CASE WHEN patience > '0' THEN least(patience, '2 seconds') ELSE '2 seconds' END;
BEGIN
    LOOP
        busy := '{}';
        FOR id, token, answer IN SELECT s.id, s.token, s.answer FROM holdfast.settle_jobs(given) AS s LOOP
            IF answer = 'busy' THEN
                busy := busy || settle_patiently.id;
            ELSE
                RETURN NEXT;
            END IF;
        END LOOP;
        IF busy = '{}' THEN
            RETURN;
        END IF;
        IF clock_timestamp() > deadline THEN
            RAISE EXCEPTION 'another transaction keeps job % locked, or a job that waits for it', busy[1] USING ERRCODE = 'lock_not_available';
        END IF;
        given := ARRAY(SELECT g FROM unnest(given) AS g WHERE g.id = ANY (busy));
        PERFORM pg_sleep(0.02);
    END LOOP;
END $$;
