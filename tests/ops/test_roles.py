"""Every route for everybody: nobody, viewer, operator, developer. The expectation is the table itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from holdfast._ops.caller import Role
from holdfast._ops.openapi import answers
from holdfast._ops.responses.job import Refusal
from holdfast._ops.routes import ROUTES
from tests.kit.asking import Asked, ask, bearer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.applications import Starlette

    from holdfast._ops.routes import Route
    from holdfast._store.answer import Answer
    from tests.kit.shop import Shop


class Example(NamedTuple):
    """A question that is answered; `{id}` and `{name}` filled in, `{waiting}` and the like from the shop."""

    name: str = ""
    id: str = ""
    query: str = ""
    json: Any = None
    status: int = 200
    """For a caller who may ask."""


EXAMPLES: dict[tuple[str, str], Example] = {
    ("GET", "/live"): Example(),
    ("GET", "/ready"): Example(),
    ("GET", "/metrics"): Example(),
    ("GET", "/api/v1/openapi.json"): Example(),
    ("POST", "/api/v1/session"): Example(json={"token": "{token}"}),
    ("DELETE", "/api/v1/session"): Example(),
    ("GET", "/api/v1/me"): Example(),
    ("GET", "/api/v1/databases"): Example(),
    ("GET", "/api/v1/overview"): Example(query="minutes=30"),
    ("GET", "/api/v1/overview/live"): Example(),
    ("GET", "/api/v1/jobs"): Example(query="kind=mail.send&status=pending&limit=2&created_from=2020-01-01T00:00:00Z"),
    ("POST", "/api/v1/order-keys/actions"): Example(json={"action": "resume", "key": "account 7"}, status=404),
    ("POST", "/api/v1/jobs/actions"): Example(json={"action": "cancel", "filter": {"queue": "mail"}, "preview": True}),
    ("GET", "/api/v1/bulk-actions"): Example(query="limit=5"),
    ("GET", "/api/v1/bulk-actions/{id}"): Example(id="7", status=404),
    ("POST", "/api/v1/bulk-actions/{id}/actions"): Example(id="7", json={"action": "stop"}, status=404),
    ("GET", "/api/v1/jobs/{id}"): Example(id="{completed}"),
    ("GET", "/api/v1/chains"): Example(query="limit=5"),
    ("GET", "/api/v1/chains/{id}"): Example(id="{chain}"),
    ("GET", "/api/v1/dead-letters"): Example(query="kind=mail.break&dismissed=true"),
    ("POST", "/api/v1/dead-letters/actions"): Example(
        json={"action": "restore", "kind": "mail.break", "queue": "default", "error_code": "Never"}, status=404
    ),
    ("GET", "/api/v1/runners"): Example(),
    ("GET", "/api/v1/runners/{name}/runs"): Example(name="carts.sweep", query="limit=5"),
    ("POST", "/api/v1/runners/{name}/actions"): Example(name="carts.sweep", json={"action": "pause"}),
    ("GET", "/api/v1/runs"): Example(query="limit=5"),
    ("GET", "/api/v1/workers"): Example(),
    ("GET", "/api/v1/queues"): Example(),
    ("POST", "/api/v1/queues/{queue}/actions"): Example(
        name="mail", json={"action": "cancel_waiting", "preview": True}
    ),
    ("PUT", "/api/v1/queues/{queue}"): Example(name="mail", json={"concurrency": 4, "lease_ms": None, "rate": 2.5}),
    ("GET", "/api/v1/limits"): Example(),
    ("PUT", "/api/v1/limits/{name}"): Example(name="mail-server", json={"concurrency": 4, "rate": "10/s"}),
    ("DELETE", "/api/v1/limits/{name}"): Example(name="mail-server"),
    ("GET", "/api/v1/kinds"): Example(),
    ("GET", "/api/v1/trends"): Example(query="range=24h&by=kind"),
    ("GET", "/api/v1/subscriptions"): Example(),
    ("GET", "/api/v1/subscriptions/{name}/parked"): Example(name="ledger", query="limit=5"),
    ("POST", "/api/v1/subscriptions/{name}/actions"): Example(name="ledger", json={"action": "pause"}),
    ("GET", "/api/v1/archive"): Example(),
    ("GET", "/api/v1/archive/exports"): Example(query="source=job_history&since=2026-01-01&limit=5"),
    ("PUT", "/api/v1/archive/retention"): Example(json={"family": "job_history", "days": 90}),
    ("GET", "/api/v1/archive/jobs/{id}"): Example(id="{completed}", status=404),
    ("GET", "/api/v1/audit"): Example(query="limit=5"),
    ("GET", "/outbox/stats"): Example(),
    ("POST", "/outbox/run-once"): Example(),
}
NAMES = [f"{route.method} {route.path}" for route in ROUTES]


def asked(route: Route, shop: Shop, token: str | None, viewer: str) -> Asked:
    example = EXAMPLES[route.method, route.path]
    id_ = example.id.format(**shop._asdict())
    body = {"token": viewer} if route.path == "/api/v1/session" and example.json else example.json
    return Asked(
        route.method,
        route.path.replace("{id}", id_).replace("{name}", example.name).replace("{queue}", example.name),
        query=example.query,
        json=body,
        headers=() if token is None else bearer(token),
        listens=2 if route.path == "/api/v1/overview/live" else None,
    )


def test_there_is_an_example_of_every_route() -> None:
    assert set(EXAMPLES) == {(route.method, route.path) for route in ROUTES}
    assert len(ROUTES) == len(EXAMPLES)


@pytest.mark.parametrize("who", [None, *Role])
@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
async def test_a_route_answers_401_403_or_200_as_the_table_says(
    route: Route, who: Role | None, site: Starlette, shop: Shop, tokens: Mapping[Role, str]
) -> None:
    token = None if who is None else tokens[who]
    answered = await ask(site, asked(route, shop, token, tokens[Role.VIEWER]))
    if route.role is None:
        expected = 200
    elif who is None:
        expected = 401
    else:
        expected = EXAMPLES[route.method, route.path].status if who.may(route.role) else 403
    assert answered.status in {expected, *dict(route.also)}, answered
    assert answered.headers["cache-control"] == "no-store"
    assert answered.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in answered.headers["content-security-policy"]
    assert "unsafe" not in answered.headers["content-security-policy"]
    assert ("www-authenticate" in answered.headers) == (expected == 401)
    if expected != 200:
        assert Refusal.model_validate_json(answered.body).code
    elif models := answers(route):
        assert any(_fits(model, answered.body) for model in models), answered


def _fits(model: type[Answer], body: bytes) -> bool:
    try:
        model.model_validate_json(body)
    except ValueError:
        return False
    return True


def test_a_role_has_the_rights_of_those_below() -> None:
    assert [[role.may(needed) for needed in Role] for role in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
