-- Access tokens and sessions of the operations API, and the audit log.

-- Access to the HTTP API. Only the digest of a secret is stored, from which the secret cannot be computed.
CREATE TABLE holdfast.access_token (
    key        text COLLATE "C" PRIMARY KEY CHECK (key ~ '^[0-9a-f]{12}$'),
    name       text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
    role       text NOT NULL CHECK (role IN ('viewer', 'operator', 'developer')),
    digest     text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz
);
-- A name belongs to one credential at a time, because the audit log shows the name.
CREATE UNIQUE INDEX access_token_name ON holdfast.access_token (name) WHERE revoked_at IS NULL;

-- Sessions that were signed out before their end. Sessions are signed and not stored, so these are.
CREATE TABLE holdfast.ended_session (
    id    text COLLATE "C" PRIMARY KEY CHECK (octet_length(id) <= 100),
    until timestamptz NOT NULL                  -- then it would have ended anyway
);
CREATE INDEX ended_session_until ON holdfast.ended_session (until);

-- Responses to requests with an Idempotency-Key, kept for a day.
CREATE TABLE holdfast.answered (
    who     text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    request text NOT NULL,                      -- a digest of what was asked
    answer  text,                               -- null: under way, or its end is not known
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (who, key)
);
CREATE INDEX answered_at ON holdfast.answered (at);

-- Actions of operators, each written in its own transaction. Kept for ever: they are few. The role that adds a row cannot change it
-- afterwards.
CREATE TABLE holdfast.audit (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    who    text NOT NULL CHECK (octet_length(who) BETWEEN 1 AND 400),
    credential text,                            -- which token, session or issuer they came in by
    address text,                               -- of the client
    role   text NOT NULL,
    action text NOT NULL,
    target text CHECK (octet_length(target) <= 1000),
    jobs   integer,                             -- on how many
    ids    bigint[],                            -- on which
    detail json NOT NULL DEFAULT '{}'
);

-- Rows of other tables that `holdfast import-outbox` made jobs or events of. Each is added in the transaction that imports the row, so that
-- the row is imported once, however often an import is killed and repeated. Kept until the owner deletes them: only the owner can tell when
-- the other table is gone.
CREATE TABLE holdfast.imported (
    source text COLLATE "C" NOT NULL,           -- the other table: schema and name, quoted as in SQL
    row_id text COLLATE "C" NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, row_id)
);
