-- Bulk actions: what a person does to all jobs that a filter finds. Workers carry them out, portion by portion.

-- The position moves in the transaction that acts on a portion, under the lock of this row: a process that dies leaves both or neither, and
-- the next one goes on there. A row is one action of a person, so that it may change: at most a few times a second.
CREATE TABLE holdfast.bulk_action (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_at       timestamptz NOT NULL DEFAULT clock_timestamp(),   -- when the next portion is due, by the rate
    ended_at      timestamptz,
    created_from  timestamptz,                                      -- of the jobs, as the columns below up to the keys
    created_until timestamptz,
    due           timestamptz,                                      -- of `reschedule`
    last_id       bigint NOT NULL,                                  -- later jobs are left alone
    first_id      bigint,                                           -- of the first job that it acted on
    position      bigint NOT NULL DEFAULT 0,                        -- jobs up to this one are done with
    expected      bigint,                                           -- how many jobs matched at first; null: more than were counted
    most          bigint,                                           -- ends after so many jobs; null: after all
    done          bigint NOT NULL DEFAULT 0,
    refused       bigint NOT NULL DEFAULT 0,
    rate          double precision CHECK (rate > 0),                -- jobs per second; null: as fast as it goes
    action        text NOT NULL CHECK (action IN ('retry', 'cancel', 'delete', 'reschedule')),
    state         text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'stopped', 'completed')),
    statuses      holdfast.status[] NOT NULL,
    kind          text COLLATE "C",
    queue         text COLLATE "C",
    error_code    text COLLATE "C",
    order_key     text COLLATE "C",
    tag           text COLLATE "C",
    unique_key    text COLLATE "C",
    who           text NOT NULL,
    credential    text,
    role          text NOT NULL,
    stopped_by    text,
    refusals      json                                              -- the first ones: [[id, answer], ...]
) WITH (fillfactor = 50);
CREATE INDEX bulk_action_open ON holdfast.bulk_action (next_at) WHERE ended_at IS NULL;

-- Acts on the next portion of a bulk action that is due: on at most `most` jobs, of at most 5,000 that it looks at. Returns what was done
-- with each, whether the action has ended, and after how many milliseconds the next portion is due; without a bulk action, when one of
-- them is; no row if none is open. SECURITY DEFINER: a worker may carry out what an operator began, and begin nothing.
-- Called by bulk_action.sql advance_bulk_action.
CREATE FUNCTION holdfast.advance_bulk_action(bulk_id bigint, most integer)
    RETURNS TABLE (bulk bigint, action text, ended boolean, wait_ms integer, ids bigint[], answers text[], refused integer)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
    SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    scan CONSTANT integer := 5000;
    clock timestamptz := clock_timestamp();
    own holdfast.bulk_action;
    one record;
    wanted integer;
    chosen bigint[];
    times timestamptz[];
    reached bigint;
    looked integer := scan;
    unfit json[];
BEGIN
    IF most IS NULL OR most NOT BETWEEN 1 AND 10000 THEN
        PERFORM holdfast.refuse('most: 1 to 10000 expected, got ' || coalesce(most::text, 'null'));
    END IF;
    PERFORM holdfast.need_read_committed();
    SELECT * INTO own FROM holdfast.bulk_action b
    WHERE b.ended_at IS NULL AND b.next_at <= clock AND b.id = coalesce(bulk_id, b.id) ORDER BY b.next_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN QUERY SELECT NULL::bigint, NULL::text, false, greatest(100, 1000 * extract(epoch FROM min(b.next_at) - clock))::integer,
            '{}'::bigint[], '{}'::text[], 0
        FROM holdfast.bulk_action b WHERE b.ended_at IS NULL AND b.id = coalesce(bulk_id, b.id) HAVING count(*) > 0;
        RETURN;
    END IF;
    wanted := greatest(1, least(most, own.most - own.done - own.refused, ceil(own.rate / 2)));
    IF own.action = 'retry' THEN
        SELECT array_agg(c.id ORDER BY c.id), array_agg(c.finished_at ORDER BY c.id) INTO chosen, times FROM (
            SELECT j.id, j.finished_at FROM (
                SELECT * FROM holdfast.job_failed f
                WHERE f.id > own.position AND f.id <= own.last_id AND f.finished_at BETWEEN coalesce(own.created_from, '-infinity') AND own.created_at
                ORDER BY f.id LIMIT scan) AS j
            WHERE j.kind = coalesce(own.kind, j.kind) AND j.queue = coalesce(own.queue, j.queue)
                AND (own.error_code IS NULL OR coalesce(j.last_error_code, '') = own.error_code)
                AND (own.order_key IS NULL OR j.order_key = own.order_key) AND (own.tag IS NULL OR own.tag = ANY (j.tags))
                AND (own.unique_key IS NULL OR j.unique_key = own.unique_key)
                AND (own.created_from IS NULL OR j.created_at >= own.created_from) AND (own.created_until IS NULL OR j.created_at < own.created_until)
                AND NOT EXISTS (SELECT FROM holdfast.replay r WHERE r.job_id = j.id)
            ORDER BY j.id LIMIT wanted) AS c;
        IF coalesce(cardinality(chosen), 0) < wanted THEN
            SELECT count(*), max(j.id) INTO looked, reached FROM (
                SELECT f.id FROM holdfast.job_failed f
                WHERE f.id > own.position AND f.id <= own.last_id AND f.finished_at BETWEEN coalesce(own.created_from, '-infinity') AND own.created_at
                ORDER BY f.id LIMIT scan) AS j;
        END IF;
    ELSE
        SELECT array_agg(c.id ORDER BY c.id) INTO chosen FROM (
            SELECT j.id FROM (
                SELECT * FROM holdfast.job f WHERE f.id > own.position AND f.id <= own.last_id ORDER BY f.id LIMIT scan) AS j
            WHERE j.status = ANY (own.statuses) AND j.kind = coalesce(own.kind, j.kind) AND j.queue = coalesce(own.queue, j.queue)
                AND (own.error_code IS NULL OR coalesce(j.last_error_code, '') = own.error_code)
                AND (own.order_key IS NULL OR j.order_key = own.order_key) AND (own.tag IS NULL OR own.tag = ANY (j.tags))
                AND (own.unique_key IS NULL OR j.unique_key = own.unique_key)
                AND (own.created_from IS NULL OR j.created_at >= own.created_from) AND (own.created_until IS NULL OR j.created_at < own.created_until)
            ORDER BY j.id LIMIT wanted) AS c;
        IF coalesce(cardinality(chosen), 0) < wanted THEN
            SELECT count(*), max(j.id) INTO looked, reached FROM (
                SELECT f.id FROM holdfast.job f WHERE f.id > own.position AND f.id <= own.last_id ORDER BY f.id LIMIT scan) AS j;
        END IF;
    END IF;
    bulk := own.id;
    action := own.action;
    ids := '{}';
    answers := '{}';
    refused := 0;
    PERFORM set_config('lock_timeout', '1s', true);
    FOR one IN SELECT a.id, a.done, a.answer FROM holdfast.act_on_jobs(own.action, coalesce(chosen, '{}'), times, own.due, false) AS a LOOP
        IF one.done THEN
            ids := ids || one.id;
            answers := answers || one.answer;
        ELSE
            refused := refused + 1;
            unfit := CASE WHEN own.refused + refused <= 20 THEN unfit || json_build_array(one.id, one.answer) ELSE unfit END;
        END IF;
    END LOOP;
    -- Of a deleted job nothing else is left.
    IF own.action = 'delete' AND ids <> '{}' THEN
        INSERT INTO holdfast.audit (who, credential, role, action, jobs, ids, detail)
        VALUES (own.who, own.credential, own.role, 'jobs.delete', cardinality(ids), ids, json_build_object('bulk_action', own.id));
    END IF;
    ended := looked < scan OR own.done + own.refused + coalesce(cardinality(chosen), 0) >= own.most IS TRUE;
    UPDATE holdfast.bulk_action b SET done = b.done + cardinality(ids), refused = b.refused + advance_bulk_action.refused,
        position = coalesce(reached, chosen[cardinality(chosen)], b.position), first_id = coalesce(b.first_id, chosen[1]),
        refusals = CASE WHEN unfit IS NULL THEN b.refusals ELSE (SELECT json_agg(r.value) FROM (
            SELECT e.value FROM json_array_elements(b.refusals) AS e UNION ALL SELECT u.value FROM unnest(unfit) AS u (value)) AS r) END,
        -- After a pause, at most one second is caught up with.
        next_at = greatest(b.next_at, clock - interval '1 second')
            + coalesce(cardinality(chosen) / b.rate, 0) * interval '1 second',
        state = CASE WHEN ended THEN 'completed' ELSE b.state END, ended_at = CASE WHEN ended THEN clock_timestamp() END
    WHERE b.id = own.id RETURNING greatest(0, 1000 * extract(epoch FROM b.next_at - clock_timestamp()))::integer INTO wait_ms;
    RETURN NEXT;
END $$;
