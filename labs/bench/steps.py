"""The cost of each call on one connection: with one job or event in it, and with many."""

from __future__ import annotations

import base64
import random
import time
from collections import defaultdict
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._drivers import run_sync
from holdfast._model.event import NewEvent
from holdfast._model.new_job import Envelope, NewJob
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.event import Cut, publish_events, read_events
from holdfast._store.subscription import advance_position, join_subscription, subscribe
from labs.bench.cpu import time_on_cpu
from labs.bench.load import KIND
from labs.bench.wal import position
from labs.bench.watch import no_garbage_collection
from labs.bench.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

FEW, MANY = 1, 500
ROUNDS = {FEW: 300, MANY: 24}
TOPIC = "bench.event"


class StepSpent(NamedTuple):
    """Bytes of WAL, and microseconds of CPU of the backend and of this process."""

    wal: float
    server: float
    client: float


def payload_of(size: int) -> str:
    """Return a JSON object of this many bytes that does not compress."""
    text = base64.b64encode(random.Random(size).randbytes(size)).decode()
    return f'{{"data":"{text[: size - 11]}"}}'


class Steps:
    """Enqueues, claims and finishes batches, publishes and reads events, and counts what each call spends."""

    def __init__(self, conn: psycopg.Connection[Any], payload: str, items: int) -> None:
        self._conn, self._items = conn, items
        self._worker = Worker(conn)
        self._jobs = [NewJob[object](Envelope(KIND), payload)] * items
        self._events = [NewEvent(TOPIC, payload, key=str(n)) for n in range(items)]
        self._subscription = run_sync(
            conn, subscribe(f"bench{items}", target="bench", topics=[], partitions=1, beginning=False)
        ).id
        membership = run_sync(conn, join_subscription(self._subscription, self._worker.id, lease_ms=3_600_000))
        assert membership is not None
        [self._held] = membership.held
        self.calls: defaultdict[str, list[StepSpent]] = defaultdict(list)

    def run(self, rounds: int) -> None:
        with no_garbage_collection():
            for _ in range(rounds):
                self._round()

    def medians(self) -> dict[str, StepSpent]:
        """Return what the median call of each step spends."""
        return {
            name: StepSpent(*(median(call[part] for call in calls) for part in range(3)))
            for name, calls in self.calls.items()
        }

    def _round(self) -> None:
        with self._step("enqueue"):
            run_sync(self._conn, enqueue_jobs(self._jobs))
        with self._step("claim"):
            jobs = self._worker.claim(self._items).jobs
        assert len(jobs) == self._items
        with self._step("finish"):
            self._worker.finish(jobs)
        with self._step("publish"):
            run_sync(self._conn, publish_events(self._events))
        with self._step("relay"):
            page = run_sync(self._conn, read_events(Cut((), 1, 0), self._held.position, limit=2 * MANY))
            moved = run_sync(self._conn, advance_position(self._subscription, self._worker.id, self._held, page.after))
        assert len(page.events) == self._items
        assert moved is not None
        self._held = moved

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        wal, server, client = position(self._conn), self._server(), time.thread_time()
        yield
        spent = (time.thread_time() - client, self._server() - server, position(self._conn) - wal)
        self.calls[name].append(StepSpent(spent[2], spent[1] * 1e6, spent[0] * 1e6))

    def _server(self) -> float:
        return time_on_cpu(self._conn.info.backend_pid)


def step_costs(conn: psycopg.Connection[Any], size: int, scale: float) -> dict[str, dict[str, StepSpent]]:
    """Return, for each step, the cost of a call and that of an item in it."""
    found = {}
    for items, rounds in ROUNDS.items():
        steps = Steps(conn, payload_of(size), items)
        steps.run(2)
        steps.calls.clear()
        steps.run(max(4, round(rounds * scale)))
        found[items] = steps.medians()
    return {name: split(found[FEW][name], found[MANY][name]) for name in found[FEW]}


def split(few: StepSpent, many: StepSpent) -> dict[str, StepSpent]:
    """Return the cost of a call and of an item, from a call with few and one with many."""
    item = StepSpent(*((b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True)))
    call = StepSpent(*(max(0.0, a - FEW * b) for a, b in zip(few, item, strict=True)))
    return {"call": call, "item": item}
