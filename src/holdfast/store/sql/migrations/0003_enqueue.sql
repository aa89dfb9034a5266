-- Enqueueing, in the caller's own transaction. SECURITY DEFINER: a producer may call these functions and touch no table.
-- Times are clock_timestamp(), not now(): in a transaction that began an hour ago a job is due from its insert on, not from an
-- hour before, where no claim would look for it at once.

CREATE TYPE holdfast.new_job AS (
    kind             text,
    payload          json,
    queue            text,
    priority         smallint,
    max_attempts     smallint,
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
    payload_version  smallint,
    blockers         bigint[],
    run_anyway       boolean
);

-- The past is lifted to the present: a job may never appear where claims have already passed.
CREATE FUNCTION holdfast.due_at(at timestamptz, delay_ms bigint, clock timestamptz) RETURNS timestamptz
    LANGUAGE sql STABLE AS $$ SELECT greatest(coalesce(at, clock + delay_ms * interval '1 millisecond', clock), clock) $$;

-- Jobs of one order key share a shard. The hash may differ between major versions: it only spreads, it decides no order.
CREATE FUNCTION holdfast.shard_of(id bigint, order_key text) RETURNS smallint
    LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN order_key IS NULL THEN id & 63 ELSE hashtext(order_key) & 63 END::smallint $$;

-- Wakes one sleeper for each queue and kind; that one wakes the next when more is due than it can run.
-- Call it in a statement after the insert: only a later snapshot sees who lay down meanwhile.
CREATE FUNCTION holdfast.wake_sleepers(queues text[], kinds text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- The snapshot is as old as the transaction and cannot know who sleeps: tell everybody.
        PERFORM pg_notify('holdfast', queue) FROM (SELECT DISTINCT queue FROM unnest(queues) AS queue) AS given;
    ELSE
        PERFORM pg_notify('holdfast_' || sleeper.worker_id, given.queue)
        FROM (SELECT DISTINCT queue, kind FROM unnest(queues, kinds) AS pair (queue, kind)) AS given,
            LATERAL (SELECT s.worker_id FROM holdfast.sleeper s
                     WHERE s.until > now() AND s.queue = given.queue AND given.kind = ANY (s.kinds)
                     ORDER BY s.until DESC LIMIT 1) AS sleeper;
    END IF;
END $$;

-- It was called off, or is too late and has not started: it will not run.
CREATE FUNCTION holdfast.is_doomed(job holdfast.job, clock timestamptz) RETURNS boolean
    LANGUAGE sql IMMUTABLE AS $$
    SELECT job.cancel_requested_at IS NOT NULL OR coalesce(job.expires_at <= clock, false) AND job.status <> 'processing'
$$;

-- Jobs of which some ask for a unique key, or come after other chains. Never look-then-insert: an index decides, then the losers look at who won.
CREATE FUNCTION holdfast.enqueue_unique_jobs(given holdfast.new_job[]) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    ids bigint[] := ARRAY(SELECT nextval('holdfast.job_id_seq') FROM generate_series(1, cardinality(given)));
    won bigint[];                   -- ids that hold their window
    fresh bigint[] := '{}';         -- ids that became a row
    part bigint[];
    answer bigint[] := ARRAY(SELECT NULL::bigint FROM generate_series(1, cardinality(given)));
    todo integer[];
    replaced bigint[];
    duplicate bigint;
BEGIN
    IF EXISTS (SELECT FROM unnest(given) AS g WHERE g.on_conflict NOT IN ('keep', 'replace', 'debounce', 'raise')
            OR g.unique_window_ms NOT BETWEEN 1 AND 31 * 86400000::bigint OR (g.unique_window_ms IS NOT NULL AND g.unique_key IS NULL))
    THEN
        RAISE EXCEPTION 'on_conflict is keep, replace, debounce or raise; a window is of a unique key, from 1 ms to 31 days'
            USING ERRCODE = 'HF002';
    END IF;
    IF EXISTS (SELECT FROM unnest(given) AS g WHERE cardinality(g.blockers) > 10000) THEN
        RAISE EXCEPTION 'a job comes after 10000 chains at most' USING ERRCODE = 'HF002';
    END IF;
    PERFORM holdfast.need_partitions();
    -- Windows first: who loses one inserts no job. Sorted, so that two transactions wait for each other in one direction only.
    WITH taken AS (
        INSERT INTO holdfast.unique_window (unique_key, kind, ends_at, job_id)
        SELECT g.unique_key, g.kind,
            date_bin(g.unique_window_ms * interval '1 millisecond', clock, 'epoch') + g.unique_window_ms * interval '1 millisecond',
            ids[g.ordinality]
        FROM unnest(given) WITH ORDINALITY AS g WHERE g.unique_window_ms IS NOT NULL ORDER BY 1, 2, 3, 4
        ON CONFLICT DO NOTHING RETURNING job_id
    )
    SELECT coalesce(array_agg(job_id), '{}') INTO won FROM taken;

    -- The holder of a lost window, as a row of the past or of a transaction that has committed meanwhile.
    SELECT array_agg(CASE WHEN g.unique_window_ms IS NOT NULL AND ids[g.ordinality] <> ALL (won) THEN
            (SELECT w.job_id FROM holdfast.unique_window w WHERE w.unique_key = g.unique_key AND w.kind = g.kind AND w.ends_at =
                date_bin(g.unique_window_ms * interval '1 millisecond', clock, 'epoch') + g.unique_window_ms * interval '1 millisecond')
        END ORDER BY g.ordinality)
    INTO answer FROM unnest(given) WITH ORDINALITY AS g;

    FOR round IN 1..10 LOOP
        todo := ARRAY(SELECT n FROM generate_subscripts(ids, 1) AS n WHERE answer[n] IS NULL);
        EXIT WHEN todo = '{}';
        WITH made AS (
            INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
                order_seq, queue, kind, payload, headers, order_key, unique_key, status, blockers_left, run_anyway)
            SELECT ids[n], clock, holdfast.due_at(at, delay_ms, clock), coalesce(max_attempts, 3), coalesce(priority, 5),
                holdfast.shard_of(ids[n], order_key), payload_version, nullif(order_block, false),
                coalesce(expires_at, clock + expires_ms * interval '1 millisecond'),
                CASE WHEN order_key IS NOT NULL THEN ids[n] END, coalesce(queue, 'default'), kind, payload, headers, order_key,
                CASE WHEN unique_window_ms IS NULL THEN unique_key END,
                CASE WHEN cardinality(blockers) > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status,
                nullif(cardinality(blockers), 0), nullif(run_anyway, false)
            FROM unnest(todo) AS n, LATERAL (SELECT (given[n]).*) AS g
            ORDER BY unique_key, kind, n
            ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING RETURNING job.id
        )
        SELECT coalesce(array_agg(id), '{}') INTO part FROM made;
        fresh := fresh || part;
        answer := ARRAY(SELECT CASE WHEN ids[n] = ANY (part) THEN ids[n] ELSE answer[n] END FROM generate_subscripts(ids, 1) AS n ORDER BY n);
        todo := ARRAY(SELECT n FROM generate_subscripts(ids, 1) AS n WHERE answer[n] IS NULL);
        EXIT WHEN todo = '{}';

        -- Who is to be replaced, or will not run, is locked first, in the order of the keys: what is seen of it from here on stays true.
        PERFORM FROM holdfast.job j,
            (SELECT (given[n]).unique_key, (given[n]).kind, bool_or((given[n]).on_conflict IN ('replace', 'debounce')) AS changes
             FROM unnest(todo) AS n GROUP BY 1, 2 ORDER BY 1, 2) AS g
        WHERE j.unique_key = g.unique_key AND j.kind = g.kind AND (g.changes OR holdfast.is_doomed(j, clock)) FOR UPDATE OF j;
        -- A running job cannot take a new payload or time, and for one that will not run nothing may be lost: it gives up its key, and
        -- the next round inserts its successor.
        UPDATE holdfast.job j SET unique_key = NULL
        FROM (SELECT (given[n]).unique_key, (given[n]).kind, bool_or((given[n]).on_conflict IN ('replace', 'debounce')) AS changes
              FROM unnest(todo) AS n GROUP BY 1, 2) AS g
        WHERE j.unique_key = g.unique_key AND j.kind = g.kind AND j.id <> ALL (fresh)
            AND (g.changes AND j.status = 'processing' OR holdfast.is_doomed(j, clock));
        -- Not found: it ended between the insert and this look, and the next round may insert.
        answer := ARRAY(SELECT coalesce(answer[n], (SELECT j.id FROM holdfast.job j
                WHERE j.unique_key = (given[n]).unique_key AND j.kind = (given[n]).kind))
            FROM generate_subscripts(ids, 1) AS n ORDER BY n);
    END LOOP;
    IF todo <> '{}' THEN
        RAISE EXCEPTION 'a unique key changed hands ten times in a row' USING ERRCODE = 'serialization_failure';
    END IF;

    SELECT answer[n] INTO duplicate FROM generate_subscripts(ids, 1) AS n
    WHERE (given[n]).on_conflict = 'raise' AND answer[n] <> ids[n] LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a job with this unique key exists' USING ERRCODE = 'HF001', DETAIL = duplicate::text;
    END IF;

    -- The last one given wins. A replaced job keeps its id, its place and its order key, and starts again with no attempt used.
    -- What it comes after is replaced too; a debounced job keeps that with its payload.
    WITH changed AS (
        UPDATE holdfast.job j SET payload = g.payload, headers = g.headers, payload_version = g.payload_version,
            queue = coalesce(g.queue, 'default'), priority = coalesce(g.priority, 5), max_attempts = coalesce(g.max_attempts, 3),
            available_at = holdfast.due_at(g.at, g.delay_ms, clock), attempt = 0, last_error = NULL, last_error_code = NULL,
            expires_at = coalesce(g.expires_at, clock + g.expires_ms * interval '1 millisecond'),
            status = CASE WHEN cardinality(g.blockers) > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status,
            blockers_left = nullif(cardinality(g.blockers), 0), blocker_failed = NULL, run_anyway = nullif(g.run_anyway, false)
        FROM (SELECT DISTINCT ON (answer[n]) answer[n] AS id, n, (given[n]).* FROM generate_subscripts(ids, 1) AS n
              WHERE (given[n]).on_conflict = 'replace' AND answer[n] <> ids[n] ORDER BY answer[n], n DESC) AS g
        WHERE j.id = g.id AND j.status IN ('pending', 'blocked')
        RETURNING j.id, g.n
    )
    SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(n), '{}') INTO replaced, todo FROM changed;
    UPDATE holdfast.job j SET available_at = holdfast.due_at(g.at, g.delay_ms, clock),
        status = CASE WHEN j.blockers_left > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status
    FROM (SELECT DISTINCT ON (answer[n]) answer[n] AS id, (given[n]).* FROM generate_subscripts(ids, 1) AS n
          WHERE (given[n]).on_conflict = 'debounce' AND answer[n] <> ids[n] ORDER BY answer[n], n DESC) AS g
    WHERE j.id = g.id AND j.status IN ('pending', 'blocked');

    IF replaced <> '{}' THEN
        DELETE FROM holdfast.blocker WHERE job_id = ANY (replaced);
    END IF;
    IF EXISTS (SELECT FROM unnest(given) AS g WHERE cardinality(g.blockers) > 0) THEN
        PERFORM holdfast.name_blockers(array_agg(w.id), array_agg(b.chain_id), array_agg(b.ordinal::integer))
        FROM (SELECT ids[n] AS id, n FROM generate_subscripts(ids, 1) AS n WHERE ids[n] = ANY (fresh) AND ids[n] <> ALL (replaced)
              UNION ALL SELECT * FROM unnest(replaced, todo)) AS w,
            unnest((given[w.n]).blockers) WITH ORDINALITY AS b (chain_id, ordinal);
        PERFORM holdfast.refuse_circles(replaced);
    END IF;

    -- A job that goes on a chain is named by that chain.
    RETURN QUERY SELECT answer[n], coalesce((SELECT j.chain_id FROM holdfast.job j WHERE j.id = answer[n] AND answer[n] <> ids[n]), answer[n]),
        ids[n] = ANY (fresh) FROM generate_subscripts(ids, 1) AS n ORDER BY n;
END $$;

-- `jobs` is the text of a JSON array of objects whose keys are the fields of new_job. Answers in the order given.
CREATE FUNCTION holdfast.enqueue_jobs(jobs text) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
BEGIN
    IF strpos(jobs, '"unique_key"') > 0 OR strpos(jobs, '"blockers"') > 0 THEN
        RETURN QUERY SELECT * FROM holdfast.enqueue_unique_jobs(
            ARRAY(SELECT g FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json) AS g));
    ELSE
        RETURN QUERY
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
            order_seq, queue, kind, payload, headers, order_key)
        SELECT id, clock, holdfast.due_at(at, delay_ms, clock), coalesce(max_attempts, 3), coalesce(priority, 5),
            holdfast.shard_of(id, order_key), payload_version, nullif(order_block, false),
            coalesce(expires_at, clock + expires_ms * interval '1 millisecond'),
            CASE WHEN order_key IS NOT NULL THEN id END, coalesce(queue, 'default'), kind, payload, headers, order_key
        FROM (SELECT nextval('holdfast.job_id_seq') AS id, g.* FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json) AS g) AS g
        RETURNING job.id, job.id, true;
    END IF;
    -- A statement of its own, after the insert. Under load nobody sleeps, and this one look is all there is.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.sleeper WHERE until > now()) THEN
        PERFORM holdfast.wake_sleepers(array_agg(coalesce(queue, 'default')), array_agg(kind))
        FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json);
    END IF;
END $$;

-- Jobs, and one that comes after all their chains, and after those that it names itself: all of them or none, on a connection too that
-- commits every statement. Answers with that one, `last`, which is the text of a JSON object.
CREATE FUNCTION holdfast.enqueue_group(jobs text, last text, run_anyway boolean) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    final holdfast.new_job := json_populate_record(NULL::holdfast.new_job, last::json);
BEGIN
    final.blockers := final.blockers || ARRAY(
        SELECT e.chain_id FROM holdfast.enqueue_jobs(jobs) WITH ORDINALITY AS e (id, chain_id, created, place) ORDER BY e.place);
    final.run_anyway := enqueue_group.run_anyway;
    RETURN QUERY SELECT * FROM holdfast.enqueue_unique_jobs(ARRAY[final]);
    -- It may be due: the chains of jobs that were there already may have ended.
    PERFORM holdfast.wake_sleepers(ARRAY[coalesce(final.queue, 'default')], ARRAY[final.kind]);
END $$;

-- One job: what the library calls for a single one, and what psql, triggers and other languages may call:
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
    made bigint;
BEGIN
    IF unique_key IS NOT NULL OR blockers IS NOT NULL THEN
        SELECT u.id INTO made FROM holdfast.enqueue_unique_jobs(ARRAY[ROW (kind, payload, queue, priority, max_attempts, NULL,
            coalesce(at, clock + delay), NULL, coalesce(expires_at, clock + expires), order_key, order_block, unique_key,
            (extract(epoch FROM unique_window) * 1000)::bigint, on_conflict, headers, payload_version, blockers,
            run_anyway)::holdfast.new_job]) AS u;
    ELSE
        made := nextval('holdfast.job_id_seq');
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
            order_seq, queue, kind, payload, headers, order_key)
        VALUES (made, clock, greatest(coalesce(at, clock + delay), clock), max_attempts, priority, holdfast.shard_of(made, order_key),
            payload_version, nullif(order_block, false), coalesce(expires_at, clock + expires),
            CASE WHEN order_key IS NOT NULL THEN made END, queue, kind, payload, headers, order_key);
    END IF;
    -- A statement of its own, after the insert. Under load nobody sleeps, and this one look is all there is.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.sleeper WHERE until > now()) THEN
        PERFORM holdfast.wake_sleepers(ARRAY[queue], ARRAY[kind]);
    END IF;
    RETURN made;
END $$;
