"""An application whose worker has a loop that ends again and again."""

from __future__ import annotations

import os

from holdfast import Holdfast
from holdfast._engine import keeper
from holdfast._engine.jobs.finish import Finisher


async def _end(*_: object) -> None:
    raise RuntimeError("it ends again and again")


app = Holdfast()
vars(keeper)["backoff"] = lambda _: float(os.environ.get("FRAIL_PAUSE", "0"))
Finisher.run = _end  # type: ignore[method-assign,assignment]
