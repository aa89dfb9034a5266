"""The short form of `make chaos`: a few thousand jobs under a dozen faults, each once, two or three at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.fault import Pace
from chaos.lab import Plan, prove
from chaos.report import DOCUMENT, charts, write

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20_261_115
JOBS = 4000
FAULTS = (
    "worker killed",
    "worker frozen past its lease",
    "worker stopped gently",
    "worker's row deleted",
    "worker's row given to another",
    "PostgreSQL stopped immediately",
    "PostgreSQL killed",
    "backends terminated",
    "connections exhausted",
    "network cut",
    "network half open",
    "failover to the standby",
    "pooler killed",
    "handler raises",
    "broker killed",
    "broker frozen",
)


async def test_nothing_is_lost_doubled_stale_or_out_of_order(tmp_path: Path) -> None:
    # What is lost or doubled does not depend on the machine; how soon all goes on does.
    pace = Pace(lease=1.5, heartbeat=0.3, reap=0.3, idle=16, slack=4)
    plan = Plan(SEED, JOBS, len(FAULTS), replicas=3, only=FAULTS, alone=0, pace=pace, quiet=6, rate=150, events=0.2)
    findings = await prove(plan)
    print(findings.summary())  # noqa: T201 - shown when something is wrong
    assert [str(violation) for violation in findings.violations] == []
    assert findings.story.jobs >= JOBS
    assert sorted(name for recovery in findings.recoveries for name in recovery.faults) == sorted(FAULTS)
    assert findings.story.failovers == 1
    assert findings.story.events >= 0.2 * JOBS
    assert findings.story.arrived_again == 0, "what the broker had it did not know again"
    assert findings.story.outcomes["lost"] > 0, "no lease was ever lost: the faults did nothing"

    document = tmp_path / "chaos.md"
    document.write_text(DOCUMENT.read_text("utf-8"), "utf-8")
    write(findings, document)
    written = document.read_text("utf-8")
    assert f"{findings.story.jobs:,} jobs under {len(FAULTS)} faults" in written
    for name in charts(findings):
        assert f"](chaos/{name}.svg)" in written
        assert (document.parent / "chaos" / f"{name}.svg").read_text("utf-8").startswith("<svg")
