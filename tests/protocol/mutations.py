"""Mistakes that somebody could make in the protocol's functions; the machine must notice each."""

from __future__ import annotations

from typing import Final, TypeAlias

# The function, and what is replaced in its definition; each old text must be there exactly once.
Mutation: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]

MUTATIONS: Final[dict[str, Mutation]] = {
    "claim does not count the attempt": ("claim_jobs", (("attempt = j.attempt + 1,", "attempt = j.attempt,"),)),
    "claim begins with the latest": (
        "claim_jobs",
        (("ORDER BY j.available_at, j.id LIMIT look", "ORDER BY j.available_at DESC, j.id DESC LIMIT look"),),
    ),
    "claim takes more than there are slots": ("claim_jobs", (("need := slots[q];", "need := slots[q] + 1;"),)),
    "claim takes what another shard has": (
        "claim_jobs",
        (("FOR q IN 1..cardinality(queues) LOOP", "shard_to := 63; FOR q IN 1..cardinality(queues) LOOP"),),
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
        (("SET available_at = clock_timestamp() + interval '1 second' WHERE", "SET status = 'blocked' WHERE"),),
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
        "settle_jobs",
        ((" AND j.lock_token = g.token AND j.locked_by = g.holder", " AND j.locked_by = g.holder"),),
    ),
    "settle by id and token": (
        "settle_jobs",
        ((" AND j.lock_token = g.token AND j.locked_by = g.holder", " AND j.lock_token = g.token"),),
    ),
    "settle does not promote": ("settle_jobs", (("IF successors <> '{}' THEN", "IF false THEN"),)),
    "settle promotes past a stop": (
        "settle_jobs",
        ((" AND NOT (s.verdict = 'failed' AND j.order_block IS TRUE)", ""),),
    ),
    "settle does not stop the key": ("settle_jobs", (("verdict = 'failed' AND order_block AND", "false AND"),)),
    "settle promotes into the past": (
        "settle_jobs",
        (("available_at = greatest(j.available_at, clock)", "available_at = j.available_at - interval '1 minute'"),),
    ),
    "settle keeps a dead letter twice": ("settle_jobs", (("FROM ended WHERE verdict <> 'failed')", "FROM ended)"),)),
    "settle forgets the dead letter": (
        "settle_jobs",
        (("FROM ended WHERE verdict = 'failed')", "FROM ended WHERE false)"),),
    ),
    "settle does not look at the cancellation": (
        "settle_jobs",
        (("WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'", ""),),
    ),
    "retry ignores the cap": ("settle_jobs", (("g.outcome IN ('retry', 'lost')", "g.outcome IN ('lost')"),)),
    "retry goes back into the past": (
        "settle_jobs",
        (("available_at = clock + greatest", "available_at = clock - greatest"),),
    ),
    "retry keeps the lease": (
        "settle_jobs",
        (("locked_until = NULL, lock_token = NULL, locked_by = NULL,", "locked_until = NULL,"),),
    ),
    "release counts the attempt": (
        "settle_jobs",
        (
            (
                "attempt = j.attempt - CASE WHEN s.outcome IN ('released', 'reschedule')",
                "attempt = j.attempt - CASE WHEN s.outcome IN ('reschedule')",
            ),
        ),
    ),
    "an attempt is not told": (
        "settle_jobs",
        (("FROM ended WHERE attempt > 1 OR verdict <> 'completed')", "FROM ended WHERE false)"),),
    ),
    "reap ignores the cap": ("settle_jobs", (("g.outcome IN ('retry', 'lost')", "g.outcome IN ('retry')"),)),
    "reap takes leases that have not ended": ("reap_jobs", (("j.locked_until < now() AND", "true AND"),)),
    "reap takes more than it may": ("reap_jobs", (("LIMIT most", "LIMIT most + 1"),)),
    "cancel ends what runs": ("cancel_job", (("j.status IN ('pending', 'blocked')", "true"),)),
    "cancel tears a hole into a key": ("cancel_job", ((" AND j.order_key IS NULL RETURNING", " RETURNING"),)),
    "resume does not promote": ("resume_order_key", (("WHERE status = 'blocked' AND id =", "WHERE false AND id ="),)),
    "resume leaves the stop": (
        "resume_order_key",
        (("DELETE FROM holdfast.order_stop WHERE order_key = key", "DELETE FROM holdfast.order_stop WHERE false"),),
    ),
    "replay leaves the key stopped": ("replay_job", (("PERFORM holdfast.resume_order_key(key)", "NULL"),)),
    "replace does not start again": ("enqueue_unique_jobs", (("attempt = 0,", "attempt = j.attempt,"),)),
    "replace changes what runs": (
        "enqueue_unique_jobs",
        (("UPDATE holdfast.job j SET unique_key = NULL\n", "UPDATE holdfast.job j SET payload = NULL\n"),),
    ),
    "raise does not raise": ("enqueue_unique_jobs", (("(given[n]).on_conflict = 'raise'", "false"),)),
    "a window holds nothing": (
        "enqueue_unique_jobs",
        (("WHEN g.unique_window_ms IS NOT NULL AND ids[g.ordinality] <> ALL (won)", "WHEN false"),),
    ),
}
