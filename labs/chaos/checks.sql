-- What must not happen. Each query answers with a line of text for every case in which it did.
-- Read by checks.py; the comment under a name says when a case counts, and stands in the report.

-- name: lost
-- A promised job has not ended, or is nowhere.
SELECT format('job %s (%s) is %s, attempt %s, held by %s', p.job, p.workload, coalesce(j.status::text, 'nowhere'), j.attempt, j.locked_by)
FROM chaos.promise p LEFT JOIN holdfast.job j ON j.id = p.job
WHERE NOT EXISTS (SELECT FROM chaos.ended e WHERE e.id = p.job);

-- name: never promised
-- A job without a promise, as of a transaction that was rolled back, exists or ran.
SELECT format('job %s (%s) exists', id, kind)
FROM (SELECT id, kind, coalesce(chain_id, id) AS head FROM chaos.ended
    UNION ALL SELECT id, kind, coalesce(chain_id, id) FROM holdfast.job) AS j
WHERE NOT EXISTS (SELECT FROM chaos.promise p WHERE p.job = j.head)
UNION ALL
SELECT DISTINCT format('job %s ran on %s', r.job, r.worker)
FROM chaos.run r
WHERE NOT EXISTS (SELECT FROM chaos.promise p WHERE p.job = r.job)
    AND NOT EXISTS (SELECT FROM chaos.ended e WHERE e.id = r.job)
    AND NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = r.job);

-- name: wrong outcome
-- A job ended with another outcome than was promised.
SELECT format('job %s (%s) is %s, not %s, after attempt %s', id, kind, status, coalesce(expected, 'completed'), attempt)
FROM chaos.ended
WHERE coalesce(expected, 'completed') <> 'either' AND status <> coalesce(expected, 'completed');

-- name: failed for another reason
-- A job that had to fail did so with another error code than it must; its last lease may have run out all the same.
SELECT format('job %s (%s) failed with %s, not %s: %s', f.id, f.kind, f.last_error_code, p.key, f.last_error)
FROM chaos.promise p JOIN holdfast.job_failed f ON f.id = p.job
WHERE p.workload = 'trouble' AND f.last_error_code IS DISTINCT FROM p.key AND f.last_error_code <> 'lease_expired';

-- name: innocent jobs harmed
-- A job lost more than one attempt, or became a dead letter, through processes that another job killed: both are lost within 10 s, since a process dies once and its leases run out together. Or it has not completed, beside one whose outcome cannot be written.
SELECT format('job %s (%s) lost %s attempts beside jobs that kill their process, and %s: %s', e.id, e.kind, count(*), e.status,
    string_agg(format('%s of worker %s at %s', a.error_code, a.worker_id, a.ended_at), ', ' ORDER BY a.ended_at))
FROM chaos.ended e JOIN holdfast.attempt a ON a.job_id = e.id AND a.outcome = 'lost'
WHERE e.kind <> 'trouble.poison' AND EXISTS (
    SELECT FROM holdfast.attempt k JOIN chaos.ended p ON p.id = k.job_id AND p.kind = 'trouble.poison'
    WHERE k.worker_id = a.worker_id AND k.job_id <> a.job_id AND k.ended_at BETWEEN a.ended_at - interval '10 s' AND a.ended_at + interval '10 s'
        AND k.error_code IN ('lease_expired', 'lost_in_trial', 'crashed_alone'))
GROUP BY e.id, e.kind, e.status, e.expected HAVING count(*) > 1 OR (e.status = 'failed' AND coalesce(e.expected, 'completed') = 'completed')
UNION ALL
SELECT format('job %s is %s beside one whose outcome cannot be written', p.job, coalesce(e.status::text, 'not ended'))
FROM chaos.promise p LEFT JOIN chaos.ended e ON e.id = p.job
WHERE p.expected = 'completed' AND e.status::text IS DISTINCT FROM 'completed'
    AND EXISTS (SELECT FROM chaos.promise s WHERE s.workload = 'spoilt');

-- name: dead letters that a worker could read
-- A payload was too new for the worker that made a dead letter of it, and one that could read it had been alive for 5 s; or a worker that could not read it completed it.
SELECT format('job %s (%s), payload version %s, became a dead letter of %s', e.id, e.kind, e.payload_version, e.worker)
FROM chaos.ended e
WHERE e.workload = 'version' AND e.status = 'failed' AND EXISTS (
    SELECT FROM chaos.worker w WHERE (w.versions ->> e.kind)::integer >= e.payload_version
        AND w.started_at < e.finished_at - interval '5 seconds' AND coalesce(w.stopped_at, w.heartbeat_at) > e.finished_at)
UNION ALL
SELECT format('job %s (%s), payload version %s, was completed by %s', e.id, e.kind, e.payload_version, e.worker)
FROM chaos.ended e JOIN chaos.worker w ON w.name = e.worker
WHERE e.workload = 'version' AND e.status = 'completed' AND coalesce((w.versions ->> e.kind)::integer, 1) < e.payload_version;

-- name: another's jobs taken
-- A worker whose row had become another's gave back, ran or ended what that one was running under the same id.
SELECT format('job %s was held by another: attempt %s %s by worker %s', p.job, a.attempt, a.outcome, a.worker_id)
FROM chaos.promise p JOIN holdfast.attempt a ON a.job_id = p.job AND a.outcome <> 'completed'
WHERE p.workload = 'held'
UNION ALL
SELECT format('job %s was held by another: %s ran it', p.job, r.worker)
FROM chaos.promise p JOIN chaos.run r ON r.job = p.job
WHERE p.workload = 'held';

-- name: ended twice
-- A job is in two places, or one claim has two endings.
SELECT format('job %s is in %s places', id, count(*))
FROM (SELECT id FROM chaos.ended UNION ALL SELECT id FROM holdfast.job) AS j
GROUP BY id HAVING count(*) > 1
UNION ALL
SELECT format('job %s: a claim ended more than once', job) FROM chaos.attempts WHERE doubles > 0;

-- name: effects doubled or missing
-- The effects of `job.complete` exist twice, half, not at all, or without a completion.
SELECT format('job %s: %s entries that add up to %s', e.id, count(l.job), sum(l.amount))
FROM chaos.ended e LEFT JOIN chaos.ledger l ON l.job = e.id
WHERE e.workload = 'ledger' AND e.status = 'completed'
GROUP BY e.id HAVING count(l.job) <> 2 OR sum(l.amount) <> 0
UNION ALL
SELECT format('step %s: %s entries', e.id, count(l.job))
FROM chaos.ended e LEFT JOIN chaos.ledger l ON l.job = e.id
WHERE e.kind = 'step' AND e.status = 'completed'
GROUP BY e.id, e.payload ->> 'left' HAVING count(l.job) <> CASE WHEN e.payload ->> 'left' = '2' THEN 1 ELSE 0 END
UNION ALL
SELECT DISTINCT format('job %s: entries, and no completion', l.job)
FROM chaos.ledger l
WHERE NOT EXISTS (SELECT FROM chaos.ended e WHERE e.id = l.job AND e.status = 'completed');

-- name: steps doubled or changed
-- What the steps of a completed story entered is there twice, or not at all, or differs from what the story returned: a recorded step ran again.
SELECT format('story %s returned %s, and entered %s', e.id, e.result::jsonb, json_agg(n.number ORDER BY n.place))
FROM chaos.ended e LEFT JOIN chaos.entry n ON n.job = e.id
WHERE e.workload = 'story' AND e.status = 'completed'
GROUP BY e.id, e.result::jsonb HAVING json_agg(n.number ORDER BY n.place)::jsonb IS DISTINCT FROM e.result::jsonb
    OR count(*) <> 5 OR count(DISTINCT n.place) <> 5
UNION ALL
SELECT format('story %s has left %s steps', s.job_id, count(*)) FROM holdfast.step s
WHERE NOT EXISTS (SELECT FROM holdfast.job j WHERE j.id = s.job_id) GROUP BY s.job_id;

-- name: stale writes accepted
-- An accepted write came from another claim than the last.
SELECT format('job %s (%s): %s attempt %s token %s was entitled; accepted from %s attempt %s token %s',
    e.id, e.kind, e.worker, e.attempt, coalesce(t.completed_token, s.last_token), e.signed_worker, e.signed_attempt, e.signed_token)
FROM chaos.ended e LEFT JOIN chaos.started s ON s.job = e.id LEFT JOIN chaos.attempts t ON t.job = e.id
WHERE e.signed_token IS NOT NULL AND e.status = 'completed'
    AND (e.attempt <> e.signed_attempt OR e.worker IS DISTINCT FROM e.signed_worker
        OR s.last_token IS DISTINCT FROM e.signed_token OR coalesce(t.completed_token, e.signed_token) <> e.signed_token)
UNION ALL
SELECT format('entry of job %s: %s attempt %s token %s was entitled; accepted from %s attempt %s token %s',
    l.job, e.worker, e.attempt, s.last_token, l.worker, l.attempt, l.token)
FROM chaos.ledger l JOIN chaos.ended e ON e.id = l.job LEFT JOIN chaos.started s ON s.job = l.job
WHERE l.worker IS DISTINCT FROM e.worker OR l.attempt <> e.attempt OR l.token IS DISTINCT FROM s.last_token;

-- name: keys out of order
-- A job of an order key began before all those before it in the key had ended.
SELECT format('key %s: job %s, at place %s, began %s ms too early', key, id, n, round((before - first_begun) / 1e6, 1))
FROM (
    SELECT e.key, e.n, e.id, s.first_begun,
        max(r.ended) OVER (PARTITION BY e.key ORDER BY e.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM chaos.ended e JOIN chaos.started s ON s.job = e.id
        LEFT JOIN chaos.run r ON r.job = e.id AND r.token = e.signed_token
    WHERE e.workload = 'keyed') AS k
WHERE first_begun < before;

-- name: blocked for ever
-- A job is still blocked though nothing is left that it could wait for.
SELECT format('job %s (%s): key %s, %s blockers left', id, kind, order_key, blockers_left)
FROM holdfast.job WHERE status = 'blocked';

-- name: chains broken
-- A chain stopped short, or went on twice: each has three steps.
SELECT format('chain %s: %s jobs, %s steps', head, count(*), count(DISTINCT step))
FROM (
    SELECT p.job AS head, e.payload ->> 'left' AS step
    FROM chaos.promise p LEFT JOIN chaos.ended e ON e.id = p.job WHERE p.workload = 'chain'
    UNION ALL
    SELECT e.chain_id, e.payload ->> 'left' FROM chaos.ended e WHERE e.kind = 'step' AND e.chain_id IS NOT NULL) AS c
GROUP BY head HAVING count(*) <> 3 OR count(DISTINCT step) <> 3;

-- name: blockers ignored
-- A job ran before the chains it comes after had ended, or received other chains as its blockers.
SELECT format('job %s began before chain %s had ended', j.id, b.chain)
FROM chaos.ended j JOIN chaos.started s ON s.job = j.id, unnest(string_to_array(j.key, ',')::bigint[]) AS b (chain)
    JOIN chaos.ended e ON e.chain_id = b.chain
    JOIN chaos.run r ON r.job = e.id AND r.token = e.signed_token
WHERE j.workload = 'join' AND s.first_begun < r.ended
UNION ALL
SELECT format('job %s came after %s, and received %s', id, key, result)
FROM chaos.ended
WHERE workload = 'join' AND status = 'completed' AND replace(result::text, ' ', '') <> '[' || key || ']';

-- name: singletons overlapping
-- Two replicas were in the singleton runner at once, and neither had been standing still.
SELECT format('%s began at %s, another ended at %s', worker, begun, before)
FROM (
    SELECT b.worker, b.at AS begun, max(e.at) OVER (ORDER BY b.at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM chaos.singleton b JOIN chaos.singleton e ON e.run = b.run AND e.what = 'ended'
    WHERE b.what = 'begun') AS s
WHERE begun < before;

-- name: attempts miscounted
-- The number of attempts is not that of the claims, less those that were given back; or a claim was started twice.
SELECT format('job %s (%s) %s at attempt %s: %s counted, %s given back, %s failed', e.id, e.kind, e.status, e.attempt, t.counted,
    t.uncounted, t.failed)
FROM chaos.ended e LEFT JOIN chaos.attempts t ON t.job = e.id
-- Those of a story are counted from its last step on.
WHERE (e.status = 'completed' AND e.attempt <> 1 + coalesce(t.counted, 0) AND e.kind <> 'story')
    OR (e.status = 'failed' AND e.attempt <> coalesce(t.counted, 0) + coalesce(t.failed, 0))
UNION ALL
SELECT format('job %s (%s): %s starts under %s tokens, attempt %s, %s given back', e.id, e.kind, s.starts, s.tokens, e.attempt, t.uncounted)
FROM chaos.ended e JOIN chaos.started s ON s.job = e.id LEFT JOIN chaos.attempts t ON t.job = e.id
WHERE (s.starts > e.attempt + coalesce(t.uncounted, 0) OR s.attempt > e.attempt) AND e.kind <> 'story' OR s.starts <> s.tokens;

-- name: rescheduled into the past
-- A job was released with a due time in the past, below the point where claims start. An attempt that ended after its job did is of a clock that was ahead; only the last attempt that gave the job back is of the clock that made its due time, unless that clock was three hours behind.
SELECT format('job %s (%s) was due at %s, and went back only at %s', e.id, e.kind, e.available_at, a.ended_at)
FROM (SELECT DISTINCT ON (job_id) * FROM holdfast.attempt WHERE outcome IN ('retry', 'reschedule', 'released', 'lost')
      ORDER BY job_id, lock_token DESC) AS a JOIN chaos.ended e ON e.id = a.job_id
WHERE a.outcome <> 'lost' AND a.ended_at <= e.finished_at AND a.ended_at - e.available_at BETWEEN interval '1 microsecond' AND interval '2 hours';

-- name: left behind by a stopped worker
-- A worker stopped gracefully, no handler of it ignored that, and yet other workers had to wait until its leases expired. An attempt that ended by a clock that was weeks ahead does not count.
SELECT format('job %s of %s, which stopped at %s, was taken away at %s', a.job_id, w.name, w.stopped_at, a.ended_at)
FROM holdfast.attempt a JOIN holdfast.worker w ON w.id = a.worker_id
WHERE a.outcome = 'lost' AND a.ended_at BETWEEN w.stopped_at AND w.stopped_at + interval '1 day' AND w.stop_reason IN ('stopped', 'stopped, with jobs aborted');

-- name: ran on after the lease was lost
-- A handler reached its end while the handler of a later claim ran, and its process had not stood still.
SELECT format('job %s: %s went on to the end when %s had it', r.job, r.worker, later.worker)
FROM chaos.run r JOIN chaos.run later ON later.job = r.job AND later.token > r.token
    JOIN chaos.ended e ON e.id = r.job AND e.kind = 'break.patient'
WHERE r.ended > later.begun;

-- name: more at once than the limit
-- At some commit, more jobs of a key were claimed than its limit allows.
SELECT format('key %s: %s of %s with job %s, at %s', p.key, p.taken, r.concurrency, p.job, p.at)
FROM (SELECT key, job, at, change, sum(change) OVER (PARTITION BY key ORDER BY n) AS taken FROM chaos.place) AS p
    JOIN holdfast.limit_rule r ON r.name = split_part(p.key, ':', 1)
WHERE p.change > 0 AND p.taken > r.concurrency;

-- name: more starts than the rate allows
-- Within some time, more jobs of a key were claimed than its rate allows in it, and its burst.
SELECT format('key %s: in some time up to %s, %s claims more than its rate allows in it, and a burst of %s', key, at, excess, burst)
FROM chaos.start WHERE excess > burst;

-- name: stranded at a limit
-- Maintenance found jobs that waited although their key had room, and nothing would have promoted them.
SELECT format('run %s mended %s keys', id, counts ->> 'limits_mended') FROM holdfast.run WHERE (counts ->> 'limits_mended')::integer > 0;

-- name: a tenant starved
-- The nth job of a tenant started after more jobs than three rounds for each of its own; of all that were enqueued together, and 100 more that workers held.
SELECT format('job %s of tenant %s, its number %s, was start %s beside %s tenants', s.job, s.key, s.own, s.start, s.tenants)
FROM (SELECT p.job, p.key, row_number() OVER (PARTITION BY p.batch, p.key ORDER BY r.first_begun) AS own,
          row_number() OVER (PARTITION BY p.batch ORDER BY r.first_begun) AS start,
          (SELECT count(DISTINCT o.key) FROM chaos.promise o WHERE o.batch = p.batch AND o.workload = 'tenant') AS tenants
      FROM chaos.promise p JOIN chaos.started r ON r.job = p.job WHERE p.workload = 'tenant') AS s
WHERE s.start > 3 * s.own * s.tenants + 100;
