-- Ended jobs and their attempts, in day partitions that age out by DROP (partitions). Written by complete_jobs and leave_jobs (finish).

-- Jobs that completed or were cancelled. Every table of ended rows has its days in `..._days`, where they can be attached and detached beside
-- readers and writers, and `..._late` for rows whose day has no partition yet: see need_partitions. `late` is null in all other rows.
CREATE TABLE holdfast.job_history (
    id              bigint NOT NULL,
    created_at      timestamptz NOT NULL,
    available_at    timestamptz NOT NULL,
    finished_at     timestamptz NOT NULL,
    worker_id       bigint,
    status          holdfast.status NOT NULL,
    ran_ms          integer,                    -- how long the handler ran in all attempts; null: not known
    waited_ms       integer,                    -- how long it was due before them; null: it was never claimed
    attempt         smallint NOT NULL,
    max_attempts    smallint,
    priority        smallint NOT NULL,
    payload_version smallint,
    order_block     boolean,
    chain_id        bigint,
    replay_of       bigint,
    order_seq       bigint,
    first_due_at    timestamptz,                -- null: available_at, it had one attempt
    queue           text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    payload         json,
    headers         json,
    result          json,
    order_key       text COLLATE "C",
    unique_key      text COLLATE "C",
    last_error_code text,
    last_error      text,
    next_id         bigint,                     -- the job that follows in the chain; null: the chain ended here
    run_anyway      boolean,
    blockers        bigint[],                   -- of a dead letter: the chains it came after, for its replay
    steps           json,                       -- the journal of a story (steps)
    limits          text[] COLLATE "C",         -- of a dead letter: the keys of its limits, for its replay
    on_failure      json,                       -- of a dead letter: for its replay
    tenant          text COLLATE "C",           -- of a dead letter, for its replay
    tags            text[] COLLATE "C",
    late            boolean DEFAULT nullif(current_setting('holdfast.late', true), '')::boolean
) PARTITION BY LIST (late);
CREATE TABLE holdfast.job_history_days PARTITION OF holdfast.job_history FOR VALUES IN (NULL) PARTITION BY RANGE (finished_at);
CREATE TABLE holdfast.job_history_late PARTITION OF holdfast.job_history FOR VALUES IN (true);
-- Unique, and with the time that the day is cut by, so that it identifies a row for logical replication.
CREATE UNIQUE INDEX job_history_id ON holdfast.job_history_days (id, finished_at);
CREATE UNIQUE INDEX job_history_late_id ON holdfast.job_history_late (id, finished_at);
CREATE INDEX job_history_tagged ON holdfast.job_history (id) WHERE tags IS NOT NULL;
CREATE INDEX job_history_chain ON holdfast.job_history (chain_id, id) WHERE chain_id IS NOT NULL;

-- Dead letters: the same columns, kept longer.
CREATE TABLE holdfast.job_failed (LIKE holdfast.job_history INCLUDING DEFAULTS) PARTITION BY LIST (late);
CREATE TABLE holdfast.job_failed_days PARTITION OF holdfast.job_failed FOR VALUES IN (NULL) PARTITION BY RANGE (finished_at);
CREATE TABLE holdfast.job_failed_late PARTITION OF holdfast.job_failed FOR VALUES IN (true);
CREATE UNIQUE INDEX job_failed_id ON holdfast.job_failed_days (id, finished_at);
CREATE UNIQUE INDEX job_failed_late_id ON holdfast.job_failed_late (id, finished_at);
CREATE INDEX job_failed_tagged ON holdfast.job_failed (id) WHERE tags IS NOT NULL;
CREATE INDEX job_failed_chain ON holdfast.job_failed (chain_id, id) WHERE chain_id IS NOT NULL;

-- One row for every outcome other than a completion at the first attempt, so that operators can follow what happened to a job.
CREATE TABLE holdfast.attempt (
    job_id     bigint NOT NULL,
    ended_at   timestamptz NOT NULL,
    worker_id  bigint,
    lock_token bigint,
    outcome    holdfast.outcome NOT NULL,
    attempt    smallint NOT NULL,
    ran_ms     integer,                         -- how long the handler ran; null: not known
    due_at     timestamptz,
    claimed_at timestamptz,
    error_code text,
    error      text,
    traceback  text,                            -- of the error, masked and bounded
    log        text,                            -- the last records that its handler logged, if its kind keeps them: masked and bounded
    late       boolean DEFAULT nullif(current_setting('holdfast.late', true), '')::boolean
) PARTITION BY LIST (late);
CREATE TABLE holdfast.attempt_days PARTITION OF holdfast.attempt FOR VALUES IN (NULL) PARTITION BY RANGE (ended_at);
CREATE TABLE holdfast.attempt_late PARTITION OF holdfast.attempt FOR VALUES IN (true);
CREATE INDEX attempt_job_id ON holdfast.attempt (job_id);

-- The jobs that replay dead letters. The history is never updated, so it cannot name them.
CREATE TABLE holdfast.replay (
    job_id      bigint NOT NULL,
    nth         integer NOT NULL,               -- of the same dead letter; two transactions that take the same number conflict
    replay_id   bigint NOT NULL,
    replayed_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, nth)
);

-- One row per tick of a runner that did something, takes long, or has a schedule; of ticks that did nothing, the last one of each day. Without
-- an outcome it is still running, unless its worker died.
CREATE TABLE holdfast.run (
    id          bigint GENERATED ALWAYS AS IDENTITY,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    worker_id   bigint,
    runner      text COLLATE "C" NOT NULL,
    outcome     text,
    counts      json,
    error_code  text,
    error       text,
    late        boolean DEFAULT nullif(current_setting('holdfast.late', true), '')::boolean
) PARTITION BY LIST (late);
CREATE TABLE holdfast.run_days PARTITION OF holdfast.run FOR VALUES IN (NULL) PARTITION BY RANGE (started_at);
CREATE TABLE holdfast.run_late PARTITION OF holdfast.run FOR VALUES IN (true);
CREATE INDEX run_runner ON holdfast.run (runner, started_at);
CREATE INDEX run_running ON holdfast.run (started_at) WHERE finished_at IS NULL;
-- The latest runs of all runners together. Each runner that did something writes one row a minute, not one per job.
CREATE INDEX run_started ON holdfast.run (started_at);

-- Counts for operators, appended with each flush and folded later: there is no counter that every worker updates. There is no index,
-- because every finish would pay for it: a page reads the days that it shows, and maintenance the last ten.
CREATE TABLE holdfast.tally (
    minute      timestamptz NOT NULL,
    jobs        bigint NOT NULL,                -- of a day, when it is folded
    -- How long attempts waited and ran: a count for each bucket that has some, as count * 512 + bucket, and 256 more for how long they ran.
    times       bigint[],
    outcome     holdfast.outcome NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    late        boolean DEFAULT nullif(current_setting('holdfast.late', true), '')::boolean
) PARTITION BY LIST (late);
CREATE TABLE holdfast.tally_days PARTITION OF holdfast.tally FOR VALUES IN (NULL) PARTITION BY RANGE (minute);
CREATE TABLE holdfast.tally_late PARTITION OF holdfast.tally FOR VALUES IN (true);

-- The bucket of a time in milliseconds: 0 is up to 0.1 ms, and the bound of each is 1.1 times that of the one before, so that the value given
-- for a bucket is wrong by less than 5 %. 254 is all above 34 days, 255 not known.
-- Called by complete_jobs, leave_jobs, give_back_jobs, job.sql complete_plain.
CREATE FUNCTION holdfast.time_bucket(ms double precision) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN CASE WHEN ms IS NULL THEN 255 WHEN ms <= 0.1 THEN 0
        ELSE least(ceil(ln(10 * ms) / 0.0953101798043249), 254)::integer END;

-- How many milliseconds a job was due before it was claimed.
-- Called by complete_jobs, leave_jobs, give_back_jobs, job.sql complete_plain, search.sql end_search.
CREATE FUNCTION holdfast.waited(due_at timestamptz, claimed_at timestamptz) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN CASE WHEN claimed_at > due_at THEN 1000 * date_part('epoch', claimed_at - due_at)
        WHEN claimed_at IS NOT NULL THEN 0 END;

-- The milliseconds of this attempt and of those before; null where neither is known.
-- Called by complete_jobs, leave_jobs, give_back_jobs, job.sql complete_plain, search.sql end_search.
CREATE FUNCTION holdfast.with_before(ms double precision, before integer) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN CASE WHEN coalesce(ms, before) IS NOT NULL
        THEN least(coalesce(ms, 0) + coalesce(before, 0), 2147483647)::integer END;
