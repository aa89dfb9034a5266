"""The short form of `make chaos`: some thousand jobs under faults of every family, each once, two or three at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from labs.chaos.lab import Plan, prove
from labs.chaos.pace import Pace
from labs.chaos.report import DOCUMENT, charts, write

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20_261_115
# Two every day, one of each family when the code has changed, and the others when there is time.
TWO = ("worker frozen past its lease", "failover to the standby")
FEW = (
    "worker killed",
    "worker frozen past its lease",
    "PostgreSQL killed",
    "network cut",
    "failover to the standby",
    "pooler killed",
    "handler raises",
    "broker killed",
)
MANY = (
    *FEW,
    "worker stopped gently",
    "worker's row deleted",
    "worker's row given to another",
    "PostgreSQL stopped immediately",
    "backends terminated",
    "connections exhausted",
    "network half open",
    "broker frozen",
)


@pytest.mark.nightly(daily=["two"])
@pytest.mark.parametrize(
    ("jobs", "faults"),
    [(400, TWO), (1_500, FEW), pytest.param(4_000, MANY, marks=pytest.mark.prove)],
    ids=["two", "few", "many"],
)
async def test_nothing_is_lost_doubled_stale_or_out_of_order(
    jobs: int, faults: tuple[str, ...], tmp_path: Path
) -> None:
    # What is lost or doubled does not depend on the machine; how soon all goes on does.
    pace = Pace(lease=1.5, heartbeat=0.3, reap=0.3, idle=16, slack=4)
    plan = Plan(SEED, jobs, len(faults), replicas=3, only=faults, alone=0, pace=pace, quiet=6, events=0.2)
    findings = await prove(plan)
    print(findings.summary())  # noqa: T201 - shown when something is wrong
    assert [str(violation) for violation in findings.violations] == []
    assert findings.story.jobs >= jobs
    assert sorted(name for recovery in findings.recoveries for name in recovery.faults) == sorted(faults)
    assert findings.story.failovers == 1
    assert findings.story.events >= 0.2 * jobs
    assert findings.story.arrived_again == 0, "what the broker had it did not know again"
    assert findings.story.outcomes.get("lost", 0) > 0, "no lease was ever lost: the faults did nothing"

    document = tmp_path / "chaos.md"
    document.write_text(DOCUMENT.read_text("utf-8"), "utf-8")
    write(findings, document, tmp_path / "faults.md")
    written = document.read_text("utf-8")
    assert f"{findings.story.jobs:,} jobs under {len(faults)} faults" in written
    assert all(f"| {name} " in (tmp_path / "faults.md").read_text("utf-8") for name in faults)
    for name in charts(findings):
        assert f"](charts/{name}.svg)" in written
        assert (document.parent / "charts" / f"{name}.svg").read_text("utf-8").startswith("<svg")
