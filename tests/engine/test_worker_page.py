"""The examples of docs/how-to/worker.md run."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import Fail, Job
from tests.engine.waiting import until

if TYPE_CHECKING:
    import pytest

    from holdfast import Holdfast
    from tests.engine.ledger import Ledger

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "worker.md"


async def test_the_examples_of_the_page_run(database: str, ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    module: dict[str, Any] = {"URL": database}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), module)  # noqa: S102 - our own page
    for block in re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        ledger.do(block)
    app: Holdfast = module["app"]

    @app.job("bad")
    async def bad(job: Job[None]) -> None:
        raise Fail("no")

    good, failed = ledger.enqueue(module["fetch"].new("https://example.org"), bad.new())
    working = asyncio.create_task(module["main"]())
    await until(lambda: (ledger.status(good), ledger.status(failed)) == ("completed", "failed"))
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert ledger.rows("SELECT name, queues, stop_reason FROM holdfast.worker") == [
        ("w1", ["default", "fetch"], "stopped")
    ]
    said = sorted(capsys.readouterr().out.splitlines())
    assert said == [f"bad {failed} 1 Fail False", f"dead letter {failed} no no"]
