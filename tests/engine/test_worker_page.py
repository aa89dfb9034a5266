"""The examples of docs/how-to/worker.md run."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "worker.md"


async def test_the_examples_of_the_page_run(database: str, ledger: Ledger) -> None:
    module: dict[str, Any] = {"URL": database}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), module)  # noqa: S102 - our own page
    for block in re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        ledger.do(block)
    [good] = ledger.enqueue(module["fetch"].new("https://example.org"))
    working = asyncio.create_task(module["main"]())
    await until(lambda: ledger.status(good) == "completed")
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert ledger.rows("SELECT name, queues, stop_reason FROM holdfast.worker") == [
        ("w1", ["default", "fetch"], "stopped")
    ]
