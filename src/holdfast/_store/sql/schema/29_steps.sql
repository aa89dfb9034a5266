-- The steps of stories, which are jobs whose handlers record what they have done, and the messages that were sent to them. A job that records
-- nothing has no row here, and `job.steps` is null. All of it leaves with the job, and stays with its ended row as its journal.

-- The state of a recorded step, unless its function returned.
CREATE TYPE holdfast.step_state AS ENUM ('failed', 'sleep', 'waits', 'received', 'gathers', 'gathered');

CREATE TABLE holdfast.step (
    job_id bigint NOT NULL,
    at     timestamptz NOT NULL,
    due    timestamptz,             -- until when it sleeps or waits; null: as long as it takes
    state  holdfast.step_state,     -- null: a function returned
    beside boolean,                 -- true: others ran beside it, so that another attempt may reach them in another order
    name   text COLLATE "C" NOT NULL,
    key    text COLLATE "C",
    result json
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off,
    toast.vacuum_truncate = off);
-- By whole rows: only with wal_level = logical is more written for it. A unique index would cost every story.
SELECT holdfast.identify_rows('step');
-- Not unique: one worker holds a story at a time, and records each name once.
CREATE INDEX step_job ON holdfast.step (job_id);

-- Kept until the story ends, so that a key is taken once.
CREATE TABLE holdfast.message (
    id      bigint GENERATED ALWAYS AS IDENTITY,
    job_id  bigint NOT NULL,
    sent_at timestamptz NOT NULL,
    taken   boolean,                -- true: the story has received it
    name    text COLLATE "C" NOT NULL,
    key     text COLLATE "C",
    payload json,
    PRIMARY KEY (job_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off,
    toast.vacuum_truncate = off);
CREATE UNIQUE INDEX message_key ON holdfast.message (job_id, name, key) WHERE key IS NOT NULL;

-- A step to record, by the claim that records it.
CREATE TYPE holdfast.new_step AS (
    nth    integer,
    id     bigint,
    token  bigint,
    name   text,                    -- null: the story is marked, and nothing is recorded
    key    text,
    state  holdfast.step_state,
    ms     bigint,                  -- how long it sleeps
    until  timestamptz,             -- until when, in place of ms
    beside boolean,
    result json
);

-- Marks the rows of stories: their expiry is fulfilled, and the attempts of those that are recording something are counted from here on. Skips
-- rows that another transaction has locked; returns the others.
-- Called by save_steps, hold_story, gather_jobs.
CREATE FUNCTION holdfast.mark_stories(stories bigint[], recording bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    free bigint[] := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id = ANY (stories) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
    UPDATE holdfast.job j SET steps = true, expires_at = NULL, attempt = CASE WHEN j.id = ANY (recording) THEN least(j.attempt, 1) ELSE j.attempt END
    WHERE j.id = ANY (free);
    RETURN free;
END $$;

-- Records steps of many stories. `entries` is the text of a JSON array of objects with the fields of new_step. `again`: some of them may have
-- been recorded by a call whose answer was lost. Returns those that were not recorded, with the reason, and all that sleep: `over` or `kept`.
-- It waits for no lock: what it cannot lock is `busy`. FOR SHARE, because a reaper may take a row that is locked FOR KEY SHARE.
-- Called by step.sql save_steps.
CREATE FUNCTION holdfast.save_steps(worker bigint, entries text, again boolean DEFAULT false)
    RETURNS TABLE (nth integer, answer text, due timestamptz)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    given holdfast.new_step[] := ARRAY(SELECT e FROM json_populate_recordset(NULL::holdfast.new_step, entries::json) AS e);
    ids bigint[] := ARRAY(SELECT g.id FROM unnest(given) AS g);
    held bigint[];
    tokens bigint[];
    fresh bigint[];
    marked bigint[];
BEGIN
    WITH mine AS MATERIALIZED (
        SELECT j.id, j.lock_token, j.steps IS NULL OR j.attempt > 1 OR j.expires_at IS NOT NULL AS fresh FROM holdfast.job j
        WHERE j.id = ANY (ids) AND j.locked_by = worker AND j.lock_token IN (SELECT g.token FROM unnest(given) AS g WHERE g.id = j.id)
        ORDER BY j.id FOR SHARE OF j SKIP LOCKED)
    SELECT array_agg(m.id), array_agg(m.lock_token), array_agg(m.id) FILTER (WHERE m.fresh) INTO held, tokens, fresh FROM mine m;
    IF fresh IS NOT NULL THEN
        marked := holdfast.mark_stories(fresh, ARRAY(SELECT g.id FROM unnest(given) AS g WHERE g.name IS NOT NULL AND g.state IS DISTINCT FROM 'failed'));
        IF cardinality(marked) < cardinality(fresh) THEN
            -- Without its mark a story would leave without its steps. To count its attempts anew can wait for the next step.
            SELECT array_agg(h.id), array_agg(h.token) INTO held, tokens FROM unnest(held, tokens) AS h (id, token)
            WHERE h.id IN (SELECT j.id FROM holdfast.job j WHERE j.id = ANY (held) AND j.steps);
        END IF;
    END IF;
    INSERT INTO holdfast.step (job_id, at, due, state, beside, name, key, result)
    SELECT g.id, clock, coalesce(g.until, clock + g.ms * interval '1 millisecond'), g.state, g.beside, g.name, g.key, g.result
    FROM unnest(given) AS g JOIN unnest(held, tokens) AS h (id, token) ON h.id = g.id AND h.token = g.token
    WHERE g.name IS NOT NULL AND NOT (again AND EXISTS (
        SELECT FROM holdfast.step s WHERE s.job_id = g.id AND s.name = g.name AND s.key IS NOT DISTINCT FROM g.key));
    IF EXISTS (SELECT FROM unnest(given) AS g WHERE g.state = 'sleep') THEN
        RETURN QUERY SELECT g.nth, CASE WHEN s.due <= clock_timestamp() THEN 'over' ELSE 'kept' END, s.due
        FROM unnest(given) AS g JOIN unnest(held, tokens) AS h (id, token) ON h.id = g.id AND h.token = g.token
            JOIN holdfast.step s ON s.job_id = g.id AND s.name = g.name AND s.key IS NOT DISTINCT FROM g.key WHERE g.state = 'sleep';
    END IF;
    IF EXISTS (SELECT FROM unnest(given) AS g WHERE (g.id, g.token) NOT IN (SELECT * FROM unnest(held, tokens))) THEN
        RETURN QUERY SELECT g.nth, holdfast.lost_reason(g.id, g.token, worker), NULL::timestamptz FROM unnest(given) AS g
        WHERE (g.id, g.token) NOT IN (SELECT * FROM unnest(held, tokens));
    END IF;
END $$;

-- The steps of a story, for its holder; for another, one row with the reason why it is lost. The claim may end right after: all that is recorded
-- next is fenced.
-- Called by step.sql load_steps.
CREATE FUNCTION holdfast.load_steps(story bigint, token bigint, worker bigint)
    RETURNS TABLE (lost text, name text, key text, state text, beside boolean, result text, due timestamptz, over boolean)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM holdfast.job j WHERE j.id = story AND j.lock_token = token AND j.locked_by = worker;
    IF NOT FOUND THEN
        RETURN QUERY SELECT holdfast.lost_reason(story, token, worker), NULL, NULL, NULL, NULL::boolean, NULL, NULL::timestamptz, NULL::boolean;
        RETURN;
    END IF;
    RETURN QUERY SELECT NULL, s.name::text, s.key::text, s.state::text, s.beside, s.result::text, s.due, coalesce(s.due <= clock_timestamp(), false)
    FROM holdfast.step s WHERE s.job_id = story;
END $$;

-- Locks a story for its holder until the end of the transaction, and marks it: `held`, `busy`, or why it is lost.
-- Called by take_message.
CREATE FUNCTION holdfast.hold_story(story bigint, token bigint, worker bigint) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    fresh boolean;
    begun boolean;
BEGIN
    SELECT j.steps IS NULL OR j.attempt > 1 OR j.expires_at IS NOT NULL, j.steps INTO fresh, begun FROM holdfast.job j
    WHERE j.id = story AND j.lock_token = token AND j.locked_by = worker FOR SHARE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN holdfast.lost_reason(story, token, worker);
    END IF;
    IF fresh AND holdfast.mark_stories(ARRAY[story], ARRAY[story]) = '{}' AND begun IS NULL THEN
        RETURN 'busy';
    END IF;
    RETURN 'held';
END $$;

-- Records one step in its handler's own transaction, after what it wrote: `kept`, or why the story is lost. The story must be marked. It waits
-- as settle_patiently does. `under`: the transaction, for open_transactions.
-- Called by step.sql save_step.
CREATE FUNCTION holdfast.save_step(story bigint, token bigint, worker bigint, name text, key text, beside boolean, result json,
        OUT answer text, OUT under text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    patience interval := current_setting('lock_timeout')::interval;
    deadline timestamptz := clock_timestamp() + CASE WHEN patience > '0' THEN least(patience, '2 seconds') ELSE '2 seconds' END;
BEGIN
    PERFORM holdfast.need_read_committed();
    LOOP
        PERFORM FROM holdfast.job j WHERE j.id = story AND j.lock_token = token AND j.locked_by = worker FOR SHARE SKIP LOCKED;
        IF FOUND THEN
            INSERT INTO holdfast.step (job_id, at, beside, name, key, result) VALUES (story, clock_timestamp(), beside, name, key, result);
            answer := 'kept';
            under := pg_current_xact_id();
            RETURN;
        END IF;
        answer := holdfast.lost_reason(story, token, worker);
        IF answer <> 'busy' THEN
            RETURN;
        END IF;
        IF clock_timestamp() > deadline THEN
            RAISE EXCEPTION 'another transaction keeps job % locked', story USING ERRCODE = 'lock_not_available';
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
END $$;

-- Forgets failures that ended an attempt, so that the next one calls the functions again. Returns `held`, `busy` or why the story is lost.
-- Chains that it gathered are looked at again: one that failed may run again.
-- Called by step.sql forget_failures.
CREATE FUNCTION holdfast.forget_failures(story bigint, token bigint, worker bigint, names text[], keys text[]) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET jit = off SET enable_seqscan = off AS $$
DECLARE
    gathered json[];
BEGIN
    PERFORM FROM holdfast.job j WHERE j.id = story AND j.lock_token = token AND j.locked_by = worker FOR SHARE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN holdfast.lost_reason(story, token, worker);
    END IF;
    DELETE FROM holdfast.step s USING unnest(names, keys) AS f (name, key)
    WHERE s.job_id = story AND s.state = 'failed' AND s.name = f.name AND s.key IS NOT DISTINCT FROM f.key;
    WITH again AS (
        UPDATE holdfast.step s SET state = 'gathers' FROM unnest(names, keys) AS f (name, key)
        WHERE s.job_id = story AND s.state = 'gathered' AND s.name = f.name AND s.key IS NOT DISTINCT FROM f.key RETURNING s.result)
    SELECT array_agg(a.result) INTO gathered FROM again a;
    IF gathered IS NOT NULL THEN
        PERFORM FROM holdfast.job j WHERE j.id = story FOR NO KEY UPDATE NOWAIT;
        PERFORM holdfast.await_children(story, g) FROM unnest(gathered) AS g;
    END IF;
    RETURN 'held';
END $$;

-- Counts the attempts of a story anew if one of these transactions of its handler, which recorded steps, has committed: `held`, `busy`, or why
-- the story is lost.
-- Called by step.sql count_attempts_anew.
CREATE FUNCTION holdfast.count_attempts_anew(story bigint, token bigint, worker bigint, under text[]) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
BEGIN
    PERFORM FROM holdfast.job j WHERE j.id = story AND j.lock_token = token AND j.locked_by = worker FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN holdfast.lost_reason(story, token, worker);
    END IF;
    IF EXISTS (SELECT FROM unnest(under) AS u WHERE pg_xact_status(u::xid8) = 'committed') THEN
        UPDATE holdfast.job SET attempt = least(attempt, 1) WHERE id = story;
    END IF;
    RETURN 'held';
END $$;

-- Looks for the oldest message of this name: `got`, with its payload; `timeout`, when the time to wait is over; else `wait`, until `due`. The
-- first look fixes that time. `busy`, or why the story is lost.
-- Called by step.sql take_message.
CREATE FUNCTION holdfast.take_message(story bigint, token bigint, worker bigint, name text, key text, ms bigint, beside boolean,
        OUT answer text, OUT payload json, OUT due timestamptz)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    place tid;
    found_id bigint;
BEGIN
    answer := holdfast.hold_story(story, token, worker);
    IF answer <> 'held' THEN
        RETURN;
    END IF;
    SELECT s.ctid, s.due INTO place, due FROM holdfast.step s
    WHERE s.job_id = story AND s.name = take_message.name AND s.key IS NOT DISTINCT FROM take_message.key;
    SELECT m.id, m.payload INTO found_id, payload FROM holdfast.message m
    WHERE m.job_id = story AND m.name = take_message.name AND m.taken IS NULL ORDER BY m.id LIMIT 1;
    IF found_id IS NOT NULL THEN
        answer := 'got';
        UPDATE holdfast.message m SET taken = true WHERE m.job_id = story AND m.id = found_id;
    ELSIF due <= clock_timestamp() THEN
        answer := 'timeout';
    ELSE
        answer := 'wait';
        IF place IS NULL THEN
            due := clock_timestamp() + ms * interval '1 millisecond';
            INSERT INTO holdfast.step (job_id, at, due, state, beside, name, key)
            VALUES (story, clock_timestamp(), due, 'waits', beside, take_message.name, take_message.key);
        END IF;
        RETURN;
    END IF;
    IF place IS NULL THEN
        INSERT INTO holdfast.step (job_id, at, state, beside, name, key, result)
        VALUES (story, clock_timestamp(), 'received', beside, take_message.name, take_message.key, payload);
    ELSE
        UPDATE holdfast.step s SET state = 'received', at = clock_timestamp(), due = NULL, result = payload WHERE s.ctid = place;
    END IF;
END $$;

-- Lets a story wait for chains: `children` is [[ordinal, chain], ...], or the same with their ends. This transaction has locked its row.
-- Called by forget_failures, gather_jobs, restore_steps.
CREATE FUNCTION holdfast.await_children(story bigint, children json) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
BEGIN
    UPDATE holdfast.job j SET blockers_left = greatest(j.blockers_left, 0) + json_array_length(children), run_anyway = true WHERE j.id = story;
    PERFORM holdfast.name_blockers(array_agg(story), array_agg((c ->> 1)::bigint), array_agg((c ->> 0)::integer), false)
    FROM json_array_elements(children) AS c;
    PERFORM holdfast.refuse_cycles(ARRAY[story]);
END $$;

-- Enqueues the children of a gather at its first call, and looks whether all have ended: `got`, and in `ends`, by ordinal,
-- [ordinal, chain, status, result, error_code, error]; else `wait`. `busy`, or why the story is lost. `jobs` as in enqueue_jobs. It waits for
-- no lock longer than 100 ms: then it is `busy`.
-- Called by step.sql gather_jobs.
CREATE FUNCTION holdfast.gather_jobs(story bigint, token bigint, worker bigint, name text, key text, jobs text, beside boolean,
        OUT answer text, OUT ends json)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' SET jit = off SET enable_seqscan = off AS $$
DECLARE
    place tid;
    children json;
    ordinals integer[];
    lowest integer;
BEGIN
    PERFORM FROM holdfast.job j WHERE j.id = story AND j.lock_token = token AND j.locked_by = worker FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        answer := holdfast.lost_reason(story, token, worker);
        RETURN;
    END IF;
    SELECT s.ctid, s.result INTO place, children FROM holdfast.step s
    WHERE s.job_id = story AND s.name = gather_jobs.name AND s.key IS NOT DISTINCT FROM gather_jobs.key;
    IF place IS NULL THEN
        PERFORM holdfast.mark_stories(ARRAY[story], ARRAY[story]);
        SELECT least(min(b.ordinal), 0) INTO lowest FROM holdfast.blocker b WHERE b.job_id = story;
        SELECT json_agg(json_build_array(lowest - e.place, e.chain_id) ORDER BY e.place) INTO children
        FROM holdfast.enqueue_jobs(jobs, false) WITH ORDINALITY AS e (id, chain_id, created, place);
        PERFORM holdfast.await_children(story, children);
        INSERT INTO holdfast.step (job_id, at, state, beside, name, key, result)
        VALUES (story, clock_timestamp(), 'gathers', beside, gather_jobs.name, gather_jobs.key, children) RETURNING ctid INTO place;
    END IF;
    ordinals := ARRAY(SELECT (c ->> 0)::integer FROM json_array_elements(children) AS c);
    answer := 'wait';
    IF NOT EXISTS (SELECT FROM holdfast.blocker b WHERE b.job_id = story AND b.ordinal = ANY (ordinals) AND b.status IS NULL) THEN
        answer := 'got';
        WITH ended AS (
            DELETE FROM holdfast.blocker b WHERE b.job_id = story AND b.ordinal = ANY (ordinals) RETURNING b.*)
        SELECT json_agg(json_build_array(e.ordinal, e.chain_id, e.status,
            coalesce(e.result, k.result)::text, coalesce(e.error_code, k.error_code), coalesce(e.error, k.error)) ORDER BY e.ordinal DESC)
        INTO ends FROM ended e LEFT JOIN holdfast.kept_end k ON k.id = e.end_id;
        UPDATE holdfast.step s SET state = 'gathered', at = clock_timestamp(), result = ends WHERE s.ctid = place;
    END IF;
EXCEPTION WHEN lock_not_available THEN
    answer := 'busy';
END $$;

-- Sends a message to the live job of a chain, or to the live job with this unique key: `sent`, `duplicate` (its key was sent before),
-- `already_ended` or `not_found`. The lock excludes the end of an attempt: a story that suspends meanwhile looks again once the sender has
-- committed. Renewals pass.
-- Called by step.sql send_message.
CREATE FUNCTION holdfast.send_message(chain bigint, name text, payload json, key text DEFAULT NULL, kind text DEFAULT NULL,
        unique_key text DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    story holdfast.job;
    ended holdfast.chain_end;
    fault text := coalesce(CASE WHEN chain IS NULL AND (kind IS NULL OR unique_key IS NULL) THEN 'chain: an id expected, got null'
        WHEN chain IS NOT NULL AND (kind IS NOT NULL OR unique_key IS NOT NULL) THEN 'chain: give it, or a kind and a unique_key, not both'
        WHEN name IS NULL THEN 'name: 1 to 200 bytes of text expected, got null'
        WHEN payload IS NULL THEN 'payload: JSON expected, got null'
        WHEN pg_column_size(payload) > 16777220 THEN format('payload: at most 16 MiB expected, got %s bytes', pg_column_size(payload) - 4) END,
        holdfast.text_fault('name', name, 200), holdfast.text_fault('key', key, 500),
        holdfast.text_fault('kind', kind, 200), holdfast.text_fault('unique_key', unique_key, 500));
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    FOR round IN 1..100 LOOP
        IF chain IS NULL THEN
            SELECT j.* INTO story FROM holdfast.job j WHERE j.unique_key = send_message.unique_key AND j.kind = send_message.kind FOR KEY SHARE;
            IF NOT FOUND THEN
                RETURN 'not_found';
            END IF;
        ELSE
            SELECT j.* INTO story FROM holdfast.job j WHERE j.id = chain AND j.chain_id IS NULL OR j.chain_id = chain
            ORDER BY j.id DESC LIMIT 1 FOR KEY SHARE;
        END IF;
        EXIT WHEN FOUND;
        SELECT e.* INTO ended FROM holdfast.chain_ends(ARRAY[chain]) AS e;
        IF FOUND THEN
            RETURN CASE WHEN ended.status IS NULL THEN 'not_found' ELSE 'already_ended' END;
        END IF;
    END LOOP;
    IF story.id IS NULL THEN
        RAISE EXCEPTION 'chain % continued a hundred times in a row', chain USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO holdfast.message (job_id, sent_at, name, key, payload) VALUES (story.id, clock_timestamp(), name, key, payload)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'duplicate';
    END IF;
    IF story.steps IS NULL THEN
        -- The message leaves with its job, also if that never becomes a story. Until the sender commits, no renewal succeeds.
        UPDATE holdfast.job j SET steps = true WHERE j.id = story.id AND j.steps IS NULL;
    END IF;
    IF story.status IN ('pending', 'blocked') AND EXISTS (
        SELECT FROM holdfast.step s WHERE s.job_id = story.id AND s.state = 'waits' AND s.name = send_message.name)
    THEN
        UPDATE holdfast.job j SET status = 'pending', available_at = clock_timestamp(), later = NULL
        WHERE j.id = story.id AND (j.status = 'pending' AND j.available_at > clock_timestamp()
            OR j.status = 'blocked' AND j.blockers_left > 0 AND j.limit_key IS NULL);
        PERFORM holdfast.wake_sleepers(ARRAY[story.queue], ARRAY[story.kind]);
    END IF;
    RETURN 'sent';
END $$;

-- For stories that were suspended, whose rows this transaction has locked: those for which a message has arrived since they looked, or whose
-- children have all ended, are due at once. A new statement, so that it sees what the sender has committed before the lock could be taken.
-- Others that only wait for children are blocked.
-- Called by settle_batch.
CREATE FUNCTION holdfast.rouse_stories(stories bigint[]) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    -- For its children a story is roused once: code that has changed may never ask for them.
    UPDATE holdfast.job j SET available_at = clock_timestamp(), later = NULL,
        blockers_left = CASE WHEN j.blockers_left = 0 THEN -1 ELSE j.blockers_left END
    WHERE j.id = ANY (stories) AND j.status = 'pending' AND (EXISTS (
            SELECT FROM holdfast.step s JOIN holdfast.message m ON m.job_id = s.job_id AND m.name = s.name
            WHERE s.job_id = j.id AND s.state = 'waits' AND m.taken IS NULL)
        OR j.blockers_left = 0 AND EXISTS (SELECT FROM holdfast.step s WHERE s.job_id = j.id AND s.state = 'gathers'));
    UPDATE holdfast.job j SET status = 'blocked', available_at = clock_timestamp(), later = NULL
    WHERE j.id = ANY (stories) AND j.status = 'pending' AND j.blockers_left > 0 AND j.available_at >= '9999-01-01Z'
$$;

-- The steps and messages of a story, as the journal in its ended row: an array in the order of time. STABLE: the rows are deleted later.
-- Called by leave_jobs, step.sql read_journal.
CREATE FUNCTION holdfast.journal_of(story bigint) RETURNS json
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT json_agg((left(e.entry::text, -1) || coalesce(',"result":' || e.result::text, '') || '}')::json ORDER BY e.at, e.id) FROM (
        SELECT s.at, 0 AS id, s.result, json_strip_nulls(json_build_object('at', s.at, 'name', s.name, 'key', s.key, 'state', s.state,
            'due', s.due, 'beside', s.beside)) AS entry
        FROM holdfast.step s WHERE s.job_id = story
        UNION ALL
        SELECT m.sent_at, m.id, m.payload, json_strip_nulls(json_build_object('at', m.sent_at, 'message', m.name, 'key', m.key,
            'taken', m.taken))
        FROM holdfast.message m WHERE m.job_id = story) AS e
$$;

-- Deletes what stories have recorded, once their journals are in the ended rows.
-- Called by settle_batch.
CREATE FUNCTION holdfast.delete_steps(stories bigint[]) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    DELETE FROM holdfast.step s WHERE s.job_id = ANY (stories);
    DELETE FROM holdfast.message m WHERE m.job_id = ANY (stories)
$$;

-- Gives a replayed story the journal of its dead letter.
-- Called by replay_job.
CREATE FUNCTION holdfast.restore_steps(story bigint, journal json) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO holdfast.step (job_id, at, due, state, beside, name, key, result)
    SELECT story, e.at, e.due, e.state, e.beside, e.name, e.key, e.result
    FROM json_to_recordset(journal) AS e (at timestamptz, due timestamptz, state holdfast.step_state, beside boolean, name text, key text, result json)
    WHERE e.name IS NOT NULL;
    INSERT INTO holdfast.message (job_id, sent_at, taken, name, key, payload)
    SELECT story, e.at, e.taken, e.message, e.key, e.result
    FROM json_to_recordset(journal) AS e (at timestamptz, taken boolean, message text, key text, result json)
    WHERE e.message IS NOT NULL;
    SELECT holdfast.await_children(story, e.result) FROM json_to_recordset(journal) AS e (state holdfast.step_state, result json)
    WHERE e.state = 'gathers'
$$;
