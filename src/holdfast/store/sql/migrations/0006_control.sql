-- What people and starting workers do.

-- A worker's id is never issued twice, whatever crashes: its row is on disk before the first claim names it.
CREATE FUNCTION holdfast.register_worker(name text, host text, pid integer, version text, queues text[], kinds text[]) RETURNS bigint
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    INSERT INTO holdfast.worker (name, host, pid, version, queues, kinds) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id INTO made;
    RETURN made;
END $$;

-- Calls a job off, in the caller's transaction: `cancelled` at once when it has not started, `requested` when it runs, or when it
-- waits in an order key and must leave it in its turn; `not_found` when it has ended.
CREATE FUNCTION holdfast.cancel_job(job_id bigint) RETURNS text
    LANGUAGE plpgsql VOLATILE SET jit = off SET enable_seqscan = off AS $$
DECLARE
    target holdfast.job;
    answer text;
BEGIN
    SELECT * INTO target FROM holdfast.job j WHERE j.id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    END IF;
    -- Who waits for the job cannot be told on an old snapshot: then it leaves in its turn.
    IF target.status IN ('pending', 'blocked') AND target.order_key IS NULL
        AND (target.awaited IS NULL OR current_setting('transaction_isolation') = 'read committed')
    THEN
        SELECT s.answer INTO answer FROM holdfast.settle_jobs(ARRAY[ROW (job_id, holdfast.take_job(job_id), 0, 'cancelled', NULL, NULL,
            'cancelled', NULL, NULL, NULL, NULL, NULL)::holdfast.ending]) AS s;
        IF answer = 'cancelled' THEN
            RETURN 'cancelled';
        END IF;
        UPDATE holdfast.job SET lock_token = NULL, locked_by = NULL WHERE id = job_id;
    END IF;
    -- What is called off waits for no other chain.
    UPDATE holdfast.job SET cancel_requested_at = clock_timestamp(),
        available_at = CASE WHEN status = 'processing' THEN available_at ELSE clock_timestamp() END,
        status = CASE WHEN blockers_left > 0 THEN 'pending' ELSE status END,
        blockers_left = CASE WHEN blockers_left > 0 THEN 0 ELSE blockers_left END
    WHERE id = job_id;
    IF target.status = 'processing' THEN
        PERFORM pg_notify('holdfast_' || target.locked_by, format('lost %s %s cancelled', job_id, target.lock_token));
    END IF;
    RETURN 'requested';
END $$;

-- Lets a stopped order key go on: with its lowest live job, which after a replay is the one that failed.
CREATE FUNCTION holdfast.resume_order_key(key text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET jit = off SET enable_seqscan = off AS $$
DECLARE
    stopped boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(key));
    DELETE FROM holdfast.order_stop WHERE order_key = key;
    stopped := FOUND;
    UPDATE holdfast.job SET status = 'pending', available_at = greatest(available_at, clock_timestamp())
    WHERE status = 'blocked' AND (blockers_left > 0) IS NOT TRUE
        AND id = (SELECT j.id FROM holdfast.job j WHERE j.order_key = key ORDER BY j.order_seq, j.id LIMIT 1);
    PERFORM holdfast.wake_sleepers(ARRAY[j.queue], ARRAY[j.kind]) FROM holdfast.job j
    WHERE j.order_key = key AND j.status = 'pending' ORDER BY j.order_seq, j.id LIMIT 1;
    RETURN stopped;
END $$;

-- A dead letter runs again as a new live job that names it. Its chain goes on with it; it comes after the same chains, and in an order
-- key it takes its old place. Who knows when it ended says so: by its id alone it is looked for in every day that is kept.
CREATE FUNCTION holdfast.replay_job(job_id bigint, ended timestamptz DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET jit = off SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    dead holdfast.job_failed;
    made bigint;
    holder bigint;
BEGIN
    IF ended IS NULL THEN
        SELECT * INTO dead FROM holdfast.job_failed WHERE id = job_id LIMIT 1;
    ELSE
        SELECT * INTO dead FROM holdfast.job_failed WHERE id = job_id AND finished_at = ended LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO holdfast.job (created_at, available_at, max_attempts, priority, shard, payload_version, order_block, chain_id, replay_of,
        order_seq, queue, kind, payload, headers, order_key, unique_key, status, blockers_left, run_anyway)
    VALUES (clock, clock, dead.max_attempts, dead.priority, holdfast.shard_of(dead.id, dead.order_key), dead.payload_version,
        dead.order_block, coalesce(dead.chain_id, dead.id), dead.id, dead.order_seq, dead.queue, dead.kind, dead.payload, dead.headers,
        dead.order_key, dead.unique_key, CASE WHEN dead.blockers IS NULL THEN 'pending' ELSE 'blocked' END::holdfast.status,
        cardinality(dead.blockers), dead.run_anyway)
    ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id INTO made;
    IF made IS NULL THEN
        SELECT j.id INTO holder FROM holdfast.job j WHERE j.unique_key = dead.unique_key AND j.kind = dead.kind LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a job with this unique key exists' USING ERRCODE = 'HF001', DETAIL = holder::text;
        END IF;
        RETURN NULL;
    END IF;
    INSERT INTO holdfast.replay (job_id, replay_id, replayed_at) VALUES (job_id, made, clock);
    PERFORM holdfast.name_blockers(array_agg(made), array_agg(b.chain_id), array_agg(b.ordinal::integer))
    FROM unnest(dead.blockers) WITH ORDINALITY AS b (chain_id, ordinal);
    PERFORM holdfast.refuse_circles(ARRAY[made]);
    PERFORM holdfast.wake_sleepers(ARRAY[dead.queue], ARRAY[dead.kind]);
    IF dead.order_key IS NOT NULL
       AND EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = dead.order_key AND s.job_id = replay_job.job_id) THEN
        PERFORM holdfast.resume_order_key(dead.order_key);
    END IF;
    RETURN made;
END $$;

-- How long until the next job of these queues and kinds is due; null: none is scheduled.
CREATE FUNCTION holdfast.next_due(queues text[], kinds text[]) RETURNS interval
    LANGUAGE plpgsql VOLATILE
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (SELECT min(due.available_at) - clock_timestamp()
            FROM unnest(queues) AS q (queue), unnest(kinds) AS k (kind), generate_series(0, 9) AS p (level),
                LATERAL (SELECT j.available_at FROM holdfast.job j
                         WHERE j.status = 'pending' AND j.queue = q.queue AND j.kind = k.kind AND j.priority = p.level::smallint
                           AND j.available_at > now() ORDER BY j.available_at LIMIT 1) AS due);
END $$;
