"""The result of a run: which survivors are new, and the report as Markdown."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from labs.mutants.run import Result
    from labs.mutants.site import Site

HERE = Path(__file__).parent
ACCEPTED = HERE / "accepted.toml"
REPORT = HERE / "report.md"


class Accepted(NamedTuple):
    reason: str
    equivalent: bool
    """It does what the original does. Otherwise, a test of it would cost more than it is worth."""


def read_accepted(path: Path = ACCEPTED) -> dict[tuple[str, str, str], Accepted]:
    """Return the survivors that were looked at, by `Site.key`."""
    listed = tomllib.loads(path.read_text())["mutant"]
    return {
        (one["file"], one["function"], one["change"]): Accepted(one["reason"], one.get("equivalent", False))
        for one in listed
    }


def new_survivors(results: Sequence[Result], accepted: Mapping[tuple[str, str, str], Accepted]) -> list[Result]:
    return [one for one in results if one.verdict in {"survived", "no test"} and one.site.key not in accepted]


def report(results: Sequence[Result], accepted: Mapping[tuple[str, str, str], Accepted], header: str) -> str:
    """Return the score of each part of the package, and every mutant that no test has caught."""
    caught: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for one in results:
        known = accepted.get(one.site.key)
        if one.verdict != "invalid" and not (known and known.equivalent and one.verdict == "survived"):
            tried[_part(one.site)] += 1
            caught[_part(one.site)] += one.verdict == "caught"
    lines = ["# Mutants", "", header, "", "| part | caught | tried |", "|---|---|---|"]
    lines += [f"| {part} | {caught[part]} | {tried[part]} |" for part in sorted(tried)]
    share = f"{100 * caught.total() / tried.total():.0f} %" if tried else "none"
    lines += [
        f"| all | {caught.total()} ({share}) | {tried.total()} |",
        "",
        "Neither invalid nor equivalent ones count.",
        "",
    ]
    lines += ["| not caught | change | |", "|---|---|---|"]
    for one in results:
        if one.verdict in {"survived", "no test"}:
            reason = accepted[one.site.key].reason if one.site.key in accepted else f"**new**: {one.by}"
            lines.append(f"| {_place(one.site)} | {one.site.change}: {_code(one.site.key[2])} | {reason} |")
    return "\n".join(lines) + "\n"


def as_entry(site: Site) -> str:
    """Return the lines for accepted.toml, to be completed with a reason."""
    file, function, change = site.key
    return f"[[mutant]]\nfile = {file!r}\nfunction = {function!r}\nchange = '''{change}'''\nreason = ''\n"


def describe(result: Result) -> str:
    site = result.site
    change = f"{site.change}: {site.key[2]}"
    return f"{result.verdict} in {result.seconds:.0f} s by {result.by}: {_place(site)} {change[:120]}"


def _part(site: Site) -> str:
    return "SQL" if site.file.endswith(".sql") else site.file.partition("/")[0].removesuffix(".py")


def _place(site: Site) -> str:
    return f"{site.file}:{site.line} {site.function}"


def _code(text: str) -> str:
    return f"`{text.replace('|', '¦')}`"
