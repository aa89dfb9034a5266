"""The checks: those of checks.sql and events.sql, and those that need more than the database."""

from __future__ import annotations

import re
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import TypeAdapter, ValidationError

from labs.chaos.typed import Receipt, receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from labs.chaos.evidence import Evidence
    from labs.chaos.prober import How

# A probe that was not claimed for so long, in seconds, while no fault was on and a worker had a free slot, was missed.
# One that committed late lies below the claim floors, and is found by the next wider look.
PICKUP: dict[How, float] = {"at once": 2.0, "late": 5.0, "rare": 2.0}
MOST = 10_000
_RECEIPT = TypeAdapter(Receipt)

_BLOCK = re.compile(r"-- name: (.+)\n-- (.+)\n((?:.+\n?)+)")


class Check(NamedTuple):
    name: str
    counts_when: str
    cases: Callable[[Evidence], list[str]]


def of_database() -> list[Check]:
    texts = [(Path(__file__).parent / name).read_text("utf-8") for name in ("checks.sql", "events.sql")]
    return [Check(name, when, _asks(query)) for text in texts for name, when, query in _BLOCK.findall(text)]


def _asks(query: str) -> Callable[[Evidence], list[str]]:
    bounded = f"SELECT * FROM ({query.strip().rstrip(';')}) AS found LIMIT {MOST}".replace("%", "%%")
    return lambda evidence: [case for (case,) in evidence.rows(bounded)]


def forgotten(evidence: Evidence) -> list[str]:
    there = dict(
        evidence.rows(
            "SELECT batch, count(*)"
            " FROM (SELECT batch FROM chaos.promise UNION ALL SELECT batch FROM chaos.published) AS p GROUP BY batch"
        )
    )
    return [
        f"transaction {batch}: {there.get(batch, 0)} of {count} promises"
        for batch, count in evidence.acknowledged.items()
        if there.get(batch, 0) != count
    ]


def recovery(evidence: Evidence) -> list[str]:
    return [
        f"{one.name}: {one.seconds:.1f} s, not within {one.bound} s: {one.missing}"
        for one in evidence.recoveries
        if one.seconds > one.bound
    ]


def deaths(evidence: Evidence) -> list[str]:
    return [f"{one.name} with code {one.code}: …{one.output[-300:]}" for one in evidence.deaths if not one.expected]


def leases(evidence: Evidence) -> list[str]:
    taken = evidence.rows("SELECT job_id, attempt, worker_id FROM holdfast.attempt WHERE outcome = 'lost'")
    return [f"job {job}, attempt {attempt}, of worker {by}" for job, attempt, by in taken] if evidence.well else []


def twice(evidence: Evidence) -> list[str]:
    handed = evidence.rows("SELECT event, count(*) FROM chaos.handed GROUP BY 1 HAVING count(*) > 1")
    arrived = evidence.rows("SELECT event, count(*) FROM chaos.arrival GROUP BY 1 HAVING count(*) > 1")
    found = [f"event {event} was handed over {times} times" for event, times in handed]
    found += [f"event {event} is {times} times in the stream" for event, times in arrived]
    return found if evidence.well else []


def changed(evidence: Evidence) -> list[str]:
    results = evidence.rows("SELECT id, n, result FROM chaos.ended WHERE workload = 'typed' AND status = 'completed'")
    return [f"job {job}: {result}" for job, n, result in results if _receipt(result) != receipt(n)]


def _receipt(result: object) -> Receipt | None:
    try:
        return _RECEIPT.validate_python(result)
    except ValidationError:
        return None


def pickup(evidence: Evidence) -> list[str]:
    return _late(evidence, "at once", "late")


def passed_over(evidence: Evidence) -> list[str]:
    return _late(evidence, "rare")


def _late(evidence: Evidence, *hows: How) -> list[str]:
    begun = {job: begun / 1e9 for job, begun in evidence.rows("SELECT job, first_begun FROM chaos.started")}
    starts = [start for start, _ in evidence.calm]
    late = []
    for probe in evidence.probes:
        if probe.how not in hows:
            continue
        span = bisect_right(starts, probe.committed) - 1
        bound = PICKUP[probe.how] + evidence.slack
        if span >= 0 and probe.committed + bound <= evidence.calm[span][1]:
            waited = begun.get(probe.job, float("inf")) - probe.committed
            if waited > bound:
                late.append(f"probe {probe.job}, committed {probe.how}: {waited:.2f} s")
    return late


CHECKS: tuple[Check, ...] = (
    *of_database(),
    Check(
        "acknowledged and forgotten",
        "A commit was acknowledged and what it wrote is not there: the servers lost a transaction.",
        forgotten,
    ),
    Check("recovery too slow", "The fleet took longer than lease + reap interval + 2 s to recover.", recovery),
    Check("leases lost without cause", "A lease was taken away, and nothing had been done to any worker.", leases),
    Check(
        "events twice without cause",
        "The broker confirmed an event twice, or its stream has it twice, and nothing had been done to any worker.",
        twice,
    ),
    Check(
        "results changed", "The stored result of a handler differs from its return value, in value or in type.", changed
    ),
    Check("worker died by itself", "A worker died, and no fault had made it.", deaths),
    Check(
        "picked up too late",
        "A job was due, no fault was on, a worker had a free slot, and no worker claimed it for "
        f"{PICKUP['at once']:g} s; for {PICKUP['late']:g} s where others had overtaken its commit.",
        pickup,
    ),
    Check(
        "queues passed over",
        "A job was due in one of more queues than a claim takes jobs, no fault was on, and no worker claimed it for "
        f"{PICKUP['rare']:g} s.",
        passed_over,
    ),
)
