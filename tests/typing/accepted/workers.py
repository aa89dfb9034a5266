"""Valid code about workers and hooks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, assert_type

from holdfast import FailedAttempt, Holdfast

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

app = Holdfast("postgresql://")


@app.on_failure
async def count(failed: FailedAttempt) -> None:
    assert_type(failed.exception, BaseException | None)


@app.on_failure
@app.on_dead_letter
def report(failed: FailedAttempt) -> str:
    return f"{failed.job_id} {failed.error_code} {failed.error} {failed.will_retry}"


assert_type(
    report(FailedAttempt(job_id=1, kind="k", attempt=1, error_code="E", error="e", worker="w", will_retry=True)), str
)

lifespan: Callable[[object], AbstractAsyncContextManager[None]] = app.embedded_worker


async def work() -> None:
    await count(FailedAttempt(job_id=1, kind="k", attempt=1, error_code="E", error="e", worker="w", will_retry=False))
    async with app.worker(
        id="w",
        queues={"default": 1},
        kinds=["k"],
        middlewares=app.middlewares,
        poll_interval=timedelta(seconds=1),
        next_job_delay={"default": timedelta(seconds=1)},
        batch_size=10,
    ) as worker:
        assert_type(worker.counts, dict[str, int])
    async with app.embedded_worker(queues={"default": 1}, poll_interval=timedelta(seconds=1)) as nothing:
        assert_type(nothing, None)
