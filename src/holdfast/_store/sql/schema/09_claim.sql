-- The claim. Its planner settings are fixed, so that the statistics of a table that was empty a second ago cannot turn an index look-up
-- into a scan, and a short statement is never compiled.

-- Until when no worker needs to scan that far below the claim floors again.
CREATE UNLOGGED TABLE holdfast.sweep (
    until timestamptz NOT NULL,
    reach interval NOT NULL
) WITH (vacuum_truncate = off);
CREATE INDEX sweep_until ON holdfast.sweep (until);

-- Where to begin in one lane: where the last claim ended, or as far below it as commits may be late. A floor ahead of the clock comes from
-- another clock (failover, step) and is ignored.
-- Called by promote_jobs, find_lanes.
CREATE FUNCTION holdfast.claim_floor(last timestamptz, reach interval) RETURNS timestamptz
    LANGUAGE sql STABLE RETURN CASE WHEN last <= now() THEN last - reach ELSE '-infinity' END;

-- Finds the next queue that has due jobs, and its lanes (kind, priority), by walking the index of pending jobs from lane to lane. A walk
-- costs as many steps as there are lanes that are not empty, however many kinds and queues are served.
--   queues, kinds  sorted byte by byte; kinds null: those that the worker registered
--   this_queue     the number of the queue to begin with, and then of the one found; last_queue: of the last to look at
--   lane_...         lanes that were claimed from, and where that ended, in the order of the index. They are looked at from there, and
--                  the walk goes on behind them, so that it does not cross what they left behind
--   later          when the next job of all lanes met so far is due that is not due yet
--   ahead          find nothing but that
-- Called by next_due, claim_jobs.
CREATE FUNCTION holdfast.find_lanes(worker bigint, queues text[], kinds text[], lane_queues text[], lane_kinds text[],
    lane_levels smallint[], lane_times timestamptz[], lane_ids bigint[], reach interval, shard_from smallint, shard_to smallint,
    ahead boolean, last_queue integer, INOUT this_queue integer, INOUT later timestamptz,
    OUT due_levels smallint[], OUT due_kinds text[], OUT due_times timestamptz[], OUT due_ids bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    at_number integer := this_queue;                    -- the walk stands before this lane ...
    at_queue text COLLATE "C" := queues[this_queue];
    at_kind text COLLATE "C" := '';
    at_level smallint := 0;
    end_queue text COLLATE "C";                         -- ... and its next step must not reach this one
    end_kind text COLLATE "C";
    end_level smallint;
    met_queue text COLLATE "C";                         -- the first job of the lane that it met
    met_kind text COLLATE "C";
    met_level smallint;
    met_time timestamptz;
    met_id bigint;
    met_shard smallint;
    place integer := 0;
    lane integer := 1;
    lanes integer := coalesce(cardinality(lane_queues), 0);
    lane_ends boolean;                                  -- the step ends at a lane with a floor
    by_kind boolean := false;                           -- few enough to look into each, without crossing dead entries of other kinds
BEGIN
    due_levels := '{}'; due_kinds := '{}'; due_times := '{}'; due_ids := '{}';
    IF lanes > 0 THEN
        kinds := coalesce(kinds, (SELECT w.kinds FROM holdfast.worker w WHERE w.id = worker), '{}');
        by_kind := (last_queue - this_queue + 1) * cardinality(kinds) <= 100;
        at_kind := CASE WHEN by_kind THEN kinds[1] ELSE '' END;
    END IF;
    WHILE at_number <= last_queue LOOP
        WHILE lane <= lanes AND (lane_queues[lane], lane_kinds[lane], lane_levels[lane]) < (at_queue, at_kind, at_level) LOOP
            lane := lane + 1;
        END LOOP;
        IF by_kind THEN
            end_queue := at_queue; end_kind := at_kind; end_level := 10;
        ELSE
            -- Byte by byte, nothing lies between a name and that name with the smallest character behind it.
            end_queue := CASE WHEN due_levels = '{}' THEN queues[last_queue] ELSE at_queue END || chr(1); end_kind := ''; end_level := 0;
        END IF;
        lane_ends := lane <= lanes AND (lane_queues[lane], lane_kinds[lane], lane_levels[lane]) < (end_queue, end_kind, end_level);
        IF lane_ends THEN
            end_queue := lane_queues[lane]; end_kind := lane_kinds[lane]; end_level := lane_levels[lane];
        END IF;
        -- One step, which stops at a bound on a single column: a scan does not stop where a row of columns passes its bound.
        IF at_queue < end_queue THEN
            SELECT j.queue, j.kind, j.priority, j.available_at, j.id, j.shard
            INTO met_queue, met_kind, met_level, met_time, met_id, met_shard FROM holdfast.job j
            WHERE j.status = 'pending' AND j.later IS NULL AND j.suspect IS NULL AND (j.queue, j.kind, j.priority) >= (at_queue, at_kind, at_level) AND j.queue < end_queue
            ORDER BY j.queue, j.kind, j.priority, j.available_at, j.id LIMIT 1;
        ELSIF at_kind < end_kind THEN
            SELECT j.queue, j.kind, j.priority, j.available_at, j.id, j.shard
            INTO met_queue, met_kind, met_level, met_time, met_id, met_shard FROM holdfast.job j
            WHERE j.status = 'pending' AND j.later IS NULL AND j.suspect IS NULL AND j.queue = at_queue AND (j.kind, j.priority) >= (at_kind, at_level) AND j.kind < end_kind
            ORDER BY j.queue, j.kind, j.priority, j.available_at, j.id LIMIT 1;
        ELSE
            SELECT j.queue, j.kind, j.priority, j.available_at, j.id, j.shard
            INTO met_queue, met_kind, met_level, met_time, met_id, met_shard FROM holdfast.job j
            WHERE j.status = 'pending' AND j.later IS NULL AND j.suspect IS NULL AND j.queue = at_queue AND j.kind = at_kind AND j.priority >= at_level AND j.priority < end_level
            ORDER BY j.queue, j.kind, j.priority, j.available_at, j.id LIMIT 1;
        END IF;
        IF FOUND THEN
            IF met_queue <> at_queue THEN
                at_number := width_bucket(met_queue, queues);
                at_queue := met_queue;
                IF at_number = 0 OR queues[at_number] <> met_queue THEN
                    at_number := at_number + 1;
                    at_queue := queues[at_number]; at_kind := ''; at_level := 0;
                    CONTINUE;
                END IF;
            END IF;
            IF NOT by_kind THEN
                kinds := coalesce(kinds, (SELECT w.kinds FROM holdfast.worker w WHERE w.id = worker), '{}');
                -- Usually the same kind as before, or the next; a search through all of them is expensive when there are many.
                place := CASE WHEN kinds[place] = met_kind THEN place WHEN kinds[place + 1] = met_kind THEN place + 1
                    ELSE width_bucket(met_kind, kinds) END;
                IF place = 0 OR kinds[place] <> met_kind THEN
                    IF place < cardinality(kinds) THEN
                        at_kind := kinds[place + 1]; at_level := 0;
                    ELSE
                        EXIT WHEN due_levels <> '{}';
                        at_number := at_number + 1;
                        at_queue := queues[at_number]; at_kind := ''; at_level := 0;
                    END IF;
                    CONTINUE;
                END IF;
            END IF;
        ELSIF lane_ends AND at_queue < end_queue THEN
            at_number := width_bucket(end_queue, queues);
            at_queue := end_queue; at_kind := ''; at_level := 0;
            CONTINUE;
        ELSIF lane_ends AND at_kind < end_kind THEN
            at_kind := end_kind; at_level := 0;
            CONTINUE;
        ELSIF lane_ends THEN
            met_kind := end_kind; met_level := end_level;
            SELECT j.available_at, j.id, j.shard INTO met_time, met_id, met_shard FROM holdfast.job j
            WHERE j.status = 'pending' AND j.later IS NULL AND j.suspect IS NULL AND j.queue = end_queue AND j.kind = end_kind AND j.priority = end_level
                AND (j.available_at, j.id) > (holdfast.claim_floor(lane_times[lane], reach),
                    CASE WHEN reach = interval '0' THEN lane_ids[lane] ELSE 0 END)
            ORDER BY j.available_at, j.id LIMIT 1;
        ELSIF by_kind THEN
            place := width_bucket(at_kind, kinds) + 1;
            IF place > cardinality(kinds) THEN
                EXIT WHEN due_levels <> '{}';
                at_number := at_number + 1;
                at_queue := queues[at_number];
                place := 1;
            END IF;
            at_kind := kinds[place]; at_level := 0;
            CONTINUE;
        ELSE
            EXIT;
        END IF;
        at_kind := met_kind; at_level := met_level + 1;
        IF ahead OR met_shard NOT BETWEEN shard_from AND shard_to THEN
            SELECT j.available_at, j.id INTO met_time, met_id FROM holdfast.job j
            WHERE j.status = 'pending' AND j.later IS NULL AND j.suspect IS NULL AND j.queue = at_queue AND j.kind = met_kind AND j.priority = met_level
                AND j.available_at >= CASE WHEN ahead THEN greatest(met_time, now()) ELSE met_time END
                AND j.shard BETWEEN shard_from AND shard_to AND (NOT ahead OR j.available_at > now())
            ORDER BY j.available_at, j.id LIMIT 1;
        END IF;
        IF met_time > now() THEN
            later := least(later, met_time);
        ELSIF met_time IS NOT NULL THEN
            this_queue := at_number;
            due_levels := due_levels || met_level; due_kinds := due_kinds || met_kind::text;
            due_times := due_times || met_time; due_ids := due_ids || met_id;
        END IF;
    END LOOP;
END $$;

-- How long until the next job of these queues and kinds is due; null: none is scheduled. Queues and kinds null: as registered.
-- Called by claim_jobs, sleeper.sql look_ahead.
CREATE FUNCTION holdfast.next_due(worker bigint, queues text[], kinds text[], shard_from smallint DEFAULT 0, shard_to smallint DEFAULT 63)
    RETURNS interval
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    queues := coalesce(queues, (SELECT w.queues FROM holdfast.worker w WHERE w.id = worker), '{}');
    RETURN (SELECT least(l.later, holdfast.next_later(worker, queues, kinds, shard_from, shard_to)) - clock_timestamp()
        FROM holdfast.find_lanes(worker, queues, kinds, '{}', '{}', '{}', '{}', '{}', interval '0', shard_from, shard_to, true,
            cardinality(queues), 1, NULL) AS l);
END $$;

-- Waits up to 100 ms for one window; false: another claim kept it. Waiting in PostgreSQL's lock queue costs nothing; asking repeatedly
-- does.
-- Called by claim_jobs.
CREATE FUNCTION holdfast.wait_for_window(queue_hash integer, number integer) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(queue_hash, 8);
    PERFORM pg_advisory_xact_lock(queue_hash, number);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- Claims due jobs: queue by queue, most urgent priority first, oldest first among the given kinds.
--   queues     sorted byte by byte; null: those that the worker registered
--   slots      how many jobs of each are wanted, or one number for all; `most` in all
--   start      the number of the queue to begin with; the others follow in turn
--   kinds      sorted byte by byte; null: those that the worker registered
--   leases     milliseconds: of most kinds, then those of lease_kinds
--   lane_...     where claims of this worker ended, in the order of the index; reach: how far below to look; 0: only behind
--   windows    how many windows of eight shards to begin with in each queue, from first_window on; 0: none is locked
--   later_...    where its last promotion of scheduled jobs ended
-- Returns the jobs; also, without a token, the first due job of each lane of which only some windows were seen, or that may have been claimed from by
-- turns (`expired`), so that older jobs are left; and last a row about the
-- call, which alone has the columns call_...:
--   again      jobs were left for lack of time, or in windows of others: call again soon
--   looking    the microseconds that it took to find what is due
--   next_due   those until the next job is due, where not as many were as asked for
--   crowded    fewer windows were free than asked for; null: none was needed
--   promoted_  where the promotion of scheduled jobs ended
--
-- A statement that locks on a snapshot in which a job is still pending follows the row to the version of the worker that has claimed it
-- since, locks that, and keeps the lock although it cannot take the job: the owner's finish would wait for it. So a claim holds the windows
-- that it scans, and begins to scan when it has them. SKIP LOCKED still decides: a claim without windows is correct too, only slower.
-- Called by job.sql claim_jobs.
CREATE FUNCTION holdfast.claim_jobs(worker bigint, queues text[], slots integer[], most integer, start integer, kinds text[],
    leases integer[], lease_kinds text[], lane_queues text[], lane_kinds text[], lane_levels smallint[], lane_times timestamptz[],
    lane_ids bigint[], reach interval, shard_from smallint DEFAULT 0, shard_to smallint DEFAULT 63, windows integer DEFAULT 0,
    first_window integer DEFAULT 0, later_at timestamptz DEFAULT NULL, later_id bigint DEFAULT 0)
    RETURNS TABLE (id bigint, lock_token bigint, queue text, kind text, payload text, headers text, payload_version smallint,
        attempt smallint, max_attempts smallint, priority smallint, available_at timestamptz, chain_id bigint, order_key text,
        expired boolean, cancelled boolean, young boolean, has_blockers boolean, blocker_failed boolean, created bigint, waited bigint,
        call_again boolean, call_looking bigint, call_next_due bigint, call_crowded boolean, call_promoted_at timestamptz, call_promoted_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    token bigint;
    need integer;
    wanted integer;
    q integer := start;
    last_queue integer;
    lanes record;
    later timestamptz;
    looking interval := interval '0';
    since timestamptz;
    level smallint;
    first integer;                  -- of the lanes that are looked at together
    last integer;
    due_kinds text[];
    due_times timestamptz[];
    due_ids bigint[];
    look integer;
    more boolean;
    rows tid[];
    keyed bigint[];
    fair boolean;                   -- some of them have a tenant
    turns boolean;                  -- in this queue, some lane was claimed from by turns
    parked integer;                 -- jobs met in this round that could not be taken: look for others
    promoted boolean;               -- a parked job, where this call may have looked already
    passed_by bigint[] := '{}';     -- of keys that another transaction holds now, or too many for one call
    again boolean := false;
    key_budget integer := 100;      -- advisory locks of one call: they fill a table that all sessions share
    deadline timestamptz := clock_timestamp() + interval '200 milliseconds';
    sweeps boolean := false;
    missed boolean := false;        -- something was due and could not be taken
    lowest integer := shard_from / 8;
    highest integer := shard_to / 8;
    queue_hash integer;
    asked_from integer;
    wide integer;                   -- windows to begin with in this queue
    from_window integer;            -- those that were taken together, if any
    to_window integer;
    spans smallint[];               -- the shards that may be looked at: from, to, from, to ...
    span integer;
    span_from smallint;
    span_to smallint;
    partly boolean;                 -- not all windows of this queue were taken at once
    window_budget integer := 64;    -- advisory locks, as key_budget
    waited boolean := false;
    crowded boolean;                -- fewer windows were free than asked for; null: none was needed
    unseen boolean := false;        -- windows of other claims may hold more due jobs
    scheduled record;
BEGIN
    -- A finish on a snapshot as old as its transaction does not see what a claim parks meanwhile, and would strand an order key. A
    -- transaction that has written something before, as a user's test has, sees its own claims.
    IF current_setting('transaction_isolation') <> 'read committed' AND pg_current_xact_id_if_assigned() IS NULL THEN
        RAISE EXCEPTION 'a claim needs a READ COMMITTED transaction, and this one is %: ALTER ROLE % SET default_transaction_isolation = %',
            upper(current_setting('transaction_isolation')), quote_ident(current_user), quote_literal('read committed') USING ERRCODE = 'HF003';
    END IF;
    -- A wide scan reads every dead entry that cannot be vacuumed yet. When that is slow, one worker does it for all.
    IF reach > interval '10 seconds' AND lane_queues <> '{}' THEN
        sweeps := NOT EXISTS (SELECT FROM holdfast.sweep s WHERE s.until > now() AND s.reach >= claim_jobs.reach)
            AND pg_try_advisory_xact_lock(hashtext('holdfast.sweep'), extract(epoch FROM reach)::integer);
        reach := CASE WHEN sweeps THEN reach ELSE interval '5 seconds' END;
        lane_queues := CASE WHEN reach < interval '1 year' THEN lane_queues ELSE '{}' END;
    END IF;
    queues := coalesce(queues, (SELECT w.queues FROM holdfast.worker w WHERE w.id = worker), '{}');
    last_queue := cardinality(queues);
    asked_from := lowest + CASE WHEN windows > highest - lowest THEN 0 ELSE first_window % (highest - lowest + 1) END;
    since := clock_timestamp();
    scheduled := holdfast.promote_jobs(greatest(most, 500), reach, later_at, later_id);
    looking := clock_timestamp() - since;
    WHILE most > 0 AND NOT again LOOP
        since := clock_timestamp();
        lanes := holdfast.find_lanes(worker, queues, kinds, lane_queues, lane_kinds, lane_levels, lane_times, lane_ids, reach, shard_from,
            shard_to, false, last_queue, q, later);
        looking := looking + (clock_timestamp() - since);
        later := lanes.later;
        IF lanes.due_levels = '{}' THEN
            EXIT WHEN start = 1 OR last_queue < start;
            q := 1; last_queue := start - 1;
            CONTINUE;
        END IF;
        IF cardinality(lanes.due_levels) > 1 THEN
            SELECT array_agg(d.level ORDER BY d.level, d.since, d.id), array_agg(d.kind ORDER BY d.level, d.since, d.id),
                array_agg(d.since ORDER BY d.level, d.since, d.id), array_agg(d.id ORDER BY d.level, d.since, d.id)
            INTO lanes.due_levels, lanes.due_kinds, lanes.due_times, lanes.due_ids
            FROM unnest(lanes.due_levels, lanes.due_kinds, lanes.due_times, lanes.due_ids) AS d (level, kind, since, id);
        END IF;
        need := CASE WHEN EXISTS (SELECT FROM holdfast.queue WHERE name = queues[lanes.this_queue] AND paused) THEN 0
            ELSE least(most, slots[CASE WHEN cardinality(slots) = 1 THEN 1 ELSE lanes.this_queue END]) END;
        most := most - need;
        wanted := need;
        first := 1;
        partly := false; turns := false;
        wide := CASE WHEN need > 0 AND window_budget > 9 THEN windows ELSE 0 END;
        IF wide = 0 THEN
            spans := ARRAY[shard_from, shard_to];
        ELSE
            queue_hash := hashtext('holdfast.claim ' || queues[lanes.this_queue]);
            from_window := NULL;
            IF wide > 7 AND highest - lowest = 7 AND pg_try_advisory_xact_lock(queue_hash, 8) THEN
                from_window := lowest;
                to_window := highest;
            ELSIF pg_try_advisory_xact_lock_shared(queue_hash, 8) THEN
                crowded := crowded OR wide > highest - lowest AND highest - lowest = 7;
                FOR w IN asked_from..least(asked_from + wide - 1, highest) LOOP
                    IF pg_try_advisory_xact_lock(queue_hash, w) THEN
                        from_window := coalesce(from_window, w);
                        to_window := w;
                    ELSE
                        crowded := true;
                        EXIT WHEN from_window IS NOT NULL;
                    END IF;
                END LOOP;
                FOR w IN lowest..CASE WHEN from_window IS NULL THEN highest ELSE -1 END LOOP
                    IF w NOT BETWEEN asked_from AND asked_from + wide - 1 AND pg_try_advisory_xact_lock(queue_hash, w) THEN
                        from_window := w;
                        to_window := w;
                        EXIT;
                    END IF;
                END LOOP;
            END IF;
            IF from_window IS NULL THEN
                crowded := true;
                -- A claim that holds a window for which others wait does not wait itself, and no claim waits twice.
                IF window_budget = 64 AND NOT waited THEN
                    waited := true;
                    from_window := CASE WHEN holdfast.wait_for_window(queue_hash, asked_from) THEN asked_from END;
                END IF;
                to_window := from_window;
            END IF;
            IF from_window IS NULL THEN
                unseen := true;
                window_budget := window_budget - 1;
                most := most + need;
                q := lanes.this_queue + 1;
                CONTINUE;
            END IF;
            crowded := coalesce(crowded, false);
            partly := from_window > lowest OR to_window < highest;
            window_budget := window_budget - CASE WHEN to_window - from_window = 7 THEN 1 ELSE to_window - from_window + 2 END;
            spans := ARRAY[greatest(8 * from_window, shard_from), least(8 * to_window + 7, shard_to)];
        END IF;
        WHILE need > 0 AND first <= cardinality(lanes.due_levels) AND NOT again LOOP
            -- The oldest jobs of a priority are in the lanes that begin earliest: no more lanes than jobs are wanted.
            level := lanes.due_levels[first];
            last := first;
            WHILE lanes.due_levels[last + 1] = level AND last - first < greatest(need, 8) LOOP
                last := last + 1;
            END LOOP;
            due_kinds := lanes.due_kinds[first:last]; due_times := lanes.due_times[first:last]; due_ids := lanes.due_ids[first:last];
            span := 1;
            LOOP
                span_from := spans[span]; span_to := spans[span + 1];
                look := CASE WHEN first = last THEN need ELSE least(need, need / (last - first + 1) + 16) END;
                LOOP
                    IF first = last THEN
                        -- One lane, as nearly always: without the steps that choose between lanes, which take 0.1 ms of 1.1 ms for 50 jobs.
                        SELECT coalesce(array_agg(alone.ctid) FILTER (WHERE NOT alone.keyed), '{}'),
                            coalesce(array_agg(alone.id) FILTER (WHERE alone.keyed), '{}'), bool_or(alone.fair), count(*) = look
                        INTO rows, keyed, fair, more
                        FROM (SELECT j.ctid, j.id, num_nonnulls(j.order_key, j.limits, j.tenant) > 0 AS keyed, j.tenant IS NOT NULL AS fair FROM holdfast.job j
                              WHERE j.status = 'pending' AND j.later IS NULL AND j.suspect IS NULL AND j.queue = queues[lanes.this_queue] AND j.kind = due_kinds[1] AND j.priority = level
                                AND (j.available_at, j.id) >= (due_times[1], due_ids[1]) AND j.available_at <= now()
                                AND j.shard BETWEEN span_from AND span_to AND j.id <> ALL (passed_by)
                              ORDER BY j.available_at, j.id LIMIT look FOR NO KEY UPDATE SKIP LOCKED) AS alone;
                    ELSE
                        -- From each kind, slightly more jobs than its likely share of the oldest, and of these the oldest. The horizon is
                        -- where the scan of one kind ended: jobs of other kinds beyond it may not be the oldest, and wait for a longer
                        -- scan.
                        WITH due AS MATERIALIZED (
                            SELECT k.n, locked.* FROM unnest(due_kinds, due_times, due_ids) WITH ORDINALITY AS k (kind, since, id, n),
                                LATERAL (SELECT j.ctid, j.id, num_nonnulls(j.order_key, j.limits, j.tenant) > 0 AS keyed, j.tenant IS NOT NULL AS fair, j.available_at FROM holdfast.job j
                                         WHERE j.status = 'pending' AND j.later IS NULL AND j.suspect IS NULL AND j.queue = queues[lanes.this_queue] AND j.kind = k.kind AND j.priority = level
                                           AND (j.available_at, j.id) >= (k.since, k.id) AND j.available_at <= now()
                                           AND j.shard BETWEEN span_from AND span_to AND j.id <> ALL (passed_by)
                                         ORDER BY j.available_at, j.id LIMIT look FOR NO KEY UPDATE SKIP LOCKED) AS locked),
                        horizon AS MATERIALIZED (
                            SELECT min(e.at) AS at FROM (SELECT max(available_at) AS at FROM due GROUP BY n HAVING count(*) = look) AS e),
                        oldest AS MATERIALIZED (
                            SELECT ctid, id, keyed, fair FROM due WHERE available_at <= coalesce((SELECT at FROM horizon), 'infinity')
                            ORDER BY available_at, id LIMIT need)
                        SELECT coalesce(array_agg(ctid) FILTER (WHERE NOT keyed), '{}'),
                            coalesce(array_agg(id) FILTER (WHERE keyed), '{}'), bool_or(fair), (SELECT at IS NOT NULL FROM horizon)
                        INTO rows, keyed, fair, more FROM oldest;
                    END IF;
                    parked := 0; promoted := false;
                    IF fair THEN
                        turns := true;
                        SELECT rows || t.heads, t.rest INTO rows, keyed
                        FROM holdfast.take_turns(keyed, need - cardinality(rows), span_from, span_to, passed_by) AS t;
                    END IF;
                    IF keyed <> '{}' THEN
                        SELECT rows || o.heads, o.parked + cardinality(o.left_alone), key_budget - o.keys, passed_by || o.left_alone, o.again
                        INTO rows, parked, key_budget, passed_by, promoted
                        FROM holdfast.take_keyed(keyed, key_budget, need - cardinality(rows), false, shard_from, shard_to) AS o;
                    END IF;
                    IF cardinality(rows) > need THEN
                        -- A later round still looks as far as the first, so that it parks as much. The oldest are taken: floors stay below the rest.
                        rows := ARRAY(SELECT j.ctid FROM holdfast.job j WHERE j.ctid = ANY (rows) ORDER BY j.available_at, j.id LIMIT need);
                    END IF;
                    IF rows <> '{}' THEN
                        -- For jobs with limits, drawn when their keys are locked: see limit_memory.
                        token := CASE WHEN token IS NULL OR keyed <> '{}' THEN nextval('holdfast.token') ELSE token END;
                        need := need - cardinality(rows);
                        -- A locked row cannot move before this transaction ends, so its ctid identifies it.
                        RETURN QUERY
                        UPDATE holdfast.job j SET status = 'processing', claimed_at = now(), attempt = least(j.attempt + 1, 32767), locked_by = worker,
                            lock_token = token,
                            locked_until = now() + leases[coalesce(array_position(lease_kinds, j.kind), 0) + 1] * interval '1 millisecond',
                            limit_key = j.limits[1]
                        WHERE j.ctid = ANY (rows)
                        RETURNING j.id, j.lock_token, j.queue, j.kind, j.payload::text, j.headers::text, coalesce(j.payload_version, 1::smallint),
                            j.attempt, j.max_attempts, j.priority, j.available_at, coalesce(j.chain_id, j.id), coalesce(j.order_key, j.limit_key, j.tenant),
                            coalesce(j.expires_at <= now(), false), j.cancel_requested_at IS NOT NULL,
                            j.created_at > now() - interval '10 minutes', j.blockers_left IS NOT NULL,
                            j.blocker_failed IS TRUE AND j.run_anyway IS NOT TRUE, (1000000 * date_part('epoch', j.created_at))::bigint,
                            (1000000 * date_part('epoch', j.claimed_at - j.available_at))::bigint,
                            NULL::boolean, NULL::bigint, NULL::bigint, NULL::boolean, NULL::timestamptz, NULL::bigint;
                    END IF;
                    EXIT WHEN need <= 0 OR (parked = 0 AND (NOT more OR rows = '{}'));
                    again := promoted OR clock_timestamp() > deadline OR cardinality(passed_by) > 1000;
                    EXIT WHEN again;
                    look := CASE WHEN parked > 0 THEN look ELSE look * 4 END;
                END LOOP;
                span := span + 2;
                EXIT WHEN need <= 0 OR again;
                IF span > cardinality(spans) AND wide > 0 AND partly THEN
                    -- The requested windows have no more jobs: look into the other free windows too.
                    wide := 0;
                    FOR w IN lowest..highest LOOP
                        CONTINUE WHEN w BETWEEN from_window AND to_window;
                        IF window_budget <= 0 OR pg_try_advisory_xact_lock(queue_hash, w) THEN
                            window_budget := window_budget - 1;
                            IF spans[cardinality(spans)] = 8 * w - 1 AND cardinality(spans) >= span THEN
                                spans[cardinality(spans)] := least(8 * w + 7, shard_to);
                            ELSE
                                spans := spans || ARRAY[greatest(8 * w, shard_from), least(8 * w + 7, shard_to)]::smallint[];
                            END IF;
                        ELSE
                            unseen := true;
                        END IF;
                    END LOOP;
                END IF;
                EXIT WHEN span > cardinality(spans);
            END LOOP;
            first := last + 1;
        END LOOP;
        most := most + need;
        missed := missed OR need > 0;
        IF (partly OR turns) AND need < wanted THEN
            RETURN QUERY SELECT lanes.due_ids[n], NULL::bigint, queues[lanes.this_queue], lanes.due_kinds[n], NULL::text, NULL::text,
                NULL::smallint, NULL::smallint, NULL::smallint, lanes.due_levels[n], lanes.due_times[n], NULL::bigint, NULL::text,
                turns, NULL::boolean, NULL::boolean, NULL::boolean, NULL::boolean, NULL::bigint, NULL::bigint,
                NULL::boolean, NULL::bigint, NULL::bigint, NULL::boolean, NULL::timestamptz, NULL::bigint FROM generate_series(1, first - 1) AS n;
        END IF;
        q := lanes.this_queue + 1;
    END LOOP;
    IF sweeps AND clock_timestamp() - now() > interval '50 milliseconds' THEN
        DELETE FROM holdfast.sweep s WHERE s.until < now();
        INSERT INTO holdfast.sweep (until, reach) VALUES (clock_timestamp() + 20 * (clock_timestamp() - now()), reach);
    END IF;
    again := again OR unseen;
    -- Behind due jobs of others there may be one that will be due before they end, and is not marked as later.
    IF token IS NULL AND missed AND NOT again THEN
        later := clock_timestamp() + holdfast.next_due(worker, queues, kinds, shard_from, shard_to);
    ELSIF most > 0 AND NOT again AND scheduled.next IS NOT NULL THEN
        later := least(later, CASE WHEN scheduled.next > now() + interval '1 minute' THEN scheduled.next
            ELSE holdfast.next_later(worker, queues, kinds, shard_from, shard_to) END);
    END IF;
    later := least(later, scheduled.soon);
    -- A job that was promoted and not claimed counts as enqueued just now.
    IF scheduled.promoted <> '{}' AND EXISTS (SELECT FROM holdfast.sleeper s WHERE s.until > now() AND s.worker_id <> worker) THEN
        PERFORM holdfast.wake_sleepers(array_agg(j.queue), array_agg(j.kind)) FROM holdfast.job j
        WHERE j.id = ANY (scheduled.promoted) AND j.status = 'pending' HAVING count(*) > 0;
    END IF;
    call_again := again OR token IS NULL AND scheduled.again;
    call_looking := extract(microseconds FROM looking);
    call_next_due := 1000000 * extract(epoch FROM later - clock_timestamp());
    call_crowded := crowded;
    call_promoted_at := scheduled.since;
    call_promoted_id := scheduled.since_id;
    RETURN NEXT;
END $$;
