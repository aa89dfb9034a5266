"""Every action leaves a line: who, what, when, and on how many. What was only looked at or refused leaves none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from holdfast._ops.caller import Role
from holdfast._ops.routes import ROUTES
from tests.kit.asking import Answered, Asked, ask, bearer
from tests.kit.bulk import begin
from tests.kit.shop import enqueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.applications import Starlette

    from tests.kit.shop import Shop

QUEUE = "/api/v1/queues/mail/actions"
JOBS = "/api/v1/jobs/actions"
ORDER_KEYS = "/api/v1/order-keys/actions"
RUNNER = "/api/v1/runners/carts.sweep/actions"
SUBSCRIPTION = "/api/v1/subscriptions/ledger/actions"
AT = "2099-01-01T00:00:00Z"


class Act(NamedTuple):
    method: str
    path: str
    json: Any
    action: str
    target: str | None
    jobs: int | None


GROUP = {"kind": "mail.break", "queue": "default", "error_code": "Never"}
# `{waiting}`: a job that waits; `{dead}`: a dead letter.
ACTS = [
    Act("POST", JOBS, {"action": "cancel", "ids": ["{waiting}"], "preview": False}, "jobs.cancel", "{waiting}", 1),
    Act("POST", JOBS, {"action": "delete", "ids": ["{waiting}"], "preview": False}, "jobs.delete", "{waiting}", 1),
    Act("POST", JOBS, {"action": "reschedule", "ids": ["{waiting}"], "at": AT, "preview": False}, "jobs.reschedule",
        "{waiting}", 1),
    Act("POST", JOBS, {"action": "retry", "ids": ["{dead}"], "preview": False}, "jobs.retry", "{dead}", 1),
    Act("POST", JOBS, {"action": "cancel", "filter": {"order_key": "{key}"}, "preview": False}, "jobs.cancel", None, 2),
    Act("POST", "/api/v1/bulk-actions/{bulk}/actions", {"action": "stop"}, "bulk_action.stop", "{bulk}", None),
    Act("POST", "/api/v1/dead-letters/actions", {"action": "dismiss", "last_at": AT, **GROUP}, "dead_letters.dismiss",
        "mail.break", None),
    Act("POST", ORDER_KEYS, {"action": "resume", "key": "{stopped}"}, "order_key.resume", "account 7", None),
    Act("POST", QUEUE, {"action": "pause"}, "queue.pause", "mail", None),
    Act("POST", QUEUE, {"action": "resume"}, "queue.resume", "mail", None),
    Act("PUT", "/api/v1/queues/a%2Fb", {"concurrency": 3, "lease_ms": 5000, "rate": 1.5}, "queue.set", "a/b", None),
    Act("PUT", "/api/v1/limits/mail-server", {"concurrency": 3, "rate": None}, "limit.set", "mail-server", None),
    Act("DELETE", "/api/v1/limits/mail-server", {}, "limit.reset", "mail-server", None),
    Act("PUT", "/api/v1/archive/retention", {"family": "run", "days": 40}, "archive.retention", "run", None),
    Act("POST", RUNNER, {"action": "run"}, "runner.run", "carts.sweep", None),
    Act("POST", RUNNER, {"action": "pause"}, "runner.pause", "carts.sweep", None),
    Act("POST", RUNNER, {"action": "resume"}, "runner.resume", "carts.sweep", None),
    Act("POST", SUBSCRIPTION, {"action": "pause"}, "subscription.pause", "ledger", None),
    Act("POST", SUBSCRIPTION, {"action": "resume"}, "subscription.resume", "ledger", None),
    Act("POST", SUBSCRIPTION, {"action": "replay", "since": AT}, "subscription.replay", "ledger", None),
    Act("POST", SUBSCRIPTION, {"action": "skip"}, "subscription.skip", "ledger", None),
    Act("POST", SUBSCRIPTION, {"action": "release"}, "subscription.release", "ledger", None),
]  # fmt: skip
NAMES = [f"{act.action} {'of a filter' if 'filter' in act.json else ''}" for act in ACTS]


@pytest.fixture(autouse=True, scope="module")
def _queues(shop: Shop) -> None:
    """Queues that nobody serves: only their rows name them."""
    with psycopg.connect(shop.app.url) as conn:
        conn.execute("INSERT INTO holdfast.queue (name) VALUES ('a/b'), ('paged')")


def test_there_is_an_act_for_every_route_that_acts() -> None:
    acting = {route.path for route in ROUTES if route.role not in (None, Role.VIEWER) and route.method != "GET"}
    marks = {"/mail/": "/{queue}/", "/a%2Fb": "/{queue}", "/mail-server": "/{name}"}
    marks |= {"/carts.sweep/": "/{name}/", "/ledger/": "/{name}/", "{bulk}": "{id}"}
    named = {reduce(lambda path, mark: path.replace(mark, marks[mark]), marks, act.path) for act in ACTS}
    assert acting - named == {"/outbox/run-once"}, "which has a test of its own"


async def filled(value: Any, shop: Shop) -> Any:
    """Put in jobs of the test's own, so that no other test has acted on them."""
    if "{key}" in str(value):
        key = f"order {datetime.now(UTC)}"
        for _ in range(2):
            await enqueue(shop.app, "mail.send", "a@example.org", delay=timedelta(days=1), order_key=key)
        return _put(value, "{key}", key)
    if "{waiting}" in str(value):
        job = await enqueue(shop.app, "mail.send", "a@example.org", delay=timedelta(days=1))
        return _put(value, "{waiting}", str(job))
    if "{bulk}" in str(value):
        with psycopg.connect(shop.app.url, autocommit=True) as conn:
            return _put(value, "{bulk}", str(begin(conn, kind="none")))
    if "{stopped}" in str(value):
        with psycopg.connect(shop.app.url) as conn:
            conn.execute(
                "INSERT INTO holdfast.order_stop VALUES ('account 7', %s, now()) ON CONFLICT DO NOTHING", [shop.dead]
            )
        return _put(value, "{stopped}", "account 7")
    return _put(value, "{dead}", str(shop.dead))


def _put(value: Any, mark: str, text: str) -> Any:
    if isinstance(value, dict):
        return {name: _put(inner, mark, text) for name, inner in value.items()}
    if isinstance(value, list):
        return [_put(inner, mark, text) for inner in value]
    return value.replace(mark, text) if isinstance(value, str) else value


async def newest(site: Starlette, token: str) -> dict[str, Any] | None:
    asked = Asked("GET", "/api/v1/audit", "limit=1", headers=bearer(token))
    entries = (await ask(site, asked)).json["items"]
    return entries[0] if entries else None


async def act(site: Starlette, act: Act, token: str) -> Answered:
    return await ask(site, Asked(act.method, act.path, json=act.json, headers=bearer(token)))


@pytest.mark.parametrize("given", ACTS, ids=NAMES)
async def test_an_action_is_written_down(given: Act, site: Starlette, shop: Shop, tokens: Mapping[Role, str]) -> None:
    done = Act(*await filled(list(given), shop))
    before = await newest(site, tokens[Role.VIEWER])
    answered = await act(site, done, tokens[Role.OPERATOR])
    assert answered.status == 200, answered
    entry = await newest(site, tokens[Role.VIEWER])
    assert entry is not None
    assert entry != before
    assert (entry["who"], entry["role"], entry["action"]) == ("operator ann", "operator", done.action)
    assert (entry["target"], entry["jobs"]) == (done.target, done.jobs)
    assert abs(datetime.fromisoformat(entry["at"]) - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("given", ACTS, ids=NAMES)
async def test_an_action_that_is_refused_is_not(
    given: Act, site: Starlette, shop: Shop, tokens: Mapping[Role, str]
) -> None:
    done = Act(*await filled(list(given), shop))
    before = await newest(site, tokens[Role.VIEWER])
    assert (await act(site, done, tokens[Role.VIEWER])).status == 403
    assert await newest(site, tokens[Role.VIEWER]) == before


@pytest.mark.parametrize(
    ("path", "json"),
    [
        (JOBS, {"action": "cancel", "filter": {"queue": "mail"}}),
        (JOBS, {"action": "retry", "ids": ["1"], "preview": True}),
        (QUEUE, {"action": "cancel_waiting"}),
    ],
)
async def test_a_preview_does_nothing_and_is_not_written_down(
    path: str, json: Any, site: Starlette, tokens: Mapping[Role, str]
) -> None:
    before = await newest(site, tokens[Role.VIEWER])
    answered = await ask(site, Asked("POST", path, json=json, headers=bearer(tokens[Role.OPERATOR])))
    assert (answered.status, answered.json["preview"], answered.json["done"]) == (200, True, 0)
    assert await newest(site, tokens[Role.VIEWER]) == before


async def test_cancelling_what_waits_says_on_how_many(site: Starlette, shop: Shop, tokens: Mapping[Role, str]) -> None:
    for _ in range(3):
        await enqueue(shop.app, "mail.send", "a@example.org", delay=timedelta(days=1), queue="bulk")
    json = {"action": "cancel_waiting", "preview": False}
    answered = await ask(
        site, Asked("POST", "/api/v1/queues/bulk/actions", json=json, headers=bearer(tokens[Role.OPERATOR]))
    )
    assert answered.json["done"] == 3
    entry = await newest(site, tokens[Role.VIEWER])
    assert entry is not None
    assert (entry["jobs"], entry["detail"]["filter"]["queue"]) == (3, "bulk")


async def test_the_audit_is_read_page_by_page(site: Starlette, tokens: Mapping[Role, str]) -> None:
    for action in ("pause", "resume", "pause", "resume"):
        asked = Asked(
            "POST", "/api/v1/queues/paged/actions", json={"action": action}, headers=bearer(tokens[Role.OPERATOR])
        )
        assert (await ask(site, asked)).status == 200
    first = (await ask(site, Asked("GET", "/api/v1/audit", "limit=3", headers=bearer(tokens[Role.VIEWER])))).json
    assert [entry["action"] for entry in first["items"]] == ["queue.resume", "queue.pause", "queue.resume"]
    query = f"limit=1&before={first['next']}"
    second = (await ask(site, Asked("GET", "/api/v1/audit", query, headers=bearer(tokens[Role.VIEWER])))).json
    assert [entry["action"] for entry in second["items"]] == ["queue.pause"]
