"""Which mutants are tried: half of functions that have changed, half of all, each function as likely as any other."""

from __future__ import annotations

import random
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from labs.mutants.sites import sites_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from labs.mutants.site import Site

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "holdfast"
# Until there is a tag: where the schema became one folder and the engine was turned round.
SINCE = "a19b34e"
LEFT_OUT = ("_demo/",)


def last_tag() -> str:
    found = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or SINCE


def changed_lines(since: str) -> dict[str, set[int]]:
    """Return the lines of each file below the package that have changed since a commit."""
    command = ["git", "diff", "--unified=0", "--no-renames", since, "--", str(PACKAGE)]
    lines: defaultdict[str, set[int]] = defaultdict(set)
    file = ""
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("+++ b/"):
            file = line.removeprefix("+++ b/src/holdfast/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines[file].update(range(first, first + count))
    return lines


def all_sites() -> list[Site]:
    paths = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.sql")])
    return [
        site
        for path in paths
        if not path.relative_to(PACKAGE).as_posix().startswith(LEFT_OUT)
        for site in sites_of(path, PACKAGE)
    ]


def draw(sites: list[Site], changed: dict[str, set[int]], count: int, seed: int) -> list[Site]:
    """Return so many mutants: by turns one of what has changed and one of everything, as long as there are any.

    The first n of a larger draw with the same seed are a draw of n.
    """
    dice = random.Random(seed)
    fresh = [
        site for site in sites if not changed.get(site.file, set()).isdisjoint(range(site.lines[0], site.lines[1] + 1))
    ]
    drawn: dict[tuple[str, int, int, str], Site] = {}
    sources = [_one_of_each(fresh, dice), _one_of_each(sites, dice)]
    while sources and len(drawn) < count:
        source = sources.pop(0)
        for site in source:
            place = (site.file, site.start, site.end, site.new)
            if place not in drawn and _is_valid(site):
                drawn[place] = site
                sources.append(source)
                break
    return list(drawn.values())


def _one_of_each(sites: list[Site], dice: random.Random) -> Iterator[Site]:
    """Yield all sites in a random order: one of each function, then a second one of each, and so on."""
    functions: defaultdict[tuple[str, str], list[Site]] = defaultdict(list)
    for site in sites:
        functions[site.file, site.function].append(site)
    for found in functions.values():
        dice.shuffle(found)
    while functions:
        for name in dice.sample(sorted(functions), len(functions)):
            yield functions[name].pop()
            if not functions[name]:
                del functions[name]


def _is_valid(site: Site) -> bool:
    if site.file.endswith(".sql"):
        return True  # its first test shows
    try:
        compile(site.mutated((PACKAGE / site.file).read_text()), site.file, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
