-- name: make_access_token
INSERT INTO holdfast.access_token (key, name, role, digest, expires_at)
VALUES (%(key)s, %(name)s, %(role)s, %(digest)s, now() + %(days)s * interval '1 day') RETURNING expires_at

-- name: find_access_token
SELECT key, name, role, digest, created_at, expires_at, coalesce(expires_at <= clock_timestamp(), false), revoked_at
FROM holdfast.access_token WHERE key = %(key)s LIMIT 1

-- name: list_access_tokens
SELECT key, name, role, digest, created_at, expires_at, coalesce(expires_at <= clock_timestamp(), false), revoked_at
FROM holdfast.access_token ORDER BY created_at DESC LIMIT %(most)s

-- name: revoke_access_token
UPDATE holdfast.access_token SET revoked_at = clock_timestamp() WHERE key = %(key)s AND revoked_at IS NULL RETURNING key

-- name: record_audit
INSERT INTO holdfast.audit (who, role, action, target, jobs, detail)
VALUES (%(who)s, %(role)s, %(action)s, %(target)s, %(jobs)s, %(detail)s::json) RETURNING id

-- name: add_to_audit
-- More of the same action, in a later transaction.
SELECT holdfast.add_to_audit(%(id)s, %(jobs)s)

-- name: list_audit
SELECT id, at, who, role, action, target, jobs, detail::text FROM holdfast.audit WHERE id < %(before)s ORDER BY id DESC LIMIT %(most)s
