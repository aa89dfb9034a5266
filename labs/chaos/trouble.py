"""Handlers that misbehave and payloads that should not be; each says how its job must end all the same."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import psycopg

import holdfast._engine.jobs.run_handlers
import holdfast._engine.worker
from holdfast import Job, PayloadTooLarge, Retry
from labs.chaos.application import RETRY, State, app

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

QUEUE = "trouble"
EXIT_CODE = 70
# A process without memory is killed, or ends in native code that was refused it.
WITHOUT_MEMORY = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT)
LARGE = 50 * 2**20
_LARGE = f"""'{{"text": "' || repeat('a', {LARGE}) || '"}}'"""
REFUSED = "HF002"
"""The error of the schema's functions for a parameter that they do not take."""
LEAK = 256 * 2**20
"""So much more than it has may a process take before it is killed for it."""
CHUNK = 8 * 2**20
ODD = "a NUL \x00, half a pair \ud83d, the other half \udc00, and a word\u2028"
# A new process takes its time on a busy machine, and is not to be killed over that.
PATIENCE = timedelta(seconds=60)
GRACE = 2.0
"""How long unreadable payloads are given back, in seconds. The default, ten minutes, is too long for the lab."""
TWICE = Retry(max_attempts=2, base=timedelta(milliseconds=20), jitter=timedelta(0))
THRICE = Retry(max_attempts=3, base=timedelta(milliseconds=20), jitter=timedelta(0))

Connection: TypeAlias = psycopg.AsyncConnection[Any]
End = Literal["completed", "failed"]


class Tantrum(BaseException):
    """Not an Exception: what catches only those does not catch it."""


RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": StopIteration,
    "Tantrum": Tantrum,
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [SystemExit(1), Tantrum()]),
}


@app.job("trouble.exit", queue=QUEUE, retry=RETRY)
async def exits(job: Job[State]) -> int:
    """Take the whole worker along, the first time."""
    if job.attempt == 1:
        os._exit(EXIT_CODE)
    return job.attempt


@app.job("trouble.poison", queue=QUEUE, retry=TWICE)
async def poisons(_: Job[State], harmless: bool = False) -> None:  # noqa: FBT001, FBT002
    """Kill the worker every time, when others have begun beside it, unless it is harmless."""
    if not harmless:
        await asyncio.sleep(0.2)
        os._exit(EXIT_CODE)


@app.job("trouble.child_exit", queue=QUEUE, retry=RETRY, executor="process", max_runtime=PATIENCE)
def exits_in_child(job: Job[None]) -> int:
    if job.attempt == 1:
        os._exit(EXIT_CODE)
    return job.attempt


@app.job("trouble.leak", queue=QUEUE, retry=RETRY)
def leaks(job: Job[State]) -> int:
    """Eat the worker's memory, the first time, until everybody in it starves, and it is killed for that."""
    if job.attempt == 1:
        _leak(linger=0.5)
    return job.attempt


@app.job("trouble.child_leak", queue=QUEUE, retry=RETRY, executor="process", max_runtime=PATIENCE)
def leaks_in_child(job: Job[None]) -> int:
    if job.attempt == 1:
        _leak()
    return job.attempt


def _leak(linger: float = 0) -> None:
    """Grow until there is no more, then be killed, as by the kernel; the limit keeps the machine out of it."""
    with open("/proc/self/statm") as file:  # noqa: PTH123 - as little as possible
        size = int(file.read().split()[0]) * resource.getpagesize()
    done = threading.Event()
    resource.setrlimit(resource.RLIMIT_AS, (size + LEAK, resource.getrlimit(resource.RLIMIT_AS)[1]))
    kept = []
    try:
        while True:
            kept.append(bytearray(CHUNK))
    except MemoryError:
        done.wait(linger)
        os.kill(os.getpid(), signal.SIGKILL)


@app.job("trouble.raise", queue=QUEUE, retry=RETRY)
async def raises(job: Job[State], what: str) -> int:
    """Raise what is no Exception, the first time."""
    if job.attempt == 1:
        raise RAISED[what]()  # noqa: RSE102 - it makes one
    return job.attempt


@app.job("trouble.thread_raise", queue=QUEUE, retry=RETRY)
def raises_in_thread(job: Job[State], what: str) -> int:
    if job.attempt == 1:
        raise RAISED[what]()  # noqa: RSE102 - it makes one
    return job.attempt


@app.job("trouble.raise_always", queue=QUEUE, retry=TWICE)
async def raises_always(_: Job[State], what: str) -> int:
    raise RAISED[what]()  # noqa: RSE102 - it makes one


@app.job("trouble.block", queue=QUEUE, retry=RETRY)
async def blocks(job: Job[State], seconds: float) -> int:
    """Let nothing else happen in the event loop, for longer than a lease."""
    threading.Event().wait(seconds)
    return job.attempt


@app.job("trouble.unsaid", queue=QUEUE, retry=RETRY)
async def returns(_: Job[State], what: Literal["object", "loop", "large", "odd"]) -> Any:
    """Return what JSON cannot say, or not so much of it."""
    loop: list[Any] = []
    loop.append(loop)
    return {"object": object(), "loop": loop, "large": "a" * LARGE, "odd": ODD}[what]


@app.job("trouble.read", queue=QUEUE, retry=RETRY)
async def reads(_: Job[State], text: str, *, odd: bool = False) -> int:
    """Take a text as it was given."""
    if odd and text != ODD:
        raise ValueError("this is not the text that was enqueued")
    return len(text)


def shorten_grace() -> None:
    """Let this process give back what it cannot read for a moment only."""
    holdfast._engine.worker.DEPLOY_GRACE = GRACE  # type: ignore[attr-defined] # it reads its own copy
    holdfast._engine.jobs.run_handlers.MISFIT_PAUSE = timedelta(milliseconds=400)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A job that means trouble, and how it must end."""

    name: str
    put: Callable[[Connection], Awaitable[int]]
    """Enqueue it in the caller's transaction; the id."""
    end: End = "completed"
    code: str | None = None
    """With which error code it must have failed."""
    deadly: tuple[int, ...] = ()
    """The codes with which the worker may end that runs it first."""


async def put_refused(conn: Connection) -> int:
    """See that a payload beyond the limit is refused by the client; enqueue a modest one in its place."""
    try:
        await app.enqueue(conn, reads.new("a" * LARGE))
    except PayloadTooLarge:
        return (await app.enqueue(conn, reads.new("a modest one"))).id
    raise AssertionError("a payload of 50 MB was enqueued")


async def put_refused_by_sql(conn: Connection) -> int:
    """See that the server refuses such a payload too; enqueue a modest one in its place."""
    try:
        async with conn.transaction():
            await _put(_LARGE)(conn)
    except psycopg.Error as error:
        if error.sqlstate != REFUSED:
            raise
        return (await app.enqueue(conn, reads.new("a modest one"))).id
    raise AssertionError("a payload of 50 MB was enqueued by SQL")


def troubles(lease: float) -> Iterator[Trouble]:
    """Yield every one, its family first in its name; `lease` in seconds."""
    yield Trouble("handler exits, and its worker with it", _new(exits.new()), deadly=(EXIT_CODE,))
    yield Trouble("handler exits every time", _new(poisons.new()), "failed", "crashed_alone", deadly=(EXIT_CODE,))
    yield Trouble("handler exits in a child process", _new(exits_in_child.new()))
    yield Trouble("handler leaks memory until its worker is killed", _new(leaks.new()), deadly=WITHOUT_MEMORY)
    yield Trouble("handler leaks memory in a child process", _new(leaks_in_child.new()))
    for what in RAISED:
        yield Trouble(f"handler raises {what}", _new(raises.new(what)))
        yield Trouble(f"handler raises {what} in a thread", _new(raises_in_thread.new(what)))
        # Python itself turns the one that would end a coroutine into another.
        code = "RuntimeError" if what == "StopIteration" else what
        yield Trouble(f"handler raises {what} every time", _new(raises_always.new(what)), "failed", code)
    yield Trouble("handler blocks the event loop", _new(blocks.new(1.5 * lease)))
    yield Trouble("handler returns an object", _new(returns.new("object")), "failed", "InvalidJob")
    yield Trouble("handler returns a list that holds itself", _new(returns.new("loop")), "failed", "InvalidJob")
    yield Trouble("handler returns 50 MB", _new(returns.new("large")), "failed", "PayloadTooLarge")
    yield Trouble("handler returns NUL and lone surrogates", _new(returns.new("odd")))
    yield Trouble("payload of 50 MB, by the client", put_refused)
    yield Trouble("payload of 50 MB, by SQL", put_refused_by_sql)
    yield Trouble("payload with NUL or lone surrogates, by the client", _new(reads.new(ODD, odd=True)))
    yield Trouble("payload with NUL or lone surrogates, NUL by SQL", _put(r"""'{"text": "\u0000"}'"""))
    yield Trouble("payload with NUL or lone surrogates, half a pair by SQL", _put(r"""'{"text": "\ud83d"}'"""))
    for name, payload in {
        "of another shape": """'{"words": 7}'""",
        "no object": "'[1, 2]'",
        "null": "'null'",
        "of another type": """'{"text": 7}'""",
        "with a number that is none": """'{"text": "a", "odd": 1e999}'""",
        "too deep": "repeat('[', 5000) || repeat(']', 5000)",
    }.items():
        yield Trouble(f"payload that no longer validates: {name}", _put(payload), "failed", "InvalidJob")
    later = _put("""'{"text": "a"}'""", "payload_version => 9")
    yield Trouble("payload that no longer validates: of a later version", later, "failed", "InvalidJob")


def _new(job: Any) -> Callable[[Connection], Awaitable[int]]:
    async def put(conn: Connection) -> int:
        return (await app.enqueue(conn, job.options(priority=0))).id

    return put


def _put(payload: str, more: str = "max_attempts => 200") -> Callable[[Connection], Awaitable[int]]:
    """Enqueue past the library, as a trigger would; backdated, so that no worker takes it for a newer version's."""

    async def put(conn: Connection) -> int:
        cursor = await conn.execute(
            f"SELECT holdfast.enqueue('{reads.name}', ({payload})::json, '{QUEUE}', priority => 0, {more})".encode()
        )
        row = await cursor.fetchone()
        assert row is not None
        await conn.execute(
            "UPDATE holdfast.job SET created_at = created_at - interval '1 hour' WHERE id = %s", [row[0]]
        )
        return int(row[0])

    return put
