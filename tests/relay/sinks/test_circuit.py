from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast._relay.message import Unavailable
from holdfast._relay.sinks.webhook import Breaker, Circuit
from tests.kit.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def circuit(clock: Clock) -> Circuit:
    return Circuit(Breaker(failures=3, rest=timedelta(seconds=30)), clock=clock)


def fail(circuit: Circuit, times: int) -> None:
    for _ in range(times):
        circuit.enter()
        circuit.fail()


def is_open(circuit: Circuit) -> bool:
    try:
        circuit.enter()
    except Unavailable:
        return True
    return False


def test_failures_in_a_row_open_it(circuit: Circuit) -> None:
    fail(circuit, 2)
    circuit.enter()
    circuit.succeed()
    fail(circuit, 3)
    with pytest.raises(Unavailable) as refusal:
        circuit.enter()
    assert refusal.value.retry_after == 30


def test_after_the_rest_one_probe_is_let_through(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now += 29.9
    assert is_open(circuit)
    clock.now += 0.1
    circuit.enter()
    assert is_open(circuit)
    circuit.succeed()
    assert not is_open(circuit)
    assert not is_open(circuit)


def test_a_probe_that_fails_opens_it_again_at_once(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now += 30
    fail(circuit, 1)
    assert is_open(circuit)
    clock.now += 30
    assert not is_open(circuit)


def test_a_probe_that_is_given_up_lets_the_next_one_through(circuit: Circuit, clock: Clock) -> None:
    fail(circuit, 3)
    clock.now += 30
    circuit.enter()
    circuit.leave()
    assert not is_open(circuit)


def test_a_rest_that_was_asked_for(circuit: Circuit, clock: Clock) -> None:
    circuit.enter()
    circuit.fail(rest=100)
    clock.now += 99
    assert is_open(circuit)
    clock.now += 1
    assert not is_open(circuit)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 1), (1, 0)])
def test_what_is_no_breaker(failures: int, seconds: int) -> None:
    with pytest.raises(ValueError, match=r"breaker|^rest: expected seconds"):
        Breaker(failures, timedelta(seconds=seconds))
