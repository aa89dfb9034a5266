-- Workers that sleep, clients that wait, and the notifications that wake them.

-- Workers that sleep and can be woken. Unlogged: after a crash every worker looks for jobs anyway. A row is valid for ten seconds at most,
-- and the index starts with the column that bounds each look-up.
CREATE UNLOGGED TABLE holdfast.sleeper (
    until     timestamptz NOT NULL,
    worker_id bigint NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    kinds     text[] NOT NULL
) WITH (vacuum_truncate = off);
CREATE INDEX sleeper_until ON holdfast.sleeper (until, queue);

-- The chains that clients wait for, and the channels on which to notify them. Valid as long as the records of sleepers.
CREATE UNLOGGED TABLE holdfast.watcher (
    until    timestamptz NOT NULL,
    chain_id bigint NOT NULL,
    listener text COLLATE "C" NOT NULL CHECK (octet_length(listener) BETWEEN 1 AND 40)
) WITH (vacuum_truncate = off);
CREATE INDEX watcher_until ON holdfast.watcher (until);

-- Wakes two sleepers for each queue and kind, since the last one may have been killed and left its record behind. A sleeper that is woken
-- for more than it can run wakes the next. Call it in a statement after the insert: only a later snapshot sees the workers that began to
-- sleep meanwhile.
-- Called by wake_for, enqueue_jobs, enqueue_group, claim_jobs, settle_batch, resume_order_key and 8 more.
CREATE FUNCTION holdfast.wake_sleepers(queues text[], kinds text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    -- Not now(): in a transaction that began long ago that is before every record of sleep since. A variable bounds the index.
    clock timestamptz := clock_timestamp();
    given record;
    first bigint;
    woken bigint;
BEGIN
    IF current_setting('holdfast.notify', true) = 'off' THEN
        RETURN;                 -- a transaction that has notified cannot be prepared for a two-phase commit: polling finds the job
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- The snapshot is as old as the transaction and does not show who sleeps: notify all workers.
        PERFORM pg_notify('holdfast', queue) FROM (SELECT DISTINCT queue FROM unnest(queues) AS queue) AS given;
    ELSE
        FOR given IN SELECT DISTINCT queue, kind FROM unnest(queues, kinds) AS pair (queue, kind) LOOP
            first := NULL;
            FOR turn IN 1..2 LOOP       -- each look-up stops at the newest record that fits, however many there are
                SELECT s.worker_id INTO woken FROM holdfast.sleeper s
                WHERE s.until > clock AND s.queue = given.queue AND given.kind = ANY (s.kinds) AND s.worker_id IS DISTINCT FROM first
                ORDER BY s.until DESC LIMIT 1;
                EXIT WHEN NOT FOUND;
                PERFORM pg_notify('holdfast_' || woken, given.queue);
                first := woken;
            END LOOP;
        END LOOP;
        PERFORM set_config('holdfast.woken', 'on', true);
    END IF;
END $$;

-- Wakes a sleeper for one new job, and names the job, so that the worker can claim exactly that. A second worker gets the name too, and
-- claims the job if it is still pending a moment later: the first may have been killed, as in wake_sleepers. Without a name they look for
-- themselves: the job is due later, or waits for others, or this transaction has notified before: it names one job at most. Call it in a
-- statement after the insert.
-- Called by enqueue.
CREATE FUNCTION holdfast.wake_for(job bigint, queue text, kind text) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();     -- not now(), as in wake_sleepers
    first bigint;
    woken bigint;
BEGIN
    IF current_setting('holdfast.notify', true) = 'off' OR current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('holdfast.woken', true) = 'on' OR NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = wake_for.job AND j.status = 'pending' AND j.later IS NULL
            AND j.order_key IS NULL AND j.limits IS NULL AND j.tenant IS NULL)
    THEN
        PERFORM holdfast.wake_sleepers(ARRAY[wake_for.queue], ARRAY[wake_for.kind]);
        RETURN;
    END IF;
    FOR turn IN 1..2 LOOP
        SELECT s.worker_id INTO woken FROM holdfast.sleeper s
        WHERE s.until > clock AND s.queue = wake_for.queue AND wake_for.kind = ANY (s.kinds) AND s.worker_id IS DISTINCT FROM first
        ORDER BY s.until DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        PERFORM pg_notify('holdfast_' || woken, CASE turn WHEN 1 THEN 'job ' ELSE 'late ' END || job);
        first := woken;
    END LOOP;
    PERFORM set_config('holdfast.woken', 'on', true);
END $$;

-- Notifies the watchers of these chains. Call it in a statement after the write, and only when there is any watcher. Notified of a chain
-- that has not ended, they only read it once more.
-- Called by notify_ended, report_progress, complete_jobs, settle_batch.
CREATE FUNCTION holdfast.notify_watchers(chains bigint[], words text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_hashjoin = on SET enable_nestloop = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();     -- not now(), as in wake_sleepers
BEGIN
    PERFORM pg_notify('holdfast_watch_' || w.listener, said.words)
    FROM unnest(chains, words) AS said (chain_id, words) JOIN holdfast.watcher w ON w.chain_id = said.chain_id WHERE w.until > clock;
END $$;

-- Notifies the watchers of these chains that they ended, if there are any. A query of its own, with a later snapshot than the statement that
-- calls it.
-- Called by job.sql complete_plain.
CREATE FUNCTION holdfast.notify_ended(chains bigint[]) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM holdfast.watcher WHERE until > now()) THEN
        PERFORM holdfast.notify_watchers(chains, ARRAY(SELECT 'ended ' || c FROM unnest(chains) AS c));
    END IF;
    RETURN true;
END $$;
