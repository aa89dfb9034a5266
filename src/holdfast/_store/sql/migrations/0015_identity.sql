-- The identity of this schema: random, made once, and a part of every job's idempotency key, so that the keys of two databases differ
-- although both count their jobs from 1. It is a row, so that a dump, a restore and a replica keep it: there the jobs are the same too.
CREATE TABLE holdfast.identity (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),            -- one row
    id     uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO holdfast.identity DEFAULT VALUES;
