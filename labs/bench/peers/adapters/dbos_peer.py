"""DBOS Transact: a queue of workflows, polled every 50 ms, 100 at a time in each process."""

from __future__ import annotations

import threading

from adapter import RATE, contextmanager, main, started
from dbos import DBOS, DBOSClient

CONCURRENCY = 100
NAME = "holdfast-bench"


@DBOS.workflow(name="noop")
def noop(at: float, data: str) -> None:  # noqa: ARG001
    started(at)


def launch(url: str) -> None:
    DBOS(
        config={
            "name": NAME,
            "system_database_url": url,
            "log_level": "ERROR",
            "application_version": "1",
            "sys_db_pool_size": 20,
            "run_admin_server": False,
        }
    )
    DBOS.launch()


def prepare(url: str) -> None:
    launch(url)
    limiter = {"limiter": {"limit": RATE, "period": 1}} if RATE else {}
    DBOS.register_queue("default", worker_concurrency=CONCURRENCY, polling_interval_sec=0.05, **limiter)
    DBOS.destroy()


@contextmanager
def produce(url: str):
    client = DBOSClient(system_database_url=url)
    options = {"queue_name": "default", "workflow_name": "noop", "app_version": "1"}

    def one(job: dict) -> None:
        client.enqueue(options, **job)

    def many(jobs: list[dict]) -> None:
        for job in jobs:
            one(job)

    yield one, many
    client.destroy()


def work(url: str) -> None:
    launch(url)
    threading.Event().wait()


main(prepare=prepare, produce=produce, work=work)
