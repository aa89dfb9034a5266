-- The log of events: appended to in the caller's own transaction, never updated, dropped by the day.

CREATE SEQUENCE holdfast.event_id_seq;

-- Written once and read a few times, so it has no fill factor to pay for. A number is not the order of commits: who reads asks
-- which transactions a snapshot sees, by xid.
CREATE TABLE holdfast.event (
    id           bigint NOT NULL,
    published_at timestamptz NOT NULL,
    xid          xid8 NOT NULL,                 -- the writing transaction, a savepoint's being that of the whole
    shard        smallint NOT NULL,             -- 0..63, by key, or by id where there is none
    version      smallint NOT NULL DEFAULT 1 CHECK (version > 0),
    topic        text COLLATE "C" NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 200),
    key          text COLLATE "C" CHECK (octet_length(key) BETWEEN 1 AND 500),
    payload      json NOT NULL,
    headers      json CHECK (json_typeof(headers) = 'object'),
    trace        text CHECK (octet_length(trace) <= 200)
) PARTITION BY RANGE (published_at);
CREATE INDEX event_id ON holdfast.event (id);
CREATE INDEX event_xid ON holdfast.event (xid);

-- Readers that sleep and may be woken: as short-lived as the sleepers, and apart from them, so that an idle reader costs no enqueue
-- a look and an idle worker no publish.
CREATE UNLOGGED TABLE holdfast.reader (
    until     timestamptz NOT NULL,
    worker_id bigint NOT NULL,
    topics    text[] NOT NULL
);
CREATE INDEX reader_until ON holdfast.reader (until);

-- Wakes everybody who reads one of these topics. In a statement after the insert, like wake_sleepers.
CREATE FUNCTION holdfast.wake_readers(given text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM pg_notify('holdfast', 'holdfast.event');
    ELSE
        PERFORM pg_notify('holdfast_' || worker_id, 'holdfast.event')
        FROM (SELECT DISTINCT worker_id FROM holdfast.reader WHERE until > now() AND (topics && given OR topics = '{}')) AS r;
    END IF;
END $$;

-- `events` is the text of a JSON array of objects: topic, payload, key, headers, version, trace. Answers in the order given.
-- SECURITY DEFINER: a producer may call these functions and touch no table.
CREATE FUNCTION holdfast.publish_events(events text) RETURNS SETOF bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    writer xid8 := pg_current_xact_id();        -- before any id is drawn: readers reckon with that order
BEGIN
    PERFORM holdfast.need_partitions();
    RETURN QUERY
    INSERT INTO holdfast.event AS e (id, published_at, xid, shard, version, topic, key, payload, headers, trace)
    SELECT g.id, clock_timestamp(), writer, holdfast.shard_of(g.id, g.key), coalesce(g.version, 1), g.topic, g.key, g.payload, g.headers, g.trace
    FROM (SELECT nextval('holdfast.event_id_seq') AS id, j.* FROM json_to_recordset(events::json)
            AS j (topic text, payload json, key text, headers json, version smallint, trace text)) AS g
    RETURNING e.id;
    -- A statement of its own, after the insert. Under load nobody sleeps, and this one look is all there is.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.reader WHERE until > now()) THEN
        PERFORM holdfast.wake_readers(array_agg(DISTINCT j.topic)) FROM json_to_recordset(events::json) AS j (topic text);
    END IF;
END $$;

-- One event: what the library calls for a single one, and what psql, triggers and other languages may call:
--   SELECT holdfast.publish('invoice.paid', '{"id": 7}', key => '7')
CREATE FUNCTION holdfast.publish(
    topic text, payload json, key text DEFAULT NULL, headers json DEFAULT NULL, version integer DEFAULT 1, trace text DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    writer xid8 := pg_current_xact_id();        -- before the id is drawn: readers reckon with that order
    made bigint;
BEGIN
    PERFORM holdfast.need_partitions();
    made := nextval('holdfast.event_id_seq');
    INSERT INTO holdfast.event (id, published_at, xid, shard, version, topic, key, payload, headers, trace)
    VALUES (made, clock_timestamp(), writer, holdfast.shard_of(made, publish.key), publish.version, publish.topic, publish.key,
        publish.payload, publish.headers, publish.trace);
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.reader WHERE until > now()) THEN
        PERFORM holdfast.wake_readers(ARRAY[topic]);
    END IF;
    RETURN made;
END $$;

-- Messages that a consumer has dealt with, each in the transaction of what it did. Dropped by the day: a message that comes again later
-- than its day is kept is taken for a new one.
CREATE TABLE holdfast.inbox (
    received_at timestamptz NOT NULL,
    consumer    text COLLATE "C" NOT NULL CHECK (octet_length(consumer) BETWEEN 1 AND 200),
    message_id  text COLLATE "C" NOT NULL CHECK (octet_length(message_id) BETWEEN 1 AND 500)
) PARTITION BY RANGE (received_at);
CREATE INDEX inbox_message ON holdfast.inbox (message_id, consumer);

-- True: the message is new to this consumer, and from the caller's commit on it is not. Who comes second waits for who came first:
-- a lock decides and not an index, which could not reach over the days.
CREATE FUNCTION holdfast.receive(consumer text, message_id text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a message is received in a READ COMMITTED transaction, not in a % one',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'HF003';
    END IF;
    PERFORM holdfast.need_partitions();
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.inbox'), hashtext(consumer || chr(10) || message_id));
    IF EXISTS (SELECT FROM holdfast.inbox i WHERE i.message_id = receive.message_id AND i.consumer = receive.consumer) THEN
        RETURN false;
    END IF;
    INSERT INTO holdfast.inbox (received_at, consumer, message_id) VALUES (clock_timestamp(), receive.consumer, receive.message_id);
    RETURN true;
END $$;

-- What the other side answered, for sinks that keep it.
CREATE TABLE holdfast.delivery (
    answered_at     timestamptz NOT NULL,
    event_id        bigint NOT NULL,
    subscription_id integer NOT NULL,
    status          integer,
    attempt         integer NOT NULL,
    answer          text
) PARTITION BY RANGE (answered_at);
CREATE INDEX delivery_event ON holdfast.delivery (event_id);

ALTER TABLE holdfast.retention DROP CONSTRAINT retention_family_check;
ALTER TABLE holdfast.retention ADD CONSTRAINT retention_family_check CHECK (family IN
    ('job_history', 'job_failed', 'attempt', 'run', 'tally', 'unique_window', 'event', 'inbox', 'delivery'));
INSERT INTO holdfast.retention (family, keep) VALUES ('event', '7 days'), ('inbox', '14 days'), ('delivery', '30 days');

SELECT holdfast.ensure_partitions();
