-- Chains, and the jobs that run after them. A chain is named by the id of its first job; its live row is the one that has not ended. Naming
-- a blocker and ending its chain exclude each other by the lock on the live row: a job that names a chain sets `awaited` in that row, or,
-- when it is set, locks it so that it cannot leave; a transaction that ends a chain has the row locked, and then, in a new statement, sees
-- all jobs that wait for it.

-- The chains that a live job comes after, in the order given, and how those ended that have. Gone when that job leaves.
CREATE TABLE holdfast.blocker (
    job_id     bigint NOT NULL,
    chain_id   bigint NOT NULL,
    ordinal    integer NOT NULL,                -- its place in what the job comes after, from 1; negative: its story gathers it
    status     holdfast.status,                 -- null: the chain lives, or the job is not released yet
    result     json,
    error_code text,
    error      text,
    end_id     bigint,                          -- the row of kept_end that has the three before; null: they are here
    PRIMARY KEY (job_id, ordinal)
) WITH (fillfactor = 50);
CREATE INDEX blocker_chain ON holdfast.blocker (chain_id, job_id) WHERE status IS NULL;
CREATE INDEX blocker_end ON holdfast.blocker (end_id) WHERE end_id IS NOT NULL;

-- The ends of chains for which more jobs wait than one statement releases, or whose copies would be large: stored once, for as long as a
-- row of blocker names them. Most chains have no row here.
CREATE TABLE holdfast.kept_end (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    chain_id    bigint NOT NULL,
    status      holdfast.status NOT NULL,
    result      json,
    error_code  text,
    error       text,
    release_at  timestamptz,                    -- when its next waiters are released; null: all were
    released_to bigint NOT NULL DEFAULT 0       -- the waiters up to this id were released, except for those that were locked
);
CREATE INDEX kept_end_release ON holdfast.kept_end (release_at) WHERE release_at IS NOT NULL;

-- How a chain ended. A null status: it is not live and its end is unknown: deleted, expired, or never committed.
CREATE TYPE holdfast.chain_end AS (
    chain_id   bigint,
    job_id     bigint,
    status     holdfast.status,
    result     json,
    error_code text,
    error      text,
    end_id     bigint               -- the row of kept_end that has the three before; null: they are here
);

-- The ends of those chains that are no longer live. STABLE: all of it on one snapshot, so that no chain is seen between two of its jobs.
-- The last job of a chain ended last, so the search goes from today backwards (see history_spans).
-- Called by name_blockers, hold_named_chains, repair_blockers, complete_chain, get_result, send_message and 1 more.
CREATE FUNCTION holdfast.chain_ends(chains bigint[]) RETURNS SETOF holdfast.chain_end
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    open bigint[] := ARRAY(SELECT c FROM (SELECT DISTINCT given AS c FROM unnest(chains) AS given) AS d
        WHERE NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = c AND j.chain_id IS NULL)
          AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.chain_id = c));
    spans tstzrange[] := ARRAY[holdfast.todays_span()];
    n integer := 1;
    found holdfast.chain_end[];
BEGIN
    WHILE n <= cardinality(spans) AND open <> '{}' LOOP
        found := '{}';
        BEGIN
            EXECUTE format($look$
                SELECT coalesce(array_agg(ROW (c.id, e.id, e.status, e.result, e.last_error_code, e.last_error, NULL)::holdfast.chain_end), '{}')
                FROM unnest($1) AS c (id), LATERAL (
                    SELECT * FROM (
                        (SELECT h.id, h.status, h.result, h.last_error_code, h.last_error FROM holdfast.job_history h
                         WHERE h.id = c.id AND h.chain_id IS NULL AND h.next_id IS NULL AND h.finished_at >= %1$L AND h.finished_at < %2$L LIMIT 1)
                        UNION ALL (SELECT h.id, h.status, h.result, h.last_error_code, h.last_error FROM holdfast.job_history h
                         WHERE h.chain_id = c.id AND h.next_id IS NULL AND h.finished_at >= %1$L AND h.finished_at < %2$L
                         ORDER BY h.id DESC LIMIT 1)
                        UNION ALL (SELECT f.id, f.status, NULL, f.last_error_code, f.last_error FROM holdfast.job_failed f
                         WHERE f.id = c.id AND f.chain_id IS NULL AND f.finished_at >= %1$L AND f.finished_at < %2$L LIMIT 1)
                        UNION ALL (SELECT f.id, f.status, NULL, f.last_error_code, f.last_error FROM holdfast.job_failed f
                         WHERE f.chain_id = c.id AND f.finished_at >= %1$L AND f.finished_at < %2$L ORDER BY f.id DESC LIMIT 1)) AS last
                    ORDER BY last.id DESC LIMIT 1) AS e
                $look$, lower(spans[n]), upper(spans[n])) INTO found USING open;
            RAISE EXCEPTION USING ERRCODE = 'HF000';
        EXCEPTION WHEN SQLSTATE 'HF000' THEN
            NULL;
        END;
        RETURN QUERY SELECT f.* FROM unnest(found) AS f;
        IF cardinality(found) > 0 THEN
            open := ARRAY(SELECT o FROM unnest(open) AS o WHERE (o IN (SELECT f.chain_id FROM unnest(found) AS f)) IS NOT TRUE);
        END IF;
        IF n = 1 AND open <> '{}' THEN
            spans := spans || holdfast.history_spans((SELECT min(o) FROM unnest(open) AS o));
        END IF;
        n := n + 1;
    END LOOP;
    RETURN QUERY SELECT o, NULL::bigint, NULL::holdfast.status, NULL::json, NULL::text, NULL::text, NULL::bigint FROM unnest(open) AS o;
END $$;

-- Keeps the live jobs of these chains from leaving unseen, and returns those that it could keep. `patient`: wait for a transaction that has
-- one locked.
-- Called by name_blockers, hold_named_chains.
CREATE FUNCTION holdfast.hold_chains(chains bigint[], patient boolean) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    fresh bigint[];
    held bigint[];
BEGIN
    IF patient THEN
        fresh := ARRAY(SELECT j.id FROM holdfast.job j
            WHERE (j.id = ANY (chains) AND j.chain_id IS NULL OR j.chain_id = ANY (chains)) AND j.awaited IS NULL
            ORDER BY j.id FOR NO KEY UPDATE);
    ELSE
        fresh := ARRAY(SELECT j.id FROM holdfast.job j
            WHERE (j.id = ANY (chains) AND j.chain_id IS NULL OR j.chain_id = ANY (chains)) AND j.awaited IS NULL
            ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    UPDATE holdfast.job j SET awaited = true WHERE j.id = ANY (fresh);
    IF patient THEN
        WITH kept AS MATERIALIZED (
            SELECT coalesce(j.chain_id, j.id) AS id FROM holdfast.job j
            WHERE (j.id = ANY (chains) AND j.chain_id IS NULL OR j.chain_id = ANY (chains)) AND j.awaited ORDER BY j.id FOR KEY SHARE)
        SELECT array_agg(DISTINCT id) INTO held FROM kept;
    ELSE
        WITH kept AS MATERIALIZED (
            SELECT coalesce(j.chain_id, j.id) AS id FROM holdfast.job j
            WHERE (j.id = ANY (chains) AND j.chain_id IS NULL OR j.chain_id = ANY (chains)) AND j.awaited
            ORDER BY j.id FOR KEY SHARE SKIP LOCKED)
        SELECT array_agg(DISTINCT id) INTO held FROM kept;
    END IF;
    RETURN coalesce(held, '{}');
END $$;

-- Keeps these ends, and returns them without what is kept. `due`: jobs that wait for them are still to be released.
-- Called by update_waiters, end_chains, repair_blockers.
CREATE FUNCTION holdfast.keep_ends(ends holdfast.chain_end[], due boolean) RETURNS holdfast.chain_end[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept holdfast.chain_end[];
BEGIN
    WITH made AS (
        INSERT INTO holdfast.kept_end (chain_id, status, result, error_code, error, release_at)
        SELECT e.chain_id, coalesce(e.status, 'cancelled'), e.result, CASE WHEN e.status IS NULL THEN 'not_found' ELSE e.error_code END, e.error,
            CASE WHEN due THEN clock_timestamp() END
        FROM unnest(ends) AS e
        RETURNING id, chain_id, status)
    SELECT array_agg(ROW (m.chain_id, NULL, m.status, NULL, NULL, NULL, m.id)::holdfast.chain_end) INTO kept FROM made m;
    IF due AND current_setting('holdfast.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('holdfast', 'holdfast.waiters');
    END IF;
    RETURN kept;
END $$;

-- Stores in the waiters, locked by this transaction, how chains ended, and counts their blockers down; the last one releases them. A
-- blocker that did not complete releases its waiter at once, to fail, unless it runs anyway. An end of more than 2 kB is copied once.
-- Called by end_chains, release_waiters, name_blockers.
CREATE FUNCTION holdfast.update_waiters(waiters bigint[], ends holdfast.chain_end[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- With these, the index finds the waiters that are given, and not all others of their chains.
    lowest bigint := (SELECT min(w) FROM unnest(waiters) AS w);
    highest bigint := (SELECT max(w) FROM unnest(waiters) AS w);
    large holdfast.chain_end[] := ARRAY(
        SELECT e FROM unnest(ends) AS e WHERE pg_column_size(e) > 2000 AND 1 < (
            SELECT count(*) FROM (SELECT FROM holdfast.blocker b
                WHERE b.chain_id = e.chain_id AND b.status IS NULL AND b.job_id BETWEEN lowest AND highest LIMIT 2) AS two));
BEGIN
    IF cardinality(large) > 0 THEN
        ends := holdfast.keep_ends(large, false) || ARRAY(
            SELECT e FROM unnest(ends) AS e WHERE e.chain_id NOT IN (SELECT l.chain_id FROM unnest(large) AS l));
    END IF;
    -- Grouped first: of two updates of one row in one statement, one would be lost.
    WITH updated AS (
        UPDATE holdfast.blocker b SET status = coalesce(e.status, 'cancelled'), result = e.result,
            error_code = CASE WHEN e.status IS NULL THEN 'not_found' ELSE e.error_code END, error = e.error, end_id = e.end_id
        FROM unnest(ends) AS e, unnest(waiters) AS w (id)
        WHERE b.chain_id = ANY (ARRAY(SELECT x.chain_id FROM unnest(ends) AS x)) AND b.chain_id = e.chain_id AND b.status IS NULL
            AND b.job_id BETWEEN lowest AND highest AND b.job_id = w.id
        RETURNING b.job_id, b.status),
    counted AS MATERIALIZED (
        SELECT t.job_id, count(*) AS ended, bool_or(t.status <> 'completed') AS failed FROM updated t GROUP BY t.job_id)
    UPDATE holdfast.job j SET
        blockers_left = CASE WHEN c.failed AND j.run_anyway IS NOT TRUE THEN 0 ELSE j.blockers_left - c.ended END,
        blocker_failed = CASE WHEN c.failed THEN true ELSE j.blocker_failed END,
        -- A story may run, or wait for a limit, while the chains that it gathers end. One that also sleeps is pending.
        status = CASE WHEN j.status = 'blocked' AND j.limit_key IS NULL
            AND (c.failed AND j.run_anyway IS NOT TRUE OR j.blockers_left = c.ended) THEN 'pending' ELSE j.status END,
        available_at = CASE WHEN j.status = 'pending' AND j.blockers_left = c.ended THEN least(j.available_at, clock_timestamp())
            WHEN j.status = 'blocked' AND (c.failed AND j.run_anyway IS NOT TRUE OR j.blockers_left = c.ended)
            THEN greatest(j.available_at, clock_timestamp()) ELSE j.available_at END,
        later = CASE WHEN j.status <> 'pending' OR j.blockers_left > c.ended THEN holdfast.is_later(j.available_at, NULL, clock_timestamp()) END
    FROM counted c WHERE j.id = ANY (waiters) AND j.id = c.job_id AND j.blockers_left > 0;
END $$;

-- The jobs that wait for the chains that these jobs end, locked in one direction. A transaction that decrements the same waiter ends soon,
-- so this one waits for it, but not for one that keeps it longer (because it replaces it): then the jobs that end the chain are stuck, and
-- the caller tries again. It gives up before the deadlock detector runs. Chains with too many waiters for one statement are `crowded`:
-- theirs are not locked, and release_waiters releases them.
-- Called by settle_batch.
CREATE FUNCTION holdfast.lock_waiters(enders bigint[], OUT locked bigint[], OUT stuck bigint[], OUT crowded bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms' SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
    SET enable_hashjoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ended bigint[] := ARRAY(SELECT DISTINCT coalesce(j.chain_id, j.id) FROM holdfast.job j WHERE j.id = ANY (enders));
    most integer := greatest(100, 1000 / greatest(cardinality(ended), 1));
    chains bigint[];
    waiters bigint[];               -- of each of these chains
    wanted bigint[];
BEGIN
    SELECT coalesce(array_agg(c.id), '{}'), coalesce(array_agg(b.job_id), '{}') INTO chains, waiters
    FROM unnest(ended) AS c (id), LATERAL (
        SELECT b.job_id FROM holdfast.blocker b WHERE b.chain_id = c.id AND b.status IS NULL ORDER BY b.job_id LIMIT most + 1) AS b;
    crowded := ARRAY(SELECT f.c FROM (
            SELECT c, count(*) AS few, sum(count(*)) OVER (ORDER BY count(*), c) AS so_far FROM unnest(chains) AS c GROUP BY c) AS f
        WHERE f.few > most OR f.so_far > 2000);
    wanted := ARRAY(SELECT DISTINCT w.id FROM unnest(chains, waiters) AS w (chain_id, id) WHERE w.chain_id <> ALL (crowded));
    BEGIN
        locked := ARRAY(SELECT w.id FROM holdfast.job w WHERE w.id = ANY (wanted) ORDER BY w.id FOR NO KEY UPDATE);
    EXCEPTION WHEN lock_not_available THEN
        locked := ARRAY(SELECT w.id FROM holdfast.job w WHERE w.id = ANY (wanted) ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED);
    END;
    stuck := '{}';
    IF cardinality(locked) < cardinality(wanted) THEN
        -- Unless it has left meanwhile.
        stuck := ARRAY(SELECT DISTINCT j.id FROM unnest(chains, waiters) AS w (chain_id, id)
                JOIN holdfast.job j ON j.id = ANY (enders) AND coalesce(j.chain_id, j.id) = w.chain_id
            WHERE w.id = ANY (wanted) AND w.id <> ALL (locked) AND w.chain_id <> ALL (crowded)
                AND EXISTS (SELECT FROM holdfast.blocker b JOIN holdfast.job l ON l.id = b.job_id
                    WHERE b.chain_id = w.chain_id AND b.job_id = w.id AND b.status IS NULL));
    END IF;
END $$;

-- For jobs that end chains: releases the waiters that lock_waiters locked, and keeps the ends of crowded chains for the others.
-- Called by settle_batch.
CREATE FUNCTION holdfast.end_chains(settled holdfast.ending[], waiters bigint[], crowded bigint[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ends holdfast.chain_end[] := ARRAY(
        SELECT ROW (coalesce(j.chain_id, j.id), j.id, s.verdict, s.result, s.error_code, s.error, NULL)::holdfast.chain_end
        FROM holdfast.job j JOIN unnest(settled) AS s ON s.id = j.id WHERE j.id = ANY (ARRAY(SELECT x.id FROM unnest(settled) AS x)));
BEGIN
    IF crowded <> '{}' THEN
        PERFORM holdfast.keep_ends(ARRAY(SELECT e FROM unnest(ends) AS e WHERE e.chain_id = ANY (crowded)), true);
        ends := ARRAY(SELECT e FROM unnest(ends) AS e WHERE e.chain_id <> ALL (crowded));
    END IF;
    PERFORM holdfast.update_waiters(waiters, ends);
END $$;

-- Releases at most `most` of the jobs that wait for chains whose ends are kept, and returns how many: the chain that has waited longest comes
-- first, of its waiters the oldest. It waits for no lock: those that are locked are tried again, after the others, a second later.
-- Called by chain.sql release_waiters.
CREATE FUNCTION holdfast.release_waiters(most integer) RETURNS integer
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    clock timestamptz;              -- not now(): in the transaction of a test, that is before its chains end. A variable bounds the index
    turn record;
    waiters bigint[];
    released integer := 0;
BEGIN
    WHILE released < most LOOP
        clock := clock_timestamp();
        SELECT k.id, k.chain_id, k.status, k.released_to INTO turn FROM holdfast.kept_end k
        WHERE k.release_at <= clock ORDER BY k.release_at LIMIT 1 FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        waiters := ARRAY(SELECT j.id FROM holdfast.blocker b JOIN holdfast.job j ON j.id = b.job_id
            WHERE b.chain_id = turn.chain_id AND b.status IS NULL AND b.job_id > turn.released_to
            ORDER BY b.job_id LIMIT most - released FOR NO KEY UPDATE OF j SKIP LOCKED);
        PERFORM holdfast.update_waiters(waiters, ARRAY[ROW (turn.chain_id, NULL, turn.status, NULL, NULL, NULL, turn.id)::holdfast.chain_end]);
        IF cardinality(waiters) = most - released THEN
            UPDATE holdfast.kept_end k SET release_at = clock_timestamp(), released_to = waiters[cardinality(waiters)] WHERE k.id = turn.id;
        ELSE
            UPDATE holdfast.kept_end k SET released_to = 0, release_at = CASE WHEN EXISTS (
                SELECT FROM holdfast.blocker b JOIN holdfast.job j ON j.id = b.job_id WHERE b.chain_id = turn.chain_id AND b.status IS NULL)
                THEN clock_timestamp() + interval '1 second' END
            WHERE k.id = turn.id;
        END IF;
        released := released + cardinality(waiters);
        PERFORM holdfast.wake_sleepers(array_agg(j.queue), array_agg(j.kind)) FROM holdfast.job j
        WHERE j.id = ANY (waiters) AND j.status = 'pending' HAVING count(*) > 0;
    END LOOP;
    RETURN released;
END $$;

-- The jobs that must leave before this one may run: those of the chains it waits for, and the one before it in its order key, which in turn
-- comes after all others there. At most `most` of each.
-- Called by refuse_cycles.
CREATE FUNCTION holdfast.jobs_ahead(given bigint, most integer) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    me record;
BEGIN
    SELECT j.blockers_left, j.order_key, j.order_seq INTO me FROM holdfast.job j WHERE j.id = given;
    IF me.blockers_left > 0 THEN
        RETURN QUERY SELECT j.id FROM holdfast.blocker b JOIN holdfast.job j ON j.id = b.chain_id
            WHERE b.job_id = given AND b.status IS NULL AND j.chain_id IS NULL LIMIT most;
        RETURN QUERY SELECT j.id FROM holdfast.blocker b JOIN holdfast.job j ON j.chain_id = b.chain_id
            WHERE b.job_id = given AND b.status IS NULL LIMIT most;
        RETURN QUERY SELECT j.id FROM (SELECT unnest(g.chains) AS chain_id FROM holdfast.group_entry g WHERE g.group_id = given AND g.status IS NULL) AS m,
            LATERAL (SELECT c.id FROM holdfast.job c WHERE c.id = m.chain_id AND c.chain_id IS NULL OR c.chain_id = m.chain_id) AS j LIMIT most;
    END IF;
    IF me.order_key IS NOT NULL THEN
        RETURN QUERY SELECT e.id FROM holdfast.job e WHERE e.order_key = me.order_key AND (e.order_seq, e.id) < (me.order_seq, given)
            ORDER BY e.order_seq DESC, e.id DESC LIMIT 1;
    END IF;
END $$;

-- The jobs that this one must leave before: those that wait for its chain, and the next in its order key. At most `most`. It also returns some
-- that were cancelled and wait no longer.
-- Called by refuse_cycles.
CREATE FUNCTION holdfast.jobs_behind(given bigint, most integer) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    me record;
BEGIN
    SELECT coalesce(j.chain_id, j.id) AS chain_id, j.awaited, j.group_id, j.order_key, j.order_seq INTO me FROM holdfast.job j WHERE j.id = given;
    IF me.group_id IS NOT NULL THEN
        RETURN QUERY SELECT j.id FROM holdfast.job j WHERE j.id = me.group_id AND j.blockers_left > 0;
    END IF;
    IF me.awaited THEN
        -- As a range, ordered by the chain too: only one index has that order.
        RETURN QUERY SELECT d.job_id FROM (SELECT DISTINCT b.chain_id, b.job_id FROM holdfast.blocker b
            WHERE b.chain_id BETWEEN me.chain_id AND me.chain_id AND b.status IS NULL ORDER BY b.chain_id, b.job_id LIMIT most) AS d;
    END IF;
    IF me.order_key IS NOT NULL THEN
        RETURN QUERY SELECT e.id FROM holdfast.job e WHERE e.order_key = me.order_key AND (e.order_seq, e.id) > (me.order_seq, given)
            ORDER BY e.order_seq, e.id LIMIT 1;
    END IF;
END $$;

-- No job waits for a new job. One that continues a chain, is replayed or was replaced may have waiters, and must not wait for them. The jobs
-- ahead of it, or those behind it, may be most of the table, but seldom both: so it looks a little way in each direction, and then further,
-- until one of the two is known whole.
-- Called by enqueue_unique_jobs, check_following, replay_job, await_children.
CREATE FUNCTION holdfast.refuse_cycles(jobs bigint[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    origin bigint;
    most integer;
    met integer;
    met_origin boolean;
BEGIN
    FOREACH origin IN ARRAY jobs LOOP
        most := 16;
        LOOP
            WITH RECURSIVE behind (job_id) AS (
                SELECT a FROM holdfast.jobs_behind(origin, most) AS a
                UNION SELECT a FROM behind b, holdfast.jobs_behind(b.job_id, most) AS a)
            SELECT count(*), bool_or(b.job_id = origin) INTO met, met_origin FROM (SELECT * FROM behind LIMIT most) AS b;
            EXIT WHEN met < most AND met_origin IS NOT TRUE;
            WITH RECURSIVE ahead (job_id) AS (
                SELECT a FROM holdfast.jobs_ahead(origin, most) AS a
                UNION SELECT a FROM ahead b, holdfast.jobs_ahead(b.job_id, most) AS a)
            SELECT count(*), bool_or(b.job_id = origin) INTO met, met_origin FROM (SELECT * FROM ahead LIMIT most) AS b;
            IF met_origin THEN
                RAISE EXCEPTION 'chain % would wait for itself', (SELECT coalesce(j.chain_id, j.id) FROM holdfast.job j WHERE j.id = origin)
                    USING ERRCODE = 'HF002';
            END IF;
            EXIT WHEN met < most;
            IF most > 60000 THEN
                RAISE EXCEPTION 'more than % jobs wait for chain %, and as many are before it', most,
                    (SELECT coalesce(j.chain_id, j.id) FROM holdfast.job j WHERE j.id = origin) USING ERRCODE = 'HF002';
            END IF;
            most := most * 16;
        END LOOP;
    END LOOP;
END $$;

-- Jobs whose rows this transaction has locked, with their count, wait for these chains. A chain is either kept alive or has ended: one that
-- is seen in neither state continued between two statements, and is searched for again. `known`: refuse a chain whose end is unknown;
-- else it counts as cancelled.
-- Called by enqueue_unique_jobs, check_following, replay_job, await_children, enqueue_members.
CREATE FUNCTION holdfast.name_blockers(jobs bigint[], chains bigint[], ordinals integer[], known boolean DEFAULT true) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    open bigint[] := ARRAY(SELECT DISTINCT c FROM unnest(chains) AS c);
    ends holdfast.chain_end[];
    unknown bigint;
BEGIN
    IF jobs IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO holdfast.blocker (job_id, chain_id, ordinal) SELECT * FROM unnest(jobs, chains, ordinals);
    FOR round IN 1..100 LOOP
        open := ARRAY(SELECT unnest(open) EXCEPT SELECT unnest(holdfast.hold_chains(open, true)));
        EXIT WHEN open = '{}';
        ends := ARRAY(SELECT e FROM holdfast.chain_ends(open) AS e);
        SELECT min(e.chain_id) INTO unknown FROM unnest(ends) AS e WHERE e.status IS NULL;
        IF known AND unknown IS NOT NULL THEN
            RAISE EXCEPTION 'there is no chain %: it was deleted, or ended too long ago', unknown USING ERRCODE = 'HF002';
        END IF;
        PERFORM holdfast.update_waiters(ARRAY(SELECT DISTINCT j FROM unnest(jobs) AS j), ends);
        open := ARRAY(SELECT unnest(open) EXCEPT SELECT e.chain_id FROM unnest(ends) AS e);
        EXIT WHEN open = '{}';
    END LOOP;
    IF open <> '{}' THEN
        RAISE EXCEPTION 'chain % continued a hundred times in a row', open[1] USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- Before jobs leave whose next ones wait for other chains: those chains are kept, without waiting. Returns the jobs that must be tried
-- again.
-- Called by settle_batch.
CREATE FUNCTION holdfast.hold_named_chains(given holdfast.ending[]) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    open bigint[] := ARRAY(SELECT DISTINCT b::bigint FROM unnest(given) AS g, json_array_elements_text(g.next -> 'blockers') AS b);
BEGIN
    open := ARRAY(SELECT unnest(open) EXCEPT SELECT unnest(holdfast.hold_chains(open, false)));
    open := ARRAY(SELECT unnest(open) EXCEPT SELECT e.chain_id FROM holdfast.chain_ends(open) AS e);
    RETURN ARRAY(SELECT g.id FROM unnest(given) AS g
        WHERE EXISTS (SELECT FROM json_array_elements_text(g.next -> 'blockers') AS b WHERE b::bigint = ANY (open)));
END $$;

-- After the jobs that follow were inserted: refuses invalid ones, and stores the chains they wait for.
-- Called by settle_batch.
CREATE FUNCTION holdfast.check_following(given holdfast.ending[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    duplicate bigint;
BEGIN
    IF EXISTS (SELECT FROM unnest(given) AS g WHERE g.next_id IS NOT NULL AND g.next ->> 'unique_window_ms' IS NOT NULL
               OR json_typeof(g.next -> 'blockers') = 'array' AND json_array_length(g.next -> 'blockers') > 10000)
    THEN
        RAISE EXCEPTION 'a job that goes on a chain has no unique window, and may wait for at most 10000 chains' USING ERRCODE = 'HF002';
    END IF;
    PERFORM holdfast.refuse('next, ' || f.fault) FROM (
        SELECT holdfast.limits_fault(n.limits, n.tenant) AS fault FROM unnest(given) AS g, json_populate_record(NULL::holdfast.new_job, g.next) AS n
        WHERE g.next_id IS NOT NULL AND (g.next -> 'limits' IS NOT NULL OR g.next -> 'tenant' IS NOT NULL)
        UNION ALL SELECT holdfast.tags_fault(n.tags) FROM unnest(given) AS g, json_populate_record(NULL::holdfast.new_job, g.next) AS n
        WHERE g.next_id IS NOT NULL AND g.next -> 'tags' IS NOT NULL
        UNION ALL SELECT holdfast.on_failure_fault(g.next -> 'on_failure') FROM unnest(given) AS g
        WHERE g.next_id IS NOT NULL AND g.next -> 'on_failure' IS NOT NULL) AS f WHERE f.fault IS NOT NULL;
    SELECT coalesce((SELECT j.id FROM holdfast.job j WHERE j.unique_key = g.next ->> 'unique_key' AND j.kind = g.next ->> 'kind'), g.id)
    INTO duplicate FROM unnest(given) AS g
    -- By an array: joined to the live table, it would be read whole.
    WHERE g.next_id NOT IN (SELECT j.id FROM holdfast.job j WHERE j.id = ANY (ARRAY(SELECT s.next_id FROM unnest(given) AS s))) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a job with this unique key exists' USING ERRCODE = 'HF001', DETAIL = duplicate::text;
    END IF;
    PERFORM holdfast.name_blockers(array_agg(g.next_id), array_agg(b.chain_id::bigint), array_agg(b.ordinal::integer))
    FROM unnest(given) AS g, json_array_elements_text(g.next -> 'blockers') WITH ORDINALITY AS b (chain_id, ordinal)
    WHERE g.next_id IS NOT NULL;
    PERFORM holdfast.refuse_cycles(array_agg(g.next_id)) FROM unnest(given) AS g
    WHERE g.next_id IS NOT NULL AND (g.next -> 'blockers' IS NOT NULL OR g.next -> 'order_key' IS NOT NULL) HAVING count(*) > 0;
END $$;

-- For maintenance: finds waiters that missed the end of a blocker, and lets release_waiters release them. It looks at `most` of them, by chain,
-- from `since` on; returns the chain after which to continue, 0 when it was the last, and how many had ended.
-- Called by chain.sql repair_blockers.
CREATE FUNCTION holdfast.repair_blockers(since bigint, most integer, OUT until bigint, OUT repaired integer)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    looked bigint[] := ARRAY(
        SELECT b.chain_id FROM holdfast.blocker b WHERE b.status IS NULL AND b.chain_id > since ORDER BY b.chain_id LIMIT most);
    missed holdfast.chain_end[] := ARRAY(SELECT e FROM holdfast.chain_ends(looked) AS e
        -- The others are being released. A later statement, so none of these was not kept yet.
        WHERE NOT EXISTS (SELECT FROM holdfast.kept_end k WHERE k.release_at IS NOT NULL AND k.chain_id = e.chain_id));
BEGIN
    until := CASE WHEN cardinality(looked) < most THEN 0 ELSE looked[most] END;
    repaired := cardinality(missed);
    IF repaired > 0 THEN
        PERFORM holdfast.keep_ends(missed, true);
    END IF;
END $$;
