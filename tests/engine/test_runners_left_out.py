"""A selection of runners says what it leaves out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast import Holdfast, Settings
from holdfast._engine.runner import Tick, left_out
from tests.kit.pace import QUICK

if TYPE_CHECKING:
    import pytest


def shop(url: str | None = None) -> Holdfast:
    app = Holdfast(url)
    for name in ("invoiceReminders", "classesBilling"):

        @app.runner(name)
        async def cycle(_: Tick) -> None: ...

    return app


def test_all_runners_leave_nothing_out() -> None:
    assert left_out(Settings.load({}), shop().runners) == []


def test_a_selection_names_what_is_off_and_what_follows() -> None:
    warned = left_out(Settings.load({}, tick_runners=("outbox", "invoiceReminders", "-schedules")), shop().runners)
    assert [each.partition(" is off")[0] for each in warned] == ["schedules", "classesBilling"]
    assert warned[0].endswith("unless another worker runs it, no periodic job is enqueued")


async def test_a_worker_says_so_at_its_start(database: str, caplog: pytest.LogCaptureFixture) -> None:
    app = shop(database)
    with caplog.at_level(logging.WARNING):
        async with app.worker(tick_runners=("outbox", "-reaper", "-maintenance"), **QUICK):
            pass
    warned = [record.getMessage() for record in caplog.records if " is off " in record.getMessage()]
    assert [each.split()[0] for each in warned] == ["reaper", "maintenance", "invoiceReminders", "classesBilling"]
