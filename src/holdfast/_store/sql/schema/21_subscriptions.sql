-- Subscriptions: the readers of the log, their positions, and the workers that hold them.

CREATE TABLE holdfast.subscription (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    cluster    bigint NOT NULL,                 -- the identifier of the server that wrote the positions
    base_id    bigint NOT NULL DEFAULT 0,       -- events up to this one came with a restore, and their xids mean nothing
    partitions smallint NOT NULL CHECK (partitions BETWEEN 1 AND 64),
    paused     boolean NOT NULL DEFAULT false,
    paused_at  timestamptz,                     -- with by whom, and why
    paused_by  text,
    paused_reason text,
    name       text COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 200),
    target     text NOT NULL,                   -- for operators: the kind of the jobs that it makes, or the sink
    topics     text[] NOT NULL,                 -- none: all
    makes_jobs boolean NOT NULL DEFAULT false CHECK (partitions = 1 OR NOT makes_jobs)
);

-- How far each partition of a subscription has read, and which worker holds it: the row with the highest seq. Appended and never updated,
-- so that reading it takes one index look-up, however many rows there were, also while a snapshot is held open. A worker that appends must
-- know the row before: the primary key refuses a holder that was replaced by another.
--   seen   everything that this snapshot sees is handed over. No event that it sees has an id above seen_top. Each that it does not see
--          either has an id above seen_id, or is of a transaction that was under way, and then its xid is below seen_xid.
--   next   the snapshot up to which is read now, if that is half done: the events between the two come after last_id, in phase 'late'
--          those up to seen_id, in phase 'new' those above.
--   phase  'again': before all that, what `seen` sees is handed over once more, after last_id.
--   xid    the transaction that wrote the row, as its system column xmin: a restored row has the first and another of the second.
CREATE TABLE holdfast.position (
    subscription_id integer NOT NULL,
    partition       smallint NOT NULL,
    seq             bigint NOT NULL,
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    lock_token      bigint,
    locked_by       bigint,
    seen            pg_snapshot NOT NULL,
    seen_id         bigint NOT NULL,
    seen_top        bigint NOT NULL,
    seen_xid        xid8 NOT NULL,
    next            pg_snapshot,
    next_id         bigint,
    next_top        bigint,
    next_xid        xid8,
    phase           text CHECK (phase IN ('again', 'late', 'new')),
    last_id         bigint,
    xid             xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (subscription_id, partition, seq)
);

-- The members of a subscription, and until when. Insert-only with short expiries, like the sleepers; after a crash all members join again.
CREATE UNLOGGED TABLE holdfast.member (
    until           timestamptz NOT NULL,
    worker_id       bigint NOT NULL,
    subscription_id integer NOT NULL
) WITH (vacuum_truncate = off);
CREATE INDEX member_until ON holdfast.member (until, subscription_id);

-- Events that a sink rejected, and later events of their key where the key is parked.
CREATE TABLE holdfast.parked (
    subscription_id integer NOT NULL,
    event_id        bigint NOT NULL,
    parked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at     timestamptz,                -- from then on it is tried again; null: when an operator releases it
    attempt         integer NOT NULL DEFAULT 0,
    partition       smallint NOT NULL,
    holds_key       boolean NOT NULL,           -- later events of its key are parked too
    key             text COLLATE "C",
    error_code      text,
    error           text,
    PRIMARY KEY (subscription_id, event_id)
);
CREATE INDEX parked_due ON holdfast.parked (subscription_id, partition, event_id) WHERE released_at IS NOT NULL;
CREATE INDEX parked_head ON holdfast.parked (subscription_id, key, event_id) WHERE holds_key AND error_code IS NOT NULL;

-- Responses of receivers, for sinks that keep them.
CREATE TABLE holdfast.delivery (
    answered_at     timestamptz NOT NULL,
    event_id        bigint NOT NULL,
    subscription_id integer NOT NULL,
    status          integer,
    attempt         integer NOT NULL,
    answer          text,
    late            boolean DEFAULT nullif(current_setting('holdfast.late', true), '')::boolean
) PARTITION BY LIST (late);
CREATE TABLE holdfast.delivery_days PARTITION OF holdfast.delivery FOR VALUES IN (NULL) PARTITION BY RANGE (answered_at);
CREATE TABLE holdfast.delivery_late PARTITION OF holdfast.delivery FOR VALUES IN (true);
CREATE INDEX delivery_event ON holdfast.delivery (event_id);

-- In a statement of its own: before a snapshot, it returns a bound below which only running transactions can still write; after it, a bound
-- above which the snapshot sees nothing.
-- Called by position_here, rebase_subscription, lag, read_events.
CREATE FUNCTION holdfast.last_event_id() RETURNS bigint
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$ SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM holdfast.event_id_seq $$;

-- Called by subscribe, join_subscription, rebase_subscription, lag, feed_jobs, day_is_read.
CREATE FUNCTION holdfast.cluster() RETURNS bigint LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT system_identifier FROM pg_control_system() $$;

-- Called by insert_positions, subscribe, join_subscription, replay_subscription, repartition_subscription, rebase_subscription and 7 more.
CREATE FUNCTION holdfast.position_of(subscription integer, part integer) RETURNS SETOF holdfast.position
    LANGUAGE sql STABLE ROWS 1 SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT * FROM holdfast.position p WHERE p.subscription_id = subscription AND p.partition = part::smallint ORDER BY p.seq DESC LIMIT 1 $$;

-- True when the positions of a subscription that were written on a server with another identifier are still valid, as after pg_upgrade:
--   The newest two rows of each partition are still those that their transactions wrote. One COPY gives every row the same xmin.
--   Every transaction that runs or will run has a number above the stored ones: it cannot be taken for one that was seen.
--   Nor can one that has published here before: no new event is one that was seen, or is of a transaction yet to come.
-- The first tells a restored copy from the original, the others alone keep events from being lost.
-- Called by join_subscription, lag.
CREATE FUNCTION holdfast.positions_are_valid(subscription integer) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT coalesce(bool_and(p.xmin = p.xid::xid
        AND greatest(pg_snapshot_xmax(p.seen), p.seen_xid, pg_snapshot_xmax(p.next), p.next_xid) <= pg_snapshot_xmin(pg_current_snapshot())
        AND NOT EXISTS (
            SELECT FROM (SELECT e.xid FROM holdfast.event e WHERE e.id > coalesce(p.next_top, p.seen_top) ORDER BY e.id DESC LIMIT 1000) AS e
            WHERE pg_visible_in_snapshot(e.xid, coalesce(p.next, p.seen)) OR e.xid >= pg_snapshot_xmax(pg_current_snapshot()))), false)
    FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k, LATERAL (
        SELECT p.xmin, p.* FROM holdfast.position p WHERE p.subscription_id = s.id AND p.partition = k::smallint
        ORDER BY p.seq DESC LIMIT 2) AS p
    WHERE s.id = subscription $$;

-- A position that begins here and now. A writer of events draws the id of its transaction before the numbers of its events. So whatever can
-- still get a number up to seen_id has a transaction id below the one drawn here, after it. Call it before the transaction writes: one that has
-- an id already is older than others that publish now, and cannot tell how far they go.
-- Called by subscribe, rebase_subscription, subscription.sql skip_subscription.
CREATE FUNCTION holdfast.position_here() RETURNS holdfast.position
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here holdfast.position;
BEGIN
    here.seen_id := holdfast.last_event_id();
    here.seen := pg_current_snapshot();
    here.seen_top := holdfast.last_event_id();
    here.seen_xid := CASE WHEN pg_current_xact_id_if_assigned() IS NULL THEN pg_current_xact_id() ELSE '18446744073709551615'::xid8 END;
    RETURN here;
END $$;

-- Inserts positions without a holder. `again`: deliver again all events after that id; null: none.
-- Called by subscribe, rebase_subscription, subscription.sql skip_subscription.
CREATE FUNCTION holdfast.insert_positions(subscription integer, here holdfast.position, again bigint) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO holdfast.position (subscription_id, partition, seq, seen, seen_id, seen_top, seen_xid, phase, last_id)
    SELECT s.id, k, coalesce((SELECT p.seq FROM holdfast.position_of(s.id, k) AS p), 0) + 1, here.seen, here.seen_id, here.seen_top, here.seen_xid,
        CASE WHEN again IS NOT NULL THEN 'again' END, again
    FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k WHERE s.id = subscription $$;

-- Creates a subscription, or updates it. Returns its number of partitions, which may differ from the requested one.
-- Called by subscription.sql subscribe.
CREATE FUNCTION holdfast.subscribe(name text, target text, topics text[], parts integer, beginning boolean, makes_jobs boolean DEFAULT false)
    RETURNS TABLE (id integer, partitions smallint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made integer;
    changed integer;
    here holdfast.position;
BEGIN
    UPDATE holdfast.subscription s SET target = subscribe.target, makes_jobs = subscribe.makes_jobs
    WHERE s.name = subscribe.name AND (s.target, s.makes_jobs) IS DISTINCT FROM (subscribe.target, subscribe.makes_jobs);
    UPDATE holdfast.subscription s SET topics = subscribe.topics
    WHERE s.name = subscribe.name AND s.topics <> subscribe.topics RETURNING s.id INTO changed;
    IF FOUND THEN
        -- A member that holds a partition loses it: the page that it has read lacks events of the new topics.
        INSERT INTO holdfast.position (subscription_id, partition, seq, seen, seen_id, seen_top, seen_xid,
            next, next_id, next_top, next_xid, phase, last_id)
        SELECT p.subscription_id, p.partition, p.seq + 1, p.seen, p.seen_id, p.seen_top, p.seen_xid,
            p.next, p.next_id, p.next_top, p.next_xid, p.phase, p.last_id
        FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k, holdfast.position_of(s.id, k) AS p WHERE s.id = changed;
    END IF;
    IF NOT EXISTS (SELECT FROM holdfast.subscription s WHERE s.name = subscribe.name) THEN
        here := holdfast.position_here();
        INSERT INTO holdfast.subscription AS s (name, target, topics, partitions, cluster, makes_jobs)
        VALUES (subscribe.name, subscribe.target, subscribe.topics, subscribe.parts, holdfast.cluster(), subscribe.makes_jobs)
        ON CONFLICT (name) DO NOTHING RETURNING s.id INTO made;
        IF made IS NOT NULL THEN
            PERFORM holdfast.insert_positions(made, here, CASE WHEN beginning THEN 0 END);
        END IF;
    END IF;
    RETURN QUERY SELECT s.id, s.partitions FROM holdfast.subscription s WHERE s.name = subscribe.name;
END $$;

-- A member renews its membership, and takes partitions that no live member holds, up to its fair share. Returns every position it holds,
-- and last a row without one: how many it should hold, whether the subscription is paused, whether its positions are of another server, and
-- whether this call has found that they are valid although the server's identifier differs. The partitions and topics are read with the
-- positions, in one statement: a change of either takes all positions away.
-- Called by subscription.sql join_subscription.
CREATE FUNCTION holdfast.join_subscription(subscription integer, worker bigint, lease_ms integer)
    RETURNS TABLE (held holdfast.position, share integer, paused boolean, elsewhere boolean, moved boolean, base_id bigint, partitions smallint,
        topics text[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    given holdfast.subscription;
    share integer;
    elsewhere boolean;
    moved boolean := false;
BEGIN
    SELECT * INTO given FROM holdfast.subscription s WHERE s.id = subscription;
    IF NOT FOUND THEN
        RETURN;                 -- it was deleted
    END IF;
    elsewhere := given.cluster <> holdfast.cluster() AND NOT holdfast.positions_are_valid(subscription);
    IF given.cluster <> holdfast.cluster() AND NOT elsewhere THEN
        UPDATE holdfast.subscription s SET cluster = holdfast.cluster() WHERE s.id = subscription AND s.cluster = given.cluster;
        moved := FOUND;         -- the first member reports it
    END IF;
    -- Of a clock that was set back since: when this worker dies, they would outlive it.
    DELETE FROM holdfast.member m WHERE m.until > now() + lease_ms * interval '1 millisecond' AND m.subscription_id = subscription AND m.worker_id = worker;
    INSERT INTO holdfast.member (until, worker_id, subscription_id)
    VALUES (now() + lease_ms * interval '1 millisecond', worker, subscription);
    SELECT ceil(given.partitions::numeric / greatest(count(DISTINCT m.worker_id), 1)) INTO share
    FROM holdfast.member m WHERE m.until > now() AND m.subscription_id = subscription;
    IF NOT elsewhere AND NOT given.paused THEN
        WITH latest AS MATERIALIZED (
            SELECT p.* FROM generate_series(0, given.partitions - 1) AS k, holdfast.position_of(subscription, k) AS p)
        INSERT INTO holdfast.position (subscription_id, partition, seq, lock_token, locked_by, seen, seen_id, seen_top, seen_xid,
            next, next_id, next_top, next_xid, phase, last_id)
        SELECT f.subscription_id, f.partition, f.seq + 1, nextval('holdfast.token'), worker, f.seen, f.seen_id, f.seen_top, f.seen_xid,
            f.next, f.next_id, f.next_top, f.next_xid, f.phase, f.last_id
        FROM (SELECT * FROM latest l
              WHERE l.locked_by IS NULL OR NOT EXISTS (SELECT FROM holdfast.member m
                  WHERE m.until > now() AND m.subscription_id = subscription AND m.worker_id = l.locked_by)
              ORDER BY l.at, l.partition LIMIT greatest(share - (SELECT count(*) FROM latest l WHERE l.locked_by = worker), 0)) AS f
        ON CONFLICT DO NOTHING;                 -- another member was first
    END IF;
    RETURN QUERY
    WITH read AS (SELECT s.* FROM holdfast.subscription s WHERE s.id = subscription)
    SELECT p, share, s.paused, elsewhere, moved, s.base_id, s.partitions, s.topics
    FROM read AS s, generate_series(0, s.partitions - 1) AS k, holdfast.position_of(subscription, k) AS p WHERE p.locked_by = worker
    UNION ALL SELECT NULL, share, s.paused, elsewhere, moved, s.base_id, s.partitions, s.topics FROM read AS s;
END $$;

-- Called by subscription.sql leave_subscription.
CREATE FUNCTION holdfast.leave_subscription(subscription integer, worker bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM holdfast.member m WHERE m.until > now() AND m.subscription_id = subscription AND m.worker_id = worker;
END $$;

-- Delivers again the events published since a time, or after an id, and then continues. A member that holds a partition loses it.
-- Called by subscription.sql replay_subscription.
CREATE FUNCTION holdfast.replay_subscription(subscription integer, since timestamptz, after bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    begin_at bigint := coalesce(after, (SELECT e.id - 1 FROM holdfast.event e WHERE e.published_at >= since ORDER BY e.id LIMIT 1));
    fault text := CASE WHEN subscription IS NULL THEN 'subscription: an id expected, got null' ELSE holdfast.time_fault('since', since) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault, 'HF005');
    END IF;
    IF begin_at IS NULL THEN
        RETURN NULL;            -- nothing was published since
    END IF;
    -- A half-read difference is read again from its start. An earlier replay that has not reached this point continues from its own.
    INSERT INTO holdfast.position (subscription_id, partition, seq, seen, seen_id, seen_top, seen_xid, phase, last_id)
    SELECT p.subscription_id, p.partition, p.seq + 1, p.seen, p.seen_id, p.seen_top, p.seen_xid, 'again',
        CASE WHEN p.phase = 'again' THEN least(p.last_id, begin_at) ELSE begin_at END
    FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k, holdfast.position_of(s.id, k) AS p WHERE s.id = subscription;
    RETURN begin_at;
END $$;

-- Changes the number of partitions. All partitions continue from where the last of them is: events that the others have delivered since
-- come again. A snapshot taken later never sees less, so there is a last one. False: it makes jobs, and has only one partition.
-- Called by subscription.sql repartition_subscription.
CREATE FUNCTION holdfast.repartition_subscription(subscription integer, parts integer) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    given holdfast.subscription;
    hindmost holdfast.position;
    again bigint;
    fault text := CASE WHEN subscription IS NULL THEN 'subscription: an id expected, got null'
        WHEN parts IS NULL OR parts NOT BETWEEN 1 AND 64 THEN format('parts: 1 to 64 expected, got %s', coalesce(parts::text, 'null')) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault, 'HF005');
    END IF;
    SELECT * INTO given FROM holdfast.subscription s WHERE s.id = subscription FOR UPDATE;
    IF given.makes_jobs THEN
        RETURN false;
    END IF;
    SELECT p.* INTO hindmost FROM generate_series(0, given.partitions - 1) AS k, holdfast.position_of(subscription, k) AS p
    ORDER BY p.seen_id, pg_snapshot_xmax(p.seen), pg_snapshot_xmin(p.seen), (SELECT count(*) FROM pg_snapshot_xip(p.seen)) DESC LIMIT 1;
    SELECT min(p.last_id) INTO again FROM generate_series(0, given.partitions - 1) AS k, holdfast.position_of(subscription, k) AS p
    WHERE p.phase = 'again';
    -- Removed partitions get a row too: a worker that holds one loses it.
    INSERT INTO holdfast.position (subscription_id, partition, seq, seen, seen_id, seen_top, seen_xid, phase, last_id)
    SELECT subscription, k, coalesce((SELECT p.seq FROM holdfast.position_of(subscription, k) AS p), 0) + 1, hindmost.seen, hindmost.seen_id,
        hindmost.seen_top, hindmost.seen_xid, CASE WHEN again IS NOT NULL THEN 'again' END, again
    FROM generate_series(0, greatest(given.partitions, parts) - 1) AS k;
    UPDATE holdfast.parked d SET partition = holdfast.shard_of(d.event_id, d.key) % parts WHERE d.subscription_id = subscription;
    UPDATE holdfast.subscription s SET partitions = parts WHERE s.id = subscription;
    RETURN true;
END $$;

-- After a logical restore into another server, transaction ids differ. Events that are certainly delivered are skipped; those that may be
-- unread are delivered again: events that the old snapshot does not see, and those published from ten minutes before it was last stored,
-- which includes all that this server has published since. No one may publish meanwhile.
-- Called by subscription.sql rebase_subscription.
CREATE FUNCTION holdfast.rebase_subscription(subscription integer) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET lock_timeout = '5s' AS $$
DECLARE
    unread bigint;
    here holdfast.position;
BEGIN
    IF subscription IS NULL THEN
        PERFORM holdfast.refuse('subscription: an id expected, got null', 'HF005');
    END IF;
    LOCK TABLE holdfast.event IN SHARE MODE;
    here := holdfast.position_here();
    SELECT min(least(
        CASE WHEN p.phase = 'again' THEN p.last_id + 1 END,
        (SELECT e.id FROM holdfast.event e WHERE e.xid >= pg_snapshot_xmin(p.seen) AND NOT pg_visible_in_snapshot(e.xid, p.seen) ORDER BY e.id LIMIT 1),
        (SELECT e.id FROM holdfast.event e WHERE e.published_at >= p.at - interval '10 minutes' ORDER BY e.id LIMIT 1)))
    INTO unread FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k, holdfast.position_of(s.id, k) AS p WHERE s.id = subscription;
    UPDATE holdfast.subscription s SET cluster = holdfast.cluster(), base_id = holdfast.last_event_id() WHERE s.id = subscription;
    PERFORM holdfast.insert_positions(subscription, here, unread - 1);
    RETURN unread;
END $$;

-- How far behind each partition is: events of any topic, at most, and the age of the oldest it has not passed.
-- Called by subscription.sql list_subscriptions.
CREATE FUNCTION holdfast.lag() RETURNS TABLE (name text, target text, partition smallint, paused boolean, elsewhere boolean, worker_id bigint,
        events bigint, seconds double precision, parked bigint, at timestamptz, phase text)
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT s.name, s.target, p.partition, s.paused,
        CASE WHEN s.cluster <> holdfast.cluster() THEN NOT holdfast.positions_are_valid(s.id) ELSE false END,
        (SELECT m.worker_id FROM holdfast.member m WHERE m.subscription_id = s.id AND m.worker_id = p.locked_by AND m.until > now() LIMIT 1),
        greatest(holdfast.last_event_id() - passed, 0),
        coalesce(greatest(extract(epoch FROM clock_timestamp() - (SELECT e.published_at FROM holdfast.event e WHERE e.id > passed ORDER BY e.id LIMIT 1)), 0), 0),
        (SELECT count(*) FROM holdfast.parked d WHERE d.subscription_id = s.id AND d.partition = p.partition), p.at, p.phase
    FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k, holdfast.position_of(s.id, k) AS p,
        LATERAL (SELECT CASE WHEN p.phase IN ('again', 'new') THEN p.last_id ELSE p.seen_id END AS passed) AS x
    ORDER BY s.name, p.partition $$;
