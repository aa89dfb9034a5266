-- Expired leases are taken away from workers that died.

-- Settles endings, and halves those that cannot be written until the culprit stands alone: a user's trigger may raise. The culprit is
-- answered `busy`, with the error, and nothing is written of it. Without one, it costs a subtransaction.
-- Called by reap_jobs.
CREATE FUNCTION holdfast.settle_in_parts(given holdfast.ending[]) RETURNS TABLE (id bigint, answer text, refusal text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    middle integer := cardinality(given) / 2;
    ids bigint[];
    answers text[];
BEGIN
    BEGIN
        SELECT array_agg(s.id), array_agg(s.answer) INTO ids, answers FROM holdfast.settle_jobs(given) AS s;
    EXCEPTION WHEN serialization_failure OR SQLSTATE 'HF003' THEN
        RAISE;      -- of the transaction, and of no ending
    WHEN OTHERS THEN
        IF middle = 0 THEN
            RETURN QUERY SELECT given[1].id, 'busy', SQLERRM;
        ELSE
            RETURN QUERY SELECT * FROM holdfast.settle_in_parts(given[:middle]);
            RETURN QUERY SELECT * FROM holdfast.settle_in_parts(given[middle + 1:]);
        END IF;
        RETURN;
    END;
    RETURN QUERY SELECT a.id, a.answer, NULL FROM unnest(ids, answers) AS a (id, answer);
END $$;

-- Takes back jobs whose lease expired, oldest first. The attempt was counted at the claim. Any of these jobs may have ended the process of
-- its worker, so they run apart from then on. If the worker is lost again while it runs other suspects too, the attempt does not count, and
-- the job runs alone. If it is lost while the job runs alone, the job has ended the process, unless the worker has claimed another since:
-- then the job had ended, and only its outcome was not written. The first loss is nearly always no fault of the job: it is due again at
-- once. The later ones wait as a failed attempt would.
--   kinds    null: all of them
--   delays   JSON: kind to the list of retry delays in milliseconds, by attempt; the last one repeats; '*' is for kinds not listed
-- leases that ended before are left to a wider pass: below are the dead entries of old leases
-- Called by job.sql reap_jobs.
CREATE FUNCTION holdfast.reap_jobs(kinds text[], delays json, jitter_ms integer, since timestamptz, most integer)
    RETURNS TABLE (id bigint, kind text, worker_id bigint, lock_token bigint, attempt smallint, locked_until timestamptz, answer text,
        error_code text, error text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off
    SET plan_cache_mode = force_generic_plan SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
    expired holdfast.job[];
    had_ended bigint[] := '{}';     -- ran alone, and no longer when their worker was lost
    endings holdfast.ending[];
BEGIN
    WITH due AS MATERIALIZED (
        SELECT j AS lost FROM holdfast.job j
        WHERE j.status = 'processing' AND j.locked_until < now() AND j.locked_until >= since AND (kinds IS NULL OR j.kind = ANY (kinds))
        ORDER BY j.locked_until LIMIT most FOR UPDATE SKIP LOCKED)
    SELECT array_agg(lost) INTO expired FROM due;
    IF expired IS NULL THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM unnest(expired) AS x WHERE x.suspect > 0) THEN
        had_ended := ARRAY(
            SELECT x.id FROM unnest(expired) AS x
            WHERE x.suspect > 0 AND EXISTS (
                SELECT FROM holdfast.job j
                WHERE j.status = 'processing' AND j.locked_by = x.locked_by AND j.lock_token > x.lock_token));
    END IF;
    endings := ARRAY(
        SELECT ROW (x.id, x.lock_token, x.locked_by, CASE WHEN x.in_trial THEN 'released' ELSE 'lost' END,
            CASE WHEN x.suspect IS NULL AND x.attempt = 1 THEN 0
                 ELSE coalesce((d.list ->> least(x.attempt, json_array_length(d.list)) - 1)::bigint, 0) + (random() * jitter_ms)::bigint END, NULL,
            CASE WHEN x.suspect IS NULL THEN 'lease_expired' WHEN x.in_trial THEN 'lost_in_trial' ELSE 'crashed_alone' END,
            CASE WHEN x.suspect > 0 AND NOT x.in_trial THEN 'the worker''s process ended while this job ran alone, '
                                         || CASE x.suspect WHEN 1 THEN 'once' ELSE x.suspect || ' times' END
                 ELSE 'worker ' || coalesce((SELECT w.name FROM holdfast.worker w WHERE w.id = x.locked_by), x.locked_by::text)
                      || ' did not renew the lease' END,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::holdfast.ending
        FROM (SELECT e.*, coalesce(e.suspect = 0 OR e.id = ANY (had_ended), false) AS in_trial FROM unnest(expired) AS e) AS x,
            LATERAL (SELECT coalesce(delays -> x.kind, delays -> '*', '[0]') AS list) AS d);
    RETURN QUERY
    SELECT x.id, x.kind, x.locked_by, x.lock_token, x.attempt, x.locked_until, s.answer,
        CASE WHEN s.refusal IS NULL THEN e.error_code ELSE 'refused' END, coalesce(s.refusal, e.error)
    FROM holdfast.settle_in_parts(endings) AS s JOIN unnest(expired) AS x ON x.id = s.id JOIN unnest(endings) AS e ON e.id = s.id
    ORDER BY x.locked_until;
    -- The holder may be alive, only slow: notified now, it need not wait for its next heartbeat to find out.
    PERFORM pg_notify('holdfast_' || x.locked_by, format('lost %s %s taken_by_another_worker', x.id, x.lock_token))
    FROM unnest(expired) AS x
        LEFT JOIN holdfast.job j ON j.id = ANY (ARRAY(SELECT e.id FROM unnest(expired) AS e))
            AND j.id = x.id AND j.lock_token = x.lock_token AND j.locked_by = x.locked_by
    WHERE j.id IS NULL;
END $$;
