-- The chain of jobs that sends a delivery. Null: the delivery was made before this column.
ALTER TABLE notification_deliveries ADD COLUMN chain_id bigint;
CREATE INDEX notification_deliveries_live ON notification_deliveries (id) WHERE completed_at IS NULL;

CREATE OR REPLACE VIEW worker_runs AS
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
    FROM holdfast.run WHERE runner IN ('ingest', 'strandedDeliveries', 'cleanup', 'archiveExport')
    UNION ALL
    SELECT cycle, started_at, finished_at, error_message, counts FROM delivery_runs
) AS runs;
