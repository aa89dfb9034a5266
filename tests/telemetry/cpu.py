"""An application whose handler runs in a process of its own, where it is imported by its name."""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast, Job
from holdfast._logs.log import current_trace

app = Holdfast()


@app.job("cpu.trace", executor="process")
def trace(job: Job[Any]) -> str | None:
    return current_trace()
