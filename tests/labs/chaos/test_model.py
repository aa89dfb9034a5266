from __future__ import annotations

import pytest

from labs.chaos.model.checks import HOLDS, INVARIANTS, LIVENESS, MISTAKES, Check
from labs.chaos.model.spin import provide

# The model is the protocol's, not the code's: these are looked at every day, all of them in `make prove`.
EVERYDAY = {
    "workers die, answers are lost, attempts are released",
    "every job ends",
    "finish without token",
    "claim without attempt count",
    "no reaper",
}


@pytest.fixture(scope="module", autouse=True)
def spin() -> None:
    provide()


def _marked(checks: tuple[Check, ...]) -> list[object]:
    return [
        pytest.param(check, id=check.name, marks=[] if check.name in EVERYDAY else [pytest.mark.prove])
        for check in checks
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("check", _marked(HOLDS))
def test_the_protocol_holds_in_every_state(check: Check) -> None:
    found = check.run()
    assert found.broken is None
    assert found.states > 10_000


@pytest.mark.nightly(daily=["finish without token"])
@pytest.mark.parametrize("check", _marked(MISTAKES))
def test_a_mistake_breaks_what_it_should(check: Check) -> None:
    assert check.run().broken == check.breaks


@pytest.mark.nightly
def test_the_everyday_checks_are_known() -> None:
    assert {check.name for check in (*HOLDS, *MISTAKES)} >= EVERYDAY


@pytest.mark.nightly
def test_each_invariant_is_broken_by_some_mistake() -> None:
    assert {check.breaks for check in MISTAKES} == {*INVARIANTS, LIVENESS}
