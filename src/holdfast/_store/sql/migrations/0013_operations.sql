-- For the dashboard: counts, access tokens, sessions, and the audit log.

-- The number of live jobs, counted when the last count is old: one row per count, so that a reader reads one row. Unlogged: after a crash
-- the jobs are counted again.
CREATE UNLOGGED TABLE holdfast.census (
    at      timestamptz PRIMARY KEY,
    seconds double precision NOT NULL,          -- how long it took
    sampled double precision NOT NULL,          -- the part of the table that was looked at: 1 is all of it
    lines   json NOT NULL
);

-- The last job id at each minute: it turns a time into a place in every index by id.
CREATE TABLE holdfast.landmark (
    at      timestamptz PRIMARY KEY,
    last_id bigint NOT NULL
);
CREATE INDEX landmark_last_id ON holdfast.landmark (last_id);

-- The latest runs of all runners together. Each runner that did something writes one row a minute, not one per job.
CREATE INDEX run_started ON holdfast.run (started_at);

-- The number of pages of 8 kB that are counted; of a larger table, a sample of as many. A request counts only a small table.
CREATE FUNCTION holdfast.census_pages(whole boolean) RETURNS bigint
    LANGUAGE sql IMMUTABLE RETURN CASE WHEN whole THEN 1000 ELSE 50000 END;

-- Counts the live jobs, unless that was done within `every` or within a hundred times as long as it took: it takes at most a hundredth of
-- the time, however much there is to count. The pause is at most five minutes: a count that waited for a lock took long but cost nothing.
-- Of a table with more than `census_pages`, only a sample is counted, or, with `whole`, nothing: a request may count a small table itself,
-- never a large one. That is cheap, so the pause is ten times as long as it took, and two seconds at most. False: nothing was counted.
-- SECURITY DEFINER: a viewer may start a count, but cannot choose how exact it is, and a transaction that counts and stays open delays the
-- others by at most a minute: then another one counts too.
CREATE FUNCTION holdfast.take_census(every interval, whole boolean) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    began timestamptz := clock_timestamp();
    pages bigint := pg_relation_size('holdfast.job') / current_setting('block_size')::bigint;
    most_pages bigint := holdfast.census_pages(whole);
    rest double precision;
    alone boolean;
    last holdfast.census;
    part double precision;
    counted json;
    processing json;
BEGIN
    SELECT * INTO last FROM holdfast.census c WHERE c.at <= began ORDER BY c.at DESC LIMIT 1;
    rest := CASE WHEN whole THEN least(10 * last.seconds, 2) ELSE least(100 * last.seconds, 300) END;
    IF last.at > began - greatest(least(every, interval '5 minutes'), rest * interval '1 second')
        OR whole AND pages > most_pages
    THEN
        RETURN false;
    END IF;
    alone := pg_try_advisory_xact_lock(hashtext('holdfast.census'), 0);
    IF NOT alone AND last.at > began - interval '1 minute' THEN
        RETURN false;
    END IF;
    part := least(1, most_pages::double precision / greatest(pages, 1));
    -- Few jobs are processing, and they have an index: they are always counted exactly.
    SELECT json_agg(row_to_json(l)) INTO processing FROM (
        SELECT j.queue, j.kind, count(*) AS processing, count(*) FILTER (WHERE j.locked_until < now()) AS stuck
        FROM holdfast.job j WHERE j.status = 'processing' GROUP BY j.queue, j.kind LIMIT 5000) AS l;
    IF part = 1 THEN
        SELECT json_agg(row_to_json(l)) INTO counted FROM (
            SELECT j.queue, j.kind, count(*) FILTER (WHERE j.status = 'pending') AS pending,
                count(*) FILTER (WHERE j.status = 'pending' AND j.available_at <= now()) AS due,
                count(*) FILTER (WHERE j.status = 'blocked') AS blocked,
                min(j.available_at) FILTER (WHERE j.status = 'pending' AND j.available_at <= now()) AS oldest_due_at
            FROM holdfast.job j WHERE j.status IN ('pending', 'blocked') GROUP BY j.queue, j.kind LIMIT 5000) AS l;
    ELSE
        SELECT json_agg(row_to_json(l)) INTO counted FROM (
            SELECT j.queue, j.kind, round(count(*) FILTER (WHERE j.status = 'pending') / part) AS pending,
                round(count(*) FILTER (WHERE j.status = 'pending' AND j.available_at <= now()) / part) AS due,
                round(count(*) FILTER (WHERE j.status = 'blocked') / part) AS blocked,
                min(j.available_at) FILTER (WHERE j.status = 'pending' AND j.available_at <= now()) AS oldest_due_at
            FROM holdfast.job j TABLESAMPLE SYSTEM (100 * part) WHERE j.status IN ('pending', 'blocked') GROUP BY j.queue, j.kind LIMIT 5000) AS l;
    END IF;
    INSERT INTO holdfast.census (at, seconds, sampled, lines) VALUES (began,
        extract(epoch FROM clock_timestamp() - began), part,
        json_build_object('waiting', coalesce(counted, '[]'), 'processing', coalesce(processing, '[]')))
    ON CONFLICT DO NOTHING;
    -- A count from the future was made before the clock was set back.
    DELETE FROM holdfast.census WHERE at = ANY (ARRAY(
        SELECT c.at FROM holdfast.census c WHERE c.at < began - interval '10 minutes' OR c.at > began LIMIT 1000 FOR UPDATE SKIP LOCKED));
    IF alone THEN               -- otherwise it might wait for the landmark of the other count
        INSERT INTO holdfast.landmark (at, last_id)
        SELECT date_trunc('minute', began), s.last_value FROM holdfast.job_id_seq s
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN true;
END $$;

-- Gives a waiting job another time; a time in the past means now. Returns `rescheduled`, the status that it has instead, or `not_found`.
CREATE FUNCTION holdfast.reschedule_job(job_id bigint, due timestamptz) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    target holdfast.job;
    fault text := CASE WHEN job_id IS NULL THEN 'job_id: an id expected, got null' WHEN due IS NULL THEN 'due: a time expected, got null'
        ELSE holdfast.time_fault('due', due) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    SELECT * INTO target FROM holdfast.job j WHERE j.id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF target.status <> 'pending' THEN
        RETURN target.status;
    END IF;
    -- Never earlier than now: claims do not look far back.
    UPDATE holdfast.job SET available_at = greatest(due, clock_timestamp()),
        later = CASE WHEN suspect IS NULL THEN holdfast.is_later(due, NULL, clock_timestamp()) END
    WHERE id = job_id;
    IF due <= clock_timestamp() THEN
        PERFORM holdfast.wake_sleepers(ARRAY[target.queue], ARRAY[target.kind]);
    END IF;
    RETURN 'rescheduled';
END $$;

-- Acts on jobs one by one, in the order of their ids, so that two operators wait for each other in one direction only. Returns for every
-- job the result, or why nothing was done. A job that cannot be changed delays no other.
CREATE FUNCTION holdfast.act_on_jobs(action text, ids bigint[], ended timestamptz[], due timestamptz, again boolean DEFAULT false)
    RETURNS TABLE (id bigint, done boolean, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ended_at timestamptz;
    made bigint;
    patience text := current_setting('lock_timeout');
    fault text := CASE WHEN action IS NULL OR action NOT IN ('retry', 'cancel', 'delete', 'reschedule')
        THEN format('action: retry, cancel, delete or reschedule expected, got %s', coalesce(left(action, 40), 'null'))
        ELSE coalesce(holdfast.ids_fault('ids', ids, 10000), holdfast.time_fault('due', due),
            CASE WHEN cardinality(ended) > cardinality(ids)
                THEN format('ended: at most %s times expected, got %s', cardinality(ids), cardinality(ended)) END) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    FOR id, ended_at IN SELECT g.id, min(g.at) FROM unnest(ids, ended) AS g (id, at) GROUP BY g.id ORDER BY g.id LOOP
        BEGIN
            CASE action
                WHEN 'retry' THEN
                    SELECT r.made, r.answer INTO made, answer FROM holdfast.retry_job(id, ended_at, again) AS r;
                    done := answer = 'retried';
                    answer := CASE answer WHEN 'retried' THEN made::text WHEN 'duplicate' THEN 'duplicate of ' || made
                        WHEN 'already_retried' THEN 'replayed as ' || made ELSE answer END;
                WHEN 'cancel' THEN
                    answer := holdfast.cancel_job(id);
                    done := answer <> 'not_found';
                WHEN 'delete' THEN
                    answer := holdfast.delete_job(id);
                    done := answer = 'deleted';
                WHEN 'reschedule' THEN
                    answer := holdfast.reschedule_job(id, due);
                    done := answer = 'rescheduled';
            END CASE;
        EXCEPTION
            WHEN SQLSTATE 'HF002' THEN
                done := false;
                answer := SQLERRM;
            WHEN lock_not_available OR deadlock_detected THEN
                done := false;
                answer := 'busy';
                -- After one wait for a lock, the other jobs are not waited for.
                PERFORM set_config('lock_timeout', '5', true);
        END;
        RETURN NEXT;
    END LOOP;
    -- The caller's transaction goes on with its own limit.
    PERFORM set_config('lock_timeout', patience, true);
END $$;

-- Access to the HTTP API. Only the digest of a secret is stored, from which the secret cannot be computed.
CREATE TABLE holdfast.access_token (
    key        text COLLATE "C" PRIMARY KEY CHECK (key ~ '^[0-9a-f]{12}$'),
    name       text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
    role       text NOT NULL CHECK (role IN ('viewer', 'operator', 'developer')),
    digest     text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz
);
-- A name belongs to one credential at a time, because the audit log shows the name.
CREATE UNIQUE INDEX access_token_name ON holdfast.access_token (name) WHERE revoked_at IS NULL;

-- Sessions that were signed out before their end. Sessions are signed and not stored, so these are.
CREATE TABLE holdfast.ended_session (
    id    text COLLATE "C" PRIMARY KEY CHECK (octet_length(id) <= 100),
    until timestamptz NOT NULL                  -- then it would have ended anyway
);
CREATE INDEX ended_session_until ON holdfast.ended_session (until);

-- Responses to requests with an Idempotency-Key, kept for a day.
CREATE TABLE holdfast.answered (
    who     text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    request text NOT NULL,                      -- a digest of what was asked
    answer  text,                               -- null: under way, or its end is not known
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (who, key)
);
CREATE INDEX answered_at ON holdfast.answered (at);

-- Actions of operators, each written in its own transaction. Kept for ever: they are few. The role that adds a row cannot change it
-- afterwards.
CREATE TABLE holdfast.audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    who    text NOT NULL CHECK (octet_length(who) BETWEEN 1 AND 400),
    credential text,                            -- which token, session or issuer they came in by
    address text,                               -- of the client
    role   text NOT NULL,
    action text NOT NULL,
    target text CHECK (octet_length(target) <= 1000),
    jobs   integer,                             -- on how many
    ids    bigint[],                            -- on which
    detail json NOT NULL DEFAULT '{}'
);

-- Rows of other tables that `holdfast import-outbox` made jobs or events of. Each is added in the transaction that imports the row, so that
-- the row is imported once, however often an import is killed and repeated. Kept until the owner deletes them: only the owner can tell when
-- the other table is gone.
CREATE TABLE holdfast.imported (
    source text COLLATE "C" NOT NULL,           -- the other table: schema and name, quoted as in SQL
    row_id text COLLATE "C" NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, row_id)
);
