"""A worker is ready while its loops turn and its endings are written."""

from __future__ import annotations

import asyncio
import json
import math
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast._engine.jobs.finish import Finisher
from holdfast._engine.jobs.heartbeat import Vitals
from holdfast._engine.keeper import LoopVitals
from holdfast._ops.health import Trouble, troubles_of_worker, worker_ready_response
from tests.kit.pace import QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Holdfast, Job
    from holdfast._engine.attempt import Attempt
    from holdfast._engine.link import Link
    from holdfast._engine.worker import Worker
    from tests.kit.ledger import Ledger

HEARTBEAT = timedelta(seconds=10)
LEASE = timedelta(seconds=60)
WELL = LoopVitals("claimer", running=True, turned=1.0, late=0.0, ends=0, broken=False)


def troubles(vitals: Vitals, *loops: LoopVitals) -> list[Trouble]:
    found = troubles_of_worker([vitals], loops, heartbeat=HEARTBEAT, reap_interval=LEASE, lease=LEASE)
    return list(found)


def healthy(*loops: LoopVitals, unwritten: float = 0.0) -> Vitals:
    return Vitals("shop", beat=1.0, reap=1.0, unwritten=unwritten, loops=loops)


def test_a_worker_whose_loops_turn_is_ready() -> None:
    assert troubles(healthy(WELL), WELL) == []


def test_a_loop_that_waits_for_work_is_not_late() -> None:
    assert troubles(healthy(WELL._replace(turned=math.inf))) == []


@pytest.mark.parametrize("broken", [False, True])
def test_a_loop_that_has_ended_is_named(broken: bool) -> None:
    [trouble] = troubles(healthy(WELL, WELL._replace(name="finisher", running=False, ends=2, broken=broken)))
    assert (trouble.code, trouble.loop, trouble.database) == ("loop_ended", "finisher", "shop")
    assert trouble.deployment_blocker is broken
    [of_none] = troubles(healthy(), WELL._replace(name="runner tidy", running=False, ends=1))
    assert (of_none.loop, of_none.database) == ("runner tidy", None)


def test_a_loop_that_is_late_is_named() -> None:
    assert troubles(healthy(WELL._replace(late=119.0))) == []
    [trouble] = troubles(healthy(WELL._replace(turned=150.0, late=121.0)))
    assert (trouble.code, trouble.loop) == ("loop_stalled", "claimer")
    assert "150 s" in trouble.text


def test_endings_that_are_not_written_are_a_reason() -> None:
    assert troubles(healthy(WELL, unwritten=29.0)) == []
    [trouble] = troubles(healthy(WELL, unwritten=31.0))
    assert (trouble.code, trouble.loop) == ("endings_unwritten", "finisher")


def test_a_database_that_is_away_explains_the_rest() -> None:
    [trouble] = troubles(Vitals("shop", beat=60.0, reap=60.0, unwritten=60.0, loops=(WELL._replace(late=1000.0),)))
    assert trouble.code == "database_unreachable"


def test_the_answer_has_every_loop_by_name() -> None:
    answer = worker_ready_response([], [healthy(WELL)], [WELL._replace(name="hook note", ends=1)])
    assert answer.status_code == 200
    assert json.loads(bytes(answer.body))["loops"] == [
        {"loop": "hook note", "database": None, "running": True, "turned": 1.0, "ends": 1},
        {"loop": "claimer", "database": "shop", "running": True, "turned": 1.0, "ends": 0},
    ]


def test_one_of_several_databases_in_trouble_leaves_the_worker_ready() -> None:
    away = Trouble(code="database_unreachable", text="The database has not answered for 60 s.", database="us")
    eu, us = healthy(WELL)._replace(database="eu"), healthy(WELL)._replace(database="us")
    answer = worker_ready_response([away], [eu, us], [])
    reply = json.loads(bytes(answer.body))
    assert (answer.status_code, reply["ready"]) == (200, True)
    assert [(one["code"], one["database"]) for one in reply["problems"]] == [("database_unreachable", "us")]
    all_away = [away, away.model_copy(update={"database": "eu"})]
    assert worker_ready_response(all_away, [eu, us], []).status_code == 503
    assert worker_ready_response([away], [us], []).status_code == 503, "the only one"


def test_a_loop_of_the_worker_itself_is_in_the_way_of_all_databases() -> None:
    loop = WELL._replace(name="hook note", running=False, ends=1)
    vitals = [healthy(WELL)._replace(database=name) for name in ("eu", "us")]
    found = list(troubles_of_worker(vitals, [loop], heartbeat=HEARTBEAT, reap_interval=LEASE, lease=LEASE))
    assert worker_ready_response(found, vitals, [loop]).status_code == 503


async def test_a_finisher_that_writes_nothing_is_not_ready(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives, and turns no more: everything else about the worker looks well."""
    go, write = asyncio.Event(), Finisher._write

    async def hang(self: Finisher, batch: Sequence[Attempt], link: Link) -> None:
        await go.wait()
        await write(self, batch, link)

    monkeypatch.setattr(Finisher, "_write", hang)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    def codes(worker: Worker) -> list[str]:
        found = troubles_of_worker(
            worker.vitals, worker.keeper.vitals, heartbeat=ms(300), reap_interval=LEASE, lease=LEASE
        )
        return [trouble.code for trouble in found if trouble.code != "database_unreachable"]

    async with app.worker(**QUICK | {"heartbeat": ms(300)}) as worker:
        assert codes(worker) == []
        job = ledger.enqueue_one(act.new())
        await until(lambda: codes(worker) == ["endings_unwritten"])
        go.set()
        await until(lambda: ledger.status(job) == "completed")
        await until(lambda: codes(worker) == [])
