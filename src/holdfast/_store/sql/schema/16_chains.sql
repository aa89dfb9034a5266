-- Completing jobs in a handler's own transaction, and chains from outside; deleting them.

-- The same, but a stricter transaction may decide about rows that no other can see: its own jobs and order keys, as in a user's test. Its
-- own writes are newer than its snapshot.
-- Called by settle_batch, take_order_heads.
CREATE FUNCTION holdfast.need_own_jobs(ids bigint[], keys text[]) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    oldest integer := age(pg_snapshot_xmax(pg_current_snapshot())::xid);
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' AND (
        EXISTS (SELECT FROM holdfast.job j WHERE j.id = ANY (ids) AND age(j.xmin) > oldest)
        OR EXISTS (SELECT FROM holdfast.job j WHERE j.order_key = ANY (keys) AND age(j.xmin) > oldest)
        OR EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = ANY (keys) AND age(s.xmin) > oldest))
    THEN
        PERFORM holdfast.need_read_committed();
    END IF;
END $$;

-- Takes a job from its holder: the next statement of this transaction settles it.
-- Called by complete_chain, delete_job, delete_chains, cancel_job.
CREATE FUNCTION holdfast.take_job(job_id bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    UPDATE holdfast.job SET lock_token = nextval('holdfast.token'), locked_by = 0 WHERE id = job_id RETURNING lock_token
$$;

-- Completes a claimed job in its handler's own transaction, as the last statement before COMMIT: `completed`, or why it is lost.
-- Called by chain.sql complete_job.
CREATE FUNCTION holdfast.complete_job(job_id bigint, token bigint, worker bigint, result json DEFAULT NULL, next json DEFAULT NULL,
        ran_ms real DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fault text := CASE WHEN job_id IS NULL OR token IS NULL OR worker IS NULL THEN 'job_id, token, worker: ids expected, got null'
        ELSE holdfast.next_fault(next) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    RETURN (SELECT s.answer FROM holdfast.settle_patiently(ARRAY[
        ROW (job_id, token, worker, 'completed', NULL, result, NULL, NULL, next, NULL, NULL, NULL, ran_ms, NULL, NULL, NULL)::holdfast.ending]) AS s);
END $$;

-- Completes many claimed jobs as complete_job does one, in one statement. `endings` is the text of a JSON array of objects with the fields id,
-- token, result, next and ran_ms. Returns for every job `completed`, or why it is lost; the others are completed all the same.
-- Called by chain.sql complete_batch.
CREATE FUNCTION holdfast.complete_batch(worker bigint, endings text) RETURNS TABLE (id bigint, token bigint, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    given holdfast.ending[] := ARRAY(
        SELECT ROW (e.id, e.token, worker, 'completed', NULL, e.result, NULL, NULL, e.next, NULL, NULL, NULL, e.ran_ms, NULL, NULL, NULL)::holdfast.ending
        FROM json_populate_recordset(NULL::holdfast.ending, endings::json) AS e);
    fault text := (SELECT CASE WHEN g.id IS NULL OR g.token IS NULL OR g.holder IS NULL THEN 'id, token, worker: ids expected, got null'
        ELSE holdfast.next_fault(g.next) END AS said FROM unnest(given) AS g ORDER BY said NULLS LAST LIMIT 1);
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    RETURN QUERY SELECT * FROM holdfast.settle_patiently(given);
END $$;

-- Completes a chain from outside, whatever the state of its job: `completed`, `already_ended` or `not_found`. The worker that runs it is
-- notified.
-- Called by applications, chain.sql complete_chain.
CREATE FUNCTION holdfast.complete_chain(chain bigint, result json DEFAULT NULL, next json DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    live holdfast.job[];
    ended holdfast.chain_end;
    fault text := CASE WHEN chain IS NULL THEN 'chain: an id expected, got null' ELSE holdfast.next_fault(next) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    FOR round IN 1..100 LOOP
        live := ARRAY(SELECT j FROM holdfast.job j WHERE j.id = chain AND j.chain_id IS NULL OR j.chain_id = chain ORDER BY j.id FOR UPDATE);
        EXIT WHEN cardinality(live) > 0;
        SELECT e.* INTO ended FROM holdfast.chain_ends(ARRAY[chain]) AS e;
        IF FOUND THEN
            RETURN CASE WHEN ended.status IS NULL THEN 'not_found' ELSE 'already_ended' END;
        END IF;
    END LOOP;
    IF cardinality(live) = 0 THEN
        RAISE EXCEPTION 'chain % continued a hundred times in a row', chain USING ERRCODE = 'serialization_failure';
    END IF;
    -- A dead letter that was replayed twice has two live jobs: both end, and one continues.
    PERFORM FROM holdfast.settle_patiently(ARRAY(
        SELECT ROW (l.id, holdfast.take_job(l.id), 0, 'completed', NULL, result, NULL, NULL,
            CASE WHEN l.id = (live[cardinality(live)]).id THEN next END, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::holdfast.ending FROM unnest(live) AS l));
    PERFORM pg_notify('holdfast_' || l.locked_by, format('lost %s %s already_completed', l.id, l.lock_token))
    FROM unnest(live) AS l WHERE l.status = 'processing';
    RETURN 'completed';
END $$;

-- Deletes a waiting job without history: `deleted`, `processing` or `not_found`. Jobs that wait for it see that it did not complete.
-- Called by act_on_jobs, inspect.sql delete_job.
CREATE FUNCTION holdfast.delete_job(job_id bigint) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    state holdfast.status;
BEGIN
    IF job_id IS NULL THEN
        PERFORM holdfast.refuse('job_id: an id expected, got null');
    END IF;
    PERFORM holdfast.need_read_committed();
    SELECT j.status INTO state FROM holdfast.job j WHERE j.id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF state = 'processing' THEN
        RETURN 'processing';
    END IF;
    PERFORM FROM holdfast.settle_patiently(ARRAY[ROW (job_id, holdfast.take_job(job_id), 0, 'cancelled', NULL, NULL, 'deleted', NULL, NULL,
        true, NULL, NULL, NULL, NULL, NULL, NULL)::holdfast.ending]);
    RETURN 'deleted';
END $$;

-- Deletes whole chains, ended or live, with all their data; returns those that existed. Refused when a job of another chain waits for one
-- of them, or, with `cascade`, those chains are deleted too. Rows that are deleted from an archived day are counted in its record, so that it
-- is exported anew without them. SECURITY DEFINER: no role may delete from the history.
-- Called by applications, chain.sql delete_chains.
CREATE FUNCTION holdfast.delete_chains(chains bigint[], cascade boolean DEFAULT false) RETURNS SETOF bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    doomed bigint[] := ARRAY(SELECT DISTINCT c FROM unnest(chains) AS c);
    live holdfast.job[];
    waiters bigint[];
    more bigint[];
    ended bigint[];
    completed_at timestamptz[];
    failed_at timestamptz[];
    tried_at timestamptz[];
    fault text := holdfast.ids_fault('chains', chains, 10000);
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    FOR round IN 1..1100 LOOP
        IF cardinality(doomed) > 1000 THEN
            RAISE EXCEPTION 'at most 1000 chains are deleted at once' USING ERRCODE = 'HF002';
        END IF;
        live := ARRAY(SELECT j FROM holdfast.job j WHERE j.id = ANY (doomed) AND j.chain_id IS NULL OR j.chain_id = ANY (doomed)
            ORDER BY j.id FOR UPDATE);
        SELECT array_agg(DISTINCT w.id), array_agg(DISTINCT coalesce(w.chain_id, w.id)) INTO waiters, more
        FROM holdfast.blocker b JOIN holdfast.job w ON w.id = b.job_id
        WHERE b.chain_id = ANY (doomed) AND b.status IS NULL AND coalesce(w.chain_id, w.id) <> ALL (doomed);
        SELECT waiters || array_agg(DISTINCT w.id), more || array_agg(DISTINCT coalesce(w.chain_id, w.id)) INTO waiters, more
        FROM unnest(live) AS l JOIN holdfast.job w ON w.id = l.group_id
        WHERE w.blockers_left > 0 AND coalesce(w.chain_id, w.id) <> ALL (doomed);
        IF waiters IS NOT NULL AND NOT cascade THEN
            RAISE EXCEPTION 'other jobs wait for these chains' USING ERRCODE = 'HF004', DETAIL = array_to_string(waiters[:100], ' ');
        END IF;
        -- A chain may have continued while this waited for its last job.
        EXIT WHEN waiters IS NULL AND NOT EXISTS (
            SELECT FROM holdfast.job j WHERE (j.id = ANY (doomed) AND j.chain_id IS NULL OR j.chain_id = ANY (doomed))
                AND j.id NOT IN (SELECT l.id FROM unnest(live) AS l));
        doomed := doomed || coalesce(more, '{}');
    END LOOP;
    ended := ARRAY(
        SELECT h.id FROM holdfast.job_history h WHERE h.id = ANY (doomed) AND h.chain_id IS NULL OR h.chain_id = ANY (doomed)
        UNION ALL
        SELECT f.id FROM holdfast.job_failed f WHERE f.id = ANY (doomed) AND f.chain_id IS NULL OR f.chain_id = ANY (doomed) LIMIT 100001);
    IF cardinality(ended) > 100000 THEN
        RAISE EXCEPTION 'at most 100000 jobs are deleted at once: give fewer chains' USING ERRCODE = 'HF002';
    END IF;
    doomed := ARRAY(SELECT d FROM unnest(doomed) AS d
        WHERE EXISTS (SELECT FROM unnest(live) AS l WHERE coalesce(l.chain_id, l.id) = d)
           OR EXISTS (SELECT FROM holdfast.job_history h WHERE h.id = d AND h.chain_id IS NULL OR h.chain_id = d)
           OR EXISTS (SELECT FROM holdfast.job_failed f WHERE f.id = d AND f.chain_id IS NULL OR f.chain_id = d));
    PERFORM FROM holdfast.settle_patiently(ARRAY(
        SELECT ROW (l.id, holdfast.take_job(l.id), 0, 'cancelled', NULL, NULL, 'deleted', NULL, NULL, true, NULL, NULL, NULL, NULL, NULL, NULL)::holdfast.ending
        FROM unnest(live) AS l));
    WITH gone AS (DELETE FROM holdfast.job_history h WHERE h.id = ANY (ended) RETURNING h.finished_at, h.late)
    SELECT array_agg(g.finished_at) FILTER (WHERE g.late IS NULL) INTO completed_at FROM gone g;
    WITH gone AS (DELETE FROM holdfast.job_failed f WHERE f.id = ANY (ended) RETURNING f.finished_at, f.late)
    SELECT array_agg(g.finished_at) FILTER (WHERE g.late IS NULL) INTO failed_at FROM gone g;
    WITH gone AS (
        DELETE FROM holdfast.attempt a WHERE a.job_id = ANY (ended || ARRAY(SELECT l.id FROM unnest(live) AS l)) RETURNING a.ended_at, a.late)
    SELECT array_agg(g.ended_at) FILTER (WHERE g.late IS NULL) INTO tried_at FROM gone g;
    DELETE FROM holdfast.replay r WHERE r.job_id = ANY (ended);
    -- A deleted job cannot be replayed any more, so it may not stop an order key. Sorted, so that two transactions wait for each other in
    -- one direction only.
    PERFORM holdfast.resume_order_key(s.order_key)
    FROM (SELECT o.order_key FROM holdfast.order_stop o WHERE o.job_id = ANY (ended) ORDER BY hashtext(o.order_key)) AS s;
    PERFORM holdfast.count_deleted('attempt', tried_at);
    PERFORM holdfast.count_deleted('job_failed', failed_at);
    PERFORM holdfast.count_deleted('job_history', completed_at);
    PERFORM pg_notify('holdfast_' || l.locked_by, format('lost %s %s not_found', l.id, l.lock_token))
    FROM unnest(live) AS l WHERE l.status = 'processing';
    RETURN QUERY SELECT d FROM unnest(doomed) AS d ORDER BY d;
END $$;
