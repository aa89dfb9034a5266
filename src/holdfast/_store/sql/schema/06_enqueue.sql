-- Enqueueing, in the caller's own transaction. SECURITY DEFINER: a producer may call these functions and touch no table.
-- Times are clock_timestamp(), not now(): in a transaction that began an hour ago, a job is due from its insert on, not an hour earlier,
-- where no claim would look for it at once.

-- A time in the past becomes now: a job may never appear where claims have already passed.
-- Called by enqueue_jobs, enqueue_unique_jobs, leave_jobs, give_back_jobs, enqueue_limited_jobs.
CREATE FUNCTION holdfast.due_at(at timestamptz, delay_ms bigint, clock timestamptz) RETURNS timestamptz
    LANGUAGE sql STABLE RETURN greatest(coalesce(at, clock + delay_ms * interval '1 millisecond', clock), clock);

-- Jobs of one order key share a shard. The hash may differ between major versions: it only spreads the jobs and decides no order.
-- Called by enqueue_jobs, enqueue, enqueue_unique_jobs, leave_jobs, replay_job, publish_events and 4 more.
CREATE FUNCTION holdfast.shard_of(id bigint, order_key text) RETURNS smallint
    LANGUAGE sql IMMUTABLE RETURN CASE WHEN order_key IS NULL THEN id & 63 ELSE hashtext(order_key) & 63 END::smallint;

-- It was cancelled, or expired before it started: it will not run.
-- Called by enqueue_unique_jobs.
CREATE FUNCTION holdfast.is_doomed(job holdfast.job, clock timestamptz) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN job.cancel_requested_at IS NOT NULL OR coalesce(job.expires_at <= clock, false) AND job.status <> 'processing';

-- True for a job that is scheduled, else null.
-- Called by enqueue_jobs, enqueue, enqueue_unique_jobs, settle_batch, leave_jobs, give_back_jobs and 5 more.
CREATE FUNCTION holdfast.is_later(at timestamptz, delay_ms bigint, clock timestamptz) RETURNS boolean
    LANGUAGE sql STABLE RETURN CASE WHEN at > clock OR delay_ms > 0 THEN true END;

-- `jobs` is the text of a JSON array of objects whose keys are the fields of new_job. Answers in the order given. `plain`: true if none of
-- them sets more than kind, payload, queue, priority, max_attempts and headers, so nothing else is read: a third of the time goes into
-- reading. Null: the names of their options are checked. `group_id`: the job that runs after those that are created.
-- Called by enqueue_group, gather_jobs, enqueue_members, job.sql enqueue_jobs, schedule.sql enqueue_slots.
CREATE FUNCTION holdfast.enqueue_jobs(jobs text, plain boolean DEFAULT NULL, group_id bigint DEFAULT NULL) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    made bigint;
    unknown text;
BEGIN
    IF left(ltrim(left(jobs, 100), E' \t\r\n'), 1) IS DISTINCT FROM '[' THEN
        PERFORM holdfast.refuse('jobs: the text of a JSON array expected, got ' || CASE WHEN jobs IS NULL THEN 'null' ELSE 'something else' END);
    END IF;
    IF plain IS NULL THEN
        unknown := holdfast.option_fault(jobs::json);
        IF unknown IS NOT NULL THEN
            PERFORM holdfast.refuse(unknown);
        END IF;
    END IF;
    IF plain THEN
        RETURN QUERY
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, group_id, queue, kind, payload, headers)
        SELECT CASE WHEN fault IS NULL THEN id ELSE holdfast.refuse(fault)::bigint END,
            clock, clock, nullif(coalesce(max_attempts, 3), -1), coalesce(priority, 5), holdfast.shard_of(id, NULL), enqueue_jobs.group_id,
            coalesce(queue, 'default'), kind, payload, headers
        FROM (SELECT nextval('holdfast.job_id_seq') AS id, g.*, holdfast.job_fault(g.kind, g.payload, g.queue, g.priority, g.max_attempts, NULL,
                  NULL, NULL, NULL, NULL, NULL, NULL, NULL, g.headers, NULL, NULL) AS fault
              FROM json_to_recordset(jobs::json)
                  AS g (kind text, payload json, queue text, priority bigint, max_attempts bigint, headers json)) AS g
        RETURNING job.id, job.id, true;
    ELSIF strpos(jobs, '"unique_key"') > 0 OR strpos(jobs, '"blockers"') > 0 OR strpos(jobs, '"on_failure"') > 0 THEN
        RETURN QUERY SELECT * FROM holdfast.enqueue_unique_jobs(ARRAY(
            SELECT CASE WHEN f.fault IS NULL THEN g ELSE holdfast.refuse(f.fault)::holdfast.new_job END
            FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json) AS g,
                LATERAL (SELECT holdfast.job_fault(g.kind, g.payload, g.queue, g.priority, g.max_attempts, g.delay_ms, g.at, g.expires_ms, g.expires_at, g.order_key, g.unique_key,
                  g.unique_window_ms, g.on_conflict, g.headers, g.payload_version, g.blockers) AS fault) AS f), enqueue_jobs.group_id);
    ELSIF strpos(jobs, '"limits"') > 0 OR strpos(jobs, '"tenant"') > 0 THEN
        RETURN QUERY SELECT * FROM holdfast.enqueue_limited_jobs(jobs, enqueue_jobs.group_id);
    ELSE
        RETURN QUERY
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
            group_id, order_seq, queue, kind, payload, headers, order_key, later, tags)
        SELECT CASE WHEN fault IS NULL THEN id ELSE holdfast.refuse(fault)::bigint END,      -- first, before a number overflows
            clock, holdfast.due_at(at, delay_ms, clock), nullif(coalesce(max_attempts, 3), -1), coalesce(priority, 5),
            holdfast.shard_of(id, order_key), payload_version, nullif(order_block, false),
            coalesce(expires_at, clock + expires_ms * interval '1 millisecond'),
            enqueue_jobs.group_id, CASE WHEN order_key IS NOT NULL THEN id END, coalesce(queue, 'default'),
            kind, payload, headers, order_key, holdfast.is_later(at, delay_ms, clock), tags
        FROM (SELECT nextval('holdfast.job_id_seq') AS id, g.*,
                  coalesce(CASE WHEN g.tags IS NOT NULL THEN holdfast.tags_fault(g.tags) END,
                  holdfast.job_fault(g.kind, g.payload, g.queue, g.priority, g.max_attempts, g.delay_ms, g.at, g.expires_ms, g.expires_at, g.order_key, g.unique_key,
                  g.unique_window_ms, g.on_conflict, g.headers, g.payload_version, g.blockers)) AS fault
              FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json) AS g) AS g
        RETURNING job.id, job.id, true;
    END IF;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made > 1000000 THEN
        PERFORM holdfast.refuse(format('jobs: at most 1000000 expected, got %s', made));
    END IF;
    -- A statement of its own, after the insert. Under load no worker sleeps, and this one look-up is the only cost.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock) THEN
        PERFORM holdfast.wake_sleepers(array_agg(coalesce(queue, 'default')), array_agg(kind))
        FROM json_populate_recordset(NULL::holdfast.new_job, jobs::json);
    END IF;
END $$;

-- Jobs, and one that runs after all their chains, and after those that it names itself: all of them or none, also on a connection that
-- commits every statement. Returns that one, `last`, which is the text of a JSON object. If it has a unique key, it may be another's: then it
-- comes last, and has a blocker for each of the jobs.
-- Called by job.sql enqueue_group.
CREATE FUNCTION holdfast.enqueue_group(jobs text, last text, run_anyway boolean, plain boolean DEFAULT NULL) RETURNS TABLE (id bigint, chain_id bigint, created boolean)
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
    IF final.unique_key IS NOT NULL THEN
        final.blockers := final.blockers || ARRAY(
            SELECT e.chain_id FROM holdfast.enqueue_jobs(jobs, plain) WITH ORDINALITY AS e (id, chain_id, created, place) ORDER BY e.place);
    END IF;
    final.run_anyway := enqueue_group.run_anyway;
    fault := coalesce(holdfast.option_fault(json_build_array(last::json)), holdfast.job_fault(final.kind, final.payload, final.queue, final.priority, final.max_attempts, final.delay_ms, final.at, final.expires_ms, final.expires_at, final.order_key, final.unique_key,
        final.unique_window_ms, final.on_conflict, final.headers, final.payload_version, final.blockers));
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    SELECT e.* INTO id, chain_id, created FROM holdfast.enqueue_unique_jobs(ARRAY[final]) AS e;
    IF final.unique_key IS NULL THEN
        PERFORM holdfast.enqueue_members(id, jobs, plain);
    END IF;
    RETURN NEXT;
    -- It may be due: the chains of jobs that were there already may have ended.
    PERFORM holdfast.wake_sleepers(ARRAY[coalesce(final.queue, 'default')], ARRAY[final.kind]);
END $$;

-- One job: called by the library for a single job, and by psql, triggers and other languages:
--   SELECT holdfast.enqueue('mail.welcome', '{"to": "a@b.c"}', delay => '1 hour')
-- Called by applications, job.sql enqueue_job.
CREATE FUNCTION holdfast.enqueue(
    kind text, payload json DEFAULT '{}', queue text DEFAULT 'default', priority integer DEFAULT 5, max_attempts integer DEFAULT 3,
    delay interval DEFAULT NULL, at timestamptz DEFAULT NULL, expires interval DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
    order_key text DEFAULT NULL, order_block boolean DEFAULT NULL,
    unique_key text DEFAULT NULL, unique_window interval DEFAULT NULL, on_conflict text DEFAULT 'keep',
    headers json DEFAULT NULL, payload_version integer DEFAULT NULL, blockers bigint[] DEFAULT NULL, run_anyway boolean DEFAULT NULL,
    limits text[] DEFAULT NULL, on_failure json DEFAULT NULL, tenant text DEFAULT NULL, tags text[] DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    fault text;
    made bigint;
BEGIN
    -- Most jobs set nothing else. One check of all rules at once, and an insert of their columns alone, cost them two thirds of the general
    -- way. A null and a fault take the general way too, which has the default and the words for it.
    IF num_nulls(delay, at, expires, expires_at, order_key, order_block, unique_key, unique_window, payload_version, blockers, run_anyway, limits,
            on_failure, tenant, tags) = 15
        AND octet_length(kind) BETWEEN 1 AND 200 AND octet_length(queue) BETWEEN 1 AND 100 AND priority BETWEEN 0 AND 9
        AND max_attempts BETWEEN 1 AND 1000 AND pg_column_size(payload) <= 16777220 AND json_typeof(payload) = 'object' AND on_conflict = 'keep'
        AND (headers IS NULL OR pg_column_size(headers) < 100 AND headers::text ~ '^{"traceparent":"[-0-9a-f]*"}$')
    THEN
        made := nextval('holdfast.job_id_seq');
        INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, queue, kind, payload, headers)
        VALUES (made, clock, clock, max_attempts, priority, holdfast.shard_of(made, NULL), queue, kind, payload, headers);
    ELSE
        fault := holdfast.job_fault(kind, payload, queue, priority, max_attempts, holdfast.milliseconds(delay), at,
            holdfast.milliseconds(expires), expires_at, order_key, unique_key, holdfast.milliseconds(unique_window), on_conflict, headers,
            payload_version, blockers);
        fault := coalesce(fault, holdfast.tags_fault(tags));
        IF fault IS NOT NULL THEN
            PERFORM holdfast.refuse(fault);
        ELSIF num_nonnulls(unique_key, blockers, limits, on_failure, tenant) > 0 THEN
            -- Added to the clock and not in milliseconds: a month is a calendar month.
            SELECT u.id INTO made FROM holdfast.enqueue_unique_jobs(ARRAY[ROW (kind, payload, queue, priority, max_attempts, NULL,
                coalesce(at, clock + delay), NULL, coalesce(expires_at, clock + expires), order_key, order_block, unique_key,
                holdfast.milliseconds(unique_window), on_conflict, headers, payload_version, blockers, run_anyway, limits,
                on_failure, tenant, tags)::holdfast.new_job]) AS u;
        ELSE
            made := nextval('holdfast.job_id_seq');
            INSERT INTO holdfast.job (id, created_at, available_at, max_attempts, priority, shard, payload_version, order_block, expires_at,
                order_seq, queue, kind, payload, headers, order_key, later, tags)
            VALUES (made, clock, greatest(coalesce(at, clock + delay), clock), nullif(coalesce(max_attempts, 3), -1), coalesce(priority, 5),
                holdfast.shard_of(made, order_key), payload_version, nullif(order_block, false), coalesce(expires_at, clock + expires),
                CASE WHEN order_key IS NOT NULL THEN made END, coalesce(queue, 'default'), kind, payload, headers, order_key,
                holdfast.is_later(coalesce(at, clock + delay), NULL, clock), tags);
        END IF;
    END IF;
    -- A statement of its own, after the insert. Under load no worker sleeps, and this one look-up is the only cost.
    IF current_setting('transaction_isolation') <> 'read committed' OR EXISTS (SELECT FROM holdfast.sleeper WHERE until > clock) THEN
        PERFORM holdfast.wake_for(made, coalesce(queue, 'default'), kind);
    END IF;
    RETURN made;
END $$;
