-- Reading the log: a page at a time, rejected events are parked, and the holder of a partition moves its position.

-- A page of the events after a position, in order: at most `most` events are scanned. The last row has no id. Its payload gives, as JSON,
-- the snapshot up to which it read, and where to continue; without a phase, the difference is read to its end. No transaction stays open
-- between two pages.
-- Called by feed_jobs, subscription.sql read_events.
CREATE FUNCTION holdfast.read_events(topics text[], partitions integer, part integer, base_id bigint,
        seen pg_snapshot, seen_id bigint, seen_top bigint, seen_xid xid8, next pg_snapshot, next_id bigint, next_top bigint,
        phase text, last_id bigint, most integer)
    RETURNS TABLE (id bigint, topic text, key text, payload text, headers text, published_at timestamptz, version smallint, trace text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    late xid8[];
    found integer;
BEGIN
    IF phase = 'again' THEN
        RETURN QUERY SELECT e.id, e.topic, e.key, e.payload::text, e.headers::text, e.published_at, e.version, e.trace
            FROM (SELECT * FROM holdfast.event e WHERE e.id > last_id AND e.id <= seen_top
                    AND (e.id <= base_id OR pg_visible_in_snapshot(e.xid, seen)) ORDER BY e.id LIMIT most) AS e
            WHERE (topics = '{}' OR e.topic = ANY (topics)) AND e.shard % partitions = part;
        GET DIAGNOSTICS found = ROW_COUNT;
        IF found < most THEN
            -- Events of other topics and partitions count too: the limit is on scanned events.
            SELECT count(*), max(e.id) INTO found, last_id FROM (SELECT e.id FROM holdfast.event e WHERE e.id > last_id AND e.id <= seen_top
                AND (e.id <= base_id OR pg_visible_in_snapshot(e.xid, seen)) ORDER BY e.id LIMIT most) AS e;
        ELSE
            last_id := NULL;            -- the reader has it: the id of the last event
        END IF;
        IF found = most THEN
            payload := json_build_object('phase', phase, 'last_id', last_id);
            RETURN NEXT;
            RETURN;
        END IF;
        most := most - found;
        phase := NULL;
    END IF;
    IF phase IS NULL THEN
        next_id := holdfast.last_event_id();
        next := pg_current_snapshot();
        next_top := holdfast.last_event_id();
        phase := 'late';
        last_id := base_id;
    END IF;
    IF phase = 'late' THEN
        late := ARRAY(SELECT pg_snapshot_xip(seen));
        -- Few: of transactions that were running. The topics are filtered at once.
        RETURN QUERY SELECT e.id, e.topic, e.key, e.payload::text, e.headers::text, e.published_at, e.version, e.trace
            FROM (SELECT * FROM (
                      SELECT * FROM holdfast.event e WHERE e.xid = ANY (late)
                      UNION ALL
                      SELECT * FROM holdfast.event e WHERE e.xid >= pg_snapshot_xmax(seen) AND e.xid < seen_xid) AS u
                  OFFSET 0) AS e          -- so that the search is by xid: by id it would scan the whole log
            WHERE e.id > last_id AND e.id <= seen_id AND pg_visible_in_snapshot(e.xid, next)
              AND (topics = '{}' OR e.topic = ANY (topics)) AND e.shard % partitions = part
            ORDER BY e.id LIMIT most;
        GET DIAGNOSTICS found = ROW_COUNT;
        IF found = most THEN
            payload := json_build_object('next', next, 'next_id', next_id, 'next_top', next_top, 'phase', phase);
            RETURN NEXT;
            RETURN;
        END IF;
        most := most - found;
        phase := 'new';
        last_id := seen_id;
    END IF;
    RETURN QUERY SELECT e.id, e.topic, e.key, e.payload::text, e.headers::text, e.published_at, e.version, e.trace
        FROM (SELECT * FROM holdfast.event e WHERE e.id > last_id AND e.id <= next_top
                AND NOT pg_visible_in_snapshot(e.xid, seen) AND pg_visible_in_snapshot(e.xid, next) ORDER BY e.id LIMIT most) AS e
        WHERE (topics = '{}' OR e.topic = ANY (topics)) AND e.shard % partitions = part;
    GET DIAGNOSTICS found = ROW_COUNT;
    IF found = most THEN
        last_id := NULL;
    ELSIF next_top > last_id THEN
        SELECT count(*), max(e.id) INTO found, last_id FROM (SELECT e.id FROM holdfast.event e WHERE e.id > last_id AND e.id <= next_top
            AND NOT pg_visible_in_snapshot(e.xid, seen) AND pg_visible_in_snapshot(e.xid, next) ORDER BY e.id LIMIT most) AS e;
    END IF;
    payload := json_build_object('next', next, 'next_id', next_id, 'next_top', next_top, 'phase', CASE WHEN found = most THEN phase END,
        'last_id', CASE WHEN found = most THEN last_id END);
    RETURN NEXT;
END $$;

-- Parks events: for a time, or until an operator acts. An event that only follows another, and is parked already, stays as it is: read
-- again, it may be the one that the others wait for.
-- Called by settle_parked, advance_position.
CREATE FUNCTION holdfast.park_events(subscription integer, part integer, parked json) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO holdfast.parked (subscription_id, partition, event_id, holds_key, key, attempt, released_at, error_code, error)
    SELECT subscription, part, j.event_id, j.holds_key, j.key, j.attempt,
        clock_timestamp() + j.retry_ms * interval '1 millisecond', j.error_code, j.error
    FROM json_to_recordset(parked)
        AS j (event_id bigint, holds_key boolean, key text, attempt integer, retry_ms bigint, error_code text, error text)
    ON CONFLICT (subscription_id, event_id) DO UPDATE SET released_at = excluded.released_at, attempt = excluded.attempt,
        holds_key = excluded.holds_key, error_code = excluded.error_code, error = excluded.error
    WHERE excluded.error_code IS NOT NULL;
END $$;

-- Deletes parked events that were delivered and keeps the others, if the worker still holds the partition; 0: it does not. Where the first
-- of a key is done, the events that only followed it are due, up to the next rejected one; of a long row so many that all keys together are
-- about ten thousand, at least one of each: when those are done, the next are due.
-- Called by subscription.sql settle_parked.
CREATE FUNCTION holdfast.settle_parked(subscription integer, part integer, token bigint, worker bigint, outcomes json) RETURNS integer
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    free text[];
BEGIN
    PERFORM FROM holdfast.position_of(subscription, part) AS p WHERE p.lock_token = token AND p.locked_by = worker;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    PERFORM holdfast.park_events(subscription, part, (SELECT json_agg(j) FROM json_array_elements(outcomes) AS j WHERE NOT (j->>'done')::boolean));
    WITH gone AS (
        DELETE FROM holdfast.parked k USING json_to_recordset(outcomes) AS j (event_id bigint, done boolean)
        WHERE j.done AND k.subscription_id = subscription AND k.event_id = j.event_id RETURNING k.key)
    SELECT array_agg(DISTINCT key) INTO free FROM (
        SELECT key FROM gone
        UNION ALL SELECT j.key FROM json_to_recordset(outcomes) AS j (done boolean, holds_key boolean, key text)
        WHERE NOT j.done AND NOT j.holds_key) AS passed WHERE key IS NOT NULL;
    UPDATE holdfast.parked k SET released_at = clock_timestamp()
    FROM (SELECT f.event_id, row_number() OVER (PARTITION BY f.key ORDER BY f.event_id) AS place FROM holdfast.parked f
          WHERE f.subscription_id = subscription AND f.partition = part AND f.key = ANY (free) AND f.error_code IS NULL
              AND f.released_at IS NULL
              AND NOT EXISTS (SELECT FROM holdfast.parked h WHERE h.subscription_id = subscription AND h.key = f.key AND h.holds_key
                  AND h.error_code IS NOT NULL AND h.event_id < f.event_id)) AS f
    WHERE f.place <= greatest(1, 10000 / cardinality(free)) AND k.subscription_id = subscription AND k.event_id = f.event_id;
    RETURN json_array_length(outcomes);
END $$;

-- Moves the position of a partition, if the worker still holds it; null: it does not, and nothing was written. Returns a new transaction
-- id, drawn after the snapshots that the position names.
-- Called by subscription.sql advance_position.
CREATE FUNCTION holdfast.advance_position(subscription integer, part integer, seq bigint, token bigint, worker bigint,
        seen pg_snapshot, seen_id bigint, seen_top bigint, seen_xid xid8, next pg_snapshot, next_id bigint, next_top bigint, next_xid xid8,
        phase text, last_id bigint, free boolean, parked json, receipts json) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    mine xid8;
BEGIN
    PERFORM FROM holdfast.position_of(subscription, part) AS p WHERE p.seq = seq AND p.lock_token = token AND p.locked_by = worker;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    mine := pg_current_xact_id();
    INSERT INTO holdfast.position AS p (subscription_id, partition, seq, lock_token, locked_by, seen, seen_id, seen_top, seen_xid,
        next, next_id, next_top, next_xid, phase, last_id)
    VALUES (subscription, part, seq + 1, CASE WHEN NOT free THEN token END, CASE WHEN NOT free THEN worker END, seen, seen_id, seen_top,
        coalesce(seen_xid, mine), next, next_id, next_top, CASE WHEN next IS NOT NULL THEN coalesce(next_xid, mine) END, phase, last_id)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF parked IS NOT NULL THEN
        PERFORM holdfast.park_events(subscription, part, parked);
    END IF;
    IF receipts IS NOT NULL THEN
        PERFORM holdfast.need_partitions();
        INSERT INTO holdfast.delivery (answered_at, event_id, subscription_id, status, attempt, answer)
        SELECT clock_timestamp(), j.event_id, subscription, j.status, j.attempt, j.answer
        FROM json_to_recordset(receipts) AS j (event_id bigint, status integer, attempt integer, answer text);
    END IF;
    RETURN mine::text;
END $$;

-- Makes one job from each event, in the transaction that moves the position. A job that a replay finds live is left unchanged. Returns the
-- number of events and the ids of the jobs; no row: another worker holds the subscription.
-- Called by subscription.sql feed_jobs.
CREATE FUNCTION holdfast.feed_jobs(subscription integer, worker bigint, kind text, queue text, priority integer, max_attempts integer,
        ordered boolean, most integer, limits text[] DEFAULT NULL) RETURNS TABLE (events integer, more boolean, made bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    clock timestamptz := clock_timestamp();
    given holdfast.subscription;
    p holdfast.position;
    end_of record;
BEGIN
    SELECT * INTO given FROM holdfast.subscription s WHERE s.id = subscription;
    SELECT * INTO p FROM holdfast.position_of(subscription, 0);
    IF p.locked_by IS DISTINCT FROM worker OR given.paused OR given.cluster <> holdfast.cluster() THEN
        RETURN;
    END IF;
    WITH page AS MATERIALIZED (
        SELECT * FROM holdfast.read_events(given.topics, 1, 0, given.base_id, p.seen, p.seen_id, p.seen_top, p.seen_xid,
            p.next, p.next_id, p.next_top, p.phase, p.last_id, most) WITH ORDINALITY),
    jobs AS (
        INSERT INTO holdfast.job AS j (id, created_at, available_at, max_attempts, priority, shard, order_seq, queue, kind, payload, headers,
            order_key, unique_key, limits)
        SELECT n.id, clock, clock, max_attempts, priority, holdfast.shard_of(n.id, n.order_key), CASE WHEN n.order_key IS NOT NULL THEN n.id END,
            queue, kind, n.payload, n.headers, n.order_key, n.unique_key, limits
        FROM (SELECT nextval('holdfast.job_id_seq') AS id,
                  json_build_object('event', json_build_object('id', g.id, 'topic', g.topic, 'key', g.key, 'payload', g.payload::json,
                      'headers', coalesce(g.headers::json, '{}'), 'version', g.version, 'published_at', g.published_at, 'trace', g.trace)) AS payload,
                  CASE WHEN g.trace IS NOT NULL THEN json_build_object('traceparent', g.trace) END AS headers,
                  -- A key that is too long for a job must not stop all later events.
                  CASE WHEN ordered THEN given.name || ':' || CASE WHEN octet_length(given.name || g.key) < 500 THEN g.key ELSE md5(g.key) END
                  END AS order_key, given.name || ':' || g.id AS unique_key
              FROM (SELECT * FROM page WHERE id IS NOT NULL ORDER BY ordinality) AS g) AS n
        ON CONFLICT DO NOTHING RETURNING j.id)
    SELECT (SELECT count(*) FROM page g WHERE g.id IS NOT NULL) AS events, ARRAY(SELECT id FROM jobs) AS made,
        (SELECT g.id FROM page g WHERE g.id IS NOT NULL ORDER BY g.ordinality DESC LIMIT 1) AS last_event, r.*
    INTO end_of FROM page g, json_to_record(g.payload::json)
        AS r (next pg_snapshot, next_id bigint, next_top bigint, phase text, last_id bigint) WHERE g.id IS NULL;
    events := end_of.events;
    made := end_of.made;
    more := end_of.phase IS NOT NULL;
    IF events > 0 OR more OR p.phase IS NOT NULL OR end_of.next_id > p.seen_id THEN
        INSERT INTO holdfast.position (subscription_id, partition, seq, lock_token, locked_by, seen, seen_id, seen_top, seen_xid,
            next, next_id, next_top, next_xid, phase, last_id)
        SELECT subscription, 0, p.seq + 1, p.lock_token, worker,
            CASE WHEN more THEN p.seen ELSE end_of.next END, CASE WHEN more THEN p.seen_id ELSE end_of.next_id END,
            CASE WHEN more THEN p.seen_top ELSE end_of.next_top END,
            CASE WHEN more THEN p.seen_xid ELSE coalesce(p.next_xid, pg_current_xact_id()) END,
            CASE WHEN more THEN end_of.next END, CASE WHEN more THEN end_of.next_id END,
            CASE WHEN more THEN end_of.next_top END, CASE WHEN more AND end_of.next IS NOT NULL THEN coalesce(p.next_xid, pg_current_xact_id()) END,
            end_of.phase, CASE WHEN more THEN coalesce(end_of.last_id, end_of.last_event) END;
    END IF;
    IF made <> '{}' AND EXISTS (SELECT FROM holdfast.sleeper WHERE until > now()) THEN
        PERFORM holdfast.wake_sleepers(ARRAY[queue], ARRAY[kind]);
    END IF;
    RETURN NEXT;
END $$;
