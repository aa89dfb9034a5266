"""The list of instruments, and that no document names one that is not in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.telemetry import INSTRUMENTS, Instrument

ROOT = Path(__file__).parents[2]
SEEDS = {
    "holdfast.ticks": "holdfast_ticks_total",
    "holdfast.processed": "holdfast_processed_total",
    "holdfast.retried": "holdfast_retried_total",
    "holdfast.dead_letter": "holdfast_dead_letter_total",
    "holdfast.recovered_stuck": "holdfast_recovered_stuck_total",
    "holdfast.reaper.recovered.count": "holdfast_reaper_recovered_count_total",
    "holdfast.reaper.stale.duration": "holdfast_reaper_stale_duration_seconds",
    "holdfast.reaper.runs.total": "holdfast_reaper_runs_total",
}


@pytest.mark.parametrize(("name", "derived"), SEEDS.items())
def test_the_seeds_instruments_have_their_names(name: str, derived: str) -> None:
    [found] = [instrument for instrument in INSTRUMENTS if instrument.name == name]
    assert found.prometheus == derived


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda instrument: instrument.name)
def test_an_instrument_is_named_by_the_rules_of_both_worlds(instrument: Instrument) -> None:
    assert re.fullmatch(r"holdfast(\.[a-z]+(_[a-z]+)*)+", instrument.name)
    assert re.fullmatch(r"holdfast_[a-z_]+", instrument.prometheus)
    assert instrument.prometheus.endswith("_total") == (instrument.sort == "counter")
    assert instrument.prometheus.endswith(("_seconds", "_seconds_total")) == (instrument.unit == "s")
    assert instrument.unit in {"", "s"} or re.fullmatch(r"\{[a-z]+\}", instrument.unit)
    assert instrument.description.endswith(".")
    assert (instrument.sort == "histogram") == bool(instrument.bounds)
    assert list(instrument.bounds) == sorted(instrument.bounds)


def test_no_two_instruments_share_a_name() -> None:
    for names in ([i.name for i in INSTRUMENTS], [i.prometheus for i in INSTRUMENTS]):
        assert len(set(names)) == len(names)


def test_the_page_lists_every_instrument_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "telemetry.md").read_text()
    rows = re.findall(r"^\| `(holdfast\.[a-z._]+)` \| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    assert rows == [
        (i.name, i.prometheus, i.sort, ", ".join(f"`{label}`" for label in i.labels) or "none", i.description)
        for i in INSTRUMENTS
    ]


def known() -> set[str]:
    """Every name under which Prometheus has a series."""
    found = set()
    for instrument in INSTRUMENTS:
        name = instrument.prometheus
        found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if instrument.bounds else {name}
    return found


@pytest.mark.parametrize(
    "path",
    [
        "docs/reference/telemetry.md",
        *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "deploy" / "monitoring").rglob("holdfast.*"))),
    ],
)
def test_every_name_that_is_written_somewhere_is_in_the_list(path: str) -> None:
    text = (ROOT / path).read_text()
    reported = set(re.findall(r"\bholdfast_[a-z_]+\b(?!\*)", text)) - {"holdfast_producer", "holdfast_viewer"}
    assert reported
    assert reported <= known() | {i.prometheus for i in INSTRUMENTS}
