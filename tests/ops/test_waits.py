"""Why a job does not run now: each reason, and the same sentence on every surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Limit, OrderKey
from holdfast._drivers import run_sync
from holdfast._ops.caller import Person, RequestRefused, Role
from holdfast._ops.requests import OrderKeyAction, QueueAction
from holdfast._ops.service import Service
from holdfast._store.limit import declare_limits
from holdfast._store.worker import register_worker
from tests.kit.access import PATIENT
from tests.kit.commands import holdfast
from tests.kit.workers import FAILED, Worker, enqueue, job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

    from holdfast._ops.responses.job import JobWait

ANN = Person("ann", Role.OPERATOR)


@pytest.fixture
async def service(database: str) -> AsyncIterator[Service]:
    async with Service(database, timeout=PATIENT) as service:
        yield service


@pytest.fixture
def worker(conn: psycopg.Connection[Any]) -> Worker:
    return Worker(conn)


async def waits(service: Service, job_id: int) -> list[JobWait]:
    return list((await service.job(job_id)).waits)


async def only(service: Service, job_id: int) -> JobWait:
    (wait,) = await waits(service, job_id)
    return wait


async def test_a_due_job_waits_for_its_turn(service: Service, conn: psycopg.Connection[Any], worker: Worker) -> None:
    (id_,) = enqueue(conn, job())
    assert (
        await only(service, id_)
    ).text == "It is due, and starts when a worker has a free slot of the queue default."
    worker.claim()
    assert await waits(service, id_) == [], "it runs"
    conn.execute("UPDATE holdfast.worker SET heartbeat_at = now() - interval '2 minutes'")
    wait = await only(service, id_)
    assert wait.code == "silent_worker"
    assert wait.text.startswith("It is held by the worker tester, without a heartbeat since 2")


async def test_nobody_serves_it_or_reads_its_payload(service: Service, conn: psycopg.Connection[Any]) -> None:
    (id_,) = enqueue(conn, job())
    wait = await only(service, id_)
    assert (wait.code, wait.text) == ("unserved", "No live worker takes k from the queue default.")
    run_sync(conn, register_worker("old", queues=["default"], kinds=["k"]))
    conn.execute("UPDATE holdfast.job SET payload_version = 3")
    wait = await only(service, id_)
    assert wait.text == "Its payload has version 3, and live workers read k up to version 1."
    run_sync(conn, register_worker("new", queues=["default"], kinds=["k"], versions={"k": 3}))
    assert (await only(service, id_)).code == "turn"


async def test_its_queue_is_paused_and_it_is_not_due(
    service: Service, conn: psycopg.Connection[Any], worker: Worker
) -> None:
    (id_,) = enqueue(conn, job(delay=3600))
    await service.act_on_queue("default", QueueAction(action="pause", reason="deploy"), ANN)
    first, second = await waits(service, id_)
    assert (first.code, second.code) == ("paused", "not_due")
    assert first.text.startswith("The queue default is paused since 2")
    assert first.text.endswith(" by ann (deploy).")
    assert second.text.startswith("It is due at 2")


async def test_a_stopped_order_key_is_resumed_beside_the_job(
    service: Service, database: str, conn: psycopg.Connection[Any], worker: Worker
) -> None:
    key = OrderKey("account 7", on_failure="block")
    dead, first, second = enqueue(conn, *[job(order_key=key) for _ in range(3)])
    assert (await only(service, second)).text == f"It waits for job {dead}, which comes before it in the order key."
    worker.end(worker.claim(), FAILED)
    wait = await only(service, first)
    assert (wait.code, wait.jobs) == ("order_stopped", [dead])
    assert wait.command == "holdfast jobs resume-key 'account 7'"
    assert wait.text in holdfast("jobs", "show", str(first), database=database).out
    assert (await service.job(dead)).key_stop == 2
    assert (await service.job(first)).key_stop is None
    await service.act_on_order_key(OrderKeyAction(action="resume", key="account 7"), ANN)
    assert (await service.job(dead)).key_stop is None
    assert (await only(service, first)).code == "turn"
    with pytest.raises(RequestRefused, match="No dead letter has stopped that order key"):
        await service.act_on_order_key(OrderKeyAction(action="resume", key="account 7"), ANN)


async def test_it_waits_for_chains_and_where_these_stand(
    service: Service, conn: psycopg.Connection[Any], worker: Worker
) -> None:
    (blocker,) = enqueue(conn, job())
    (id_,) = enqueue(conn, job(after=[blocker]))
    wait = await only(service, id_)
    assert wait.text == f"It waits for the end of 1 chain: chain {blocker} at job {blocker}, k, pending."
    assert (wait.code, wait.jobs, wait.chains) == ("blockers", [blocker], [blocker])


async def test_it_waits_for_a_limit_or_apart(service: Service, conn: psycopg.Connection[Any], worker: Worker) -> None:
    run_sync(conn, declare_limits({"api": Limit(concurrency=1)}))
    _, second, third = enqueue(conn, *[job() for _ in range(3)])
    conn.execute("UPDATE holdfast.job SET limits = '{api}' WHERE id <> %s", [third])
    worker.claim(1)
    worker.claim(1)
    wait = await only(service, second)
    assert wait.text == "It waits for a limit: 1 of 1 of limit api are taken, and 0 wait before it."
    assert wait.command == "holdfast limits set api --concurrency N"
    (apart,) = enqueue(conn, job())
    conn.execute("UPDATE holdfast.job SET suspect = 1 WHERE id = %s", [apart])
    assert (await waits(service, apart))[0].code == "isolated"
