-- From the tables of the former worker, which locked rows, to those of 0001_tables.sql. Only what differs.
ALTER TABLE worker_runs RENAME TO former_worker_runs;
-- A former worker that still runs fails at its next statement and sends nothing twice.
ALTER TABLE notification_deliveries DROP COLUMN locked_at, DROP COLUMN locked_by,
    ADD COLUMN delivery_key uuid NOT NULL DEFAULT gen_random_uuid();
