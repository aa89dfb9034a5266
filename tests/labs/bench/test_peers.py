"""The comparison with the peers: its arithmetic, its page, and (marked prove: they are installed) its adapters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from labs.bench.peers import page
from labs.bench.peers.backlog import multiply
from labs.bench.peers.comparison import entries, thirds
from labs.bench.peers.ground import Ground
from labs.bench.peers.harness import Harness
from labs.bench.peers.peer import EARLIER, NUMBER, TEXT
from labs.bench.peers.place import ADAPTERS
from labs.bench.peers.roster import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

pytestmark = pytest.mark.nightly


def result(drain: float, *, wal: float = 1_000, kept: float = 1, p50: float = 1) -> dict[str, Any]:
    """Return the raw figures of a peer beside a bare loop that drains 100 a second and picks up in 1 ms."""
    late = {"p50": p50, "p95": p50, "p99": p50}
    counts = {"wal": wal / 2, "tuples": 1, "commits": 1, "statements": 1}
    return {
        "bare": {"one": 10, "many": 10, "drain": [100, 100], "pickup": {"p50": 1, "p95": 1, "p99": 1}},
        "speeds": {"one": 10, "many": 10, "drain": [drain, drain], "pickup": late},
        "counts": {"enqueue": counts, "work": counts},
        "held": {"points": [(10, 100), (20, 200), (20, 200), (30, 200 + 100 * kept)]},
    }


def test_the_first_and_the_last_third_are_compared() -> None:
    assert thirds([(1, 100), (2, 200), (3, 250)]) == pytest.approx((100, 50))


def test_between_two_reports_it_went_on_evenly() -> None:
    assert thirds([(6, 600)]) == pytest.approx((100, 100))


def test_the_report_names_rows_where_we_lead_and_where_not() -> None:
    raw = {"holdfast": result(90), "pgqueuer": result(30), "pg-boss": result(95, wal=900, kept=1.5)}
    rows = {line.split("|")[1].strip(): line for line in page.verdicts(entries(raw)).splitlines() if line}
    assert "| ahead " in rows["pgqueuer"]
    assert "**behind in drain, WAL, decay**" in rows["pg-boss"]


def test_a_peer_without_leases_is_not_judged() -> None:
    raw = {"holdfast": result(90), "procrastinate": result(95)}
    assert "procrastinate" not in page.verdicts(entries(raw))


def test_pickup_is_judged_against_the_best_peer() -> None:
    raw = {
        "holdfast": result(90, p50=3),
        "bare": result(90, p50=0.1),
        "pgmq": result(30, p50=50),
        "celery": result(1, p50=1),
    }
    figure = page.pickup(entries(raw))
    assert (figure.value, figure.verdict) == (3, "short")


def test_missing_measurements_are_named() -> None:
    raw = {"holdfast": result(90), "dbos": result(1) | {"errors": {"held": "first\nlast line"}}}
    missing = page.missing(entries(raw))
    assert "- dbos, held: last line" in missing
    assert "- chancy: not run" in missing


def test_the_page_has_a_place_for_every_part() -> None:
    parts = page.parts({"versions": [], "peers": {"holdfast": result(90)}, "soak": {}})
    assert set(re.findall(r"<!-- (\w+) -->", page.PAGE.read_text("utf-8"))) == parts.keys()


def test_charts_are_drawn_of_what_there_is() -> None:
    drawn = page.charts({"peers": {"holdfast": result(90), "bare": result(100)}, "soak": {}})
    assert drawn.keys() == {"peers-drain", "peers-wal", "peers-held"}


def test_every_peer_has_an_adapter_and_every_adapter_a_peer() -> None:
    adapters = {path.name for path in ADAPTERS.glob("*_peer.*")}
    assert adapters == {peer.adapter for peer in BY_NAME.values()}


def test_every_peer_is_pinned() -> None:
    packages = [(*peer.python, *peer.node) for peer in BY_NAME.values() if peer.name not in {"bare", "holdfast"}]
    assert all(packages)
    assert all(re.search(r"[^@=](==|@)\d", package) for group in packages for package in group)


def test_rows_are_copied_with_keys_of_their_own(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn = connect()
    conn.execute(
        "CREATE TABLE copied (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at uuid UNIQUE, name text UNIQUE,"
        " twice bigint GENERATED ALWAYS AS (7 * 2) STORED, data text)"
    )
    conn.execute("INSERT INTO copied (at, name, data) VALUES ('018f3a2b-1c4d-7abc-9def-0123456789ab', 'a', 'same')")
    multiply(conn, {"copied": {"id": NUMBER, "at": EARLIER, "name": TEXT}}, 5)
    rows = conn.execute("SELECT id, at::text, name, data FROM copied ORDER BY at DESC").fetchall()
    assert rows[:2] == [
        (1, "018f3a2b-1c4d-7abc-9def-0123456789ab", "a", "same"),
        (-999_999, "018f3a2a-1c4d-7abc-9def-0123456789ab", "a-1", "same"),
    ]
    assert len(rows) == 5


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Ground() as ground:
        yield ground


@pytest.mark.prove
@pytest.mark.parametrize("name", BY_NAME)
def test_an_adapter_lives(ground: Ground, name: str) -> None:
    """It enqueues one by one and in bulk, works with one and two processes, and wakes; then its rows are copied."""
    peer = BY_NAME[name]
    harness = Harness(ground, peer, scale=0.0001)
    speeds = harness.speeds()
    assert all(rate > 0 for rate in (speeds["one"], speeds["many"], *speeds["drain"]))
    assert 0 < speeds["pickup"]["p50"] <= speeds["pickup"]["p99"]
    if peer.store == "postgres":
        counts = harness.counts()
        assert counts["enqueue"]["tuples"] >= 1
        assert counts["work"]["wal"] > 0
        if peer.keeps:
            assert harness.behind()["drain"] > 0
