"""The example of docs/reference/telemetry.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY
from prometheus_client.exposition import generate_latest

from tests.engine.pace import PATIENT
from tests.engine.waiting import until

if TYPE_CHECKING:
    from tests.engine.ledger import Ledger

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md"


async def test_the_example_of_the_page_runs(database: str, ledger: Ledger) -> None:
    module: dict[str, Any] = {"URL": database}
    [block] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(compile(block, PAGE.name, "exec"), module)  # noqa: S102 - our own page
    try:
        ledger.enqueue(module["fetch"].new("https://example.org"))
        async with module["app"].worker(**PATIENT):
            await until(lambda: ledger.completed() == 1)
        assert b'kind="page.fetch",outcome="completed"' in generate_latest(REGISTRY)
    finally:
        for collector in {*REGISTRY._collector_to_names}:
            if type(collector).__module__.startswith("holdfast."):
                REGISTRY.unregister(collector)
