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
    LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
    token bigint;
    holder bigint;
BEGIN
    PERFORM holdfast.need_partitions();
    WITH gone AS (
        DELETE FROM holdfast.job j WHERE j.id = job_id AND j.status IN ('pending', 'blocked') AND j.order_key IS NULL RETURNING j.*)
    INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, status, attempt, max_attempts, priority, payload_version,
        chain_id, replay_of, queue, kind, payload, headers, unique_key, last_error_code, last_error)
    SELECT id, created_at, available_at, clock_timestamp(), 'cancelled', attempt, max_attempts, priority, payload_version,
        chain_id, replay_of, queue, kind, payload, headers, unique_key, 'cancelled', last_error
    FROM gone;
    IF FOUND THEN
        INSERT INTO holdfast.tally (minute, jobs, outcome, queue, kind)
        SELECT date_trunc('minute', now()), 1, 'cancelled', h.queue, h.kind FROM holdfast.job_history h
        WHERE h.id = job_id AND h.finished_at >= now() LIMIT 1;
        RETURN 'cancelled';
    END IF;
    UPDATE holdfast.job SET cancel_requested_at = clock_timestamp(),
        available_at = CASE WHEN status = 'processing' THEN available_at ELSE clock_timestamp() END
    WHERE id = job_id
    RETURNING lock_token, locked_by INTO token, holder;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF holder IS NOT NULL THEN
        PERFORM pg_notify('holdfast_' || holder, format('lost %s %s cancelled', job_id, token));
    END IF;
    RETURN 'requested';
END $$;

-- Lets a stopped order key go on: with its lowest live job, which after a replay is the one that failed.
CREATE FUNCTION holdfast.resume_order_key(key text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
    stopped boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(key));
    DELETE FROM holdfast.order_stop WHERE order_key = key;
    stopped := FOUND;
    UPDATE holdfast.job SET status = 'pending', available_at = greatest(available_at, clock_timestamp())
    WHERE status = 'blocked' AND id = (SELECT j.id FROM holdfast.job j WHERE j.order_key = key ORDER BY j.order_seq, j.id LIMIT 1);
    PERFORM holdfast.wake_sleepers(ARRAY[j.queue], ARRAY[j.kind]) FROM holdfast.job j
    WHERE j.order_key = key AND j.status = 'pending' ORDER BY j.order_seq, j.id LIMIT 1;
    RETURN stopped;
END $$;

-- A dead letter runs again as a new live job that names it. In an order key it takes its old place.
CREATE FUNCTION holdfast.replay_job(job_id bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    made bigint;
    holder bigint;
    key text;
BEGIN
    INSERT INTO holdfast.job (created_at, available_at, max_attempts, priority, shard, payload_version, order_block, chain_id, replay_of,
        order_seq, queue, kind, payload, headers, order_key, unique_key)
    SELECT clock, clock, max_attempts, priority, holdfast.shard_of(id, order_key), payload_version, order_block, chain_id, id,
        order_seq, queue, kind, payload, headers, order_key, unique_key
    FROM holdfast.job_failed WHERE id = job_id LIMIT 1
    ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id, order_key INTO made, key;
    IF made IS NULL THEN
        SELECT j.id INTO holder FROM holdfast.job_failed f JOIN holdfast.job j ON j.unique_key = f.unique_key AND j.kind = f.kind
        WHERE f.id = job_id LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a job with this unique key exists' USING ERRCODE = 'HF001', DETAIL = holder::text;
        END IF;
        RETURN NULL;
    END IF;
    PERFORM holdfast.wake_sleepers(ARRAY[j.queue], ARRAY[j.kind]) FROM holdfast.job j WHERE j.id = made;
    IF key IS NOT NULL AND EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = key AND s.job_id = replay_job.job_id) THEN
        PERFORM holdfast.resume_order_key(key);
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
