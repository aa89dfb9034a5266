"""A server that only reads, as an address may lead to one for a while at a failover."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from holdfast.ops import operations
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Asked, ask, bearer
from tests.kit.commands import holdfast
from tests.kit.databases import clone, create_template
from tests.kit.shop import make_app
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def standby(server_version: int) -> Iterator[tuple[str, str]]:
    """The address of a database on a server in recovery, and a developer's token for it."""
    with Server(server_version) as alone, clone(alone, create_template(alone)) as url:
        token = make_token(url, "developer")
        alone.stop()
        signal = alone.data / "standby.signal"
        signal.touch()
        owner = alone.data.stat()
        os.chown(signal, owner.st_uid, owner.st_gid)
        alone.start()
        yield url, token
        alone.stop()
        signal.unlink()
        alone.start()


SAID = "This server only reads, as a standby does: ask the primary."


@pytest.mark.parametrize("path", ["/api/v1/me", "/api/v1/overview", "/api/v1/jobs", "/api/v1/queues"])
async def test_what_is_asked_is_refused_with_the_reason(standby: tuple[str, str], path: str) -> None:
    url, token = standby
    site = operations(make_app(url), timeout=PATIENT)
    answer = await ask(site, Asked("GET", path, headers=bearer(token)))
    await site.state.operations.close()
    assert (answer.status, answer.refusal.code, answer.refusal.detail) == (503, "database_read_only", SAID)


async def test_it_is_not_ready_and_the_metrics_say_that_the_fleet_is_not_seen(standby: tuple[str, str]) -> None:
    site = operations(make_app(standby[0]), timeout=PATIENT, public_metrics=True)
    ready, metrics = [await ask(site, Asked("GET", path)) for path in ("/ready", "/metrics")]
    await site.state.operations.close()
    assert (ready.status, ready.json["problems"][0]["text"]) == (503, SAID)
    assert metrics.status == 200
    assert b"holdfast_fleet_up 0.0" in metrics.body


@pytest.mark.parametrize("command", [["queues"], ["queues", "pause", "mail"]])
def test_a_command_says_so_in_one_line(standby: tuple[str, str], command: list[str]) -> None:
    reply = holdfast(*command, "--database-url", standby[0])
    assert (reply.status, reply.err) == (1, f"holdfast queues: {SAID}\n")


@pytest.mark.parametrize("command", [["runners"], ["jobs", "list"]])
def test_a_command_that_only_reads_is_answered(standby: tuple[str, str], command: list[str]) -> None:
    reply = holdfast(*command, "--database-url", standby[0])
    assert (reply.status, reply.err) == (0, "")
