-- The claim. Its planner settings are fixed, so that the statistics of a table that was empty a second ago cannot turn a look-up by
-- index into a scan, and a short statement is never compiled.

-- Of candidates with an order key, all locked by this transaction: which may run. New statements see new snapshots, so what is
-- decided under the key's lock is decided on what the last holder of that lock left behind. A key that somebody else holds is
-- left for the next claim; no claim ever waits.
CREATE FUNCTION holdfast.take_order_heads(ids bigint[], budget integer,
    OUT heads tid[], OUT parked integer, OUT keys integer, OUT left_alone bigint[])
    LANGUAGE plpgsql VOLATILE
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held text[];
    behind bigint[];
    early bigint[];
BEGIN
    SELECT coalesce(array_agg(k.order_key), '{}') INTO held
    FROM (SELECT DISTINCT j.order_key FROM holdfast.job j WHERE j.id = ANY (ids) ORDER BY 1 LIMIT budget) AS k
    WHERE pg_try_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(k.order_key));
    keys := cardinality(held);
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

    -- Parked only behind a lower live job: whoever leaves a key promotes the next above it, so the lowest is never left parked.
    -- What follows in the same key would be met next, and is parked along.
    UPDATE holdfast.job SET status = 'blocked' WHERE ctid = ANY (ARRAY(
        SELECT follower.ctid
        FROM (SELECT DISTINCT ON (j.order_key) j.order_key, j.order_seq, j.id FROM holdfast.job j WHERE j.id = ANY (behind)
              ORDER BY j.order_key, j.order_seq, j.id) AS b,
            LATERAL (SELECT j.ctid FROM holdfast.job j
                     WHERE j.order_key = b.order_key AND (j.order_seq, j.id) >= (b.order_seq, b.id) AND j.status = 'pending'
                     ORDER BY j.order_seq, j.id LIMIT 1000 FOR UPDATE SKIP LOCKED) AS follower));
    -- The lowest of its key, committed late, while a later one already runs: that one will not look below itself. Ask again soon.
    UPDATE holdfast.job SET available_at = clock_timestamp() + interval '1 second' WHERE id = ANY (early);
    parked := cardinality(behind) + cardinality(early);
END $$;

-- Where to begin in one lane: below where its last claim ended, by as much as commits come late. A floor ahead of the clock is of
-- another clock (failover, step) and is ignored.
CREATE FUNCTION holdfast.claim_floor(last timestamptz, reach interval) RETURNS timestamptz
    LANGUAGE sql STABLE AS $$ SELECT CASE WHEN last <= now() THEN last - reach ELSE '-infinity' END $$;

-- Takes due jobs: queue by queue, most urgent priority first, oldest first among the given kinds.
--   slots     jobs wanted per queue
--   leases    milliseconds: one for all kinds, or one per kind
--   floors    where the last claims ended, by queue, then priority 0..9, then kind; null: nowhere yet
--   reach     how far below the floors to look
-- A last row without id says that jobs were parked behind their order key until time ran out: call again at once.
CREATE FUNCTION holdfast.claim_jobs(worker bigint, queues text[], slots integer[], kinds text[], leases integer[],
    floors timestamptz[], reach interval, shard_from smallint DEFAULT 0, shard_to smallint DEFAULT 63)
    RETURNS TABLE (id bigint, lock_token bigint, queue text, kind text, payload text, headers text, payload_version smallint,
        attempt smallint, max_attempts smallint, priority smallint, available_at timestamptz, chain_id bigint, order_key text,
        expired boolean, cancelled boolean, young boolean, has_blockers boolean, blocker_failed boolean)
    LANGUAGE plpgsql VOLATILE
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    token bigint;
    need integer;
    level smallint;
    due_kinds text[];               -- that have something due in this queue and priority, and from when on
    due_floors timestamptz[];
    look integer;
    more boolean;
    rows tid[];
    keyed bigint[];
    parked integer;                 -- jobs met in this round that could not be taken: look for others
    passed_by bigint[] := '{}';     -- of keys that somebody else holds just now, or too many for one call
    again boolean := false;
    key_budget integer := 100;      -- advisory locks of one call: they fill a table that all sessions share
    deadline timestamptz := clock_timestamp() + interval '200 milliseconds';
    sweeps boolean := false;
BEGIN
    -- A finish on a snapshot as old as its transaction does not see what a claim parks meanwhile, and would strand an order key. A
    -- transaction that has written something before, as a user's test has, sees what it claims.
    IF current_setting('transaction_isolation') <> 'read committed' AND pg_current_xact_id_if_assigned() IS NULL THEN
        RAISE EXCEPTION 'jobs are claimed in a READ COMMITTED transaction, and here it is %: ALTER ROLE % SET default_transaction_isolation = %',
            upper(current_setting('transaction_isolation')), quote_ident(current_user), quote_literal('read committed') USING ERRCODE = 'HF003';
    END IF;
    -- A wide look walks over every dead entry that cannot be vacuumed yet. When that is slow, one worker does it for all.
    IF reach > interval '10 seconds' THEN
        sweeps := NOT EXISTS (SELECT FROM holdfast.sweep s WHERE s.until > now() AND s.reach >= claim_jobs.reach)
            AND pg_try_advisory_xact_lock(hashtext('holdfast.sweep'), extract(epoch FROM reach)::integer);
        reach := CASE WHEN sweeps THEN reach ELSE interval '5 seconds' END;
    END IF;
    FOR q IN 1..cardinality(queues) LOOP
        EXIT WHEN again;
        need := slots[q];
        CONTINUE WHEN need <= 0 OR EXISTS (SELECT FROM holdfast.queue WHERE name = queues[q] AND paused);
        level := -1;
        WHILE need > 0 AND NOT again LOOP
            -- The next priority in which anything is due, the kinds that have it, and from when on: one look per kind, no locks.
            SELECT p, due.kinds, due.floors INTO level, due_kinds, due_floors
            FROM generate_series(level + 1, 9) AS p,
                LATERAL (SELECT array_agg(k.kind) AS kinds, array_agg(first.available_at) AS floors
                         FROM unnest(kinds) WITH ORDINALITY AS k (kind, n),
                             LATERAL (SELECT holdfast.claim_floor(floors[((q - 1) * 10 + p) * cardinality(kinds) + k.n], reach) AS floor
                                      OFFSET 0) AS f,
                             LATERAL (SELECT j.available_at FROM holdfast.job j
                                      WHERE j.status = 'pending' AND j.queue = queues[q] AND j.kind = k.kind AND j.priority = p::smallint
                                        AND j.available_at >= f.floor AND j.available_at <= now()
                                        AND j.shard BETWEEN shard_from AND shard_to
                                      ORDER BY j.available_at, j.id LIMIT 1) AS first) AS due
            WHERE due.kinds IS NOT NULL LIMIT 1;
            EXIT WHEN NOT FOUND;
            look := CASE WHEN cardinality(due_kinds) = 1 THEN need ELSE need / cardinality(due_kinds) + 16 END;
            LOOP
                -- Of each kind as many as its share of the oldest is likely to be, a few too many, and of these the oldest. Where one
                -- kind's look ended is the horizon: what the others have beyond it may not be the oldest, and waits for a longer look.
                WITH due AS MATERIALIZED (
                    SELECT k.n, locked.* FROM unnest(due_kinds, due_floors) WITH ORDINALITY AS k (kind, floor, n),
                        LATERAL (SELECT j.ctid, j.id, j.order_key, j.available_at FROM holdfast.job j
                                 WHERE j.status = 'pending' AND j.queue = queues[q] AND j.kind = k.kind AND j.priority = level
                                   AND j.available_at >= k.floor AND j.available_at <= now() AND j.shard BETWEEN shard_from AND shard_to
                                   AND j.id <> ALL (passed_by)
                                 ORDER BY j.available_at, j.id LIMIT look FOR UPDATE SKIP LOCKED) AS locked),
                horizon AS MATERIALIZED (
                    SELECT min(e.at) AS at FROM (SELECT max(available_at) AS at FROM due GROUP BY n HAVING count(*) = look) AS e),
                oldest AS MATERIALIZED (
                    SELECT ctid, id, order_key FROM due WHERE available_at <= coalesce((SELECT at FROM horizon), 'infinity')
                    ORDER BY available_at, id LIMIT need)
                SELECT coalesce(array_agg(ctid) FILTER (WHERE order_key IS NULL), '{}'),
                    coalesce(array_agg(id) FILTER (WHERE order_key IS NOT NULL), '{}'), (SELECT at IS NOT NULL FROM horizon)
                INTO rows, keyed, more FROM oldest;
                parked := 0;
                IF keyed <> '{}' THEN
                    SELECT rows || o.heads, o.parked + cardinality(o.left_alone), key_budget - o.keys, passed_by || o.left_alone
                    INTO rows, parked, key_budget, passed_by FROM holdfast.take_order_heads(keyed, key_budget) AS o;
                END IF;
                IF rows <> '{}' THEN
                    token := coalesce(token, nextval('holdfast.token'));
                    need := need - cardinality(rows);
                    -- A locked row cannot move before this transaction ends, so its place (ctid) will do.
                    RETURN QUERY
                    UPDATE holdfast.job j SET status = 'processing', attempt = j.attempt + 1, locked_by = worker, lock_token = token,
                        locked_until = now() + leases[CASE WHEN cardinality(leases) = 1 THEN 1 ELSE array_position(kinds, j.kind) END]
                            * interval '1 millisecond'
                    WHERE j.ctid = ANY (rows)
                    RETURNING j.id, j.lock_token, j.queue, j.kind, j.payload::text, j.headers::text, coalesce(j.payload_version, 1::smallint),
                        j.attempt, j.max_attempts, j.priority, j.available_at, coalesce(j.chain_id, j.id), j.order_key,
                        coalesce(j.expires_at <= now(), false), j.cancel_requested_at IS NOT NULL,
                        j.created_at > now() - interval '10 minutes', j.blockers_left IS NOT NULL,
                        j.blocker_failed IS TRUE AND j.run_anyway IS NOT TRUE;
                END IF;
                EXIT WHEN need <= 0 OR (parked = 0 AND (NOT more OR rows = '{}'));
                again := clock_timestamp() > deadline OR cardinality(passed_by) > 1000;
                EXIT WHEN again;
                look := CASE WHEN parked > 0 THEN look ELSE look * 4 END;
            END LOOP;
        END LOOP;
    END LOOP;
    IF sweeps AND clock_timestamp() - now() > interval '50 milliseconds' THEN
        DELETE FROM holdfast.sweep s WHERE s.until < now();
        INSERT INTO holdfast.sweep (until, reach) VALUES (clock_timestamp() + 20 * (clock_timestamp() - now()), reach);
    END IF;
    IF again THEN
        id := NULL;
        RETURN NEXT;
    END IF;
END $$;
