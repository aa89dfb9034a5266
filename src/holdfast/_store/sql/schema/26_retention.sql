-- How long ended rows are kept.

-- How long the days of each family, and the messages in the inbox, are kept after they have ended. Workers may read it, and drop what it no
-- longer protects.
CREATE TABLE holdfast.retention (
    family     text COLLATE "C" PRIMARY KEY
        CHECK (family IN ('job_history', 'job_failed', 'attempt', 'run', 'tally', 'event', 'inbox', 'delivery')),
    keep       interval NOT NULL CHECK (keep >= interval '2 days'),
    -- With `archived`, a day of this family is dropped only when it is verified in the archive. A worker with a bucket sets it. A worker
    -- without one does not clear it: a forgotten variable must not lose a day.
    archived   boolean NOT NULL DEFAULT false
);
INSERT INTO holdfast.retention (family, keep) VALUES
    ('job_history', '14 days'), ('job_failed', '90 days'), ('attempt', '90 days'), ('run', '30 days'), ('tally', '90 days'),
    ('event', '7 days'), ('inbox', '14 days'), ('delivery', '30 days');

-- The time by which rows have expired: now, if the clock was a day earlier a day ago, give or take four hours. After a leap of the clock, or
-- a longer stop, it is no time at all, and nothing expires until the clock has gone on for a day, or a person has confirmed it. The witness is
-- the last job id at each minute, which maintenance records. A new schema has none, and nothing that could have expired.
-- Called by confirm_clock, expired_partitions, drop_archived, droppable_days, archive.sql clock_is_doubted, archive.sql record_dropped and 8 more.
CREATE FUNCTION holdfast.expiry_clock() RETURNS timestamptz
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM holdfast.landmark l WHERE l.at BETWEEN now() - interval '28 hours' AND now() - interval '20 hours')
        OR EXISTS (SELECT FROM holdfast.migration m WHERE m.applied_at BETWEEN now() - interval '28 hours' AND now())
    THEN now() ELSE '-infinity' END $$;

-- A person says that the clock is right. True: it was in doubt.
-- Called by archive.sql confirm_clock.
CREATE FUNCTION holdfast.confirm_clock() RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    doubted boolean := holdfast.expiry_clock() = '-infinity';
BEGIN
    INSERT INTO holdfast.landmark (at, last_id)
    SELECT date_trunc('minute', now()) - interval '1 day', coalesce(max(l.last_id), 0) FROM holdfast.landmark l WHERE doubted HAVING doubted
    ON CONFLICT DO NOTHING;
    RETURN doubted;
END $$;

-- Sets how long ended rows are kept. The attempts of a job are kept as long as the job, and the answers of webhooks as long as the events,
-- but at least 30 days. SECURITY DEFINER: an operator may, and owns no table.
-- Called by archive.sql set_retention.
CREATE FUNCTION holdfast.set_retention(given text, days integer) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF given IS NULL OR given NOT IN ('job_history', 'job_failed', 'event', 'run') OR days IS NULL OR days NOT BETWEEN 2 AND 36500 THEN
        RAISE EXCEPTION 'retention: job_history, job_failed, event or run and 2 to 36500 days expected, got % and %', given, days USING ERRCODE = 'HF002';
    END IF;
    UPDATE holdfast.retention r SET keep = days * interval '1 day' WHERE r.family = given;
    UPDATE holdfast.retention r SET keep = w.keep
    FROM (SELECT 'attempt' AS family, max(keep) AS keep FROM holdfast.retention WHERE family IN ('job_history', 'job_failed')
        UNION ALL SELECT 'delivery', greatest(keep, interval '30 days') FROM holdfast.retention WHERE family = 'event') AS w
    WHERE r.family = w.family AND r.keep <> w.keep AND (r.family = 'delivery') = (given = 'event');
    UPDATE holdfast.archive_exports x SET drop_eligible_at = greatest(x.verified_at, x.ends_on::timestamp AT TIME ZONE 'UTC' + r.keep)
    FROM holdfast.retention r WHERE r.family = x.source AND x.state = 'verified'
        AND x.drop_eligible_at <> greatest(x.verified_at, x.ends_on::timestamp AT TIME ZONE 'UTC' + r.keep);
END $$;

-- Whether days are kept until they are verified in the archive. Counts are not archived, and neither is the inbox.
-- Called by archive.sql set_archived.
CREATE FUNCTION holdfast.set_archived(wanted boolean) RETURNS void
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE holdfast.retention SET archived = wanted
    WHERE family IN ('job_history', 'job_failed', 'attempt', 'run', 'event', 'delivery') AND archived <> wanted $$;
