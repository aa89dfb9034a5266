-- Jobs whose worker was lost with them. One of them may have ended its process, so they run apart.

-- Claims jobs whose worker was lost, most urgent first, for a worker that runs nothing else until they have ended. For one job, it takes
-- any: if the process dies again, that job ended it. For more, it takes only those that were never tried together before.
-- Returns the columns of a job, as claim_jobs does. Both list them, because one function from a row to these columns would double the time
-- of a claim: 2.0 ms instead of 1.1 ms for 50 jobs.
-- Called by job.sql claim_suspects.
CREATE FUNCTION holdfast.claim_suspects(worker bigint, queues text[], kinds text[], leases integer[], most integer)
    RETURNS TABLE (id bigint, lock_token bigint, queue text, kind text, payload text, headers text, payload_version smallint,
        attempt smallint, max_attempts smallint, priority smallint, available_at timestamptz, chain_id bigint, order_key text,
        expired boolean, cancelled boolean, young boolean, has_blockers boolean, blocker_failed boolean, created bigint, waited bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    rows tid[];
    keyed bigint[];
    heads tid[];
    passed_by bigint[] := '{}';     -- not at the head of their order key, or without room in their limits
BEGIN
    LOOP
        WITH due AS MATERIALIZED (
            SELECT j.ctid, j.id, j.order_key IS NOT NULL OR j.limits IS NOT NULL AS keyed FROM holdfast.job j
            WHERE j.suspect IS NOT NULL AND (most = 1 OR j.suspect = 0) AND j.status = 'pending' AND j.available_at <= now()
                AND j.queue = ANY (queues) AND j.kind = ANY (kinds) AND j.id <> ALL (passed_by)
                AND NOT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = j.queue AND q.paused)
            ORDER BY j.priority, j.available_at, j.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED)
        SELECT coalesce(array_agg(ctid) FILTER (WHERE NOT keyed), '{}'),
            coalesce(array_agg(id) FILTER (WHERE keyed), '{}')
        INTO rows, keyed FROM due;
        IF keyed <> '{}' THEN
            SELECT o.heads INTO heads FROM holdfast.take_keyed(keyed, 100, most - cardinality(rows), true, 0::smallint, 63::smallint) AS o;
            rows := rows || heads;
            passed_by := passed_by || keyed;
        END IF;
        EXIT WHEN rows <> '{}' OR keyed = '{}' OR cardinality(passed_by) > 1000;
    END LOOP;
    RETURN QUERY
    UPDATE holdfast.job j SET status = 'processing', claimed_at = now(), attempt = least(j.attempt + 1, 32767), locked_by = worker, lock_token = t.token,
        locked_until = now() + leases[CASE WHEN cardinality(leases) = 1 THEN 1 ELSE array_position(kinds, j.kind) END]
            * interval '1 millisecond',
        limit_key = j.limits[1], suspect = CASE WHEN cardinality(rows) = 1 THEN greatest(j.suspect, 1) ELSE j.suspect END
    FROM (SELECT nextval('holdfast.token') AS token WHERE rows <> '{}') AS t
    WHERE j.ctid = ANY (rows)
    RETURNING j.id, j.lock_token, j.queue, j.kind, j.payload::text, j.headers::text, coalesce(j.payload_version, 1::smallint),
        j.attempt, j.max_attempts, j.priority, j.available_at, coalesce(j.chain_id, j.id), coalesce(j.order_key, j.limit_key),
        coalesce(j.expires_at <= now(), false), j.cancel_requested_at IS NOT NULL,
        j.created_at > now() - interval '10 minutes', j.blockers_left IS NOT NULL,
        j.blocker_failed IS TRUE AND j.run_anyway IS NOT TRUE, (1000000 * date_part('epoch', j.created_at))::bigint,
        (1000000 * date_part('epoch', j.claimed_at - j.available_at))::bigint;
END $$;

-- The time until a suspect of these queues and kinds is due; negative if it is overdue; null: there is none.
-- Called by job.sql next_suspect.
CREATE FUNCTION holdfast.next_suspect(queues text[], kinds text[]) RETURNS interval
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (SELECT min(j.available_at) - now() FROM holdfast.job j
            WHERE j.suspect IS NOT NULL AND j.status = 'pending' AND j.queue = ANY (queues) AND j.kind = ANY (kinds)
                AND NOT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = j.queue AND q.paused));
END $$;
