"""An application whose handler waits, for the real workers of the validation."""

from __future__ import annotations

import asyncio

from holdfast import Holdfast

KIND = "simulated.wait"

app = Holdfast()


@app.job(KIND)
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)
