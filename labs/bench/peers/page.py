"""report.md: people write the text; tables, verdicts and charts between the markers come from here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.bench import chart
from labs.bench.figure import Figure, table
from labs.bench.peers.comparison import COUNTED, Entry, entries, ours, p99_by_span, rates
from labs.bench.peers.harness import percentiles
from labs.bench.peers.roster import BY_NAME
from labs.bench.report import replaced

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).with_name("report.md")
RAW = Path(__file__).with_name("results.json")
PICKUP_MOST = 1.5
NOTHING = "\N{EN DASH}"
CHARTED = ("bare", "holdfast", "graphile-worker", "pgqueuer")
_SPEEDS = (("one", None), ("many", None), ("drain", 0), ("drain", 1))


def load() -> dict[str, Any]:
    if not RAW.exists():
        return {"peers": {}, "soak": {}}
    found: dict[str, Any] = json.loads(RAW.read_text("utf-8"))
    return found


def save(raw: dict[str, Any]) -> None:
    """Keep the raw figures, and write the page anew from all of them."""
    RAW.write_text(json.dumps(raw, separators=(",", ":")) + "\n", "utf-8")
    text = PAGE.read_text("utf-8")
    for name, figures in parts(raw).items():
        text = replaced(text, name, figures)
    PAGE.write_text(text, "utf-8")
    for name, svg in charts(raw).items():
        (PAGE.parent / "charts" / f"{name}.svg").write_text(svg, "utf-8")


def parts(raw: dict[str, Any]) -> dict[str, str]:
    """Return what stands between the markers, by their names."""
    found = entries(raw["peers"])
    return {
        "machine": machine(raw),
        "verdicts": verdicts(found),
        "speeds": speeds(found),
        "counts": counts(found),
        "steady": steady(found),
        "held": held_jobs(found),
        "soak": soak(raw["soak"]),
        "missing": missing(found),
    }


def machine(raw: dict[str, Any]) -> str:
    packages = [package for peer in BY_NAME.values() for package in (*peer.python[:1], *peer.node)]
    servers = ", ".join(raw.get("versions", []))
    return f"{os.cpu_count()} cores, {servers}. {', '.join(packages)}."


def verdicts(found: Sequence[Entry]) -> str:
    """Say where Holdfast is ahead and where not, peer by peer, and of pickup against the best."""
    if (we := ours(found)) is None:
        return "Holdfast was not measured."
    rows = []
    for entry in found:
        if entry is we or not entry.peer.leases:
            continue
        compared = {
            "drain": _quotient(we.drain, entry.drain),
            "WAL": _quotient(entry.counted("wal"), we.counted("wal")),
            "decay": _quotient(we.kept, entry.kept),
        }
        short = [name for name, value in compared.items() if value is not None and value < 1]
        words = "ahead" if not short else f"**behind in {', '.join(short)}**"
        rows.append((entry.peer.name, *(_times(value) for value in compared.values()), words))
    head = ("per-job lease", "drain rate, times theirs", "their WAL, times ours", "kept, times theirs", "Holdfast is")
    return "\n\n".join([table(head, rows), table(("", "measured", "bar", ""), [pickup(found).row()])])


def pickup(found: Sequence[Entry]) -> Figure:
    others = [entry.pickup_ratio for entry in found if entry.peer.name not in {"bare", "holdfast"}]
    best = min((ratio for ratio in others if ratio is not None), default=float("nan"))
    we = ours(found)
    ratio = we.pickup_ratio if we is not None and we.pickup_ratio is not None else float("nan")
    return Figure("median pickup of Holdfast, against the best peer's", ratio / best, limit=PICKUP_MOST)


def speeds(found: Sequence[Entry]) -> str:
    rows = []
    for entry in found:
        cells = [_rate(entry.speed(*key), entry.ratio(*key)) for key in _SPEEDS]
        late = entry.pickup
        pickups = NOTHING if late is None else " / ".join(f"{late[name]:.1f}" for name in ("p50", "p95", "p99"))
        lease = "yes" if entry.peer.leases else "no"
        rows.append((entry.peer.name, entry.peer.language, lease, *cells, pickups, _times(entry.pickup_ratio)))
    head = ("", "in", "per-job lease", "one by one /s", "bulk /s", "drain, 1 process /s", "2 processes /s")
    return table((*head, "pickup p50 / p95 / p99 ms", "p50, times bare"), rows)


def counts(found: Sequence[Entry]) -> str:
    rows = []
    for entry in sorted(found, key=lambda entry: entry.counted("wal") or 0):
        if entry.counted("wal") is None:
            continue
        wal = [f"{entry.counted('wal', *part) or 0:,.0f}" for part in (("enqueue",), ("work",), ())]
        rows.append((entry.peer.name, *wal, *(_count(entry.counted(name)) for name in COUNTED[1:])))
    head = ("", "WAL of enqueue, B", "WAL of work, B", "WAL, B", "tuples written", "commits", "statements")
    return table(head, rows)


def steady(found: Sequence[Entry]) -> str:
    rows = []
    for entry in found:
        if entry.peer.store == "redis":
            continue
        behind, held = entry.behind, entry.held
        gone = "keeps none" if not entry.peer.keeps else NOTHING
        past = gone if behind is None else f"{behind[0]:,.0f} → {behind[1]:,.0f}"
        rows.append(
            (
                entry.peer.name,
                past,
                "" if behind is None else f"{behind[1] / behind[0]:.2f}",
                NOTHING if held is None else f"{held[0]:,.0f} → {held[1]:,.0f}",
                _times(entry.kept),
                f"{entry.raw['held']['points'][-1][1]:,}" if held else NOTHING,
            )
        )
    head = (
        "jobs/s",
        "none → a million finished behind",
        "kept",
        "held snapshot, first → last third",
        "kept",
        "jobs done",
    )
    return table(head, rows)


def held_jobs(found: Sequence[Entry]) -> str:
    rows = [(entry.peer.name, entry.peer.settings, entry.peer.lease) for entry in found]
    return table(("", "configuration", "how a job is held, and finished"), rows)


def soak(results: dict[str, Any]) -> str:
    if not results:
        return "Not run yet."
    rows = []
    for name, result in results.items():
        late = result["pickup"]
        spans = [value for _, value in result["p99"]]
        third = max(1, len(spans) // 3)
        ends = [sum(part) / len(part) for part in (spans[:third], spans[-third:])] if spans else [0.0, 0.0]
        lost = result["rate"] * result["seconds"] - result["done"]
        of = f"{result['rate']}/s for {result['seconds'] / 60:.0f} min"
        rows.append((name, of, *(f"{late[key]:.1f}" for key in late), f"{ends[0]:.1f} → {ends[1]:.1f}", str(lost)))
    return table(("ms", "", "p50", "p95", "p99", "p99, first → last third", "not started"), rows)


def missing(found: Sequence[Entry]) -> str:
    failed = [
        f"- {entry.peer.name}, {part}: {error.splitlines()[-1] if error else 'no reason given'}"
        for entry in found
        for part, error in entry.raw.get("errors", {}).items()
    ]
    absent = [f"- {name}: not run" for name in BY_NAME if name not in {entry.peer.name for entry in found}]
    return "\n".join([*failed, *absent]) or "Nothing."


def charts(raw: dict[str, Any]) -> dict[str, str]:
    found = entries(raw["peers"])
    drains = {entry.peer.name: entry.drain for entry in found if entry.drain is not None}
    wal = {entry.peer.name: value for entry in found if (value := entry.counted("wal")) is not None}
    held = {
        entry.peer.name: rates(entry.raw["held"]["points"])
        for entry in found
        if entry.peer.name in CHARTED and entry.held is not None
    }
    drawn = {
        "peers-drain": chart.bars("Drain with one process, times the bare loop", drains, emphasis="holdfast"),
        "peers-wal": chart.bars(
            "WAL per job, bytes", dict(sorted(wal.items(), key=lambda item: item[1])), emphasis="holdfast"
        ),
    }
    if held := {name: points for name, points in held.items() if points}:
        drawn["peers-held"] = chart.lines("Drain while a snapshot is held (jobs/s)", "seconds", held)
    if raw["soak"]:
        series = {name: result["p99"] for name, result in raw["soak"].items() if result["p99"]}
        if series:
            drawn["peers-soak"] = chart.lines("p99 from enqueue to handler at a fixed rate (ms)", "seconds", series)
    return drawn


def compact(result: dict[str, Any]) -> dict[str, Any]:
    """Return a soak's percentiles, of all and of each span, in place of each job's time."""
    late = result.pop("late")
    return result | {"p99": p99_by_span(late), "pickup": percentiles([value for _, value in late])}


def _quotient(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other


def _times(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _rate(speed: float | None, ratio: float | None) -> str:
    return NOTHING if speed is None or ratio is None else f"{speed:,.0f} ({ratio:.3f})"


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}" if value < 1 else f"{value:.2f}"
