-- What the oracle judges by. No unique constraint anywhere: a double must show.
CREATE SCHEMA chaos;

-- Written in the transaction that enqueues: what is here was promised, what is not here must never run.
CREATE TABLE chaos.promise (
    job      bigint NOT NULL,
    batch    bigint NOT NULL,       -- the transaction that it came with
    n        bigint NOT NULL,
    workload text NOT NULL,
    key      text,                  -- order key; of a join the chains that it comes after, with commas; of trouble the error code
    expected text NOT NULL          -- how it must end: completed, failed, cancelled or either
);

-- Written in the transaction of `job.complete`: two lines for each job, and all amounts add up to nothing.
CREATE TABLE chaos.ledger (
    job     bigint NOT NULL,
    amount  bigint NOT NULL,
    token   bigint NOT NULL,
    attempt integer NOT NULL,
    worker  text NOT NULL
);

-- Written in the transaction that records a step of a story: five places, each once.
CREATE TABLE chaos.entry (
    job    bigint NOT NULL,
    place  integer NOT NULL,
    number bigint NOT NULL
);

-- Written in the transaction, and the savepoint, that publishes: what is here must arrive, what is not here must not.
CREATE TABLE chaos.published (
    event bigint NOT NULL,
    batch bigint NOT NULL,
    key   text NOT NULL,
    n     bigint NOT NULL           -- its place in the key
);

-- The rows of workers that a fault has taken away, as a restore from a backup does.
CREATE TABLE chaos.gone (
    id           bigint NOT NULL,
    name         text NOT NULL,
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    stopped_at   timestamptz,
    versions     json
);

-- What the singleton runner did: one line when it begins and one when it ends.
CREATE TABLE chaos.singleton (
    run    text NOT NULL,
    worker text NOT NULL,
    what   text NOT NULL,           -- begun, ended, or paused: it noticed that its process had stood still
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Loaded when all is over, from the files in which each worker notes what it starts and ends.
CREATE TABLE chaos.run (
    job     bigint NOT NULL,
    attempt integer NOT NULL,
    token   bigint NOT NULL,
    begun   bigint NOT NULL,        -- nanoseconds of the machine's monotonic clock
    ended   bigint,                 -- null: it did not come that far
    worker  text NOT NULL
);

-- Loaded from the broker's stream, in its order.
CREATE TABLE chaos.arrival (
    place bigint NOT NULL,
    event bigint NOT NULL,
    key   text NOT NULL,
    n     bigint NOT NULL
);

-- Loaded from the files in which each worker notes what the broker has confirmed to it.
CREATE TABLE chaos.handed (
    event  bigint NOT NULL,
    at     bigint NOT NULL,
    worker text NOT NULL
);

-- Places of limits: a line when a claim takes one, and one when it is free again. Whoever changes it holds the lock of the key until the
-- commit, so the lines of a key are numbered in the order of their commits.
CREATE TABLE chaos.place (
    n      bigint GENERATED ALWAYS AS IDENTITY,
    began  timestamptz NOT NULL DEFAULT now(),      -- of the claim, which took its tokens after that ...
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),      -- ... and before this
    key    text NOT NULL,
    job    bigint NOT NULL,
    change integer NOT NULL
);
CREATE FUNCTION chaos.note_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.place (key, job, change)
    SELECT l, OLD.id, CASE WHEN OLD.status = 'processing' THEN -1 ELSE 1 END FROM unnest(OLD.limits) AS l;
    RETURN NULL;
END $$;
CREATE TRIGGER note_place AFTER UPDATE ON holdfast.job FOR EACH ROW
    WHEN (OLD.limits IS NOT NULL AND (OLD.status = 'processing') <> (NEW.status = 'processing')) EXECUTE FUNCTION chaos.note_place();
CREATE TRIGGER note_end AFTER DELETE ON holdfast.job FOR EACH ROW
    WHEN (OLD.limits IS NOT NULL AND OLD.status = 'processing') EXECUTE FUNCTION chaos.note_place();

-- Each start under a rate, and how many more there were in the worst time that ends with it than the rate allows in that time.
CREATE VIEW chaos.start AS
SELECT key, at, starts, period_ms, burst,
    nth - allowed - min(nth - 1 - allowed_before) OVER (PARTITION BY key ORDER BY nth) AS excess
FROM (SELECT p.key, p.at, r.starts, r.period_ms, r.burst, row_number() OVER (PARTITION BY p.key ORDER BY p.n) AS nth,
          extract(epoch FROM p.at) * 1000 * r.starts / r.period_ms AS allowed,
          extract(epoch FROM p.began) * 1000 * r.starts / r.period_ms AS allowed_before
      FROM chaos.place p JOIN holdfast.limit_rule r ON r.name = split_part(p.key, ':', 1) AND r.starts IS NOT NULL
      WHERE p.change > 0) AS s;
