-- name: publish_event
-- As text first: a caller's connection may have its own codec for json, which would encode the value twice.
SELECT holdfast.publish(%(topic)s::text, %(payload)s::text::json, %(key)s::text, %(headers)s::text::json, %(version)s::integer,
    %(trace)s::text)

-- name: publish_events
SELECT holdfast.publish_events(%(events)s)

-- name: receive_message
-- Returns null and records nothing when this is not the transaction that returned this id just before. Then the connection commits every
-- statement, and this one would commit before the message is processed.
SELECT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned()::text = %(xid)s THEN holdfast.receive(%(consumer)s, %(message_id)s) END
