"""The statements of watchers, the rows they write, and the tasks they leave in this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from holdfast._engine.link import Link
from holdfast._engine.wake import chains
from holdfast._store.statement import statements

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

    from holdfast import Holdfast
    from holdfast._store.statement import Statement

T = TypeVar("T")

RECORDS = "SELECT count(*) FROM holdfast.watcher WHERE until > now()"


def count(monkeypatch: pytest.MonkeyPatch, module: ModuleType = chains) -> Counter[str]:
    """Return a count, by name, of the statements that watchers send from now on, or another module."""
    sent: Counter[str] = Counter()
    names = {text: name for name, text in statements().items()}

    class Counted(Link):
        async def run(self, statement: Statement[T], *, seconds: float | None = None) -> T:
            sent[names[statement.sql]] += 1
            return await super().run(statement, seconds=seconds)

    monkeypatch.setattr(module, "Link", Counted)
    return sent


def left(app: Holdfast) -> list[object]:
    """Return what waiting has left behind in this process: it should be nothing."""
    own = [task for task in asyncio.all_tasks() if "Watcher" in repr(task)]
    return [*app._watchers._found, *own]
