-- name: subscribe
SELECT id, partitions FROM holdfast.subscribe(%(name)s, %(target)s, %(topics)s::text[], %(partitions)s, %(beginning)s, %(makes_jobs)s)

-- name: join_subscription
SELECT (j.held).partition, (j.held).seq, (j.held).lock_token, (j.held).seen::text, (j.held).seen_id, (j.held).seen_top,
    (j.held).seen_xid::text, (j.held).next::text, (j.held).next_id, (j.held).next_top, (j.held).next_xid::text, (j.held).phase,
    (j.held).last_id, j.share, j.paused, j.elsewhere, j.moved, j.base_id, j.partitions, j.topics
FROM holdfast.join_subscription(%(subscription)s, %(worker)s, %(lease_ms)s) AS j

-- name: leave_subscription
SELECT holdfast.leave_subscription(%(subscription)s, %(worker)s)::text

-- name: read_events
SELECT * FROM holdfast.read_events(%(topics)s::text[], %(partitions)s, %(partition)s, %(base_id)s::bigint, %(seen)s::text::pg_snapshot,
    %(seen_id)s::bigint, %(seen_top)s::bigint, %(seen_xid)s::text::xid8, %(next)s::text::pg_snapshot, %(next_id)s::bigint,
    %(next_top)s::bigint, %(phase)s::text, %(last_id)s::bigint, %(limit)s)

-- name: advance_position
SELECT holdfast.advance_position(%(subscription)s, %(partition)s, %(seq)s::bigint, %(token)s::bigint, %(worker)s::bigint,
    %(seen)s::text::pg_snapshot, %(seen_id)s::bigint, %(seen_top)s::bigint, %(seen_xid)s::text::xid8, %(next)s::text::pg_snapshot,
    %(next_id)s::bigint, %(next_top)s::bigint, %(next_xid)s::text::xid8, %(phase)s::text, %(last_id)s::bigint, %(free)s::boolean,
    %(parked)s::json, %(receipts)s::json)

-- name: feed_jobs
SELECT events, more, made FROM holdfast.feed_jobs(%(subscription)s, %(worker)s, %(kind)s, %(queue)s, %(priority)s, %(max_attempts)s, %(ordered)s,
    %(limit)s, %(limits)s::text[])

-- name: parked_keys
SELECT DISTINCT key FROM holdfast.parked
WHERE subscription_id = %(subscription)s AND partition = %(partition)s::smallint AND holds_key AND key IS NOT NULL LIMIT 100000

-- name: released_events
-- Events after a rejected one wait until that one is delivered or deleted, due or not.
SELECT e.id, e.topic, e.key, e.payload::text, e.headers::text, e.published_at, e.version, e.trace, p.attempt
FROM (SELECT d.event_id, d.attempt FROM holdfast.parked d
      WHERE d.subscription_id = %(subscription)s AND d.partition = %(partition)s::smallint AND d.released_at <= now()
          AND NOT EXISTS (SELECT FROM holdfast.parked h WHERE h.subscription_id = d.subscription_id AND h.key = d.key AND h.holds_key
              AND h.error_code IS NOT NULL AND h.event_id < d.event_id)
      ORDER BY d.event_id LIMIT %(limit)s) AS p JOIN holdfast.event e ON e.id = p.event_id
ORDER BY e.id

-- name: settle_parked
SELECT holdfast.settle_parked(%(subscription)s, %(partition)s, %(token)s::bigint, %(worker)s::bigint, %(outcomes)s::json)

-- name: record_reader
INSERT INTO holdfast.reader (until, worker_id, topics) VALUES (now() + interval '10 seconds', %(worker)s, %(topics)s::text[]) RETURNING until

-- name: own_transaction
SELECT pg_catalog.pg_current_xact_id()::text

-- name: list_subscriptions
SELECT name, target, partition, paused, elsewhere, worker_id, events, seconds, parked, at, phase FROM holdfast.lag()

-- name: find_subscription
SELECT id FROM holdfast.subscription WHERE name = %(name)s

-- name: pause_subscription
UPDATE holdfast.subscription SET paused = %(paused)s, paused_at = CASE WHEN NOT %(paused)s THEN NULL WHEN paused THEN paused_at ELSE clock_timestamp() END,
    paused_by = CASE WHEN NOT %(paused)s THEN NULL WHEN paused THEN paused_by ELSE coalesce(%(by)s::text, current_user::text) END,
    paused_reason = CASE WHEN NOT %(paused)s THEN NULL WHEN paused THEN paused_reason ELSE %(reason)s::text END
WHERE id = %(subscription)s RETURNING id

-- name: replay_subscription
SELECT holdfast.replay_subscription(%(subscription)s, %(since)s::text::timestamptz, %(after)s::bigint)

-- name: skip_subscription
SELECT holdfast.insert_positions(%(subscription)s, holdfast.position_here(), NULL)::text

-- name: repartition_subscription
SELECT holdfast.repartition_subscription(%(subscription)s, %(partitions)s)

-- name: rebase_subscription
SELECT holdfast.rebase_subscription(%(subscription)s)

-- name: clear_subscription
-- Deletes a part of the subscription's rows: parked events, and all positions but the last, which is needed until it is deleted.
WITH parked AS (
        DELETE FROM holdfast.parked WHERE (subscription_id, event_id) IN (
            SELECT subscription_id, event_id FROM holdfast.parked WHERE subscription_id = %(subscription)s ORDER BY event_id LIMIT %(limit)s)
        RETURNING 1),
    positions AS (
        DELETE FROM holdfast.position WHERE ctid = ANY (ARRAY(
            SELECT p.ctid FROM generate_series(0, 63) AS k, holdfast.position_of(%(subscription)s, k) AS l,
                LATERAL (SELECT ctid FROM holdfast.position o WHERE o.subscription_id = l.subscription_id AND o.partition = l.partition
                         AND o.seq < l.seq ORDER BY o.seq LIMIT %(limit)s) AS p LIMIT %(limit)s))
        RETURNING 1)
SELECT greatest((SELECT count(*) FROM parked), (SELECT count(*) FROM positions))

-- name: delete_subscription
-- Cleared before, so that few rows are left.
WITH gone AS (DELETE FROM holdfast.subscription WHERE id = %(subscription)s RETURNING id),
    positions AS (DELETE FROM holdfast.position p USING gone WHERE p.subscription_id = gone.id),
    parked AS (DELETE FROM holdfast.parked p USING gone WHERE p.subscription_id = gone.id)
SELECT id FROM gone

-- name: list_parked
SELECT p.event_id, e.topic, p.key, p.holds_key, p.parked_at, p.released_at, p.error_code, p.error
FROM holdfast.parked p LEFT JOIN holdfast.event e ON e.id = p.event_id
WHERE p.subscription_id = %(subscription)s AND p.event_id > %(after)s ORDER BY p.event_id LIMIT %(limit)s

-- name: release_parked
-- A whole key, or all, also events that are due only later: the relay delivers them in order when it reads next.
WITH freed AS (
    UPDATE holdfast.parked SET released_at = clock_timestamp() WHERE (subscription_id, event_id) IN (
        SELECT subscription_id, event_id FROM holdfast.parked
        WHERE subscription_id = %(subscription)s AND (released_at IS NULL OR released_at > now()) AND (%(key)s::text IS NULL OR key = %(key)s::text)
        ORDER BY event_id LIMIT %(limit)s) RETURNING 1)
SELECT count(*) FROM freed

-- name: delete_positions
-- All but the last few of each partition: the last is the position.
WITH gone AS (
    DELETE FROM holdfast.position WHERE ctid = ANY (ARRAY(
        SELECT p.ctid FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k, holdfast.position_of(s.id, k) AS l,
            LATERAL (SELECT ctid FROM holdfast.position o WHERE o.subscription_id = s.id AND o.partition = l.partition
                     AND o.seq < l.seq - 10 AND o.at < now() - interval '10 minutes' ORDER BY o.seq LIMIT %(limit)s) AS p LIMIT %(limit)s))
    RETURNING seq)
SELECT count(*) FROM gone

-- name: delete_readers
WITH readers AS (
    DELETE FROM holdfast.reader WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.reader {{expired}})) RETURNING 1),
members AS (
    DELETE FROM holdfast.member WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM holdfast.member {{expired}})) RETURNING 1)
SELECT (SELECT count(*) FROM readers) + (SELECT count(*) FROM members)
