-- Unique keys: of live jobs by an index of job, of windows of time by a table. A unique index decides, never a look before an insert.

-- Unique keys that hold for a window of time, whether or not the job is still live. Deleted an hour after their end, by that index. One
-- table without partitions, so that one index decides.
CREATE TABLE holdfast.unique_window (
    ends_at    timestamptz NOT NULL,
    job_id     bigint NOT NULL,
    unique_key text COLLATE "C" NOT NULL CHECK (octet_length(unique_key) BETWEEN 1 AND 500),
    kind       text COLLATE "C" NOT NULL,
    PRIMARY KEY (unique_key, kind, ends_at)
);
CREATE INDEX unique_window_ends_at ON holdfast.unique_window (ends_at);

-- Jobs of which some have a unique key, wait for other chains, have limits, a tenant, or a job for their failure. It never looks before it inserts: an index decides, then the losers look
-- up the winner. The data of the given jobs is in arrays of the same length, which one unnest joins, and `IN (SELECT unnest(...))` is a hash
-- where a join may not be one: the cost grows with the number of jobs, not with its square.
-- Called by enqueue_jobs, enqueue_group, enqueue, enqueue_on_failure.
CREATE FUNCTION holdfast.enqueue_unique_jobs(given holdfast.new_job[], group_id bigint DEFAULT NULL) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
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
    limited boolean;
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
    SELECT coalesce(bool_or(g.unique_window_ms IS NOT NULL), false), coalesce(bool_or(cardinality(g.blockers) > 0), false),
        coalesce(bool_or(g.limits IS NOT NULL OR g.tenant IS NOT NULL), false)
    INTO windowed, waiting, limited FROM unnest(given) AS g;
    IF limited THEN
        PERFORM holdfast.refuse(f.fault) FROM (SELECT holdfast.limits_fault(g.limits, g.tenant) AS fault FROM unnest(given) AS g) AS f WHERE f.fault IS NOT NULL;
    END IF;
    PERFORM holdfast.refuse(f.fault) FROM (
        SELECT holdfast.tags_fault(g.tags) AS fault FROM unnest(given) AS g WHERE g.tags IS NOT NULL) AS f WHERE f.fault IS NOT NULL;
    PERFORM holdfast.refuse(f.fault) FROM (
        SELECT holdfast.on_failure_fault(g.on_failure) AS fault FROM unnest(given) AS g WHERE g.on_failure IS NOT NULL) AS f WHERE f.fault IS NOT NULL;
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
                group_id, order_seq, queue, kind, payload, headers, order_key, unique_key, status, blockers_left, run_anyway, later, limits,
                on_failure, tenant, tags)
            SELECT g.id, clock, holdfast.due_at(at, delay_ms, clock), nullif(coalesce(max_attempts, 3), -1), coalesce(priority, 5),
                holdfast.shard_of(g.id, order_key), payload_version, nullif(order_block, false),
                coalesce(expires_at, clock + expires_ms * interval '1 millisecond'),
                enqueue_unique_jobs.group_id, CASE WHEN order_key IS NOT NULL THEN g.id END, coalesce(queue, 'default'), kind, payload, headers,
                order_key, CASE WHEN unique_window_ms IS NULL THEN unique_key END,
                CASE WHEN cardinality(blockers) > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status,
                nullif(cardinality(blockers), 0), nullif(run_anyway, false), holdfast.is_later(at, delay_ms, clock), limits, on_failure, tenant, tags
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
            -- A running job, or a story that has begun, cannot take a new payload or time, and a job that will not run must not swallow the new one: it gives up its
            -- key, and the next round inserts its successor.
            UPDATE holdfast.job j SET unique_key = NULL
            FROM (SELECT g.unique_key, g.kind, bool_or(g.on_conflict IN ('replace', 'debounce')) AS changes
                  FROM unnest(answers, given) AS g (answer) WHERE g.answer IS NULL GROUP BY 1, 2) AS g
            WHERE j.unique_key = g.unique_key AND j.kind = g.kind AND j.id NOT IN (SELECT unnest(ids))
                AND (g.changes AND (j.status = 'processing' OR j.steps) OR holdfast.is_doomed(j, clock));
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

        IF limited THEN
            PERFORM holdfast.pass_promotion(ARRAY(
                SELECT g.answer FROM unnest(ids, answers, given) AS g (id, answer)
                WHERE g.on_conflict IN ('replace', 'debounce') AND g.answer <> g.id));
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
                blockers_left = nullif(cardinality(g.blockers), 0), blocker_failed = NULL, run_anyway = nullif(g.run_anyway, false),
                limits = g.limits, limit_key = NULL, on_failure = g.on_failure, tenant = g.tenant, tags = g.tags
            FROM (SELECT DISTINCT ON (g.answer) g.* FROM unnest(ids, answers, given) WITH ORDINALITY AS g (id, answer)
                  WHERE g.on_conflict = 'replace' AND g.answer <> g.id ORDER BY g.answer, g.ordinality DESC) AS g
            WHERE j.id = g.answer AND j.status IN ('pending', 'blocked')
            RETURNING j.id, g.ordinality
        )
        SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(ordinality), '{}') INTO replaced, replacing FROM changed;
        UPDATE holdfast.job j SET available_at = holdfast.due_at(g.at, g.delay_ms, clock), later = holdfast.is_later(g.at, g.delay_ms, clock),
            status = CASE WHEN j.blockers_left > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status, limit_key = NULL
        FROM (SELECT DISTINCT ON (g.answer) g.* FROM unnest(ids, answers, given) WITH ORDINALITY AS g (id, answer)
              WHERE g.on_conflict = 'debounce' AND g.answer <> g.id ORDER BY g.answer, g.ordinality DESC) AS g
        WHERE j.id = g.answer AND j.status IN ('pending', 'blocked');
        IF replaced <> '{}' THEN
            DELETE FROM holdfast.blocker WHERE job_id = ANY (replaced);
            -- It has no unique key while a group is enqueued with it, but a job that follows in a chain may.
            DELETE FROM holdfast.group_part p WHERE p.group_id = ANY (replaced);
            DELETE FROM holdfast.group_entry e WHERE e.group_id = ANY (replaced);
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
