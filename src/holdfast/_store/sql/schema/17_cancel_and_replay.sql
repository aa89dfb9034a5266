-- Actions of operators and clients on one job: read it, cancel it, change its time, replay a dead letter.

-- A job by its id, live or ended; no row if it does not exist or is no longer stored. The search for an ended job
-- locks few partitions: see history_spans.
-- Called by applications, retry_job, job.sql get_job.
CREATE FUNCTION holdfast.get_job(job_id bigint) RETURNS TABLE (
        id bigint, chain_id bigint, kind text, queue text, status text, priority integer, attempt integer, max_attempts integer,
        created_at timestamptz, available_at timestamptz, finished_at timestamptz, unique_key text, order_key text, cancel_requested boolean,
        result json, error_code text, error text, next_id bigint, replay_of bigint, blockers_left integer, worker text,
        headers json, progress real, progress_note text, payload json, started_at timestamptz, progress_of_group integer[], tags text[])
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    ended timestamptz;
    ended_as holdfast.status;
    past holdfast.job_history;
BEGIN
    RETURN QUERY SELECT j.id, coalesce(j.chain_id, j.id), j.kind::text, j.queue::text, j.status::text, j.priority::integer, j.attempt::integer,
        j.max_attempts::integer, j.created_at, j.available_at, NULL::timestamptz, j.unique_key::text, j.order_key::text,
        j.cancel_requested_at IS NOT NULL, NULL::json, j.last_error_code, j.last_error, NULL::bigint, j.replay_of,
        CASE WHEN j.blockers_left IS NOT NULL THEN holdfast.chains_left(j.id, j.blockers_left) END,
        (SELECT w.name FROM holdfast.worker w WHERE w.id = j.locked_by), j.headers, j.progress, j.progress_note,
        j.payload, j.claimed_at, CASE WHEN j.blockers_left IS NOT NULL THEN holdfast.group_progress(j.id, j.blockers_left) END, j.tags::text[]
    FROM holdfast.job j WHERE j.id = job_id;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT e.finished_at, e.status INTO ended, ended_as FROM holdfast.find_ended(job_id, '-infinity') AS e;
    IF ended IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        EXECUTE format('SELECT * FROM holdfast.%I WHERE id = $1 AND finished_at = %L LIMIT 1',
            CASE WHEN ended_as = 'failed' THEN 'job_failed' ELSE 'job_history' END, ended) INTO past USING job_id;
        RAISE EXCEPTION USING ERRCODE = 'HF000';
    EXCEPTION WHEN SQLSTATE 'HF000' THEN
        NULL;
    END;
    RETURN QUERY SELECT past.id, coalesce(past.chain_id, past.id), past.kind::text, past.queue::text, past.status::text, past.priority::integer,
        past.attempt::integer, past.max_attempts::integer, past.created_at, past.available_at, past.finished_at, past.unique_key::text,
        past.order_key::text, false, past.result, past.last_error_code, past.last_error, past.next_id, past.replay_of,
        NULL::integer, (SELECT w.name FROM holdfast.worker w WHERE w.id = past.worker_id), past.headers, NULL::real, NULL::text,
        past.payload, CASE WHEN past.attempt = 1 AND past.first_due_at IS NULL THEN past.finished_at - past.ran_ms * interval '1 millisecond' END, NULL::integer[], past.tags::text[]
    WHERE past.id IS NOT NULL;
END $$;

-- For producers: the state of a job, and the result once its chain has ended, and nothing else of it. SECURITY DEFINER.
-- Called by applications.
CREATE FUNCTION holdfast.get_result(job_id bigint) RETURNS TABLE (status text, result json)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT coalesce(e.status::text, 'not_found'), e.result
    FROM holdfast.chain_ends(ARRAY[coalesce(job_id, holdfast.refuse('job_id: an id expected, got null')::bigint)]) AS e
    UNION ALL
    (SELECT j.status::text, NULL FROM holdfast.job j WHERE j.id = job_id AND j.chain_id IS NULL OR j.chain_id = job_id ORDER BY j.id DESC LIMIT 1)
    LIMIT 1
$$;

-- Cancels a job, in the caller's transaction: `cancelled` at once when it has not started, `requested` when it runs, or when it waits in an
-- order key and must leave it in its turn; `not_found` when it has ended.
-- Called by applications, act_on_jobs, job.sql cancel_job.
CREATE FUNCTION holdfast.cancel_job(job_id bigint) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    target holdfast.job;
    answer text;
BEGIN
    IF job_id IS NULL THEN
        PERFORM holdfast.refuse('job_id: an id expected, got null');
    END IF;
    SELECT * INTO target FROM holdfast.job j WHERE j.id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    END IF;
    -- An old snapshot does not show all jobs that wait for this one, nor all messages to it: then it leaves in its turn.
    IF target.status IN ('pending', 'blocked') AND target.order_key IS NULL
        AND (target.awaited IS NULL AND target.group_id IS NULL AND target.steps IS NULL OR current_setting('transaction_isolation') = 'read committed')
    THEN
        SELECT s.answer INTO answer FROM holdfast.settle_jobs(ARRAY[ROW (job_id, holdfast.take_job(job_id), 0, 'cancelled', NULL, NULL,
            'cancelled', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::holdfast.ending]) AS s;
        IF answer = 'cancelled' THEN
            RETURN 'cancelled';
        END IF;
        UPDATE holdfast.job SET lock_token = NULL, locked_by = NULL WHERE id = job_id;
    END IF;
    -- A cancelled job waits for no other chain.
    UPDATE holdfast.job SET cancel_requested_at = clock_timestamp(),
        available_at = CASE WHEN status = 'processing' THEN available_at ELSE clock_timestamp() END, later = NULL,
        status = CASE WHEN blockers_left > 0 AND status = 'blocked' AND limit_key IS NULL THEN 'pending' ELSE status END,
        blockers_left = CASE WHEN blockers_left > 0 THEN 0 ELSE blockers_left END
    WHERE id = job_id;
    IF target.status = 'processing' THEN
        PERFORM pg_notify('holdfast_' || target.locked_by, format('lost %s %s cancelled', job_id, target.lock_token));
    END IF;
    RETURN 'requested';
END $$;

-- Gives a waiting job another time; a time in the past means now. Returns `rescheduled`, the status that it has instead, or `not_found`.
-- Called by act_on_jobs, job.sql reschedule_job.
CREATE FUNCTION holdfast.reschedule_job(job_id bigint, due timestamptz) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    target holdfast.job;
    fault text := CASE WHEN job_id IS NULL THEN 'job_id: an id expected, got null' WHEN due IS NULL THEN 'due: a time expected, got null'
        ELSE holdfast.time_fault('due', due) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    SELECT * INTO target FROM holdfast.job j WHERE j.id = job_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF target.status <> 'pending' THEN
        RETURN target.status;
    END IF;
    IF target.limit_key IS NOT NULL THEN
        PERFORM holdfast.pass_promotion(ARRAY[job_id]);
    END IF;
    -- Never earlier than now: claims do not look far back.
    UPDATE holdfast.job SET available_at = greatest(due, clock_timestamp()),
        later = CASE WHEN suspect IS NULL THEN holdfast.is_later(due, NULL, clock_timestamp()) END
    WHERE id = job_id;
    IF due <= clock_timestamp() THEN
        PERFORM holdfast.wake_sleepers(ARRAY[target.queue], ARRAY[target.kind]);
    END IF;
    RETURN 'rescheduled';
END $$;

-- Replays a dead letter as a new live job that names it. It continues the chain, waits for the same chains, and takes its old place in an
-- order key. Give the time when it ended if it is known: by its id alone it is searched for in every day that is kept. A second request is
-- refused while a replay of the job is live, or when the last replay completed, unless `again`.
-- Called by applications, retry_job, job.sql replay_job.
CREATE FUNCTION holdfast.replay_job(job_id bigint, ended timestamptz DEFAULT NULL, again boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    clock timestamptz := clock_timestamp();
    dead holdfast.job_failed;
    made bigint;
    holder bigint;
    replayed timestamptz;
    fault text := CASE WHEN job_id IS NULL THEN 'job_id: an id expected, got null' ELSE holdfast.time_fault('ended', ended) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    IF ended IS NULL THEN
        SELECT f.finished_at INTO ended FROM holdfast.find_ended(job_id, '-infinity') AS f WHERE f.status = 'failed';
    END IF;
    -- A literal, so that one partition is looked at and no other is locked; see history_spans.
    BEGIN
        EXECUTE format('SELECT * FROM holdfast.job_failed WHERE id = $1 AND finished_at = %L LIMIT 1', ended) INTO dead USING job_id;
        RAISE EXCEPTION USING ERRCODE = 'HF000';
    EXCEPTION WHEN SQLSTATE 'HF000' THEN
        NULL;
    END;
    IF dead.id IS NULL THEN
        RETURN NULL;
    END IF;
    IF dead.order_key IS NOT NULL OR dead.blockers IS NOT NULL THEN
        PERFORM holdfast.need_read_committed();
    END IF;
    -- Those that wait for the end that it had are released for that end. Jobs that name the chain from now on wait for the next one.
    IF EXISTS (SELECT FROM holdfast.kept_end k WHERE k.release_at IS NOT NULL AND k.chain_id = coalesce(dead.chain_id, dead.id)) THEN
        RAISE EXCEPTION 'jobs that waited for chain % are still being released: try again', coalesce(dead.chain_id, dead.id)
            USING ERRCODE = 'HF002';
    END IF;
    -- Of two requests at once, the second looks after the first has committed.
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.replay'), hashtext(job_id::text));
    IF again IS NOT TRUE THEN
        SELECT r.replay_id INTO holder FROM holdfast.replay r JOIN holdfast.job j ON j.id = r.replay_id WHERE r.job_id = dead.id LIMIT 1;
        IF NOT FOUND THEN
            SELECT r.replay_id, r.replayed_at INTO holder, replayed FROM holdfast.replay r WHERE r.job_id = dead.id
            ORDER BY r.nth DESC LIMIT 1;
            IF FOUND AND NOT EXISTS (SELECT FROM holdfast.find_ended(holder, replayed) AS e WHERE e.status = 'completed') THEN
                holder := NULL;
            END IF;
        END IF;
        IF holder IS NOT NULL THEN
            RAISE EXCEPTION 'this dead letter was replayed already, as job %', holder USING ERRCODE = 'HF006', DETAIL = holder::text;
        END IF;
    END IF;
    INSERT INTO holdfast.job (created_at, available_at, max_attempts, priority, shard, payload_version, order_block, chain_id, replay_of,
        order_seq, queue, kind, payload, headers, order_key, unique_key, status, blockers_left, run_anyway, limits, on_failure, tenant, tags, suspect, steps)
    VALUES (clock, clock, dead.max_attempts, dead.priority, holdfast.shard_of(dead.id, dead.order_key), dead.payload_version,
        dead.order_block, coalesce(dead.chain_id, dead.id), dead.id, dead.order_seq, dead.queue, dead.kind, dead.payload, dead.headers,
        dead.order_key, dead.unique_key, CASE WHEN dead.blockers IS NULL THEN 'pending' ELSE 'blocked' END::holdfast.status,
        cardinality(dead.blockers), dead.run_anyway, dead.limits, dead.on_failure, dead.tenant, dead.tags, CASE dead.last_error_code WHEN 'crashed_alone' THEN 1 END,
        CASE WHEN dead.steps IS NOT NULL THEN true END)
    ON CONFLICT (unique_key, kind) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id INTO made;
    IF made IS NULL THEN
        SELECT j.id INTO holder FROM holdfast.job j WHERE j.unique_key = dead.unique_key AND j.kind = dead.kind LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'a job with this unique key exists' USING ERRCODE = 'HF001', DETAIL = holder::text;
        END IF;
        RETURN NULL;
    END IF;
    -- A snapshot that is older than another's replay takes the same number: DO NOTHING then raises serialization_failure.
    INSERT INTO holdfast.replay (job_id, nth, replay_id, replayed_at)
    SELECT dead.id, coalesce(max(r.nth), 0) + 1, made, clock FROM holdfast.replay r WHERE r.job_id = dead.id
    ON CONFLICT DO NOTHING;
    IF dead.steps IS NOT NULL THEN
        PERFORM holdfast.restore_steps(made, dead.steps);
    END IF;
    PERFORM holdfast.name_blockers(array_agg(made), array_agg(b.chain_id), array_agg(b.ordinal::integer))
    FROM unnest(dead.blockers) WITH ORDINALITY AS b (chain_id, ordinal);
    PERFORM holdfast.refuse_cycles(ARRAY[made]);
    PERFORM holdfast.wake_sleepers(ARRAY[dead.queue], ARRAY[dead.kind]);
    IF dead.order_key IS NOT NULL
       AND EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = dead.order_key AND s.job_id = replay_job.job_id) THEN
        PERFORM holdfast.resume_order_key(dead.order_key);
    END IF;
    RETURN made;
END $$;

-- Replays a dead letter as `replay_job` does, and returns what became of it instead of raising an error that would end the caller's
-- transaction: `retried`; `already_retried` and `duplicate`, with the job that is in the way; `not_failed`.
-- Called by act_on_jobs, job.sql retry_job.
CREATE FUNCTION holdfast.retry_job(job_id bigint, ended timestamptz DEFAULT NULL, again boolean DEFAULT false,
        OUT answer text, OUT made bigint, OUT chain_id bigint, OUT kind text, OUT queue text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    holder text;
BEGIN
    BEGIN
        made := holdfast.replay_job(job_id, ended, again);
        answer := CASE WHEN made IS NULL THEN 'not_failed' ELSE 'retried' END;
    EXCEPTION
        WHEN SQLSTATE 'HF006' THEN
            GET STACKED DIAGNOSTICS holder = PG_EXCEPTION_DETAIL;
            answer := 'already_retried';
            made := holder;
        WHEN SQLSTATE 'HF001' THEN
            GET STACKED DIAGNOSTICS holder = PG_EXCEPTION_DETAIL;
            answer := 'duplicate';
            made := holder;
    END;
    SELECT g.chain_id, g.kind, g.queue INTO chain_id, kind, queue FROM holdfast.get_job(made) AS g;
END $$;

-- Acts on jobs one by one, in the order of their ids, so that two operators wait for each other in one direction only. Returns for every
-- job the result, or why nothing was done. A job that cannot be changed delays no other.
-- Called by advance_bulk_action, search.sql act_on_jobs.
CREATE FUNCTION holdfast.act_on_jobs(action text, ids bigint[], ended timestamptz[], due timestamptz, again boolean DEFAULT false)
    RETURNS TABLE (id bigint, done boolean, answer text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ended_at timestamptz;
    made bigint;
    patience text := current_setting('lock_timeout');
    fault text := CASE WHEN action IS NULL OR action NOT IN ('retry', 'cancel', 'delete', 'reschedule')
        THEN format('action: retry, cancel, delete or reschedule expected, got %s', coalesce(left(action, 40), 'null'))
        ELSE coalesce(holdfast.ids_fault('ids', ids, 10000), holdfast.time_fault('due', due),
            CASE WHEN cardinality(ended) > cardinality(ids)
                THEN format('ended: at most %s times expected, got %s', cardinality(ids), cardinality(ended)) END) END;
BEGIN
    IF fault IS NOT NULL THEN
        PERFORM holdfast.refuse(fault);
    END IF;
    FOR id, ended_at IN SELECT g.id, min(g.at) FROM unnest(ids, ended) AS g (id, at) GROUP BY g.id ORDER BY g.id LOOP
        BEGIN
            CASE action
                WHEN 'retry' THEN
                    SELECT r.made, r.answer INTO made, answer FROM holdfast.retry_job(id, ended_at, again) AS r;
                    done := answer = 'retried';
                    answer := CASE answer WHEN 'retried' THEN made::text WHEN 'duplicate' THEN 'duplicate of ' || made
                        WHEN 'already_retried' THEN 'replayed as ' || made ELSE answer END;
                WHEN 'cancel' THEN
                    answer := holdfast.cancel_job(id);
                    done := answer <> 'not_found';
                WHEN 'delete' THEN
                    answer := holdfast.delete_job(id);
                    done := answer = 'deleted';
                WHEN 'reschedule' THEN
                    answer := holdfast.reschedule_job(id, due);
                    done := answer = 'rescheduled';
            END CASE;
        EXCEPTION
            WHEN SQLSTATE 'HF002' THEN
                done := false;
                answer := SQLERRM;
            WHEN lock_not_available OR deadlock_detected THEN
                done := false;
                answer := 'busy';
                -- After one wait for a lock, the other jobs are not waited for.
                PERFORM set_config('lock_timeout', '5', true);
            WHEN OTHERS THEN
                -- An error of the server, the session or the privileges is that of all other jobs too.
                IF left(SQLSTATE, 2) IN ('25', '40', '53', '55', '57', '58', 'XX') OR SQLSTATE IN ('42501', 'HF003') THEN
                    RAISE;
                END IF;
                done := false;
                answer := 'error ' || SQLSTATE;
        END;
        RETURN NEXT;
    END LOOP;
    -- The caller's transaction goes on with its own limit.
    PERFORM set_config('lock_timeout', patience, true);
END $$;
