-- Functions that end a chain from outside its worker's batches, and notify its watchers.

-- For functions that release other jobs: a snapshot as old as its transaction does not show the jobs that began to wait meanwhile, so they
-- would wait for ever.
CREATE FUNCTION holdfast.need_read_committed() RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'this lets other jobs go on, and needs a READ COMMITTED transaction: this one is %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'HF003';
    END IF;
END $$;

-- The same, but a stricter transaction may decide about rows that no other can see: its own jobs and order keys, as in a user's test. Its
-- own writes are newer than its snapshot.
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
CREATE FUNCTION holdfast.take_job(job_id bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    UPDATE holdfast.job SET lock_token = nextval('holdfast.token'), locked_by = 0 WHERE id = job_id RETURNING lock_token
$$;

-- The one way out of `processing` for all jobs that complete_jobs does not handle, including order keys, chains and blockers. Returns for
-- every job its new status, `busy`, or why it is lost. A job that is not claimed leaves this way too: with holder 0, which is no worker's
-- id. A next job with a unique key, or after other chains, may have to wait for an open transaction of another session. Such endings are
-- written apart from all others, and wait for no lock longer than 100 ms: then all of them are `busy`. Try again one by one.
CREATE FUNCTION holdfast.settle_jobs(given holdfast.ending[]) RETURNS TABLE (id bigint, token bigint, answer text, next_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    plain holdfast.ending[];
    apart holdfast.ending[];
BEGIN
    SELECT array_agg(g.ending) FILTER (WHERE NOT g.waits), array_agg(g.ending) FILTER (WHERE g.waits) INTO plain, apart
    FROM (SELECT e AS ending, e.next ->> 'unique_key' IS NOT NULL OR e.next -> 'blockers' IS NOT NULL AS waits FROM unnest(given) AS e) AS g;
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
CREATE FUNCTION holdfast.settle_apart(given holdfast.ending[]) RETURNS TABLE (id bigint, token bigint, answer text, next_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    RETURN QUERY SELECT * FROM holdfast.settle_batch(given);
END $$;

-- Settles endings that must not be `busy`: waits for a transaction that has a row locked, as long as lock_timeout, at most two seconds.
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

-- Completes a claimed job in its handler's own transaction, as the last statement before COMMIT: `completed`, or why it is lost.
CREATE FUNCTION holdfast.complete_job(job_id bigint, token bigint, worker bigint, result json DEFAULT NULL, next json DEFAULT NULL,
        ran_ms integer DEFAULT NULL) RETURNS text
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
        ROW (job_id, token, worker, 'completed', NULL, result, NULL, NULL, next, NULL, NULL, NULL, ran_ms, NULL, NULL)::holdfast.ending]) AS s);
END $$;

-- Completes many claimed jobs as complete_job does one, in one statement. `endings` is the text of a JSON array of objects with the fields id,
-- token, result, next and ran_ms. Returns for every job `completed`, or why it is lost; the others are completed all the same.
CREATE FUNCTION holdfast.complete_batch(worker bigint, endings text) RETURNS TABLE (id bigint, token bigint, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    given holdfast.ending[] := ARRAY(
        SELECT ROW (e.id, e.token, worker, 'completed', NULL, e.result, NULL, NULL, e.next, NULL, NULL, NULL, e.ran_ms, NULL, NULL)::holdfast.ending
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
            CASE WHEN l.id = (live[cardinality(live)]).id THEN next END, NULL, NULL, NULL, NULL, NULL, NULL)::holdfast.ending FROM unnest(live) AS l));
    PERFORM pg_notify('holdfast_' || l.locked_by, format('lost %s %s already_completed', l.id, l.lock_token))
    FROM unnest(live) AS l WHERE l.status = 'processing';
    RETURN 'completed';
END $$;

-- Deletes a waiting job without history: `deleted`, `processing` or `not_found`. Jobs that wait for it see that it did not complete.
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
        true, NULL, NULL, NULL, NULL, NULL)::holdfast.ending]);
    RETURN 'deleted';
END $$;

-- Deletes whole chains, ended or live, with all their data; returns those that existed. Refused when a job of another chain waits for one
-- of them, or, with `cascade`, those chains are deleted too. SECURITY DEFINER: no role may delete from the history.
CREATE FUNCTION holdfast.delete_chains(chains bigint[], cascade boolean DEFAULT false) RETURNS SETOF bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    doomed bigint[] := ARRAY(SELECT DISTINCT c FROM unnest(chains) AS c);
    live holdfast.job[];
    waiters bigint[];
    more bigint[];
    ended bigint[];
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
        SELECT ROW (l.id, holdfast.take_job(l.id), 0, 'cancelled', NULL, NULL, 'deleted', NULL, NULL, true, NULL, NULL, NULL, NULL, NULL)::holdfast.ending
        FROM unnest(live) AS l));
    DELETE FROM holdfast.job_history h WHERE h.id = ANY (ended);
    DELETE FROM holdfast.job_failed f WHERE f.id = ANY (ended);
    DELETE FROM holdfast.attempt a WHERE a.job_id = ANY (ended || ARRAY(SELECT l.id FROM unnest(live) AS l));
    DELETE FROM holdfast.replay r WHERE r.job_id = ANY (ended);
    -- A deleted job cannot be replayed any more, so it may not stop an order key. Sorted, so that two transactions wait for each other in
    -- one direction only.
    PERFORM holdfast.resume_order_key(s.order_key)
    FROM (SELECT o.order_key FROM holdfast.order_stop o WHERE o.job_id = ANY (ended) ORDER BY hashtext(o.order_key)) AS s;
    PERFORM pg_notify('holdfast_' || l.locked_by, format('lost %s %s not_found', l.id, l.lock_token))
    FROM unnest(live) AS l WHERE l.status = 'processing';
    RETURN QUERY SELECT d FROM unnest(doomed) AS d ORDER BY d;
END $$;

-- Notifies the watchers of these chains. Call it in a statement after the write, and only when there is any watcher. Notified of a chain
-- that has not ended, they only read it once more.
CREATE FUNCTION holdfast.notify_watchers(chains bigint[], words text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_hashjoin = on SET enable_nestloop = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();     -- not now(), as in wake_sleepers
BEGIN
    PERFORM pg_notify('holdfast_watch_' || w.listener, said.words)
    FROM unnest(chains, words) AS said (chain_id, words) JOIN holdfast.watcher w ON w.chain_id = said.chain_id WHERE w.until > clock;
END $$;

-- Stores the progress of running jobs, as reported by their handlers. Returns those that were written; locked or lost ones are not.
CREATE FUNCTION holdfast.report_progress(worker bigint, ids bigint[], tokens bigint[], fractions real[], notes text[])
    RETURNS TABLE (id bigint, token bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_indexscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    written holdfast.job[];
BEGIN
    WITH given AS MATERIALIZED (SELECT * FROM unnest(ids, tokens, fractions, notes) AS g (id, token, fraction, note)),
    held AS MATERIALIZED (
        SELECT j.id, g.fraction, g.note FROM holdfast.job j JOIN given g ON j.id = g.id AND j.lock_token = g.token
        WHERE j.id = ANY (ids) AND j.locked_by = worker ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED),
    said AS (
        UPDATE holdfast.job j SET progress = least(greatest(h.fraction, 0), 1), progress_note = left(h.note, 200) FROM held h
        WHERE j.id = ANY (ARRAY(SELECT id FROM held)) AND j.id = h.id RETURNING j)
    SELECT array_agg(j) INTO written FROM said;
    IF EXISTS (SELECT FROM holdfast.watcher WHERE until > now()) THEN
        PERFORM holdfast.notify_watchers(array_agg(coalesce(w.chain_id, w.id)),
            array_agg(format('progress %s %s %s', coalesce(w.chain_id, w.id), w.progress, w.progress_note))) FROM unnest(written) AS w;
    END IF;
    RETURN QUERY SELECT w.id, w.lock_token FROM unnest(written) AS w;
END $$;
