"""The same work against every peer.

python -m labs.bench peers                       all; writes report.md and its charts
python -m labs.bench peers --only holdfast pgmq  some; their figures replace those they had
python -m labs.bench peers --scale 0.05          smaller; prints, and writes nothing
python -m labs.bench peers --soak 20             20 minutes at a fixed rate: Holdfast, the bare loop, two of the nearest
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from labs.bench.ground import progress
from labs.bench.peers import page
from labs.bench.peers.ground import Ground
from labs.bench.peers.harness import Harness, measure
from labs.bench.peers.roster import BARE, BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

SOAKED = ("bare", "holdfast", "graphile-worker", "pgqueuer")
RATE = 200


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m labs.bench peers", description="The same work against every peer.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=BY_NAME, help=", ".join(BY_NAME))
    parser.add_argument("--scale", type=float, default=1.0, help="sizes and times, as a part of the full ones")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="the soak alone, all of them at once")
    parser.add_argument("--rate", type=int, default=RATE, help="jobs a second of the soak (%(default)s)")
    chosen = parser.parse_args(arguments)
    if chosen.soak and sum(BY_NAME[name].store == "redis" for name in chosen.only or ()) > 1:
        parser.error("there is one Redis: only one peer of those that use it can soak at a time")
    raw = page.load()
    with Ground() as ground:
        raw["versions"] = ground.versions
        if chosen.soak:
            fresh = _soak(ground, chosen.only or SOAKED, chosen.rate, round(60 * chosen.soak))
            raw["soak"] = raw["soak"] | fresh
        else:
            fresh = _compare(ground, chosen.only or list(BY_NAME), chosen.scale)
            raw["peers"] = raw["peers"] | fresh
    if chosen.scale == 1:
        page.save(raw)
    shown = {"versions": raw["versions"], "peers": {}, "soak": {}} | {"soak" if chosen.soak else "peers": fresh}
    for name, part in page.parts(shown).items():
        print(f"\n{name}\n\n{part}")
    return 0


def _compare(ground: Ground, names: Sequence[str], scale: float) -> dict[str, Any]:
    results = {}
    for name in names:
        begun = time.monotonic()
        results[name] = measure(ground, BY_NAME[name], BARE, scale)
        progress(f"peers: {name}: {time.monotonic() - begun:.0f} s in all")
    return results


def _soak(ground: Ground, names: Sequence[str], rate: int, seconds: int) -> dict[str, Any]:
    """Let all of them work side by side, each in a database of its own, so that they have the same machine."""
    progress(f"soak: {', '.join(names)}: {rate} jobs a second each, for {seconds} s")

    def one(name: str) -> dict[str, Any]:
        return page.compact(Harness(ground, BY_NAME[name], 1).soak(rate, seconds))

    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))
