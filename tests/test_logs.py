from __future__ import annotations

import asyncio
import contextvars
import io
import json
import logging
import queue
import subprocess
import sys
import threading
from logging.handlers import QueueHandler
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._logs.log import TEXT_LIMIT, ContextFilter, Handler, Log, bound, configure, context

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("shop.receipts")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level = root.level
    yield root
    root.setLevel(level)
    for handler in [handler for handler in root.handlers if isinstance(handler, Handler)]:
        root.removeHandler(handler)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def log_raised(error: Exception) -> None:
    def fail() -> None:
        raise error

    try:
        fail()
    except Exception:
        log.exception("failed", stack_info=True)


def test_a_json_line_says_when_where_what_and_for_which_job(stream: io.StringIO) -> None:
    configure("json", "info", stream)
    with bound(worker="w1"), bound(job=7, kind="receipt.send", chain=5):
        log.info("sent to %s", "ada", extra={"seconds": 0.25})
    log.info("outside")
    inside, outside = lines(stream)
    assert inside.pop("time").endswith("Z")
    assert inside == {
        "level": "info",
        "logger": "shop.receipts",
        "message": "sent to ada",
        "job": 7,
        "kind": "receipt.send",
        "chain": 5,
        "worker": "w1",
        "seconds": 0.25,
    }
    assert list(outside) == ["time", "level", "logger", "message"]


def test_the_message_of_an_engines_line_has_its_fields_and_our_formatters_say_them_once(
    stream: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    configure("json", "info", stream)
    with bound(worker="w1", job=7):
        Log("holdfast.test").info("100%% of %s", "it", extra={"error": "OSError", "why": "no route", "job": 7})
        Log("holdfast.test").info("100% of it", extra={"url": "http://ada:hunter2@host"})
    Log("holdfast.test").info("100% of it")
    assert caplog.messages == [
        '100% of it: job=7 worker=w1 error=OSError why="no route"',
        "100% of it: job=7 worker=w1 url=http://ada:***@host",
        "100% of it",
    ]
    assert [line["message"] for line in lines(stream)] == ["100% of it"] * 3
    assert caplog.records[0].msg == "100%% of %s: %s"


def test_time_is_iso_8601_in_utc(stream: io.StringIO) -> None:
    handler = configure("json", "info", stream)
    handler.handle(logging.makeLogRecord({"msg": "then", "created": 1_777_777_777.1234}))
    assert lines(stream)[0]["time"] == "2026-05-03T03:09:37.123Z"


def test_blocks_nest_and_end_also_by_an_error() -> None:
    def inside() -> None:
        with bound(job=7, kind="a"), bound(job=8):
            assert dict(context.get()) == {"worker": "w1", "job": 8, "kind": "a"}
            raise LookupError

    with bound(worker="w1"):
        with pytest.raises(LookupError):
            inside()
        assert dict(context.get()) == {"worker": "w1"}
    assert dict(context.get()) == {}


async def test_tasks_and_threads_of_a_handler_carry_its_job_and_do_not_mix(stream: io.StringIO) -> None:
    configure("json", "info", stream)
    met = threading.Barrier(2)

    def in_thread() -> None:
        met.wait(timeout=30)
        log.info("from a thread")

    async def handler(job: int) -> None:
        with bound(job=job, kind="report"):
            await asyncio.gather(asyncio.to_thread(in_thread), in_task())

    async def in_task() -> None:
        log.info("from a task")

    await asyncio.gather(handler(1), handler(2))
    output = sorted((line["job"], line["message"]) for line in lines(stream))
    assert output == [(1, "from a task"), (1, "from a thread"), (2, "from a task"), (2, "from a thread")]


async def test_an_executor_needs_the_context_handed_over(stream: io.StringIO) -> None:
    configure("json", "info", stream)
    loop = asyncio.get_running_loop()
    with bound(job=1):
        await loop.run_in_executor(None, log.info, "bare")
        await loop.run_in_executor(None, contextvars.copy_context().run, log.info, "handed over")
    assert [line.get("job") for line in lines(stream)] == [None, 1]


def test_a_handlers_own_extra_never_hides_the_job(stream: io.StringIO) -> None:
    configure("json", "info", stream)
    with bound(job=7):
        log.info("x", extra={"job": "mine", "kind": "loose", "level": 3, "time": "noon"})
    (line,) = lines(stream)
    assert (line["job"], line["extra_job"], line["kind"]) == (7, "mine", "loose")
    assert (line["level"], line["extra_level"], line["extra_time"]) == ("info", 3, "noon")


def test_a_record_that_passes_two_filters_and_another_thread_keeps_its_job() -> None:
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = QueueHandler(waiting)
    for _ in range(2):
        handler.addFilter(ContextFilter())
    with bound(job=70_000, kind="a"):
        handler.handle(logging.makeLogRecord({"msg": "x"}))
    record = waiting.get_nowait()
    assert ContextFilter().filter(record)
    assert [vars(record)[name] for name in ("job", "kind", "chain", "worker")] == [70_000, "a", None, None]
    assert "extra_job" not in vars(record)


def test_an_exception_is_one_bounded_text_without_passwords_and_rows(stream: io.StringIO) -> None:
    configure("json", "info", stream)
    text = "postgres://app:hunter2@db/app\nDETAIL:  Key (email)=(ada@example.org)\n\x1b[31mred"
    log_raised(ConnectionError(text))
    log_raised(ValueError("y" * 100_000))
    first, second = lines(stream)
    assert first["exception"].startswith("Traceback (most recent call last):\n")
    assert first["exception"].endswith("ConnectionError: postgres://app:***@db/app\n [31mred")
    assert "ada" not in first["exception"]
    assert second["exception"].startswith("Traceback")
    assert len(second["exception"]) <= TEXT_LIMIT + 3


class Broken(Exception):  # noqa: N818 - it is
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, None),
        (True, True),
        (10**5000, "<int that cannot be printed>"),
        (1.5, 1.5),
        (float("nan"), "nan"),
        ({"a": [1, "b"]}, {"a": [1, "b"]}),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ({"url": "https://u:hunter2@host/"}, {"url": "https://u:***@host/"}),
        ({"a": float("inf")}, "{'a': inf}"),
        (circle(), "[[...]]"),
        ("a\ud800b", "a\ud800b"),
        (Broken(), "<Broken that cannot be printed>"),
        ("host=db password='hunter 2' user=app", "host=db password=*** user=app"),
        ("x" * 100_000, "x" * (TEXT_LIMIT - 1) + "…"),
        (["x" * 100_000], "['" + "x" * (TEXT_LIMIT - 3) + "…"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_can_be_logged_both_ways(value: object, output: object, stream: io.StringIO) -> None:
    configure("json", "info", stream)
    log.info("x", extra={"value": value})
    assert lines(stream)[0]["value"] == output
    people = io.StringIO()
    configure("human", "info", people)
    log.info("x", extra={"value": value})
    assert people.getvalue().count("\n") == 1
    assert "hunter" not in people.getvalue()


def test_an_error_that_cannot_be_printed_is_logged_all_the_same(stream: io.StringIO) -> None:
    configure("json", "info", stream)
    log_raised(Broken())
    assert "Broken" in lines(stream)[0]["exception"]


def test_a_line_for_people(stream: io.StringIO) -> None:
    handler = configure("human", "info", stream)
    record = {"msg": "sent\nINFO forged\x1b[2J", "name": "shop", "levelname": "INFO", "created": 0.5, "to": "a b"}
    with bound(job=7, kind="receipt.send"):
        handler.handle(logging.makeLogRecord(record))
    assert stream.getvalue() == (
        '1970-01-01T00:00:00.500Z INFO     shop: sent\\nINFO forged\\x1b[2J job=7 kind=receipt.send to="a b"\n'
    )


def test_a_traceback_for_people_is_indented_below_its_line(stream: io.StringIO) -> None:
    configure("human", "info", stream)
    log_raised(ValueError("first\nsecond"))
    first, *below = stream.getvalue().splitlines()
    assert first.endswith("shop.receipts: failed")
    assert below[0] == "    Traceback (most recent call last):"
    assert "    ValueError: first" in below
    assert "    Stack (most recent call last):" in below
    assert all(line.startswith("    ") for line in below)


@pytest.mark.parametrize(
    ("stream", "format_", "environ", "starts"),
    [
        (Terminal(), "auto", {}, "\x1b["),
        (Terminal(), "human", {"NO_COLOR": ""}, "\x1b["),
        (Terminal(), "human", {"NO_COLOR": "1"}, "20"),
        (Terminal(), "human", {"TERM": "dumb"}, "20"),
        (Terminal(), "json", {}, "{"),
        (io.StringIO(), "auto", {}, "{"),
        (io.StringIO(), "human", {}, "20"),
    ],
)
def test_colour_and_form_follow_the_terminal(
    stream: io.StringIO, format_: Any, environ: dict[str, str], starts: str
) -> None:
    configure(format_, "info", stream, environ=environ)
    log.info("x")
    assert stream.getvalue().startswith(starts)
    assert ("\x1b" in stream.getvalue()) == (starts == "\x1b[")


def test_configuring_again_replaces_our_handler_and_leaves_others(root: logging.Logger, stream: io.StringIO) -> None:
    others = list(root.handlers)
    configure("json", "info", io.StringIO())
    handler = configure("json", "WARNING", stream)
    assert root.handlers == [*others, handler]
    log.info("not this")
    log.warning("this")
    assert [line["message"] for line in lines(stream)] == ["this"]


@pytest.mark.parametrize("arguments", [("xml", "info"), ("json", "loud")])
def test_an_unknown_form_or_level_is_refused_and_changes_nothing(arguments: Any, root: logging.Logger) -> None:
    handlers, level = list(root.handlers), root.level
    with pytest.raises(ValueError, match="must be one of"):
        configure(*arguments)
    assert (root.handlers, root.level) == (handlers, level)


def test_a_stream_of_few_letters_loses_no_line() -> None:
    raw = io.BytesIO()
    configure("human", "info", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    log.info("zażółć")
    assert b"za\\u017c\\xf3\\u0142\\u0107" in raw.getvalue()


def test_nothing_happens_at_import() -> None:
    program = (
        "import logging; before = (list(logging.root.handlers), logging.root.level, logging.getLoggerClass(), "
        "logging.getLogRecordFactory()); import holdfast.logs; assert before == (list(logging.root.handlers), "
        "logging.root.level, logging.getLoggerClass(), logging.getLogRecordFactory())"
    )
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603 - our own program


class BrokenHandler(logging.Handler):
    def __init__(self, raised: type[BaseException]) -> None:
        super().__init__()
        self.raised = raised
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        raise self.raised("no space left on device")


@pytest.mark.parametrize("raised", [OSError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_a_handler_that_raises_does_no_harm(
    raised: type[BaseException], root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = BrokenHandler(raised)
    root.addHandler(handler)
    try:
        ours = Log("holdfast.test")
        for number in range(3):
            ours.warning("line %s", number, extra={"job": number})
        log_it_fails(ours)
    finally:
        root.removeHandler(handler)
    assert [record.getMessage() for record in handler.records] == [
        "line 0: job=0",
        "line 1: job=1",
        "line 2: job=2",
        "failed",
    ]
    assert [getattr(record, "job", None) for record in handler.records] == [0, 1, 2, None]
    assert {record.name for record in handler.records} == {"holdfast.test"}
    assert {record.filename for record in handler.records} == {"test_logs.py"}
    assert handler.records[-1].exc_info is not None
    output = capsys.readouterr().err
    assert output.count("a logging handler failed") == 1
    assert "no space left on device" in output


def log_it_fails(ours: Log) -> None:
    try:
        int("x")
    except ValueError:
        ours.exception("failed")


def test_standard_error_that_is_gone_does_no_harm(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = BrokenHandler(OSError)
    root.addHandler(handler)
    monkeypatch.setattr(sys, "stderr", None)
    try:
        Log("holdfast.test").error("line")
    finally:
        root.removeHandler(handler)
    assert len(handler.records) == 1


def test_a_line_that_is_not_wanted_costs_nothing(root: logging.Logger) -> None:
    handler = BrokenHandler(OSError)
    root.addHandler(handler)
    root.setLevel(logging.ERROR)
    try:
        Log("holdfast.test").debug("line")
    finally:
        root.removeHandler(handler)
    assert handler.records == []
