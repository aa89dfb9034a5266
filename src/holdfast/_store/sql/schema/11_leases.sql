-- Leases while a job runs: renewed, checked, and reported on. Each names (id, lock_token, locked_by).

-- Why a claim is lost. `busy`: it is held, but another transaction has the row locked now.
-- Called by renew_leases, check_claims, settle_batch, save_steps, load_steps, hold_story and 4 more.
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
-- Called by job.sql renew_leases.
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

-- Shortens what workers hold whose last heartbeat lies ahead of the clock, which was set back since: jobs, slots and memberships end one lease
-- from now, unless they are renewed, and the heartbeat counts as sent now. Returns how many workers these were. A live worker is among them
-- until its next heartbeat at most.
-- Called by job.sql shorten_leases.
CREATE FUNCTION holdfast.shorten_leases() RETURNS integer
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    held record;
    workers integer := 0;
BEGIN
    FOR held IN
        SELECT w.id, now() + coalesce((w.settings ->> 'processing_timeout_ms')::integer, 60000) * interval '1 millisecond' AS until, w.heartbeat_at
        FROM holdfast.worker w WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() + interval '1 minute'
        ORDER BY w.heartbeat_at LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        UPDATE holdfast.job j SET locked_until = held.until WHERE j.id = ANY (ARRAY(
            SELECT o.id FROM holdfast.job o WHERE o.status = 'processing' AND o.locked_until > held.until AND o.locked_by = held.id
            LIMIT 10000 FOR NO KEY UPDATE SKIP LOCKED));
        -- The rest, and what another transaction has locked: the next pass finds the worker again.
        CONTINUE WHEN EXISTS (SELECT FROM holdfast.job o
            WHERE o.status = 'processing' AND o.locked_until > held.until AND o.locked_by = held.id);
        UPDATE holdfast.schedule s SET locked_until = held.until WHERE s.locked_by = held.id AND s.locked_until > held.until;
        DELETE FROM holdfast.member m WHERE m.until > held.until AND m.worker_id = held.id;
        PERFORM holdfast.note_set_back(held.heartbeat_at);
        UPDATE holdfast.worker w SET heartbeat_at = now(), alone_until = least(w.alone_until, held.until) WHERE w.id = held.id;
        workers := workers + 1;
    END LOOP;
    RETURN workers;
END $$;

-- Returns those claims of a worker that were cancelled or are lost, and why. A worker runs it when it is notified of a loss: any login can
-- send such a notification, so it only causes a check.
-- Called by job.sql check_claims.
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

-- Stores the progress of running jobs, as reported by their handlers. Returns those that were written; locked or lost ones are not.
-- Called by chain.sql report_progress.
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
