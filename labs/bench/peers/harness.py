"""The measurements of one peer: the same for all, through its adapter."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import asdict
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import psycopg
import redis

from labs.bench.ground import progress
from labs.bench.peers import counters
from labs.bench.peers.backlog import multiply
from labs.bench.peers.place import interpreter, place
from labs.bench.peers.program import Program, Workers, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from labs.bench.peers.ground import Ground
    from labs.bench.peers.peer import Peer

DRAIN_SECONDS = 4.0
ONE_BY_ONE = 1_500
PICKUPS = 100
COUNTED = 10_000
BEHIND = 1_000_000
SEED = 1_000
LEAST = 200
HELD_SECONDS = 60.0
PATIENCE = 20.0
"""How many times as long as expected a drain may take, and as many seconds more."""


class Harness:
    def __init__(self, ground: Ground, peer: Peer, scale: float) -> None:
        self.ground = ground
        self.peer = peer
        self.scale = scale
        self._folder = place(peer.name, python=peer.python, node=peer.node)
        self._command = interpreter(self._folder, peer.adapter)
        self._url = ""
        self._looks = 0

    def speeds(self) -> dict[str, Any]:
        """Enqueue one by one and in bulk, drain with one process and with two, pickup: what depends on the machine."""
        jobs = self._jobs(DRAIN_SECONDS)
        with self._database():
            one = self._ask("one", max(50, round(ONE_BY_ONE * self.scale)))
            self._drain(one["jobs"] + 1, 1)
            many = self._fill(jobs)
            drains = [self._drain(jobs, 1)]
            self._fill(jobs)
            drains.append(self._drain(jobs, 2))
            late = self._pickup(max(10, round(PICKUPS * self.scale)))
        return {"one": one["jobs"] / one["seconds"], "many": many, "drain": drains, "pickup": percentiles(late)}

    def counts(self) -> dict[str, Any]:
        """Take what PostgreSQL counts for a job, from enqueue in bulk to its end."""
        jobs = max(LEAST, round(min(COUNTED, self.peer.pace * 2) * min(1, self.scale * 10)))
        conn = self.ground.conn
        with self.ground.quiet(), self._database():
            dbname = self._url.rsplit("/", 1)[1]
            self.ground.checkpoint()
            before = counters.read(conn, dbname)
            self._fill(jobs)
            filled = counters.read(conn, dbname)
            self._looks = 0
            self._drain(jobs, 1)
            done = counters.read(conn, dbname)
        # Our own looks whether all is done are statements and commits too.
        ours = counters.Counters(0, 0, self._looks + 1, self._looks)
        return {
            "jobs": jobs,
            "enqueue": asdict((filled - before).per(jobs)),
            "work": asdict((done - filled - ours).per(jobs)),
        }

    def behind(self) -> dict[str, Any]:
        """Drain with many finished jobs behind: a thousand done by the peer itself, and copies of them."""
        jobs = self._jobs(DRAIN_SECONDS / 2)
        with self._database():
            self._fill(self._seed)
            self._drain(self._seed, 1)
            finished = self._multiply(round(BEHIND * self.scale))
            self._fill(jobs)
            return {"finished": finished, "drain": self._drain(jobs, 1)}

    def held(self) -> dict[str, Any]:
        """Drain while a snapshot is held: how many jobs had started, moment by moment."""
        seconds = max(5.0, HELD_SECONDS * self.scale)
        wanted = round(self.peer.pace * seconds * 1.1)
        with self._database():
            if self.peer.rows:
                self._fill(self._seed)
                wanted = self._multiply(wanted)
            else:
                self._fill(wanted)
            with psycopg.connect(self._url) as pin, self._workers(1) as workers:
                pin.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                pin.execute("SELECT count(*) FROM pg_class")
                self.ground.checkpoint()
                workers.go()
                all_done = workers.wait(wanted, seconds)
            return {"all": all_done, "points": [(at - workers.first, started) for at, started in workers.points]}

    def soak(self, rate: int, seconds: int) -> dict[str, Any]:
        """Enqueue at a fixed rate, one by one, and take the time of each job from its moment to its handler."""
        with self._database(), self._workers(1) as workers:
            workers.go()
            with Program(self._command, self._folder, "rate", self._url, rate, seconds) as producer:
                begun = time.monotonic()
                workers.wait(rate * seconds, seconds + 60)
                sent = producer.wait_for_line(60)
        return {
            "rate": rate,
            "seconds": seconds,
            "sent in": sent["seconds"],
            "done": len(workers.late),
            "late": [(at - begun, value) for at, value in workers.late],
        }

    def _jobs(self, seconds: float) -> int:
        return max(LEAST, round(self.peer.pace * seconds * self.scale))

    @property
    def _seed(self) -> int:
        """How many jobs the peer itself makes before they are copied."""
        return max(LEAST, round(SEED * min(1, self.scale * 10)))

    def _multiply(self, wanted: int) -> int:
        """Copy what the peer made until there are so many, or a little fewer; return how many."""
        times = max(2, wanted // self._seed)
        with psycopg.connect(self._url, autocommit=True) as conn:
            multiply(conn, self.peer.rows, times)
        return times * self._seed

    @contextmanager
    def _database(self) -> Iterator[None]:
        with self.ground.database(self.peer) as self._url:
            self._ask("prepare")
            yield

    def _ask(self, verb: str, *numbers: int) -> dict[str, Any]:
        return ask(self._command, self._folder, verb, self._url, *numbers)

    def _workers(self, processes: int) -> Workers:
        return Workers(self._command, self._folder, self._url, processes)

    def _fill(self, jobs: int) -> float:
        """Enqueue in bulk; return how many a second."""
        answer = self._ask("many", jobs)
        return float(answer["jobs"] / answer["seconds"])

    def _drain(self, jobs: int, processes: int) -> float:
        """Return the rate from the first handler to the last ending written."""
        with self._workers(processes) as workers:
            self.ground.checkpoint()
            workers.go()
            patience = PATIENCE * (1 + jobs / self.peer.pace)
            if not workers.wait(jobs, patience):
                raise RuntimeError(f"{workers.started} of {jobs} jobs had started after {patience:.0f} s")
            return jobs / (self._when_finished(patience) - workers.first)

    def _when_finished(self, patience: float) -> float:
        until = time.monotonic() + patience
        with self._looking() as unfinished:
            while True:
                at = time.monotonic()
                if not unfinished():
                    return at
                assert at < until, "jobs were started and never finished"
                time.sleep(0.005)

    @contextmanager
    def _looking(self) -> Iterator[Any]:
        if self.peer.store == "redis":
            commands = [command.split() for command in self.peer.unfinished.split("; ")]
            with redis.Redis.from_url(self._url) as client:
                yield lambda: any(map(_size, (client.execute_command(*command) for command in commands)))
            return
        query = f"SELECT EXISTS ({self.peer.unfinished})".encode()
        with psycopg.connect(self._url, autocommit=True) as conn:

            def unfinished() -> bool:
                self._looks += 1
                row = conn.execute(query).fetchone()
                assert row is not None
                return bool(row[0])

            yield unfinished

    def _pickup(self, times: int) -> list[float]:
        """Enqueue a job now and then while nothing else is to be done; return milliseconds to its handler."""
        with self._workers(1) as workers, Program(self._command, self._folder, "pace", self._url) as producer:
            workers.go()
            producer.wait_for_line()
            for number in range(times + 2):
                time.sleep(random.uniform(0.03, 0.09))
                producer.report()
                producer.wait_for_line(30)
                if not workers.wait(number + 1, 30):
                    raise RuntimeError("a job was not picked up within 30 s")
            return [late for _, late in workers.late[2:]]


def _size(answer: Any) -> int:
    """XPENDING answers with a list that begins with a number, or a dictionary; the others with the number."""
    if isinstance(answer, dict):
        return int(answer["pending"])
    return int(answer[0] if isinstance(answer, list) else answer)


def percentiles(late: list[float]) -> dict[str, float]:
    cuts = quantiles(late, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def measure(ground: Ground, peer: Peer, bare: Peer, scale: float) -> dict[str, Any]:
    """Return everything about a peer, and the bare loop's speeds taken directly before."""
    progress(f"peers: {peer.name}: the bare loop before it")
    result: dict[str, Any] = {"bare": Harness(ground, bare, scale / 2).speeds()}
    harness = Harness(ground, peer, scale)
    for part in ("speeds", "counts", "behind", "held"):
        if peer.store == "redis" and part != "speeds":
            continue
        if part == "behind" and not peer.keeps:
            continue
        progress(f"peers: {peer.name}: {part}")
        try:
            result[part] = getattr(harness, part)()
        except (AssertionError, RuntimeError, psycopg.Error) as error:
            result.setdefault("errors", {})[part] = str(error)[-500:]
            progress(f"peers: {peer.name}: {part} failed: {error}")
    return result
