-- The archive: closed days are written to an object store, read back, and only then dropped.

-- With `archived`, a day of this family is dropped only when it is verified in the archive. A worker with a bucket sets it. A worker without
-- one does not clear it: a forgotten variable must not lose a day.
ALTER TABLE holdfast.retention ADD COLUMN archived boolean NOT NULL DEFAULT false;

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
    locked_until     timestamptz,               -- while this is ahead, no other process exports the period
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
    PRIMARY KEY (source, starts_on, part)
);
-- Where to look for a job that is no longer in the database.
CREATE INDEX archive_exports_id ON holdfast.archive_exports (source, min_id, max_id);

-- Sets how long ended rows are kept. SECURITY DEFINER: a worker and an operator may, and own no table. The attempts of a job are kept as long
-- as the job, and the responses of receivers as long as the events.
CREATE FUNCTION holdfast.set_retention(given text, days integer) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF given IS NULL OR given NOT IN ('job_history', 'job_failed', 'event', 'run') OR days IS NULL OR days NOT BETWEEN 2 AND 36500 THEN
        RAISE EXCEPTION 'retention: job_history, job_failed, event or run and 2 to 36500 days expected, got % and %', given, days USING ERRCODE = 'HF002';
    END IF;
    UPDATE holdfast.retention SET keep = days * interval '1 day' WHERE family = given AND keep <> days * interval '1 day';
    UPDATE holdfast.retention r SET keep = w.keep
    FROM (SELECT 'attempt' AS family, max(keep) AS keep FROM holdfast.retention WHERE family IN ('job_history', 'job_failed')
        UNION ALL SELECT 'delivery', max(keep) FROM holdfast.retention WHERE family IN ('event', 'delivery')) AS w
    WHERE r.family = w.family AND r.keep <> w.keep;
    UPDATE holdfast.archive_exports x SET drop_eligible_at = greatest(x.verified_at, x.ends_on::timestamp AT TIME ZONE 'UTC' + r.keep)
    FROM holdfast.retention r WHERE r.family = x.source AND x.state = 'verified'
        AND x.drop_eligible_at <> greatest(x.verified_at, x.ends_on::timestamp AT TIME ZONE 'UTC' + r.keep);
END $$;

-- Whether days are kept until they are verified in the archive. Counts are not archived, and neither is the inbox.
CREATE FUNCTION holdfast.set_archived(wanted boolean) RETURNS void
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE holdfast.retention SET archived = wanted
    WHERE family IN ('job_history', 'job_failed', 'attempt', 'run', 'event', 'delivery') AND archived <> wanted $$;

-- Days to export, oldest first: over for an hour, with no late row of their family left to be moved, and not verified yet. A day that was
-- dropped and has a partition again has late rows of its own, and gets another part. A day with a run that has not ended is not closed: the
-- row will be updated, and the number of rows would not show it.
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
            LEFT JOIN LATERAL (SELECT e.part, e.state, e.locked_until FROM holdfast.archive_exports e
                WHERE e.source = family.name AND e.starts_on = d.day ORDER BY e.part DESC LIMIT 1) AS x ON true
        WHERE (d.day + 1)::timestamp AT TIME ZONE 'UTC' <= now() - interval '1 hour'
            AND x.state IS DISTINCT FROM 'verified' AND coalesce(x.locked_until < now(), true)
            AND (family.name <> 'run' OR NOT EXISTS (SELECT FROM holdfast.run r WHERE r.finished_at IS NULL
                AND r.started_at >= d.day::timestamp AT TIME ZONE 'UTC' AND r.started_at < (d.day + 1)::timestamp AT TIME ZONE 'UTC'))
        ORDER BY d.day LIMIT most;
    END LOOP;
END $$;

-- Has a verified day exported anew, and attaches it again if a drop was interrupted after it was detached: an export reads the family, in
-- which a detached day has no rows. SECURITY DEFINER: workers own no table.
CREATE FUNCTION holdfast.export_again(given text, day date, nth smallint, reason text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET timezone = 'UTC' AS $$
DECLARE
    part text := given || '_' || to_char(day, 'YYYYMMDD');
    pending boolean;
BEGIN
    UPDATE holdfast.archive_exports x SET state = 'exporting', verified_at = NULL, drop_eligible_at = NULL, locked_until = NULL,
        error = left(reason, 2000)
    WHERE x.source = given AND x.starts_on = day AND x.part = nth AND x.state = 'verified';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF given IN ('job_history', 'job_failed', 'attempt', 'run', 'event', 'delivery') AND to_regclass('holdfast.' || part) IS NOT NULL THEN
        SELECT i.inhdetachpending INTO pending FROM pg_inherits i WHERE i.inhrelid = ('holdfast.' || part)::regclass;
        IF pending THEN
            EXECUTE format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I FINALIZE', given || '_days', part);
        END IF;
        IF pending IS DISTINCT FROM false THEN
            PERFORM holdfast.lock_partitions();
            EXECUTE format('ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)',
                given || '_days', part, day::timestamptz, (day + 1)::timestamptz);
        END IF;
    END IF;
    RETURN true;
END $$;

-- Drops a verified day, if it still has as many rows as its file; otherwise it will be exported anew. SECURITY DEFINER: workers own no table.
-- An attached day is dropped with a lock on its parent, behind which finished jobs wait: so it is requested last, for a moment only, and the
-- caller tries again. Before, a lock that excludes writers, and no readers, is held while the rows are counted.
CREATE FUNCTION holdfast.drop_archived(given text, day date, nth smallint) RETURNS text
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
        IF found_rows <> held.rows THEN
            PERFORM holdfast.export_again(given, day, nth,
                format('%s rows are in the day, and %s in its file: it is exported anew', found_rows, held.rows));
            RETURN 'changed';
        END IF;
        PERFORM holdfast.lock_partitions();
        EXECUTE format('LOCK TABLE holdfast.%I IN ACCESS EXCLUSIVE MODE', part);
        EXECUTE format('DROP TABLE holdfast.%I', part);
    END IF;
    UPDATE holdfast.archive_exports x SET state = 'dropped', dropped_at = now() WHERE x.source = given AND x.starts_on = day AND x.part = nth;
    RETURN 'dropped';
END $$;

-- Verified days whose time has come, oldest first, each with the commands that drop it. The owner detaches a day beside readers and writers
-- before; other roles drop it with a short lock.
CREATE FUNCTION holdfast.droppable_days(most integer) RETURNS TABLE (source text, starts_on date, part smallint, object text, etag text, bytes bigint, commands text[])
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT x.source, x.starts_on, x.part, x.object, x.etag, x.bytes, array_remove(ARRAY[
        CASE WHEN c.oid IS NULL OR i.inhrelid IS NULL OR NOT pg_has_role(c.relowner, 'USAGE') THEN NULL
             WHEN i.inhdetachpending THEN format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I FINALIZE', x.source || '_days', c.relname)
             ELSE format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I CONCURRENTLY', x.source || '_days', c.relname) END,
        format('SELECT holdfast.drop_archived(%L, %L, %L)', x.source, x.starts_on, x.part)], NULL)
    FROM holdfast.archive_exports x JOIN holdfast.retention r ON r.family = x.source
        LEFT JOIN pg_class c ON c.relnamespace = 'holdfast'::regnamespace AND c.relname = x.source || '_' || to_char(x.starts_on, 'YYYYMMDD')
        LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE x.state = 'verified' AND x.drop_eligible_at <= now()
        AND CASE WHEN x.source = 'event' AND c.oid IS NOT NULL THEN holdfast.day_is_read(c.relname::text) ELSE true END
    ORDER BY x.starts_on, x.source LIMIT most
$$;

-- Replaces the function of 0011_subscriptions.sql: a family that is archived is dropped by drop_archived alone.
CREATE OR REPLACE FUNCTION holdfast.expired_partitions(most integer) RETURNS TABLE (part text, commands text[])
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
    WHERE (right(c.relname, 8)::date + 1)::timestamp AT TIME ZONE 'UTC' <= now() - r.keep AND NOT r.archived
        AND CASE WHEN r.family = 'event' THEN holdfast.day_is_read(c.relname::text) ELSE true END
    ORDER BY right(c.relname, 8), c.relname LIMIT most
$$;
