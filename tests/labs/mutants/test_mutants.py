from __future__ import annotations

from textwrap import dedent

import pytest

from labs.mutants.draw import PACKAGE, draw
from labs.mutants.python_sites import python_sites
from labs.mutants.report import new_survivors, read_accepted, report
from labs.mutants.run import Chooser, Result, SuiteTest, rounds
from labs.mutants.site import Site
from labs.mutants.sites import sites_of
from labs.mutants.sql_sites import sql_sites

PYTHON = dedent("""
    LIMIT = 32


    class Reaper:
        def reap(self, rows: list[int]) -> int:
            log.info("%s", 1 + 1)
            if not rows and self.due > 0:
                self.started = min(rows)
            self.tell("…", rows)
            raise ValueError(1)
""")
SCHEMA = dedent("""
    CREATE FUNCTION holdfast.reap(most integer) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        -- FOR UPDATE AND more
        PERFORM holdfast.wake(1);
        UPDATE holdfast.job j SET a = 1 WHERE j.x BETWEEN 2 AND 3 AND j.y IS NULL AND (j.z OR j.name = 'a AND b');
        SELECT id FROM holdfast.job WHERE id < most ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED;
    END $$;
""")


def changed(sites: list[Site]) -> set[tuple[str, str, str]]:
    return {(site.change, " ".join(site.old.split()), " ".join(site.new.split())) for site in sites}


def test_sites_of_python() -> None:
    sites = list(python_sites("reap.py", PYTHON))
    assert changed(sites) == {
        ("constant", "32", "33"),
        ("negate condition", "not rows and self.due > 0", "not (not rows and self.due > 0)"),
        ("and/or", "and", "or"),
        ("drop operand", "not rows and", ""),
        ("drop operand", "and self.due > 0", ""),
        ("drop not", "not rows", "rows"),
        ("comparison", ">", ">="),
        ("constant", "0", "1"),
        ("drop assignment", "self.started = min(rows)", "pass"),
        ("min/max", "min", "max"),
        ("drop call", 'self.tell("…", rows)', "pass"),
    }
    assert {site.function for site in sites} == {"<module>", "Reaper.reap"}
    for site in sites:
        compile(site.mutated(PYTHON), "mutant", "exec")


def test_sites_of_sql() -> None:
    sites = list(sql_sites("_store/sql/schema/reap.sql", SCHEMA))
    assert {site.function for site in sites} == {"reap"}
    assert changed(sites) >= {
        ("drop statement", "PERFORM holdfast.wake(1)", "NULL"),
        ("drop condition", "AND j.y IS NULL", ""),
        ("drop condition", "AND (j.z OR j.name = 'a AND b')", ""),
        ("drop condition", "OR j.name = 'a AND b'", ""),
        ("null", "IS NULL", "IS NOT NULL"),
        ("comparison", "<", "<="),
        ("drop lock", "FOR UPDATE SKIP LOCKED", ""),
        ("wait for the lock", "SKIP LOCKED", ""),
        ("turn the order", "id", "id DESC"),
        ("constant", "5", "6"),
    }
    assert not [site for site in sites if site.old.strip().startswith(("AND 3", "AND more", "AND b"))]


def test_a_draw_repeats_itself_and_begins_a_larger_one() -> None:
    path = PACKAGE / "_engine" / "jobs" / "claim.py"
    sites = sites_of(path, PACKAGE)
    lines = next(site.lines for site in sites if "." in site.function)
    fresh = {"_engine/jobs/claim.py": {lines[0]}}
    drawn = draw(sites, fresh, 10, 7)
    assert drawn == draw(sites, fresh, 10, 7) == draw(sites, fresh, 20, 7)[:10]
    assert drawn != draw(sites, fresh, 10, 8)
    assert all(site.lines[0] <= lines[0] <= site.lines[1] for site in drawn[:10:2])


def site(file: str, function: str) -> Site:
    return Site(file, function, (1, 9), 3, "comparison", 0, 1, "<", "<=")


@pytest.mark.parametrize(
    ("mutant", "chosen"),
    [
        (site("_engine/reap.py", "Reaper.reap"), ["a::1", "b::1", "a::2"]),
        (site("_engine/reap.py", "<module>"), ["a::1", "b::1", "a::2"]),
        (site("_engine/reap.py", "Reaper.reap.inner"), ["a::1", "b::1", "a::2"]),
        (site("_store/sql/schema/09_claim.sql", "claim_jobs"), ["b::1"]),
        (site("_store/sql/schema/09_claim.sql", "find_lanes"), ["b::1"]),
        (site("_engine/other.py", "run"), []),
        (site("_cli/tokens.py", "run"), ["tests/cli/test_tokens.py::1"]),
    ],
)
def test_tests_that_enter_the_mutant_are_chosen(mutant: Site, chosen: list[str]) -> None:
    reap = "_engine/reap.py::Reaper.reap"
    tests = [
        SuiteTest("a::2", 1.0, frozenset({reap, "x", "y", "z"})),
        SuiteTest("a::1", 1.0, frozenset({reap})),
        SuiteTest("b::1", 1.0, frozenset({reap, "sql::claim_jobs"})),
        SuiteTest("tests/cli/test_tokens.py::1", 1.0, frozenset()),
    ]
    assert [test.name for test in Chooser(tests).choose(mutant)] == chosen


def test_a_round_takes_no_longer_than_its_seconds() -> None:
    tests = [SuiteTest(str(number), 20.0, frozenset()) for number in range(10)]
    assert [[test.name for test in round_] for round_ in rounds(tests)] == [["0"], ["1", "2", "3", "4"]]
    assert len(list(rounds([SuiteTest("long", 500.0, frozenset())]))) == 1


def test_a_survivor_that_is_not_listed_is_new() -> None:
    accepted = read_accepted()
    (known, *_) = [key for key, one in accepted.items() if one.equivalent]
    old, new = known[2].split(" -> ")
    equivalent = Site(known[0], known[1], (1, 9), 3, "constant", 0, 1, old, new)
    fresh = site("_engine/reap.py", "Reaper.reap")
    results = [Result(equivalent, "survived", "", 1), Result(fresh, "survived", "3 of 3 tests passed", 1)]
    results += [Result(fresh, "caught", "a::1", 1), Result(fresh, "invalid", "a::1", 1)]
    assert new_survivors(results, accepted) == [results[1]]
    assert "| all | 1 (50 %) | 2 |" in report(results, accepted, "")


@pytest.mark.parametrize("key", read_accepted(), ids=lambda key: key[1])
def test_what_was_accepted_can_still_be_changed(key: tuple[str, str, str]) -> None:
    assert key in {site.key for site in sites_of(PACKAGE / key[0], PACKAGE)}, "labs/mutants/accepted.toml"
