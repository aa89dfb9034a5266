-- Day partitions, made ahead of time. SECURITY DEFINER: only the owner of a table may add to it, and workers do not own it.

-- CREATE TABLE … PARTITION OF would lock the parent against readers and, behind one long reader, stop every finish.
-- ATTACH takes a lock that neither readers nor writers notice, so waiting for it harms nobody, and who is about to write waits rather than
-- being refused: half a minute.
CREATE FUNCTION holdfast.ensure_partitions(ahead integer DEFAULT 14) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '30s' SET timezone = 'UTC' AS $$
DECLARE
    family record;
    day date;
    part text;
    made integer := 0;
BEGIN
    IF ahead NOT BETWEEN 1 AND 366 THEN
        RAISE EXCEPTION 'partitions can be made 1 to 366 days ahead, not %', ahead USING ERRCODE = 'HF002';
    END IF;
    FOR family IN               -- every table of ours that is cut into days, by its column
        SELECT c.relname::text AS name, CASE WHEN c.relname = 'unique_window' THEN 31 ELSE 0 END AS longest     -- a window may end so late
        FROM pg_partitioned_table p JOIN pg_class c ON c.oid = p.partrelid
        WHERE c.relnamespace = 'holdfast'::regnamespace ORDER BY c.relname
    LOOP
        FOR day IN SELECT generate_series(current_date - 1, current_date + ahead + family.longest, '1 day')::date LOOP
            part := family.name || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass('holdfast.' || part) IS NOT NULL;
            PERFORM pg_advisory_xact_lock(hashtext('holdfast.partitions'), 0);
            -- Read the catalog itself: waiting for that lock does not refresh the cache that to_regclass asks.
            CONTINUE WHEN EXISTS (SELECT FROM pg_class c WHERE c.relname = part AND c.relnamespace = 'holdfast'::regnamespace);
            EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, family.name);
            EXECUTE format('ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)',
                family.name, part, day::timestamptz, (day + 1)::timestamptz);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

-- Called by whoever is about to write: made ahead or not, nothing is refused for lack of a partition, whatever the clock does.
CREATE FUNCTION holdfast.need_partitions() RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF to_regclass('holdfast.job_history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL
        OR to_regclass('holdfast.job_history_' || to_char((now() + interval '1 day') AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL
    THEN
        PERFORM holdfast.ensure_partitions();
    END IF;
END $$;

SELECT holdfast.ensure_partitions();
