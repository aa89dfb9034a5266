"""`holdfast worker --http`: /live, /ready and /metrics of a real process."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast
from holdfast._cli.arguments import Address
from holdfast._cli.probe import probed
from holdfast._model.settings import Settings
from holdfast._telemetry.metrics import PROCESS
from tests.kit.commands import Running, holdfast
from tests.kit.databases import clone, drop_left
from tests.kit.waiting import until
from tests.kit.workers import enqueue, job
from tests.telemetry.asking import ask, sample, wait_until
from tools.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    from tools.postgres import Server

    Connect = Callable[..., psycopg.Connection[Any]]

# A lease so short that a loop which stands still for a while is noticed within a test.
SHORT = {
    "HOLDFAST_LEASE_MS": "1000",
    "HOLDFAST_HEARTBEAT_MS": "200",
    "HOLDFAST_REAP_INTERVAL_MS": "300",
    "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "500",
}


def test_a_worker_serves_its_own_metrics(database: str, shop: Path, connect: Connect) -> None:
    port = free_port()
    enqueue(connect(), *(job("order.pack", queue="packing") for _ in range(7)))
    with Running("worker", "shop:app", "--http", f"127.0.0.1:{port}", database=database, cwd=shop) as worker:
        worker.wait_for_line(f"listening on http://127.0.0.1:{port}")
        answer = wait_until(
            port, "/metrics", lambda answer: sample(answer, "holdfast_processed_total", outcome="completed") == 7
        )
        assert answer.media_type.startswith("text/plain; version=")
        families = {family.name: family for family in text_string_to_metric_families(answer.text)}
        assert {i.prometheus.removesuffix("_total") for i in PROCESS} <= families.keys()
        [up] = families["holdfast_worker_up"].samples
        assert up.value == 1
        assert f":{worker.process.pid}:" in up.labels["worker"]
        open_metrics = ask(port, "/metrics", accept="application/openmetrics-text; version=1.0.0")
        assert open_metrics.media_type.startswith("application/openmetrics-text")
        assert open_metrics.text.endswith("# EOF\n")
        assert ask(port, "/live")[:1] == (200,)
        answer = wait_until(port, "/ready", lambda answer: answer.status == 200)
        loops = {loop["loop"]: loop for loop in answer.json.pop("loops")}
        assert answer.json == {"ready": True, "problems": []}
        assert {"claimer", "finisher", "reaper", "heartbeat", "runner maintenance"} <= loops.keys()
        assert all(loop["running"] and loop["ends"] == 0 for loop in loops.values())
        assert ask(port, "/else").status == 404
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


@pytest.mark.nightly
def test_the_registry_of_the_application_is_the_one_that_is_served(database: str, shop: Path) -> None:
    port = free_port()
    with Running(
        "worker", "shop:app", "--http", f"127.0.0.1:{port}", database=database, cwd=shop, SHOP_INSTRUMENTED="1"
    ):
        answer = wait_until(port, "/metrics", lambda answer: "holdfast_worker_up{" in answer.text)
        assert "python_info" in answer.text


@pytest.mark.nightly
def test_each_of_several_processes_has_the_next_port(database: str, shop: Path) -> None:
    port = free_port(3)
    with Running(
        "worker", "shop:app", "--processes", "3", "--http", f"127.0.0.1:{port}", database=database, cwd=shop
    ) as worker:
        pids = set()
        for place in range(3):
            answer = wait_until(port + place, "/metrics", lambda answer: "holdfast_worker_up{" in answer.text)
            pids |= {line.rpartition(":")[2].split('"')[0] for line in answer.text.splitlines() if "worker_up{" in line}
        assert len(pids) == 3
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


@pytest.mark.nightly
def test_a_loop_that_stands_still_is_not_alive_and_says_so(database: str, shop: Path, connect: Connect) -> None:
    """The metrics are still there, because that is when people look at them."""
    port = free_port()
    with Running("worker", "shop:app", "--http", f"127.0.0.1:{port}", database=database, cwd=shop, **SHORT):
        wait_until(port, "/ready", lambda answer: answer.status == 200)
        enqueue(connect(), job("order.block", '{"seconds": 3600}'))
        dead = wait_until(port, "/live", lambda answer: answer.status == 503)
        assert dead.json["live"] is False
        assert "stood still" in dead.json["text"]
        assert ask(port, "/metrics").status == 200
        wait_until(port, "/ready", lambda answer: "no_reaper" in [one["code"] for one in answer.json["problems"]])
        # The claimer may stand still for longest before it counts as stalled: other loops are named before it.
        wait_until(port, "/ready", lambda answer: "claimer" in {one["loop"] for one in answer.json["problems"]})


def test_a_worker_that_cannot_reach_its_database_is_alive_and_not_ready(
    server: Server, template: str, shop: Path
) -> None:
    port = free_port()
    with clone(server, template) as database:
        running = Running("worker", "shop:app", "--http", f"127.0.0.1:{port}", database=database, cwd=shop, **SHORT)
        running.__enter__()
        wait_until(port, "/ready", lambda answer: answer.status == 200)
    drop_left(server)
    try:
        # On a slow machine the reaper's last pass may seem long ago before the database does.
        answer = wait_until(
            port, "/ready", lambda answer: [p["code"] for p in answer.json["problems"]] == ["database_unreachable"]
        )
        assert answer.status == 503
        assert answer.json["problems"][0]["deployment_blocker"] is False
        assert answer.json["problems"][0]["database"] == database.rpartition("/")[2]
        assert ask(port, "/live").status == 200
    finally:
        running.__exit__()


@pytest.mark.nightly
def test_one_of_several_databases_that_goes_away_leaves_the_worker_ready(
    database: str, server: Server, template: str, shop: Path, connect: Connect
) -> None:
    port = free_port()
    with ExitStack() as stack:
        with clone(server, template) as other:
            listed = {"HOLDFAST_DATABASE_URL": f"eu={database} us={other}"}
            command = ("worker", "shop:app", "--http", f"127.0.0.1:{port}")
            stack.enter_context(Running(*command, database=None, cwd=shop, **SHORT, **listed))
            wait_until(port, "/ready", lambda answer: answer.status == 200 and not answer.json["problems"])
        drop_left(server)
        away = [("us", "database_unreachable")]
        answer = wait_until(
            port, "/ready", lambda answer: [(p["database"], p["code"]) for p in answer.json["problems"]] == away
        )
        assert (answer.status, answer.json["ready"]) == (200, True)
        enqueue(connect(), job("order.pack", queue="packing"))
        wait_until(
            port, "/metrics", lambda answer: sample(answer, "holdfast_processed_total", outcome="completed") == 1
        )


@pytest.mark.nightly
def test_a_worker_that_stops_is_no_longer_ready(database: str, shop: Path, connect: Connect) -> None:
    port = free_port()
    with Running("worker", "shop:app", "--http", f"127.0.0.1:{port}", database=database, cwd=shop) as worker:
        wait_until(port, "/ready", lambda answer: answer.status == 200)
        enqueue(connect(), job("order.wait"))
        wait_until(port, "/metrics", lambda answer: sample(answer, "holdfast_held") == 1)
        worker.signal(signal.SIGTERM)
        answer = wait_until(port, "/ready", lambda answer: answer.status == 503)
        assert answer.json["problems"][0]["code"] == "stopping"
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


@pytest.mark.nightly
def test_a_port_that_is_taken_is_refused_in_one_line(database: str, shop: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = holdfast("worker", "shop:app", "--http", f"127.0.0.1:{port}", database=database, cwd=shop)
    assert answer.status == 1
    assert answer.err == f"holdfast worker: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_addresses_that_are_none_are_refused(database: str, shop: Path) -> None:
    for wrong in ("9464", ":9464", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x"):
        answer = holdfast("worker", "shop:app", "--http", wrong, database=database, cwd=shop)
        assert answer.status == 2, wrong
        assert "write HOST:PORT" in answer.err
    last = holdfast("worker", "shop:app", "--http", "127.0.0.1:65535", "--processes", "2", database=database, cwd=shop)
    assert (last.status, last.err) == (1, "holdfast worker: 127.0.0.1:65535: there is no port 65536\n")


@pytest.mark.parametrize("role", ["probe", "probe turn"])
async def test_what_answers_is_kept_running(role: str, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    async with probed(Holdfast(), Address("127.0.0.1", port), Settings.load({})) as probe:
        (kept,) = [kept for kept in probe.keeper.loops if kept.role == role]
        for _ in range(2):
            before = kept.ends
            kept.strike(RuntimeError("struck"))
            await until(lambda: kept.ends > before and kept.running and kept.struck is None)  # noqa: B023 - called here
            answer = await asyncio.to_thread(wait_until, port, "/live", lambda answer: answer.status == 200)
            assert answer.status == 200
        assert not any(kept.vitals.broken for kept in probe.keeper.loops)
    assert "a loop of the worker ended, and is started again" in caplog.text
    with socket.create_server(("127.0.0.1", port)):
        """Nobody listens there any more."""
