"""The state machine on the real database, and on databases in which a mistake was made: there it must fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast._model.new_job import OrderKey
from holdfast._model.unique import Unique
from tests.kit.mutation import let_claims_take_their_time, open_trap
from tests.protocol.crew import Crew
from tests.protocol.machine import LeaseMachine
from tests.protocol.mutations import MUTATIONS
from tests.protocol.producing import Spec

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 40
# Each is forty statements of a real server: every day fewer than other properties are tried with.
EXAMPLES = 15 if settings.get_current_profile_name() == "everyday" else settings().max_examples
# The mistakes that are looked for every day; the others when there is time.
EVERYDAY = {
    "claim does not count the attempt",
    "claim passes the head of a key",
    "settle by id and holder",
    "settle by id and token",
    "settle forgets what follows",
    "retry goes back into the past",
    "reap ignores the cap",
    "waiters are counted down once",
}


@pytest.fixture
def crew(database: str) -> Iterator[Crew]:
    with Crew(database) as crew:
        yield crew


def run(crew: Crew, chosen: settings) -> None:
    run_state_machine_as_test(type("Lease", (LeaseMachine,), {"crew": crew}), settings=chosen)


@pytest.mark.parametrize("inside", [False, True])
def test_a_job_that_replaces_what_it_would_wait_for_is_refused(crew: Crew, *, inside: bool) -> None:
    """Alone, through a job that waits for it, and through the next of its order key: what the machine draws rarely."""
    machine = type("Lease", (LeaseMachine,), {"crew": crew})()
    first = Spec("a", order=OrderKey("k"), unique=Unique("u", on_conflict="replace"))
    if inside:
        machine.begin()
    machine.enqueue([first], inside)
    machine.enqueue([replace(first, picks=(0,))], inside)
    machine.enqueue([Spec("b", picks=(0,))], inside)
    machine.enqueue([replace(first, picks=(0,))], inside)
    machine.enqueue([Spec("b", order=OrderKey("k"))], inside)
    machine.enqueue([replace(first, picks=(0,))], inside)
    assert [job.waits for job in machine.view(inside).live] == [False, True, False]
    if inside:
        machine.end("commit")
    machine.teardown()


@pytest.mark.hypothesis
def test_anybody_does_anything_at_any_time(crew: Crew) -> None:
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run(crew, chosen)


@pytest.mark.nightly(daily=["claim passes the head of a key", "settle by id and token"])
@pytest.mark.parametrize(
    "mistake",
    [pytest.param(name, marks=() if name in EVERYDAY else pytest.mark.prove, id=name) for name in MUTATIONS],
)
def test_the_machine_notices(crew: Crew, mistake: str) -> None:
    function, changes = MUTATIONS[mistake]
    let_claims_take_their_time(crew.outside)
    open_trap(crew.outside, function, *changes)
    # The same examples each time, and none of them made smaller: that it fails is enough.
    chosen = settings(
        max_examples=300,
        stateful_step_count=STEPS,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises((AssertionError, psycopg.errors.UniqueViolation, psycopg.errors.SerializationFailure)):
        run(crew, chosen)


@pytest.mark.nightly
def test_the_everyday_mistakes_are_known() -> None:
    assert MUTATIONS.keys() >= EVERYDAY
