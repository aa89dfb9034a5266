"""Assertions on enqueued jobs, and their failure messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job, OrderKey, Unique, UnknownKind
from holdfast._logs.log import carry_trace
from holdfast._testing.results import LONGEST_SHOWN, _cut
from holdfast.testing import Testing

if TYPE_CHECKING:
    import psycopg

    from holdfast._model.new_job import NewJob

    Conn = psycopg.AsyncConnection[Any]

HOUR = timedelta(hours=1)
TOMORROW = datetime.now(UTC) + timedelta(days=1)


def charging(app: Holdfast) -> Any:
    @app.job("charge", queue="money", priority=3)
    async def charge(job: Job[None], amount: int, note: str = "") -> None: ...

    return charge


async def test_kind_and_payload_are_compared(app: Holdfast, conn: Conn, kit: Testing) -> None:
    charge = charging(app)
    await kit.assert_enqueued(charge.new(7), times=0)
    await app.enqueue(conn, charge.new(7))
    await kit.assert_enqueued(charge.new(7))
    await kit.assert_enqueued(charge.new(amount=7, note=""))
    await kit.assert_enqueued(charge.new(8), times=0)
    await app.enqueue(conn, charge.new(7).options(priority=0))
    await kit.assert_enqueued(charge.new(7), times=2)
    with pytest.raises(AssertionError, match="was enqueued 2 times, not once"):
        await kit.assert_enqueued(charge.new(7))


async def test_jobs_that_ended_were_enqueued_too(app: Holdfast, conn: Conn, kit: Testing) -> None:
    charge = charging(app)

    @app.job("fail")
    async def fail(job: Job[None]) -> None:
        raise RuntimeError

    await app.enqueue_many(conn, [charge.new(7), fail.new().options(max_attempts=1)])
    await kit.drain(raise_errors=False)
    await kit.assert_enqueued(charge.new(7))
    await kit.assert_enqueued(fail.new())
    assert [job.status for job in await kit.enqueued(fail)] == ["failed"]


async def test_what_a_job_comes_after_is_compared(app: Holdfast, conn: Conn, kit: Testing) -> None:
    charge = charging(app)
    first, second = await app.enqueue_many(conn, [charge.new(1), charge.new(2)])
    await app.enqueue(conn, charge.new(7))
    with pytest.raises(AssertionError, match=rf"(?s)after=\({first.id},\) was enqueued 0 times.*but after=\(\)"):
        await kit.assert_enqueued(charge.new(7).options(after=[first]))
    await app.enqueue(conn, charge.new(8).options(after=[second, first], if_blocker_fails="run"))
    await kit.assert_enqueued(charge.new(8))
    await kit.assert_enqueued(charge.new(8).options(after=[second, first], if_blocker_fails="run"))
    await kit.assert_enqueued(charge.new(8).options(after=[first, second]), times=0)
    await kit.assert_enqueued(charge.new(7).options(if_blocker_fails="run"), times=0)
    await kit.drain()
    await kit.assert_enqueued(charge.new(8).options(after=[second, first]))


async def test_a_trace_that_was_added_is_not_compared(app: Holdfast, conn: Conn, kit: Testing) -> None:
    charge = charging(app)
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    carry_trace(trace)
    await app.enqueue(conn, charge.new(7).options(headers={"tenant": "a"}))
    await kit.assert_enqueued(charge.new(7).options(headers={"tenant": "a"}))
    await kit.assert_enqueued(charge.new(7).options(headers={"tenant": "a", "traceparent": trace}))
    await kit.assert_enqueued(charge.new(7).options(headers={"tenant": "b"}), times=0)
    await kit.assert_enqueued(charge.new(7).options(headers={"tenant": "a", "traceparent": "other"}), times=0)


async def test_what_was_rolled_back_was_not_enqueued(app: Holdfast, conn: Conn, kit: Testing) -> None:
    charge = charging(app)
    async with conn.transaction(force_rollback=True):
        await app.enqueue(conn, charge.new(7))
        await kit.assert_enqueued(charge.new(7))
    await kit.assert_enqueued(charge.new(7), times=0)


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "queue": ({"queue": "vip"}, {"queue": "other"}),
    "priority": ({"priority": 1}, {"priority": 2}),
    "max_attempts": ({"max_attempts": 9}, {"max_attempts": 8}),
    "delay": ({"delay": HOUR}, {"delay": 2 * HOUR}),
    "at": ({"at": TOMORROW}, {"at": TOMORROW + HOUR}),
    "past": ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, {"at": TOMORROW}),
    "expires": ({"expires": HOUR}, {"expires": 2 * HOUR}),
    "expires_at": ({"expires": TOMORROW}, {"expires": TOMORROW + HOUR}),
    "headers": ({"headers": {"a": "1"}}, {"headers": {"a": "2"}}),
    "order_key": ({"order_key": "k"}, {"order_key": OrderKey("k", on_failure="block")}),
    "unique": ({"unique": Unique("k")}, {"unique": Unique("l")}),
    "window": ({"unique": Unique("k", window=HOUR)}, {"unique": Unique("l", window=HOUR)}),
}


@pytest.mark.parametrize("option", OPTIONS)
async def test_the_given_options_are_compared(app: Holdfast, conn: Conn, kit: Testing, option: str) -> None:
    charge = charging(app)
    given, others = OPTIONS[option]
    await app.enqueue(conn, charge.new(7).options(**given))
    await kit.assert_enqueued(charge.new(7).options(**given))
    await kit.assert_enqueued(charge.new(7))
    with pytest.raises(
        AssertionError, match=rf"(?s)was enqueued 0 times, not once.*, but {next(iter(given))}="
    ) as caught:
        await kit.assert_enqueued(charge.new(7).options(**others))
    assert len(str(caught.value).splitlines()) == 3


@pytest.fixture
def output(kit: Testing) -> Any:
    async def output(job: NewJob[Any]) -> str:
        with pytest.raises(AssertionError) as caught:
            await kit.assert_enqueued(job)
        return str(caught.value)

    return output


async def test_a_failure_lists_what_is_there_instead(app: Holdfast, conn: Conn, output: Any) -> None:
    charge = charging(app)
    refund = app.declare("refund", dict[str, int])
    expected = charge.new(7).options(priority=0, delay=HOUR)
    assert await output(expected) == (
        'charge {"amount":7,"note":""}, priority=0, delay=1:00:00 was enqueued 0 times, not once.\n'
        "No job of any kind is in this database."
    )
    await app.enqueue_many(conn, [refund.new({"n": n}) for n in range(3)])
    assert (await output(charge.new(7))).splitlines()[1:] == ["Nothing of its kind, but:", "  refund: 3"]
    first, second = [await app.enqueue(conn, charge.new(n).options(priority=n)) for n in (7, 8)]
    assert (await output(expected)).splitlines()[1:] == [
        "Of its kind there are:",
        f'  job {first.id}, pending: {{"amount":7,"note":""}}, but priority=7, but delay=0:00:00',
        f'  job {second.id}, pending: {{"amount":8,"note":""}}, but amount=8, but priority=8, but delay=0:00:00',
        "Of other kinds: refund 3",
    ]


async def test_the_most_similar_job_is_listed_first(app: Holdfast, conn: Conn, output: Any) -> None:
    charge = charging(app)
    jobs = [charge.new(8, note="b"), charge.new(9), charge.new(7, note="b")]
    handles = [await app.enqueue(conn, job) for job in jobs]
    lines = (await output(charge.new(7))).splitlines()[2:]
    assert [line.partition(": ")[2].partition("}")[2] for line in lines] == [
        ", but amount=9",
        ', but note="b"',
        ', but amount=8, but note="b"',
    ]
    assert lines[0].startswith(f"  job {handles[1].id}, pending: ")


async def test_a_job_enqueued_without_the_kinds_unique_key_is_found(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("bill", unique=Unique.by("customer"))
    async def bill(customer: int) -> None: ...

    await app.enqueue(conn, bill.new(7).options(unique=None))
    await kit.assert_enqueued(bill.new(7))
    await kit.assert_enqueued(bill.new(7).options(unique="other"), times=0)


async def test_a_failure_is_bounded(app: Holdfast, conn: Conn, output: Any) -> None:
    charge = charging(app)
    await app.enqueue_many(conn, [charge.new(n, note="x" * 10_000) for n in range(30)])
    text = await output(charge.new(99, note="y" * 10_000))
    assert len(text.splitlines()) == 13
    assert text.endswith("… and 20 more")
    assert len(text) < 4_000


async def test_one_is_not_true(app: Holdfast, conn: Conn, kit: Testing) -> None:
    @app.job("set")
    async def put(job: Job[None], value: Any) -> None: ...

    await app.enqueue(conn, put.new(1))
    await kit.assert_enqueued(put.new(True), times=0)


async def test_the_jobs_of_a_kind_as_values(app: Holdfast, conn: Conn, kit: Testing) -> None:
    charge = charging(app)
    options: dict[str, Any] = {"delay": HOUR, "headers": {"a": "b"}, "order_key": "k", "unique": Unique("u")}
    handle = await app.enqueue(conn, charge.new(7).options(**options))
    (job,) = await kit.enqueued(charge)
    assert (job.id, job.status, job.payload) == (handle.id, "pending", {"amount": 7, "note": ""})
    assert (job.queue, job.priority, job.max_attempts, job.delay) == ("money", 3, 3, HOUR)
    assert (job.headers, job.order_key, job.unique_key) == ({"a": "b"}, OrderKey("k"), "u")


async def test_another_applications_kind_is_refused(kit: Testing) -> None:
    with pytest.raises(UnknownKind, match="charge is no kind of this application"):
        await kit.assert_enqueued(charging(Holdfast()).new(7))


async def test_pytest_does_not_take_it_for_a_test() -> None:
    assert Testing.__test__ is False


async def test_calls_are_known_until_they_are_awaited(app: Holdfast, kit: Testing) -> None:
    forgotten = kit.enqueued(charging(app))
    await kit.drain()
    assert [place.rpartition(" line ")[0] for place in kit.unawaited] == [
        "enqueued() at tests/testing/test_assert_enqueued.py"
    ]
    await forgotten
    assert kit.unawaited == []


def test_a_text_is_cut_where_it_is_too_long_and_no_sooner() -> None:
    longest = "a" * LONGEST_SHOWN
    assert [_cut(longest), _cut(f"{longest}b")] == [longest, f"{longest}…"]
