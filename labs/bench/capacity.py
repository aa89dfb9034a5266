"""The ceiling that `holdfast capacity` computes, against worker processes and producers that go as fast as they can.

All run on this machine, at three sizes of payload and with three numbers of worker processes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import psycopg

from holdfast._capacity.ceiling import find_ceiling
from holdfast._capacity.costs import measured
from holdfast._capacity.deployment import Deployment
from holdfast._capacity.speed import measure_speed
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import ground, progress
from labs.bench.sustained import Case, Sustained, sustain

if TYPE_CHECKING:
    from holdfast._capacity.speed import Speed
    from labs.bench.ground import Ground

WITHIN = 0.25
SECONDS = 8.0
ROUNDS = 3


CASES = (
    Case(100, 2, 100),
    Case(1_000, 2, 100),
    Case(10_000, 2, 100),
    Case(1_000, 1, 100),
    Case(1_000, 4, 100),
    Case(1_000, 2, 10),
)


def measure(scale: float) -> Section:
    costs = measured()
    found: dict[Case, list[tuple[float, Sustained]]] = {case: [] for case in CASES}
    for turn in range(max(1, round(ROUNDS * scale))):
        with ground(autovacuum="on") as base:
            speed = _speed(base)
            for case in CASES:
                progress(f"capacity: round {turn + 1}, {case}")
                expected = find_ceiling(deployment(case, speed), costs)
                progress(f"  expected {expected.rate:,.0f}/s, by {expected.first.demand.resource}")
                found[case].append((expected.rate, sustain(base, case, max(2.0, SECONDS * scale))))
                progress(f"  measured {found[case][-1][1].rate:,.0f}/s")
    rows, figures = [], []
    for case, runs in found.items():
        expected_rate, rate = median(run[0] for run in runs), median(run[1].rate for run in runs)
        figures.append(
            Figure(f"computed against measured: {case}", expected_rate / rate, least=1 - WITHIN, limit=1 + WITHIN)
        )
        rows.append((str(case), f"{expected_rate:,.0f}", f"{rate:,.0f}", *_parts([run[1] for run in runs])))
    head = ("", "computed, jobs/s", "measured", "server, µs/job", "workers", "producer", "WAL, B/job")
    return Section(figures, [table(head, rows)])


def _speed(base: Ground) -> Speed:
    with base.database() as url:
        return measure_speed(lambda: psycopg.connect(url, autocommit=True))


def _parts(runs: list[Sustained]) -> tuple[str, ...]:
    micro = [(run.spent.server, run.spent.clients, run.producer) for run in runs]
    jobs = [run.spent.jobs for run in runs]
    cpu = [median(parts[n] / done for parts, done in zip(micro, jobs, strict=True)) * 1e6 for n in range(3)]
    return (*(f"{part:,.0f}" for part in cpu), f"{median(run.spent.wal / run.spent.jobs for run in runs):,.0f}")


def deployment(case: Case, speed: Speed) -> Deployment:
    """Return the deployment as `holdfast capacity --measure --shared` would describe this machine."""
    reference = measured().reference
    return replace(
        Deployment(jobs=1.0),
        payload=case.payload,
        enqueue_batch=case.enqueue_batch,
        workers=case.workers,
        batch=case.batch,
        concurrency=case.concurrency,
        cores=os.cpu_count() or 1,
        shared=True,
        disk=1e15,
        wal=speed.wal,
        commits=speed.commits,
        commit=speed.commit_seconds,
        round_trip=speed.round_trip,
        server_speed=reference.server_seconds / speed.server_seconds,
        client_speed=reference.client_seconds / speed.client_seconds,
    )
