"""The same work against every peer.

python -m bench peers                          all; writes docs/peers.md and its charts
python -m bench peers --only holdfast pgmq     some; their figures replace those they had
python -m bench peers --scale 0.05             smaller; prints, and writes nothing
python -m bench peers --soak 20                20 minutes each at a fixed rate: Holdfast, the bare loop, the two nearest
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from bench.ground import progress
from bench.peers import page
from bench.peers.ground import Ground
from bench.peers.harness import Harness, measure
from bench.peers.roster import BARE, BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

SOAKED = ("bare", "holdfast", "graphile-worker", "pgqueuer")
RATE = 200


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench peers", description="The same work against every peer.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=BY_NAME, help=", ".join(BY_NAME))
    parser.add_argument("--scale", type=float, default=1.0, help="sizes and times, as a part of the full ones")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="the soak alone, so long for each")
    parser.add_argument("--rate", type=int, default=RATE, help="jobs a second of the soak (%(default)s)")
    chosen = parser.parse_args(arguments)
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
    results = {}
    for name in names:
        progress(f"soak: {name}, {rate} jobs a second for {seconds} s")
        results[name] = page.compact(Harness(ground, BY_NAME[name], 1).soak(rate, seconds))
    return results
