-- Keeps a retention that was set at run time, and a file that has more rows than the database.

-- When the row was set last: of a change at run time its time, of the settings of a worker the time at which that worker started.
ALTER TABLE holdfast.retention ADD COLUMN changed_at timestamptz;

-- Replaces the function of 0016_archive.sql. `since`: the start of the worker whose settings have this number. The later one wins, so a worker
-- that writes its settings long after its start does not revert what was set since. Null: a change at run time. The attempts of a job are
-- kept as long as the job, and the answers of webhooks as long as the events, but at least 30 days.
DROP FUNCTION holdfast.set_retention(text, integer);
CREATE FUNCTION holdfast.set_retention(given text, days integer, since timestamptz DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF given IS NULL OR given NOT IN ('job_history', 'job_failed', 'event', 'run') OR days IS NULL OR days NOT BETWEEN 2 AND 36500 THEN
        RAISE EXCEPTION 'retention: job_history, job_failed, event or run and 2 to 36500 days expected, got % and %', given, days USING ERRCODE = 'HF002';
    END IF;
    UPDATE holdfast.retention r SET keep = days * interval '1 day', changed_at = coalesce(since, clock_timestamp())
    WHERE r.family = given AND (since IS NULL OR r.changed_at IS NULL OR r.changed_at <= since);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE holdfast.retention r SET keep = w.keep
    FROM (SELECT 'attempt' AS family, max(keep) AS keep FROM holdfast.retention WHERE family IN ('job_history', 'job_failed')
        UNION ALL SELECT 'delivery', greatest(keep, interval '30 days') FROM holdfast.retention WHERE family = 'event') AS w
    WHERE r.family = w.family AND r.keep <> w.keep AND (r.family = 'delivery') = (given = 'event');
    UPDATE holdfast.archive_exports x SET drop_eligible_at = greatest(x.verified_at, x.ends_on::timestamp AT TIME ZONE 'UTC' + r.keep)
    FROM holdfast.retention r WHERE r.family = x.source AND x.state = 'verified'
        AND x.drop_eligible_at <> greatest(x.verified_at, x.ends_on::timestamp AT TIME ZONE 'UTC' + r.keep);
END $$;

-- A file is replaced by one with fewer rows only if the missing ones were deleted on purpose: with `delete_chains`, which counts them, or when a
-- person says so.
ALTER TABLE holdfast.archive_exports
    ADD COLUMN deleted bigint NOT NULL DEFAULT 0,           -- rows that delete_chains deleted since `rows` were counted
    ADD COLUMN incomplete boolean NOT NULL DEFAULT false;   -- the database has fewer rows than the file: both are kept until a person decides

-- Replaces the function of 0016_archive.sql: a period that is incomplete is left alone.
CREATE OR REPLACE FUNCTION holdfast.closed_days(most integer) RETURNS TABLE (source text, starts_on date, part smallint, at text, rows_expected bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    family record;
    behind boolean;
BEGIN
    FOR family IN SELECT r.family AS name FROM holdfast.retention r WHERE r.archived ORDER BY r.family LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM holdfast.%I WHERE late)', family.name) INTO behind;
        CONTINUE WHEN behind;
        RETURN QUERY
        SELECT family.name, d.day, coalesce(x.part + (x.state = 'dropped')::integer, 1)::smallint,
            (SELECT a.attname::text FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
             WHERE p.partrelid = ('holdfast.' || family.name || '_days')::regclass),
            d.reltuples::bigint
        FROM (SELECT c.relname::text AS part, right(c.relname, 8)::date AS day, c.reltuples FROM pg_class c
              WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND c.relname ~ ('^' || family.name || '_[0-9]{8}$')) AS d
            LEFT JOIN LATERAL (SELECT e.part, e.state, e.locked_until, e.incomplete FROM holdfast.archive_exports e
                WHERE e.source = family.name AND e.starts_on = d.day ORDER BY e.part DESC LIMIT 1) AS x ON true
        WHERE (d.day + 1)::timestamp AT TIME ZONE 'UTC' <= now() - interval '1 hour'
            AND x.state IS DISTINCT FROM 'verified' AND coalesce(x.locked_until < now(), true) AND x.incomplete IS NOT TRUE
            AND (family.name <> 'run' OR NOT EXISTS (SELECT FROM holdfast.run r WHERE r.finished_at IS NULL
                AND r.started_at >= d.day::timestamp AT TIME ZONE 'UTC' AND r.started_at < (d.day + 1)::timestamp AT TIME ZONE 'UTC'))
        ORDER BY d.day LIMIT most;
    END LOOP;
END $$;

-- Replaces the function of 0016_archive.sql. Has a verified period exported anew, and attaches a day again if a drop was interrupted after it was
-- detached: an export reads the family, in which a detached day has no rows. `reason`: why the file is not trusted; null: its rows are not
-- those of the day. A day with fewer rows than its file is not exported, since its file would be replaced: day and file are kept, and the
-- answer is false. `wanted`: a person wants the period exported as it is, also if it is incomplete. SECURITY DEFINER: workers own no table.
DROP FUNCTION holdfast.export_again(text, date, smallint, text);
CREATE FUNCTION holdfast.export_again(given text, day date, nth smallint, reason text, wanted boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET timezone = 'UTC' AS $$
DECLARE
    held holdfast.archive_exports;
    part text := given || '_' || to_char(day, 'YYYYMMDD');
    is_day boolean := given IN ('job_history', 'job_failed', 'attempt', 'run', 'event', 'delivery');
    pending boolean;
    found_rows bigint := 0;
    counted text;
BEGIN
    SELECT * INTO held FROM holdfast.archive_exports x WHERE x.source = given AND x.starts_on = day AND x.part = nth FOR UPDATE;
    IF held.state IS DISTINCT FROM 'verified' AND NOT (wanted AND held.incomplete) OR held.state IS NULL THEN
        RETURN false;
    END IF;
    IF is_day AND to_regclass('holdfast.' || part) IS NULL AND wanted THEN
        RETURN false;
    END IF;
    IF is_day AND to_regclass('holdfast.' || part) IS NOT NULL THEN
        SELECT i.inhdetachpending INTO pending FROM pg_inherits i WHERE i.inhrelid = ('holdfast.' || part)::regclass;
        IF pending THEN
            EXECUTE format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I FINALIZE', given || '_days', part);
        END IF;
        IF pending IS DISTINCT FROM false THEN
            PERFORM holdfast.lock_partitions();
            EXECUTE format('ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)',
                given || '_days', part, day::timestamptz, (day + 1)::timestamptz);
        END IF;
        EXECUTE format('SELECT count(*) FROM holdfast.%I', part) INTO found_rows;
    END IF;
    IF is_day AND NOT wanted THEN
        counted := format('%s rows are in the day, and %s in its file', found_rows, held.rows)
            || CASE WHEN held.deleted > 0 THEN format(', of which delete_chains deleted %s', held.deleted) ELSE '' END;
        IF found_rows < held.rows - held.deleted THEN
            UPDATE holdfast.archive_exports x SET incomplete = true, error = left(concat_ws(', and ', reason, counted)
                || ': both are kept. If the rows were deleted on purpose, replace the file with '
                || format('`holdfast archive export %s --day %s`', given, day), 2000)
            WHERE x.source = given AND x.starts_on = day AND x.part = nth;
            RETURN false;
        END IF;
    END IF;
    UPDATE holdfast.archive_exports x SET state = 'exporting', verified_at = NULL, drop_eligible_at = NULL, locked_until = NULL,
        incomplete = false, error = left(coalesce(reason, counted) || ': it is exported anew', 2000),
        rows = CASE WHEN NOT wanted THEN x.rows END, deleted = CASE WHEN wanted THEN 0 ELSE x.deleted END
    WHERE x.source = given AND x.starts_on = day AND x.part = nth;
    RETURN true;
END $$;

-- Replaces the function of 0016_archive.sql: a day with fewer rows than its file is kept, and so is the file.
CREATE OR REPLACE FUNCTION holdfast.drop_archived(given text, day date, nth smallint) RETURNS text
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' SET timezone = 'UTC' AS $$
DECLARE
    held holdfast.archive_exports;
    part text := given || '_' || to_char(day, 'YYYYMMDD');
    found_rows bigint;
BEGIN
    SELECT * INTO held FROM holdfast.archive_exports x WHERE x.source = given AND x.starts_on = day AND x.part = nth FOR UPDATE;
    IF held.state IS DISTINCT FROM 'verified' OR held.drop_eligible_at > now()
        OR given NOT IN ('job_history', 'job_failed', 'attempt', 'run', 'event', 'delivery') THEN
        RETURN 'kept';
    END IF;
    IF to_regclass('holdfast.' || part) IS NOT NULL THEN
        IF given = 'event' AND NOT holdfast.day_is_read(part) THEN
            RETURN 'kept';
        END IF;
        EXECUTE format('LOCK TABLE holdfast.%I IN SHARE MODE', part);
        EXECUTE format('SELECT count(*) FROM holdfast.%I', part) INTO found_rows;
        -- With deleted rows, an equal number may hide others that came late.
        IF found_rows <> held.rows OR held.deleted > 0 THEN
            RETURN CASE WHEN holdfast.export_again(given, day, nth, NULL) THEN 'changed' ELSE 'incomplete' END;
        END IF;
        PERFORM holdfast.lock_partitions();
        EXECUTE format('LOCK TABLE holdfast.%I IN ACCESS EXCLUSIVE MODE', part);
        EXECUTE format('DROP TABLE holdfast.%I', part);
    END IF;
    UPDATE holdfast.archive_exports x SET state = 'dropped', dropped_at = now(), incomplete = false, error = NULL
    WHERE x.source = given AND x.starts_on = day AND x.part = nth;
    RETURN 'dropped';
END $$;

-- Replaces the function of 0016_archive.sql: a day that is incomplete is not detached before it is counted, since it will probably be kept.
CREATE OR REPLACE FUNCTION holdfast.droppable_days(most integer) RETURNS TABLE (source text, starts_on date, part smallint, object text, etag text, bytes bigint, commands text[])
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT x.source, x.starts_on, x.part, x.object, x.etag, x.bytes, array_remove(ARRAY[
        CASE WHEN c.oid IS NULL OR i.inhrelid IS NULL OR NOT pg_has_role(c.relowner, 'USAGE') THEN NULL
             WHEN i.inhdetachpending THEN format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I FINALIZE', x.source || '_days', c.relname)
             WHEN NOT x.incomplete
             THEN format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I CONCURRENTLY', x.source || '_days', c.relname) END,
        format('SELECT holdfast.drop_archived(%L, %L, %L)', x.source, x.starts_on, x.part)], NULL)
    FROM holdfast.archive_exports x JOIN holdfast.retention r ON r.family = x.source
        LEFT JOIN pg_class c ON c.relnamespace = 'holdfast'::regnamespace AND c.relname = x.source || '_' || to_char(x.starts_on, 'YYYYMMDD')
        LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE x.state = 'verified' AND x.drop_eligible_at <= now()
        AND CASE WHEN x.source = 'event' AND c.oid IS NOT NULL THEN holdfast.day_is_read(c.relname::text) ELSE true END
    ORDER BY x.starts_on, x.source LIMIT most
$$;

-- Counts rows that delete_chains deletes from days that are archived, by the times of the rows. In the order of days, so that two transactions
-- wait for each other in one direction only.
CREATE FUNCTION holdfast.count_deleted(family text, times timestamptz[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone record;
BEGIN
    FOR gone IN SELECT (t AT TIME ZONE 'UTC')::date AS day, count(*) AS rows FROM unnest(times) AS t GROUP BY 1 ORDER BY 1 LOOP
        UPDATE holdfast.archive_exports x SET deleted = x.deleted + gone.rows
        WHERE x.source = family AND x.starts_on = gone.day AND x.state <> 'dropped';
    END LOOP;
END $$;

-- Replaces the function of 0009_chains.sql: rows that are deleted from a day that is archived are counted in its record, so that it is exported
-- anew without them. SECURITY DEFINER: no role may delete from the history.
CREATE OR REPLACE FUNCTION holdfast.delete_chains(chains bigint[], cascade boolean DEFAULT false) RETURNS SETOF bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    doomed bigint[] := ARRAY(SELECT DISTINCT c FROM unnest(chains) AS c);
    live holdfast.job[];
    waiters bigint[];
    more bigint[];
    ended bigint[];
    completed_at timestamptz[];
    failed_at timestamptz[];
    tried_at timestamptz[];
    fault text := holdfast.ids_fault('chains', chains, 10000);
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    PERFORM holdfast.need_read_committed();
    FOR round IN 1..1100 LOOP
        IF cardinality(doomed) > 1000 THEN
            RAISE EXCEPTION 'at most 1000 chains are deleted at once' USING ERRCODE = 'HF002';
        END IF;
        live := ARRAY(SELECT j FROM holdfast.job j WHERE j.id = ANY (doomed) AND j.chain_id IS NULL OR j.chain_id = ANY (doomed)
            ORDER BY j.id FOR UPDATE);
        SELECT array_agg(DISTINCT w.id), array_agg(DISTINCT coalesce(w.chain_id, w.id)) INTO waiters, more
        FROM holdfast.blocker b JOIN holdfast.job w ON w.id = b.job_id
        WHERE b.chain_id = ANY (doomed) AND b.status IS NULL AND coalesce(w.chain_id, w.id) <> ALL (doomed);
        IF waiters IS NOT NULL AND NOT cascade THEN
            RAISE EXCEPTION 'other jobs wait for these chains' USING ERRCODE = 'HF004', DETAIL = array_to_string(waiters[:100], ' ');
        END IF;
        -- A chain may have continued while this waited for its last job.
        EXIT WHEN waiters IS NULL AND NOT EXISTS (
            SELECT FROM holdfast.job j WHERE (j.id = ANY (doomed) AND j.chain_id IS NULL OR j.chain_id = ANY (doomed))
                AND j.id NOT IN (SELECT l.id FROM unnest(live) AS l));
        doomed := doomed || coalesce(more, '{}');
    END LOOP;
    ended := ARRAY(
        SELECT h.id FROM holdfast.job_history h WHERE h.id = ANY (doomed) AND h.chain_id IS NULL OR h.chain_id = ANY (doomed)
        UNION ALL
        SELECT f.id FROM holdfast.job_failed f WHERE f.id = ANY (doomed) AND f.chain_id IS NULL OR f.chain_id = ANY (doomed) LIMIT 100001);
    IF cardinality(ended) > 100000 THEN
        RAISE EXCEPTION 'at most 100000 jobs are deleted at once: give fewer chains' USING ERRCODE = 'HF002';
    END IF;
    doomed := ARRAY(SELECT d FROM unnest(doomed) AS d
        WHERE EXISTS (SELECT FROM unnest(live) AS l WHERE coalesce(l.chain_id, l.id) = d)
           OR EXISTS (SELECT FROM holdfast.job_history h WHERE h.id = d AND h.chain_id IS NULL OR h.chain_id = d)
           OR EXISTS (SELECT FROM holdfast.job_failed f WHERE f.id = d AND f.chain_id IS NULL OR f.chain_id = d));
    PERFORM FROM holdfast.settle_patiently(ARRAY(
        SELECT ROW (l.id, holdfast.take_job(l.id), 0, 'cancelled', NULL, NULL, 'deleted', NULL, NULL, true, NULL, NULL, NULL, NULL, NULL)::holdfast.ending
        FROM unnest(live) AS l));
    WITH gone AS (DELETE FROM holdfast.job_history h WHERE h.id = ANY (ended) RETURNING h.finished_at, h.late)
    SELECT array_agg(g.finished_at) FILTER (WHERE g.late IS NULL) INTO completed_at FROM gone g;
    WITH gone AS (DELETE FROM holdfast.job_failed f WHERE f.id = ANY (ended) RETURNING f.finished_at, f.late)
    SELECT array_agg(g.finished_at) FILTER (WHERE g.late IS NULL) INTO failed_at FROM gone g;
    WITH gone AS (
        DELETE FROM holdfast.attempt a WHERE a.job_id = ANY (ended || ARRAY(SELECT l.id FROM unnest(live) AS l)) RETURNING a.ended_at, a.late)
    SELECT array_agg(g.ended_at) FILTER (WHERE g.late IS NULL) INTO tried_at FROM gone g;
    DELETE FROM holdfast.replay r WHERE r.job_id = ANY (ended);
    -- A deleted job cannot be replayed any more, so it may not stop an order key. Sorted, so that two transactions wait for each other in
    -- one direction only.
    PERFORM holdfast.resume_order_key(s.order_key)
    FROM (SELECT o.order_key FROM holdfast.order_stop o WHERE o.job_id = ANY (ended) ORDER BY hashtext(o.order_key)) AS s;
    PERFORM holdfast.count_deleted('attempt', tried_at);
    PERFORM holdfast.count_deleted('job_failed', failed_at);
    PERFORM holdfast.count_deleted('job_history', completed_at);
    PERFORM pg_notify('holdfast_' || l.locked_by, format('lost %s %s not_found', l.id, l.lock_token))
    FROM unnest(live) AS l WHERE l.status = 'processing';
    RETURN QUERY SELECT d FROM unnest(doomed) AS d ORDER BY d;
END $$;
