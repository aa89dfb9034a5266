"""A state machine over all that may happen to jobs with limits: none runs past a limit, and none is stranded."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast._drivers import run_sync
from holdfast._model.unique import Unique
from holdfast._store.chain import delete_chains
from holdfast._store.search import cancel_job, replay_job
from tests.kit.limits import mend, set_limits
from tests.kit.mutation import open_trap
from tests.kit.tenants import of_tenant
from tests.kit.workers import (
    COMPLETED,
    FAILED,
    RELEASED,
    RESCHEDULED,
    RETRIED,
    Worker,
    drain,
    enqueue,
    expire_leases,
    statuses,
)

if TYPE_CHECKING:
    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

STEPS = 30
EXAMPLES = 6 if settings.get_current_profile_name() == "everyday" else settings().max_examples
KEYS = ("one", "two", "two:a", "two:b", "three:a", "unlimited")
LIMITS = {"one": 1, "two": 2, "three": 3}
PLACES = st.integers(0, 1000)


class LimitMachine(RuleBasedStateMachine):
    connect: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.conn = self.connect()
        for table in ("job", "limit_rule", "limit_place", "job_history", "job_failed"):
            self.conn.execute(f"TRUNCATE holdfast.{table}".encode())
        self.limits = dict(LIMITS)
        set_limits(self.conn, **LIMITS)
        self.workers = [Worker(self.connect(), "k", "m") for _ in range(2)]
        self.held: list[tuple[Worker, ClaimedJob]] = []

    @rule(
        jobs=st.lists(
            st.tuples(
                st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True),
                st.sampled_from("km"),
                st.sampled_from([None, "x", "y"]),
                st.integers(4, 6),
                st.sampled_from([None, None, None, "o", "p"]),
                st.sampled_from([None, None, None, "u"]),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def enqueue(self, jobs: list[Any]) -> None:
        enqueue(
            self.conn,
            *[
                of_tenant(
                    tenant,
                    *keys,
                    kind=kind,
                    priority=priority,
                    order_key=order,
                    unique=None if unique is None else Unique(unique, on_conflict="replace"),
                )
                for keys, kind, tenant, priority, order, unique in jobs
            ],
        )

    @rule(by=st.sampled_from([0, 1]), slots=st.integers(1, 8))
    def claim(self, by: int, slots: int) -> None:
        worker = self.workers[by]
        jobs = worker.claim(slots)
        self.held += [(worker, job) for job in jobs]
        running = self.running()
        for keys in self.keys_of([job.id for job in jobs]):
            for key in keys:
                assert running[key] <= self.limits.get(key.split(":")[0], 1000), f"{key}: {running[key]}"

    @rule(
        place=PLACES,
        outcome=st.sampled_from([COMPLETED, COMPLETED, FAILED, RETRIED, RELEASED, RESCHEDULED]),
        count=st.integers(1, 4),
    )
    def end(self, place: int, outcome: Any, count: int) -> None:
        for _ in range(min(count, len(self.held))):
            worker, job = self.held.pop(place % len(self.held))
            worker.end([job], outcome)

    @rule()
    def lose(self) -> None:
        """Their worker is gone: all leases run out."""
        expire_leases(self.conn)
        self.workers[0].reap()

    @rule(place=PLACES, how=st.sampled_from(["cancel", "delete"]))
    def leave(self, place: int, how: str) -> None:
        live = [row[0] for row in self.conn.execute("SELECT id FROM holdfast.job ORDER BY id").fetchall()]
        if live:
            run_sync(
                self.conn,
                cancel_job(live[place % len(live)]) if how == "cancel" else delete_chains([live[place % len(live)]]),
            )

    @rule(place=PLACES)
    def replay(self, place: int) -> None:
        dead = [row[0] for row in self.conn.execute("SELECT id FROM holdfast.job_failed ORDER BY id").fetchall()]
        if dead:
            run_sync(self.conn, replay_job(dead[place % len(dead)], again=True))

    @rule(name=st.sampled_from(sorted(LIMITS)), limit=st.integers(0, 4))
    def change(self, name: str, limit: int) -> None:
        self.limits[name] = limit
        set_limits(self.conn, **{name: limit})
        mend(self.conn, name)

    @invariant()
    def nothing_is_stranded(self) -> None:
        assert mend(self.conn) == 0

    def teardown(self) -> None:
        """With room everywhere, all of them end."""
        expire_leases(self.conn)
        self.workers[0].reap()
        set_limits(self.conn, one=1, two=1, three=1)
        mend(self.conn)
        drain(self.workers[0], rounds=200)
        assert set(statuses(self.conn).values()) <= {"completed", "failed", "cancelled"}
        for worker in self.workers:
            worker.conn.close()
        self.conn.close()

    def running(self) -> Counter[str]:
        query = "SELECT unnest(limits) FROM holdfast.job WHERE status = 'processing'"
        return Counter(row[0] for row in self.conn.execute(query).fetchall())

    def keys_of(self, ids: list[int]) -> list[list[str]]:
        query = "SELECT limits FROM holdfast.job WHERE id = ANY (%s)"
        return [row[0] for row in self.conn.execute(query, [ids]).fetchall()]


def run(connect: Connect, examples: int) -> None:
    run_state_machine_as_test(
        type("Limits", (LimitMachine,), {"connect": staticmethod(connect)}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            phases=[Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.hypothesis
def test_no_limit_is_passed_and_nothing_is_stranded_whatever_happens(connect: Connect) -> None:
    run(connect, EXAMPLES)


@pytest.mark.prove
@pytest.mark.hypothesis
@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        ("leave_limits", "IF heads <> '{}' THEN", "IF false THEN"),
        ("limit_rooms", "e.lock_token LIMIT r.concurrency)", "e.lock_token LIMIT r.concurrency - 1)"),
    ],
)
def test_the_machine_notices(connect: Connect, function: str, old: str, new: str) -> None:
    open_trap(connect(), function, (old, new))
    with pytest.raises((AssertionError, ExceptionGroup)):
        run(connect, 200)
