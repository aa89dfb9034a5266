-- Scheduled jobs have an index of their own (job_later), so that a claim that finds nothing due costs the same however many lanes have a
-- job for tomorrow. `job.later` puts them there. It may be missing: a pending job that is not due is then found in its lane. It may be out
-- of date: every claim begins by promoting the jobs that are due, of any worker.

-- Promotes scheduled jobs that are due, `most` of each priority, oldest first. One claim at a time does it for all: two would only lock
-- each other's rows. A claim that is stuck in its turn stops the others for two seconds at most.
--   since, since_id  where the last promotion ended, and then where this one did: no job that is due and not promoted lies before.
--                    No claim floor may pass it, since these jobs appear in their lanes only when they are promoted.
--   reach            how far below to look, as in claim_jobs
--   promoted         the jobs
--   again            there are more: call again at once
--   soon             others are promoting, or have a due job locked: look again then
--   next             when the next one is due
-- Called by claim_jobs.
CREATE FUNCTION holdfast.promote_jobs(most integer, reach interval, INOUT since timestamptz, INOUT since_id bigint,
    OUT promoted bigint[], OUT again boolean, OUT soon timestamptz, OUT next timestamptz)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Below are the dead entries of jobs promoted earlier, which vacuum cannot remove while an old snapshot is open.
    begin_at timestamptz := holdfast.claim_floor(since, reach);
    begin_id bigint := CASE WHEN reach = interval '0' THEN coalesce(since_id, 0) ELSE 0 END;
    levels smallint[];
    met record;
    level smallint;
    moved bigint[];
    tried boolean := false;
BEGIN
    promoted := '{}'; again := false;
    LOOP
        levels := '{}'; next := NULL; since := now(); since_id := 0;
        FOR met IN
            SELECT f.* FROM generate_series(0, 9) AS l (level), LATERAL (
                SELECT j.priority, j.available_at, j.id FROM holdfast.job j
                WHERE j.later AND j.status = 'pending' AND j.priority = l.level AND (j.available_at, j.id) >= (begin_at, begin_id)
                ORDER BY j.available_at, j.id LIMIT 1) AS f
        LOOP
            IF met.available_at > now() THEN
                next := least(next, met.available_at);
            ELSE
                levels := levels || met.priority;
                IF (met.available_at, met.id) < (since, since_id) THEN
                    since := met.available_at; since_id := met.id;
                END IF;
            END IF;
        END LOOP;
        IF levels = '{}' OR again THEN
            RETURN;
        ELSIF tried THEN
            soon := clock_timestamp() + interval '1 second';
            RETURN;
        ELSIF NOT pg_try_advisory_xact_lock(hashtext('holdfast.promote_jobs'), 0) AND since > now() - interval '2 seconds' THEN
            soon := clock_timestamp() + interval '20 milliseconds';
            RETURN;
        END IF;
        tried := true;
        FOREACH level IN ARRAY levels LOOP
            WITH due AS MATERIALIZED (
                SELECT j.ctid FROM holdfast.job j
                WHERE j.later AND j.status = 'pending' AND j.priority = level AND (j.available_at, j.id) >= (begin_at, begin_id)
                    AND j.available_at <= now()
                ORDER BY j.available_at, j.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED),
            moving AS (
                UPDATE holdfast.job j SET later = NULL WHERE j.ctid = ANY (ARRAY(SELECT ctid FROM due)) RETURNING j.id)
            SELECT coalesce(array_agg(id), '{}') INTO moved FROM moving;
            promoted := promoted || moved;
            again := again OR cardinality(moved) = most;
        END LOOP;
    END LOOP;
END $$;

-- When the next scheduled job of these queues and kinds is due; null: none is. It passes over up to a hundred jobs of other workers in each
-- priority; a time more than a minute away may be of any worker's job, because no worker sleeps that long.
-- Called by next_due, claim_jobs.
CREATE FUNCTION holdfast.next_later(worker bigint, queues text[], kinds text[], shard_from smallint, shard_to smallint) RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first timestamptz;
    met record;
    passed integer;
BEGIN
    FOR level IN 0..9 LOOP
        passed := 0;
        FOR met IN
            SELECT j.available_at, j.queue, j.kind, j.shard FROM holdfast.job j
            WHERE j.later AND j.status = 'pending' AND j.priority = level AND j.available_at > now()
            ORDER BY j.available_at, j.id LIMIT 100
        LOOP
            EXIT WHEN met.available_at >= first;
            passed := passed + 1;
            IF passed < 100 AND met.available_at < now() + interval '1 minute' THEN
                kinds := coalesce(kinds, (SELECT w.kinds FROM holdfast.worker w WHERE w.id = worker), '{}');
                CONTINUE WHEN met.queue <> ALL (queues) OR met.shard NOT BETWEEN shard_from AND shard_to OR met.kind <> ALL (kinds);
            END IF;
            first := met.available_at;
            EXIT;
        END LOOP;
    END LOOP;
    RETURN first;
END $$;
