-- part: bulk_columns
b.id, b.created_at, b.ended_at, b.state, b.action, b.statuses::text[], b.kind, b.queue, b.error_code, b.order_key, b.tag, b.unique_key, b.created_from,
    b.created_until, b.due, b.rate, b.most, b.expected, b.done, b.refused,
    CASE WHEN b.state = 'completed' THEN 1 WHEN b.first_id IS NULL THEN 0 WHEN b.expected > 0 THEN least(1, (b.done + b.refused)::double precision / b.expected)
        ELSE (b.position - b.first_id)::double precision / greatest(1, b.last_id - b.first_id) END,
    b.who, b.stopped_by, b.refusals::text

-- name: begin_bulk_action
-- None when a hundred are open.
INSERT INTO holdfast.bulk_action AS b (action, statuses, kind, queue, error_code, order_key, tag, unique_key, created_from, created_until, due,
    rate, most, expected, who, credential, role, last_id)
SELECT %(action)s, %(statuses)s::holdfast.status[], %(kind)s, %(queue)s, %(error_code)s, %(order_key)s, %(tag)s, %(unique_key)s,
    %(created_from)s::text::timestamptz, %(created_until)s::text::timestamptz, %(due)s::text::timestamptz, %(rate)s, %(most)s, %(expected)s,
    %(who)s, %(credential)s, %(role)s, s.last_value
FROM holdfast.job_id_seq s
WHERE (SELECT count(*) FROM (SELECT FROM holdfast.bulk_action o WHERE o.ended_at IS NULL LIMIT 100) AS o) < 100
RETURNING b.id

-- name: advance_bulk_action
SELECT * FROM holdfast.advance_bulk_action(%(only)s, %(most)s)

-- name: is_bulk_action_open
SELECT EXISTS (SELECT FROM holdfast.bulk_action WHERE ended_at IS NULL)

-- name: read_bulk_action
SELECT {{bulk_columns}} FROM holdfast.bulk_action b WHERE b.id = %(id)s

-- name: list_bulk_actions
-- Open ones first, then the newest.
SELECT {{bulk_columns}} FROM (
    SELECT o.id FROM (SELECT id FROM holdfast.bulk_action WHERE ended_at IS NULL ORDER BY next_at LIMIT %(limit)s) AS o
    UNION SELECT n.id FROM (SELECT id FROM holdfast.bulk_action ORDER BY id DESC LIMIT %(limit)s) AS n) AS chosen
    JOIN holdfast.bulk_action b USING (id)
ORDER BY b.ended_at IS NOT NULL, b.id DESC LIMIT %(limit)s

-- name: stop_bulk_action
UPDATE holdfast.bulk_action SET state = 'stopped', stopped_by = %(by)s, ended_at = clock_timestamp()
WHERE id = %(id)s AND ended_at IS NULL RETURNING id

-- name: resume_bulk_action
UPDATE holdfast.bulk_action SET state = 'running', stopped_by = NULL, ended_at = NULL, next_at = clock_timestamp()
WHERE id = %(id)s AND state = 'stopped' RETURNING id

-- name: delete_bulk_actions
-- Those that ended before the dead letters expire that they could have been for.
DELETE FROM holdfast.bulk_action WHERE id = ANY (ARRAY(
    SELECT b.id FROM holdfast.bulk_action b, holdfast.retention r
    WHERE r.family = 'job_failed' AND b.ended_at < holdfast.expiry_clock() - r.keep ORDER BY b.id LIMIT %(limit)s)) RETURNING id
