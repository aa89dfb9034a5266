"""report.md: the text is written by people, the figures between the markers by the full run.

How often each fault struck, and how long the recovery took, is in results.md, beside this file.
"""

from __future__ import annotations

import os
import platform
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from labs.bench.figure import table
from labs.bench.report import replaced
from labs.chaos import chart, checks
from labs.chaos.breaks import results

if TYPE_CHECKING:
    from labs.chaos.lab import Findings

DOCUMENT = Path(__file__).with_name("report.md")
TABLE = Path(__file__).with_name("results.md")


def write(findings: Findings, document: Path = DOCUMENT, faults: Path = TABLE) -> None:
    """Replace the figures, the pictures, and the table of the faults."""
    parts = [_head(findings), _verdict(findings), *_pictures(), _twice(findings), _events(findings)]
    figures = "\n\n".join(parts)
    text = replaced(document.read_text("utf-8"), "run", figures)
    if results.FILE.exists():
        text = replaced(text, "breaks", results.table().strip())
    document.write_text(text, "utf-8")
    faults.write_text(f"# The faults of the last full run\n\n{_head(findings)}\n\n{_faults(findings)}\n", "utf-8")
    folder = document.parent / "charts"
    folder.mkdir(exist_ok=True)
    for name, svg in charts(findings).items():
        (folder / f"{name}.svg").write_text(svg, "utf-8")


def charts(findings: Findings) -> dict[str, str]:
    """Return the pictures by name."""
    times = dict(sorted(_times(findings).items(), key=lambda item: max(item[1])))
    counts = dict(_counts(findings).most_common())
    return {
        "throughput": chart.timeline("jobs ended per second", findings.story.throughput, findings.recoveries),
        "recovery": chart.spread("recovery after being healed", "seconds", times, findings.plan.pace.bound),
        "faults": chart.bars("how often each fault struck", counts),
    }


def _head(findings: Findings) -> str:
    story, plan, faults = findings.story, findings.plan, sum(_counts(findings).values())
    version = os.environ.get("HOLDFAST_CHAOS_POSTGRES", "15")
    return (
        f"**{story.jobs:,} jobs under {faults} faults**, {story.events:,} of them made of events, in "
        f"{findings.seconds / 60:.0f} minutes, seed {plan.seed}. PostgreSQL {version}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores, {plan.replicas} replicas; lease {plan.pace.lease:g} s, "
        f"heartbeat {plan.pace.heartbeat:g} s, reap interval {plan.pace.reap:g} s."
    )


def _verdict(findings: Findings) -> str:
    found = {violation.check: violation.times for violation in findings.violations}
    rows = [(check.name, check.counts_when, f"{found.get(check.name, 0):,}") for check in checks.CHECKS]
    return table(("what must not happen", "when it counts", "found"), rows)


def _pictures() -> list[str]:
    return [f"![{name}](charts/{name}.svg)" for name in ("throughput", "recovery", "faults")]


def _faults(findings: Findings) -> str:
    times = _times(findings)
    rows = [
        (name, f"{count:,}", f"{_median(times[name]):.1f}", f"{max(times[name]):.1f}")
        for name, count in sorted(_counts(findings).items())
    ]
    return table(("fault", "times", "recovery, median (s)", "longest (s)"), rows)


def _twice(findings: Findings) -> str:
    story = findings.story
    outcomes = [(name, f"{count:,}") for name, count in story.outcomes.items()]
    share = 100 * story.plain_twice / max(1, story.plain)
    again = (
        f"A plain handler ran again, though it had not failed, for **{story.plain_twice:,} of {story.plain:,}** plain "
        f"jobs ({share:.2f} %): its worker died, lost its lease, or gave the job back. That is at least once, and "
        "allowed."
    )
    rest = (
        f"{story.rolled_back:,} jobs were enqueued in transactions that were rolled back; of {story.unknown:,} "
        f"transactions the answer to COMMIT never came. {story.starts:,} worker processes were started, "
        f"and {story.ticks:,} one-shot ticks beside them, which completed {story.ticked:,} jobs; "
        f"{story.failovers} times a standby was promoted, {story.singletons:,} times the singleton runner ran. Half of "
        f"the {len(story.probes):,} probes, enqueued one by one all the time, were running after "
        f"{1000 * _median(story.probes or [0.0]):.0f} ms."
    )
    if story.pooler_falls:
        rest += f" PgBouncer fell by itself, and was started again at once, {len(story.pooler_falls)} times."
    workloads = table(("workload", "jobs"), [(name, f"{count:,}") for name, count in story.workloads.items()])
    return "\n\n".join([again, workloads, table(("attempts that did not simply complete", ""), outcomes), rest])


def _events(findings: Findings) -> str:
    story = findings.story
    return table(
        ("events", ""),
        [
            ("committed, arrived in the broker's stream, and made a job each", f"{story.events:,}"),
            ("rolled back, with their transaction or with a savepoint", f"{story.rolled_back_events:,}"),
            ("handed over again, after a fault: at least once, and allowed", f"{story.handed_again:,}"),
            ("of those, not deduplicated by the broker", f"{story.arrived_again:,}"),
        ],
    )


def _counts(findings: Findings) -> Counter[str]:
    return Counter(name for one in findings.recoveries for name in one.faults)


def _times(findings: Findings) -> dict[str, list[float]]:
    times: dict[str, list[float]] = defaultdict(list)
    for one in findings.recoveries:
        for name in one.faults:
            times[name].append(one.seconds)
    return times


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
