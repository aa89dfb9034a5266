"""A chain that continues with a group: jobs side by side, then one, whose result is that of the chain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import ChainFailed, Continue, Fail, Group, Holdfast, InvalidJob, Job, Kind, Unique
from holdfast._model.outcome import Completed
from tests.kit.pace import PATIENT, QUICK
from tests.kit.waiting import until
from tests.kit.workers import COMPLETED, FAILED, Worker, enqueue, expire_leases, job, number, statuses

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger
    from tests.kit.workers import Connect

    Connection = psycopg.AsyncConnection[Any]

Plan = dict[str, Any]


def plain(plan: Plan) -> int:
    """Evaluate a plan as a program would that calls functions. Raises LookupError where a job fails."""
    match plan:
        case {"value": value}:
            return int(value)
        case {"fail": _}:
            raise LookupError
        case {"next": then}:
            return plain(then)
        case {"group": members, "anyway": anyway, "then": then}:
            total = 0
            for place, member in enumerate(members):
                try:
                    total += (place + 1) * plain(member)
                except LookupError:
                    if not anyway:
                        raise
                    total -= 1
            return total + plain(then)
    raise AssertionError(plan)


def registered(app: Holdfast) -> Kind[..., Any]:
    @app.job("run")
    async def run(job: Job[None], plan: Plan) -> int | Continue[int] | Fail:
        match plan:
            case {"value": value}:
                return int(value)
            case {"fail": _}:
                return Fail("as planned")
            case {"next": then}:
                return Continue(run.new(then))
        anyway: Any = "run" if plan["anyway"] else "fail"
        last = total.new(plan["then"]).options(if_blocker_fails=anyway)
        return Continue(Group([run.new(member) for member in plan["group"]], then=last))

    @app.job("total")
    def total(job: Job[None], then: Plan) -> Continue[int]:
        found = 0
        for place, blocker in enumerate(job.blockers):
            found += (place + 1) * run.result(blocker) if blocker.status == "completed" else -1
        return Continue(add.new(found, then)) if then.keys() & {"next", "group"} else Continue(added.new(found, then))

    @app.job("add")
    async def add(job: Job[None], found: int, then: Plan) -> Continue[int]:
        """Evaluate what follows beside, and add it."""
        return Continue(Group([run.new(then)], then=sum_up.new(found)))

    @app.job("sum")
    async def sum_up(job: Job[None], found: int) -> int:
        [blocker] = job.blockers
        return found + run.result(blocker)

    @app.job("added")
    async def added(job: Job[None], found: int, then: Plan) -> int | Fail:
        return found + int(then["value"]) if "value" in then else Fail("as planned")

    return run


PLANS = st.recursive(
    st.one_of(st.integers(-9, 9).map(lambda value: {"value": value}), st.just({"fail": True})),
    lambda plans: st.one_of(
        plans.map(lambda then: {"next": then}),
        st.builds(
            lambda members, anyway, then: {"group": members, "anyway": anyway, "then": then},
            st.lists(plans, max_size=4),
            st.booleans(),
            plans,
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=st.lists(PLANS, min_size=1, max_size=6))
def test_any_chain_ends_as_its_plain_evaluation(ledger: Ledger, plans: list[Plan]) -> None:
    app = Holdfast(ledger.url)
    run = registered(app)

    async def ends() -> list[int | str]:
        async with app.worker(queues={"default": 3}, **QUICK):
            found: list[int | str] = []
            for handle in handles:
                try:
                    found.append(await app.wait(handle))
                except ChainFailed:
                    found.append("failed")
            return found

    def expected(plan: Plan) -> int | str:
        try:
            return plain(plan)
        except LookupError:
            return "failed"

    with psycopg.connect(ledger.url, autocommit=True) as conn:
        handles = app.sync.enqueue_many(conn, [run.new(plan) for plan in plans])
    assert asyncio.run(ends()) == [expected(plan) for plan in plans]


@pytest.fixture
def worker(connect: Connect) -> Worker:
    return Worker(connect(), "k", "child", "last")


def following(children: int, **options: Any) -> Completed:
    group = Group([job("child", f'{{"n":{n}}}', **options) for n in range(children)], then=job("last"))
    proceed: Continue[Any] = Continue(group)
    return Completed(next=proceed.as_json(proceed.next.as_json()))


def test_the_group_and_the_completion_are_one(worker: Worker) -> None:
    """All of it in one transaction, in the chain of the job, and the last waits for all."""
    [chain] = enqueue(worker.conn, job())
    claimed = worker.claim()
    with worker.conn.transaction(force_rollback=True):
        worker.end(claimed, following(3))
        assert len(statuses(worker.conn)) == 5
    assert statuses(worker.conn) == {chain: "processing"}
    worker.end(claimed, following(3))
    last = worker.conn.execute(
        "SELECT chain_id, status::text, holdfast.chains_left(id, blockers_left) FROM holdfast.job WHERE kind = 'last'"
    )
    assert last.fetchall() == [(chain, "blocked", 3)]
    first, second, third = worker.claim()
    worker.end([first, third])
    assert worker.claim() == []
    worker.end([second])
    assert [found.kind for found in worker.claim()] == ["last"]


def test_a_worker_that_lost_its_job_enqueues_no_group(worker: Worker) -> None:
    enqueue(worker.conn, job())
    lost = worker.claim()
    expire_leases(worker.conn)
    worker.reap()
    again = worker.claim()
    worker.end(lost, following(3))
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job") == 1
    worker.end(again, following(3))
    worker.end(again, following(3))
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job") == 4


def test_the_last_comes_after_what_it_names_too(worker: Worker) -> None:
    [before, _] = enqueue(worker.conn, job("child"), job())
    named, first = sorted(worker.claim(), key=lambda found: found.id)
    proceed: Continue[Any] = Continue(Group([job("child")], then=job("last", after=[before])))
    worker.end([first], Completed(next=proceed.as_json(proceed.next.as_json())))
    assert number(worker.conn, "SELECT blockers_left FROM holdfast.job WHERE kind = 'last'") == 2
    worker.end(worker.claim())
    worker.end([named])
    [last] = worker.claim()
    assert last.kind == "last"
    assert number(worker.conn, "SELECT chain_id FROM holdfast.blocker WHERE ordinal = 1") == before


def test_several_groups_in_one_batch(worker: Worker) -> None:
    enqueue(worker.conn, *[job() for _ in range(5)])
    worker.end(worker.claim(), following(4))
    worker.end(worker.claim())
    last = worker.claim()
    assert [found.kind for found in last] == ["last"] * 5
    worker.end(last, COMPLETED)
    assert set(statuses(worker.conn).values()) == {"completed"}


def test_a_child_that_fails_fails_the_last_which_a_replay_repairs(worker: Worker) -> None:
    enqueue(worker.conn, job())
    worker.end(worker.claim(), following(2))
    first, second = worker.claim()
    worker.end([first], FAILED)
    [last] = worker.claim()
    assert last.blocker_failed
    worker.end([second])


def test_a_child_whose_key_is_held_delays_it_and_writes_nothing(connect: Connect, worker: Worker) -> None:
    [chain] = enqueue(worker.conn, job())
    claimed = worker.claim()
    holder = connect()
    with holder.transaction(force_rollback=True):
        enqueue(holder, job("child", unique="one"))
        assert worker.end(claimed, following(1, unique="one"))[chain] == "busy"
    worker.end(claimed, following(1, unique="one"))
    worker.end(worker.claim())
    assert [found.kind for found in worker.claim()] == ["last"]


def test_a_child_that_is_there_already_is_waited_for(worker: Worker) -> None:
    [there, chain] = enqueue(worker.conn, job("child", unique="one"), job())
    held, first = sorted(worker.claim(), key=lambda found: found.id)
    assert (held.id, first.id) == (there, chain)
    worker.end([first], following(2, unique="one"))
    assert worker.claim() == []
    worker.end([held])
    assert [found.kind for found in worker.claim()] == ["last"]


async def test_through_a_handler_and_a_batch_of_thousands(app: Holdfast, ledger: Ledger) -> None:
    @app.job("member")
    async def member(job: Job[None], n: int) -> int:
        return n

    @app.job("whole")
    async def whole(job: Job[None]) -> int:
        return sum(member.result(blocker) for blocker in job.blockers)

    @app.job("split")
    async def split(job: Job[None], count: int) -> Continue[int]:
        return Continue(Group([member.new(n) for n in range(count)], then=whole.new()))

    handle = ledger.enqueue_one(split.new(3000))
    async with app.worker(queues={"default": 50}, **PATIENT):
        await until(lambda: ledger.completed() == 3002, 60)
    assert ledger.value("SELECT result::text FROM holdfast.job_history WHERE kind = 'whole'") == str(2999 * 3000 // 2)
    assert ledger.value("SELECT chain_id FROM holdfast.job_history WHERE kind = 'whole'") == handle


async def test_in_the_handlers_own_transaction(app: Holdfast, ledger: Ledger) -> None:
    @app.job("member")
    async def member(job: Job[None], n: int) -> int:
        return n

    @app.job("whole")
    async def whole(job: Job[None]) -> int:
        return len(job.blockers)

    @app.job("split")
    async def split(job: Job[None]) -> Continue[int]:
        async with await psycopg.AsyncConnection.connect(ledger.url) as conn:
            return await job.complete(conn, Continue(Group([member.new(1), member.new(2)], then=whole.new())))

    handle = ledger.enqueue_one(split.new())
    async with app.worker(**PATIENT):
        assert await app.wait(handle) == 2


def test_an_empty_group_is_its_last() -> None:
    empty: Continue[Any] = Continue(Group([], then=job("last")))
    assert empty.as_json(empty.next.as_json()) == job("last").as_json()


@pytest.mark.parametrize(
    ("make", "error", "states"),
    [
        (lambda: Group(job(), then=job()), TypeError, r"write Group\(\[job\], then=last\)"),  # type: ignore[arg-type]
        (lambda: Group(["k"], then=job()), TypeError, "Group: expected a job"),  # type: ignore[list-item]
        (lambda: Group([job()], then="k"), TypeError, "Group: expected a job"),  # type: ignore[arg-type]
        (lambda: Group([job()] * 100_001, then=job()), InvalidJob, "Group: at most 100000 jobs"),
        (lambda: Continue(Group([], then=job(unique=Unique("u", window=60)))), InvalidJob, "no unique window"),
    ],
)
def test_what_is_no_group_is_refused(make: Any, error: type[Exception], states: str) -> None:
    with pytest.raises(error, match=states):
        make()


@pytest.mark.parametrize(
    "group", ["{}", "7", '[{"kind": ""}]', '[{"kind": "k", "priority": 11}]', '[{"kind": "k", "blockers": [77]}]']
)
def test_a_group_from_sql_is_checked(worker: Worker, group: str) -> None:
    enqueue(worker.conn, job())
    [claimed] = worker.claim()
    with pytest.raises(psycopg.DatabaseError) as caught:
        worker.conn.execute(
            "SELECT holdfast.complete_job(%s, %s, %s, NULL, %s::text::json)",
            [claimed.id, claimed.token, worker.id, f'{{"kind": "last", "group": {group}}} \n'],
        )
    assert caught.value.sqlstate == "HF002"
    assert set(statuses(worker.conn).values()) == {"processing"}
