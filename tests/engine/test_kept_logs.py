"""The log that is kept with an attempt."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Fail, Holdfast, Item, Job
from holdfast._drivers import run_sync
from holdfast._logs.kept import LONGEST_RECORD, MOST_BYTES, MOST_RECORDS, KeptLog, kept_from
from holdfast._ops.service import Service
from holdfast._store.inspect import list_attempts
from tests.kit.pace import AT_ONCE, QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.ledger import Ledger


@dataclass
class Order:
    number: int


shop = logging.getLogger("shop.mail")


@pytest.fixture(autouse=True)
def _informative() -> Iterator[None]:
    before = shop.level
    shop.setLevel(logging.INFO)
    yield
    shop.setLevel(before)


def logs(ledger: Ledger, job: int) -> list[list[str]]:
    """Return what each attempt has logged, without the times."""
    lines = run_sync(ledger.conn, list_attempts(job))
    return [[text.partition(" ")[2] for text in (line.log or "").splitlines()] for line in lines]


async def run_all(app: Holdfast, ledger: Ledger, *jobs: Any) -> list[int]:
    ids = ledger.enqueue(*jobs)
    async with app.worker(**QUICK):
        await until(lambda: all(ledger.status(job) in {"failed", "completed", "cancelled"} for job in ids))
    return list(ids)


async def test_each_attempt_that_does_not_complete_keeps_its_own_records(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("act", retry=AT_ONCE, keep_logs="info")
    async def act(job: Job[None]) -> None:
        job.log.info("attempt %s", job.attempt)
        job.log.debug("below")
        job.log.warning("careful")
        shop.info("password=%s", "hunter2", extra={"order": 7, "api_key": "k-123"})
        shop.debug("below")
        if job.attempt < 3:
            raise OSError("no answer")

    [job] = await run_all(app, ledger, act.new())
    expected = [
        [
            f"INFO     holdfast.job: attempt {n}",
            "WARNING  holdfast.job: careful",
            "INFO     shop.mail: password=*** order=7 api_key=***",
        ]
        for n in (1, 2)
    ]
    assert logs(ledger, job) == [*expected, []]
    async with Service(ledger.url) as service:
        answered = (await service.job(job)).attempts
    assert [(line.log or "").count("\n") for line in answered] == [2, 2, 0]
    # The application's handlers get them as without it.
    assert [line.getMessage() for line in caplog.records if line.name == "holdfast.job"] == ["careful"] * 3


async def test_a_kind_without_it_keeps_none(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        job.log.warning("careful")
        raise Fail("no")

    [job] = await run_all(app, ledger, act.new())
    assert logs(ledger, job) == [[]]


async def test_jobs_that_run_at_the_same_time_keep_only_their_own(app: Holdfast, ledger: Ledger) -> None:
    both = asyncio.Barrier(2)

    @app.job("act", keep_logs="info")
    async def act(job: Job[None], name: str) -> None:
        await both.wait()
        shop.info("%s before", name)
        await both.wait()
        await asyncio.gather(asyncio.to_thread(shop.info, "%s in a thread", name), speak(name))
        raise Fail("no")

    async def speak(name: str) -> None:
        shop.info("%s in a task", name)

    @app.job("loose")
    async def loose() -> None:
        shop.warning("of nobody")

    ids = await run_all(app, ledger, act.new("a"), act.new("b"), loose.new())
    for job, name in zip(ids, "ab", strict=False):
        [lines] = logs(ledger, job)
        assert sorted(lines) == [
            f"INFO     shop.mail: {name} {where}" for where in ("before", "in a task", "in a thread")
        ]


async def test_threads_that_a_plain_handler_starts_keep_by_the_log_of_the_job(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act", keep_logs="info")
    def act(job: Job[None]) -> None:
        shop.info("in the thread of the worker")
        own = threading.Thread(target=job.log.info, args=("in a thread of its own",))
        own.start()
        own.join()
        raise Fail("no")

    [job] = await run_all(app, ledger, act.new())
    assert logs(ledger, job) == [
        ["INFO     shop.mail: in the thread of the worker", "INFO     holdfast.job: in a thread of its own"]
    ]


async def test_the_jobs_of_a_batch_share_theirs(app: Holdfast, ledger: Ledger) -> None:
    @app.batch("act", keep_logs="info")
    async def act(items: list[Item[Order]]) -> list[object]:
        shop.info("took some")
        items[0].job.log.info("first")
        return [Fail("no") for _ in items]

    ids = await run_all(app, ledger, act.new(Order(1)), act.new(Order(2)))
    assert {line for job in ids for lines in logs(ledger, job) for line in lines} == {
        "INFO     shop.mail: took some",
        "INFO     holdfast.job: first",
    }


async def test_no_record_costs_an_ending(app: Holdfast, ledger: Ledger) -> None:
    class Odd:
        def __str__(self) -> str:
            raise SystemError("not printable")

    @app.job("act", keep_logs="debug")
    async def act(job: Job[None]) -> None:
        job.log.info("nul \0 surrogate \ud800 euro €")
        job.log.info("%d", "no number")
        job.log.info("%s", Odd())
        logging.getLogger("odd\0name").error("named")
        job.log.error("caught", exc_info=ValueError("\0\udfff"))
        raise Fail("no")

    [job] = await run_all(app, ledger, act.new())
    [lines] = logs(ledger, job)
    assert lines[0] == "INFO     holdfast.job: nul \\x00 surrogate \\ud800 euro €"
    text = "\n".join(lines)
    assert text.count("cannot be printed") == 2
    assert "ERROR    oddname: named" in text
    assert "ERROR    holdfast.job: caught" in text
    assert "ValueError" in text
    assert ledger.job(job).error == "no"


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("shop", logging.INFO, __file__, 1, text, None, None)


def test_a_flood_leaves_the_last_records() -> None:
    kept = KeptLog(logging.INFO)
    started = time.thread_time()
    for n in range(5_000):
        kept.keep(record(f"line {n}"))
    assert time.thread_time() - started < 5
    lines = (kept.text() or "").split("\n")
    assert len(lines) == MOST_RECORDS + 1
    assert lines[0] == f"... {5_000 - MOST_RECORDS} earlier records are not kept"
    assert lines[-1].endswith("line 4999")


def test_a_huge_record_keeps_its_ends_and_all_of_them_are_bounded() -> None:
    kept = KeptLog(logging.INFO)
    for _ in range(20):
        kept.keep(record("first " + "ä" * 1_000_000 + " last"))
    text = kept.text() or ""
    assert len(text.encode()) <= MOST_BYTES + 100
    assert len(text.encode()) > MOST_BYTES - LONGEST_RECORD - 100
    assert "shop: first ää" in text


def test_it_takes_records_from_many_threads_while_it_is_read() -> None:
    kept = KeptLog(logging.INFO)

    def flood() -> None:
        for n in range(500):
            kept.keep(record(str(n)))

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        kept.text()
    assert (kept.text() or "").startswith(f"... {2_000 - MOST_RECORDS} earlier")


@pytest.mark.parametrize("given", ["INFO", "trace", 20])
def test_a_level_is_one_of_five(app: Holdfast, given: Any) -> None:
    with pytest.raises(ValueError, match="keep_logs: expected one of debug, info, warning, error, critical"):
        app.job("act", keep_logs=given)


def test_a_handler_in_a_process_keeps_none(app: Holdfast) -> None:
    with pytest.raises(ValueError, match=r'keep_logs: the records of a process .* executor="thread"'):
        app.job("act", executor="process", keep_logs="info")


def test_warnings_go_to_stderr_as_long_as_the_root_logger_has_no_other_handler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    kept = contextvars.copy_context().run(kept_from, "info")
    assert kept.text() is None
    logging.getLogger("elsewhere").warning("careful")
    assert capsys.readouterr().err == "careful\n"
    monkeypatch.setattr(logging.root, "handlers", [*logging.root.handlers, logging.NullHandler()])
    logging.getLogger("elsewhere").warning("careful")
    assert capsys.readouterr().err == ""
