-- The first statements of every transaction. Nothing is left behind in the session, so a pooler may hand each transaction to
-- another one. READ COMMITTED: after the wait for the lock, what the last holder left must be seen. One lock may be waited for
-- as long as a migration takes; the locks on tables may not, because everybody else queues up behind the one who waits.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL client_min_messages = warning;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = '10min';
DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('holdfast.migrate'), 0); END $$;
SET LOCAL lock_timeout = '10s';
