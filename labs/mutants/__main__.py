"""`make mutants`: change the package in about 200 places, one at a time, and see which change no test notices.

First the whole suite runs once to record which test enters which function, unless `--entered` names the record of an
earlier run. Survivors that are not in accepted.toml make the exit status 1.
"""

from __future__ import annotations

import argparse
import queue
import random
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from labs.mutants.draw import ROOT, all_sites, changed_lines, draw, last_tag
from labs.mutants.report import REPORT, as_entry, describe, new_survivors, read_accepted, report
from labs.mutants.run import Chooser, Copy, Result, read_tests

if TYPE_CHECKING:
    from labs.mutants.site import Site


def record(folder: Path, tests: list[str], processes: int) -> None:
    """Run tests, and record what each enters."""
    options = [
        "-q",
        "--processes",
        str(processes),
        "-p",
        "no:cacheprovider",
        "-p",
        "labs.mutants.entered",
        "--entered",
        str(folder),
    ]
    subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, check=False)


def try_all(sites: list[Site], chooser: Chooser, processes: int, folder: Path) -> list[Result]:
    """Try each mutant, in as many copies of the checkout as there are processes."""
    waiting: queue.SimpleQueue[Site] = queue.SimpleQueue()
    results: list[Result] = []
    for site in sites:
        waiting.put(site)

    def work(number: int) -> None:
        copy = Copy(folder / str(number))
        while True:
            try:
                site = waiting.get_nowait()
            except queue.Empty:
                return
            results.append(copy.try_mutant(site, chooser.choose(site)))
            print(f"{len(results)}/{len(sites)}", describe(results[-1]), flush=True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results)


def without_false_alarms(results: list[Result], folder: Path) -> list[Result]:
    """Return the results without those whose test also fails on the original."""
    names = sorted({one.by for one in results if "::" in one.by})
    copy, failing = Copy(folder / "original"), set()
    for name in names if names and copy.run(names, 10 * len(names))[0] else []:
        if copy.run([name], 60)[0]:
            failing.add(name)
    for name in failing:
        print("fails without a mutant too:", name)
    return [one for one in results if one.by not in failing]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m labs.mutants", description="Change the package, and run its tests."
    )
    parser.add_argument("--count", type=int, default=200, help="how many mutants; default: 200")
    parser.add_argument("--seed", type=int, default=random.randrange(10**8), help="default: any, printed")
    parser.add_argument(
        "--since", default=last_tag(), help="half is drawn from functions changed since; default: the last tag"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only files or functions whose names contain it")
    parser.add_argument("--processes", type=int, default=2, help="default: 2")
    parser.add_argument(
        "--entered", type=Path, help="a folder with the record of an earlier run, or for the record of this one"
    )
    parser.add_argument("--tests", nargs="*", default=[], help="only these tests; default: the suite")
    parser.add_argument("--list", action="store_true", help="print what would be tried")
    arguments = parser.parse_args()
    sites = [site for site in all_sites() if arguments.only in f"{site.file} {site.function}"]
    drawn = draw(sites, changed_lines(arguments.since), arguments.count, arguments.seed)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    header = (
        f"{len(drawn)} of {len(sites)} mutants of {commit.stdout.strip()}, drawn with seed {arguments.seed}, "
        f"half of what has changed since {arguments.since}, {datetime.now(UTC):%-d %B %Y}."
    )
    print(header, flush=True)
    if arguments.list:
        for site in drawn:
            print(f"{site.file}:{site.line} {site.function}: {site.change}: {site.key[2]}")
        return 0
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as name:
        folder = Path(name)
        entered = arguments.entered or folder / "entered"
        if not list(entered.glob("*.json")):
            record(entered, arguments.tests, arguments.processes)
        results = try_all(drawn, Chooser(read_tests(entered)), arguments.processes, folder)
        results = without_false_alarms(results, folder)
    accepted = read_accepted()
    REPORT.write_text(report(results, accepted, header))
    print(REPORT.read_text())
    new = new_survivors(results, accepted)
    if new:
        print("Not caught, and not in accepted.toml:", *(as_entry(one.site) for one in new), sep="\n")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
