"""The example of docs/how-to/metrics.md runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.exposition import generate_latest

from tests.kit.pace import PATIENT
from tests.kit.waiting import until

if TYPE_CHECKING:
    import pytest

    from tests.kit.ledger import Ledger

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "metrics.md"


async def test_the_example_of_the_page_runs(database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text("utf-8").replace("postgresql://localhost/shop", database)
    shop = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", shop)
    [file] = re.findall(r'```python title="shop.py"\n(.*?)```', page, re.DOTALL)
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(file, "shop.py", "exec"), vars(shop))  # noqa: S102 - our own page
    exec(compile(block, PAGE.name, "exec"), {})  # noqa: S102 - our own page
    try:
        ledger.enqueue(shop.send_receipt.new(7))
        async with shop.app.worker(**PATIENT):
            await until(lambda: ledger.completed() == 1)
        assert b'kind="receipt.send",outcome="completed"' in generate_latest(REGISTRY)
    finally:
        for collector in {*REGISTRY._collector_to_names}:
            if type(collector).__module__.startswith("holdfast."):
                REGISTRY.unregister(collector)
