"""A test that fails while the machine stands still has shown nothing: it is run again, once, and the summary names it.

Leases and patience are in seconds, and a host that takes a core away for longer refutes whatever a test says of them.
Only what a witness saw counts: a failure on a machine that went on is a failure at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

from tools.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator

WITNESS = pytest.StashKey[Witness]()
_PROPERTY = "standstill"


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    with Witness() as witness:
        session.config.stash[WITNESS] = witness
        return (yield)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    started = time.monotonic()
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        still = item.config.stash[WITNESS].longest(since=started)
        if still:
            item.user_properties.append((_PROPERTY, still))
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    again = {
        report.nodeid: seconds
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
        for name, seconds in report.user_properties
        if name == _PROPERTY
    }
    for nodeid, seconds in again.items():
        terminalreporter.write_line(f"RUN AGAIN {nodeid}: the machine stood still for {seconds:.1f} s")
