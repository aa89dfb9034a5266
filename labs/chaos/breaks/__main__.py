"""`python -m labs.chaos.breaks [NAME …]`: send each broken build through its play, and a sound one through all.

With no names all are tried. The results are written to results.json, from which the report has its table; the rows of
builds that were not tried stay.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from datetime import UTC, datetime

from labs.chaos.breaks.builds import BUILDS
from labs.chaos.breaks.results import Result, write
from labs.chaos.breaks.scene import Stage


async def run(names: list[str]) -> list[Result]:
    chosen = [build for build in BUILDS if not names or any(name in build.name for name in names)]
    results: list[Result] = []
    silent: dict[str, bool] = {}
    async with Stage() as stage:
        for build in chosen:
            if build.play.name not in silent:
                begun = time.monotonic()
                output = await stage.play(build.play)
                silent[build.play.name] = not output
                verdict = "NOT SILENT" if output else "silent"
                _print(f"{verdict}: nothing broken, {build.play.name}", begun)
                print(*output, sep="\n", end="", flush=True)
            begun = time.monotonic()
            found = await stage.play(build.play, build.name, build.prepare)
            checks = tuple(violation.check for violation in found)
            verdict = "caught" if build.caught_by in checks else "NOT CAUGHT"
            day, sound = datetime.now(UTC).date().isoformat(), silent[build.play.name]
            results.append(Result(build.name, build.play.name, build.caught_by, checks, sound, day))
            write(results[-1:], [build.name for build in BUILDS])
            _print(f"{verdict}: {build.name}, {build.play.name}, by {', '.join(checks) or 'no check'}", begun)
    return results


def _print(text: str, begun: float) -> None:
    print(f"{text}, {time.monotonic() - begun:.1f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m labs.chaos.breaks", description="Broken builds that must be noticed."
    )
    parser.add_argument("names", nargs="*", help="only those whose name has this in it")
    names = parser.parse_args().names
    results = asyncio.run(run(names))
    wrong = [result for result in results if not (result.caught and result.sound)]
    print(f"{len(results)} broken builds, {len(wrong)} not caught, or caught by an oracle that is never silent")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
