"""A fleet under load while its databases are in trouble: one server frozen, one full, one added and one drained.

Two processes serve the databases that a file lists. Jobs arrive evenly; `Databases.place` chooses the database of each,
from the same file. A round without trouble alternates with a round in which, one after the other:

- `b` is frozen: all processes of its server are stopped by SIGSTOP, and go on later
- `c` is full: its tables are on a file system of their own, in which a file takes all the space, and is deleted later
- `d` gets no new jobs, and is removed from the file when it has none left
- `e` is added to the file

`a` and `d` are the others. The first jobs of `e` wait until the workers have read the file, so it stands alone. The
latency of a job is the time from its insertion until its outcome is written, by the clock of its server. It needs root,
for the file system.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import psycopg
from psycopg import sql

from holdfast import Databases
from holdfast._store.schema import migrate
from labs.bench.application import divided, take_a_while
from labs.bench.figure import table
from labs.bench.fleet import command
from labs.bench.ground import progress, version
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60.0
ROUNDS = 2
RATE = 100.0
"""Jobs a second, in all."""
PROCESSES = 2
LAST_SECONDS = 180.0
SPACE = "96m"
NAMES = ("a", "b", "c", "d", "e")
OTHERS = ("a", "d")


class Trouble(NamedTuple):
    """The findings: jobs lost and doubled, the p99 of the others against a round without trouble, and a table."""

    lost: int
    doubled: int
    ratio: float
    table: str


@dataclass
class Round:
    """The jobs of a round, and how they ended."""

    made: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    completed: Counter[str] = field(default_factory=Counter)
    doubled: int = 0
    latencies: dict[str, list[float]] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        return sum((self.made - self.completed).values())

    def p99(self, names: tuple[str, ...]) -> float:
        """Return the 99th percentile of the latencies in these databases, in milliseconds."""
        return 1000 * quantiles([seconds for name in names for seconds in self.latencies.get(name, ())], n=100)[98]


def measure(scale: float) -> Trouble:
    seconds = max(15.0, SECONDS * scale)
    calm: list[Round] = []
    troubled: list[Round] = []
    for turn in range(max(1, round(ROUNDS * scale))):
        for rounds in (calm, troubled) if turn % 2 else (troubled, calm):
            progress(f"databases: round {turn + 1}, {'calm' if rounds is calm else 'trouble'}")
            rounds.append(_round(seconds, trouble=rounds is troubled))
    before, during = (median(r.p99(OTHERS) for r in rounds) for rounds in (calm, troubled))
    rows = []
    for name in NAMES:
        tails = [
            f"{median(r.p99((name,)) for r in rs):.0f}" if rs[0].latencies.get(name) else "" for rs in (calm, troubled)
        ]
        last = troubled[-1]
        counts = (str(last.made[name]), str(last.refused[name]), str(last.completed[name]))
        rows.append((f"`{name}`", _WHAT[name], *counts, *tails))
    head = ("", "trouble", "enqueued", "refused", "completed", "p99 ms, calm", "p99 ms, in trouble")
    return Trouble(sum(r.lost for r in troubled), sum(r.doubled for r in troubled), during / before, table(head, rows))


_WHAT = {"a": "none", "b": "frozen", "c": "full", "d": "drained and removed", "e": "added"}


def _round(seconds: float, *, trouble: bool) -> Round:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        folder.chmod(0o755)
        place = Cluster(stack, folder)
        path = folder / "databases.toml"
        _write(path, place.urls, NAMES[:4])
        (folder / "ended").mkdir()
        env = {"HOLDFAST_DATABASES_FILE": str(path), "BENCH_ENDED": str(folder / "ended")}
        stack.enter_context(command("labs.bench.application:divided", env, "--processes", str(PROCESSES)))
        for name in NAMES[:4]:
            _wait(place.urls[name], "SELECT count(*) = %s FROM holdfast.worker WHERE stopped_at IS NULL", PROCESSES)
        found = Round()
        producers = {name: stack.enter_context(Producer(place.urls[name], found, name)) for name in NAMES}
        steps = _steps(place, path, seconds) if trouble else []
        _produce(path, producers, seconds, steps)
        for producer in producers.values():
            producer.finish()
        for name in NAMES:
            _wait(place.urls[name], "SELECT count(*) = 0 FROM holdfast.job")
        _read(found, place, folder / "ended")
    return found


class Cluster:
    """Five servers, and a database on each; that of `c` is on a small file system."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.servers: dict[str, Server] = {}
        self.urls: dict[str, str] = {}
        self._frozen: list[int] = []
        self._folder = folder
        stack.callback(self.thaw)
        for name in NAMES:
            server = self.servers[name] = stack.enter_context(Server(version(), shared_buffers="64MB"))
            with psycopg.connect(server.url(), autocommit=True) as conn:
                create = sql.Composed([sql.SQL("CREATE DATABASE shop")])
                if name == "c":
                    self.space = stack.enter_context(_file_system(folder / "space", server))
                    conn.execute(
                        sql.SQL("CREATE TABLESPACE small LOCATION {}").format(sql.Literal(str(self.space / "data")))
                    )
                    create += sql.SQL(" TABLESPACE small")
                conn.execute(create)
            self.urls[name] = server.url("shop")
            with psycopg.connect(self.urls[name], autocommit=True) as conn:
                migrate(conn)

    def freeze(self) -> None:
        """Stop all processes of `b`."""
        pid = self.servers["b"].pid
        os.kill(pid, signal.SIGSTOP)  # from here on it starts no child that would be missed
        self._frozen = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        for child in self._frozen[1:]:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in reversed(self._frozen):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen = []

    def fill(self) -> None:
        """Take all the space of `c`."""
        with (self.space / "full").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(65_536)):
                pass

    def empty(self) -> None:
        (self.space / "full").unlink()


@contextmanager
def _file_system(place: Path, server: Server) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SPACE},mode=777", "tmpfs", str(place)], check=True)
    try:
        (place / "data").mkdir()
        owner = server.data.stat()
        os.chown(place / "data", owner.st_uid, owner.st_gid)
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def _steps(place: Cluster, path: Path, seconds: float) -> list[tuple[float, Any]]:
    """Return what happens, each with its time."""

    def drain() -> None:
        _write(path, place.urls, NAMES[:4], draining="d")

    def remove_and_add() -> None:
        _wait(place.urls["d"], "SELECT count(*) = 0 FROM holdfast.job")
        _write(path, place.urls, ("a", "b", "c", "e"))

    plan = (place.freeze, place.fill, drain, remove_and_add, place.thaw, place.empty)
    return [(seconds * part, step) for part, step in zip((0.1, 0.15, 0.2, 0.35, 0.75, 0.8), plan, strict=True)]


def _write(path: Path, urls: dict[str, str], names: tuple[str, ...], *, draining: str = "") -> None:
    lines = [
        f'{name} = {{ url = "{urls[name]}", draining = {"true" if name == draining else "false"} }}\n' for name in names
    ]
    new = path.with_suffix(".new")
    new.write_text("".join(lines))
    new.replace(path)


class Producer:
    """Enqueues the jobs of one database, in a thread: one that does not answer delays no other."""

    def __init__(self, url: str, found: Round, name: str) -> None:
        self._url = url
        self._found = found
        self._name = name
        self._jobs: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.put(None)

    def add(self, key: str) -> None:
        self._jobs.put(key)

    def finish(self) -> None:
        """Wait until all of its jobs are committed or refused."""
        self._jobs.put(None)
        self._thread.join(LAST_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        conn: psycopg.Connection[Any] | None = None
        while (key := self._jobs.get()) is not None:
            try:
                if conn is None or conn.closed:
                    conn = psycopg.connect(self._url)
                with conn.transaction():
                    divided.sync.enqueue(conn, take_a_while.new(key))
                self._found.made[self._name] += 1
            except psycopg.Error:
                self._found.refused[self._name] += 1


def _produce(path: Path, producers: dict[str, Producer], seconds: float, steps: list[tuple[float, Any]]) -> None:
    """Make jobs evenly, and let the steps happen at their times, in threads of their own."""
    begun, number, threads = time.monotonic(), 0, []
    databases, read = Databases.read(path), begun
    while (now := time.monotonic()) - begun < seconds:
        while steps and steps[0][0] <= now - begun:
            threads.append(threading.Thread(target=steps.pop(0)[1]))
            threads[-1].start()
        if now - read > 0.5:
            databases, read = Databases.read(path), now
        key = f"customer-{number}"
        producers[databases.place(key)].add(key)
        number += 1
        time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
    for thread in threads:
        thread.join(LAST_SECONDS)
    assert not steps


def _wait(url: str, query: str, *params: object) -> None:
    until = time.monotonic() + LAST_SECONDS
    with psycopg.connect(url, autocommit=True) as conn:
        while (row := conn.execute(query.encode(), params).fetchone()) is None or not row[0]:
            assert time.monotonic() < until, query
            time.sleep(0.1)


def _read(found: Round, place: Cluster, ended: Path) -> None:
    """Read what became of the jobs."""
    for name, url in place.urls.items():
        with psycopg.connect(url, autocommit=True) as conn:
            taken = b"extract(epoch FROM finished_at - created_at)"
            rows = conn.execute(b"SELECT " + taken + b" FROM holdfast.job_history WHERE status = 'completed'")
            found.latencies[name] = [float(row[0]) for row in rows]
            found.completed[name] = len(found.latencies[name])
    ends = Counter(line for file in ended.iterdir() for line in file.read_text().splitlines())
    found.doubled = sum(count - 1 for count in ends.values())
