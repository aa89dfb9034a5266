-- Steps and messages of stories. The functions in schema/ explain what they do, and why.

-- name: save_steps
SELECT nth, answer, due FROM holdfast.save_steps(%(worker)s, %(entries)s, %(again)s)

-- name: load_steps
SELECT lost, name, key, state, beside, result, due, over FROM holdfast.load_steps(%(id)s, %(token)s, %(worker)s)

-- name: save_step
-- As text first: see publish_event.
SELECT answer, under FROM holdfast.save_step(%(id)s, %(token)s, %(worker)s, %(name)s::text, %(key)s::text, %(beside)s::boolean, %(result)s::text::json)

-- name: forget_failures
SELECT holdfast.forget_failures(%(id)s, %(token)s, %(worker)s, %(names)s::text[], %(keys)s::text[])

-- name: count_attempts_anew
SELECT holdfast.count_attempts_anew(%(id)s, %(token)s, %(worker)s, %(under)s::text[])

-- name: open_transactions
-- Which of these are still open: a story must not be suspended inside of one. Text, since not every driver has a type for them.
SELECT pg_catalog.bool_or(coalesce(pg_catalog.pg_xact_status(x.xid), '') OPERATOR(pg_catalog.=) 'in progress')
FROM pg_catalog.unnest(%(under)s::text[]::xid8[]) AS x (xid)

-- name: take_message
SELECT answer, payload::text, due FROM holdfast.take_message(%(id)s, %(token)s, %(worker)s, %(name)s::text, %(key)s::text, %(ms)s::bigint,
    %(beside)s::boolean)

-- name: gather_jobs
SELECT answer, ends::text FROM holdfast.gather_jobs(%(id)s, %(token)s, %(worker)s, %(name)s::text, %(key)s::text, %(jobs)s::text,
    %(beside)s::boolean)

-- name: send_message
SELECT holdfast.send_message(%(chain)s::bigint, %(name)s::text, %(payload)s::text::json, %(key)s::text, %(kind)s::text, %(unique_key)s::text)

-- name: read_journal
-- Of a live story. The journal of one that has ended is in its row.
SELECT holdfast.journal_of(%(id)s)::text
