from __future__ import annotations

import pytest

from holdfast._ops.caller import Failures, Limited
from tests.kit.clock import Clock


def fail(failures: Failures, address: str, times: int) -> None:
    for _ in range(times):
        failures.check(address)
        failures.add(address)


def test_an_address_that_failed_too_often_waits_until_its_window_ends() -> None:
    clock = Clock(0.0)
    failures = Failures(limit=3, seconds=60, clock=clock)
    fail(failures, "192.0.2.1", 3)
    clock.now = 20.5
    with pytest.raises(Limited) as limited:
        failures.check("192.0.2.1")
    assert (limited.value.status, limited.value.seconds) == (429, 40)
    failures.check("192.0.2.2")
    clock.now = 60
    fail(failures, "192.0.2.1", 3)


def test_a_site_of_ipv6_is_one_address_and_a_mapped_one_is_ipv4() -> None:
    failures = Failures(limit=2)
    fail(failures, "2001:db8:1:2::1", 1)
    fail(failures, "2001:db8:1:2:ffff::9%eth0", 1)
    with pytest.raises(Limited):
        failures.check("2001:db8:1:2:abcd::")
    failures.check("2001:db8:1:3::1")
    fail(failures, "::ffff:192.0.2.1", 2)
    with pytest.raises(Limited):
        failures.check("192.0.2.1")


def test_memory_is_bounded_however_many_addresses_fail() -> None:
    failures = Failures(limit=2, addresses=100)
    for number in range(10_000):
        failures.add(f"10.0.{number // 256}.{number % 256}")
    assert len(failures._windows) == 100


@pytest.mark.parametrize("address", ["", "testclient", "x" * 10_000])
def test_what_is_no_address_is_counted_as_it_is(address: str) -> None:
    failures = Failures(limit=1)
    fail(failures, address, 1)
    with pytest.raises(Limited):
        failures.check(address)
    assert all(len(site) <= 100 for site in failures._windows)
