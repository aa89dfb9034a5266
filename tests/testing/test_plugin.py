"""The fixtures, as pytest finds them in a user's project."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import psycopg, pytest
from holdfast import Holdfast

app = Holdfast()

@app.job("double")
def double(job, number: int) -> int:
    return number * (job.state or 2)

@pytest.fixture
def holdfast_app():
    return app

@pytest.fixture
def holdfast_connection():
    with psycopg.connect("DATABASE") as conn:
        yield conn
        conn.rollback()
"""
TEST = """
from conftest import app, double
from holdfast.testing import Testing

def test_one(holdfast: Testing) -> None:
    app.sync.enqueue(holdfast.connection, double.new(21))
    holdfast.sync.assert_enqueued(double.new(21))
    assert [ran.result for ran in holdfast.sync.drain()] == [EXPECTED]

def test_none_is_left(holdfast: Testing) -> None:
    holdfast.sync.assert_enqueued(double.new(21), times=0)
"""

# Warnings are errors, and pytest-asyncio would warn of its own configuration.
STRICT = ("-Werror", "-p", "no:asyncio")


@pytest.fixture(autouse=True)
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes longer to import than the tests in here take."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:schemathesis -p no:hypothesispytest -p no:anyio -p no:randomly")


def test_it_is_registered_under_its_name() -> None:
    (found,) = [entry for entry in entry_points(group="pytest11") if entry.name == "holdfast"]
    assert found.value == "pytest_holdfast"


def test_the_fixture_uses_the_users_application_and_connection(pytester: pytest.Pytester, database: str) -> None:
    pytester.makeconftest(CONFTEST.replace("DATABASE", database))
    pytester.makepyfile(TEST.replace("EXPECTED", "42"))
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=2)


def test_a_verb_that_is_never_awaited_fails_the_test(pytester: pytest.Pytester, database: str) -> None:
    pytester.makeconftest(CONFTEST.replace("DATABASE", database))
    pytester.makepyfile(
        """
        from conftest import double

        def test_one(holdfast):
            holdfast.assert_enqueued(double.new(21))
        """
    )
    ran = pytester.runpytest_subprocess("-p", "no:asyncio")
    ran.assert_outcomes(passed=1, errors=1, warnings=1)
    ran.stdout.fnmatch_lines(
        [
            "never awaited, so it did nothing: assert_enqueued() at *_awaited_fails_the_test.py line 4",
            "*RuntimeWarning: coroutine 'Testing.assert_enqueued' was never awaited*",
        ]
    )


@pytest.mark.nightly
def test_the_state_can_be_given(pytester: pytest.Pytester, database: str) -> None:
    state = "\n@pytest.fixture\ndef holdfast_state():\n    return 3\n"
    pytester.makeconftest(CONFTEST.replace("DATABASE", database) + state)
    pytester.makepyfile(TEST.replace("EXPECTED", "63"))
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=2)


@pytest.mark.nightly
def test_a_failure_points_at_the_line_of_the_test(pytester: pytest.Pytester, database: str) -> None:
    pytester.makeconftest(CONFTEST.replace("DATABASE", database))
    pytester.makepyfile(
        "from conftest import double\ndef test_one(holdfast):\n    holdfast.sync.assert_enqueued(double.new(21))"
    )
    ran = pytester.runpytest_subprocess(*STRICT)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        [">   *holdfast.sync.assert_enqueued(double.new(21))", "E *was enqueued 0 times, not once."]
    )
    ran.stdout.no_fnmatch_line("*kit.py*")


@pytest.mark.nightly
@pytest.mark.parametrize("missing", ["holdfast_app", "holdfast_connection"])
def test_a_fixture_that_is_not_there_is_asked_for(pytester: pytest.Pytester, missing: str) -> None:
    other = ({"holdfast_app", "holdfast_connection"} - {missing}).pop()
    pytester.makeconftest(f"import pytest\n@pytest.fixture\ndef {other}(): return None")
    pytester.makepyfile("def test_one(holdfast): ...")
    ran = pytester.runpytest_subprocess()
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines([f"The fixture `holdfast` needs a fixture `{missing}` of yours*", f"*def {missing}(*"])
    assert "Traceback" not in ran.stdout.str()


@pytest.mark.nightly
def test_an_unused_plugin_is_not_loaded(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "import sys\n"
        "def pytest_sessionfinish():\n"
        "    print('loaded', [name for name in sys.modules if name.startswith('holdfast')])"
    )
    pytester.makepyfile("def test_one(): ...")
    ran = pytester.runpytest_subprocess("-s", *STRICT)
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["*loaded []*"])


@pytest.mark.nightly
def test_it_can_be_turned_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(holdfast): ...")
    ran = pytester.runpytest_subprocess("-p", "no:holdfast")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["*fixture 'holdfast' not found*"])


def test_the_kit_does_not_need_pytest() -> None:
    code = "import sys, holdfast.testing; sys.exit('pytest' in sys.modules or '_pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603 - our own
