-- Moving unfinished jobs to another database, exactly once, without a two-phase commit: a batch departs here in one transaction, arrives there
-- in another, and is marked here in a third. Whatever is interrupted in between is repeated, and the destination recognizes a batch that
-- it has. Claims, finishes and enqueues have no part in it.

-- One row per batch that has left this database: the jobs are in `body` until the destination has them. Delivered in the order of `seq`, so
-- that the jobs of an order key arrive in their order.
CREATE TABLE holdfast.departure (
    id          uuid PRIMARY KEY,               -- random: after a restore of this database, no other batch has it
    seq         bigint GENERATED ALWAYS AS IDENTITY,
    departed_at timestamptz NOT NULL,
    arrived_at  timestamptz,
    destination uuid NOT NULL,                  -- the identity of its schema
    place       text NOT NULL CHECK (octet_length(place) BETWEEN 1 AND 200),       -- what operators call it
    job_ids     bigint[] NOT NULL,
    body        json,                           -- null once it has arrived
    needed_at   timestamptz                     -- when maintenance last found a job that waits for a chain of this batch
);
CREATE INDEX departure_pending ON holdfast.departure (destination, seq) WHERE arrived_at IS NULL;
CREATE INDEX departure_arrived ON holdfast.departure ((coalesce(needed_at, arrived_at))) WHERE arrived_at IS NOT NULL;

-- One row per job that has left: where it is now.
CREATE TABLE holdfast.moved (
    job_id       bigint PRIMARY KEY,
    chain_id     bigint,                        -- as in job; null: it is the first of its chain
    new_id       bigint,                        -- null: it has not arrived
    new_chain_id bigint,
    departure    uuid NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX moved_chain ON holdfast.moved (chain_id) WHERE chain_id IS NOT NULL;

-- One row per batch that has come from another database, or that was refused and must never arrive. Kept until the source has marked it
-- (`confirmed_at`), and then for 14 days.
CREATE TABLE holdfast.arrival (
    departure    uuid PRIMARY KEY,
    source       uuid NOT NULL,                 -- the identity of its schema
    arrived_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    confirmed_at timestamptz,
    refused      boolean NOT NULL DEFAULT false,
    job_ids      bigint[],                      -- there
    new_ids      bigint[],                      -- here: of a duplicate, the job that has its unique key
    chain_ids    bigint[],                      -- here
    made         boolean[]                      -- false: a duplicate
);
CREATE INDEX arrival_confirmed ON holdfast.arrival (confirmed_at, source);

-- The ends of chains that ended in another database before jobs that came after them moved here. Their ids are of this database, and no
-- job has them. Kept as long as dead letters, whose replays need them.
CREATE TABLE holdfast.arrived_end (
    chain_id   bigint PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    status     holdfast.status NOT NULL,
    result     json,
    error_code text,
    error      text
);
CREATE INDEX arrived_end_at ON holdfast.arrived_end (at);

-- With `moved_to`, jobs of this key have moved to that database, and those that are still here, or come later, follow them: none may run here
-- before those there. `job_id` is then 0, and `place` what operators call the database.
ALTER TABLE holdfast.order_stop ADD COLUMN moved_to uuid, ADD COLUMN place text;

-- The chain at the destination that continues one of ours; null: none of its jobs has arrived there.
CREATE FUNCTION holdfast.arrived_chain(chain bigint, given_destination uuid) RETURNS bigint
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT u.new_chain_id FROM (
        SELECT m.job_id, m.new_chain_id, m.departure FROM holdfast.moved m WHERE m.job_id = chain AND m.chain_id IS NULL
        UNION ALL SELECT m.job_id, m.new_chain_id, m.departure FROM holdfast.moved m WHERE m.chain_id = chain) AS u
        JOIN holdfast.departure d ON d.id = u.departure AND d.destination = given_destination
    WHERE u.new_chain_id IS NOT NULL ORDER BY u.job_id DESC LIMIT 1 $$;

-- Those of these jobs that cannot leave now: they wait for a chain that has not ended and is not at the destination, or another job of their
-- own chain is here or under way.
CREATE FUNCTION holdfast.staying_jobs(ids bigint[], given_destination uuid) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
BEGIN
    RETURN ARRAY(SELECT j.id FROM holdfast.job j
        WHERE j.id = ANY (ids) AND (j.blockers_left IS NOT NULL OR j.chain_id IS NOT NULL)
            AND (EXISTS (SELECT FROM holdfast.blocker b WHERE b.job_id = j.id AND b.status IS NULL
                    AND (holdfast.arrived_chain(b.chain_id, given_destination) IS NULL
                        OR EXISTS (SELECT FROM holdfast.job c WHERE c.id = b.chain_id AND c.chain_id IS NULL)
                        OR EXISTS (SELECT FROM holdfast.job c WHERE c.chain_id = b.chain_id)))
                OR EXISTS (SELECT FROM holdfast.job o WHERE o.chain_id = j.chain_id AND o.id < j.id)
                OR EXISTS (SELECT FROM holdfast.moved m WHERE m.chain_id = j.chain_id AND m.new_id IS NULL)
                OR EXISTS (SELECT FROM holdfast.moved m WHERE m.job_id = j.chain_id AND m.new_id IS NULL)));
END $$;

-- The first jobs of an order key, locked, up to the first that cannot leave. None while one of them runs, or while the key is stopped. The
-- caller has the key's lock: no job of it is claimed or ends meanwhile.
CREATE FUNCTION holdfast.lock_first_of_key(key text, most integer, given_destination uuid) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    firsts bigint[];
    locked bigint[];
    staying bigint[];
    stays integer;
BEGIN
    IF EXISTS (SELECT FROM holdfast.job j WHERE j.order_key = key AND j.status = 'processing')
        OR EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = key
            AND (s.job_id <> 0 OR s.moved_to IS DISTINCT FROM given_destination))
    THEN
        RETURN '{}';
    END IF;
    firsts := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.order_key = key ORDER BY j.order_seq, j.id LIMIT most);
    locked := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id = ANY (firsts) AND j.status IN ('pending', 'blocked')
        ORDER BY j.id FOR UPDATE SKIP LOCKED);
    staying := holdfast.staying_jobs(locked, given_destination);
    stays := (SELECT min(f.place) FROM unnest(firsts) WITH ORDINALITY AS f (id, place)
        WHERE f.id NOT IN (SELECT unnest(locked)) OR f.id IN (SELECT unnest(staying)));
    RETURN coalesce(firsts[:stays - 1], firsts);
END $$;

-- A commit that another database relies on must survive a crash of this server.
CREATE FUNCTION holdfast.commit_durably() RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE FUNCTION holdfast.names_fault(name text, given text[]) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN array_position(given, NULL) IS NOT NULL THEN format('%s: names expected, got null', name)
        WHEN cardinality(given) > 1000 THEN format('%s: at most 1000 names expected, got %s', name, cardinality(given)) END;

-- Takes a batch of waiting jobs out of this database. At most `most` jobs with ids above `since`, up to `last`, of these queues and kinds (null:
-- all); of an order key the first ones, whatever their queue and kind. Returns how many left, and the id after which to continue. A call
-- looks at no more than 20000 jobs, takes about 8 MB of payloads, and locks no more than 100 order keys. Never waits for a job that is
-- locked. SECURITY DEFINER: an operator may move jobs and cannot write these tables otherwise.
CREATE FUNCTION holdfast.depart_jobs(destination uuid, place text, queues text[], kinds text[], since bigint, last bigint, most integer,
        OUT jobs integer, OUT until bigint)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    batch uuid := gen_random_uuid();
    met bigint[];
    matching integer;
    cut bigint;
    key record;
    taken bigint[];
    fault text := CASE WHEN destination IS NULL THEN 'destination: the identity of a database expected, got null'
        WHEN EXISTS (SELECT FROM holdfast.identity i WHERE i.id = destination) THEN 'destination: another database expected, got this one'
        WHEN place IS NULL THEN 'place: 1 to 200 bytes of text expected, got null'
        WHEN since IS NULL OR last IS NULL THEN 'since, last: ids expected, got null'
        WHEN most IS NULL OR most NOT BETWEEN 1 AND 10000 THEN format('most: 1 to 10000 expected, got %s', coalesce(most::text, 'null'))
        ELSE coalesce(holdfast.text_fault('place', place, 200), holdfast.names_fault('queues', queues), holdfast.names_fault('kinds', kinds)) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    PERFORM holdfast.commit_durably();
    jobs := 0;
    SELECT coalesce(array_agg(w.id ORDER BY w.id) FILTER (WHERE w.before < 8000000), '{}'), count(*) INTO met, matching FROM (
        SELECT f.id, coalesce(sum(f.size) OVER (ORDER BY f.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM (
            SELECT l.id, l.size FROM (
                SELECT j.id, j.status, j.queue, j.kind, coalesce(pg_column_size(j.payload), 0) AS size FROM holdfast.job j
                WHERE j.id > since AND j.id <= last ORDER BY j.id LIMIT 20000) AS l
            WHERE l.status IN ('pending', 'blocked') AND (queues IS NULL OR l.queue = ANY (queues)) AND (kinds IS NULL OR l.kind = ANY (kinds))
            ORDER BY l.id LIMIT most) AS f) AS w;
    IF matching = most OR cardinality(met) < matching THEN
        until := met[cardinality(met)];
    ELSE
        until := (SELECT CASE WHEN count(*) < 20000 THEN last ELSE max(l.id) END
            FROM (SELECT j.id FROM holdfast.job j WHERE j.id > since AND j.id <= last ORDER BY j.id LIMIT 20000) AS l);
    END IF;
    -- Advisory locks fill a table that all sessions share.
    cut := (SELECT min(j.id) AS first FROM holdfast.job j WHERE j.id = ANY (met) AND j.order_key IS NOT NULL GROUP BY j.order_key
        ORDER BY first OFFSET 100 LIMIT 1);
    IF cut IS NOT NULL THEN
        until := cut - 1;
        met := ARRAY(SELECT m FROM unnest(met) AS m WHERE m < cut);
    END IF;

    taken := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id = ANY (met) AND j.order_key IS NULL AND j.status IN ('pending', 'blocked')
        ORDER BY j.id FOR UPDATE SKIP LOCKED);
    taken := ARRAY(SELECT unnest(taken) EXCEPT SELECT unnest(holdfast.staying_jobs(taken, destination)));
    FOR key IN
        SELECT j.order_key AS name, count(*)::integer AS jobs FROM holdfast.job j WHERE j.id = ANY (met) AND j.order_key IS NOT NULL
        GROUP BY j.order_key ORDER BY j.order_key
    LOOP
        IF pg_try_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(key.name)) THEN
            taken := taken || holdfast.lock_first_of_key(key.name, key.jobs, destination);
        END IF;
    END LOOP;
    jobs := cardinality(taken);
    IF jobs = 0 THEN
        RETURN;
    END IF;

    WITH gone AS (DELETE FROM holdfast.job j WHERE j.id = ANY (taken) RETURNING j.*),
    noted AS (INSERT INTO holdfast.moved (job_id, chain_id, departure) SELECT g.id, g.chain_id, batch FROM gone g),
    held AS (
        INSERT INTO holdfast.order_stop (order_key, job_id, stopped_at, moved_to, place)
        SELECT DISTINCT g.order_key, 0, clock, destination, depart_jobs.place FROM gone g WHERE g.order_key IS NOT NULL
        ON CONFLICT (order_key) DO UPDATE SET stopped_at = excluded.stopped_at, place = excluded.place)
    INSERT INTO holdfast.departure (id, departed_at, destination, place, job_ids, body)
    SELECT batch, clock, destination, place, array_agg(g.id), json_agg(json_build_object(
        'job', (SELECT row_to_json(r) FROM (SELECT g.id, g.created_at, g.available_at, g.status, g.attempt, g.max_attempts, g.priority,
            g.payload_version, g.order_block, g.suspect, g.expires_at, g.cancel_requested_at, g.chain_id, g.replay_of, g.order_seq, g.queue,
            g.kind, g.payload, g.headers, g.order_key, g.unique_key, g.last_error_code, g.last_error, g.blockers_left, g.blocker_failed,
            g.run_anyway) AS r),
        'chain', CASE WHEN g.chain_id IS NOT NULL THEN holdfast.arrived_chain(g.chain_id, destination) END,
        'blockers', CASE WHEN g.blockers_left IS NOT NULL THEN (
            SELECT json_agg(json_build_object('chain', b.chain_id, 'ordinal', b.ordinal, 'status', b.status, 'result', b.result,
                'error_code', b.error_code, 'error', b.error,
                'to', CASE WHEN b.status IS NULL THEN holdfast.arrived_chain(b.chain_id, destination) END))
            FROM holdfast.blocker b WHERE b.job_id = g.id) END)
        ORDER BY g.available_at, g.id)
    FROM gone g;
    DELETE FROM holdfast.blocker b WHERE b.job_id = ANY (taken);
END $$;

-- The headers of a job that arrives. One of them says where it was enqueued and as which job, so that its idempotency key stays the same; it
-- ends with the job's id here, because a job that continues a chain inherits headers and has a key of its own.
CREATE FUNCTION holdfast.moved_headers(headers json, source uuid, old_id bigint, new_id bigint) RETURNS json
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT (coalesce(headers::jsonb, '{}') || jsonb_build_object('holdfast-origin',
        CASE WHEN split_part(headers ->> 'holdfast-origin', ':', 3) = old_id::text
            THEN split_part(headers ->> 'holdfast-origin', ':', 1) || ':' || split_part(headers ->> 'holdfast-origin', ':', 2)
            ELSE replace(source::text, '-', '') || ':' || old_id END || ':' || new_id))::json $$;

-- Jobs that wait for these chains have their blockers stored. A chain is either kept alive or has ended: one that is seen in neither state
-- continued between two statements, and is searched for again. A chain that has moved to another database is waited for until the job follows.
-- `known`: refuse a chain that is not found, instead of ending the wait for it.
CREATE FUNCTION holdfast.await_chains(jobs bigint[], chains bigint[], known boolean) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    open bigint[] := ARRAY(SELECT DISTINCT c FROM unnest(chains) AS c);
    ends holdfast.chain_end[];
    unknown bigint;
BEGIN
    FOR round IN 1..100 LOOP
        open := ARRAY(SELECT unnest(open) EXCEPT SELECT unnest(holdfast.hold_chains(open, true)));
        EXIT WHEN open = '{}';
        ends := ARRAY(SELECT e FROM holdfast.chain_ends(open) AS e);
        open := ARRAY(SELECT unnest(open) EXCEPT SELECT e.chain_id FROM unnest(ends) AS e);
        ends := ARRAY(SELECT e FROM unnest(ends) AS e WHERE e.status IS NOT NULL OR e.error_code IS DISTINCT FROM 'moved');
        SELECT min(e.chain_id) INTO unknown FROM unnest(ends) AS e WHERE e.status IS NULL;
        IF unknown IS NOT NULL AND known THEN
            RAISE EXCEPTION 'there is no chain %: it was deleted, or ended too long ago', unknown USING ERRCODE = 'HF002';
        END IF;
        PERFORM holdfast.update_waiters(jobs, ends);
        EXIT WHEN open = '{}';
    END LOOP;
    IF open <> '{}' THEN
        RAISE EXCEPTION 'chain % continued a hundred times in a row', open[1] USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- Stores a batch that has left the database `source`: once, however often it is delivered. Returns what became of each job, now or the
-- first time; refused: it was called back before it arrived. As an enqueue here would do, a job whose unique key a live one has is a
-- duplicate of that. Moved jobs come before all others of their order key: they were enqueued before their key had another place.
CREATE FUNCTION holdfast.arrive_jobs(departure uuid, source uuid, body text,
        OUT refused boolean, OUT job_ids bigint[], OUT new_ids bigint[], OUT chain_ids bigint[], OUT made boolean[])
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    given holdfast.job[];
    chains bigint[];
    blockers json[];
    ids bigint[];
    answers bigint[];
    stored bigint[];
    waiting bigint[];
    fault text := CASE WHEN departure IS NULL THEN 'departure: the id of a batch expected, got null'
        WHEN source IS NULL THEN 'source: the identity of a database expected, got null'
        WHEN EXISTS (SELECT FROM holdfast.identity i WHERE i.id = source) THEN 'source: another database expected, got this one'
        WHEN left(body, 1) IS DISTINCT FROM '[' THEN 'body: the text of a JSON array expected, got something else' END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    PERFORM holdfast.commit_durably();
    INSERT INTO holdfast.arrival (departure, source, arrived_at) VALUES (arrive_jobs.departure, arrive_jobs.source, clock) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT a.refused, a.job_ids, a.new_ids, a.chain_ids, a.made INTO refused, job_ids, new_ids, chain_ids, made
        FROM holdfast.arrival a WHERE a.departure = arrive_jobs.departure;
        RETURN;
    END IF;

    SELECT array_agg(json_populate_record(NULL::holdfast.job, e.item -> 'job') ORDER BY e.place),
        array_agg((e.item ->> 'chain')::bigint ORDER BY e.place), array_agg(e.item -> 'blockers' ORDER BY e.place)
    INTO given, chains, blockers FROM json_array_elements(body::json) WITH ORDINALITY AS e (item, place);
    ids := ARRAY(SELECT nextval('holdfast.job_id_seq') FROM generate_series(1, cardinality(given)));
    answers := array_fill(NULL::bigint, ARRAY[cardinality(given)]);
    FOR round IN 1..10 LOOP
        -- Sorted, so that two transactions wait for each other in one direction only.
        WITH inserted AS (
            INSERT INTO holdfast.job (id, created_at, available_at, status, attempt, max_attempts, priority, shard, payload_version, order_block,
                suspect, later, expires_at, cancel_requested_at, chain_id, order_seq, queue, kind, payload, headers, order_key, unique_key,
                last_error_code, last_error, blockers_left, blocker_failed, run_anyway)
            SELECT g.new_id, g.created_at, greatest(g.available_at, clock),
                CASE WHEN g.blockers_left > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status, g.attempt, g.max_attempts, g.priority,
                holdfast.shard_of(g.new_id, g.order_key), g.payload_version, g.order_block, g.suspect,
                CASE WHEN g.suspect IS NULL THEN holdfast.is_later(g.available_at, NULL, clock) END, g.expires_at, g.cancel_requested_at,
                g.new_chain, g.order_seq - (1::bigint << 50), g.queue, g.kind, g.payload,
                holdfast.moved_headers(g.headers, arrive_jobs.source, g.id, g.new_id), g.order_key, g.unique_key, g.last_error_code, g.last_error,
                g.blockers_left, g.blocker_failed, g.run_anyway
            FROM unnest(ids, answers, chains, given) WITH ORDINALITY AS g (new_id, answer, new_chain) WHERE g.answer IS NULL
            ORDER BY g.unique_key, g.kind, g.ordinality
            ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING RETURNING job.id)
        SELECT coalesce(array_agg(id), '{}') INTO stored FROM inserted;
        IF cardinality(stored) = cardinality(ids) THEN
            answers := ids;
        ELSE
            answers := ARRAY(SELECT CASE WHEN g.id IN (SELECT unnest(stored)) THEN g.id ELSE g.answer END
                FROM unnest(ids, answers) WITH ORDINALITY AS g (id, answer, place) ORDER BY g.place);
        END IF;
        EXIT WHEN array_position(answers, NULL) IS NULL;
        -- A job that will not run gives up its key, and the next round inserts its successor.
        UPDATE holdfast.job j SET unique_key = NULL FROM unnest(answers, given) AS g (answer)
        WHERE g.answer IS NULL AND j.unique_key = g.unique_key AND j.kind = g.kind AND holdfast.is_doomed(j, clock);
        answers := ARRAY(SELECT coalesce(g.answer, (SELECT j.id FROM holdfast.job j WHERE j.unique_key = g.unique_key AND j.kind = g.kind))
            FROM unnest(answers, given) WITH ORDINALITY AS g (answer) ORDER BY g.ordinality);
        EXIT WHEN array_position(answers, NULL) IS NULL;
    END LOOP;
    IF array_position(answers, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'the holder of a unique key changed ten times in a row' USING ERRCODE = 'serialization_failure';
    END IF;

    waiting := ARRAY(SELECT g.new_id FROM unnest(ids, answers, given) AS g (new_id, answer) WHERE g.answer = g.new_id AND g.blockers_left IS NOT NULL);
    IF waiting <> '{}' THEN
        WITH named AS MATERIALIZED (
            SELECT w.id AS job_id, coalesce(b.to, nextval('holdfast.job_id_seq')) AS chain, b.* FROM unnest(ids, blockers) AS w (id, blockers),
                LATERAL json_to_recordset(w.blockers) AS b ("to" bigint, ordinal integer, status holdfast.status, result json, error_code text, error text)
            WHERE w.id IN (SELECT unnest(waiting))),
        ended AS (
            INSERT INTO holdfast.arrived_end (chain_id, at, status, result, error_code, error)
            SELECT n.chain, clock, n.status, n.result, n.error_code, n.error FROM named n WHERE n.status IS NOT NULL)
        INSERT INTO holdfast.blocker (job_id, chain_id, ordinal, status, result, error_code, error)
        SELECT n.job_id, n.chain, n.ordinal, n.status, n.result, n.error_code, n.error FROM named n;
        PERFORM holdfast.await_chains(waiting, array_agg(b.chain_id), false) FROM holdfast.blocker b
        WHERE b.job_id = ANY (waiting) AND b.status IS NULL HAVING count(*) > 0;
    END IF;

    refused := false;
    SELECT array_agg(g.id ORDER BY g.ordinality), array_agg(g.answer = g.new_id ORDER BY g.ordinality),
        array_agg(CASE WHEN g.answer = g.new_id THEN coalesce(g.new_chain, g.new_id)
            ELSE coalesce((SELECT j.chain_id FROM holdfast.job j WHERE j.id = g.answer), g.answer) END ORDER BY g.ordinality)
    INTO job_ids, made, chain_ids FROM unnest(ids, answers, chains, given) WITH ORDINALITY AS g (new_id, answer, new_chain);
    new_ids := answers;
    UPDATE holdfast.arrival a SET job_ids = arrive_jobs.job_ids, new_ids = answers, chain_ids = arrive_jobs.chain_ids, made = arrive_jobs.made
    WHERE a.departure = arrive_jobs.departure;
    -- A statement of its own, after the insert, as in enqueue_jobs.
    IF EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock) THEN
        PERFORM holdfast.wake_sleepers(array_agg(g.queue), array_agg(g.kind)) FROM unnest(given) AS g;
    END IF;
END $$;

-- Decides that a batch will not arrive here, unless it has: then returns what became of each job.
CREATE FUNCTION holdfast.refuse_arrival(departure uuid, source uuid,
        OUT refused boolean, OUT job_ids bigint[], OUT new_ids bigint[], OUT chain_ids bigint[], OUT made boolean[])
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF departure IS NULL OR source IS NULL THEN
        PERFORM holdfast.refuse('departure, source: ids expected, got null');
    END IF;
    PERFORM holdfast.need_read_committed();
    PERFORM holdfast.commit_durably();
    INSERT INTO holdfast.arrival (departure, source, refused) VALUES (refuse_arrival.departure, refuse_arrival.source, true)
    ON CONFLICT DO NOTHING;
    SELECT a.refused, a.job_ids, a.new_ids, a.chain_ids, a.made INTO refused, job_ids, new_ids, chain_ids, made
    FROM holdfast.arrival a WHERE a.departure = refuse_arrival.departure;
END $$;

-- The destination has this batch. False: that was known.
CREATE FUNCTION holdfast.mark_arrived(departure uuid, ids bigint[], new_ids bigint[], chains bigint[]) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    fault text := CASE WHEN departure IS NULL THEN 'departure: the id of a batch expected, got null'
        ELSE coalesce(holdfast.ids_fault('ids', ids, 10000), holdfast.ids_fault('new_ids', new_ids, 10000),
            holdfast.ids_fault('chains', chains, 10000)) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    UPDATE holdfast.departure d SET arrived_at = clock_timestamp(), body = NULL WHERE d.id = mark_arrived.departure AND d.arrived_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE holdfast.moved m SET new_id = g.new_id, new_chain_id = g.chain_id
    FROM unnest(ids, new_ids, chains) AS g (id, new_id, chain_id)
    WHERE m.job_id = ANY (ids) AND m.job_id = g.id AND m.departure = mark_arrived.departure;
    IF EXISTS (SELECT FROM holdfast.watcher WHERE until > now()) THEN
        PERFORM holdfast.notify_watchers(array_agg(m.chain), array_agg('ended ' || m.chain))
        FROM (SELECT coalesce(m.chain_id, m.job_id) AS chain FROM holdfast.moved m WHERE m.job_id = ANY (ids)) AS m;
    END IF;
    RETURN true;
END $$;

-- Takes back a batch that the destination has refused: its jobs are live again, with the ids that they had. Returns how many; a job whose
-- unique key a live one has by now is a duplicate of that. Their order keys stay stopped until they are released.
CREATE FUNCTION holdfast.call_back_jobs(departure uuid, OUT jobs integer, OUT duplicates integer)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    items json;
    ids bigint[];
    back bigint[];
BEGIN
    IF departure IS NULL THEN
        PERFORM holdfast.refuse('departure: the id of a batch expected, got null');
    END IF;
    PERFORM holdfast.need_read_committed();
    DELETE FROM holdfast.departure d WHERE d.id = call_back_jobs.departure AND d.arrived_at IS NULL RETURNING d.body, d.job_ids INTO items, ids;
    IF NOT FOUND THEN
        jobs := 0;
        duplicates := 0;
        RETURN;
    END IF;
    DELETE FROM holdfast.moved m WHERE m.job_id = ANY (ids) AND m.departure = call_back_jobs.departure;
    WITH inserted AS (
        INSERT INTO holdfast.job (id, created_at, available_at, status, attempt, max_attempts, priority, shard, payload_version, order_block,
            suspect, later, expires_at, cancel_requested_at, chain_id, replay_of, order_seq, queue, kind, payload, headers, order_key, unique_key,
            last_error_code, last_error, blockers_left, blocker_failed, run_anyway, awaited)
        SELECT g.id, g.created_at, greatest(g.available_at, clock),
            CASE WHEN g.blockers_left > 0 THEN 'blocked' ELSE 'pending' END::holdfast.status, g.attempt, g.max_attempts, g.priority,
            holdfast.shard_of(g.id, g.order_key), g.payload_version, g.order_block, g.suspect,
            CASE WHEN g.suspect IS NULL THEN holdfast.is_later(g.available_at, NULL, clock) END, g.expires_at, g.cancel_requested_at,
            g.chain_id, g.replay_of, g.order_seq, g.queue, g.kind, g.payload, g.headers, g.order_key, g.unique_key, g.last_error_code,
            g.last_error, g.blockers_left, g.blocker_failed, g.run_anyway,
            CASE WHEN EXISTS (SELECT FROM holdfast.blocker b WHERE b.chain_id = coalesce(g.chain_id, g.id) AND b.status IS NULL) THEN true END
        FROM json_array_elements(items) AS e (item), json_populate_record(NULL::holdfast.job, e.item -> 'job') AS g
        ORDER BY g.unique_key, g.kind, g.id
        ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING RETURNING job.id)
    SELECT coalesce(array_agg(id), '{}') INTO back FROM inserted;
    INSERT INTO holdfast.blocker (job_id, chain_id, ordinal, status, result, error_code, error)
    SELECT (e.item -> 'job' ->> 'id')::bigint, b.chain, b.ordinal, b.status, b.result, b.error_code, b.error
    FROM json_array_elements(items) AS e (item),
        LATERAL json_to_recordset(CASE json_typeof(e.item -> 'blockers') WHEN 'array' THEN e.item -> 'blockers' ELSE '[]' END)
            AS b (chain bigint, ordinal integer, status holdfast.status, result json, error_code text, error text)
    WHERE (e.item -> 'job' ->> 'id')::bigint = ANY (back);
    jobs := cardinality(back);
    duplicates := cardinality(ids) - jobs;
    PERFORM holdfast.wake_sleepers(array_agg(j.queue), array_agg(j.kind)) FROM holdfast.job j
    WHERE j.id = ANY (back) AND j.status = 'pending' HAVING count(*) > 0;
END $$;

-- The source has marked these batches as arrived, or taken them back: no mover delivers them again.
CREATE FUNCTION holdfast.confirm_arrivals(departures uuid[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF departures IS NULL OR array_position(departures, NULL) IS NOT NULL OR cardinality(departures) > 10000 THEN
        PERFORM holdfast.refuse('departures: the ids of at most 10000 batches expected, got null or more');
    END IF;
    UPDATE holdfast.arrival SET confirmed_at = clock_timestamp() WHERE departure = ANY (departures) AND confirmed_at IS NULL;
END $$;

-- Replaces the function of 0006_control.sql: it ends the stop by a failed job, and not the hold of a move.
CREATE OR REPLACE FUNCTION holdfast.resume_order_key(key text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    stopped boolean;
    fault text := CASE WHEN key IS NULL THEN 'key: 1 to 500 bytes of text expected, got null' ELSE holdfast.text_fault('key', key, 500) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(key));
    DELETE FROM holdfast.order_stop WHERE order_key = key AND job_id <> 0;
    stopped := FOUND;
    IF EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = key) THEN
        RETURN stopped;
    END IF;
    UPDATE holdfast.job SET status = 'pending', available_at = greatest(available_at, clock_timestamp()),
        later = holdfast.is_later(available_at, NULL, clock_timestamp())
    WHERE status = 'blocked' AND (blockers_left > 0) IS NOT TRUE
        AND id = (SELECT j.id FROM holdfast.job j WHERE j.order_key = key ORDER BY j.order_seq, j.id LIMIT 1);
    PERFORM holdfast.wake_sleepers(ARRAY[j.queue], ARRAY[j.kind]) FROM holdfast.job j
    WHERE j.order_key = key AND j.status = 'pending' ORDER BY j.order_seq, j.id LIMIT 1;
    RETURN stopped;
END $$;

-- Lets jobs of a key run here again, if no more of them have left since `stopped`: the destination says that those it got have ended.
CREATE FUNCTION holdfast.release_key(key text, stopped timestamptz) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    fault text := CASE WHEN key IS NULL THEN 'key: 1 to 500 bytes of text expected, got null'
        WHEN stopped IS NULL THEN 'stopped: a time expected, got null'
        ELSE coalesce(holdfast.text_fault('key', key, 500), holdfast.time_fault('stopped', stopped)) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(key));
    DELETE FROM holdfast.order_stop s WHERE s.order_key = key AND s.moved_to IS NOT NULL AND s.job_id = 0 AND s.stopped_at = stopped
        AND NOT EXISTS (SELECT FROM holdfast.departure d WHERE d.destination = s.moved_to AND d.arrived_at IS NULL);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM holdfast.resume_order_key(key);
    RETURN true;
END $$;

-- For maintenance: deletes records that are no longer needed. Without the record of a chain that has moved, jobs here that wait for it would
-- fail; a batch with one is looked at again after 14 days. SECURITY DEFINER: a worker deletes only rows that are old.
CREATE FUNCTION holdfast.delete_moved(most integer) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    ids bigint[];
    batches uuid[];
    deleted integer;
    in_all integer := 0;
BEGIN
    batches := ARRAY(SELECT d.id FROM holdfast.departure d
        WHERE d.arrived_at IS NOT NULL AND coalesce(d.needed_at, d.arrived_at) < now() - interval '14 days'
        ORDER BY coalesce(d.needed_at, d.arrived_at) LIMIT greatest(most / 500, 1) FOR UPDATE SKIP LOCKED);
    IF batches <> '{}' THEN
        WITH needed AS (
            UPDATE holdfast.departure d SET needed_at = now() WHERE d.id = ANY (batches) AND EXISTS (
                SELECT FROM unnest(d.job_ids) AS i (id) JOIN holdfast.moved m ON m.job_id = i.id AND m.departure = d.id
                    JOIN holdfast.blocker b ON b.chain_id = coalesce(m.chain_id, m.job_id) AND b.status IS NULL)
            RETURNING d.id)
        SELECT array_agg(d.id), array_agg(i.id) INTO batches, ids FROM holdfast.departure d, LATERAL unnest(d.job_ids) AS i (id)
        WHERE d.id = ANY (batches) AND d.id NOT IN (SELECT n.id FROM needed n);
        DELETE FROM holdfast.moved m WHERE m.job_id = ANY (ids) AND m.departure = ANY (batches);
        GET DIAGNOSTICS in_all = ROW_COUNT;
        DELETE FROM holdfast.departure d WHERE d.id = ANY (batches);
    END IF;
    DELETE FROM holdfast.arrival a WHERE a.departure = ANY (ARRAY(
        SELECT o.departure FROM holdfast.arrival o WHERE o.confirmed_at < now() - interval '14 days' ORDER BY o.confirmed_at LIMIT most));
    GET DIAGNOSTICS deleted = ROW_COUNT;
    in_all := in_all + deleted;
    DELETE FROM holdfast.arrived_end e WHERE e.chain_id = ANY (ARRAY(
        SELECT o.chain_id FROM holdfast.arrived_end o
        WHERE o.at < now() - (SELECT r.keep FROM holdfast.retention r WHERE r.family = 'job_failed') ORDER BY o.at LIMIT most));
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN in_all + deleted;
END $$;

-- Replaces the function of 0008_blockers.sql. A chain that ended in another database before jobs that came after it moved here has its end in
-- arrived_end. A chain that has moved to another database has no status and the error code `moved`, with the place as its error and the
-- chain's id there in place of the job's; null: it has not arrived.
CREATE OR REPLACE FUNCTION holdfast.chain_ends(chains bigint[]) RETURNS SETOF holdfast.chain_end
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    open bigint[] := ARRAY(SELECT c FROM (SELECT DISTINCT given AS c FROM unnest(chains) AS given) AS d
        WHERE NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = c AND j.chain_id IS NULL)
          AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.chain_id = c));
    spans tstzrange[] := ARRAY[holdfast.todays_span()];
    n integer := 1;
    found holdfast.chain_end[];
BEGIN
    WHILE n <= cardinality(spans) AND open <> '{}' LOOP
        found := '{}';
        BEGIN
            EXECUTE format($look$
                SELECT coalesce(array_agg(ROW (c.id, e.id, e.status, e.result, e.last_error_code, e.last_error)::holdfast.chain_end), '{}')
                FROM unnest($1) AS c (id), LATERAL (
                    SELECT * FROM (
                        (SELECT h.id, h.status, h.result, h.last_error_code, h.last_error FROM holdfast.job_history h
                         WHERE h.id = c.id AND h.chain_id IS NULL AND h.next_id IS NULL AND h.finished_at >= %1$L AND h.finished_at < %2$L LIMIT 1)
                        UNION ALL (SELECT h.id, h.status, h.result, h.last_error_code, h.last_error FROM holdfast.job_history h
                         WHERE h.chain_id = c.id AND h.next_id IS NULL AND h.finished_at >= %1$L AND h.finished_at < %2$L
                         ORDER BY h.id DESC LIMIT 1)
                        UNION ALL (SELECT f.id, f.status, NULL, f.last_error_code, f.last_error FROM holdfast.job_failed f
                         WHERE f.id = c.id AND f.chain_id IS NULL AND f.finished_at >= %1$L AND f.finished_at < %2$L LIMIT 1)
                        UNION ALL (SELECT f.id, f.status, NULL, f.last_error_code, f.last_error FROM holdfast.job_failed f
                         WHERE f.chain_id = c.id AND f.finished_at >= %1$L AND f.finished_at < %2$L ORDER BY f.id DESC LIMIT 1)) AS last
                    ORDER BY last.id DESC LIMIT 1) AS e
                $look$, lower(spans[n]), upper(spans[n])) INTO found USING open;
            RAISE EXCEPTION USING ERRCODE = 'HF000';
        EXCEPTION WHEN SQLSTATE 'HF000' THEN
            NULL;
        END;
        -- A dead letter is no end if its replay has moved.
        IF EXISTS (SELECT FROM unnest(found) AS f WHERE f.status = 'failed') THEN
            found := ARRAY(SELECT f FROM unnest(found) AS f WHERE f.status <> 'failed'
                OR NOT EXISTS (SELECT FROM holdfast.moved m WHERE m.chain_id = f.chain_id AND m.job_id > f.job_id));
        END IF;
        RETURN QUERY SELECT f.* FROM unnest(found) AS f;
        IF cardinality(found) > 0 THEN
            open := ARRAY(SELECT o FROM unnest(open) AS o WHERE (o IN (SELECT f.chain_id FROM unnest(found) AS f)) IS NOT TRUE);
        END IF;
        IF n = 1 AND open <> '{}' THEN
            spans := spans || holdfast.history_spans((SELECT min(o) FROM unnest(open) AS o));
        END IF;
        n := n + 1;
    END LOOP;
    RETURN QUERY SELECT o.id, CASE WHEN e.chain_id IS NULL THEN m.new_chain_id END, e.status, e.result,
        CASE WHEN e.chain_id IS NOT NULL THEN e.error_code WHEN m.place IS NOT NULL THEN 'moved' END,
        CASE WHEN e.chain_id IS NOT NULL THEN e.error ELSE m.place END
    FROM unnest(open) AS o (id) LEFT JOIN holdfast.arrived_end e ON e.chain_id = o.id
        LEFT JOIN LATERAL (
            SELECT u.new_chain_id, d.place FROM (
                SELECT x.job_id, x.new_chain_id, x.departure FROM holdfast.moved x WHERE x.job_id = o.id AND x.chain_id IS NULL
                UNION ALL SELECT x.job_id, x.new_chain_id, x.departure FROM holdfast.moved x WHERE x.chain_id = o.id) AS u
                JOIN holdfast.departure d ON d.id = u.departure
            ORDER BY u.job_id DESC LIMIT 1) AS m ON true;
END $$;

-- Replaces the function of 0008_blockers.sql. Jobs of this transaction, blocked with their count, wait for these chains.
CREATE OR REPLACE FUNCTION holdfast.name_blockers(jobs bigint[], chains bigint[], ordinals integer[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
BEGIN
    IF jobs IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO holdfast.blocker (job_id, chain_id, ordinal) SELECT * FROM unnest(jobs, chains, ordinals);
    PERFORM holdfast.await_chains(jobs, chains, true);
END $$;

-- Replaces the function of 0008_blockers.sql: a job that waits for a chain that has moved goes on waiting, until it follows.
CREATE OR REPLACE FUNCTION holdfast.repair_blockers(since bigint, most integer, OUT until bigint, OUT repaired integer)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    looked bigint[] := ARRAY(
        SELECT b.chain_id FROM holdfast.blocker b WHERE b.status IS NULL AND b.chain_id > since ORDER BY b.chain_id LIMIT most);
    ends holdfast.chain_end[] := ARRAY(
        SELECT e FROM holdfast.chain_ends(looked) AS e WHERE e.status IS NOT NULL OR e.error_code IS DISTINCT FROM 'moved');
    waiters bigint[];
BEGIN
    until := CASE WHEN cardinality(looked) < most THEN 0 ELSE looked[most] END;
    repaired := cardinality(ends);
    IF repaired > 0 THEN
        waiters := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id IN (
                SELECT b.job_id FROM holdfast.blocker b JOIN unnest(ends) AS e ON e.chain_id = b.chain_id WHERE b.status IS NULL)
            ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);
        PERFORM holdfast.update_waiters(waiters, ends);
        PERFORM holdfast.wake_sleepers(array_agg(j.queue), array_agg(j.kind)) FROM holdfast.job j
        WHERE j.id = ANY (waiters) AND j.status = 'pending' HAVING count(*) > 0;
    END IF;
END $$;

-- Replaces the function of 0006_control.sql. A job that has moved has the status `moved`, the place as its error, its id there as the next one
-- (null: it has not arrived), and nothing else.
CREATE OR REPLACE FUNCTION holdfast.get_job(job_id bigint) RETURNS TABLE (
        id bigint, chain_id bigint, kind text, queue text, status text, priority integer, attempt integer, max_attempts integer,
        created_at timestamptz, available_at timestamptz, finished_at timestamptz, unique_key text, order_key text, cancel_requested boolean,
        result json, error_code text, error text, next_id bigint, replay_of bigint, progress real, progress_note text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    ended timestamptz;
    ended_as holdfast.status;
    past holdfast.job_history;
BEGIN
    RETURN QUERY SELECT j.id, coalesce(j.chain_id, j.id), j.kind::text, j.queue::text, j.status::text, j.priority::integer, j.attempt::integer,
        j.max_attempts::integer, j.created_at, j.available_at, NULL::timestamptz, j.unique_key::text, j.order_key::text,
        j.cancel_requested_at IS NOT NULL, NULL::json, j.last_error_code, j.last_error, NULL::bigint, j.replay_of, j.progress, j.progress_note
    FROM holdfast.job j WHERE j.id = job_id;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT e.finished_at, e.status INTO ended, ended_as FROM holdfast.find_ended(job_id, '-infinity') AS e;
    IF ended IS NULL THEN
        RETURN QUERY SELECT m.job_id, coalesce(m.chain_id, m.job_id), '', '', 'moved', 0, 0, NULL::integer, d.departed_at, d.departed_at,
            d.arrived_at, NULL::text, NULL::text, false, NULL::json, NULL::text, d.place, m.new_id, NULL::bigint, NULL::real, NULL::text
        FROM holdfast.moved m JOIN holdfast.departure d ON d.id = m.departure WHERE m.job_id = get_job.job_id;
        RETURN;
    END IF;
    BEGIN
        EXECUTE format('SELECT * FROM holdfast.%I WHERE id = $1 AND finished_at = %L LIMIT 1',
            CASE WHEN ended_as = 'failed' THEN 'job_failed' ELSE 'job_history' END, ended) INTO past USING job_id;
        RAISE EXCEPTION USING ERRCODE = 'HF000';
    EXCEPTION WHEN SQLSTATE 'HF000' THEN
        NULL;
    END;
    RETURN QUERY SELECT past.id, coalesce(past.chain_id, past.id), past.kind::text, past.queue::text, past.status::text, past.priority::integer,
        past.attempt::integer, past.max_attempts::integer, past.created_at, past.available_at, past.finished_at, past.unique_key::text,
        past.order_key::text, false, past.result, past.last_error_code, past.last_error, past.next_id, past.replay_of,
        NULL::real, NULL::text
    WHERE past.id IS NOT NULL;
END $$;

-- Where a job is that a verb has not found here; null if it has not moved, or if the verb's answer is another. `whole_chain`: where a chain is.
-- VOLATILE: the verb may have waited until the job had left, and this looks with a newer snapshot than the statement that calls both.
CREATE FUNCTION holdfast.place_after(answer text, job_id bigint, whole_chain boolean, OUT place text, OUT moved_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_variable
BEGIN
    IF answer = 'not_found' THEN
        SELECT d.place, u.there INTO place, moved_id FROM (
            SELECT m.job_id AS old, m.new_id AS there, m.departure FROM holdfast.moved m WHERE m.job_id = place_after.job_id AND NOT whole_chain
            UNION ALL SELECT m.job_id, m.new_chain_id, m.departure FROM holdfast.moved m
                WHERE m.job_id = place_after.job_id AND m.chain_id IS NULL AND whole_chain
            UNION ALL SELECT m.job_id, m.new_chain_id, m.departure FROM holdfast.moved m WHERE m.chain_id = place_after.job_id AND whole_chain) AS u
            JOIN holdfast.departure d ON d.id = u.departure
        ORDER BY u.old DESC LIMIT 1;
    END IF;
END $$;

-- Replaces the function of 0006_control.sql: a replay that has moved to another database counts as live.
CREATE OR REPLACE FUNCTION holdfast.replay_job(job_id bigint, ended timestamptz DEFAULT NULL, again boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    dead holdfast.job_failed;
    made bigint;
    holder bigint;
    replayed timestamptz;
    fault text := CASE WHEN job_id IS NULL THEN 'job_id: an id expected, got null' ELSE holdfast.time_fault('ended', ended) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    IF ended IS NULL THEN
        SELECT f.finished_at INTO ended FROM holdfast.find_ended(job_id, '-infinity') AS f WHERE f.status = 'failed';
    END IF;
    -- A literal, so that one partition is looked at and no other is locked; see history_spans.
    BEGIN
        EXECUTE format('SELECT * FROM holdfast.job_failed WHERE id = $1 AND finished_at = %L LIMIT 1', ended) INTO dead USING job_id;
        RAISE EXCEPTION USING ERRCODE = 'HF000';
    EXCEPTION WHEN SQLSTATE 'HF000' THEN
        NULL;
    END;
    IF dead.id IS NULL THEN
        RETURN NULL;
    END IF;
    IF dead.order_key IS NOT NULL OR dead.blockers IS NOT NULL THEN
        PERFORM holdfast.need_read_committed();
    END IF;
    -- Of two requests at once, the second looks after the first has committed.
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.replay'), hashtext(job_id::text));
    IF again IS NOT TRUE THEN
        SELECT r.replay_id INTO holder FROM holdfast.replay r
        WHERE r.job_id = dead.id AND (EXISTS (SELECT FROM holdfast.job j WHERE j.id = r.replay_id)
            OR EXISTS (SELECT FROM holdfast.moved m WHERE m.job_id = r.replay_id)) LIMIT 1;
        IF NOT FOUND THEN
            SELECT r.replay_id, r.replayed_at INTO holder, replayed FROM holdfast.replay r WHERE r.job_id = dead.id
            ORDER BY r.nth DESC LIMIT 1;
            IF FOUND AND NOT EXISTS (SELECT FROM holdfast.find_ended(holder, replayed) AS e WHERE e.status = 'completed') THEN
                holder := NULL;
            END IF;
        END IF;
        IF holder IS NOT NULL THEN
            RAISE EXCEPTION 'this dead letter was replayed already, as job %', holder USING ERRCODE = 'HF006', DETAIL = holder::text;
        END IF;
    END IF;
    INSERT INTO holdfast.job (created_at, available_at, max_attempts, priority, shard, payload_version, order_block, chain_id, replay_of,
        order_seq, queue, kind, payload, headers, order_key, unique_key, status, blockers_left, run_anyway, suspect)
    VALUES (clock, clock, dead.max_attempts, dead.priority, holdfast.shard_of(dead.id, dead.order_key), dead.payload_version,
        dead.order_block, coalesce(dead.chain_id, dead.id), dead.id, dead.order_seq, dead.queue, dead.kind, dead.payload, dead.headers,
        dead.order_key, dead.unique_key, CASE WHEN dead.blockers IS NULL THEN 'pending' ELSE 'blocked' END::holdfast.status,
        cardinality(dead.blockers), dead.run_anyway, CASE dead.last_error_code WHEN 'crashed_alone' THEN 1 END)
    ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id INTO made;
    IF made IS NULL THEN
        SELECT j.id INTO holder FROM holdfast.job j WHERE j.unique_key = dead.unique_key AND j.kind = dead.kind LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a job with this unique key exists' USING ERRCODE = 'HF001', DETAIL = holder::text;
        END IF;
        RETURN NULL;
    END IF;
    -- A snapshot that is older than another's replay takes the same number: DO NOTHING then raises serialization_failure.
    INSERT INTO holdfast.replay (job_id, nth, replay_id, replayed_at)
    SELECT dead.id, coalesce(max(r.nth), 0) + 1, made, clock FROM holdfast.replay r WHERE r.job_id = dead.id
    ON CONFLICT DO NOTHING;
    PERFORM holdfast.name_blockers(array_agg(made), array_agg(b.chain_id), array_agg(b.ordinal::integer))
    FROM unnest(dead.blockers) WITH ORDINALITY AS b (chain_id, ordinal);
    PERFORM holdfast.refuse_cycles(ARRAY[made]);
    PERFORM holdfast.wake_sleepers(ARRAY[dead.queue], ARRAY[dead.kind]);
    IF dead.order_key IS NOT NULL
       AND EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = dead.order_key AND s.job_id = replay_job.job_id) THEN
        PERFORM holdfast.resume_order_key(dead.order_key);
    END IF;
    RETURN made;
END $$;
