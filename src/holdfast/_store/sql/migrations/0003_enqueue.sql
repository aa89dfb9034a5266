-- Enqueueing, in the caller's own transaction. SECURITY DEFINER: a producer may call these functions and touch no table.
-- Times are clock_timestamp(), not now(): in a transaction that began an hour ago, a job is due from its insert on, not an hour earlier,
-- where no claim would look for it at once.

CREATE TYPE holdfast.new_job AS (
    kind             text,
    payload          json,
    queue            text,
    priority         bigint,                    -- the widest type, so that a number out of range fails one of our checks
    max_attempts     bigint,                    -- null: 3; -1: no limit
    delay_ms         bigint,
    at               timestamptz,
    expires_ms       bigint,
    expires_at       timestamptz,
    order_key        text,
    order_block      boolean,
    unique_key       text,
    unique_window_ms bigint,
    on_conflict      text,
    headers          json,
    payload_version  bigint,
    blockers         bigint[],
    run_anyway       boolean
);

-- All input of the functions for producers and operators is checked here, by the rules of the library. An error names the parameter, the
-- rule and the given value; HF002 is a job, HF005 an event or message.
CREATE FUNCTION holdfast.refuse(fault text, state text DEFAULT 'HF002') RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '%', fault USING ERRCODE = state;
END $$;

CREATE FUNCTION holdfast.text_fault(name text, given text, most integer) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN octet_length(given) NOT BETWEEN 1 AND most
        THEN format('%s: 1 to %s bytes of text expected, got %s bytes', name, most, octet_length(given)) END;

CREATE FUNCTION holdfast.ids_fault(name text, given bigint[], most integer) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN given IS NULL OR array_position(given, NULL) IS NOT NULL THEN format('%s: ids expected, got null', name)
        WHEN cardinality(given) > most THEN format('%s: at most %s ids expected, got %s', name, most, cardinality(given)) END;

CREATE FUNCTION holdfast.time_fault(name text, given timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN given NOT BETWEEN timestamptz '0001-01-01Z' AND timestamptz '9999-12-31Z'
        THEN format('%s: a time from the year 1 to the year 9999 expected, got %s', name, given) END;

-- An interval in milliseconds, for comparison with a bound; one that is too long for a bigint becomes the largest bigint.
CREATE FUNCTION holdfast.milliseconds(span interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN span IS NOT NULL THEN (greatest(least(extract(epoch FROM span), 1e15), -1e15) * 1000)::bigint END;

CREATE FUNCTION holdfast.header_fault(headers json) RETURNS text
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong text;
BEGIN
    IF json_typeof(headers) <> 'object' THEN
        RETURN format('headers: a JSON object expected, got %s %s',
            CASE json_typeof(headers) WHEN 'array' THEN 'an' ELSE 'a' END, json_typeof(headers));
    ELSIF octet_length(headers::text) > 65536 THEN
        RETURN format('headers: at most 65536 bytes expected, got %s bytes', octet_length(headers::text));
    END IF;
    SELECT format('headers: text expected as the value of %s, got %s', to_json(h.key), json_typeof(h.value)) INTO wrong
    FROM json_each(headers) AS h WHERE json_typeof(h.value) <> 'string' LIMIT 1;
    PERFORM count(h.value) FROM json_each_text(headers) AS h;
    RETURN wrong;
EXCEPTION WHEN data_exception THEN
    RETURN 'headers: text that is valid Unicode without NUL characters expected, got another escape';
END $$;

-- Null: the job may be enqueued. Scalars, STABLE and no subquery, so that it is inlined.
CREATE FUNCTION holdfast.job_fault(kind text, payload json, queue text, priority bigint, max_attempts bigint, delay_ms bigint, at timestamptz,
        expires_ms bigint, expires_at timestamptz, order_key text, unique_key text, unique_window_ms bigint, on_conflict text, headers json,
        payload_version bigint, blockers bigint[]) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE
        WHEN kind IS NULL THEN 'kind: 1 to 200 bytes of text expected, got null'
        WHEN octet_length(kind) NOT BETWEEN 1 AND 200 THEN holdfast.text_fault('kind', kind, 200)
        WHEN octet_length(queue) NOT BETWEEN 1 AND 100 THEN holdfast.text_fault('queue', queue, 100)
        WHEN octet_length(order_key) NOT BETWEEN 1 AND 500 THEN holdfast.text_fault('order_key', order_key, 500)
        WHEN octet_length(unique_key) NOT BETWEEN 1 AND 500 THEN holdfast.text_fault('unique_key', unique_key, 500)
        WHEN priority NOT BETWEEN 0 AND 9 THEN format('priority: 0 to 9 expected, got %s', priority)
        WHEN max_attempts NOT BETWEEN 1 AND 1000 AND max_attempts <> -1
            THEN format('max_attempts: 1 to 1000, or -1 for no limit, expected, got %s', max_attempts)
        WHEN payload_version NOT BETWEEN 1 AND 32767 THEN format('payload_version: 1 to 32767 expected, got %s', payload_version)
        WHEN pg_column_size(payload) > 16777220 THEN format('payload: at most 16 MiB expected, got %s bytes', pg_column_size(payload) - 4)
        WHEN delay_ms IS NOT NULL AND at IS NOT NULL THEN 'delay, at: one of them expected, got both'
        WHEN delay_ms NOT BETWEEN 0 AND 316224000000 THEN format('delay: 0 ms to 3660 days expected, got %s ms', delay_ms)
        WHEN at NOT BETWEEN timestamptz '0001-01-01Z' AND timestamptz '9999-12-31Z'
            THEN format('at: a time from the year 1 to the year 9999 expected, got %s', at)
        WHEN expires_ms IS NOT NULL AND expires_at IS NOT NULL THEN 'expires, expires_at: one of them expected, got both'
        WHEN expires_ms NOT BETWEEN 1 AND 316224000000 THEN format('expires: 1 ms to 3660 days expected, got %s ms', expires_ms)
        WHEN expires_at NOT BETWEEN timestamptz '0001-01-01Z' AND timestamptz '9999-12-31Z'
            THEN format('expires_at: a time from the year 1 to the year 9999 expected, got %s', expires_at)
        WHEN unique_window_ms NOT BETWEEN 1 AND 2678400000
            THEN format('unique_window: 1 ms to 31 days expected, got %s ms', unique_window_ms)
        WHEN unique_window_ms IS NOT NULL AND unique_key IS NULL THEN 'unique_window: a unique_key beside it expected, got null'
        WHEN on_conflict NOT IN ('keep', 'replace', 'debounce', 'raise')
            THEN format('on_conflict: keep, replace, debounce or raise expected, got %s', left(on_conflict, 40))
        WHEN cardinality(blockers) > 10000 THEN format('blockers: at most 10000 chains expected, got %s', cardinality(blockers))
        WHEN array_position(blockers, NULL) IS NOT NULL THEN 'blockers: ids of chains expected, got null'
        WHEN json_typeof(headers) <> 'object' OR pg_column_size(headers) > 65536 OR strpos(headers::text, '\u') > 0
            OR jsonb_path_exists(headers::jsonb, '$.* ? (@.type() <> "string")') THEN holdfast.header_fault(headers)
    END;

-- Null: this job may continue a chain.
CREATE FUNCTION holdfast.next_fault(next json) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n holdfast.new_job;
BEGIN
    IF json_typeof(next) <> 'object' THEN
        RETURN format('next: a JSON object expected, got %s', json_typeof(next));
    ELSIF next IS NULL THEN
        RETURN NULL;
    END IF;
    n := json_populate_record(NULL::holdfast.new_job, next);
    RETURN 'next, ' || holdfast.job_fault(n.kind, n.payload, n.queue, n.priority, n.max_attempts, n.delay_ms, n.at, n.expires_ms, n.expires_at,
        n.order_key, n.unique_key, n.unique_window_ms, n.on_conflict, n.headers, n.payload_version, n.blockers);
END $$;

-- A time in the past becomes now: a job may never appear where claims have already passed.
CREATE FUNCTION holdfast.due_at(at timestamptz, delay_ms bigint, clock timestamptz) RETURNS timestamptz
    LANGUAGE sql STABLE RETURN greatest(coalesce(at, clock + delay_ms * interval '1 millisecond', clock), clock);

-- Jobs of one order key share a shard. The hash may differ between major versions: it only spreads the jobs and decides no order.
CREATE FUNCTION holdfast.shard_of(id bigint, order_key text) RETURNS smallint
    LANGUAGE sql IMMUTABLE RETURN CASE WHEN order_key IS NULL THEN id & 63 ELSE hashtext(order_key) & 63 END::smallint;

-- Wakes two sleepers for each queue and kind, since the last one may have been killed and left its record behind. A sleeper that is woken
-- for more than it can run wakes the next. Call it in a statement after the insert: only a later snapshot sees the workers that began to
-- sleep meanwhile.
CREATE FUNCTION holdfast.wake_sleepers(queues text[], kinds text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    -- Not now(): in a transaction that began long ago that is before every record of sleep since. A variable bounds the index.
    clock timestamptz := clock_timestamp();
    given record;
    first bigint;
    woken bigint;
BEGIN
    IF current_setting('holdfast.notify', true) = 'off' THEN
        RETURN;                 -- a transaction that has notified cannot be prepared for a two-phase commit: polling finds the job
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- The snapshot is as old as the transaction and does not show who sleeps: notify all workers.
        PERFORM pg_notify('holdfast', queue) FROM (SELECT DISTINCT queue FROM unnest(queues) AS queue) AS given;
    ELSE
        FOR given IN SELECT DISTINCT queue, kind FROM unnest(queues, kinds) AS pair (queue, kind) LOOP
            first := NULL;
            FOR turn IN 1..2 LOOP       -- each look-up stops at the newest record that fits, however many there are
                SELECT s.worker_id INTO woken FROM holdfast.sleeper s
                WHERE s.until > clock AND s.queue = given.queue AND given.kind = ANY (s.kinds) AND s.worker_id IS DISTINCT FROM first
                ORDER BY s.until DESC LIMIT 1;
                EXIT WHEN NOT FOUND;
                PERFORM pg_notify('holdfast_' || woken, given.queue);
                first := woken;
            END LOOP;
        END LOOP;
    END IF;
END $$;

-- It was cancelled, or expired before it started: it will not run.
CREATE FUNCTION holdfast.is_doomed(job holdfast.job, clock timestamptz) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN job.cancel_requested_at IS NOT NULL OR coalesce(job.expires_at <= clock, false) AND job.status <> 'processing';

-- Jobs of which some have a unique key, or wait for other chains. It never looks before it inserts: an index decides, then the losers look
-- up the winner. The data of the given jobs is in arrays of the same length, which one unnest joins, and `IN (SELECT unnest(…))` is a hash
-- where a join may not be one: the cost grows with the number of jobs, not with its square.
CREATE FUNCTION holdfast.enqueue_unique_jobs(given holdfast.new_job[]) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    ids bigint[] := ARRAY(SELECT nextval('holdfast.job_id_seq') FROM generate_series(1, cardinality(given)));
    answers bigint[];               -- the job that each given one became, or found; null: not known yet
    made bigint[];
    replaced bigint[] := '{}';
    replacing bigint[] := '{}';     -- the positions of those that replace them
    windowed boolean;
    waiting boolean;
    duplicate bigint;
BEGIN
    IF EXISTS (SELECT FROM unnest(given) AS g WHERE g.on_conflict NOT IN ('keep', 'replace', 'debounce', 'raise')
            OR g.unique_window_ms NOT BETWEEN 1 AND 31 * 86400000::bigint OR (g.unique_window_ms IS NOT NULL AND g.unique_key IS NULL))
    THEN
        RAISE EXCEPTION 'on_conflict is keep, replace, debounce or raise; a window is of a unique key, from 1 ms to 31 days'
            USING ERRCODE = 'HF002';
    END IF;
    IF EXISTS (SELECT FROM unnest(given) AS g WHERE cardinality(g.blockers) > 10000) THEN
        RAISE EXCEPTION 'a job may wait for at most 10000 chains' USING ERRCODE = 'HF002';
    END IF;
    SELECT coalesce(bool_or(g.unique_window_ms IS NOT NULL), false), coalesce(bool_or(cardinality(g.blockers) > 0), false)
    INTO windowed, waiting FROM unnest(given) AS g;
    IF windowed THEN
        -- Windows first: a job that loses one is not inserted. Sorted, so that two transactions wait for each other in one direction only.
        WITH taken AS (
            INSERT INTO holdfast.unique_window (unique_key, kind, ends_at, job_id)
            SELECT g.unique_key, g.kind,
                date_bin(g.unique_window_ms * interval '1 millisecond', clock, 'epoch') + g.unique_window_ms * interval '1 millisecond', g.id
            FROM unnest(ids, given) AS g (id) WHERE g.unique_window_ms IS NOT NULL ORDER BY 1, 2, 3, 4
            ON CONFLICT DO NOTHING RETURNING job_id
        )
        SELECT coalesce(array_agg(job_id), '{}') INTO made FROM taken;
        -- The holder of a lost window, in the history or in a transaction that has committed meanwhile.
        SELECT array_agg(CASE WHEN g.unique_window_ms IS NOT NULL AND g.id NOT IN (SELECT unnest(made)) THEN
                (SELECT w.job_id FROM holdfast.unique_window w WHERE w.unique_key = g.unique_key AND w.kind = g.kind AND w.ends_at =
                    date_bin(g.unique_window_ms * interval '1 millisecond', clock, 'epoch') + g.unique_window_ms * interval '1 millisecond')
            END ORDER BY g.ordinality)
        INTO answers FROM unnest(ids, given) WITH ORDINALITY AS g (id);
    END IF;

    FOR round IN 1..10 LOOP
        WITH inserted AS (
            INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
                order_seq, queue, kind, payload, headers, order_key, unique_key, status, blockers_left, run_anyway, later)
            SELECT g.id, clock, holdfast.due_at(at, delay_ms, clock), nullif(coalesce(max_attempts, 3), -1), coalesce(priority, 5),
                holdfast.shard_of(g.id, order_key), payload_version, nullif(order_block, false),
                coalesce(expires_at, clock + expires_ms * interval '1 millisecond'),
                CASE WHEN order_key IS NOT NULL THEN g.id END, coalesce(queue, 'default'), kind, payload, headers, order_key,
                CASE WHEN unique_window_ms IS NULL THEN unique_key END,
                CASE WHEN cardinality(blockers) > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status,
                nullif(cardinality(blockers), 0), nullif(run_anyway, false), holdfast.is_later(at, delay_ms, clock)
            FROM unnest(ids, answers, given) WITH ORDINALITY AS g (id, answer) WHERE g.answer IS NULL
            ORDER BY unique_key, kind, ordinality
            ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING RETURNING job.id
        )
        SELECT coalesce(array_agg(id), '{}') INTO made FROM inserted;
        IF cardinality(made) = cardinality(ids) THEN
            answers := ids;
        ELSE
            answers := ARRAY(SELECT CASE WHEN g.id IN (SELECT unnest(made)) THEN g.id ELSE g.answer END
                FROM unnest(ids, answers) WITH ORDINALITY AS g (id, answer, place) ORDER BY g.place);
        END IF;
        EXIT WHEN array_position(answers, NULL) IS NULL;

        -- A job that is replaced, or that will not run, is locked first, in the order of the keys: from here on its row cannot change.
        PERFORM FROM holdfast.job j,
            (SELECT g.unique_key, g.kind, bool_or(g.on_conflict IN ('replace', 'debounce')) AS changes
             FROM unnest(answers, given) AS g (answer) WHERE g.answer IS NULL GROUP BY 1, 2 ORDER BY 1, 2) AS g
        WHERE j.unique_key = g.unique_key AND j.kind = g.kind AND (g.changes OR holdfast.is_doomed(j, clock)) FOR UPDATE OF j;
        IF FOUND THEN
            -- A running job cannot take a new payload or time, and a job that will not run must not swallow the new one: it gives up its
            -- key, and the next round inserts its successor.
            UPDATE holdfast.job j SET unique_key = NULL
            FROM (SELECT g.unique_key, g.kind, bool_or(g.on_conflict IN ('replace', 'debounce')) AS changes
                  FROM unnest(answers, given) AS g (answer) WHERE g.answer IS NULL GROUP BY 1, 2) AS g
            WHERE j.unique_key = g.unique_key AND j.kind = g.kind AND j.id NOT IN (SELECT unnest(ids))
                AND (g.changes AND j.status = 'processing' OR holdfast.is_doomed(j, clock));
        END IF;
        -- Not found: it ended between the insert and this look-up, and the next round may insert.
        answers := ARRAY(SELECT coalesce(g.answer, (SELECT j.id FROM holdfast.job j WHERE j.unique_key = g.unique_key AND j.kind = g.kind))
            FROM unnest(answers, given) WITH ORDINALITY AS g (answer) ORDER BY g.ordinality);
    END LOOP;
    IF array_position(answers, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'the holder of a unique key changed ten times in a row' USING ERRCODE = 'serialization_failure';
    END IF;

    IF answers <> ids THEN
        SELECT g.answer INTO duplicate FROM unnest(ids, answers, given) AS g (id, answer)
        WHERE g.on_conflict = 'raise' AND g.answer <> g.id LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a job with this unique key exists' USING ERRCODE = 'HF001', DETAIL = duplicate::text;
        END IF;

        -- The last one given wins. A replaced job keeps its id, its place and its order key, and starts again with no attempt used. Its
        -- blockers are replaced too; a debounced job keeps them with its payload.
        WITH changed AS (
            UPDATE holdfast.job j SET payload = g.payload, headers = g.headers, payload_version = g.payload_version,
                queue = coalesce(g.queue, 'default'), priority = coalesce(g.priority, 5), max_attempts = nullif(coalesce(g.max_attempts, 3), -1),
                available_at = holdfast.due_at(g.at, g.delay_ms, clock), later = holdfast.is_later(g.at, g.delay_ms, clock),
                attempt = 0, last_error = NULL, last_error_code = NULL,
                expires_at = coalesce(g.expires_at, clock + g.expires_ms * interval '1 millisecond'),
                status = CASE WHEN cardinality(g.blockers) > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status,
                blockers_left = nullif(cardinality(g.blockers), 0), blocker_failed = NULL, run_anyway = nullif(g.run_anyway, false)
            FROM (SELECT DISTINCT ON (g.answer) g.* FROM unnest(ids, answers, given) WITH ORDINALITY AS g (id, answer)
                  WHERE g.on_conflict = 'replace' AND g.answer <> g.id ORDER BY g.answer, g.ordinality DESC) AS g
            WHERE j.id = g.answer AND j.status IN ('pending', 'blocked')
            RETURNING j.id, g.ordinality
        )
        SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(ordinality), '{}') INTO replaced, replacing FROM changed;
        UPDATE holdfast.job j SET available_at = holdfast.due_at(g.at, g.delay_ms, clock), later = holdfast.is_later(g.at, g.delay_ms, clock),
            status = CASE WHEN j.blockers_left > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status
        FROM (SELECT DISTINCT ON (g.answer) g.* FROM unnest(ids, answers, given) WITH ORDINALITY AS g (id, answer)
              WHERE g.on_conflict = 'debounce' AND g.answer <> g.id ORDER BY g.answer, g.ordinality DESC) AS g
        WHERE j.id = g.answer AND j.status IN ('pending', 'blocked');
        IF replaced <> '{}' THEN
            DELETE FROM holdfast.blocker WHERE job_id = ANY (replaced);
        END IF;
    END IF;
    IF waiting THEN
        PERFORM holdfast.name_blockers(array_agg(w.answer), array_agg(b.chain_id), array_agg(b.ordinal::integer))
        FROM unnest(ids, answers, given) WITH ORDINALITY AS w (id, answer), unnest(w.blockers) WITH ORDINALITY AS b (chain_id, ordinal)
        WHERE w.answer = w.id AND w.id NOT IN (SELECT unnest(replaced)) OR w.ordinality IN (SELECT unnest(replacing));
        IF replaced <> '{}' THEN
            -- Only a new snapshot shows whether another job waits for it by now.
            PERFORM holdfast.need_read_committed();
            PERFORM holdfast.refuse_cycles(replaced);
        END IF;
    END IF;

    -- For a job that continues a chain, return that chain.
    RETURN QUERY SELECT g.answer,
        CASE WHEN g.answer = g.id THEN g.id ELSE coalesce((SELECT j.chain_id FROM holdfast.job j WHERE j.id = g.answer), g.answer) END,
        g.answer = g.id
    FROM unnest(ids, answers) WITH ORDINALITY AS g (id, answer, place) ORDER BY g.place;
END $$;

-- `jobs` is the text of a JSON array of objects whose keys are the fields of new_job. Answers in the order given.
CREATE FUNCTION holdfast.enqueue_jobs(jobs text) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    made bigint;
BEGIN
    IF left(ltrim(left(jobs, 100), E' \t\r\n'), 1) IS DISTINCT FROM '[' THEN
        PERFORM holdfast.refuse('jobs: the text of a JSON array expected, got ' || CASE WHEN jobs IS NULL THEN 'null' ELSE 'something else' END);
    END IF;
    IF strpos(jobs, '"unique_key"') > 0 OR strpos(jobs, '"blockers"') > 0 THEN
        RETURN QUERY SELECT * FROM holdfast.enqueue_unique_jobs(ARRAY(
            SELECT CASE WHEN f.fault IS NULL THEN g ELSE holdfast.refuse(f.fault)::holdfast.new_job END
            FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json) AS g,
                LATERAL (SELECT holdfast.job_fault(g.kind, g.payload, g.queue, g.priority, g.max_attempts, g.delay_ms, g.at, g.expires_ms, g.expires_at, g.order_key, g.unique_key,
                  g.unique_window_ms, g.on_conflict, g.headers, g.payload_version, g.blockers) AS fault) AS f));
    ELSE
        RETURN QUERY
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
            order_seq, queue, kind, payload, headers, order_key, later)
        SELECT CASE WHEN fault IS NULL THEN id ELSE holdfast.refuse(fault)::bigint END,      -- first, before a number overflows
            clock, holdfast.due_at(at, delay_ms, clock), nullif(coalesce(max_attempts, 3), -1), coalesce(priority, 5),
            holdfast.shard_of(id, order_key), payload_version, nullif(order_block, false),
            coalesce(expires_at, clock + expires_ms * interval '1 millisecond'),
            CASE WHEN order_key IS NOT NULL THEN id END, coalesce(queue, 'default'),
            kind, payload, headers, order_key, holdfast.is_later(at, delay_ms, clock)
        FROM (SELECT nextval('holdfast.job_id_seq') AS id, g.*,
                  holdfast.job_fault(g.kind, g.payload, g.queue, g.priority, g.max_attempts, g.delay_ms, g.at, g.expires_ms, g.expires_at, g.order_key, g.unique_key,
                  g.unique_window_ms, g.on_conflict, g.headers, g.payload_version, g.blockers) AS fault
              FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json) AS g) AS g
        RETURNING job.id, job.id, true;
        GET DIAGNOSTICS made = ROW_COUNT;
        IF made > 1000000 THEN
            PERFORM holdfast.refuse(format('jobs: at most 1000000 expected, got %s', made));
        END IF;
    END IF;
    -- A statement of its own, after the insert. Under load no worker sleeps, and this one look-up is the only cost.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock) THEN
        PERFORM holdfast.wake_sleepers(array_agg(coalesce(queue, 'default')), array_agg(kind))
        FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json);
    END IF;
END $$;

-- Jobs, and one that runs after all their chains, and after those that it names itself: all of them or none, also on a connection that
-- commits every statement. Returns that one, `last`, which is the text of a JSON object.
CREATE FUNCTION holdfast.enqueue_group(jobs text, last text, run_anyway boolean) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    final holdfast.new_job;
    fault text;
BEGIN
    IF left(ltrim(left(last, 100), E' \t\r\n'), 1) IS DISTINCT FROM '{' THEN
        PERFORM holdfast.refuse('last: the text of a JSON object expected, got ' || CASE WHEN last IS NULL THEN 'null' ELSE 'something else' END);
    END IF;
    final := json_populate_record(NULL::holdfast.new_job, last::json);
    final.blockers := final.blockers || ARRAY(
        SELECT e.chain_id FROM holdfast.enqueue_jobs(jobs) WITH ORDINALITY AS e (id, chain_id, created, place) ORDER BY e.place);
    final.run_anyway := enqueue_group.run_anyway;
    fault := holdfast.job_fault(final.kind, final.payload, final.queue, final.priority, final.max_attempts, final.delay_ms, final.at, final.expires_ms, final.expires_at, final.order_key, final.unique_key,
        final.unique_window_ms, final.on_conflict, final.headers, final.payload_version, final.blockers);
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    RETURN QUERY SELECT * FROM holdfast.enqueue_unique_jobs(ARRAY[final]);
    -- It may be due: the chains of jobs that were there already may have ended.
    PERFORM holdfast.wake_sleepers(ARRAY[coalesce(final.queue, 'default')], ARRAY[final.kind]);
END $$;

-- One job: called by the library for a single job, and by psql, triggers and other languages:
--   SELECT holdfast.enqueue('mail.welcome', '{"to": "a@b.c"}', delay => '1 hour')
CREATE FUNCTION holdfast.enqueue(
    kind text, payload json DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 5, max_attempts integer DEFAULT 3,
    delay interval DEFAULT NULL, at timestamptz DEFAULT NULL, expires interval DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
    order_key text DEFAULT NULL, order_block boolean DEFAULT NULL,
    unique_key text DEFAULT NULL, unique_window interval DEFAULT NULL, on_conflict text DEFAULT 'keep',
    headers json DEFAULT NULL, payload_version integer DEFAULT NULL, blockers bigint[] DEFAULT NULL, run_anyway boolean DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    delay_ms bigint := holdfast.milliseconds(delay);
    expires_ms bigint := holdfast.milliseconds(expires);
    unique_window_ms bigint := holdfast.milliseconds(unique_window);
    fault text := holdfast.job_fault(kind, payload, queue, priority, max_attempts, delay_ms, at, expires_ms, expires_at, order_key, unique_key,
        unique_window_ms, on_conflict, headers, payload_version, blockers);
    made bigint;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    IF unique_key IS NOT NULL OR blockers IS NOT NULL THEN
        -- Added to the clock and not in milliseconds: a month is a calendar month.
        SELECT u.id INTO made FROM holdfast.enqueue_unique_jobs(ARRAY[ROW (kind, payload, queue, priority, max_attempts, NULL,
            coalesce(at, clock + delay), NULL, coalesce(expires_at, clock + expires), order_key, order_block, unique_key, unique_window_ms,
            on_conflict, headers, payload_version, blockers, run_anyway)::holdfast.new_job]) AS u;
    ELSE
        made := nextval('holdfast.job_id_seq');
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
            order_seq, queue, kind, payload, headers, order_key, later)
        VALUES (made, clock, greatest(coalesce(at, clock + delay), clock), nullif(coalesce(max_attempts, 3), -1), coalesce(priority, 5),
            holdfast.shard_of(made, order_key), payload_version, nullif(order_block, false), coalesce(expires_at, clock + expires),
            CASE WHEN order_key IS NOT NULL THEN made END, coalesce(queue, 'default'), kind, payload, headers, order_key,
            holdfast.is_later(coalesce(at, clock + delay), NULL, clock));
    END IF;
    -- A statement of its own, after the insert. Under load no worker sleeps, and this one look-up is the only cost.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock) THEN
        PERFORM holdfast.wake_sleepers(ARRAY[coalesce(queue, 'default')], ARRAY[kind]);
    END IF;
    RETURN made;
END $$;
