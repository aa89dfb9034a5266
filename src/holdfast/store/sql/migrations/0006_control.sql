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
        RETURN 'cancelled';
    END IF;
    UPDATE holdfast.job SET cancel_requested_at = clock_timestamp(),
        available_at = CASE WHEN status = 'processing' THEN available_at ELSE clock_timestamp() END
    WHERE id = job_id;
    RETURN CASE WHEN FOUND THEN 'requested' ELSE 'not_found' END;
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
    WHERE status = 'blocked' AND id = (SELECT j.id FROM holdfast.job j WHERE j.order_key = key ORDER BY j.order_seq LIMIT 1);
    RETURN stopped;
END $$;

-- A dead letter runs again as a new live job that names it. In an order key it takes its old place.
CREATE FUNCTION holdfast.replay_job(job_id bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    made bigint;
    key text;
BEGIN
    INSERT INTO holdfast.job (created_at, available_at, max_attempts, priority, shard, payload_version, order_block, chain_id, replay_of,
        order_seq, queue, kind, payload, headers, order_key, unique_key)
    SELECT clock, clock, max_attempts, priority, holdfast.shard_of(id, order_key), payload_version, order_block, chain_id, id,
        order_seq, queue, kind, payload, headers, order_key, unique_key
    FROM holdfast.job_failed WHERE id = job_id LIMIT 1
    RETURNING id, order_key INTO made, key;
    IF key IS NOT NULL AND EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = key AND s.job_id = replay_job.job_id) THEN
        PERFORM holdfast.resume_order_key(key);
    END IF;
    RETURN made;
END $$;
