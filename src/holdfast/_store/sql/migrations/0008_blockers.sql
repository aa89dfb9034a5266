-- Chains, and the jobs that run after them. A chain is named by the id of its first job; its live row is the one that has not ended. Naming
-- a blocker and ending its chain exclude each other by the lock on the live row: a job that names a chain sets `awaited` in that row, or,
-- when it is set, locks it so that it cannot leave; a transaction that ends a chain has the row locked, and then, in a new statement, sees
-- all jobs that wait for it.

-- How a chain ended. A null status: it is not live and its end is unknown: deleted, expired, or never committed.
CREATE TYPE holdfast.chain_end AS (
    chain_id   bigint,
    job_id     bigint,
    status     holdfast.status,
    result     json,
    error_code text,
    error      text
);

-- The ends of those chains that are no longer live. STABLE: all of it on one snapshot, so that no chain is seen between two of its jobs.
-- The last job of a chain ended last, so the search goes from today backwards (see history_spans).
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
                SELECT coalesce(array_agg(ROW (c.id, e.id, e.status, e.result, e.last_error_code, e.last_error)::holdfast.chain_end), '{}')
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
    RETURN QUERY SELECT o, NULL::bigint, NULL::holdfast.status, NULL::json, NULL::text, NULL::text FROM unnest(open) AS o;
END $$;

-- Keeps the live jobs of these chains from leaving unseen, and returns those that it could keep. `patient`: wait for a transaction that has
-- one locked.
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

-- Stores in the waiters, locked by this transaction, how chains ended, and counts their blockers down; the last one releases them. A
-- blocker that did not complete releases its waiter at once, to fail, unless it runs anyway.
CREATE FUNCTION holdfast.update_waiters(waiters bigint[], ends holdfast.chain_end[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    -- Grouped first: of two updates of one row in one statement, one would be lost.
    WITH updated AS (
        UPDATE holdfast.blocker b SET status = coalesce(e.status, 'cancelled'), result = e.result,
            error_code = CASE WHEN e.status IS NULL THEN 'not_found' ELSE e.error_code END, error = e.error
        FROM unnest(ends) AS e, unnest(waiters) AS w (id)
        WHERE b.chain_id = ANY (ARRAY(SELECT x.chain_id FROM unnest(ends) AS x)) AND b.chain_id = e.chain_id AND b.status IS NULL
            AND b.job_id = w.id
        RETURNING b.job_id, b.status),
    counted AS MATERIALIZED (
        SELECT t.job_id, count(*) AS ended, bool_or(t.status <> 'completed') AS failed FROM updated t GROUP BY t.job_id)
    UPDATE holdfast.job j SET
        blockers_left = CASE WHEN c.failed AND j.run_anyway IS NOT TRUE THEN 0 ELSE j.blockers_left - c.ended END,
        blocker_failed = CASE WHEN c.failed THEN true ELSE j.blocker_failed END,
        status = CASE WHEN c.failed AND j.run_anyway IS NOT TRUE OR j.blockers_left = c.ended THEN 'pending' ELSE j.status END,
        available_at = CASE WHEN c.failed AND j.run_anyway IS NOT TRUE OR j.blockers_left = c.ended
            THEN greatest(j.available_at, clock_timestamp()) ELSE j.available_at END,
        later = holdfast.is_later(j.available_at, NULL, clock_timestamp())
    FROM counted c WHERE j.id = ANY (waiters) AND j.id = c.job_id AND j.blockers_left > 0;
END $$;

-- The jobs that wait for the chains that these jobs end, locked in one direction. A transaction that decrements the same waiter ends soon,
-- so this one waits for it, but not for one that keeps it longer (because it replaces it): then the jobs that end the chain are stuck, and
-- the caller tries again. It gives up before the deadlock detector runs.
CREATE FUNCTION holdfast.lock_waiters(enders bigint[], OUT locked bigint[], OUT stuck bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms' SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    chains bigint[] := ARRAY(SELECT coalesce(j.chain_id, j.id) FROM holdfast.job j WHERE j.id = ANY (enders));
    wanted bigint[] := ARRAY(SELECT DISTINCT b.job_id FROM holdfast.blocker b WHERE b.chain_id = ANY (chains) AND b.status IS NULL);
BEGIN
    BEGIN
        locked := ARRAY(SELECT w.id FROM holdfast.job w WHERE w.id = ANY (wanted) ORDER BY w.id FOR NO KEY UPDATE);
    EXCEPTION WHEN lock_not_available THEN
        locked := ARRAY(SELECT w.id FROM holdfast.job w WHERE w.id = ANY (wanted) ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED);
    END;
    stuck := '{}';
    IF cardinality(locked) < cardinality(wanted) THEN
        -- Unless it has left meanwhile.
        stuck := ARRAY(SELECT DISTINCT j.id FROM holdfast.job j
                JOIN holdfast.blocker b ON b.chain_id = coalesce(j.chain_id, j.id) JOIN holdfast.job w ON w.id = b.job_id
            WHERE j.id = ANY (enders) AND b.chain_id = ANY (chains) AND b.status IS NULL AND w.id = ANY (wanted) AND w.id <> ALL (locked));
    END IF;
END $$;

-- The order keys of these jobs, locked in one direction; claims never wait for them. A claim or another finish that has one ends soon, so
-- this waits for it, but not for a user's open transaction: then the jobs in that key are stuck, and the caller tries again.
CREATE FUNCTION holdfast.lock_order_keys(jobs bigint[], OUT stuck bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET jit = off SET enable_seqscan = off AS $$
DECLARE
    wanted integer[] := ARRAY(SELECT DISTINCT hashtext(j.order_key) FROM holdfast.job j WHERE j.id = ANY (jobs) ORDER BY 1);
    missed integer[];
BEGIN
    stuck := '{}';
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtext('holdfast.order_key'), hash) FROM unnest(wanted) AS hash;
    EXCEPTION WHEN lock_not_available THEN
        missed := ARRAY(SELECT hash FROM unnest(wanted) AS hash WHERE NOT pg_try_advisory_xact_lock(hashtext('holdfast.order_key'), hash));
        stuck := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id = ANY (jobs) AND hashtext(j.order_key) = ANY (missed));
    END;
END $$;

-- The jobs that are next in the order keys that these leave, locked, if they are parked. Call it in a statement after lock_order_keys: from
-- this snapshot on, no transaction parks or promotes in these keys until this one has ended. A successor whose row is locked elsewhere
-- cannot be promoted now, and forgetting it would strand it: its predecessor is stuck, and the caller tries again. One that waits for other
-- chains is released by those. A job that follows in a chain and in the same key takes the place of the job that leaves, behind any job
-- that shares the place: another replay of the same dead letter.
CREATE FUNCTION holdfast.lock_successors(settled holdfast.ending[], OUT locked bigint[], OUT stuck bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    WITH next AS MATERIALIZED (
        SELECT s.id AS leaves, n.id, n.status = 'blocked' AND (n.blockers_left > 0) IS NOT TRUE AS parked
        FROM unnest(settled) AS s JOIN holdfast.job j ON j.id = s.id,
            LATERAL (SELECT e.id, e.order_seq, e.status, e.blockers_left FROM holdfast.job e
                     WHERE e.order_key = j.order_key AND (e.order_seq, e.id) > (j.order_seq, j.id)
                     ORDER BY e.order_seq, e.id LIMIT 1) AS n
        WHERE j.id = ANY (ARRAY(SELECT x.id FROM unnest(settled) AS x)) AND NOT (s.verdict = 'failed' AND j.order_block IS TRUE)
            AND (s.next_id IS NULL OR s.next ->> 'order_key' IS DISTINCT FROM j.order_key OR (n.order_seq, n.id) < (j.order_seq, s.next_id))
            AND (s.holder <> 0 OR (SELECT true FROM holdfast.order_stop o WHERE o.order_key = j.order_key) IS NULL)),
    held AS MATERIALIZED (
        SELECT j.id FROM holdfast.job j
        WHERE j.id = ANY (ARRAY(SELECT n.id FROM next n WHERE n.parked)) AND (j.blockers_left > 0) IS NOT TRUE
        ORDER BY j.id FOR UPDATE SKIP LOCKED)
    SELECT ARRAY(SELECT h.id FROM held h),
        ARRAY(SELECT n.leaves FROM next n WHERE n.parked AND n.id NOT IN (SELECT h.id FROM held h))
    INTO locked, stuck;
END $$;

-- The jobs that must leave before this one may run: those of the chains it waits for, and those before it in its order key that wait
-- themselves.
CREATE FUNCTION holdfast.jobs_ahead(job_id bigint) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_nestloop = on SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT j.id FROM holdfast.blocker b JOIN holdfast.job j ON j.id = b.chain_id
        WHERE b.job_id = jobs_ahead.job_id AND b.status IS NULL AND j.chain_id IS NULL;
    RETURN QUERY SELECT j.id FROM holdfast.blocker b JOIN holdfast.job j ON j.chain_id = b.chain_id
        WHERE b.job_id = jobs_ahead.job_id AND b.status IS NULL;
    RETURN QUERY SELECT e.id FROM holdfast.job j JOIN holdfast.job e ON e.order_key = j.order_key
        WHERE j.id = jobs_ahead.job_id AND (e.order_seq, e.id) < (j.order_seq, j.id) AND e.blockers_left > 0;
END $$;

-- No job waits for a new job. One that continues a chain, is replayed or was replaced may have waiters, and must not wait for them.
CREATE FUNCTION holdfast.refuse_cycles(jobs bigint[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    wrong bigint;
BEGIN
    WITH RECURSIVE ahead (origin, job_id) AS (
        SELECT o, a FROM unnest(jobs) AS o, holdfast.jobs_ahead(o) AS a
        UNION SELECT b.origin, a FROM ahead b, holdfast.jobs_ahead(b.job_id) AS a WHERE b.job_id <> b.origin)
    SELECT coalesce(j.chain_id, j.id) INTO wrong FROM ahead a JOIN holdfast.job j ON j.id = a.origin WHERE a.job_id = a.origin LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'chain % would wait for itself', wrong USING ERRCODE = 'HF002';
    END IF;
END $$;

-- Jobs of this transaction, blocked with their count, wait for these chains. A chain is either kept alive or has ended: one that is seen in
-- neither state continued between two statements, and is searched for again.
CREATE FUNCTION holdfast.name_blockers(jobs bigint[], chains bigint[], ordinals integer[]) RETURNS void
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
        IF unknown IS NOT NULL THEN
            RAISE EXCEPTION 'there is no chain %: it was deleted, or ended too long ago', unknown USING ERRCODE = 'HF002';
        END IF;
        PERFORM holdfast.update_waiters(jobs, ends);
        open := ARRAY(SELECT unnest(open) EXCEPT SELECT e.chain_id FROM unnest(ends) AS e);
        EXIT WHEN open = '{}';
    END LOOP;
    IF open <> '{}' THEN
        RAISE EXCEPTION 'chain % continued a hundred times in a row', open[1] USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- Before jobs leave whose next ones wait for other chains: those chains are kept, without waiting. Returns the jobs that must be tried
-- again.
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
    SELECT coalesce((SELECT j.id FROM holdfast.job j WHERE j.unique_key = g.next ->> 'unique_key' AND j.kind = g.next ->> 'kind'), g.id)
    INTO duplicate FROM unnest(given) AS g
    WHERE g.next_id IS NOT NULL AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = g.next_id) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a job with this unique key exists' USING ERRCODE = 'HF001', DETAIL = duplicate::text;
    END IF;
    PERFORM holdfast.name_blockers(array_agg(g.next_id), array_agg(b.chain_id::bigint), array_agg(b.ordinal::integer))
    FROM unnest(given) AS g, json_array_elements_text(g.next -> 'blockers') WITH ORDINALITY AS b (chain_id, ordinal)
    WHERE g.next_id IS NOT NULL;
    PERFORM holdfast.refuse_cycles(array_agg(g.next_id)) FROM unnest(given) AS g
    WHERE g.next_id IS NOT NULL AND (g.next -> 'blockers' IS NOT NULL OR g.next -> 'order_key' IS NOT NULL) HAVING count(*) > 0;
END $$;

-- For maintenance: releases waiters that missed the end of a blocker. It looks at `most` of them, by chain, from `since` on; returns the
-- chain after which to continue, 0 when it was the last, and how many had ended.
CREATE FUNCTION holdfast.repair_blockers(since bigint, most integer, OUT until bigint, OUT repaired integer)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    looked bigint[] := ARRAY(
        SELECT b.chain_id FROM holdfast.blocker b WHERE b.status IS NULL AND b.chain_id > since ORDER BY b.chain_id LIMIT most);
    ends holdfast.chain_end[] := ARRAY(SELECT e FROM holdfast.chain_ends(looked) AS e);
    waiters bigint[];
BEGIN
    until := CASE WHEN cardinality(looked) < most THEN 0 ELSE looked[most] END;
    repaired := cardinality(ends);
    IF repaired > 0 THEN
        waiters := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id IN (
                SELECT b.job_id FROM holdfast.blocker b JOIN unnest(ends) AS e ON e.chain_id = b.chain_id WHERE b.status IS NULL)
            ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);
        PERFORM holdfast.update_waiters(waiters, ends);
        PERFORM holdfast.wake_sleepers(array_agg(j.queue), array_agg(j.kind)) FROM holdfast.job j
        WHERE j.id = ANY (waiters) AND j.status = 'pending' HAVING count(*) > 0;
    END IF;
END $$;
