-- How many jobs there are: counted by one worker for all, so that no page counts a table.

-- The number of live jobs, counted when the last count is old: one row per count, so that a reader reads one row. Unlogged: after a crash
-- the jobs are counted again.
CREATE UNLOGGED TABLE holdfast.census (
    at      timestamptz PRIMARY KEY,
    seconds double precision NOT NULL,          -- how long it took
    sampled double precision NOT NULL,          -- the part of the table that was looked at: 1 is all of it
    lines   json NOT NULL
);

-- Earlier counts, for charts: one row a minute, later every five, every quarter and every hour, and none after eight days, so some 450 rows.
-- `waiting`: queue, kind, due, processing, and how many seconds the oldest due job had waited, of the 500 kinds with the most jobs. `workers`: id,
-- name, and what it had completed, failed and retried since its start, of at most 200 that were alive.
CREATE TABLE holdfast.past_census (
    minute  timestamptz PRIMARY KEY,
    waiting json NOT NULL,
    workers json NOT NULL
);

-- The last job id at each minute: it turns a time into a place in every index by id.
CREATE TABLE holdfast.landmark (
    at      timestamptz PRIMARY KEY,
    last_id bigint NOT NULL
);
CREATE INDEX landmark_last_id ON holdfast.landmark (last_id);

-- Leaves a landmark that shows that the clock was set back, from where a heartbeat found its last one: without maintenance in between there
-- would be none. SECURITY DEFINER: a worker may not write those that show that a clock is right.
-- Called by shorten_leases, worker.sql beat_worker.
CREATE FUNCTION holdfast.note_set_back(heartbeat_at timestamptz) RETURNS void
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO holdfast.landmark (at, last_id)
    SELECT date_trunc('minute', heartbeat_at), s.last_value FROM holdfast.job_id_seq s WHERE heartbeat_at > now() + interval '2 minutes'
    ON CONFLICT DO NOTHING $$;

-- After the clock was set back, which the landmarks ahead of it show: jobs that were enqueued to run at once are due now, and so are those that
-- were let go meanwhile because others ended, and retries, in as much time as they still had to wait. A due time that was asked for cannot be
-- distinguished from a date, and stays. Then the landmarks are deleted. At most `most` rows of each: begin with since 0, and again with `until`
-- while it is not null.
-- Called by maintenance.sql set_back_jobs.
CREATE FUNCTION holdfast.set_back_jobs(since bigint, most integer, OUT until bigint, OUT rows integer)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    ahead timestamptz := now() + interval '1 minute';
    began timestamptz := greatest(ahead, (SELECT min(l.at) - interval '5 minutes' FROM holdfast.landmark l WHERE l.at > ahead));
    -- No job up to this one was made by that clock.
    older bigint := (SELECT max(l.last_id) FROM holdfast.landmark l
        WHERE l.at < now() - interval '5 minutes' AND l.last_id <= (SELECT min(f.last_id) FROM holdfast.landmark f WHERE f.at > ahead));
    lane holdfast.job;
    moved integer;
    missed boolean := false;        -- another transaction has one locked: the next pass finds it
BEGIN
    rows := 0;
    IF NOT EXISTS (SELECT FROM holdfast.landmark l WHERE l.at > ahead) THEN
        RETURN;
    END IF;
    WITH made AS MATERIALIZED (
        SELECT j.id FROM holdfast.job j
        WHERE j.created_at > ahead AND j.status <> 'processing' AND j.id > greatest(since, older)
        ORDER BY j.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED),
    set_back AS (
        UPDATE holdfast.job j SET available_at = CASE WHEN j.available_at > j.created_at THEN j.available_at ELSE now() END,
            -- A part of the idempotency key, which a handler may have used.
            created_at = CASE WHEN j.attempt = 0 THEN now() ELSE j.created_at END
        WHERE j.id = ANY (ARRAY(SELECT m.id FROM made m)) RETURNING j.id)
    SELECT max(s.id), count(*) INTO until, moved FROM set_back s;
    rows := rows + moved;
    until := CASE WHEN moved = most THEN until END;
    UPDATE holdfast.job j SET available_at = greatest(now(), j.available_at - (a.at - now()))
    FROM (SELECT o.id, max(f.ended_at) AS at FROM holdfast.attempt f
            JOIN holdfast.job o ON o.id = f.job_id AND o.status = 'pending' AND o.available_at >= f.ended_at
          WHERE f.ended_at > ahead AND f.outcome IN ('retry', 'released', 'lost') GROUP BY o.id LIMIT most) AS a
    WHERE j.id = a.id AND j.status = 'pending' AND j.available_at >= a.at;
    GET DIAGNOSTICS moved = ROW_COUNT;
    rows := rows + moved;
    -- Promoted jobs that wait for a token: see limit_rooms.
    UPDATE holdfast.job j SET available_at = now(), later = NULL WHERE j.id = ANY (ARRAY(
        SELECT p.id FROM holdfast.job p
        WHERE p.later AND p.status = 'pending' AND p.limit_key IS NOT NULL AND p.available_at > ahead LIMIT most FOR NO KEY UPDATE SKIP LOCKED));
    GET DIAGNOSTICS moved = ROW_COUNT;
    rows := rows + moved;
    -- Each lane of what is due ends with what became due by that clock.
    lane.queue := ''; lane.kind := ''; lane.priority := 0;
    LOOP
        SELECT j.queue, j.kind, j.priority INTO lane.queue, lane.kind, lane.priority FROM holdfast.job j
        WHERE j.status = 'pending' AND j.later IS NULL AND (j.queue, j.kind, j.priority) > (lane.queue, lane.kind, lane.priority)
        ORDER BY j.queue, j.kind, j.priority LIMIT 1;
        EXIT WHEN NOT FOUND OR rows >= most;
        UPDATE holdfast.job j SET available_at = now() WHERE j.id = ANY (ARRAY(
            SELECT o.id FROM holdfast.job o
            WHERE o.status = 'pending' AND o.later IS NULL AND o.queue = lane.queue AND o.kind = lane.kind AND o.priority = lane.priority
                AND o.available_at >= began
            LIMIT most FOR NO KEY UPDATE SKIP LOCKED));
        GET DIAGNOSTICS moved = ROW_COUNT;
        rows := rows + moved;
        missed := missed OR EXISTS (
            SELECT FROM holdfast.job o
            WHERE o.status = 'pending' AND o.later IS NULL AND o.queue = lane.queue AND o.kind = lane.kind AND o.priority = lane.priority
                AND o.available_at >= began);
    END LOOP;
    UPDATE holdfast.parked p SET released_at = now() WHERE (p.subscription_id, p.event_id) IN (
        SELECT k.subscription_id, k.event_id FROM holdfast.parked k WHERE k.released_at > ahead LIMIT most);
    GET DIAGNOSTICS moved = ROW_COUNT;
    rows := rows + moved;
    missed := missed OR EXISTS (
        SELECT FROM holdfast.job j WHERE j.created_at > ahead AND j.attempt = 0 AND j.status <> 'processing' AND j.id > coalesce(older, 0));
    IF rows < most AND NOT missed THEN
        DELETE FROM holdfast.landmark WHERE at = ANY (ARRAY(SELECT l.at FROM holdfast.landmark l WHERE l.at > ahead LIMIT most));
    END IF;
END $$;

-- The number of pages of 8 kB that are counted; of a larger table, a sample of as many. A request counts only a small table.
-- Called by take_census.
CREATE FUNCTION holdfast.census_pages(whole boolean) RETURNS bigint
    LANGUAGE sql IMMUTABLE RETURN CASE WHEN whole THEN 1000 ELSE 50000 END;

-- Counts the live jobs, unless that was done within `every` or within a hundred times as long as it took: it takes at most a hundredth of
-- the time, however much there is to count. The pause is at most five minutes: a count that waited for a lock took long but cost nothing.
-- Of a table with more than `census_pages`, only a sample is counted, or, with `whole`, nothing: a request may count a small table itself,
-- never a large one. That is cheap, so the pause is ten times as long as it took, and two seconds at most. False: nothing was counted.
-- SECURITY DEFINER: a viewer may start a count, but cannot choose how exact it is, and a transaction that counts and stays open delays the
-- others by at most a minute: then another one counts too.
-- Called by inspect.sql take_census.
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
                min(j.available_at) FILTER (WHERE j.status = 'pending' AND j.available_at <= now()) AS oldest_due_at,
                count(*) FILTER (WHERE j.steps AND (j.status = 'blocked' OR j.available_at > now())) AS stories,
                min(j.created_at) FILTER (WHERE j.steps AND (j.status = 'blocked' OR j.available_at > now())) AS oldest_story_at
            FROM holdfast.job j WHERE j.status IN ('pending', 'blocked') GROUP BY j.queue, j.kind LIMIT 5000) AS l;
    ELSE
        SELECT json_agg(row_to_json(l)) INTO counted FROM (
            SELECT j.queue, j.kind, round(count(*) FILTER (WHERE j.status = 'pending') / part) AS pending,
                round(count(*) FILTER (WHERE j.status = 'pending' AND j.available_at <= now()) / part) AS due,
                round(count(*) FILTER (WHERE j.status = 'blocked') / part) AS blocked,
                min(j.available_at) FILTER (WHERE j.status = 'pending' AND j.available_at <= now()) AS oldest_due_at,
                round(count(*) FILTER (WHERE j.steps AND (j.status = 'blocked' OR j.available_at > now())) / part) AS stories,
                min(j.created_at) FILTER (WHERE j.steps AND (j.status = 'blocked' OR j.available_at > now())) AS oldest_story_at
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
