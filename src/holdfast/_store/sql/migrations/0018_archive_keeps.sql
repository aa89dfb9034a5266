-- What the archive must not lose: a retention that was set at run time, and a file that has more rows than the database.

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
