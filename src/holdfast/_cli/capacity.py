"""Compute what a deployment can bear, from its load, its workers and its hardware, and what gives out first.

The costs of jobs and events are measured ones. Give the figures of your hardware, or let --measure find them.
"""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from holdfast._capacity.ceiling import HEADROOM, Ceiling, find_ceiling, workers_for
from holdfast._capacity.costs import measured
from holdfast._capacity.deployment import Deployment
from holdfast._capacity.speed import measure_speed
from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.progress import bar
from holdfast._cli.session import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._capacity.ceiling import ResourceLine
    from holdfast._capacity.resources import Demand
    from holdfast._capacity.speed import Speed

_SIZES = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?B?)", re.IGNORECASE)
_COLUMNS = ("resource", "needed", "there is", "share", "gives out at")
_MOST = 1e9
_LARGE = 1000
# The remedy for each resource.
_ADVICE = {
    "CPU of the server": "more cores, or fewer calls: --enqueue-batch",
    "CPU of the machine": "more cores, or machines of their own for the workers",
    "CPU of the workers": "more worker processes",
    "slots of the workers": "more worker processes, or more slots: HOLDFAST_CONCURRENCY",
    "claims of the workers": "larger claims: HOLDFAST_BATCH_SIZE, or more worker processes",
    "WAL": "a faster disk, or smaller payloads",
    "commits": "a faster disk, or more jobs per transaction: --enqueue-batch",
    "connections": "more connections, or fewer workers with more slots each",
    "disk": "a larger disk, or fewer days: --retention, and an archive",
}


def _size(text: str) -> float:
    """Parse `500GB`, `1.5TB` or a number of bytes."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write bytes, or 10kB, 500GB, 1.5TB")
    unit = found[2].upper()
    return float(found[1]) * _SIZES[unit if unit.endswith("B") or not unit else f"{unit}B"]


def _scaled(parse: Callable[[str], float], factor: float) -> Callable[[str], float]:
    return lambda text: parse(text) * factor


_NUMBER = args.number(0, _MOST)
_MS = _scaled(_NUMBER, 1e-3)
# By group: an option, the field of a deployment that it sets, how it is read, and its help.
_OPTIONS: dict[str, Sequence[tuple[str, str, Callable[[str], float], str, str]]] = {
    "load": (
        ("--payload", "payload", _size, "SIZE", "of a job (default: 1000)"),
        ("--enqueue-batch", "enqueue_batch", args.number(1, _MOST), "N", "jobs per call of a producer (default: 1)"),
        ("--handler-ms", "handler", _MS, "MS", "time that a handler waits"),
        ("--handler-cpu-ms", "handler_cpu", _MS, "MS", "CPU time of a handler"),
        ("--failed", "failed", _scaled(args.number(0, 100), 0.01), "PERCENT", "jobs that fail for good"),
        ("--events-per-second", "events", _NUMBER, "N", "default: 0"),
        ("--event-payload", "event_payload", _size, "SIZE", "of an event (default: 1000)"),
        ("--subscriptions", "subscriptions", args.whole(0, 1000), "N", "that relay every event (default: 1)"),
    ),
    "retention, in days": (
        ("--retention", "days", _NUMBER, "DAYS", "default: 14"),
        ("--retention-failed", "days_failed", _NUMBER, "DAYS", "default: 90"),
        ("--retention-events", "days_events", _NUMBER, "DAYS", "default: 7"),
    ),
    "workers": (
        ("--workers", "workers", args.whole(1, 100_000), "N", "default: as many as the load needs"),
        ("--concurrency", "concurrency", args.whole(1, 10_000), "N", "default: 10"),
        ("--batch-size", "batch", args.whole(1, 10_000), "N", "default: 50"),
        ("--round-trip-ms", "round_trip", _MS, "MS", "to the server (default: 0.5)"),
    ),
    "hardware of the server": (
        ("--cores", "cores", args.number(0.1, _MOST), "N", "default: 4"),
        ("--disk", "disk", _size, "SIZE", "for history (default: 100GB)"),
        ("--wal-mb-per-second", "wal", _scaled(args.number(0.1, _MOST), 1e6), "N", "default: 100"),
        ("--commits-per-second", "commits", args.number(1, _MOST), "N", "default: 5000"),
        ("--commit-ms", "commit", _MS, "MS", "time of one commit (default: 2)"),
        ("--connections", "connections", args.whole(1, 1_000_000), "N", "for workers (default: 100)"),
    ),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs-per-second", type=_NUMBER, required=True, metavar="N", dest="jobs")
    for title, options in _OPTIONS.items():
        group = parser.add_argument_group(title)
        for option, field, parse, metavar, help_ in options:
            # An option that is not given leaves the default of the deployment, or what was measured.
            group.add_argument(option, dest=field, type=parse, metavar=metavar, help=help_, default=argparse.SUPPRESS)
    parser.add_argument("--shared", action="store_true", help="workers and producers run on the server's cores too")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure the database's server and this machine for five seconds; writes 64 MB of WAL, and no table",
    )
    args.configure(parser)


def run(arguments: argparse.Namespace) -> None:
    costs, speed, found = measured(), None, {}
    if arguments.measure:
        database = session.chosen(arguments)
        speed = measure_speed(lambda: session.connect(database), refused=CommandError)
        found = {
            "wal": speed.wal,
            "commits": speed.commits,
            "commit": speed.commit_seconds,
            "round_trip": speed.round_trip,
            "server_speed": costs.reference.server_seconds / speed.server_seconds,
            "client_speed": costs.reference.client_seconds / speed.client_seconds,
        }
    names = {field.name for field in fields(Deployment)}
    given = {name: value for name, value in vars(arguments).items() if name in names}
    plan = Deployment(**(found | given))
    if "workers" not in given:
        plan = plan.served_by(workers_for(plan, costs))
    ceiling = find_ceiling(plan, costs)
    if arguments.json:
        table.print_json(_described(ceiling, speed))
    else:
        _print(ceiling, speed)


def _print(found: Ceiling, speed: Speed | None) -> None:
    plan, first = found.plan, found.first
    if speed is not None:
        print(
            f"measured: a server core at {plan.server_speed:.2f} and this machine at {plan.client_speed:.2f} of the "
            f"reference's speed, {_amount(speed.commits, '1/s')} commits, {speed.commit_seconds * 1000:.1f} ms each, "
            f"{_amount(speed.wal, 'B/s')} of WAL, round trip {speed.round_trip * 1000:.2f} ms\n"
        )
    workers = f"{plan.workers:,} worker{'s' if plan.workers > 1 else ''} of {plan.concurrency} slots"
    print(f"{plan.jobs:,.0f} jobs/s of {_amount(plan.payload, 'B')}, {workers}\n")
    table.print_table(_COLUMNS, [_row(line) for line in found.lines])
    print(f"\nThe ceiling is {_rate(found.rate)}: {first.demand.resource} gives out first.")
    short = [line.demand for line in found.lines if line.demand.share > HEADROOM]
    for demand in sorted(short, key=lambda demand: -demand.share):
        print(f"  {demand.resource}: {_need(demand)}")
    if not short:
        print(f"At {_rate(plan.jobs)} every resource is used to {HEADROOM:.0%} at most.")


def _need(demand: Demand) -> str:
    need = _amount(math.ceil(demand.used / HEADROOM) if demand.unit != "cores" else demand.used / HEADROOM, demand.unit)
    return f"{need} would use it to {HEADROOM:.0%}. {_ADVICE[demand.resource].capitalize()}"


def _row(line: ResourceLine) -> tuple[str, ...]:
    demand = line.demand
    return (
        demand.resource,
        _amount(demand.used, demand.unit),
        _amount(demand.available, demand.unit),
        f"{bar(demand.share)} {demand.share:>6.0%}",
        "-" if math.isinf(line.ceiling) else _rate(line.ceiling),
    )


def _rate(rate: float) -> str:
    return f"{_rounded(rate)} jobs/s"


def _rounded(value: float) -> str:
    """Return two to three figures: the costs are no better than that."""
    if value >= _LARGE:
        digits = 2 - math.floor(math.log10(value))
        return f"{round(value, digits):,.0f}"
    return f"{value:.3g}"


def _amount(value: float, unit: str) -> str:
    if unit in {"B", "B/s"}:
        power = min(max(int(math.log10(max(value, 1.0)) // 3), 0), 5)
        return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P'][power]}{unit}"
    return f"{_rounded(value)} {unit.removesuffix('s') if value == 1 else unit}".strip()


def _described(found: Ceiling, speed: Speed | None) -> dict[str, object]:
    return {
        "jobs_per_second": found.plan.jobs,
        "ceiling": found.rate,
        "first": found.first.demand.resource,
        "fits": found.fits,
        "workers": found.plan.workers,
        "resources": [
            {
                **line.demand._asdict(),
                "share": line.demand.share,
                "ceiling": None if math.isinf(line.ceiling) else line.ceiling,
            }
            for line in found.lines
        ],
        "measured": None if speed is None else speed._asdict(),
        "deployment": asdict(found.plan),
    }
