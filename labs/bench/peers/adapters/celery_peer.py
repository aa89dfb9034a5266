"""Celery on Redis: one solo worker per process, nothing but the work (no events, no results, no gossip)."""

from __future__ import annotations

from adapter import contextmanager, main, started
from celery import Celery


def make(url: str):
    app = Celery("bench", broker=url)
    app.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=1_000,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
    )

    @app.task(name="noop")
    def noop(at: float, data: str) -> None:  # noqa: ARG001
        started(at)

    return app, noop


def prepare(url: str) -> None:
    """Celery needs nothing made."""


@contextmanager
def produce(url: str):
    _, noop = make(url)

    def one(job: dict) -> None:
        noop.apply_async(kwargs=job)

    def many(jobs: list[dict]) -> None:
        for job in jobs:
            noop.apply_async(kwargs=job)

    yield one, many


def work(url: str) -> None:
    app, _ = make(url)
    app.Worker(pool="solo", loglevel="ERROR", without_gossip=True, without_mingle=True, without_heartbeat=True).start()


main(prepare=prepare, produce=produce, work=work)
