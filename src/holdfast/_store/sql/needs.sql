-- The version and the settings of a server, for `holdfast check --server`.

-- name: read_product
SELECT version(), pg_is_in_recovery(), current_setting('transaction_read_only')::boolean, current_setting('server_encoding'),
    has_database_privilege(current_database(), 'CREATE'), (SELECT r.rolcreaterole OR r.rolsuper FROM pg_roles r WHERE r.rolname = current_user),
    EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'holdfast' AND c.relname = 'migration')
LIMIT 1

-- name: read_times
-- In milliseconds, 0 for no limit, as a session of this user begins.
SELECT name, CASE unit WHEN 's' THEN reset_val::bigint * 1000 WHEN 'min' THEN reset_val::bigint * 60000 ELSE reset_val::bigint END
FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout')
ORDER BY name LIMIT 5

-- name: read_safety
-- Settings whose usual value is `on`: without one of them, a crash loses commits, or tables grow.
SELECT name, setting FROM pg_settings WHERE name IN ('autovacuum', 'fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name LIMIT 4

-- name: read_time
SELECT clock_timestamp()
