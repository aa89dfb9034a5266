"""Applications whose handlers do nothing, for workers that are started by the real command."""

from __future__ import annotations

from bench.load import KIND
from holdfast import Holdfast, Job

app = Holdfast()
many = Holdfast()
"""A hundred kinds in ten queues."""


@app.job(KIND)
async def noop(job: Job[None], data: str) -> None:
    pass


async def nothing(job: Job[None]) -> None:
    pass


of_many = [many.job(f"{KIND}{number}", queue=f"queue{number % 10}")(nothing) for number in range(100)]
