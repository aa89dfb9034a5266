"""The short form of `make ha`: a Patroni cluster hands its leadership over while jobs are enqueued and run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from labs.chaos.ha.cluster import WAYS
from labs.chaos.ha.loss import SWITCHOVER
from labs.chaos.ha.report import DOCUMENT, charts, write
from labs.chaos.ha.run import Plan, run

if TYPE_CHECKING:
    from pathlib import Path

    from labs.chaos.ha.cluster import Way


@pytest.mark.prove
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
async def test_a_switchover_loses_nothing(way: Way, tmp_path: Path) -> None:
    outcome = await run(Plan(way, SWITCHOVER, before=5, after=6))
    print(outcome.summary())  # noqa: T201 - shown when something is wrong
    assert [str(violation) for violation in outcome.violations] == []
    assert outcome.lost == 0
    assert outcome.jobs > 0
    assert outcome.resumed < 10, "how soon is for `make ha`; a worker that waits for its lease takes a minute"
    assert outcome.elsewhere == 0, "a connection stays at a server that only reads"

    document = tmp_path / DOCUMENT.name
    document.write_text(DOCUMENT.read_text("utf-8"), "utf-8")
    write([outcome], document)
    assert f"| {outcome.jobs:,} " in document.read_text("utf-8")
    for name in charts([outcome]):
        assert (tmp_path / "high-availability" / f"{name}.svg").read_text("utf-8").startswith("<svg")
