-- The identity of this database.

-- The identity of this schema: random, made once, and a part of all idempotency keys and message ids, so that those of two databases
-- differ although both count from 1. It is a row, so that a dump, a restore and a replica keep it: there the jobs are the same too. Later
-- jobs and events of the same id differ by their time, which is the other part.
CREATE TABLE holdfast.identity (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),            -- one row
    id     uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO holdfast.identity DEFAULT VALUES;
