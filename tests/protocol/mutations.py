"""Possible mistakes in the protocol's functions; the machine must notice each."""

from __future__ import annotations

from typing import Final, TypeAlias

# The function, and what is replaced in its definition; each old text must be there exactly once.
Mutation: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]

_LOCKED = "LIMIT look FOR NO KEY UPDATE SKIP LOCKED)"
_WAYS = "AND j.locked_by = worker AND j.order_key IS NULL\n               "

MUTATIONS: Final[dict[str, Mutation]] = {
    "claim does not count the attempt": (
        "claim_jobs",
        (("attempt = least(j.attempt + 1, 32767),", "attempt = j.attempt,"),),
    ),
    "claim begins with the latest": (
        "claim_jobs",
        (
            (
                f"ORDER BY j.available_at, j.id {_LOCKED} AS alone",
                f"ORDER BY j.available_at DESC, j.id DESC {_LOCKED} AS alone",
            ),
            (
                f"ORDER BY j.available_at, j.id {_LOCKED} AS locked",
                f"ORDER BY j.available_at DESC, j.id DESC {_LOCKED} AS locked",
            ),
        ),
    ),
    "claim takes more than there are slots": (
        "claim_jobs",
        (("most := most - need;", "most := most - need; need := need + 1;"),),
    ),
    "claim takes what another shard has": (
        "claim_jobs",
        (("last_queue := cardinality(queues);", "last_queue := cardinality(queues); shard_to := 63;"),),
    ),
    "claim reuses a token": (
        "claim_jobs",
        (("nextval('holdfast.token')", "(SELECT last_value FROM holdfast.token)"),),
    ),
    "claim passes the head of a key": (
        "take_order_heads",
        (("AND (e.order_seq, e.id) < (j.order_seq, j.id))", "AND false)"),),
    ),
    "claim parks the head of a key": (
        "take_order_heads",
        (("AND (e.order_seq, e.id) < (j.order_seq, j.id))", "AND e.id <> j.id)"),),
    ),
    "claim does not see that a key is stopped": (
        "take_order_heads",
        (("OR EXISTS (SELECT FROM holdfast.order_stop s WHERE s.order_key = j.order_key) AS waits", "AS waits"),),
    ),
    "claim does not see that a key is busy": (
        "take_order_heads",
        (("e.status = 'processing') AS busy", "false) AS busy"),),
    ),
    "claim parks the early instead of asking again": (
        "take_order_heads",
        (
            (
                "SET available_at = clock_timestamp() + interval '1 second', later = true WHERE",
                "SET status = 'blocked' WHERE",
            ),
        ),
    ),
    "claim does not promote what was scheduled": (
        "promote_jobs",
        (("SET later = NULL", "SET later = j.later"),),
    ),
    "renew by id and holder": (
        "renew_leases",
        (
            (" ON j.id = g.id AND j.lock_token = g.token", " ON j.id = g.id"),
            (" AND g.token = j.lock_token RETURNING", " RETURNING"),
        ),
    ),
    "renew by id and token": ("renew_leases", ((" AND j.locked_by = worker ORDER", " ORDER"),)),
    "renew does not tell of the cancellation": (
        "renew_leases",
        (("WHERE r.id IS NULL OR r.stop", "WHERE r.id IS NULL"),),
    ),
    "complete by id and holder": (
        "complete_jobs",
        ((" AND j.lock_token = tokens[1]", ""), (" AND j.lock_token = coalesce(g.token, tokens[1])", "")),
    ),
    "complete by id and token": (
        "complete_jobs",
        (("tokens[1] AND j.locked_by = worker", "tokens[1]"), ("tokens[1]) AND j.locked_by = worker", "tokens[1])")),
    ),
    "settle by id and holder": (
        "settle_batch",
        ((" AND j.lock_token = g.token AND j.locked_by = g.holder", " AND j.locked_by = g.holder"),),
    ),
    "settle by id and token": (
        "settle_batch",
        ((" AND j.lock_token = g.token AND j.locked_by = g.holder", " AND j.lock_token = g.token"),),
    ),
    "settle does not promote": ("settle_batch", (("IF successors <> '{}' THEN", "IF false THEN"),)),
    "settle promotes past a stop": (
        "lock_successors",
        ((" AND NOT (s.verdict = 'failed' AND j.order_block IS TRUE)", ""),),
    ),
    "settle does not stop the key": ("leave_jobs", (("AND j.order_block AND", "AND false AND"),)),
    "settle promotes what waits for a chain": (
        "lock_successors",
        (
            ("AND (n.blockers_left > 0) IS NOT TRUE AS parked", "AS parked"),
            (") AND (j.blockers_left > 0) IS NOT TRUE\n", ")\n"),
        ),
    ),
    "settle promotes past what follows in the key": (
        "lock_successors",
        (("AND (s.next_id IS NULL OR s.next ->> 'order_key' IS DISTINCT FROM j.order_key OR", "AND (true OR"),),
    ),
    "settle promotes in a stopped key": (
        "lock_successors",
        (
            (
                "AND (s.holder <> 0 OR (SELECT true FROM holdfast.order_stop o",
                "AND (true OR (SELECT true FROM holdfast.order_stop o",
            ),
        ),
    ),
    "settle gives what follows a new place": (
        "leave_jobs",
        (("CASE WHEN n.order_key = e.order_key THEN e.order_seq WHEN", "CASE WHEN"),),
    ),
    "settle forgets what follows": (
        "settle_batch",
        (("CASE WHEN became = 'completed' AND next IS NOT NULL THEN", "CASE WHEN false THEN"),),
    ),
    "settle lets what follows begin a chain": (
        "leave_jobs",
        (("coalesce(e.chain_id, e.id),\n", "NULL,\n"),),
    ),
    "settle does not say what follows": (
        "leave_jobs",
        (("error, last_error), next_id\n", "error, last_error), NULL\n"),),
    ),
    "settle forgets that what follows is awaited": (
        "leave_jobs",
        (("nullif(n.run_anyway, false), e.awaited", "nullif(n.run_anyway, false), NULL"),),
    ),
    "settle does not tell who waits": (
        "settle_batch",
        (("IF waiters <> '{}' OR crowded <> '{}' THEN", "IF false THEN"),),
    ),
    "settle tells too early": (
        "settle_batch",
        (("became <> 'pending' AND follower IS NULL AND awaited", "became <> 'pending' AND awaited"),),
    ),
    "settle leaves blockers behind": ("settle_batch", (("IF had_blockers <> '{}' THEN", "IF false THEN"),)),
    "complete does not see who waits": (
        "complete_jobs",
        (
            (f"tokens[1] {_WAYS} AND j.awaited IS NULL AND", f"tokens[1] {_WAYS} AND"),
            (f"tokens[1]) {_WAYS} AND j.awaited IS NULL AND", f"tokens[1]) {_WAYS} AND"),
        ),
    ),
    "waiters are counted down once": ("update_waiters", (("count(*) AS ended", "1 AS ended"),)),
    "waiters are let go by the first": (
        "update_waiters",
        (("OR j.blockers_left = c.ended THEN 'pending'", "OR true THEN 'pending'"),),
    ),
    "waiters do not hear of a failure": ("update_waiters", (("bool_or(t.status <> 'completed')", "false"),)),
    "waiters fail though they run anyway": (
        "update_waiters",
        (
            ("blockers_left = CASE WHEN c.failed AND j.run_anyway IS NOT TRUE", "blockers_left = CASE WHEN c.failed"),
            ("status = CASE WHEN c.failed AND j.run_anyway IS NOT TRUE", "status = CASE WHEN c.failed"),
        ),
    ),
    "waiters are let go into the past": (
        "update_waiters",
        (("greatest(j.available_at, clock_timestamp())", "j.available_at - interval '1 minute'"),),
    ),
    "naming does not mark the chain": ("hold_chains", (("SET awaited = true WHERE", "SET awaited = awaited WHERE"),)),
    "naming takes the first end": (
        "chain_ends",
        (("ORDER BY last.id DESC LIMIT 1", "ORDER BY last.id LIMIT 1"),),
    ),
    "circles are let in": ("refuse_cycles", (("IF met_origin THEN", "IF false THEN"),)),
    "circles by replacing are let in": ("enqueue_unique_jobs", (("PERFORM holdfast.refuse_cycles(replaced);", ""),)),
    "circles through an order key are let in": ("jobs_ahead", (("IF me.order_key IS NOT NULL", "IF false"),)),
    "an outside completion leaves the holder": ("take_job", (("locked_by = 0 WHERE", "locked_by = locked_by WHERE"),)),
    "deleting forgets who waits": (
        "delete_chains",
        (("IF waiters IS NOT NULL AND NOT cascade THEN", "IF false THEN"),),
    ),
    "deleting leaves history": (
        "delete_chains",
        (("DELETE FROM holdfast.job_history h WHERE", "DELETE FROM holdfast.job_history h WHERE false AND"),),
    ),
    "deleting leaves the key stopped": (
        "delete_chains",
        (("PERFORM holdfast.resume_order_key(s.order_key)", "PERFORM"),),
    ),
    "deleting ends what runs": ("delete_job", (("ELSIF state = 'processing' THEN", "ELSIF false THEN"),)),
    "replace keeps what it came after": (
        "enqueue_unique_jobs",
        (("DELETE FROM holdfast.blocker WHERE job_id = ANY (replaced);", "NULL;"),),
    ),
    "debounce lets go what waits": (
        "enqueue_unique_jobs",
        (("status = CASE WHEN j.blockers_left > 0 THEN 'blocked'", "status = CASE WHEN false THEN 'blocked'"),),
    ),
    "settle promotes into the past": (
        "settle_batch",
        (("available_at = greatest(j.available_at, clock)", "available_at = j.available_at - interval '1 minute'"),),
    ),
    "settle keeps a dead letter twice": (
        "leave_jobs",
        (("FROM ended WHERE verdict <> 'failed' AND NOT forget)", "FROM ended WHERE NOT forget)"),),
    ),
    "settle forgets the dead letter": (
        "leave_jobs",
        (("FROM ended WHERE verdict = 'failed')", "FROM ended WHERE false)"),),
    ),
    "settle does not look at the cancellation": (
        "settle_batch",
        (("WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'", ""),),
    ),
    "retry ignores the cap": ("settle_batch", (("g.outcome IN ('retry', 'lost')", "g.outcome IN ('lost')"),)),
    "retry goes back into the past": (
        "give_back_jobs",
        (("available_at = holdfast.due_at(s.at", "available_at = -interval '1 minute' + holdfast.due_at(s.at"),),
    ),
    "retry keeps the lease": (
        "give_back_jobs",
        (("locked_until = NULL, lock_token = NULL, locked_by = NULL,", "locked_until = NULL,"),),
    ),
    "release counts the attempt": (
        "give_back_jobs",
        (
            (
                "attempt = j.attempt - CASE WHEN s.outcome IN ('released', 'reschedule')",
                "attempt = j.attempt - CASE WHEN s.outcome IN ('reschedule')",
            ),
        ),
    ),
    "an attempt is not told": (
        "leave_jobs",
        (("FROM ended WHERE (attempt > 1 OR verdict <> 'completed') AND", "FROM ended WHERE false AND"),),
    ),
    "reap ignores the cap": ("settle_batch", (("g.outcome IN ('retry', 'lost')", "g.outcome IN ('retry')"),)),
    "reap takes leases that have not ended": ("reap_jobs", (("j.locked_until < now() AND", "true AND"),)),
    "reap takes more than it may": ("reap_jobs", (("LIMIT most", "LIMIT most + 1"),)),
    "cancel ends what runs": ("cancel_job", (("target.status IN ('pending', 'blocked')", "true"),)),
    "cancel ends what must leave a key in its turn": ("cancel_job", ((" AND target.order_key IS NULL", ""),)),
    "cancel leaves what it marks waiting": (
        "cancel_job",
        (("blockers_left = CASE WHEN blockers_left > 0 THEN 0 ELSE", "blockers_left = CASE WHEN false THEN 0 ELSE"),),
    ),
    "resume does not promote": ("resume_order_key", (("WHERE status = 'blocked' AND", "WHERE false AND"),)),
    "resume lets go what waits for a chain": ("resume_order_key", ((" AND (blockers_left > 0) IS NOT TRUE", ""),)),
    "resume leaves the stop": (
        "resume_order_key",
        (("DELETE FROM holdfast.order_stop WHERE order_key = key", "DELETE FROM holdfast.order_stop WHERE false"),),
    ),
    "replay begins a chain of its own": (
        "replay_job",
        (("coalesce(dead.chain_id, dead.id), dead.id,", "dead.chain_id, dead.id,"),),
    ),
    "replay forgets what it came after": (
        "replay_job",
        (("cardinality(dead.blockers), dead.run_anyway", "NULL, dead.run_anyway"),),
    ),
    "replay leaves the key stopped": ("replay_job", (("PERFORM holdfast.resume_order_key(dead.order_key)", "NULL"),)),
    "replace does not start again": ("enqueue_unique_jobs", (("attempt = 0,", "attempt = j.attempt,"),)),
    "replace changes what runs": (
        "enqueue_unique_jobs",
        (("UPDATE holdfast.job j SET unique_key = NULL\n", "UPDATE holdfast.job j SET payload = NULL\n"),),
    ),
    "what was called off keeps its key": ("is_doomed", (("(job.cancel_requested_at IS NOT NULL) OR", ""),)),
    "what is too late keeps its key": ("is_doomed", (("(job.expires_at <= clock)", "false"),)),
    "raise does not raise": ("enqueue_unique_jobs", (("g.on_conflict = 'raise'", "false"),)),
    "a window holds nothing": (
        "enqueue_unique_jobs",
        (("WHEN g.unique_window_ms IS NOT NULL AND g.id NOT IN (SELECT unnest(made))", "WHEN false"),),
    ),
}
