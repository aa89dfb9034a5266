-- name: identify_database
SELECT (SELECT system_identifier FROM pg_control_system())::text || '-' || oid FROM pg_database WHERE datname = current_database()
