-- Workers, and the queues that operators control while they run.

-- One row per worker process, and how it ended.
CREATE TABLE holdfast.worker (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    reaped_at    timestamptz,
    stopped_at   timestamptz,
    alone_until  timestamptz,                   -- it starts nothing but suspects, one at a time; meanwhile no other busy worker does
    identity     uuid NOT NULL DEFAULT gen_random_uuid(),   -- with which a process recognizes its row: after a restore an id may be issued again
    pid          integer,
    name         text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
    host         text,
    version      text,                          -- of Holdfast
    app_version  text CHECK (octet_length(app_version) BETWEEN 1 AND 200),     -- of the application; null: it did not say
    queues       text[] NOT NULL DEFAULT '{}',
    kinds        text[] NOT NULL DEFAULT '{}',
    counters     json,
    schedules    text[] NOT NULL DEFAULT '{}',  -- that its application declares
    versions     json,                          -- of payloads that it takes, by kind, where that is more than 1
    limits       json,                          -- how long jobs may run, by kind: {"max_runtime": ms}, or {"lease": ms} for three of those
    settings     json,                          -- the worker's settings, for operators: {"poll_ms": ..., "batch_size": ...}
    report       json,                          -- with each heartbeat: what runs long there, which errors repeat, which sinks do not answer
    stop_reason  text                           -- `lost`, without a time of its stop: it sends no heartbeats
) WITH (fillfactor = 50);
CREATE INDEX worker_live ON holdfast.worker (heartbeat_at) WHERE stopped_at IS NULL;

-- Control, changeable while workers run. A queue without a row runs by its worker's own settings.
CREATE TABLE holdfast.queue (
    name        text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 100),
    paused      boolean NOT NULL DEFAULT false,
    paused_at   timestamptz,                                       -- with by whom, and why
    paused_by   text,
    paused_reason  text,
    concurrency integer CHECK (concurrency BETWEEN 0 AND 100000),
    lease_ms    integer CHECK (lease_ms BETWEEN 1000 AND 86400000),
    rate        double precision CHECK (rate > 0),                 -- starts per second and worker
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Tokens go on from the clock, in microseconds. A restore from a backup takes the sequence back, and without this a token would be issued
-- again: to fence another claim, and below those that a handler has passed to other systems. Each worker calls it before its first claim
-- and after it has lost its connection. Never below a token that was issued: to a tenth of a second
-- ahead, for the tokens that others take meanwhile, and one caller at a time.
-- Called by register_worker, release_strays.
CREATE FUNCTION holdfast.raise_tokens() RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    clock bigint := 1000000 * date_part('epoch', clock_timestamp());
BEGIN
    IF pg_try_advisory_xact_lock(hashtext('holdfast.raise_tokens'), 0) THEN
        PERFORM setval('holdfast.token', clock + 100000) FROM holdfast.token t WHERE t.last_value < clock;
    END IF;
END $$;

-- A worker's id is never issued twice, whatever crashes: its row is on disk before the first claim names it.
-- Called by worker.sql register_worker.
CREATE FUNCTION holdfast.register_worker(name text, host text, pid integer, version text, queues text[], kinds text[],
    identity uuid DEFAULT NULL, versions json DEFAULT NULL, limits json DEFAULT NULL, settings json DEFAULT NULL, app_version text DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    INSERT INTO holdfast.worker (name, host, pid, version, queues, kinds, identity, versions, limits, settings, app_version)
    VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, gen_random_uuid()), $8, $9, $10, $11) RETURNING id INTO made;
    PERFORM holdfast.raise_tokens();
    RETURN made;
END $$;

-- Of all workers that have other jobs, one at a time stops for suspects, so that the others continue. True: it is this one, for that many
-- milliseconds. Zero ends its turn.
-- Called by worker.sql isolate_worker.
CREATE FUNCTION holdfast.isolate_worker(worker bigint, ms integer) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
BEGIN
    IF ms > 0 AND (NOT pg_try_advisory_xact_lock(hashtext('holdfast.isolate_worker'), 0) OR EXISTS (
        SELECT FROM holdfast.worker w
        WHERE w.stopped_at IS NULL AND w.heartbeat_at > now() - interval '1 hour' AND w.alone_until > now() AND w.id <> worker)) THEN
        RETURN false;
    END IF;
    UPDATE holdfast.worker w SET alone_until = CASE WHEN ms > 0 THEN now() + ms * interval '1 millisecond' END
    WHERE w.id = (SELECT o.id FROM holdfast.worker o WHERE o.id = worker FOR NO KEY UPDATE SKIP LOCKED);
    RETURN FOUND;
END $$;

-- Called when a claim had no answer: the database may have been restored meanwhile. Releases, uncounted, the jobs that a worker holds in the database but not in its memory, because the response of a claim was lost. At
-- most 1000 at once. Does nothing if the id belongs to another worker by now: after a restore an id may be issued again.
-- Called by job.sql release_strays.
CREATE FUNCTION holdfast.release_strays(worker bigint, ids bigint[], tokens bigint[], identity uuid)
    RETURNS TABLE (id bigint, token bigint, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM holdfast.raise_tokens();
    RETURN QUERY SELECT s.id, s.token, s.answer FROM holdfast.settle_jobs(ARRAY(
        SELECT ROW (j.id, j.lock_token, j.locked_by, 'released', 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::holdfast.ending
        FROM holdfast.job j LEFT JOIN unnest(ids, tokens) AS g (id, token) ON g.id = j.id AND g.token = j.lock_token
        WHERE j.status = 'processing' AND j.locked_by = worker AND g.id IS NULL
            AND EXISTS (SELECT FROM holdfast.worker w WHERE w.id = worker AND w.identity = coalesce(release_strays.identity, w.identity)) LIMIT 1000)) AS s;
END $$;
