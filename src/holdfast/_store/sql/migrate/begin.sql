-- The first statements of every transaction. They leave nothing behind in the session, so a pooler may give each transaction
-- to another one. READ COMMITTED: after the wait for the lock, the result of its last holder must be visible. The lock on
-- migrations may be waited for as long as a migration takes. Locks on tables may not: all work queues up behind a migration that
-- waits for one. So it gives up soon, lets the work continue, and tries again.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL client_min_messages = warning;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = '10min';
DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('holdfast.migrate'), 0); END $$;
SET LOCAL lock_timeout = '2s';
