"""dramatiq on Redis: eight threads in each process, its default."""

from __future__ import annotations

import threading

import dramatiq
from adapter import contextmanager, main, started
from dramatiq.brokers.redis import RedisBroker


def make(url: str):
    broker = RedisBroker(url=url)
    dramatiq.set_broker(broker)

    @dramatiq.actor(actor_name="noop", broker=broker)
    def noop(at: float, data: str) -> None:  # noqa: ARG001
        started(at)

    return broker, noop


def prepare(url: str) -> None:
    """Dramatiq needs nothing made."""


@contextmanager
def produce(url: str):
    _, noop = make(url)

    def one(job: dict) -> None:
        noop.send(**job)

    def many(jobs: list[dict]) -> None:
        dramatiq.group([noop.message(**job) for job in jobs]).run()

    yield one, many


def work(url: str) -> None:
    broker, _ = make(url)
    dramatiq.Worker(broker, worker_threads=8).start()
    threading.Event().wait()


main(prepare=prepare, produce=produce, work=work)
