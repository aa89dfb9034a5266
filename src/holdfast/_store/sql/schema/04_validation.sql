-- Faults of arguments. Each function returns the fault of its arguments, or null.

-- All input of the functions for producers and operators is checked here, by the rules of the library. An error names the parameter, the
-- rule and the given value; HF002 is a job, HF005 an event or message.
-- Called by enqueue_jobs, enqueue_group, enqueue, enqueue_unique_jobs, resume_order_key, check_following and 21 more.
CREATE FUNCTION holdfast.refuse(fault text, state text DEFAULT 'HF002') RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '%', fault USING ERRCODE = state;
END $$;

-- Called by job_fault, resume_order_key, event_fault, receive, send_message.
CREATE FUNCTION holdfast.text_fault(name text, given text, most integer) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN octet_length(given) NOT BETWEEN 1 AND most
        THEN format('%s: 1 to %s bytes of text expected, got %s bytes', name, most, octet_length(given)) END;

-- Called by delete_chains, act_on_jobs.
CREATE FUNCTION holdfast.ids_fault(name text, given bigint[], most integer) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN given IS NULL OR array_position(given, NULL) IS NOT NULL THEN format('%s: ids expected, got null', name)
        WHEN cardinality(given) > most THEN format('%s: at most %s ids expected, got %s', name, most, cardinality(given)) END;

-- Called by reschedule_job, replay_job, act_on_jobs, replay_subscription.
CREATE FUNCTION holdfast.time_fault(name text, given timestamptz) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN given NOT BETWEEN timestamptz '0001-01-01Z' AND timestamptz '9999-12-31Z'
        THEN format('%s: a time from the year 1 to the year 9999 expected, got %s', name, given) END;

-- An interval in milliseconds, for comparison with a bound; one that is too long for a bigint becomes the largest bigint.
-- Called by enqueue.
CREATE FUNCTION holdfast.milliseconds(span interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN span IS NOT NULL THEN (greatest(least(extract(epoch FROM span), 1e15), -1e15) * 1000)::bigint END;

-- Called by job_fault, event_fault.
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
-- Called by next_fault, on_failure_fault, enqueue_jobs, enqueue_group, enqueue, enqueue_limited_jobs.
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
        WHEN json_typeof(payload) <> 'object' THEN format('payload: a JSON object expected, got %s', json_typeof(payload))
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

-- Null: these words may be the tags of a job.
-- Called by on_failure_fault, enqueue_jobs, enqueue, enqueue_unique_jobs, check_following, enqueue_limited_jobs.
CREATE FUNCTION holdfast.tags_fault(tags text[]) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN cardinality(tags) NOT BETWEEN 1 AND 8 THEN format('tags: 1 to 8 words expected, got %s', cardinality(tags))
        WHEN array_position(tags, NULL) IS NOT NULL THEN 'tags: words expected, got null'
        WHEN EXISTS (SELECT FROM unnest(tags) AS t WHERE octet_length(t) NOT BETWEEN 1 AND 100)
            THEN 'tags: words of 1 to 100 bytes of text expected, got another length'
    END $$;

-- A misspelt option would be left out silently: json_populate_recordset reads the names that it knows.
-- Called by enqueue_jobs, enqueue_group.
CREATE FUNCTION holdfast.option_fault(jobs json) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH known AS (SELECT attname::text AS name, attnum FROM pg_attribute WHERE attrelid = 'holdfast.new_job'::regclass AND attnum > 0)
    SELECT format('jobs: a job has no option %s: expected are %s', left(given, 40), (SELECT string_agg(name, ', ' ORDER BY attnum) FROM known))
    FROM json_array_elements(jobs) AS j, json_object_keys(CASE WHEN json_typeof(j) = 'object' THEN j ELSE '{}' END) AS given
    WHERE given NOT IN (SELECT name FROM known) LIMIT 1
$$;

-- Null: this job may continue a chain.
-- Called by complete_job, complete_batch, complete_chain.
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

-- Null: this job may be enqueued when another becomes a dead letter. That must not fail, so it may not raise, nor wait for other chains.
-- Called by enqueue_unique_jobs, check_following.
CREATE FUNCTION holdfast.on_failure_fault(on_failure json) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n holdfast.new_job;
BEGIN
    IF on_failure IS NULL THEN
        RETURN NULL;
    ELSIF json_typeof(on_failure) <> 'object' THEN
        RETURN format('on_failure: a JSON object expected, got %s', json_typeof(on_failure));
    END IF;
    n := json_populate_record(NULL::holdfast.new_job, on_failure);
    RETURN 'on_failure, ' || coalesce(
        holdfast.job_fault(n.kind, n.payload, n.queue, n.priority, n.max_attempts, n.delay_ms, n.at, n.expires_ms, n.expires_at,
            n.order_key, n.unique_key, n.unique_window_ms, n.on_conflict, n.headers, n.payload_version, n.blockers),
        CASE WHEN n.blockers IS NOT NULL THEN 'blockers: null expected, got ids of chains'
             WHEN n.on_conflict <> 'keep' THEN format('on_conflict: keep expected, got %s', n.on_conflict) END,
        holdfast.limits_fault(n.limits, n.tenant), holdfast.tags_fault(n.tags), holdfast.on_failure_fault(n.on_failure));
END $$;

-- For functions that release other jobs: a snapshot as old as its transaction does not show the jobs that began to wait meanwhile, so they
-- would wait for ever.
-- Called by enqueue_unique_jobs, resume_order_key, need_own_jobs, complete_job, complete_batch, complete_chain and 7 more.
CREATE FUNCTION holdfast.need_read_committed() RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'this lets other jobs go on, and needs a READ COMMITTED transaction: this one is %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'HF003';
    END IF;
END $$;
