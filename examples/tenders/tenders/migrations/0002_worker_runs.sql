-- Dispatch and receipts are jobs, taken many at a time: each such call is a row here. The other cycles are runners, which Holdfast records.
CREATE TABLE delivery_runs (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cycle         text NOT NULL,
    started_at    timestamptz NOT NULL,
    finished_at   timestamptz NOT NULL,
    counts        jsonb NOT NULL,
    error_message text
);
CREATE INDEX delivery_runs_started ON delivery_runs (started_at);

-- The table of the former worker, under its old name and with its old columns.
CREATE VIEW worker_runs AS
SELECT worker_name, started_at, finished_at, error_message,
    (counts ->> 'licitaciones_found')::bigint AS licitaciones_found,
    (counts ->> 'licitaciones_new')::bigint AS licitaciones_new,
    (counts ->> 'notifications_created')::bigint AS notifications_created,
    (counts ->> 'sent')::bigint AS notifications_sent,
    (counts ->> 'ok')::bigint AS notifications_ok,
    (counts ->> 'retryable')::bigint AS notifications_retryable,
    (counts ->> 'failed')::bigint AS notifications_failed,
    (counts ->> 'invalid')::bigint AS notifications_invalid,
    (counts ->> 'rows_moved')::bigint AS rows_archived,
    (counts ->> 'rows_exported')::bigint AS rows_exported,
    counts
FROM (
    SELECT runner AS worker_name, started_at, finished_at, error AS error_message, counts::jsonb
    FROM holdfast.run WHERE runner IN ('ingest', 'cleanup', 'archiveExport')
    UNION ALL
    SELECT cycle, started_at, finished_at, error_message, counts FROM delivery_runs
) AS runs;
