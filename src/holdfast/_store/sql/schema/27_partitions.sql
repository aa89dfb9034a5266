-- Day partitions, made ahead of time and dropped when they have expired. SECURITY DEFINER: only the owner of a table may add to it, and
-- workers do not own it.

-- A table from which rows are deleted declares how a row is identified; otherwise a publication of all tables would refuse to delete them.
-- Partitions do not inherit it, so each day declares it: by its unique index, or by whole rows where there is none. So does `step`.
-- Called by ensure_partitions, drop_partition, table step.
CREATE FUNCTION holdfast.identify_rows(part text) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    by_index text := (SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = ('holdfast.' || quote_ident(part))::regclass AND i.indisunique LIMIT 1);
BEGIN
    EXECUTE format('ALTER TABLE holdfast.%I REPLICA IDENTITY ', part) || coalesce('USING INDEX ' || quote_ident(by_index), 'FULL');
END $$;

-- One transaction at a time adds or drops partitions. It locks a table that only its owner may lock in this mode: any login of the database
-- could hold an advisory lock, and would stop workers from starting.
-- Called by ensure_partitions, drop_partition, export_again, drop_archived.
CREATE FUNCTION holdfast.lock_partitions() RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE holdfast.migration IN SHARE UPDATE EXCLUSIVE MODE;
END $$;

-- CREATE TABLE ... PARTITION OF would lock the parent against readers and, behind one long reader, stop every finish. ATTACH takes a lock
-- that conflicts with neither readers nor writers, so waiting for it is harmless. A caller that is about to write waits up to half a minute
-- instead of failing. Rows that were written late are then moved to the days they belong to, 10000 of each family at a time.
-- Called by drop_partition, worker.sql ensure_partitions.
CREATE FUNCTION holdfast.ensure_partitions(ahead integer DEFAULT 3) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '30s' SET timezone = 'UTC' AS $$
DECLARE
    family record;
    day date;
    late date[];
    part text;
    made integer := 0;
BEGIN
    IF ahead NOT BETWEEN 1 AND 366 THEN
        RAISE EXCEPTION 'partitions can be made 1 to 366 days ahead, not %', ahead USING ERRCODE = 'HF002';
    END IF;
    FOR family IN               -- every table of ours that is partitioned by day, and its column
        SELECT left(c.relname, -length('_days'))::text AS name, a.attname::text AS at
        FROM pg_partitioned_table p JOIN pg_class c ON c.oid = p.partrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0]
        WHERE c.relnamespace = 'holdfast'::regnamespace AND p.partstrat = 'r' AND c.relname LIKE '%\_days' ORDER BY c.relname
    LOOP
        EXECUTE format('SELECT coalesce(array_agg(DISTINCT l.at::date), ''{}'') FROM (SELECT %I AS at FROM holdfast.%I LIMIT 10000) AS l',
            family.at, family.name || '_late') INTO late;
        FOR day IN SELECT generate_series(current_date - 1, current_date + ahead, '1 day')::date UNION SELECT unnest(late) ORDER BY 1 LOOP
            part := family.name || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass('holdfast.' || part) IS NOT NULL;
            PERFORM holdfast.lock_partitions();
            -- Read the catalog itself: waiting for that lock does not refresh the cache that to_regclass uses.
            CONTINUE WHEN EXISTS (SELECT FROM pg_class c WHERE c.relname = part AND c.relnamespace = 'holdfast'::regnamespace);
            EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, family.name);
            EXECUTE format('ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)',
                family.name || '_days', part, day::timestamptz, (day + 1)::timestamptz);
            PERFORM holdfast.identify_rows(part);
            made := made + 1;
        END LOOP;
        IF late <> '{}' THEN
            -- The lock: of two transactions that move the same row, one would fail. The new value moves the row to its day.
            PERFORM holdfast.lock_partitions();
            EXECUTE format('UPDATE holdfast.%1$I SET late = NULL WHERE late AND ctid = ANY (ARRAY(
                SELECT l.ctid FROM holdfast.%2$I AS l WHERE l.%3$I::date = ANY ($1) LIMIT 10000))',
                family.name, family.name || '_late', family.at) USING late;
        END IF;
    END LOOP;
    RETURN made;
END $$;

-- Called before every write into a table of ended rows. With or without partitions made ahead, no write fails for lack of a partition,
-- whatever the clock does. Without partitions for today and tomorrow, all rows that this transaction writes there are late: the setting is
-- the default of that column. No partition is created here: until a user's transaction ended, all others would wait for it.
-- Called by complete_jobs, settle_batch, record_run, publish_events, publish, advance_position.
CREATE FUNCTION holdfast.need_partitions() RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF to_regclass('holdfast.job_history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL
        OR to_regclass('holdfast.job_history_' || to_char((clock_timestamp() + interval '1 day') AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL
    THEN
        PERFORM set_config('holdfast.late', 'on', true);
    END IF;
END $$;

-- Where to search for an ended job when only its id, or an earlier one, is known, and today's partitions do not have it: at most four
-- partitions at a time, newest first, down to the day on which the id was drawn; then the days in the future, which exist if the clock was
-- set back. A search by id over a whole family locks every partition and every index of it until the transaction ends: hundreds of entries
-- of a lock table that all sessions share. So the caller gives the span in literals, which exclude the other partitions, and raises and
-- catches HF000 around it: the end of that subtransaction releases the locks.
-- Called by chain_ends, find_ended.
CREATE FUNCTION holdfast.history_spans(drawn bigint) RETURNS tstzrange[]
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    oldest date;
    spans tstzrange[];
BEGIN
    BEGIN
        -- A day earlier than its landmark: the clock may have been set back between the two.
        SELECT (l.at AT TIME ZONE 'UTC')::date - 1 INTO oldest FROM holdfast.landmark l WHERE l.last_id < drawn ORDER BY l.last_id DESC LIMIT 1;
        -- Materialized: the names of other tables are not dates.
        WITH parts AS MATERIALIZED (
            SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent IN ('holdfast.job_history_days'::regclass, 'holdfast.job_failed_days'::regclass)
            UNION (SELECT to_char(h.finished_at AT TIME ZONE 'UTC', 'YYYYMMDD') FROM holdfast.job_history h WHERE h.late LIMIT 10000)
            UNION (SELECT to_char(f.finished_at AT TIME ZONE 'UTC', 'YYYYMMDD') FROM holdfast.job_failed f WHERE f.late LIMIT 10000)),
        days AS (SELECT right(relname, 8)::date AS day, count(*) AS parts FROM parts GROUP BY 1),
        placed AS (
            SELECT d.day, d.day > today AS later, (sum(d.parts) OVER (PARTITION BY d.day > today ORDER BY abs(d.day - today)) - 1)::integer / 4 AS place
            FROM days d WHERE d.day NOT IN (today, today + 1) AND (d.day >= oldest OR oldest IS NULL))
        SELECT array_agg(tstzrange(s.since AT TIME ZONE 'UTC', s.until AT TIME ZONE 'UTC') ORDER BY s.later, s.place) INTO spans
        FROM (SELECT later, place, min(day)::timestamp AS since, (max(day) + 1)::timestamp AS until FROM placed GROUP BY later, place) AS s;
        RAISE EXCEPTION USING ERRCODE = 'HF000';
    EXCEPTION WHEN SQLSTATE 'HF000' THEN
        RETURN coalesce(spans, '{}');
    END;
END $$;

-- Called by chain_ends, find_ended.
CREATE FUNCTION holdfast.todays_span() RETURNS tstzrange
    LANGUAGE sql STABLE RETURN tstzrange(date_trunc('day', now(), 'UTC'), date_trunc('day', now(), 'UTC') + interval '2 days');

-- When and how a job ended, if that was not before `since`.
-- Called by lost_reason, get_job, replay_job.
CREATE FUNCTION holdfast.find_ended(job_id bigint, since timestamptz, OUT finished_at timestamptz, OUT status holdfast.status)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    spans tstzrange[] := ARRAY[holdfast.todays_span()];
    n integer := 1;
BEGIN
    WHILE n <= cardinality(spans) AND finished_at IS NULL LOOP
        BEGIN
            EXECUTE format('SELECT h.finished_at, h.status FROM holdfast.job_history h WHERE h.id = $1 AND h.finished_at >= %1$L AND h.finished_at < %2$L
                UNION ALL SELECT f.finished_at, f.status FROM holdfast.job_failed f WHERE f.id = $1 AND f.finished_at >= %1$L AND f.finished_at < %2$L
                LIMIT 1', lower(spans[n]), upper(spans[n])) INTO finished_at, status USING job_id;
            RAISE EXCEPTION USING ERRCODE = 'HF000';
        EXCEPTION WHEN SQLSTATE 'HF000' THEN
            NULL;
        END;
        IF n = 1 AND finished_at IS NULL THEN
            spans := spans || ARRAY(SELECT s FROM unnest(holdfast.history_spans(job_id)) WITH ORDINALITY AS x (s, place)
                WHERE upper(s) > since ORDER BY place);
        END IF;
        n := n + 1;
    END LOOP;
END $$;

-- True when every subscription has read all events of a day of the log, has none of them parked, and no running transaction has written into
-- it: such a writer keeps a lock on it, and no new one can come. First the locks, then the rows: rows committed in between are seen. SECURITY DEFINER: a worker may
-- read the log, but not its single days.
-- Called by expired_partitions, drop_archived, droppable_days, maintenance.sql unread_days.
CREATE FUNCTION holdfast.day_is_read(part text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    bottom bigint;
    top bigint;
    writer xid8;
BEGIN
    IF part IS NULL OR part !~ '^event_[0-9]{8}$' THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM pg_locks l WHERE l.relation = to_regclass('holdfast.' || part) AND l.mode = 'RowExclusiveLock'
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())) THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT (SELECT id FROM holdfast.%1$I ORDER BY id LIMIT 1), (SELECT id FROM holdfast.%1$I ORDER BY id DESC LIMIT 1),
        (SELECT xid FROM holdfast.%1$I ORDER BY xid DESC LIMIT 1)', part) INTO bottom, top, writer;
    RETURN top IS NULL OR NOT EXISTS (
        SELECT FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k, holdfast.position_of(s.id, k) AS p
        WHERE p.seen_id < top OR (p.phase = 'again' AND p.last_id < top)
            OR s.cluster <> holdfast.cluster() OR (top > s.base_id AND writer >= pg_snapshot_xmin(p.seen))
            OR EXISTS (SELECT FROM holdfast.parked d WHERE d.subscription_id = s.id AND d.event_id BETWEEN bottom AND top));
END $$;

-- The expired days, oldest first, each with the commands that remove it. The owner detaches a day beside readers and writers, then drops
-- it; other roles call drop_partition. A family that is archived is dropped by drop_archived alone.
-- Called by drop_partition, maintenance.sql expired_partitions.
CREATE FUNCTION holdfast.expired_partitions(most integer) RETURNS TABLE (part text, commands text[])
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.relname::text, CASE WHEN pg_has_role(c.relowner, 'USAGE') THEN array_remove(ARRAY[
            CASE WHEN i.inhdetachpending THEN format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I FINALIZE', r.family || '_days', c.relname)
                 WHEN i.inhrelid IS NOT NULL
                 THEN format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I CONCURRENTLY', r.family || '_days', c.relname) END,
            format('DROP TABLE holdfast.%I', c.relname)], NULL)
        ELSE ARRAY[format('SELECT holdfast.drop_partition(%L)', c.relname)] END
    FROM holdfast.retention r
        JOIN pg_class c ON c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND c.relname ~ ('^' || r.family || '_[0-9]{8}$')
        LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE (right(c.relname, 8)::date + 1)::timestamp AT TIME ZONE 'UTC' <= (SELECT holdfast.expiry_clock()) - r.keep AND NOT r.archived
        AND CASE WHEN r.family = 'event' THEN holdfast.day_is_read(c.relname::text) ELSE true END
    ORDER BY right(c.relname, 8), c.relname LIMIT most
$$;

-- For workers, which own no table: SECURITY DEFINER, and only days that retention gives up. It locks the parent for a moment, so it waits
-- only as long as others may wait behind it; the caller tries again later..
-- Called by expired_partitions.
CREATE FUNCTION holdfast.drop_partition(part text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    PERFORM FROM holdfast.expired_partitions(1000) AS e WHERE e.part = drop_partition.part;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM holdfast.lock_partitions();
    EXECUTE format('DROP TABLE IF EXISTS holdfast.%I', part);
    RETURN true;
END $$;

-- The first days.
SELECT holdfast.identify_rows(late)
FROM unnest('{job_history_late,job_failed_late,attempt_late,run_late,tally_late,event_late,delivery_late}'::text[]) AS late;
SELECT holdfast.ensure_partitions();
