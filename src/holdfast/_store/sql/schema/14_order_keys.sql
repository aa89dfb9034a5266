-- Order keys: the jobs of a key run one at a time, in the order of their places. Parked by the claim, promoted when a job leaves
-- `processing`.

-- An order key whose first job failed: an operator must act before the next job may run.
CREATE TABLE holdfast.order_stop (
    order_key  text COLLATE "C" PRIMARY KEY,
    job_id     bigint NOT NULL,
    stopped_at timestamptz NOT NULL
);

-- Decides which of these candidates with an order key may run; all are locked by this transaction. New statements see new snapshots, so a
-- decision under the key's lock sees all writes of the last holder of that lock. A key that another transaction holds is left for the next
-- claim; no claim ever waits.
-- Called by take_keyed.
CREATE FUNCTION holdfast.take_order_heads(ids bigint[], budget integer,
    OUT heads tid[], OUT parked integer, OUT keys integer, OUT left_alone bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held text[];
    behind bigint[];
    early bigint[];
    promoted bigint[];              -- of those that are parked: were promoted for a limit
BEGIN
    SELECT coalesce(array_agg(k.order_key), '{}') INTO held
    FROM (SELECT DISTINCT j.order_key FROM holdfast.job j WHERE j.id = ANY (ids) ORDER BY 1 LIMIT budget) AS k
    WHERE pg_try_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(k.order_key));
    keys := cardinality(held);
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM holdfast.need_own_jobs('{}', held);
    END IF;
    left_alone := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id = ANY (ids) AND j.order_key <> ALL (held));

    WITH verdict AS MATERIALIZED (
        SELECT j.id, j.ctid,
            EXISTS (SELECT FROM holdfast.job e WHERE e.order_key = j.order_key AND (e.order_seq, e.id) < (j.order_seq, j.id))
                OR EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = j.order_key) AS waits,
            EXISTS (SELECT FROM holdfast.job e WHERE e.order_key = j.order_key AND e.status = 'processing') AS busy
        FROM holdfast.job j WHERE j.id = ANY (ids) AND j.order_key = ANY (held))
    SELECT coalesce(array_agg(v.id) FILTER (WHERE v.waits), '{}'),
        coalesce(array_agg(v.id) FILTER (WHERE v.busy AND NOT v.waits), '{}'),
        coalesce(array_agg(v.ctid) FILTER (WHERE NOT v.busy AND NOT v.waits), '{}')
    INTO behind, early, heads FROM verdict v;

    -- Parked only behind a lower live job: a job that leaves a key promotes the next above it, so the lowest is never left parked. The jobs
    -- behind it in the same key would be found next, and are parked too.
    WITH parking AS (
    UPDATE holdfast.job SET status = 'blocked' WHERE ctid = ANY (ARRAY(
        SELECT follower.ctid
        FROM (SELECT DISTINCT ON (j.order_key) j.order_key, j.order_seq, j.id FROM holdfast.job j WHERE j.id = ANY (behind)
              ORDER BY j.order_key, j.order_seq, j.id) AS b,
            LATERAL (SELECT j.ctid FROM holdfast.job j
                     WHERE j.order_key = b.order_key AND (j.order_seq, j.id) >= (b.order_seq, b.id) AND j.status = 'pending'
                     ORDER BY j.order_seq, j.id LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED) AS follower)) RETURNING id, limit_key)
    SELECT array_agg(p.id) INTO promoted FROM parking p WHERE p.limit_key IS NOT NULL;
    IF promoted IS NOT NULL THEN
        PERFORM holdfast.pass_promotion(promoted);
    END IF;
    -- The lowest of its key, committed late, while a later one already runs: that one will not look below itself. Claim again soon.
    UPDATE holdfast.job SET available_at = clock_timestamp() + interval '1 second', later = true WHERE id = ANY (early);
    parked := cardinality(behind) + cardinality(early);
END $$;

-- The order keys of these jobs, locked in one direction; claims never wait for them. A claim or another finish that has one ends soon, so
-- this waits for it, but not for a user's open transaction: then the jobs in that key are stuck, and the caller tries again.
-- Called by settle_batch.
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
-- Called by settle_batch.
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

-- Resumes a stopped order key: with its lowest live job, which after a replay is the one that failed.
-- Called by delete_chains, replay_job, job.sql resume_order_key.
CREATE FUNCTION holdfast.resume_order_key(key text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    stopped boolean;
    fault text := CASE WHEN key IS NULL THEN 'key: 1 to 500 bytes of text expected, got null' ELSE holdfast.text_fault('key', key, 500) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(key));
    DELETE FROM holdfast.order_stop WHERE order_key = key;
    stopped := FOUND;
    UPDATE holdfast.job SET status = 'pending', available_at = greatest(available_at, clock_timestamp()),
        later = holdfast.is_later(available_at, NULL, clock_timestamp())
    WHERE status = 'blocked' AND (blockers_left > 0) IS NOT TRUE
        AND id = (SELECT j.id FROM holdfast.job j WHERE j.order_key = key ORDER BY j.order_seq, j.id LIMIT 1);
    PERFORM holdfast.wake_sleepers(ARRAY[j.queue], ARRAY[j.kind]) FROM holdfast.job j
    WHERE j.order_key = key AND j.status = 'pending' ORDER BY j.order_seq, j.id LIMIT 1;
    RETURN stopped;
END $$;
