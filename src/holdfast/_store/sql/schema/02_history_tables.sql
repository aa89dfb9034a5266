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
    ran_ms          integer,                    -- how long the handler of the last attempt ran; null: not known
    attempt         smallint NOT NULL,
    max_attempts    smallint,
    priority        smallint NOT NULL,
    payload_version smallint,
    order_block     boolean,
    chain_id        bigint,
    replay_of       bigint,
    order_seq       bigint,
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
    late            boolean DEFAULT nullif(current_setting('holdfast.late', true), '')::boolean
) PARTITION BY LIST (late);
CREATE TABLE holdfast.job_history_days PARTITION OF holdfast.job_history FOR VALUES IN (NULL) PARTITION BY RANGE (finished_at);
CREATE TABLE holdfast.job_history_late PARTITION OF holdfast.job_history FOR VALUES IN (true);
-- Unique, and with the time that the day is cut by, so that it identifies a row for logical replication.
CREATE UNIQUE INDEX job_history_id ON holdfast.job_history_days (id, finished_at);
CREATE UNIQUE INDEX job_history_late_id ON holdfast.job_history_late (id, finished_at);
CREATE INDEX job_history_chain ON holdfast.job_history (chain_id, id) WHERE chain_id IS NOT NULL;

-- Dead letters: the same columns, kept longer.
CREATE TABLE holdfast.job_failed (LIKE holdfast.job_history INCLUDING DEFAULTS) PARTITION BY LIST (late);
CREATE TABLE holdfast.job_failed_days PARTITION OF holdfast.job_failed FOR VALUES IN (NULL) PARTITION BY RANGE (finished_at);
CREATE TABLE holdfast.job_failed_late PARTITION OF holdfast.job_failed FOR VALUES IN (true);
CREATE UNIQUE INDEX job_failed_id ON holdfast.job_failed_days (id, finished_at);
CREATE UNIQUE INDEX job_failed_late_id ON holdfast.job_failed_late (id, finished_at);
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
    error_code text,
    error      text,
    traceback  text,                            -- of the error, masked and bounded
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
-- because every finish would pay for it: with 2,000,000 folded rows that an open snapshot keeps, a page reads the last hour in about 0.2 s,
-- and maintenance finds what to fold in the same time.
CREATE TABLE holdfast.tally (
    minute      timestamptz NOT NULL,
    latency     interval,                       -- from due to ended: the sum over the jobs that ended
    latency_max interval,
    jobs        bigint NOT NULL,                -- of a day, when it is folded
    bucket      smallint,                       -- of the latency, for percentiles; null: these jobs did not end
    outcome     holdfast.outcome NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    late        boolean DEFAULT nullif(current_setting('holdfast.late', true), '')::boolean
) PARTITION BY LIST (late);
CREATE TABLE holdfast.tally_days PARTITION OF holdfast.tally FOR VALUES IN (NULL) PARTITION BY RANGE (minute);
CREATE TABLE holdfast.tally_late PARTITION OF holdfast.tally FOR VALUES IN (true);

-- The bucket of a latency: 0 is below the first bound, 24 above the last. The first digit of a latency is enough for operators.
-- Called by complete_jobs, leave_jobs, job.sql complete_plain.
CREATE FUNCTION holdfast.latency_bucket(latency interval) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN width_bucket(latency,
        '{1ms,2ms,5ms,10ms,20ms,50ms,100ms,200ms,500ms,1s,2s,5s,10s,20s,30s,1min,2min,5min,10min,30min,1h,2h,6h,1d}'::interval[])::smallint;
