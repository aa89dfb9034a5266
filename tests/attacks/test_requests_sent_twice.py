"""A writing request is repeated with its Idempotency-Key: by a proxy, a client that saw no answer, or a thief."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from starlette.requests import Request

from holdfast._ops.idempotency import digest
from holdfast._ops.routes import ROUTES
from holdfast.ops import Role, operations
from tests.attacks.api import make_token
from tests.kit.access import PATIENT
from tests.kit.asking import Answered, Asked, ask, bearer
from tests.kit.limits import set_limits
from tests.kit.shop import Shop, fill
from tests.ops.cases import CSRF

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette

    from tests.kit.ledger import Ledger

JOBS = "/api/v1/jobs/actions"


@pytest.fixture
def shop(database: str) -> Shop:
    return fill(database)


@pytest.fixture
async def site(shop: Shop) -> AsyncIterator[Starlette]:
    site = operations(shop.app, timeout=PATIENT)
    yield site
    await site.state.operations.close()


def keyed(method: str, path: str, json: Any, token: str, key: str = "a-key") -> Asked:
    return Asked(method, path, json=json, headers=(*bearer(token), ("idempotency-key", key)))


def reply(answered: Answered) -> tuple[int, bool]:
    return answered.status, "idempotency-replayed" in answered.headers


async def test_every_writing_call_is_done_once(site: Starlette, database: str, shop: Shop, ledger: Ledger) -> None:
    token = make_token(database, Role.DEVELOPER)
    set_limits(ledger.conn, **{"carts.sweep": 5})
    ledger.do("UPDATE holdfast.limit_rule SET declared = json_build_object('concurrency', 5, 'burst', 1)")
    ledger.do(f"INSERT INTO holdfast.order_stop VALUES ('account 7', {shop.dead}, now())")
    ledger.do(
        "INSERT INTO holdfast.bulk_action (last_id, action, statuses, who, role, next_at)"
        " VALUES (0, 'cancel', '{pending}', 'ann', 'operator', now() + interval '1 day')"
    )
    last_at = ledger.value("SELECT finished_at FROM holdfast.job_failed").isoformat()
    group = {"kind": "mail.break", "queue": "mail", "error_code": "ValueError", "last_at": last_at}
    calls = [
        ("POST", "/api/v1/dead-letters/actions", {"action": "dismiss", **group}),
        ("POST", "/api/v1/bulk-actions/1/actions", {"action": "stop"}),
        ("POST", JOBS, {"action": "retry", "ids": [str(shop.dead)], "preview": False, "again": True}),
        ("POST", "/api/v1/order-keys/actions", {"action": "resume", "key": "account 7"}),
        ("POST", "/api/v1/runners/carts.sweep/actions", {"action": "run"}),
        ("POST", "/api/v1/queues/mail/actions", {"action": "pause"}),
        ("PUT", "/api/v1/queues/mail", {"concurrency": 3, "lease_ms": 5000, "rate": None}),
        ("PUT", "/api/v1/limits/carts.sweep", {"concurrency": 3, "rate": None}),
        ("DELETE", "/api/v1/limits/carts.sweep", None),
        ("PUT", "/api/v1/archive/retention", {"family": "job_history", "days": 30}),
        ("POST", "/api/v1/subscriptions/ledger/actions", {"action": "pause"}),
        ("POST", "/outbox/run-once", None),
    ]
    paths = {
        route.path.format(name="carts.sweep", queue="mail", id=1)
        for route in ROUTES
        if route.role and route.method != "GET"
    }
    assert {path.replace("ledger", "carts.sweep") for _, path, _ in calls} == paths
    for number, (method, path, json) in enumerate(calls):
        asked = keyed(method, path, json, token, f"key {number}".replace(" ", "-"))
        first, second, third = [await ask(site, asked) for _ in range(3)]
        assert (reply(first), reply(second), reply(third)) == ((200, False), (200, True), (200, True)), path
        assert first.body == second.body == third.body
        lines = ledger.value("SELECT count(*) FROM holdfast.audit WHERE action NOT LIKE '%%.begin'")
        assert lines == number + 1, path
    assert ledger.value("SELECT count(*) FROM holdfast.replay") == 1


async def test_a_key_is_for_one_request_of_one_caller(site: Starlette, database: str, ledger: Ledger) -> None:
    ann, bob = make_token(database, Role.OPERATOR, "ann"), make_token(database, Role.OPERATOR, "bob")
    path = "/api/v1/queues/mail/actions"
    assert reply(await ask(site, keyed("POST", path, {"action": "pause"}, ann))) == (200, False)
    other = await ask(site, keyed("POST", path, {"action": "resume"}, ann))
    assert (other.status, other.refusal.code) == (422, "key_reused")
    assert reply(await ask(site, keyed("POST", path, {"action": "resume"}, bob))) == (200, False)
    for wrong in ("", "a b", "x" * 201, "\x7f"):
        answered = await ask(site, keyed("POST", path, {"action": "pause"}, ann, wrong))
        assert (answered.status, answered.refusal.code) == (422, "invalid")


async def test_a_key_is_forgotten_after_a_day(site: Starlette, database: str, ledger: Ledger) -> None:
    """So the table stays small however many keys are sent."""
    asked = keyed("POST", "/api/v1/queues/mail/actions", {"action": "pause"}, make_token(database, Role.OPERATOR))
    assert reply(await ask(site, asked)) == (200, False)
    ledger.do("UPDATE holdfast.answered SET at = at - interval '25 hours'")
    assert reply(await ask(site, asked)) == (200, False)
    assert ledger.value("SELECT count(*) FROM holdfast.answered") == 1


def test_every_part_of_a_request_makes_it_another_one() -> None:
    """Also the query, which no writing route takes today."""
    asked = Asked("POST", "/api/v1/queues/mail/actions", json={"action": "pause"})
    others = [
        replace(asked, method="PUT"),
        replace(asked, path="/api/v1/queues/pdf/actions"),
        replace(asked, query="now=1"),
    ]
    assert len({digest(Request(one.scope()), None) for one in (asked, *others)}) == 4


async def test_many_at_once_are_one(site: Starlette, database: str, shop: Shop, ledger: Ledger) -> None:
    token = make_token(database, Role.OPERATOR)
    retry = {"action": "retry", "ids": [str(shop.dead)], "preview": False, "again": True}
    answers = await asyncio.gather(*[ask(site, keyed("POST", JOBS, retry, token)) for _ in range(8)])
    assert {answer.status for answer in answers} <= {200, 409}
    assert sum(reply(answer) == (200, False) for answer in answers) == 1
    assert ledger.value("SELECT count(*) FROM holdfast.replay") == 1


async def test_a_refused_request_leaves_its_key_free_and_a_lost_one_does_not(
    site: Starlette, database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = make_token(database, Role.OPERATOR)
    path = "/api/v1/runners/carts.sweep/actions"
    missing = keyed("POST", "/api/v1/runners/nobody/actions", {"action": "run"}, token, "free")
    assert (await ask(site, missing)).status == 404
    assert (await ask(site, missing)).status == 404
    assert ledger.value("SELECT count(*) FROM holdfast.answered") == 0

    async def lost(*_: object) -> None:
        raise psycopg.OperationalError("the connection was lost at the commit")

    with monkeypatch.context() as patched:
        patched.setattr(site.state.operations.first.service, "act_on_runner", lost)
        assert (await ask(site, keyed("POST", path, {"action": "run"}, token, "lost"))).status == 500
    again = await ask(site, keyed("POST", path, {"action": "run"}, token, "lost"))
    assert (again.status, again.refusal.code) == (409, "in_progress")


async def test_signing_in_and_out_with_a_key_stores_nothing(site: Starlette, database: str, ledger: Ledger) -> None:
    """A stored answer would contain a session that every reader of the table could use."""
    token, key = make_token(database, Role.OPERATOR), ("idempotency-key", "a-key")
    sign_in = Asked("POST", "/api/v1/session", json={"token": token}, headers=(key,))
    first, second = [await ask(site, sign_in) for _ in range(2)]
    assert (reply(first), reply(second)) == ((200, False), (200, False))
    session = ("cookie", second.headers["set-cookie"].partition(";")[0])
    assert first.headers["set-cookie"].partition(";")[0] != session[1], "each has a session of its own"
    sign_out = Asked("DELETE", "/api/v1/session", headers=(session, *CSRF, key))
    assert [reply(await ask(site, sign_out)) for _ in range(2)] == [(200, False), (200, False)]
    assert (await ask(site, Asked("GET", "/api/v1/me", headers=(session,)))).status == 401
    assert ledger.value("SELECT count(*) FROM holdfast.answered") == 0
