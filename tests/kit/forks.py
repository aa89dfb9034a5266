"""A plugin of pytest: `--processes 4` runs the tests in four processes that are forked after the collection.

Each of them would otherwise collect the suite again, which takes as long as hundreds of tests. A process gets the tests
of one file after the other, so that a file's fixtures are made once.
"""

from __future__ import annotations

import io
import os
import traceback
from collections import deque
from multiprocessing.connection import Connection, Pipe, wait
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.order import groups, place

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, help="run the tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--processes"):
        config.pluginmanager.register(Parent(config), "forks")


class Parent:
    """Deals the tests to processes, and reports what they found."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.processes: int = config.getoption("--processes")
        self.waiting: deque[list[int]] = deque()
        self.given: dict[Connection, deque[int]] = {}
        """What each process has to run, in its order; the first may be under way."""
        self.pids: dict[Connection, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed:
            return None
        self.waiting.extend(groups(map(place, session.items)))
        for number in range(min(self.processes, len(self.waiting))):
            self._fork(session, number)
        try:
            while self.pids:
                for pipe in wait(list(self.pids)):
                    assert isinstance(pipe, Connection)
                    self._answer(session, pipe)
        finally:
            for pipe, pid in self.pids.items():
                pipe.close()
                os.waitpid(pid, 0)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def _fork(self, session: pytest.Session, number: int) -> None:
        ours, theirs = Pipe()
        pid = os.fork()
        if pid:
            theirs.close()
            self.given[ours], self.pids[ours] = deque(), pid
            return
        status = 1
        try:
            for pipe in (ours, *self.pids):
                pipe.close()
            Child(session, theirs, number).run()
            status = 0
        except BaseException:  # noqa: BLE001 - nothing of the parent may run here
            traceback.print_exc()
        finally:
            os._exit(status)

    def _answer(self, session: pytest.Session, pipe: Connection) -> None:
        """Take what a process has to say: it wants more tests, or has a report, or has ended a test, or itself."""
        try:
            event, value = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(session, pipe)
            return
        hook = self.config.hook
        if event == "more":
            more = self.waiting.popleft() if self.waiting and not (session.shouldfail or session.shouldstop) else []
            self.given[pipe].extend(more)
            pipe.send(more)
        elif event == "report":
            hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=self.config, data=value))
        else:
            self._finish(session.items[self.given[pipe].popleft()])

    def _finish(self, item: pytest.Item) -> None:
        self.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _bury(self, session: pytest.Session, pipe: Connection) -> None:
        """A process has ended: if it had tests left, the one it ran has failed, and others run the rest."""
        _, status = os.waitpid(self.pids.pop(pipe), 0)
        left = self.given.pop(pipe)
        if status and not left:
            raise RuntimeError(f"a process ended with {os.waitstatus_to_exitcode(status)}, after its tests")
        if not left or session.shouldfail:
            return
        item = session.items[left.popleft()]
        text = f"its process ended with {os.waitstatus_to_exitcode(status)}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self.config.hook.pytest_runtest_logreport(report=report)
        self._finish(item)
        if left:
            self.waiting.appendleft(list(left))
        if self.waiting:
            self._fork(session, len(self.given))


class Child:
    """Runs the tests that it is given."""

    def __init__(self, session: pytest.Session, pipe: Connection, number: int) -> None:
        self.session, self.pipe = session, pipe
        self.name = f"p{number}-{os.getpid()}"

    def run(self) -> None:
        """Run tests until there are none, in this process alone."""
        config: Any = self.session.config
        plugins = config.pluginmanager
        # What is captured goes to files, which the parent has open too.
        capture: Any = plugins.get_plugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        terminal: Any = plugins.get_plugin("terminalreporter")
        terminal._tw._file = io.StringIO()
        plugins.unregister(name="forks")
        plugins.register(self)
        config.workerinput = {"workerid": self.name}
        factory = config._tmp_path_factory
        factory._basetemp = factory.getbasetemp() / self.name
        factory._basetemp.mkdir()
        config.hook.pytest_runtestloop(session=self.session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        given = self._given()
        item = next(given, None)
        try:
            while item is not None and not session.shouldfail:
                following = next(given, None)
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                self.pipe.send(("finished", None))
                item = following
        finally:
            session._setupstate.teardown_exact(None)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        self.pipe.send(("report", config.hook.pytest_report_to_serializable(config=config, report=report)))

    def _given(self) -> Iterator[pytest.Item]:
        while True:
            self.pipe.send(("more", None))
            numbers = self.pipe.recv()
            if not numbers:
                return
            for number in numbers:
                yield self.session.items[number]
