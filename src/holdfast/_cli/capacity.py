"""Compute what a deployment can bear, from its load, its workers and its hardware, and what gives out first.

The costs of jobs and events are measured ones. Give the figures of your hardware, or let --measure find them.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from holdfast._capacity.ceiling import HEADROOM, Ceiling, find_ceiling, workers_for
from holdfast._capacity.costs import measured
from holdfast._capacity.deployment import Deployment
from holdfast._capacity.speed import measure_speed
from holdfast._cli import arguments as args
from holdfast._cli import session, table
from holdfast._cli.session import CommandError
from holdfast._model.settings import Settings

if TYPE_CHECKING:
    from holdfast._capacity.ceiling import ResourceLine
    from holdfast._capacity.costs import Costs
    from holdfast._capacity.resources import Demand
    from holdfast._capacity.speed import Speed

_WIDTH = 20
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


def configure(parser: argparse.ArgumentParser) -> None:
    defaults = Settings.load({})
    load = parser.add_argument_group("load")
    load.add_argument("--jobs-per-second", type=args.number(0, _MOST), required=True, metavar="N", dest="jobs")
    load.add_argument("--payload", type=_size, default=1000.0, metavar="SIZE", help="of a job (default: 1000)")
    load.add_argument(
        "--enqueue-batch",
        type=args.number(1, _MOST),
        default=1.0,
        metavar="N",
        help="jobs per call of a producer (default: 1)",
    )
    load.add_argument(
        "--handler-ms", type=args.number(0, _MOST), default=0.0, metavar="MS", help="time that a handler waits"
    )
    load.add_argument(
        "--handler-cpu-ms", type=args.number(0, _MOST), default=0.0, metavar="MS", help="CPU time of a handler"
    )
    load.add_argument(
        "--failed", type=args.number(0, 100), default=0.0, metavar="PERCENT", help="jobs that fail for good"
    )
    load.add_argument("--events-per-second", type=args.number(0, _MOST), default=0.0, metavar="N", dest="events")
    load.add_argument("--event-payload", type=_size, default=1000.0, metavar="SIZE", help="of an event (default: 1000)")
    load.add_argument(
        "--subscriptions", type=args.whole(0, 1000), default=1, metavar="N", help="that relay every event (default: 1)"
    )
    kept = parser.add_argument_group("retention, in days")
    kept.add_argument(
        "--retention", type=args.number(0, _MOST), default=14.0, metavar="DAYS", dest="days", help="default: 14"
    )
    kept.add_argument(
        "--retention-failed",
        type=args.number(0, _MOST),
        default=90.0,
        metavar="DAYS",
        dest="days_failed",
        help="default: 90",
    )
    kept.add_argument(
        "--retention-events",
        type=args.number(0, _MOST),
        default=7.0,
        metavar="DAYS",
        dest="days_events",
        help="default: 7",
    )
    fleet = parser.add_argument_group("workers")
    fleet.add_argument("--workers", type=args.whole(1, 100_000), metavar="N", help="default: as many as the load needs")
    fleet.add_argument("--concurrency", type=args.whole(1, 10_000), default=defaults.concurrency, metavar="N")
    fleet.add_argument(
        "--batch-size", type=args.whole(1, 10_000), default=defaults.batch_size, metavar="N", dest="batch"
    )
    fleet.add_argument("--round-trip-ms", type=args.number(0, _MOST), metavar="MS", help="to the server (default: 0.5)")
    hardware = parser.add_argument_group("hardware of the server")
    hardware.add_argument("--cores", type=args.number(0.1, _MOST), default=4.0, metavar="N", help="default: 4")
    hardware.add_argument("--shared", action="store_true", help="workers and producers run on these cores too")
    hardware.add_argument("--disk", type=_size, default=100e9, metavar="SIZE", help="for history (default: 100GB)")
    hardware.add_argument("--wal-mb-per-second", type=args.number(0.1, _MOST), metavar="N", help="default: 100")
    hardware.add_argument("--commits-per-second", type=args.number(1, _MOST), metavar="N", help="default: 5000")
    hardware.add_argument(
        "--commit-ms", type=args.number(0, _MOST), metavar="MS", help="time of one commit (default: 2)"
    )
    hardware.add_argument(
        "--connections", type=args.whole(1, 1_000_000), default=100, metavar="N", help="for workers (default: 100)"
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure the database's server and this machine for five seconds; writes 64 MB of WAL, and no table",
    )
    args.configure(parser)


def run(arguments: argparse.Namespace) -> None:
    costs = measured()
    speed = measure_speed(lambda: session.connect(arguments), refused=CommandError) if arguments.measure else None
    plan = _deployment(arguments, costs, speed)
    if arguments.workers is None:
        plan = plan.served_by(workers_for(plan, costs))
    found = find_ceiling(plan, costs)
    if arguments.json:
        table.print_json(_described(found, speed))
    else:
        _print(found, speed)


def _deployment(arguments: argparse.Namespace, costs: Costs, speed: Speed | None) -> Deployment:
    """Return the deployment of these options. An option comes before what was measured."""
    given = Deployment(
        jobs=arguments.jobs,
        payload=arguments.payload,
        enqueue_batch=arguments.enqueue_batch,
        handler=arguments.handler_ms / 1000,
        handler_cpu=arguments.handler_cpu_ms / 1000,
        failed=arguments.failed / 100,
        days=arguments.days,
        days_failed=arguments.days_failed,
        days_events=arguments.days_events,
        events=arguments.events,
        event_payload=arguments.event_payload,
        subscriptions=arguments.subscriptions,
        workers=arguments.workers or 1,
        concurrency=arguments.concurrency,
        batch=arguments.batch,
        cores=arguments.cores,
        shared=arguments.shared,
        connections=arguments.connections,
        disk=arguments.disk,
    )
    if speed is not None:
        given = replace(
            given,
            wal=speed.wal,
            commits=speed.commits,
            commit=speed.commit_seconds,
            round_trip=speed.round_trip,
            server_speed=costs.reference.server_seconds / speed.server_seconds,
            client_speed=costs.reference.client_seconds / speed.client_seconds,
        )
    options = {
        "wal": _scaled(arguments.wal_mb_per_second, 1e6),
        "commits": arguments.commits_per_second,
        "commit": _scaled(arguments.commit_ms, 1e-3),
        "round_trip": _scaled(arguments.round_trip_ms, 1e-3),
    }
    return replace(given, **{name: value for name, value in options.items() if value is not None})


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


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
    marks = "█·" if _can_print("█·") else "#."
    return (
        demand.resource,
        _amount(demand.used, demand.unit),
        _amount(demand.available, demand.unit),
        f"{bar(demand.share, *marks)} {demand.share:>6.0%}",
        "-" if math.isinf(line.ceiling) else _rate(line.ceiling),
    )


def bar(share: float, full: str = "█", empty: str = "·") -> str:
    """Return a bar for a share of a whole; `>` at its end: more than the whole.

    >>> bar(0.25), bar(1.5)
    ('█████···············', '███████████████████>')
    """
    if share > 1:
        return full * (_WIDTH - 1) + ">"
    return (full * round(share * _WIDTH)).ljust(_WIDTH, empty)


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


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


def _size(text: str) -> float:
    """Parse `500GB`, `1.5TB` or a number of bytes."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write bytes, or 10kB, 500GB, 1.5TB")
    unit = found[2].upper()
    return float(found[1]) * _SIZES[unit if unit.endswith("B") or not unit else f"{unit}B"]
