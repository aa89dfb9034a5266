-- name: make_access_token
INSERT INTO holdfast.access_token (key, name, role, digest, expires_at)
VALUES (%(key)s, %(name)s, %(role)s, %(digest)s, now() + %(days)s * interval '1 day') RETURNING expires_at

-- name: is_name_free
-- An expired token frees its name.
WITH given AS (SELECT %(name)s::text AS name), expired AS (
    UPDATE holdfast.access_token t SET revoked_at = t.expires_at FROM given g
    WHERE t.name = g.name AND t.revoked_at IS NULL AND t.expires_at <= clock_timestamp())
SELECT NOT EXISTS (SELECT FROM holdfast.access_token t JOIN given g ON t.name = g.name
    WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()))

-- part: access_tokens
SELECT key, name, role, digest, created_at, expires_at, coalesce(expires_at <= clock_timestamp(), false), revoked_at
FROM holdfast.access_token

-- name: find_access_token
{{access_tokens}} WHERE key = %(key)s LIMIT 1

-- name: list_access_tokens
{{access_tokens}} ORDER BY created_at DESC LIMIT %(limit)s

-- name: revoke_access_token
UPDATE holdfast.access_token SET revoked_at = clock_timestamp() WHERE key = %(key)s AND revoked_at IS NULL RETURNING key

-- name: record_audit
INSERT INTO holdfast.audit (who, credential, address, role, action, target, jobs, ids, detail)
VALUES (%(who)s, %(credential)s, %(address)s, %(role)s, %(action)s, %(target)s, %(jobs)s, %(ids)s::text::bigint[], %(detail)s::json)
RETURNING id

-- name: end_session
WITH over AS (
    DELETE FROM holdfast.ended_session WHERE id = ANY (ARRAY(SELECT e.id FROM holdfast.ended_session e WHERE e.until < now() LIMIT 100)))
INSERT INTO holdfast.ended_session (id, until) VALUES (%(id)s, to_timestamp(%(until)s)) ON CONFLICT DO NOTHING RETURNING id

-- name: is_session_ended
SELECT EXISTS (SELECT FROM holdfast.ended_session WHERE id = %(id)s)

-- name: forget_answered
DELETE FROM holdfast.answered WHERE (who, key) IN (
    SELECT a.who, a.key FROM holdfast.answered a WHERE a.at < now() - interval '1 day' ORDER BY a.at LIMIT 100) RETURNING key

-- name: begin_answered
INSERT INTO holdfast.answered (who, key, request) VALUES (%(who)s, %(key)s, %(request)s) ON CONFLICT DO NOTHING RETURNING key

-- name: find_answered
SELECT request, answer FROM holdfast.answered WHERE who = %(who)s AND key = %(key)s LIMIT 1

-- name: keep_answered
UPDATE holdfast.answered SET answer = %(answer)s WHERE who = %(who)s AND key = %(key)s RETURNING key

-- name: drop_answered
DELETE FROM holdfast.answered WHERE who = %(who)s AND key = %(key)s AND answer IS NULL RETURNING key

-- name: list_audit
SELECT id, at, who, credential, address, role, action, target, jobs, ids, detail::text FROM holdfast.audit WHERE id < %(before)s ORDER BY id DESC LIMIT %(limit)s
