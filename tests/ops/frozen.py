"""The application of a worker that is stopped in the middle: `tests.ops.frozen:app`."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Holdfast, Job

app = Holdfast()


@app.job("frozen.wait")
async def wait(_: Job[Any]) -> None:
    await asyncio.sleep(6)
