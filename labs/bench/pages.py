"""Every page and every call of the API, behind much history and much that waits: how long it takes, what it touches.

The time is what a client on the same machine sees of `holdfast serve`, questions of all sorts by turns. The buffers are
what PostgreSQL counts for the statements of one call, each explained before it is run.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from datetime import timedelta
from statistics import quantiles
from typing import TYPE_CHECKING

import httpx
import psycopg

from holdfast.ops import operations
from labs.bench.application import app
from labs.bench.counting import Count, counting
from labs.bench.estate import Size, fill
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import ground, progress
from labs.bench.questions import questions
from labs.bench.served import served
from tests.kit.asking import Asked, bearer
from tests.kit.asking import ask as ask_site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.applications import Starlette

    from labs.bench.estate import Estate
    from labs.bench.questions import Ask

MOST_MS = 300
SEARCH_BUFFERS = 200_000
"""Of a question that looks for jobs by what they are: at up to 50,000 in each of three homes, and no more."""
OTHER_BUFFERS = 10_000
GROWTH = 1.5
FEW_BUFFERS = 500
"""A call that touches less may touch more than it did: it is far from any bound."""
REPEATS = 40
PARTS = (1.0, 0.1, 0.01)
_GROWN = "buffers of other calls, against a tenth of the history and of what waits"
ENOUGH = 50_000
"""Of so many pending, every turn of an action finds a hundred."""


def measure(scale: float) -> Section:
    counts: list[dict[str, Count]] = []
    times: dict[str, list[float]] = {}
    asked: list[Ask] = []
    wrong = 0
    with ground(autovacuum="off") as base:
        for part in PARTS:
            with base.database() as url:
                with psycopg.connect(url, autocommit=True) as conn:
                    estate = fill(conn, Size().part(scale * part))
                if part == 1:
                    asked = questions(estate)
                    times, wrong = _timed(url, estate, max(10, round(REPEATS * scale)))
                counts.append(asyncio.run(count(url, estate)))
    slowest = {name: 1000 * quantiles(taken, n=20)[-1] for name, taken in times.items()}
    figures = _figures(asked, slowest, counts, wrong)
    # A search touches what it must look at until it has found enough, up to its bound: how much, is chance.
    plain = [str(ask) for ask in asked if not ask.searches]
    figures.append(Figure(_GROWN, growth(plain, *counts[:2]), limit=GROWTH))
    return Section(figures, [_table(asked, slowest, counts)])


def _figures(
    asked: Sequence[Ask], slowest: Mapping[str, float], counts: Sequence[Mapping[str, Count]], wrong: int
) -> list[Figure]:
    full = counts[0]
    looks = max(slowest[str(ask)] for ask in asked if ask.method == "GET")
    acts = max(slowest[str(ask)] for ask in asked if ask.method != "GET")
    searches = max(full[str(ask)].buffers for ask in asked if ask.searches)
    others = max(full[str(ask)].buffers for ask in asked if not ask.searches)
    census = max((one.buffers for count in full.values() for one in count.census), default=0)
    return [
        Figure("slowest look, 95th of a hundred", looks, limit=MOST_MS, unit=" ms"),
        Figure("slowest action, on up to 100 jobs, 95th of a hundred", acts, limit=MOST_MS, unit=" ms"),
        Figure("answers that were not as expected", wrong, limit=0),
        Figure("most buffers of a search", searches, limit=SEARCH_BUFFERS),
        Figure("most buffers of any other call", others, limit=OTHER_BUFFERS),
        Figure("rows of jobs read without an index", sum(count.scanned for count in full.values()), limit=0),
        Figure("buffers of the census, which no call waits for", census),
    ]


def growth(names: Sequence[str], large: Mapping[str, Count], small: Mapping[str, Count]) -> float:
    """Return by how much the buffers of the worst of these calls have grown, of those that touch more than a few."""
    grown = [large[name].buffers / max(small[name].buffers, 1) for name in names if large[name].buffers > FEW_BUFFERS]
    return max(grown, default=1.0)


def _table(asked: Sequence[Ask], slowest: Mapping[str, float], counts: Sequence[Mapping[str, Count]]) -> str:
    rows = [
        (name, f"{slowest[name]:,.0f}", *(f"{count[name].buffers:,}" for count in counts)) for name in map(str, asked)
    ]
    return table(("", "ms", "buffers", "of a tenth", "of a hundredth"), rows)


def _timed(url: str, estate: Estate, repeats: int) -> tuple[dict[str, list[float]], int]:
    """Ask everything once to warm up, then so often, by turns."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    wrong = 0
    with served(url) as server:
        headers = dict(bearer(estate.token))
        with httpx.Client(base_url=server.url, headers=headers, timeout=30) as client:
            for turn in range(repeats + 1):
                progress(f"pages: turn {turn} of {repeats}")
                for ask in questions(estate, turn):
                    begun = time.perf_counter()
                    answer = _answer(client, ask)
                    if turn:
                        taken[str(ask)].append(time.perf_counter() - begun)
                    if (trouble := _trouble(ask, answer, estate)) is not None:
                        progress(f"pages: {ask}: {trouble}")
                        wrong += 1
    return taken, wrong


def _answer(client: httpx.Client, ask: Ask) -> httpx.Response:
    client.cookies.clear()  # who signs in goes on with the token
    if not ask.streams:
        return client.request(ask.method, ask.target, json=ask.body)
    with client.stream(ask.method, ask.target) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:"):
                break
        return httpx.Response(stream.status_code)


def _trouble(ask: Ask, answer: httpx.Response, estate: Estate) -> str | None:
    if answer.status_code != ask.status:
        return f"{answer.status_code} {answer.text[:200]}"
    if ask.jobs and estate.size.pending >= ENOUGH and (done := answer.json()["done"]) != ask.jobs:
        return f"{done} jobs"
    return None


async def count(url: str, estate: Estate) -> dict[str, Count]:
    """Ask everything, counted, on one connection that has been asked nearly all of it before."""
    site = operations(app, url=url, connections=1, timeout=timedelta(minutes=1))
    asked = questions(estate)
    counts = {}
    try:
        for ask in asked:
            if not ask.searches or ask.what in {"newest", "all"}:
                await _answered(site, ask, estate)
        for ask in asked:
            with counting() as counts[str(ask)]:
                await _answered(site, ask, estate)
    finally:
        await site.state.operations.close()
    return counts


async def _answered(site: Starlette, ask: Ask, estate: Estate) -> None:
    asked = Asked(
        ask.method,
        ask.path,
        ask.parameters,
        bearer(estate.token),
        json=ask.body,
        listens=2 if ask.streams else None,
    )
    answer = await ask_site(site, asked)
    assert answer.status == ask.status, f"{ask}: {answer.status} {answer.body[:200]!r}"
