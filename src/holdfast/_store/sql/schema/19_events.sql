-- The log of events: appended to in the caller's own transaction, never updated, dropped day by day.

CREATE SEQUENCE holdfast.event_id_seq;

-- Written once and read a few times, so it needs no free space in its pages. The order of ids is not the order of commits: a reader decides
-- by xid which transactions a snapshot sees.
CREATE TABLE holdfast.event (
    id           bigint NOT NULL,
    published_at timestamptz NOT NULL,
    xid          xid8 NOT NULL,                 -- the writing transaction; in a savepoint, the top-level one
    shard        smallint NOT NULL,             -- 0..63, by key, or by id where there is none
    version      smallint NOT NULL DEFAULT 1 CHECK (version > 0),
    topic        text COLLATE "C" NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 200),
    key          text COLLATE "C" CHECK (octet_length(key) BETWEEN 1 AND 500),
    payload      json NOT NULL,
    headers      json CHECK (json_typeof(headers) = 'object'),
    trace        text CHECK (octet_length(trace) <= 200),
    late         boolean DEFAULT nullif(current_setting('holdfast.late', true), '')::boolean
) PARTITION BY LIST (late);
CREATE TABLE holdfast.event_days PARTITION OF holdfast.event FOR VALUES IN (NULL) PARTITION BY RANGE (published_at);
CREATE TABLE holdfast.event_late PARTITION OF holdfast.event FOR VALUES IN (true);
CREATE INDEX event_id ON holdfast.event (id);
CREATE INDEX event_xid ON holdfast.event (xid);

-- Readers that sleep and can be woken: valid as long as the records of sleepers, and separate from them, so that an idle reader adds no
-- cost to an enqueue and an idle worker none to a publish.
CREATE UNLOGGED TABLE holdfast.reader (
    until     timestamptz NOT NULL,
    worker_id bigint NOT NULL,
    topics    text[] NOT NULL
) WITH (vacuum_truncate = off);
CREATE INDEX reader_until ON holdfast.reader (until);

-- Wakes all readers of these topics. Call it in a statement after the insert, like wake_sleepers.
-- Called by publish_events, publish.
CREATE FUNCTION holdfast.wake_readers(given text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();     -- not now(), as in wake_sleepers
BEGIN
    IF current_setting('holdfast.notify', true) = 'off' THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM pg_notify('holdfast', 'holdfast.event');
    ELSE
        PERFORM pg_notify('holdfast_' || worker_id, 'holdfast.event')
        FROM (SELECT DISTINCT worker_id FROM holdfast.reader WHERE until > clock AND (topics && given OR topics = '{}')) AS r;
    END IF;
END $$;

-- Null: the event may be published.
-- Called by publish_events, publish.
CREATE FUNCTION holdfast.event_fault(topic text, payload json, key text, headers json, version bigint, trace text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE
        WHEN topic IS NULL THEN 'topic: 1 to 200 bytes of text expected, got null'
        WHEN octet_length(topic) NOT BETWEEN 1 AND 200 THEN holdfast.text_fault('topic', topic, 200)
        WHEN octet_length(key) NOT BETWEEN 1 AND 500 THEN holdfast.text_fault('key', key, 500)
        WHEN payload IS NULL THEN 'payload: JSON expected, got null'
        WHEN pg_column_size(payload) > 16777220 THEN format('payload: at most 16 MiB expected, got %s bytes', pg_column_size(payload) - 4)
        WHEN version NOT BETWEEN 1 AND 32767 THEN format('version: 1 to 32767 expected, got %s', version)
        WHEN octet_length(trace) > 200 THEN format('trace: at most 200 bytes of text expected, got %s bytes', octet_length(trace))
        WHEN json_typeof(headers) <> 'object' OR pg_column_size(headers) > 65536 OR strpos(headers::text, '\u') > 0
            OR jsonb_path_exists(headers::jsonb, '$.* ? (@.type() <> "string")') THEN holdfast.header_fault(headers)
    END;

-- `events` is the text of a JSON array of objects: topic, payload, key, headers, version, trace. Answers in the order given.
-- SECURITY DEFINER: a producer may call these functions and touch no table.
-- Called by event.sql publish_events.
CREATE FUNCTION holdfast.publish_events(events text) RETURNS SETOF bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    writer xid8 := pg_current_xact_id();        -- before any id is drawn: readers rely on that order
    clock timestamptz := clock_timestamp();
    made bigint;
BEGIN
    IF left(ltrim(left(events, 100), E' \t\r\n'), 1) IS DISTINCT FROM '[' THEN
        PERFORM holdfast.refuse('events: the text of a JSON array expected, got '
            || CASE WHEN events IS NULL THEN 'null' ELSE 'something else' END, 'HF005');
    END IF;
    PERFORM holdfast.need_partitions();
    RETURN QUERY
    INSERT INTO holdfast.event AS e (id, published_at, xid, shard, version, topic, key, payload, headers, trace)
    SELECT CASE WHEN g.fault IS NULL THEN g.id ELSE holdfast.refuse(g.fault, 'HF005')::bigint END, clock_timestamp(), writer,
        holdfast.shard_of(g.id, g.key), coalesce(g.version, 1),
        g.topic, g.key, g.payload, g.headers, g.trace
    FROM (SELECT nextval('holdfast.event_id_seq') AS id, j.*,
              holdfast.event_fault(j.topic, j.payload, j.key, j.headers, j.version, j.trace) AS fault
          FROM json_to_recordset(events::json) AS j (topic text, payload json, key text, headers json, version bigint, trace text)) AS g
    RETURNING e.id;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made > 1000000 THEN
        PERFORM holdfast.refuse(format('events: at most 1000000 expected, got %s', made), 'HF005');
    END IF;
    -- A statement of its own, after the insert. Under load no reader sleeps, and this one look-up is the only cost.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.reader WHERE until > clock) THEN
        PERFORM holdfast.wake_readers(array_agg(DISTINCT j.topic)) FROM json_to_recordset(events::json) AS j (topic text);
    END IF;
END $$;

-- One event: called by the library for a single event, and by psql, triggers and other languages:
--   SELECT holdfast.publish('invoice.paid', '{"id": 7}', key => '7')
-- Called by applications, event.sql publish_event.
CREATE FUNCTION holdfast.publish(
    topic text, payload json, key text DEFAULT NULL, headers json DEFAULT NULL, version integer DEFAULT 1, trace text DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    writer xid8 := pg_current_xact_id();        -- before the id is drawn: readers rely on that order
    clock timestamptz := clock_timestamp();
    fault text;
    made bigint;
BEGIN
    -- One check for most events, as in enqueue.
    IF (num_nulls(headers, trace) = 2 AND octet_length(topic) BETWEEN 1 AND 200 AND coalesce(octet_length(key), 1) BETWEEN 1 AND 500
        AND pg_column_size(payload) <= 16777220 AND version BETWEEN 1 AND 32767) IS NOT TRUE
    THEN
        fault := holdfast.event_fault(topic, payload, key, headers, version, trace);
        IF fault IS NOT NULL THEN
            PERFORM holdfast.refuse(fault, 'HF005');
        END IF;
    END IF;
    PERFORM holdfast.need_partitions();
    made := nextval('holdfast.event_id_seq');
    INSERT INTO holdfast.event (id, published_at, xid, shard, version, topic, key, payload, headers, trace)
    VALUES (made, clock_timestamp(), writer, holdfast.shard_of(made, publish.key), coalesce(publish.version, 1), publish.topic, publish.key,
        publish.payload, publish.headers, publish.trace);
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.reader WHERE until > clock) THEN
        PERFORM holdfast.wake_readers(ARRAY[topic]);
    END IF;
    RETURN made;
END $$;
