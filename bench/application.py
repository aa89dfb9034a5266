"""An application whose only handler does nothing, for workers that are started by the real command."""

from __future__ import annotations

from bench.load import KIND
from holdfast import Holdfast, Job

app = Holdfast()


@app.job(KIND)
async def noop(job: Job[None], data: str) -> None:
    pass
