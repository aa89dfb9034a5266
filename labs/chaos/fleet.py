"""Replicas of the worker, each a process that can be killed, stopped and started again; and who died by itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from labs.chaos import events, upgrade, versions
from labs.chaos.worker import EXPLAINED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from holdfast._engine.keeper import Role
    from labs.chaos.ground import Reachable
    from labs.chaos.pace import Pace

ROOT = Path(__file__).parents[2]
START_SECONDS = 120.0
EXPLAIN_SECONDS = 2.0
LOOK_EVERY = 0.02
MOST_EXPLAINED = 20_000
# The number of the replica with older code; the others can always read what it cannot.
LATE = 2


class Death(NamedTuple):
    """A replica ended, and the lab had not ended it."""

    name: str
    code: int
    expected: bool
    output: str


class Replica:
    """One process after the other under one name; each start has a number of its own."""

    def __init__(self, fleet: Fleet, number: int, environment: dict[str, str]) -> None:
        self.number = number
        self.starts = 0
        self.stopped = False
        """Whether it is frozen just now."""
        self.ready = False
        """Whether the present process has reported that it works."""
        self.environment = environment
        """Its environment in addition to the fleet's; a restart may change it."""
        self._fleet = fleet
        self._process: asyncio.subprocess.Process | None = None
        self._ended: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()

    @property
    def name(self) -> str:
        """The name of the present process, in the table `worker` and in the oracle's facts."""
        return f"r{self.number}.{self.starts}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def kill(self) -> None:
        """End it at once; it comes back by `restart` alone."""
        self._ended = self._process
        self._send(signal.SIGKILL)
        self.stopped = False

    def stop(self) -> None:
        """Freeze it."""
        self.stopped = True
        self._send(signal.SIGSTOP)

    def cont(self) -> None:
        self.stopped = False
        self._send(signal.SIGCONT)

    def strike(self, role: Role) -> None:
        """Let one of its loops end, as a mistake in our own code would."""
        (self._fleet.folder / f"{self.name}.strike").write_text(role, "utf-8")
        self._send(signal.SIGUSR2)

    async def terminate(self, seconds: float = 20) -> int:
        """Stop it gently, as a deployment does; what does not stop in time is killed."""
        self._ended = self._process
        self.cont()
        self._send(signal.SIGTERM)
        assert self._process is not None
        try:
            async with asyncio.timeout(seconds):
                return await self._process.wait()
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    async def restart(self, **environment: str) -> None:
        """Start it again, at once when it still runs, with other variables if there are any; return when it works."""
        async with self._starting:
            if self.alive:
                self.kill()
            if self._process is not None:
                await self._process.wait()
            self.environment |= environment
            await self._start()

    async def _start(self) -> None:
        self.starts += 1
        self.ready = False
        log = (self._fleet.folder / f"{self.name}.log").open("wb")
        # setpriv execs: the process is the worker itself, and ends with the lab.
        command = ["setpriv", "--pdeathsig=KILL", "--", sys.executable, "-m", "labs.chaos.worker"]
        env = os.environ | self._fleet.environment | self.environment | {"CHAOS_NAME": self.name}
        with log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self._fleet.code,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self.stopped = False
        self._fleet.watch(self, self._process)
        assert self._process.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                self.ready = await self._process.stdout.readline() == b"ready\n"

    async def explain(self) -> str:
        """Request the stacks of its threads and tasks, and return them."""
        before = len(self.log())
        self._send(signal.SIGUSR1)
        with suppress(TimeoutError):  # one that stands still says nothing
            async with asyncio.timeout(EXPLAIN_SECONDS):
                while EXPLAINED not in self.log()[before:]:  # noqa: ASYNC110 - a file is read
                    await asyncio.sleep(0.02)
        return self.log()[-MOST_EXPLAINED:]

    def log(self) -> str:
        return (self._fleet.folder / f"{self.name}.log").read_text(errors="replace")

    def ended(self, process: asyncio.subprocess.Process) -> bool:
        """Whether it was the lab that ended this process."""
        return self._ended is process

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


class Fleet:
    """`async with` starts all replicas. One that dies by itself is noted and started again."""

    def __init__(
        self,
        ground: Reachable,
        pace: Pace,
        folder: Path,
        *,
        replicas: int = 4,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.code = _copied(folder / "code")
        """The code that the replicas run: a copy, so that edits during a long run have no effect."""
        ms = {
            "HOLDFAST_LEASE_MS": pace.lease,
            "HOLDFAST_HEARTBEAT_MS": pace.heartbeat,
            "HOLDFAST_REAP_INTERVAL_MS": pace.reap,
            "HOLDFAST_SHUTDOWN_TIMEOUT_MS": pace.lease,
            "HOLDFAST_IDLE_MIN_MS": pace.idle / 2,
            "HOLDFAST_IDLE_MAX_MS": pace.idle,
        }
        self.environment = {name: str(round(1000 * seconds)) for name, seconds in ms.items()}
        self.environment |= {
            "CHAOS_FOLDER": str(folder),
            "PYTHONPATH": os.pathsep.join([str(self.code / "src"), str(self.code)]),
            "CHAOS_URL": ground.url,
            events.VARIABLE: ground.broker.url,
            "HOLDFAST_BATCH_SIZE": "50",
            "HOLDFAST_ERROR_BACKOFF_MS": "500",
            "HOLDFAST_ERROR_JITTER_MS": "100",
        }
        self.environment |= environment or {}
        # The last one is behind the pooler, where LISTEN does not work.
        behind = {"CHAOS_URL": ground.pooler_url, "HOLDFAST_LISTEN": "false"}
        # The second one has not had the last deploy: it does not understand what is newest.
        late = {versions.VARIABLE: versions.OLDER}
        self.replicas = [
            Replica(self, number, (behind if number == replicas > 1 else {}) | (late if number == LATE else {}))
            for number in range(1, replicas + 1)
        ]
        self.deaths: list[Death] = []
        self._expected: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(replica.restart() for replica in self.replicas))
        except BaseException:
            self._kill()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is None:
            await asyncio.gather(*(replica.terminate() for replica in self.replicas))
        self._kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextmanager
    def expecting(self, *codes: int) -> Iterator[None]:
        """Let replicas die with these exit codes: a fault of ours makes them."""
        self._expected += codes
        try:
            yield
        finally:
            for code in codes:
                self._expected.remove(code)

    def note_death(self, name: str, code: int, log: str) -> None:
        """Keep for the judgement that a process died, and whether a fault had made it."""
        self.deaths.append(Death(name, code, code in self._expected, log[-2000:]))

    @property
    def latest(self) -> dict[str, str]:
        """The environment of the replica with the newest code, in addition to the fleet's."""
        return {upgrade.VARIABLE: max(replica.environment.get(upgrade.VARIABLE, "0") for replica in self.replicas)}

    @property
    def working(self) -> list[Replica]:
        """Those that live, have begun, and are not frozen."""
        return [replica for replica in self.replicas if replica.alive and replica.ready and not replica.stopped]

    def bring_back(self, replica: Replica) -> None:
        """Start it again in the background, as a supervisor does; the others work meanwhile."""
        self._keep(asyncio.create_task(replica.restart()))

    async def whole(self) -> None:
        """Return when every replica works that is to come back."""
        async with asyncio.timeout(START_SECONDS):
            while not all(replica.ready and replica.alive for replica in self.replicas):  # noqa: ASYNC110 - rarely
                await asyncio.sleep(0.02)

    def watch(self, replica: Replica, process: asyncio.subprocess.Process) -> None:
        self._keep(asyncio.create_task(self._watch(replica, process)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, replica: Replica, process: asyncio.subprocess.Process) -> None:
        # `process.wait` would also wait for the processes that it has left: they hold its output.
        while (code := process.returncode) is None:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(LOOK_EVERY)
        if replica.ended(process):
            return
        self.note_death(replica.name, code, replica.log())
        await asyncio.sleep(0.1)
        await replica.restart()

    def _kill(self) -> None:
        for replica in self.replicas:
            replica.kill()


def _copied(code: Path) -> Path:
    for part in ("src", "labs", "tools"):
        shutil.copytree(ROOT / part, code / part, dirs_exist_ok=True)
    return code
