-- Recurring work: when runners and periodic jobs run next, and the record of each run.

-- One row per runner that has a schedule, and per periodic job. The row decides which worker gets a slot: a fleet runs each slot once.
-- While a slot runs, its holder renews the lease, and the next slot waits; several slots that pass meanwhile become one late run,
-- or none if missed ones are skipped.
CREATE TABLE holdfast.schedule (
    name         text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 200),
    what         text NOT NULL CHECK (what IN ('runner', 'job')),
    schedule     text NOT NULL CHECK (octet_length(schedule) BETWEEN 1 AND 400),    -- 'every 120s', '17 3 * * * America/Santiago'
    declared     text,                          -- the last declaration of the code: an edit stays until that changes; null: it was added at run time
    job          json,                          -- what a periodic job enqueues
    paused       boolean NOT NULL DEFAULT false,
    paused_at    timestamptz,                   -- with by whom, and why
    paused_by    text,
    paused_reason   text,
    missed       text NOT NULL DEFAULT 'run' CHECK (missed IN ('run', 'skip')),     -- what becomes of a slot that could not start in time
    triggered_at timestamptz,                   -- run once more, now, paused or not
    next_at      timestamptz,                   -- null: the next worker that reads it computes it
    last_at      timestamptz,                   -- the slot that was started last
    slot_at      timestamptz,                   -- the slot that runs now
    started_at   timestamptz,
    run_id       bigint,
    attempt      smallint NOT NULL DEFAULT 0,   -- how often this slot was started
    locked_by    bigint,
    lock_token   bigint,
    locked_until timestamptz,
    CHECK ((what = 'job') = (job IS NOT NULL))
) WITH (fillfactor = 50);

-- Called by record_run.
CREATE FUNCTION holdfast.did_nothing(counts json) RETURNS boolean
    LANGUAGE sql IMMUTABLE RETURN NOT EXISTS (SELECT FROM json_each_text(counts) AS c WHERE c.value <> '0');

-- Without an outcome the run continues. Its end is written into the same row; writing it twice is harmless. A run that did nothing replaces
-- the one before that did nothing either, so that a runner leaves one such row a day; it looks for it among the last twenty runs of the day.
-- Called by claim_slot, end_slot, schedule.sql record_run.
CREATE FUNCTION holdfast.record_run(id bigint, started_at timestamptz, worker bigint, runner text, outcome text, counts json,
    error_code text, error text) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE holdfast.run AS r SET finished_at = CASE WHEN $5 IS NOT NULL THEN clock_timestamp() END, outcome = $5, counts = $6, error_code = $7, error = $8
    WHERE r.runner = $4 AND r.started_at = $2 AND r.id = $1;
    IF NOT FOUND THEN
        PERFORM holdfast.need_partitions();
        INSERT INTO holdfast.run (id, started_at, finished_at, worker_id, runner, outcome, counts, error_code, error)
        OVERRIDING SYSTEM VALUE VALUES ($1, $2, CASE WHEN $5 IS NOT NULL THEN clock_timestamp() END, nullif($3, 0), $4, $5, $6, $7, $8);
    END IF;
    IF $5 = 'completed' AND holdfast.did_nothing($6) THEN
        DELETE FROM holdfast.run r USING (
            SELECT o.id, o.started_at, o.outcome, o.counts FROM holdfast.run o
            WHERE o.runner = $4 AND o.started_at < $2 AND o.started_at >= date_trunc('day', $2, 'UTC')
            ORDER BY o.started_at DESC LIMIT 20) AS before
        WHERE r.runner = $4 AND r.started_at = before.started_at AND r.id = before.id
            AND before.outcome = 'completed' AND holdfast.did_nothing(before.counts);
    END IF;
END $$;

-- Claims a runner's slot, if it is due and no worker runs it: a new one, or again the one whose holder did not renew its lease, or released
-- it. A slot that was lost three times is given up. `following` was computed from `seen` and `seen_next`: the second of two workers finds
-- them changed. A row shows the run from its start.
-- Called by schedule.sql claim_slot.
CREATE FUNCTION holdfast.claim_slot(given text, worker bigint, lease_ms integer, seen text, seen_next timestamptz, following timestamptz)
    RETURNS TABLE (slot_at timestamptz, started_at timestamptz, lock_token bigint, attempt smallint, run_id bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    held holdfast.schedule;
    again boolean;
    due boolean;
BEGIN
    SELECT * INTO held FROM holdfast.schedule s
    WHERE s.name = given AND s.what = 'runner' AND s.schedule = seen AND s.next_at = seen_next
        AND (s.locked_until IS NULL OR s.locked_until < now())
        AND (s.triggered_at IS NOT NULL OR NOT s.paused AND (s.next_at <= now() OR s.slot_at IS NOT NULL))
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF held.locked_by IS NOT NULL THEN
        PERFORM holdfast.record_run(held.run_id, held.started_at, held.locked_by, given, 'lost', NULL, 'lost',
            'its worker did not renew the lease');
    END IF;
    again := held.slot_at IS NOT NULL AND held.attempt < 3;
    due := held.triggered_at IS NOT NULL OR NOT held.paused AND held.next_at <= now();
    IF NOT again AND NOT due THEN
        UPDATE holdfast.schedule s SET slot_at = NULL, started_at = NULL, run_id = NULL, attempt = 0, locked_by = NULL, lock_token = NULL,
            locked_until = NULL WHERE s.name = given;
        RETURN;
    END IF;
    UPDATE holdfast.schedule s SET
        slot_at = CASE WHEN again THEN s.slot_at ELSE least(s.next_at, now()) END,
        last_at = CASE WHEN again THEN s.slot_at ELSE least(s.next_at, now()) END,
        next_at = CASE WHEN again OR s.next_at > now() THEN s.next_at ELSE following END,
        triggered_at = CASE WHEN again THEN s.triggered_at END,
        attempt = CASE WHEN again THEN s.attempt + 1 ELSE 1 END,
        started_at = now(), run_id = nextval('holdfast.run_id_seq'), locked_by = worker, lock_token = nextval('holdfast.token'),
        locked_until = now() + lease_ms * interval '1 millisecond'
    WHERE s.name = given RETURNING * INTO held;
    PERFORM holdfast.record_run(held.run_id, held.started_at, worker, given, NULL, NULL, NULL, NULL);
    RETURN QUERY SELECT held.slot_at, held.started_at, held.lock_token, held.attempt, held.run_id;
END $$;

-- Ends a slot that is still held, or with `again` releases it as if it had not been started; false: it was lost. Without an `outcome` it did
-- not run, and its row goes.
-- Called by schedule.sql end_slot.
CREATE FUNCTION holdfast.end_slot(given text, worker bigint, token bigint, again boolean, outcome text, counts json, error_code text,
    error text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held holdfast.schedule;
BEGIN
    SELECT * INTO held FROM holdfast.schedule s WHERE s.name = given AND s.lock_token = token AND s.locked_by = worker FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE holdfast.schedule s SET slot_at = CASE WHEN again THEN s.slot_at END, attempt = CASE WHEN again THEN s.attempt - 1 ELSE 0 END,
        started_at = NULL, run_id = NULL, locked_by = NULL, lock_token = NULL, locked_until = NULL
    WHERE s.name = given;
    IF outcome IS NOT NULL THEN
        PERFORM holdfast.record_run(held.run_id, held.started_at, worker, given, outcome, counts, error_code, error);
    ELSE
        DELETE FROM holdfast.run r WHERE r.runner = given AND r.started_at = held.started_at AND r.id = held.run_id;
    END IF;
    RETURN true;
END $$;
