-- Groups: jobs that were enqueued together, and one that runs after all their chains. Each job has the id of that one, and so has the job that
-- follows it in its chain. No row is written for each of them: how many have ended is counted in a row for up to 256 of them, and how they
-- ended is appended, a row for each group in a finish. Rows of a group are of no use when its last job has left; maintenance deletes them.

-- How far a part of a group has come. While it is open, it counts as one of the blockers of the last job.
CREATE TABLE holdfast.group_part (
    group_id bigint NOT NULL,                   -- the job that runs after the group
    part     bigint NOT NULL,                   -- see part_of
    jobs     integer NOT NULL,
    ended    integer NOT NULL DEFAULT 0,        -- open: fewer than jobs
    failed   integer NOT NULL DEFAULT 0,        -- of those that ended; also cancelled and deleted ones
    PRIMARY KEY (group_id, part)
) WITH (fillfactor = 50);

-- The chains of a group in their order, and how they ended. Rows are only added.
CREATE TABLE holdfast.group_entry (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id   bigint NOT NULL,
    status     holdfast.status,                 -- null: these chains are the group; else they ended so
    chains     bigint[] NOT NULL,
    results    json[],         -- one per chain, or null
    error_code text,                            -- of one chain
    error      text
) WITH (toast_tuple_target = 8160);             -- a row of that size is not compressed, which would cost a tenth of the time of a job
CREATE INDEX group_entry_group ON holdfast.group_entry (group_id, id);

-- The part of a group to which a chain belongs: the ids of 256 chains that the claims of one window of shards take together, so that workers
-- which finish jobs of one group at a time seldom need the same row. A row is written at most 256 times, also under an old snapshot.
-- Called by enqueue_members, lock_members, count_members.
CREATE FUNCTION holdfast.part_of(chain bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ((chain >> 11) << 3) | ((chain & 63) >> 3);

-- Enqueues jobs of a group. `last` is the job that runs after them: this transaction has inserted it, or it still waits. A job that was there
-- before is in no group or in another: then the last job gets a blocker for each of these, as if it named their chains.
-- Called by enqueue_group, settle_batch.
CREATE FUNCTION holdfast.enqueue_members(last bigint, jobs text, plain boolean DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    members bigint[];
    made bigint[];
    opened integer;
    named integer;
BEGIN
    SELECT coalesce(array_agg(e.chain_id ORDER BY e.place), '{}'), array_agg(e.id) FILTER (WHERE e.created) INTO members, made
    FROM holdfast.enqueue_jobs(jobs, plain, last) WITH ORDINALITY AS e (id, chain_id, created, place);
    IF cardinality(members) > 100000 THEN
        PERFORM holdfast.refuse(format('group: at most 100000 jobs expected, got %s', cardinality(members)));
    ELSIF cardinality(made) = cardinality(members) THEN
        INSERT INTO holdfast.group_entry (group_id, chains) VALUES (last, members);
        WITH counted AS (
            SELECT holdfast.part_of(m) AS part, count(*) AS jobs FROM unnest(members) AS m GROUP BY 1),
        kept AS (
            INSERT INTO holdfast.group_part AS p (group_id, part, jobs) SELECT last, c.part, c.jobs FROM counted c ORDER BY c.part
            ON CONFLICT (group_id, part) DO UPDATE SET jobs = p.jobs + excluded.jobs RETURNING p.part, p.jobs, p.ended)
        SELECT count(*) INTO opened FROM kept k JOIN counted c ON c.part = k.part WHERE k.jobs - c.jobs = k.ended;
        UPDATE holdfast.job j SET blockers_left = coalesce(j.blockers_left, 0) + opened, status = 'blocked' WHERE j.id = last;
    ELSIF cardinality(members) > 10000 THEN
        PERFORM holdfast.refuse('group: at most 10000 jobs expected where one of them was there before');
    ELSIF members <> '{}' THEN
        UPDATE holdfast.job j SET group_id = NULL WHERE j.id = ANY (made);
        named := (SELECT coalesce(max(b.ordinal), 0) FROM holdfast.blocker b WHERE b.job_id = last);
        UPDATE holdfast.job j SET blockers_left = coalesce(j.blockers_left, 0) + cardinality(members), status = 'blocked' WHERE j.id = last;
        PERFORM holdfast.name_blockers(array_agg(last), array_agg(m.chain_id), array_agg((named + m.place)::integer))
        FROM unnest(members) WITH ORDINALITY AS m (chain_id, place);
    END IF;
END $$;

-- Locks what the ends of these chains will change, in one direction: the parts, then the jobs after the groups. It waits for no transaction that keeps
-- one of them longer. False: nothing was locked. It gives up before the deadlock detector runs.
-- Called by settle_batch.
CREATE FUNCTION holdfast.lock_members(enders bigint[]) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms' SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
    SET enable_hashjoin = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM FROM (
        SELECT DISTINCT j.group_id, holdfast.part_of(coalesce(j.chain_id, j.id)) AS part FROM holdfast.job j WHERE j.id = ANY (enders)) AS m
        JOIN holdfast.group_part p ON p.group_id = m.group_id AND p.part = m.part
    ORDER BY p.group_id, p.part FOR NO KEY UPDATE OF p;
    PERFORM FROM holdfast.job w
    WHERE w.id = ANY (ARRAY(SELECT DISTINCT j.group_id FROM holdfast.job j WHERE j.id = ANY (enders))) ORDER BY w.id FOR NO KEY UPDATE;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- Counts the ends of chains in their groups, and releases the jobs after groups that have ended. Returns those jobs. A chain that did not complete
-- releases the job at once, to fail, unless it runs anyway. `known`: the groups that have a row; the others have lost their last job.
-- Called by end_members, end_chains_of_groups.
CREATE FUNCTION holdfast.count_members(groups bigint[], chains bigint[], failed boolean, OUT known bigint[], OUT released bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    finished bigint[];              -- a group once for each of its parts that has ended
BEGIN
    -- In the order of the parts, as the join is a nested loop. A row that another transaction has changed meanwhile is read again.
    WITH counted AS MATERIALIZED (
        SELECT m.group_id, holdfast.part_of(m.chain_id) AS part, count(*) AS jobs FROM unnest(groups, chains) AS m (group_id, chain_id)
        GROUP BY 1, 2 ORDER BY 1, 2),
    updated AS (
        UPDATE holdfast.group_part p SET ended = p.ended + c.jobs, failed = p.failed + CASE WHEN count_members.failed THEN c.jobs ELSE 0 END
        FROM counted c WHERE p.group_id = c.group_id AND p.part = c.part RETURNING p.group_id, p.ended = p.jobs AS finished)
    SELECT array_agg(DISTINCT u.group_id), array_agg(u.group_id) FILTER (WHERE u.finished) INTO known, finished FROM updated u;
    IF finished IS NOT NULL OR count_members.failed AND known IS NOT NULL THEN
        PERFORM FROM holdfast.job w WHERE w.id = ANY (CASE WHEN count_members.failed THEN known ELSE finished END) ORDER BY w.id FOR NO KEY UPDATE;
        WITH counted AS (
            SELECT k.id, (SELECT count(*) FROM unnest(finished) AS o WHERE o = k.id) AS parts
            FROM unnest(CASE WHEN count_members.failed THEN known ELSE ARRAY(SELECT DISTINCT o FROM unnest(finished) AS o) END) AS k (id)),
        updated AS (
            UPDATE holdfast.job w SET
                blockers_left = CASE WHEN count_members.failed AND w.run_anyway IS NOT TRUE THEN 0 ELSE w.blockers_left - c.parts END,
                blocker_failed = CASE WHEN count_members.failed THEN true ELSE w.blocker_failed END
            FROM counted c WHERE w.id = c.id AND w.blockers_left > 0 RETURNING w.id, w.blockers_left)
        SELECT array_agg(u.id) FILTER (WHERE u.blockers_left = 0) INTO released FROM updated u;
        UPDATE holdfast.job w SET status = 'pending', available_at = greatest(w.available_at, clock), later = holdfast.is_later(w.available_at, NULL, clock)
        WHERE w.id = ANY (released) AND w.status = 'blocked';
    END IF;
END $$;

-- Ends chains that completed, each in its group, with their results. The arrays have the same length.
-- Called by complete_jobs, job.sql complete_plain.
CREATE FUNCTION holdfast.end_members(groups bigint[], chains bigint[], results json[]) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    ended record := holdfast.count_members(groups, chains, false);
BEGIN
    IF ended.known IS NOT NULL THEN
        IF groups[1] = ALL (groups) THEN
            -- The common case: arrays need not be taken apart.
            INSERT INTO holdfast.group_entry (group_id, status, chains, results) VALUES (groups[1], 'completed', chains, results);
        ELSE
            INSERT INTO holdfast.group_entry (group_id, status, chains, results)
            SELECT m.group_id, 'completed', array_agg(m.chain_id), array_agg(m.result)
            FROM unnest(groups, chains, results) AS m (group_id, chain_id, result) WHERE m.group_id = ANY (ended.known) GROUP BY m.group_id;
        END IF;
        IF ended.released IS NOT NULL AND EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock_timestamp()) THEN
            PERFORM holdfast.wake_sleepers(array_agg(w.queue), array_agg(w.kind)) FROM holdfast.job w
            WHERE w.id = ANY (ended.released) AND w.status = 'pending' HAVING count(*) > 0;
        END IF;
    END IF;
    RETURN true;
END $$;

-- For jobs that end chains of groups in any way, while their rows are there: the same, and returns the jobs that were released.
-- Called by settle_batch.
CREATE FUNCTION holdfast.end_chains_of_groups(settled holdfast.ending[]) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_mergejoin = off
    SET enable_nestloop = off AS $$
DECLARE
    groups bigint[];
    chains bigint[];
    ends holdfast.ending[];
    ended record;
    released bigint[] := '{}';
BEGIN
    FOR failed IN 0..1 LOOP
        SELECT array_agg(j.group_id ORDER BY j.id), array_agg(coalesce(j.chain_id, j.id) ORDER BY j.id), array_agg(s ORDER BY j.id)
        INTO groups, chains, ends
        FROM holdfast.job j JOIN unnest(settled) AS s ON s.id = j.id
        WHERE j.id = ANY (ARRAY(SELECT x.id FROM unnest(settled) AS x)) AND (s.verdict <> 'completed') = (failed = 1);
        CONTINUE WHEN groups IS NULL;
        ended := holdfast.count_members(groups, chains, failed = 1);
        INSERT INTO holdfast.group_entry (group_id, status, chains, results, error_code, error)
        SELECT m.group_id, m.verdict, ARRAY[m.chain_id], CASE WHEN m.result IS NOT NULL THEN ARRAY[m.result] END, m.error_code, m.error
        FROM (SELECT g.group_id, g.chain_id, e.* FROM unnest(groups, chains) WITH ORDINALITY AS g (group_id, chain_id, place)
              JOIN unnest(ends) WITH ORDINALITY AS e ON e.ordinality = g.place) AS m
        WHERE m.group_id = ANY (ended.known);
        released := released || ended.released;
    END LOOP;
    RETURN released;
END $$;

-- The chains of the groups of these jobs, in order, and how they ended; a null status: the chain lives.
-- Called by leave_jobs, chain.sql read_blockers, testing.sql enqueued_jobs.
CREATE FUNCTION holdfast.members_of(jobs bigint[]) RETURNS TABLE (group_id bigint, place bigint, chain_id bigint, status holdfast.status, result json,
        error_code text, error text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_hashjoin = on SET enable_nestloop = off AS $$
    SELECT m.group_id, m.place, m.chain_id, e.status, e.result, e.error_code, e.error
    FROM (SELECT g.group_id, row_number() OVER (PARTITION BY g.group_id ORDER BY g.id, c.place) AS place, c.chain_id
          FROM holdfast.group_entry g, unnest(g.chains) WITH ORDINALITY AS c (chain_id, place)
          WHERE g.group_id = ANY (jobs) AND g.status IS NULL) AS m
        LEFT JOIN (SELECT g.group_id, c.chain_id, g.status, c.result, g.error_code, g.error
                   FROM holdfast.group_entry g, unnest(g.chains, g.results) AS c (chain_id, result)
                   WHERE g.group_id = ANY (jobs) AND g.status IS NOT NULL) AS e ON e.group_id = m.group_id AND e.chain_id = m.chain_id
$$;

-- How many chains a job still waits for: its blockers are chains that it names, and open parts of a group.
-- Called by get_job, chain.sql unfinished_job, inspect.sql read_waiting.
CREATE FUNCTION holdfast.chains_left(job_id bigint, blockers_left integer) RETURNS integer
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN blockers_left > 0 THEN blockers_left + coalesce((
        SELECT sum(p.jobs - p.ended - 1)::integer FROM holdfast.group_part p WHERE p.group_id = job_id AND p.ended < p.jobs), 0)
        WHEN blockers_left <= 0 THEN 0 END
$$;

-- How many of the chains that a live job comes after or gathers have completed, ended otherwise, and live. Null: there are none.
-- Called by get_job, chain.sql unfinished_job, chain.sql read_group.
CREATE FUNCTION holdfast.group_progress(job_id bigint, blockers_left integer) RETURNS integer[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN blockers_left IS NOT NULL THEN (
        SELECT nullif(ARRAY[sum(a.done), sum(a.failed), sum(a.waiting)]::integer[], '{0,0,0}') FROM (
            SELECT sum(p.ended - p.failed) AS done, sum(p.failed) AS failed, sum(p.jobs - p.ended) AS waiting
            FROM holdfast.group_part p WHERE p.group_id = job_id
            UNION ALL
            SELECT count(*) FILTER (WHERE b.status = 'completed'), count(*) FILTER (WHERE b.status <> 'completed'), count(*) FILTER (WHERE b.status IS NULL)
            FROM holdfast.blocker b WHERE b.job_id = group_progress.job_id) AS a) END
$$;

-- Deletes rows of groups whose last jobs have left: it looks at `most` entries from `since` on, and returns the one after which to continue, 0
-- when it was the last, and how many groups are gone. The counts go with the first entry, which has the chains.
-- Called by chain.sql delete_groups.
CREATE FUNCTION holdfast.delete_groups(since bigint, most integer, OUT until bigint, OUT gone integer)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    looked bigint[];
    groups bigint[];
BEGIN
    SELECT array_agg(g.id ORDER BY g.id), array_agg(DISTINCT g.group_id) INTO looked, groups
    FROM (SELECT e.id, e.group_id FROM holdfast.group_entry e WHERE e.id > since ORDER BY e.id LIMIT most) AS g;
    until := CASE WHEN cardinality(looked) = most THEN looked[most] ELSE 0 END;
    groups := ARRAY(SELECT g FROM unnest(groups) AS g WHERE NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = g));
    gone := 0;
    IF groups <> '{}' THEN
        DELETE FROM holdfast.group_part p WHERE p.group_id = ANY (groups);
        DELETE FROM holdfast.group_entry e WHERE e.id = ANY (looked) AND e.group_id = ANY (groups);
        gone := cardinality(groups);
    END IF;
END $$;
