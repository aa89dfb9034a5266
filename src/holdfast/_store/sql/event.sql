-- name: publish_event
-- As text first: a connection of the caller's may have a codec of its own for json, which would encode it once more.
SELECT holdfast.publish(%(topic)s::text, %(payload)s::text::json, %(key)s::text, %(headers)s::text::json, %(version)s::integer,
    %(trace)s::text)

-- name: publish_events
SELECT holdfast.publish_events(%(events)s)

-- name: receive_message
-- Null, and nothing is received: the transaction is not the one that answered with this number just before. So there is none but those
-- of single statements, and this one would commit before anything is done about the message.
SELECT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned()::text = %(xid)s THEN holdfast.receive(%(consumer)s, %(message_id)s) END
