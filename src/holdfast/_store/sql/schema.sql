-- name: applied_migrations
SELECT number, name, checksum FROM holdfast.migration ORDER BY number

-- name: is_remnant
-- The schema is ours if it has our tables. Functions and types alone are a copy, such as Citus makes for its nodes.
SELECT to_regclass('holdfast.migration') IS NULL
    AND (EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace('holdfast'))
         OR EXISTS (SELECT FROM pg_type WHERE typnamespace = to_regnamespace('holdfast') AND typtype = 'e'))

-- name: missing_roles
SELECT wanted FROM unnest(ARRAY['holdfast_producer', 'holdfast_worker', 'holdfast_viewer', 'holdfast_operator']) AS wanted
WHERE wanted NOT IN (SELECT rolname FROM pg_catalog.pg_roles)

-- name: read_readiness
-- By the current time, not that of the transaction, which may have begun before the last worker reaped.
SELECT count(*) FILTER (WHERE w.live), count(*) FILTER (WHERE NOT w.live),
    extract(epoch FROM clock_timestamp() - max(w.reaped_at) FILTER (WHERE w.live))::double precision,
    extract(epoch FROM clock_timestamp() - min(w.started_at) FILTER (WHERE w.live))::double precision,
    (SELECT extract(epoch FROM clock_timestamp() - greatest(s.next_at, s.started_at, s.locked_until))::double precision
     FROM holdfast.schedule s WHERE s.name = 'maintenance')
FROM (SELECT reaped_at, started_at, heartbeat_at > now() - interval '1 minute' AS live FROM holdfast.worker
      WHERE stopped_at IS NULL AND heartbeat_at > now() - interval '1 hour' LIMIT 10000) AS w
