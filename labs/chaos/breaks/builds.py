"""The broken builds: what was done wrong, the play in which it shows, and the check that must speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from labs.chaos.breaks import common_ways, crowds, limits, plays, relays, stories

if TYPE_CHECKING:
    import psycopg

    from labs.chaos.breaks.scene import Play

# A function of the schema, and what is replaced in its definition.
Change: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Build:
    """A build with one mistake, made in SQL, or in Python by the patch of the same name."""

    name: str
    play: Play
    caught_by: str
    """The check of the oracle that must speak; others may."""
    changes: tuple[Change, ...] = ()
    quick: bool = False
    """It is tried with every run of the tests."""

    def prepare(self, conn: psycopg.Connection[Any]) -> None:
        """Make the mistake in the schema; each text must be there exactly once."""
        for function, old, new in self.changes:
            row = conn.execute("SELECT pg_get_functiondef(%s::regproc)", [f"holdfast.{function}"]).fetchone()
            assert row is not None
            definition: str = row[0]
            assert definition.count(old) == 1, f"{function} has {definition.count(old)} times: {old}"
            conn.execute(definition.replace(old, new).encode())


_OTHERS = """FROM counted c WHERE j.id = ANY (waiters) AND j.id = c.job_id AND j.blockers_left > 0
        AND NOT EXISTS (SELECT FROM holdfast.blocker o WHERE o.job_id = j.id AND o.status IS NULL
            AND o.chain_id <> ALL (ARRAY(SELECT x.chain_id FROM unnest(ends) AS x)));"""

BUILDS: Final = (
    Build(
        "finish without token",
        plays.OUTLIVED,
        "stale writes accepted",
        (("settle_batch", " AND j.lock_token = g.token AND j.locked_by = g.holder", " AND j.locked_by = g.holder"),),
        quick=True,
    ),
    Build(
        "finish without holder",
        plays.TOKEN_ISSUED_TWICE,
        "stale writes accepted",
        (("settle_batch", " AND j.lock_token = g.token AND j.locked_by = g.holder", " AND j.lock_token = g.token"),),
    ),
    Build(
        "job.complete without fence",
        plays.OUTLIVED,
        "effects doubled or missing",
        (("complete_job", "RETURN (SELECT s.answer FROM", "RETURN (SELECT 'completed' FROM"),),
    ),
    Build(
        "reaper without SKIP LOCKED",
        plays.SLOW_COMMIT,
        "the play could not go on",
        (("reap_jobs", "LIMIT most FOR UPDATE SKIP LOCKED", "LIMIT most FOR UPDATE"),),
    ),
    Build(
        "reaper that ignores locked_until",
        plays.BUSY_LEASES,
        "leases lost without cause",
        (("reap_jobs", "j.locked_until < now() AND j.locked_until >= since AND", ""),),
    ),
    Build(
        "claim without attempt count",
        plays.STUMBLING,
        "attempts miscounted",
        (("claim_jobs", "attempt = least(j.attempt + 1, 32767),", "attempt = j.attempt,"),),
        quick=True,
    ),
    Build(
        "claim that waits for locked rows",
        plays.ROW_LOCKED,
        "picked up too late",
        (
            (
                "claim_jobs",
                "ORDER BY j.available_at, j.id LIMIT look FOR NO KEY UPDATE SKIP LOCKED) AS locked",
                "ORDER BY j.available_at, j.id LIMIT look FOR NO KEY UPDATE) AS locked",
            ),
            (
                "claim_jobs",
                "ORDER BY j.available_at, j.id LIMIT look FOR NO KEY UPDATE SKIP LOCKED) AS alone",
                "ORDER BY j.available_at, j.id LIMIT look FOR NO KEY UPDATE) AS alone",
            ),
            ("promote_jobs", "LIMIT most FOR NO KEY UPDATE SKIP LOCKED)", "LIMIT most FOR NO KEY UPDATE)"),
        ),
    ),
    Build(
        "claim that takes what another takes",
        plays.CROWD,
        "attempts miscounted",
        (
            # With windows they would not meet.
            ("claim_jobs", "wide := CASE WHEN need > 0 AND window_budget > 9 THEN windows ELSE 0 END", "wide := 0"),
            (
                "claim_jobs",
                "ORDER BY j.available_at, j.id LIMIT look FOR NO KEY UPDATE SKIP LOCKED) AS locked",
                "ORDER BY j.available_at, j.id LIMIT look) AS locked",
            ),
            (
                "claim_jobs",
                "ORDER BY j.available_at, j.id LIMIT look FOR NO KEY UPDATE SKIP LOCKED) AS alone",
                "ORDER BY j.available_at, j.id LIMIT look) AS alone",
            ),
            (
                "claim_jobs",
                "WHERE j.ctid = ANY (rows)\n",
                "WHERE j.id IN (SELECT i.id FROM holdfast.job i WHERE i.ctid = ANY (rows))\n",
            ),
        ),
    ),
    Build("heartbeat on the event loop", plays.BLOCKED_LOOP, "leases lost without cause"),
    Build(
        "release that counts the attempt",
        plays.GENTLE_STOP,
        "attempts miscounted",
        (
            (
                "give_back_jobs",
                "attempt = j.attempt - CASE WHEN s.outcome IN ('released', 'reschedule')",
                "attempt = j.attempt - CASE WHEN s.outcome IN ('reschedule')",
            ),
        ),
    ),
    Build("shutdown that releases nothing", plays.GENTLE_STOP, "left behind by a stopped worker"),
    Build("floor without sweep", plays.LATE_COMMIT, "picked up too late"),
    Build("wake-up without the second look", plays.DROWSY, "picked up too late"),
    Build("light sleep left out", plays.FALLING_ASLEEP, "picked up too late"),
    Build(
        "retry into the past",
        plays.STUMBLING,
        "rescheduled into the past",
        (("give_back_jobs", "holdfast.due_at(s.at", "-interval '1 hour' + holdfast.due_at(s.at"),),
    ),
    Build(
        "promotion forgotten after a retry",
        plays.STUMBLING_KEYS,
        "blocked for ever",
        (
            (
                "lock_successors",
                "AND NOT (s.verdict = 'failed' AND j.order_block IS TRUE)",
                "AND j.attempt = 1 AND NOT (s.verdict = 'failed' AND j.order_block IS TRUE)",
            ),
        ),
    ),
    Build(
        "blockers asked whether the others are done",
        plays.TWO_ENDERS,
        "blocked for ever",
        (
            (
                "lock_waiters",
                "FROM holdfast.job w WHERE w.id = ANY (wanted) ORDER BY w.id FOR NO KEY UPDATE);",
                "FROM holdfast.job w WHERE w.id = ANY (wanted) ORDER BY w.id);",
            ),
            (
                "update_waiters",
                "FROM counted c WHERE j.id = ANY (waiters) AND j.id = c.job_id AND j.blockers_left > 0;",
                _OTHERS,
            ),
            ("update_waiters", "ELSE j.blockers_left - c.ended END,", "ELSE 0 END,"),
            (
                "update_waiters",
                "OR j.blockers_left = c.ended) THEN 'pending' ELSE j.status END,",
                "OR true) THEN 'pending' ELSE j.status END,",
            ),
        ),
    ),
    Build(
        "waiters of a crowded chain forgotten",
        plays.MANY_WAIT,
        "blocked for ever",
        (("keep_ends", "CASE WHEN due THEN clock_timestamp() END", "NULL"),),
    ),
    Build(
        "waiters released by the ending, however many",
        crowds.CROWDED_CHAIN,
        "wrong outcome",
        (
            ("lock_waiters", "greatest(100, 1000 / greatest(cardinality(ended), 1))", "1000000"),
            ("lock_waiters", "f.so_far > 2000", "f.so_far > 1000000"),
        ),
    ),
    Build(
        "every job of the key ahead asked for a cycle",
        crowds.CROWDED_KEY,
        "wrong outcome",
        (
            ("refuse_cycles", "EXIT WHEN met < most AND met_origin IS NOT TRUE;", ""),
            ("jobs_ahead", "ORDER BY e.order_seq DESC, e.id DESC LIMIT 1;", "LIMIT most;"),
        ),
    ),
    Build("continuation outside the finish", plays.KILLED_IN_CHAINS, "chains broken"),
    Build("finish that ignores its answers", plays.BUSY_ROWS, "leases lost without cause"),
    Build(
        "finish that waits for an open transaction",
        plays.HELD_UP,
        # Others are written meanwhile, but what only had to wait for the transaction is given up.
        "wrong outcome",
        (("settle_apart", " SET lock_timeout TO '100ms'\n", ""),),
    ),
    Build("ending given up after max_runtime", plays.HELD_UP, "leases lost without cause"),
    Build("finisher that ends at an answer", plays.BUSY_ROWS, "lost"),
    *[Build(f"outage because {name}", play, "innocent jobs harmed") for name, play in plays.UNWRITABLE.items()],
    Build("notification that is believed", plays.FORGED, "wrong outcome"),
    Build("loop that is not restarted", plays.FINISHER_ENDS, "lost"),
    Build("worker that goes on without heartbeat", plays.CUT_OFF, "ran on after the lease was lost"),
    Build("singleton without lock", plays.SINGLETONS, "singletons overlapping"),
    Build("relay that moves on before the confirmation", relays.BROKER_GONE, "events lost"),
    Build(
        "reading above the last id",
        relays.LATE_EVENTS,
        "events lost",
        (("read_events", "WHERE e.id > last_id AND e.id <= seen_id AND", "WHERE false AND"),),
    ),
    Build(
        "range of late transactions left out",
        relays.LATE_EVENTS,
        "events lost",
        (("read_events", "WHERE e.xid >= pg_snapshot_xmax(seen) AND e.xid < seen_xid", "WHERE false"),),
    ),
    Build(
        "position moved without fence",
        relays.DELAYED_MOVE,
        "stale positions accepted",
        (
            ("advance_position", "WHERE p.seq = seq AND p.lock_token = token AND p.locked_by = worker;", ";"),
            (
                "advance_position",
                "VALUES (subscription, part, seq + 1,",
                "VALUES (subscription, part, (SELECT p.seq + 1 FROM holdfast.position_of(subscription, part) AS p),",
            ),
        ),
    ),
    Build("message ids without a time", relays.PUT_BACK, "events lost"),
    Build(
        "takeover from the living",
        relays.ODD_SHARES,
        "events twice without cause",
        (("join_subscription", "WHERE l.locked_by IS NULL OR", "WHERE l.locked_by IS DISTINCT FROM worker OR"),),
    ),
    Build(
        "suspects run with all others",
        plays.POISON,
        "innocent jobs harmed",
        (("give_back_jobs", "least(coalesce(j.suspect + 1, 0), 32767)", "NULL"),),
    ),
    Build(
        "queues beyond the batch not looked at",
        plays.MANY_QUEUES,
        "queues passed over",
        (("claim_jobs", "last_queue := cardinality(queues);", "last_queue := least(cardinality(queues), most);"),),
    ),
    Build("claims that begin with the first queue", plays.MANY_QUEUES, "queues passed over"),
    Build("grace from the job's age", plays.TWO_VERSIONS, "dead letters that a worker could read"),
    Build("grace that ignores workers that can read it", plays.TWO_VERSIONS, "dead letters that a worker could read"),
    Build("identity not checked", plays.GIVEN_AWAY, "another's jobs taken", quick=True),
    Build("feed with its position in another transaction", relays.KILLED_WHILE_FEEDING, "events without their job"),
    Build(
        "place leaked by a crash",
        limits.HOLDER_LOST,
        "lost",
        (
            (
                "settle_batch",
                "FILTER (WHERE limits IS NOT NULL)",
                "FILTER (WHERE limits IS NOT NULL AND outcome <> 'lost')",
            ),
        ),
    ),
    Build(
        "place given twice",
        limits.ONE_BY_ONE,
        "more at once than the limit",
        (
            (
                "limit_rooms",
                "e.lock_token LIMIT r.concurrency)",
                "e.lock_token LIMIT r.concurrency - 1)",
            ),
        ),
    ),
    Build(
        "bucket refilled twice",
        limits.SLOW_STARTS,
        "more starts than the rate allows",
        (("take_limited", "SELECT s.key, clock + s.count * (", "SELECT s.key, clock + 0.5 * s.count * ("),),
    ),
    Build(
        "tenant starved",
        limits.MANY_TENANTS,
        "a tenant starved",
        (("next_turns", "current_setting(holdfast.turn_setting(queue, kind, level), true)", "'* '"),),
    ),
    Build(
        "promotion lost",
        limits.ONE_BY_ONE,
        "lost",
        (("leave_limits", "IF heads <> '{}' THEN", "IF false THEN"),),
    ),
    Build(
        "suspect claimed past its limit",
        limits.HOLDER_KILLED,
        "more at once than the limit",
        (
            ("claim_suspects", "FILTER (WHERE NOT keyed)", "FILTER (WHERE true)"),
            ("claim_suspects", "FILTER (WHERE keyed)", "FILTER (WHERE false)"),
        ),
    ),
    Build(
        "recorded steps forgotten",
        stories.PAUSES,
        "steps doubled or changed",
        (
            ("load_steps", "s.state::text, s.beside", "s.state::text, true"),
            ("load_steps", "WHERE s.job_id = story;", "WHERE s.job_id = story AND s.state IS NOT NULL;"),
        ),
    ),
    Build(
        "leases of a clock that was ahead",
        plays.WEEKS_AHEAD,
        "lost",
        (("shorten_leases", "w.heartbeat_at > now() + interval '1 minute'", "false"),),
    ),
    Build(
        "retention by any clock",
        plays.WEEKS_AHEAD,
        "lost",
        (("expiry_clock", "ELSE '-infinity'", "ELSE now()"),),
    ),
    Build("plain claim that ignores order keys", common_ways.KEYS, "keys out of order"),
    Build("plain claim that ignores a pause", common_ways.PAUSED, "claimed while paused"),
    Build("plain claim that takes suspects", common_ways.POISON, "innocent jobs harmed"),
    Build("plain claim that ignores an expiry", common_ways.EXPIRED, "wrong outcome"),
    Build("plain claim that ignores windows", common_ways.CROWD, "attempts miscounted"),
    Build("name that is trusted", plays.FORGED, "attempts miscounted"),
    Build("record of a sleep that is left", common_ways.BESIDE_IDLE, "picked up too late"),
    Build("worker that claims more than it can start", common_ways.BESIDE_LATE, "picked up too late"),
)
