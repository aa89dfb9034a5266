"""A suspension unwinds every construct of asyncio and anyio, and the story goes on in the next attempt."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest

from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger

SWALLOWED = "suspension_swallowed"


class Story:
    """The job, and a log of what its handler did."""

    def __init__(self, job: Job[Any], log: list[str]) -> None:
        self.job = job
        self.log = log

    async def step(self, name: str, seconds: float = 0.0) -> str:
        async def run() -> str:
            await asyncio.sleep(seconds)
            self.log.append(name)
            return name

        return await self.job.step(name, run)

    async def sleep(self, name: str = "s") -> None:
        # Long enough not to be over when it is recorded.
        await self.job.sleep(name, ms(200))


Handler: TypeAlias = "Callable[[Story], Awaitable[object]]"
TABLE: dict[str, tuple[Handler, object, list[str] | None]] = {}
"""By name: the handler, its result or the error code of its dead letter, and what it logged; None: in any order."""


def expect(result: object, log: list[str] | None = None) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        TABLE[handler.__name__] = handler, result, log
        return handler

    return add


@expect("a", ["a"])
async def except_exception(story: Story) -> str:
    try:
        await story.sleep()
    except Exception:  # noqa: BLE001 - a suspension passes it
        story.log.append("caught")
    return await story.step("a")


@expect("a", ["raised", "a"])
async def except_base_and_raise(story: Story) -> str:
    try:
        await story.sleep()
    except BaseException:
        story.log.append("raised")
        raise
    return await story.step("a")


@expect(SWALLOWED, [])
async def except_base_and_go_on(story: Story) -> str:
    with contextlib.suppress(BaseException):
        await story.sleep()
    return "went on"


@expect("a", ["a"])
async def except_base_and_step(story: Story) -> str:
    """The next verb suspends again."""
    with contextlib.suppress(BaseException):
        await story.sleep()
    return await story.step("a")


@expect(SWALLOWED, [])
async def suppress_cancelled(story: Story) -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await story.sleep()
    return "went on"


@expect("a", ["cleanup", "cleanup", "a"])
async def finally_awaits(story: Story) -> str:
    try:
        await story.sleep()
    finally:
        await asyncio.sleep(0.001)
        story.log.append("cleanup")
    return await story.step("a")


@expect("a", ["cleanup", "a"])
async def finally_steps(story: Story) -> str:
    try:
        await story.sleep()
    finally:
        await story.step("cleanup")
    return await story.step("a")


@expect(SWALLOWED, [])
async def finally_returns(story: Story) -> str:
    try:
        await story.sleep()
    finally:
        return "from finally"  # noqa: B012 - the mistake that is found


@contextlib.asynccontextmanager
async def resource(story: Story) -> AsyncIterator[None]:
    story.log.append("open")
    try:
        yield
    except BaseException:
        story.log.append("rollback")
        raise
    else:
        story.log.append("commit")
    finally:
        await asyncio.sleep(0)
        story.log.append("close")


@expect("a", ["open", "rollback", "close", "open", "commit", "close", "a"])
async def async_with(story: Story) -> str:
    async with resource(story):
        await story.sleep()
    return await story.step("a")


@expect("a", ["b", "a"])
async def task_group_whose_parent_sleeps(story: Story) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(story.step("b"))
        await story.sleep()
    return await story.step("a")


@expect("a", ["b", "a"])
async def task_group_whose_child_sleeps(story: Story) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(story.sleep())
        group.create_task(story.step("b"))
    return await story.step("a")


@expect("a", ["a"])
async def task_group_in_which_two_sleep(story: Story) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(story.sleep("s"))
        group.create_task(story.sleep("t"))
    return await story.step("a")


@expect("a", ["b", "a"])
async def task_group_and_except_group(story: Story) -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(story.sleep())
            group.create_task(story.step("b"))
    except* Exception:  # noqa: BLE001 - a suspension passes it
        story.log.append("group")
    return await story.step("a")


@expect([None, "b"], ["b"])
async def gather(story: Story) -> list[object]:
    return [*await asyncio.gather(story.sleep(), story.step("b", 0.01))]


@expect([None, "b"], ["b"])
async def gather_with_exceptions(story: Story) -> list[object]:
    return [*await asyncio.gather(story.sleep(), story.step("b", 0.01), return_exceptions=True)]


@expect("b")
async def shielded(story: Story) -> str:
    slow = asyncio.shield(asyncio.ensure_future(story.step("b", 0.01)))
    await story.sleep()
    return await slow


@expect("a", ["a"])
async def asyncio_timeout(story: Story) -> str:
    async with asyncio.timeout(5):
        await story.sleep()
    return await story.step("a")


@expect("timed out", [])
async def asyncio_timeout_that_is_over(story: Story) -> str:
    try:
        async with asyncio.timeout(0):
            await asyncio.sleep(0)
            await story.sleep()
    except TimeoutError:
        return "timed out"
    return await story.step("a")


@expect("a", ["a"])
async def wait_for(story: Story) -> str:
    await asyncio.wait_for(story.sleep(), 5)
    return await story.step("a")


@expect("a", ["a"])
async def task_that_is_awaited(story: Story) -> str:
    await asyncio.create_task(story.sleep())
    return await story.step("a")


@expect("a", ["a"])
async def asyncio_wait(story: Story) -> str:
    await asyncio.wait([asyncio.create_task(story.sleep())])
    return await story.step("a")


@expect("a", ["a"])
async def task_that_is_detached(story: Story) -> str:
    detached = asyncio.create_task(story.sleep())
    await asyncio.sleep(0.5)
    assert detached.done()
    return await story.step("a")


@expect("a", ["a"])
async def anyio_scope(story: Story) -> str:
    with anyio.CancelScope():
        await story.sleep()
    return await story.step("a")


@expect("a", ["a"])
async def anyio_shield(story: Story) -> str:
    with anyio.CancelScope(shield=True):
        await story.sleep()
    return await story.step("a")


@expect("a", ["a"])
async def anyio_fail_after(story: Story) -> str:
    with anyio.fail_after(5):
        await story.sleep()
    return await story.step("a")


@expect("a", ["b", "a"])
async def anyio_group(story: Story) -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(story.sleep)
        group.start_soon(story.step, "b")
    return await story.step("a")


@expect([1, 2], ["closed", "closed"])
async def async_generator(story: Story) -> list[int]:
    async def items() -> AsyncIterator[int]:
        try:
            yield 1
            await story.sleep()
            yield 2
        finally:
            story.log.append("closed")

    return [item async for item in items()]


@expect("InvalidStep", [])
async def event_loop_in_a_thread(story: Story) -> str:
    return await asyncio.to_thread(lambda: asyncio.run(story.step("b")))


_count: contextvars.ContextVar[int] = contextvars.ContextVar("count", default=0)


@expect(1, [])
async def context_variable(story: Story) -> int:
    """Each attempt has a context of its own."""
    _count.set(_count.get() + 1)
    await story.sleep()
    return _count.get()


@pytest.mark.parametrize("name", TABLE)
async def test_a_construct_unwinds_and_goes_on(app: Holdfast, ledger: Ledger, name: str) -> None:
    handler, result, expected = TABLE[name]
    log: list[str] = []

    @app.job("story", retry=AT_ONCE)
    async def story(job: Job[None]) -> Any:
        return await handler(Story(job, log))

    job = ledger.enqueue_one(story.new())
    before = asyncio.all_tasks()
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) in {"completed", "failed"}, 20)
    found = ledger.job(job)
    assert (found.result if found.status == "completed" else found.error_code) == result, found
    assert expected is None or log == expected
    # No task of a handler is left behind: what its verbs wait for is given up.
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() - before if "Story." in str(task.get_coro())] == []
