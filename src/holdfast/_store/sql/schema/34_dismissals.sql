-- Groups of dead letters that a person has dismissed. A group is shown again, whole, once a job of it fails later than the person saw.
CREATE TABLE holdfast.dismissal (
    kind         text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    error_code   text COLLATE "C" NOT NULL,     -- empty: without one
    last_at      timestamptz NOT NULL,          -- the last failure that the person saw
    dismissed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    who          text NOT NULL,
    PRIMARY KEY (kind, queue, error_code)
);
