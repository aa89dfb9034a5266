-- name: applied_migrations
SELECT number, name, checksum FROM holdfast.migration ORDER BY number

-- name: missing_roles
SELECT wanted FROM unnest(ARRAY['holdfast_producer', 'holdfast_worker', 'holdfast_viewer', 'holdfast_operator']) AS wanted
WHERE wanted NOT IN (SELECT rolname FROM pg_catalog.pg_roles)
