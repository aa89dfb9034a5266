-- name: read_retention
SELECT family, extract(day FROM keep)::integer, archived FROM holdfast.retention ORDER BY family

-- name: clock_is_doubted
SELECT holdfast.expiry_clock() = '-infinity'

-- name: confirm_clock
SELECT holdfast.confirm_clock()

-- name: set_retention
SELECT holdfast.set_retention(%(family)s, %(days)s)

-- name: set_archived
SELECT holdfast.set_archived(%(archived)s)

-- name: closed_days
SELECT source, starts_on, starts_on + 1, part, 'holdfast.' || source, at, rows_expected FROM holdfast.closed_days(%(limit)s) ORDER BY starts_on, source LIMIT %(limit)s

-- name: start_export
-- No row: another process exports this period now, or it is verified, dropped or incomplete. `rows` become the least that the file may have.
INSERT INTO holdfast.archive_exports AS x (source, starts_on, part, ends_on, state, started_at, lock_token, locked_until, rows_expected)
VALUES (%(source)s, %(starts_on)s::date, %(part)s, %(ends_on)s::date, 'exporting', now(), nextval('holdfast.token'),
    now() + %(lease_ms)s * interval '1 millisecond', %(rows_expected)s)
ON CONFLICT (source, starts_on, part) DO UPDATE SET state = 'exporting', started_at = excluded.started_at, lock_token = excluded.lock_token,
    locked_until = excluded.locked_until, rows_expected = excluded.rows_expected, rows_done = 0, uploaded_at = NULL, error = NULL, rows = x.rows - x.deleted, deleted = 0
WHERE x.state IN ('exporting', 'uploaded') AND NOT x.incomplete AND (x.locked_until IS NULL OR x.locked_until NOT BETWEEN now() AND now() + interval '1 hour')
RETURNING lock_token

-- name: report_export
-- No row: another process has taken over.
UPDATE holdfast.archive_exports SET rows_done = %(rows_done)s, locked_until = now() + %(lease_ms)s * interval '1 millisecond'
WHERE source = %(source)s AND starts_on = %(starts_on)s::date AND part = %(part)s AND lock_token = %(token)s
RETURNING true

-- name: record_upload
UPDATE holdfast.archive_exports SET state = 'uploaded', uploaded_at = now(), rows = %(rows)s, rows_done = %(rows)s, bytes = %(bytes)s,
    min_id = %(min_id)s, max_id = %(max_id)s, schema_version = %(schema_version)s, object = %(object)s, checksum = %(checksum)s,
    locked_until = now() + %(lease_ms)s * interval '1 millisecond'
WHERE source = %(source)s AND starts_on = %(starts_on)s::date AND part = %(part)s AND lock_token = %(token)s AND state = 'exporting'
RETURNING true

-- name: record_verified
-- `keep_ms`: of a table of the application, how long the month is kept from now on, or null for what retention says.
UPDATE holdfast.archive_exports x SET state = 'verified', verified_at = now(), etag = %(etag)s, locked_until = NULL, error = NULL,
    drop_eligible_at = CASE WHEN %(keep_ms)s::bigint IS NOT NULL THEN now() + %(keep_ms)s::bigint * interval '1 millisecond'
        ELSE greatest(now(), x.ends_on::timestamp AT TIME ZONE 'UTC' + (SELECT r.keep FROM holdfast.retention r WHERE r.family = x.source)) END
WHERE source = %(source)s AND starts_on = %(starts_on)s::date AND part = %(part)s AND lock_token = %(token)s AND state = 'uploaded'
RETURNING true

-- name: record_export_error
UPDATE holdfast.archive_exports SET error = %(error)s, incomplete = %(incomplete)s, locked_until = NULL
WHERE source = %(source)s AND starts_on = %(starts_on)s::date AND part = %(part)s AND lock_token = %(token)s AND state <> 'dropped'
RETURNING true

-- name: export_again
-- The bucket no longer has what was verified. No row: the database has fewer rows, so it is kept as it is.
SELECT true WHERE holdfast.export_again(%(source)s, %(starts_on)s::date, %(part)s::smallint, %(error)s)

-- name: export_as_it_is
-- A person wants the files of this period replaced, although the database has fewer rows.
SELECT x.part FROM holdfast.archive_exports x WHERE x.source = %(source)s AND x.starts_on = %(starts_on)s::date AND x.incomplete
    AND holdfast.export_again(x.source, x.starts_on, x.part, NULL, true)

-- name: record_incomplete
UPDATE holdfast.archive_exports SET incomplete = true, error = %(error)s
WHERE source = %(source)s AND starts_on = %(starts_on)s::date AND part = %(part)s AND state = 'verified'
RETURNING true

-- name: export_months_again
-- Rows were moved into these months by this transaction. Their number does not show that: as many may have been deleted. A new token, since an
-- export that runs now may not have read them.
UPDATE holdfast.archive_exports SET state = 'exporting', verified_at = NULL, drop_eligible_at = NULL, locked_until = NULL,
    lock_token = nextval('holdfast.token'),
    error = CASE WHEN incomplete THEN error ELSE 'rows were moved into the month: it is exported anew' END
WHERE source = %(source)s AND starts_on = ANY (%(months)s::text::date[]) AND state <> 'dropped'
RETURNING true

-- name: record_dropped
UPDATE holdfast.archive_exports SET state = 'dropped', dropped_at = now(), incomplete = false, error = NULL
WHERE source = %(source)s AND starts_on = %(starts_on)s::date AND part = %(part)s AND state = 'verified' AND drop_eligible_at <= (SELECT holdfast.expiry_clock())
RETURNING true

-- name: droppable_days
SELECT source, starts_on, part, object, etag, bytes, commands FROM holdfast.droppable_days(%(limit)s)

-- part: export_columns
source, starts_on, ends_on, part, state, started_at, uploaded_at, verified_at, drop_eligible_at, dropped_at,
    coalesce(locked_until > now(), false), rows_expected, rows_done, rows, bytes, min_id, max_id, schema_version, object, etag, checksum, error, incomplete

-- name: droppable_months
SELECT {{export_columns}} FROM holdfast.archive_exports
WHERE source = %(source)s AND state = 'verified' AND drop_eligible_at <= (SELECT holdfast.expiry_clock()) ORDER BY starts_on LIMIT %(limit)s

-- name: list_exports
-- Of one source or of all. First those that run, then others that are not verified, such as failed ones: however old their periods are, they
-- are not behind a thousand verified ones. Then the newest first.
SELECT {{export_columns}} FROM holdfast.archive_exports
WHERE (%(source)s::text IS NULL OR source = %(source)s) AND (%(since)s::date IS NULL OR starts_on >= %(since)s::date)
    AND (%(until)s::date IS NULL OR starts_on < %(until)s::date)
ORDER BY CASE WHEN locked_until > now() THEN 0 WHEN state IN ('exporting', 'uploaded') THEN 1 ELSE 2 END, starts_on DESC, source, part
LIMIT %(limit)s

-- name: unfinished_exports
-- Oldest first.
SELECT {{export_columns}} FROM holdfast.archive_exports
WHERE state IN ('exporting', 'uploaded') OR incomplete ORDER BY starts_on, source, part LIMIT %(limit)s

-- name: find_export
SELECT {{export_columns}} FROM holdfast.archive_exports
WHERE source = %(source)s AND starts_on = %(starts_on)s::date ORDER BY part LIMIT 1000

-- name: exports_with_id
-- Files that may hold this id, oldest first: a job of one of these sources, or the attempts at it. The ids of a day reach down to those of its
-- oldest row, so beside jobs with a long delay many later days may hold an id. Most jobs end on the day on which they were created, and no
-- earlier day can hold them.
SELECT {{export_columns}} FROM holdfast.archive_exports
WHERE source = ANY (%(sources)s::text[]) AND min_id <= %(id)s AND max_id >= %(id)s AND state IN ('verified', 'dropped')
    AND (%(since)s::date IS NULL OR ends_on > %(since)s::date) AND (%(until)s::date IS NULL OR starts_on <= %(until)s::date)
ORDER BY starts_on, part, source LIMIT %(limit)s

-- name: archive_totals
SELECT source, count(*), coalesce(sum(rows), 0)::bigint, coalesce(sum(bytes), 0)::bigint, min(starts_on), max(ends_on),
    count(*) FILTER (WHERE state IN ('exporting', 'uploaded')), count(*) FILTER (WHERE state = 'verified'),
    count(*) FILTER (WHERE state = 'dropped'), min(drop_eligible_at) FILTER (WHERE state = 'verified')
FROM holdfast.archive_exports GROUP BY source ORDER BY source LIMIT 1000

-- name: least_rows
-- That the file of this export may have: it replaces one with so many. No row: another export has replaced this one.
SELECT coalesce(rows - deleted, 0) FROM holdfast.archive_exports
WHERE source = %(source)s AND starts_on = %(starts_on)s::date AND part = %(part)s AND lock_token = %(token)s

-- name: count_others_active
-- The sessions that the server works for now, without exports. The state of other users' sessions is visible only to a member of pg_read_all_stats.
SELECT count(*)::int FROM pg_catalog.pg_stat_activity
WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid() AND application_name <> %(exports)s

-- name: closed_months
-- The months of a table of the application, by its copy in the schema `archive`, that are older than `hot` and neither verified nor incomplete. The name of the
-- copy does not make it ours: its comment does. Of its partitions, those that the application has added, such as a default one, are not months.
WITH months AS MATERIALIZED (
    SELECT c.relname::text, c.reltuples::bigint FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
    WHERE p.oid = pg_catalog.to_regclass(%(archived)s) AND pg_catalog.obj_description(p.oid, 'pg_class') = %(comment)s
        AND c.relnamespace = p.relnamespace AND pg_catalog.left(c.relname, -7) = p.relname
        AND c.relname ~ '_[1-9][0-9]{3}(0[1-9]|1[0-2])$'
)
SELECT m.relname, m.reltuples, x.part, x.state FROM months m
LEFT JOIN LATERAL (SELECT e.part, e.state, e.locked_until, e.incomplete FROM holdfast.archive_exports e
    WHERE e.source = %(source)s AND e.starts_on = pg_catalog.to_date(pg_catalog.right(m.relname, 6), 'YYYYMM')
    ORDER BY e.part DESC LIMIT 1) AS x ON true
WHERE x.state IS DISTINCT FROM 'verified' AND coalesce(x.locked_until NOT BETWEEN pg_catalog.now() AND pg_catalog.now() + interval '1 hour', true)
    AND x.incomplete IS NOT TRUE
    AND pg_catalog.to_date(pg_catalog.right(m.relname, 6), 'YYYYMM') + interval '1 month' + %(hot)s::interval
        <= pg_catalog.now() AT TIME ZONE 'UTC'
ORDER BY m.relname LIMIT 1000

-- name: is_archived_month
-- Whether a table is a month of the copy of a table of the application, and not of another table with the same name.
SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = pg_catalog.to_regclass(%(month)s)
    AND i.inhparent = pg_catalog.to_regclass(%(archived)s) AND pg_catalog.obj_description(i.inhparent, 'pg_class') = %(comment)s)

-- name: read_settings
-- For one transaction, since behind a pooler the session is shared: values have one form, and rows are read by an index in the order of ids
-- rather than sorted all.
SELECT pg_catalog.set_config('search_path', %(path)s, true), pg_catalog.set_config('timezone', 'UTC', true),
    pg_catalog.set_config('datestyle', 'ISO', true), pg_catalog.set_config('intervalstyle', 'iso_8601', true),
    pg_catalog.set_config('extra_float_digits', '1', true), pg_catalog.set_config('bytea_output', 'hex', true),
    pg_catalog.set_config('enable_sort', 'off', true), pg_catalog.set_config('enable_seqscan', 'off', true),
    pg_catalog.set_config('enable_bitmapscan', 'off', true), pg_catalog.set_config('statement_timeout', '0', true)

-- name: move_settings
-- For one transaction: months are those of UTC, a scan starts at the beginning of the table, as batches by place need it, and a lock that is
-- not given within two seconds is left for the next tick.
SELECT pg_catalog.set_config('timezone', 'UTC', true), pg_catalog.set_config('datestyle', 'ISO', true),
    pg_catalog.set_config('synchronize_seqscans', 'off', true), pg_catalog.set_config('lock_timeout', '2s', true)

-- name: load_settings
-- For one transaction: the form that values have in files.
SELECT pg_catalog.set_config('timezone', 'UTC', true), pg_catalog.set_config('datestyle', 'ISO', true)
