-- Limits that hold in the whole database: how many jobs of a key may run at once, and how often they may start. A key is the name of a
-- limit, or `name:value`; a job has at most three, in job.limits.
--
-- No counter can drift, because there is none: under the key's advisory lock, a claim counts the running jobs of the key. A job for which
-- there is no room is parked: `blocked`, with the key that is full as its limit_key, outside of the index that other claims read.
--
-- Invariant: a key with room and parked jobs has a promoted job in every lane (queue and kind) where jobs of it are parked: `pending`, with
-- the key as its limit_key. It holds no place. The claim that meets it gives the room to the oldest of the jobs that it met and of those
-- that are parked. Therefore every transaction that ends or gives back a job of the key takes the lock first, and promotes. A transaction
-- without the lock may only promote one job too many, which a claim parks again.

-- The limits in force: as the code of workers declares them, or as an operator set them.
CREATE TABLE holdfast.limit_rule (
    name        text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 200 AND strpos(name, ':') = 0),
    concurrency integer CHECK (concurrency BETWEEN 0 AND 1000000),          -- how many may run at once; null: any number
    starts      integer CHECK (starts BETWEEN 1 AND 1000000),               -- how many may start ...
    period_ms   bigint CHECK (period_ms BETWEEN 1 AND 31 * 86400000::bigint),   -- ... in this time; null: any number
    burst       integer NOT NULL DEFAULT 1 CHECK (burst BETWEEN 1 AND 1000000), -- of these, how many at once after a pause
    parameters  text[],                         -- whose values make the keys, for people; null: the name is the only key
    declared    json,                           -- concurrency, starts, period_ms and burst in the code; null: in no code
    set_by      text,                           -- the operator who set other values; null: as declared
    set_at      timestamptz,
    CHECK ((starts IS NULL) = (period_ms IS NULL))
);

-- The second and third key of running jobs; the first is in the index of job. A row alone holds no place: only a job that runs and has the
-- key counts.
CREATE TABLE holdfast.limit_place (
    limit_key text COLLATE "C" NOT NULL,
    job_id    bigint NOT NULL,
    PRIMARY KEY (limit_key, job_id)
);

-- When the tokens of a key will all be there again (the theoretical arrival time of the generic cell rate algorithm). No row: they are.
CREATE TABLE holdfast.limit_rate (
    limit_key text COLLATE "C" PRIMARY KEY,
    full_at   timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A job that a claim may take, or park.
CREATE TYPE holdfast.limited_job AS (
    id        bigint,
    place     tid,
    limits    text[],
    limit_key text,
    met       boolean,              -- pending, and met by the claim; false: parked
    ordered   boolean,              -- it has an order key
    n         integer,              -- the number of its only key; null: it has several
    turn_setting text,              -- with a tenant: the place of its lane, and what it is when the job is taken (31_tenants)
    turn_place text
);

-- Where a session begins to look in the entries of one key. Those of jobs that have ended stand before, and vacuum cannot remove them while an
-- old snapshot is held. A setting of the session keeps it, so that a transaction that is rolled back leaves nothing behind.
CREATE TYPE holdfast.limit_lane AS (
    queue        text,
    kind         text,
    priority     smallint,
    available_at timestamptz,
    id           bigint
);
CREATE TYPE holdfast.limit_memory AS (
    key   text,
    since bigint,                   -- no job that runs has an earlier token. A claim draws its token when it has the key's lock, so this stays true
    until timestamptz,              -- until then, lanes hold. A job that was parked before its place is found after that, or when none is behind it
    lanes holdfast.limit_lane[]     -- where the first parked or promoted job of a lane was found
);

-- Returns what this session remembers of these keys. It has room for 64 keys: two that share a place forget each other.
-- Called by remember_limit, limit_rooms, lock_limit_heads, take_limited.
CREATE FUNCTION holdfast.recall_limits(keys text[]) RETURNS SETOF holdfast.limit_memory
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_hashjoin = off AS $$
    SELECT (m.memory).* FROM (
        SELECT substr(current_setting('holdfast.limit_' || (hashtext(k.key) & 63), true), length(k.key) + 2)::holdfast.limit_memory AS memory
        FROM unnest(keys) AS k (key) WHERE starts_with(current_setting('holdfast.limit_' || (hashtext(k.key) & 63), true), k.key || chr(1)) OFFSET 0) AS m
$$;

-- Keeps, for this session, what a look at a key found: `since` or `lanes` are null if it did not look for that. `began`: when it did.
-- Called by limit_rooms, lock_limit_heads, take_limited.
CREATE FUNCTION holdfast.remember_limit(key text, since bigint, began timestamptz, lanes holdfast.limit_lane[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    memory holdfast.limit_memory := (SELECT m FROM holdfast.recall_limits(ARRAY[key]) AS m);
BEGIN
    IF lanes IS NULL THEN
        lanes := memory.lanes;
    ELSIF memory.until > began THEN
        lanes := lanes || ARRAY(SELECT o FROM unnest(memory.lanes) AS o
            WHERE NOT EXISTS (SELECT FROM unnest(lanes) AS l WHERE l.queue = o.queue AND l.kind = o.kind));
    ELSE
        -- It read all that ended since. A fiftieth of the time may go into that.
        memory.until := clock_timestamp() + greatest(interval '1 second', 50 * (clock_timestamp() - began));
    END IF;
    PERFORM set_config('holdfast.limit_' || (hashtext(key) & 63), key || chr(1)
        || ROW (key, coalesce(since, memory.since, 0), memory.until, lanes)::holdfast.limit_memory::text, false);
END $$;

-- Called by limit_rooms, promote_limited, take_limited, limit_wait.
CREATE FUNCTION holdfast.limit_name(key text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN split_part(key, ':', 1);

-- Null: a job may have these limits, and this tenant.
-- Called by on_failure_fault, enqueue_unique_jobs, check_following, enqueue_limited_jobs.
CREATE FUNCTION holdfast.limits_fault(limits text[], tenant text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN cardinality(limits) NOT BETWEEN 1 AND 3 THEN format('limits: 1 to 3 keys expected, got %s', cardinality(limits))
        WHEN array_position(limits, NULL) IS NOT NULL THEN 'limits: keys expected, got null'
        WHEN EXISTS (SELECT FROM unnest(limits) AS l WHERE octet_length(l) NOT BETWEEN 1 AND 500)
            THEN 'limits: keys of 1 to 500 bytes of text expected, got another length'
        WHEN (SELECT count(DISTINCT l) FROM unnest(limits) AS l) < cardinality(limits) THEN 'limits: different keys expected, got one twice'
        WHEN octet_length(tenant) NOT BETWEEN 1 AND 500 THEN 'tenant: 1 to 500 bytes of text expected, got another length'
    END $$;

-- Jobs of which some have limits or a tenant: the text of a JSON array, as in enqueue_jobs. Of the jobs of one key and lane that are due, the first is
-- pending, as if it was promoted, and the others are parked behind it, without a look at what is there and without a lock.
-- Called by enqueue_jobs.
CREATE FUNCTION holdfast.enqueue_limited_jobs(jobs text, group_id bigint) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    made bigint;
BEGIN
    RETURN QUERY
    INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
        group_id, order_seq, queue, kind, payload, headers, order_key, later, limits, tenant, tags, status, limit_key)
    SELECT CASE WHEN fault IS NULL THEN id ELSE holdfast.refuse(fault)::bigint END,
        clock, holdfast.due_at(at, delay_ms, clock), nullif(coalesce(max_attempts, 3), -1), coalesce(priority, 5),
        holdfast.shard_of(id, order_key), payload_version, nullif(order_block, false),
        coalesce(expires_at, clock + expires_ms * interval '1 millisecond'),
        enqueue_limited_jobs.group_id, CASE WHEN order_key IS NOT NULL THEN id END, coalesce(queue, 'default'),
        kind, payload, headers, order_key, later, limits, tenant, tags, CASE WHEN turn > 1 THEN 'blocked' ELSE 'pending' END::holdfast.status,
        CASE WHEN together > 1 THEN limits[1] END
    FROM (SELECT n.*, CASE WHEN parks THEN row_number() OVER (lane ORDER BY coalesce(priority, 5), id) END AS turn,
              CASE WHEN parks THEN count(*) OVER lane END AS together
          FROM (SELECT f.*, limits IS NOT NULL AND later IS NULL AND order_key IS NULL AS parks FROM (SELECT nextval('holdfast.job_id_seq') AS id, g.*, holdfast.is_later(at, delay_ms, clock) AS later,
                    coalesce(holdfast.job_fault(g.kind, g.payload, g.queue, g.priority, g.max_attempts, g.delay_ms, g.at, g.expires_ms, g.expires_at,
                        g.order_key, g.unique_key, g.unique_window_ms, g.on_conflict, g.headers, g.payload_version, g.blockers),
                        holdfast.limits_fault(g.limits, g.tenant), holdfast.tags_fault(g.tags)) AS fault
                FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json) AS g) AS f) AS n
          WINDOW lane AS (PARTITION BY limits[1], coalesce(queue, 'default'), kind, parks)) AS g
    ORDER BY id
    RETURNING job.id, job.id, true;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made > 1000000 THEN
        PERFORM holdfast.refuse(format('jobs: at most 1000000 expected, got %s', made));
    END IF;
END $$;

-- In a stricter transaction than READ COMMITTED, a look after a lock is as old as the transaction. It may decide about jobs that no other can
-- see, as in a user's test; see need_own_jobs.
-- Called by take_limited, lock_limits.
CREATE FUNCTION holdfast.need_own_limits(ids bigint[], keys text[]) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    oldest integer := age(pg_snapshot_xmax(pg_current_snapshot())::xid);
BEGIN
    IF EXISTS (SELECT FROM holdfast.job j WHERE j.id = ANY (ids) AND age(j.xmin) > oldest)
        OR EXISTS (SELECT FROM holdfast.job j WHERE j.limit_key = ANY (keys) AND age(j.xmin) > oldest)
    THEN
        PERFORM holdfast.need_read_committed();
    END IF;
END $$;

-- For each of these keys how many more jobs may run, and how many tokens there are; tokens null: no key has a rate. Call it in a statement
-- after the keys were locked: its snapshot shows all jobs that run, and the clock is read here. It counts in the index of limits, in its
-- order: without that, the planner prefers the index of leases and reads all jobs that run. The tokens of a key that would all be there only
-- after longer than they take are of a clock that was ahead, or of another limit.
--   locked   they are; else nothing is remembered
-- Called by take_limited, leave_limits, mend_limits.
CREATE FUNCTION holdfast.limit_rooms(keys text[], locked boolean, OUT places integer[], OUT tokens integer[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    remembered text[];
    sinces bigint[];
BEGIN
    WITH counted AS MATERIALIZED (
        SELECT k.n, m.since, k.key, r.concurrency, f.running, f.oldest, r.burst, r.starts, r.period_ms, b.full_at
        FROM unnest(keys) WITH ORDINALITY AS k (key, n)
            LEFT JOIN holdfast.recall_limits(keys) AS m ON m.key = k.key
            LEFT JOIN holdfast.limit_rule r ON r.name = holdfast.limit_name(k.key)
            LEFT JOIN holdfast.limit_rate b ON b.limit_key = k.key
                AND b.full_at <= clock + interval '1 second' + r.burst * (r.period_ms * interval '1 millisecond' / r.starts),
            LATERAL (SELECT count(*) AS running, min(e.lock_token) AS oldest FROM (
                SELECT e.lock_token FROM holdfast.job e
                WHERE r.concurrency IS NOT NULL AND e.limit_key = k.key AND e.status = 'processing' AND e.lock_token >= coalesce(m.since, 0)
                ORDER BY e.lock_token LIMIT r.concurrency) AS e) AS f)
    SELECT array_agg(CASE WHEN c.concurrency IS NULL THEN 1000000000 ELSE c.concurrency - c.running
            - (SELECT count(*) FROM holdfast.limit_place p WHERE p.limit_key = c.key AND (
                   SELECT e.status = 'processing' AND e.limit_key <> c.key AND c.key = ANY (e.limits) FROM holdfast.job e WHERE e.id = p.job_id))
            END ORDER BY c.n),
        CASE WHEN count(c.starts) > 0 THEN array_agg(CASE WHEN c.starts IS NULL THEN 1000000000 ELSE floor(0.000001 + c.burst
            - coalesce(greatest(extract(epoch FROM c.full_at - clock), 0) * 1000 * c.starts / c.period_ms, 0)) END ORDER BY c.n) END,
        array_agg(c.key) FILTER (WHERE c.is_noted), array_agg(coalesce(c.oldest, t.last_value + 1)) FILTER (WHERE c.is_noted)
    INTO places, tokens, remembered, sinces
    FROM holdfast.token t, LATERAL (SELECT o.*, o.concurrency > 0
        AND CASE WHEN o.since IS NULL THEN random() < 0.03 ELSE t.last_value > o.since + 32 END AS is_noted FROM counted o) AS c;
    -- An older snapshot than the lock may not show all jobs that run.
    IF locked AND remembered IS NOT NULL AND current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM holdfast.remember_limit(r.key, r.since, NULL, NULL) FROM unnest(remembered, sinces) AS r (key, since);
    END IF;
END $$;

-- Of each lane of these keys in which jobs are parked and none is promoted: the first, locked. A lane whose parked jobs are all locked by other
-- transactions makes its key stuck. `leaving`: jobs that leave their lanes now.
-- Called by take_limited, lock_limits, mend_limits.
CREATE FUNCTION holdfast.lock_limit_heads(keys text[], leaving bigint[], OUT heads bigint[], OUT head_keys text[], OUT stuck text[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    memories holdfast.limit_memory[] := ARRAY(SELECT m FROM holdfast.recall_limits(keys) AS m);
    remembered text[] := ARRAY(SELECT m.key FROM unnest(memories) AS m);
    lanes holdfast.limit_lane[];    -- of the heads
BEGIN
    WITH RECURSIVE known AS MATERIALIZED (
        SELECT m.key, l.* FROM unnest(memories) AS m, unnest(m.lanes) AS l WHERE m.until > clock),
    -- From lane to lane, without a step into a known one: to one before the next known lane, or to that.
    lane AS (
        SELECT k.key, ''::text COLLATE "C" AS queue, ''::text COLLATE "C" AS kind, 0 AS n FROM unnest(keys) AS k (key)
        WHERE k.key = ANY (remembered) OR (
            SELECT true FROM holdfast.job j
            WHERE j.limit_key = k.key AND j.status = 'blocked' AND j.lock_token IS NULL AND j.id <> ALL (leaving)
            ORDER BY j.lock_token LIMIT 1)
        UNION ALL
        SELECT l.key, f.queue, f.kind, l.n + 1
        FROM lane l LEFT JOIN LATERAL (
                SELECT o.queue, o.kind FROM known o WHERE o.key = l.key AND (o.queue, o.kind) > (l.queue, l.kind)
                ORDER BY o.queue, o.kind LIMIT 1) AS e ON true,
            LATERAL (
                SELECT b.queue, b.kind FROM (
                    SELECT j.queue, j.kind FROM holdfast.job j
                    WHERE j.limit_key = l.key AND j.status = 'blocked' AND j.lock_token IS NULL AND (j.queue, j.kind) > (l.queue, l.kind)
                        AND j.queue < coalesce(e.queue, chr(1114111)) AND j.id <> ALL (leaving)
                    ORDER BY j.lock_token, j.queue, j.kind LIMIT 1) AS b
                UNION ALL
                SELECT b.queue, b.kind FROM (
                    SELECT j.queue, j.kind FROM holdfast.job j
                    WHERE e.queue IS NOT NULL AND j.limit_key = l.key AND j.status = 'blocked' AND j.lock_token IS NULL AND j.queue = e.queue
                        AND j.kind > CASE WHEN l.queue = e.queue THEN l.kind ELSE '' END AND j.kind < e.kind AND j.id <> ALL (leaving)
                    ORDER BY j.lock_token, j.kind LIMIT 1) AS b
                UNION ALL
                SELECT e.queue, e.kind WHERE e.queue IS NOT NULL
                LIMIT 1) AS f
        WHERE l.n < 1000),
    head AS MATERIALIZED (
        SELECT l.key, l.queue, l.kind, h.priority, h.available_at, h.id, h.id IS NULL AND (o.id IS NULL OR EXISTS (
                SELECT FROM holdfast.job j WHERE j.limit_key = l.key AND j.status = 'blocked' AND j.lock_token IS NULL
                    AND j.queue = l.queue AND j.kind = l.kind AND j.id <> ALL (leaving))) AS is_stuck
        FROM lane l LEFT JOIN known o ON o.key = l.key AND o.queue = l.queue AND o.kind = l.kind
            LEFT JOIN LATERAL (
                SELECT * FROM (
                    SELECT j.priority, j.available_at, j.id FROM holdfast.job j
                    WHERE o.priority > 0 AND j.limit_key = l.key AND j.status = 'blocked' AND j.lock_token IS NULL AND j.queue = l.queue
                        AND j.kind = l.kind AND j.priority < o.priority AND j.id <> ALL (leaving)
                    ORDER BY j.lock_token, j.priority, j.available_at, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS urgent
                UNION ALL
                SELECT * FROM (
                    SELECT j.priority, j.available_at, j.id FROM holdfast.job j
                    WHERE j.limit_key = l.key AND j.status = 'blocked' AND j.lock_token IS NULL AND j.queue = l.queue AND j.kind = l.kind
                        AND (j.priority, j.available_at, j.id) >= (coalesce(o.priority, 0), coalesce(o.available_at, '-infinity'), coalesce(o.id, 0))
                        AND j.id <> ALL (leaving)
                    ORDER BY j.lock_token, j.priority, j.available_at, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS next
                UNION ALL
                SELECT * FROM (
                    SELECT j.priority, j.available_at, j.id FROM holdfast.job j
                    WHERE o.id IS NOT NULL AND j.limit_key = l.key AND j.status = 'blocked' AND j.lock_token IS NULL AND j.queue = l.queue
                        AND j.kind = l.kind AND j.id <> ALL (leaving)
                    ORDER BY j.lock_token, j.priority, j.available_at, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS missed
                LIMIT 1) AS h ON true
        WHERE l.n > 0 AND (
            SELECT true FROM holdfast.job s
            WHERE s.limit_key = l.key AND s.status = 'pending' AND s.lock_token IS NULL AND s.queue = l.queue AND s.kind = l.kind
                AND (s.priority, s.available_at, s.id) >= (coalesce(o.priority, 0), coalesce(o.available_at, '-infinity'), coalesce(o.id, 0))
                AND s.id <> ALL (leaving)
            ORDER BY s.lock_token, s.priority, s.available_at, s.id LIMIT 1) IS NULL)
    SELECT coalesce(array_agg(h.id) FILTER (WHERE h.id IS NOT NULL), '{}'),
        coalesce(array_agg(h.key) FILTER (WHERE h.id IS NOT NULL), '{}'), coalesce(array_agg(h.key) FILTER (WHERE h.is_stuck), '{}'),
        array_agg(ROW (h.queue, h.kind, h.priority, h.available_at, h.id)::holdfast.limit_lane) FILTER (WHERE h.id IS NOT NULL)
    INTO heads, head_keys, stuck, lanes FROM head h;
    IF heads <> '{}' AND (memories <> '{}' OR random() < 0.03) THEN
        PERFORM holdfast.remember_limit(f.key, NULL, clock, array_agg(ROW (f.queue, f.kind, f.priority, f.available_at, f.id)::holdfast.limit_lane))
        FROM unnest(lanes, head_keys) AS f (queue, kind, priority, available_at, id, key) GROUP BY f.key;
    END IF;
END $$;

-- Promotes these parked jobs, locked before. They keep their time, so that they stay the first of their lanes; where a key has no token, they
-- are due when it has the next.
-- Called by take_limited, leave_limits, pass_promotion, mend_limits.
CREATE FUNCTION holdfast.promote_limited(heads bigint[], head_keys text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    clock timestamptz := clock_timestamp();
BEGIN
    UPDATE holdfast.job j SET status = 'pending', available_at = coalesce(h.token_at, j.available_at),
        later = CASE WHEN h.token_at IS NOT NULL THEN true END
    FROM (SELECT g.id, CASE WHEN b.full_at - (r.burst - 1) * s.gap > clock THEN b.full_at - (r.burst - 1) * s.gap END AS token_at
          FROM unnest(heads, head_keys) AS g (id, key)
              LEFT JOIN holdfast.limit_rule r ON r.name = holdfast.limit_name(g.key)
              LEFT JOIN LATERAL (SELECT r.period_ms * interval '1 millisecond' / r.starts AS gap) AS s ON true
              LEFT JOIN holdfast.limit_rate b ON b.limit_key = g.key AND b.full_at <= clock + interval '1 second' + r.burst * s.gap) AS h
    WHERE j.id = h.id;
    IF EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock) THEN
        PERFORM holdfast.wake_sleepers(array_agg(j.queue), array_agg(j.kind)) FROM holdfast.job j WHERE j.id = ANY (heads) HAVING count(*) > 0;
    END IF;
END $$;

-- Decides which of these candidates with limits may run, and which parked jobs in their place; the candidates are locked by this
-- transaction. All keys of a job must have room: it is parked at the first that is full, and holds nothing. A key that another transaction
-- has locked is left for the next claim; no claim ever waits.
--   most       how many may be taken
--   alone      suspects: nothing else is taken with them, and they are not parked, since ordinary claims would not find them
--   parked     how many candidates were met and not taken: look for others
--   again      a parked job was promoted that this claim may not find: claim again
-- Called by take_keyed.
CREATE FUNCTION holdfast.take_limited(ids bigint[], budget integer, most integer, alone boolean, shard_from smallint, shard_to smallint,
    OUT heads tid[], OUT parked integer, OUT keys integer, OUT left_alone bigint[], OUT again boolean)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held text[];
    all_held boolean;               -- all keys of all candidates
    more text[];
    room record;
    rooms integer[];                -- of held: the smaller of places and tokens
    places integer[];
    rated boolean;
    fair boolean;                   -- some take turns
    all_fit boolean;                -- each candidate has one key of its own, with room: nothing is to be decided
    pool holdfast.limited_job[];
    next holdfast.limited_job;
    key text;
    full_key text;
    n integer;
    taken bigint[] := '{}';
    park bigint[] := '{}';
    park_keys text[] := '{}';
    started text[] := '{}';         -- the keys of the jobs that are taken, one by one
    shared bigint[] := '{}';        -- those of them with several keys
    open text[] := '{}';            -- keys of parked jobs that were not taken
    found record;
    clock timestamptz := clock_timestamp();
BEGIN
    SELECT coalesce(array_agg(k.key) FILTER (WHERE k.locked), '{}'), count(*) INTO held, keys
    FROM (SELECT d.key, pg_try_advisory_xact_lock(hashtext('holdfast.limit'), hashtext(d.key)) AS locked
          FROM (SELECT DISTINCT l.key FROM holdfast.job j, unnest(j.limits) AS l (key) WHERE j.id = ANY (ids) ORDER BY 1 LIMIT budget) AS d) AS k;
    all_held := keys = cardinality(held) AND keys < budget;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM holdfast.need_own_limits('{}', held);
    END IF;
    left_alone := CASE WHEN all_held THEN '{}' ELSE ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id = ANY (ids) AND NOT j.limits <@ held) END;
    heads := '{}'; parked := 0; again := false;
    keys := cardinality(held);
    IF cardinality(left_alone) = cardinality(ids) THEN
        RETURN;
    END IF;
    -- A statement of its own, after the locks.
    SELECT * INTO room FROM holdfast.limit_rooms(held, true);
    places := room.places; rated := room.tokens IS NOT NULL;
    rooms := CASE WHEN rated THEN ARRAY(SELECT least(r.place, r.token) FROM unnest(places, room.tokens) WITH ORDINALITY AS r (place, token, n) ORDER BY r.n)
        ELSE places END;
    WITH met AS MATERIALIZED (
        SELECT j.id, j.ctid, j.limits, j.limit_key, j.order_key, j.queue, j.kind, j.priority, j.available_at, j.tenant FROM holdfast.job j
        WHERE j.id = ANY (ids) AND (all_held OR j.limits <@ held)),
    lane AS MATERIALIZED (
        SELECT DISTINCT l.key, least(r.room, most) + 1 AS wanted, m.queue, m.kind, bool_or(m.tenant IS NOT NULL) OVER (PARTITION BY l.key, m.queue, m.kind) AS fair
        FROM met m, unnest(m.limits) AS l (key) JOIN unnest(held, rooms) AS r (key, room) ON r.key = l.key
        WHERE r.room > 0 AND most > 0 AND NOT alone),
    known AS MATERIALIZED (
        SELECT m.key, o.* FROM holdfast.recall_limits(ARRAY(SELECT l.key FROM lane l)) AS m, unnest(m.lanes) AS o WHERE m.until > clock_timestamp()),
    waiting AS MATERIALIZED (
        SELECT w.* FROM lane l LEFT JOIN known o ON o.key = l.key AND o.queue = l.queue AND o.kind = l.kind, LATERAL (
            SELECT * FROM (
                SELECT j.id, j.ctid, j.limits, j.limit_key, j.order_key, j.priority, j.available_at FROM holdfast.job j
                WHERE o.priority > 0 AND j.limit_key = l.key AND j.status = 'blocked' AND j.lock_token IS NULL AND j.queue = l.queue
                    AND j.kind = l.kind AND j.priority < o.priority AND j.shard BETWEEN shard_from AND shard_to
                ORDER BY j.lock_token, j.priority, j.available_at, j.id LIMIT l.wanted FOR NO KEY UPDATE SKIP LOCKED) AS urgent
            UNION ALL
            SELECT * FROM (
                SELECT j.id, j.ctid, j.limits, j.limit_key, j.order_key, j.priority, j.available_at FROM holdfast.job j
                WHERE j.limit_key = l.key AND j.status = 'blocked' AND j.lock_token IS NULL AND j.queue = l.queue AND j.kind = l.kind
                    AND (j.priority, j.available_at, j.id) >= (coalesce(o.priority, 0), coalesce(o.available_at, '-infinity'), coalesce(o.id, 0))
                    AND j.shard BETWEEN shard_from AND shard_to
                ORDER BY j.lock_token, j.priority, j.available_at, j.id LIMIT l.wanted FOR NO KEY UPDATE SKIP LOCKED) AS next
            LIMIT l.wanted) AS w
        WHERE NOT l.fair),
    in_turn AS MATERIALIZED (
        SELECT t.id FROM lane l, holdfast.next_turns('blocked', l.key, l.queue, l.kind, NULL, l.wanted, shard_from, shard_to, '{}') AS n, unnest(n.keyed) AS t (id)
        WHERE l.fair)
    -- A promoted job was the oldest of its lane, also if it has the time of a token.
    SELECT count(*) = keys AND all_held AND count(*) <= most AND bool_and(a.met AND cardinality(a.limits) = 1)
            AND (SELECT min(r) FROM unnest(rooms) AS r) > 0,
        array_agg(a.ctid), array_agg(a.limits[1]),
        array_agg(ROW (a.id, a.ctid, a.limits, a.limit_key, a.met, a.order_key IS NOT NULL,
            CASE WHEN cardinality(a.limits) = 1 THEN array_position(held, a.limits[1]) END, NULL, NULL)::holdfast.limited_job
        ORDER BY a.priority, NOT (a.met AND a.limit_key IS NOT NULL), a.available_at, a.id), bool_or(a.fair)
    INTO all_fit, heads, started, pool, fair
    FROM (SELECT m.id, m.ctid, m.limits, m.limit_key, m.order_key, m.priority, m.available_at, true AS met, m.tenant IS NOT NULL AS fair FROM met m
          UNION ALL SELECT w.id, w.ctid, w.limits, w.limit_key, w.order_key, w.priority, w.available_at, false, false FROM waiting w
          UNION ALL SELECT j.id, j.ctid, j.limits, j.limit_key, j.order_key, j.priority, j.available_at, false, true FROM in_turn t JOIN holdfast.job j ON j.id = t.id) AS a;
    IF all_fit AND NOT rated AND NOT fair THEN
        RETURN;
    END IF;
    IF random() < 0.05 THEN
        PERFORM holdfast.remember_limit(w.limit_key, NULL, clock, array_agg(ROW (w.queue, w.kind, w.priority, w.available_at, w.id)::holdfast.limit_lane))
        FROM (SELECT DISTINCT ON (j.limit_key, j.queue, j.kind) j.* FROM unnest(pool) AS p JOIN holdfast.job j ON j.id = p.id
              WHERE NOT p.met ORDER BY j.limit_key, j.queue, j.kind, j.priority, j.available_at, j.id) AS w GROUP BY w.limit_key;
    END IF;
    heads := '{}'; started := '{}';
    IF fair THEN
        pool := holdfast.order_by_turns(pool);
    END IF;
    -- The other keys of parked jobs.
    more := ARRAY(SELECT k.key FROM (SELECT DISTINCT l.key FROM unnest(pool) AS p, unnest(p.limits) AS l (key)
            WHERE cardinality(p.limits) > 1 AND l.key <> ALL (held) ORDER BY 1 LIMIT budget - keys) AS k
        WHERE pg_try_advisory_xact_lock(hashtext('holdfast.limit'), hashtext(k.key)));
    IF more <> '{}' THEN
        SELECT * INTO room FROM holdfast.limit_rooms(more, true);
        held := held || more; places := places || room.places; keys := cardinality(held);
        rated := rated OR room.tokens IS NOT NULL;
        rooms := rooms || ARRAY(SELECT least(r.place, r.token) FROM unnest(room.places, room.tokens) WITH ORDINALITY AS r (place, token, n) ORDER BY r.n);
    END IF;

    FOREACH next IN ARRAY pool LOOP
        full_key := NULL;
        n := next.n;
        IF n IS NOT NULL THEN
            full_key := CASE WHEN rooms[n] <= 0 THEN next.limits[1] END;
        ELSE
            FOREACH key IN ARRAY next.limits LOOP
                n := array_position(held, key);
                EXIT WHEN n IS NULL;
                IF rooms[n] <= 0 THEN
                    full_key := coalesce(full_key, key);
                END IF;
            END LOOP;
        END IF;
        IF NOT next.met THEN
            -- Not known to be the first of its order key: it goes the way of all pending jobs.
            IF n IS NULL OR next.ordered OR full_key IS NULL AND cardinality(taken) = most THEN
                open := open || next.limit_key;
                CONTINUE;
            ELSIF full_key IS NOT NULL THEN
                open := open || next.limit_key;
                CONTINUE WHEN full_key = next.limit_key;
            END IF;
        END IF;
        IF full_key IS NOT NULL THEN
            park := park || next.id; park_keys := park_keys || full_key;
            parked := parked + next.met::integer;
        ELSIF cardinality(taken) < most THEN
            taken := taken || next.id;
            heads := heads || next.place;
            IF next.n IS NOT NULL THEN
                rooms[n] := rooms[n] - 1; places[n] := places[n] - 1;
            ELSE
                FOREACH key IN ARRAY next.limits LOOP
                    n := array_position(held, key);
                    rooms[n] := rooms[n] - 1; places[n] := places[n] - 1;
                END LOOP;
                shared := shared || next.id;
            END IF;
            IF rated THEN
                started := started || next.limits;
            END IF;
            IF next.turn_setting IS NOT NULL THEN
                PERFORM set_config(next.turn_setting, next.turn_place, false);
            END IF;
        END IF;
    END LOOP;

    IF shared <> '{}' THEN
        INSERT INTO holdfast.limit_place (limit_key, job_id)
        SELECT l.key, j.id FROM holdfast.job j, unnest(j.limits[2:]) AS l (key) WHERE j.id = ANY (shared) ON CONFLICT DO NOTHING;
    END IF;
    IF started <> '{}' THEN
        clock := clock_timestamp();
        INSERT INTO holdfast.limit_rate AS b (limit_key, full_at)
        SELECT s.key, clock + s.count * (r.period_ms * interval '1 millisecond' / r.starts)
        FROM (SELECT g.key, count(*) FROM unnest(started) AS g (key) GROUP BY g.key) AS s
            JOIN holdfast.limit_rule r ON r.name = holdfast.limit_name(s.key) AND r.starts IS NOT NULL
        ON CONFLICT (limit_key) DO UPDATE SET full_at = least(greatest(b.full_at, clock) + (excluded.full_at - clock),
            (SELECT clock + r.burst * (r.period_ms * interval '1 millisecond' / r.starts) FROM holdfast.limit_rule r WHERE r.name = holdfast.limit_name(b.limit_key)));
    END IF;
    IF park <> '{}' THEN
        IF alone THEN
            UPDATE holdfast.job j SET available_at = clock_timestamp() + interval '1 second' WHERE j.id = ANY (park);
        ELSE
            UPDATE holdfast.job j SET status = 'blocked', limit_key = p.key FROM unnest(park, park_keys) AS p (id, key) WHERE j.id = p.id;
        END IF;
    END IF;
    -- Where room is left for jobs that stay parked, or a token will come, the first of each lane is promoted.
    open := ARRAY(SELECT DISTINCT o FROM unnest(open || CASE WHEN rated AND NOT alone THEN park_keys END) AS o WHERE places[array_position(held, o)] > 0);
    IF open <> '{}' THEN
        SELECT * INTO found FROM holdfast.lock_limit_heads(open, taken);
        IF found.heads <> '{}' THEN
            PERFORM holdfast.promote_limited(found.heads, found.head_keys);
            again := EXISTS (SELECT FROM holdfast.job j WHERE j.id = ANY (found.heads) AND j.later IS NULL);
        END IF;
    END IF;
END $$;

-- Decides which of these candidates, with an order key or with limits, may run: those that are the first of their order key, and of these,
-- and of the others, those whose limits have room. See take_limited for the arguments.
-- Called by claim_jobs, claim_suspects.
CREATE FUNCTION holdfast.take_keyed(ids bigint[], budget integer, most integer, alone boolean, shard_from smallint, shard_to smallint,
    OUT heads tid[], OUT parked integer, OUT keys integer, OUT left_alone bigint[], OUT again boolean)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ordered bigint[];
    limited bigint[];
    o record;
BEGIN
    SELECT coalesce(array_agg(j.id) FILTER (WHERE j.order_key IS NOT NULL), '{}'), coalesce(array_agg(j.id) FILTER (WHERE j.order_key IS NULL), '{}')
    INTO ordered, limited FROM holdfast.job j WHERE j.id = ANY (ids);
    heads := '{}'; parked := 0; keys := 0; left_alone := '{}'; again := false;
    IF ordered <> '{}' THEN
        SELECT * INTO o FROM holdfast.take_order_heads(ordered, budget);
        heads := o.heads; parked := o.parked; keys := o.keys; left_alone := o.left_alone;
        SELECT limited || coalesce(array_agg(j.id) FILTER (WHERE j.limits IS NOT NULL), '{}'),
            coalesce(array_agg(j.ctid) FILTER (WHERE j.limits IS NULL), '{}')
        INTO limited, heads FROM holdfast.job j WHERE j.ctid = ANY (heads);
    END IF;
    IF limited <> '{}' THEN
        SELECT * INTO o FROM holdfast.take_limited(limited, budget - keys, greatest(most - cardinality(heads), 0), alone, shard_from, shard_to);
        heads := heads || o.heads; parked := parked + o.parked; keys := keys + o.keys; left_alone := left_alone || o.left_alone;
        again := o.again;
    END IF;
END $$;

-- Locks the keys of jobs that end or are given back, in one direction, and of their lanes the jobs that may be promoted. It waits for a claim
-- or another ending that has a key, at most 100 ms: then the jobs of that key are stuck, and the caller tries again.
-- Called by settle_batch.
CREATE FUNCTION holdfast.lock_limits(jobs bigint[], OUT keys text[], OUT heads bigint[], OUT head_keys text[], OUT stuck bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET jit = off SET enable_seqscan = off AS $$
DECLARE
    missed text[] := '{}';
    found record;
BEGIN
    keys := ARRAY(SELECT DISTINCT l.key FROM holdfast.job j, unnest(j.limits) AS l (key) WHERE j.id = ANY (jobs));
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM holdfast.need_own_limits(jobs, keys);
    END IF;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtext('holdfast.limit'), k.hash)
        FROM (SELECT DISTINCT hashtext(l) AS hash FROM unnest(keys) AS l ORDER BY 1) AS k;
    EXCEPTION WHEN lock_not_available THEN
        missed := ARRAY(SELECT l FROM unnest(keys) AS l WHERE NOT pg_try_advisory_xact_lock(hashtext('holdfast.limit'), hashtext(l)));
        keys := ARRAY(SELECT l FROM unnest(keys) AS l WHERE l <> ALL (missed));
    END;
    -- A statement of its own: it sees all that the last holder of a lock parked.
    SELECT * INTO found FROM holdfast.lock_limit_heads(keys, jobs);
    heads := found.heads; head_keys := found.head_keys; stuck := '{}';
    missed := missed || found.stuck;
    IF missed <> '{}' THEN
        stuck := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id = ANY (jobs) AND j.limits && missed);
    END IF;
END $$;

-- After jobs ended or were given back: promotes the parked jobs that lock_limits found, where their keys have room.
-- Called by settle_batch.
CREATE FUNCTION holdfast.leave_limits(jobs bigint[], keys text[], heads bigint[], head_keys text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    open text[];
    room record;
BEGIN
    DELETE FROM holdfast.limit_place p WHERE p.limit_key = ANY (keys) AND p.job_id = ANY (jobs);
    IF heads <> '{}' THEN
        open := ARRAY(SELECT DISTINCT k FROM unnest(head_keys) AS k);
        SELECT * INTO room FROM holdfast.limit_rooms(open, true);
        open := ARRAY(SELECT r.key FROM unnest(open, room.places) AS r (key, places) WHERE r.places > 0);
        PERFORM holdfast.promote_limited(array_agg(h.id), array_agg(h.key)) FROM unnest(heads, head_keys) AS h (id, key)
        WHERE h.key = ANY (open) HAVING count(*) > 0;
    END IF;
END $$;

-- For jobs, locked by this transaction, that leave their lanes of a limit without ending: replaced, given another time, or parked for their
-- order key. If one was the promoted job of its lane, the next takes its place. It takes no lock on the key: the transaction may be a user's.
-- Called by enqueue_unique_jobs, take_order_heads, reschedule_job.
CREATE FUNCTION holdfast.pass_promotion(ids bigint[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    heads bigint[];
    head_keys text[];
BEGIN
    SELECT array_agg(h.id), array_agg(l.limit_key) INTO heads, head_keys
    FROM (SELECT DISTINCT j.limit_key, j.queue, j.kind FROM holdfast.job j WHERE j.id = ANY (ids) AND j.limit_key IS NOT NULL) AS l,
        LATERAL (SELECT j.id FROM holdfast.job j
                 WHERE j.limit_key = l.limit_key AND j.status = 'blocked' AND j.lock_token IS NULL AND j.queue = l.queue AND j.kind = l.kind
                     AND j.id <> ALL (ids)
                 ORDER BY j.lock_token, j.priority, j.available_at, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS h;
    UPDATE holdfast.job j SET limit_key = NULL WHERE j.id = ANY (ids) AND j.limit_key IS NOT NULL;
    IF heads IS NOT NULL THEN
        PERFORM holdfast.promote_limited(heads, head_keys);
    END IF;
END $$;

-- Finds keys that have room and parked jobs, and lanes without a promoted one: there are none unless a limit was raised, or a job left its
-- lane while the next was locked. It looks at `most` keys behind `since`, of one limit or of all, without the lock of a key, and looks
-- again with it before it promotes; of one limit, after it was changed, it waits for the lock. Returns the key after which to continue, null when it was the last, and how many were mended.
-- Called by limit.sql mend_limits.
CREATE FUNCTION holdfast.mend_limits(since text, name text, most integer, OUT until text, OUT mended integer)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan SET lock_timeout = '300ms' AS $$
DECLARE
    -- Byte by byte, nothing lies between a key and that key with the smallest character behind it.
    key text COLLATE "C" := coalesce(since || chr(1), name, '');
    last text COLLATE "C" := name || ';';
    found record;
    room record;
BEGIN
    mended := 0;
    IF name IS NOT NULL AND since IS NULL THEN
        -- By the tokens of before, these may be due much later.
        UPDATE holdfast.job j SET available_at = clock_timestamp(), later = NULL WHERE j.id = ANY (ARRAY(
            SELECT p.id FROM holdfast.job p
            WHERE p.limit_key >= name AND p.limit_key < last AND p.status = 'pending' AND p.later LIMIT 10000 FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
    FOR n IN 1..most LOOP
        SELECT j.limit_key INTO key FROM holdfast.job j
        WHERE j.limit_key >= CASE WHEN n = 1 THEN key ELSE key || chr(1) END AND j.status = 'blocked' AND (last IS NULL OR j.limit_key < last) ORDER BY j.limit_key LIMIT 1;
        until := key;
        EXIT WHEN key IS NULL;
        IF name IS NULL THEN
            SELECT * INTO room FROM holdfast.limit_rooms(ARRAY[key], false);
            CONTINUE WHEN room.places[1] <= 0;
            SELECT * INTO found FROM holdfast.lock_limit_heads(ARRAY[key], '{}');
            CONTINUE WHEN found.heads = '{}';
            CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtext('holdfast.limit'), hashtext(key));
        ELSE
            -- A claim that has the key now may have counted by the limit before, and take the promoted job.
            BEGIN
                PERFORM pg_advisory_xact_lock(hashtext('holdfast.limit'), hashtext(key));
            EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
                CONTINUE;
            END;
        END IF;
        SELECT * INTO found FROM holdfast.lock_limit_heads(ARRAY[key], '{}');
        SELECT * INTO room FROM holdfast.limit_rooms(ARRAY[key], true);
        IF found.heads <> '{}' AND room.places[1] > 0 THEN
            PERFORM holdfast.promote_limited(found.heads, found.head_keys);
            mended := mended + 1;
        END IF;
    END LOOP;
END $$;

-- Stores the limits that the code of a worker declares: a JSON object of name to concurrency, starts, period_ms, burst and parameters. Values
-- that an operator set stay in force. Returns the names whose values in force changed.
-- Called by limit.sql declare_limits.
CREATE FUNCTION holdfast.declare_limits(given json) RETURNS SETOF text
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO holdfast.limit_rule AS r (name, concurrency, starts, period_ms, burst, parameters, declared)
    SELECT g.key, d.concurrency, d.starts, d.period_ms, d.burst, d.parameters, json_build_object('concurrency', d.concurrency,
        'starts', d.starts, 'period_ms', d.period_ms, 'burst', d.burst)
    FROM json_each(given) AS g, json_to_record(g.value) AS d (concurrency integer, starts integer, period_ms bigint, burst integer, parameters text[])
    ORDER BY g.key
    ON CONFLICT (name) DO UPDATE SET declared = excluded.declared, parameters = excluded.parameters,
        concurrency = CASE WHEN r.set_at IS NULL THEN excluded.concurrency ELSE r.concurrency END,
        starts = CASE WHEN r.set_at IS NULL THEN excluded.starts ELSE r.starts END,
        period_ms = CASE WHEN r.set_at IS NULL THEN excluded.period_ms ELSE r.period_ms END,
        burst = CASE WHEN r.set_at IS NULL THEN excluded.burst ELSE r.burst END
    WHERE (r.declared::text, r.parameters) IS DISTINCT FROM (excluded.declared::text, excluded.parameters)
    RETURNING r.name
$$;

-- The key that a parked or promoted job waits for, and how many jobs run and wait under it, at most 10,000 of each counted.
-- Called by limit.sql read_limit_wait.
CREATE FUNCTION holdfast.limit_wait(job_id bigint) RETURNS TABLE (name text, value text, parameters text[], concurrency integer, starts integer,
        period_ms bigint, running bigint, ahead bigint)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT holdfast.limit_name(j.limit_key), nullif(substr(j.limit_key, length(holdfast.limit_name(j.limit_key)) + 2), ''),
        r.parameters, r.concurrency, r.starts, r.period_ms,
        (SELECT count(*) FROM (SELECT FROM holdfast.job e WHERE e.limit_key = j.limit_key AND e.status = 'processing'
            ORDER BY e.lock_token LIMIT 10000) AS few)
        + (SELECT count(*) FROM holdfast.limit_place p JOIN holdfast.job e ON e.id = p.job_id
           WHERE p.limit_key = j.limit_key AND e.status = 'processing' AND e.limit_key <> j.limit_key AND j.limit_key = ANY (e.limits)),
        (SELECT count(*) FROM (SELECT FROM holdfast.job e WHERE e.limit_key = j.limit_key AND e.status IN ('pending', 'blocked')
            AND (e.priority, e.available_at, e.id) < (j.priority, j.available_at, j.id) LIMIT 10000) AS few)
    FROM holdfast.job j LEFT JOIN holdfast.limit_rule r ON r.name = holdfast.limit_name(j.limit_key)
    WHERE j.id = job_id AND j.limit_key IS NOT NULL AND j.status IN ('pending', 'blocked');
END $$;
