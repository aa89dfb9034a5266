-- The archive: closed days are written to an object store, read back, and only then dropped.

-- One row per file: a day of a family, or a month of a table of the application. A period that gets rows again after its drop has another part.
CREATE TABLE holdfast.archive_exports (
    source           text COLLATE "C" NOT NULL CHECK (octet_length(source) BETWEEN 1 AND 200),      -- a family, or schema.table
    starts_on        date NOT NULL,
    part             smallint NOT NULL DEFAULT 1,
    ends_on          date NOT NULL,             -- the first day after the period
    state            text COLLATE "C" NOT NULL CHECK (state IN ('exporting', 'uploaded', 'verified', 'dropped')),
    started_at       timestamptz NOT NULL,
    uploaded_at      timestamptz,
    verified_at      timestamptz,
    drop_eligible_at timestamptz,               -- from then on cleanup may drop the period; null: it is not verified
    dropped_at       timestamptz,
    lock_token       bigint NOT NULL,           -- fences every write of an export
    locked_until     timestamptz,               -- while this is ahead, by an hour at most, no other process exports the period
    rows_expected    bigint,                    -- an estimate, for the progress
    rows_done        bigint NOT NULL DEFAULT 0,
    rows             bigint,
    bytes            bigint,
    min_id           bigint,
    max_id           bigint,
    schema_version   integer,
    object           text,                      -- its name in the bucket; null: the period has no rows, and only a manifest
    etag             text,                      -- of the object when it was verified
    checksum         text,                      -- SHA-256 of the object, in hex
    error            text,                      -- of the last try, masked and bounded
    -- A file is replaced by one with fewer rows only if the missing ones were deleted on purpose, or when a person says so.
    deleted          bigint NOT NULL DEFAULT 0,         -- rows that delete_chains deleted since `rows` were counted
    incomplete       boolean NOT NULL DEFAULT false,    -- the database has fewer rows than the file: both are kept until a person decides
    PRIMARY KEY (source, starts_on, part)
);
-- Where to look for a job that is no longer in the database.
CREATE INDEX archive_exports_id ON holdfast.archive_exports (source, min_id, max_id);

-- Days to export, oldest first: over for an hour, with no late row of their family left to be moved, and not verified yet. A day that was
-- dropped and has a partition again has late rows of its own, and gets another part. A day with a run that has not ended is not closed: the
-- row will be updated, and the number of rows would not show it. An incomplete period is left alone.
-- Called by archive.sql closed_days.
CREATE FUNCTION holdfast.closed_days(most integer) RETURNS TABLE (source text, starts_on date, part smallint, at text, rows_expected bigint)
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
            AND x.state IS DISTINCT FROM 'verified' AND coalesce(x.locked_until NOT BETWEEN now() AND now() + interval '1 hour', true) AND x.incomplete IS NOT TRUE
            AND (family.name <> 'run' OR NOT EXISTS (SELECT FROM holdfast.run r WHERE r.finished_at IS NULL
                AND r.started_at >= d.day::timestamp AT TIME ZONE 'UTC' AND r.started_at < (d.day + 1)::timestamp AT TIME ZONE 'UTC'))
        ORDER BY d.day LIMIT most;
    END LOOP;
END $$;

-- Has a verified period exported anew, and attaches a day again if a drop was interrupted after it was detached: an export reads the family,
-- in which a detached day has no rows. `reason`: why the file is not trusted; null: its rows are not those of the day. A day with fewer rows
-- than its file is not exported, since its file would be replaced: day and file are kept, and the answer is false. `wanted`: a person wants
-- the period exported as it is, also if it is incomplete. SECURITY DEFINER: workers own no table.
-- Called by drop_archived, archive.sql export_again, archive.sql export_as_it_is.
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

-- Counts rows that delete_chains deletes from days that are archived, by the times of the rows. In the order of days, so that two transactions
-- wait for each other in one direction only.
-- Called by delete_chains.
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

-- Drops a verified day, if it still has as many rows as its file. With more it will be exported anew; with fewer, day and file are kept.
-- An attached day is dropped with a lock on its parent, behind which finished jobs wait: so it is requested last, for a moment only, and the
-- caller tries again. Before, a lock that excludes writers, and no readers, is held while the rows are counted. SECURITY DEFINER: workers
-- own no table.
-- Called by droppable_days.
CREATE FUNCTION holdfast.drop_archived(given text, day date, nth smallint) RETURNS text
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' SET timezone = 'UTC' AS $$
DECLARE
    held holdfast.archive_exports;
    part text := given || '_' || to_char(day, 'YYYYMMDD');
    found_rows bigint;
BEGIN
    SELECT * INTO held FROM holdfast.archive_exports x WHERE x.source = given AND x.starts_on = day AND x.part = nth FOR UPDATE;
    IF held.state IS DISTINCT FROM 'verified' OR held.drop_eligible_at > holdfast.expiry_clock()
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

-- Verified days whose time has come, oldest first, each with the commands that drop it. The owner detaches a day beside readers and writers
-- before; other roles drop it with a short lock. An incomplete day is not detached before it is counted, since it will probably be kept.
-- Called by archive.sql droppable_days.
CREATE FUNCTION holdfast.droppable_days(most integer) RETURNS TABLE (source text, starts_on date, part smallint, object text, etag text, bytes bigint, commands text[])
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
    WHERE x.state = 'verified' AND x.drop_eligible_at <= (SELECT holdfast.expiry_clock())
        AND CASE WHEN x.source = 'event' AND c.oid IS NOT NULL THEN holdfast.day_is_read(c.relname::text) ELSE true END
    ORDER BY x.starts_on, x.source LIMIT most
$$;
