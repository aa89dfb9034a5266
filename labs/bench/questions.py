"""The requests to every route: everyday ones, and the most expensive ones that are allowed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from holdfast._ops.application import pages
from holdfast._ops.routes import ROUTES
from labs.bench.estate import RARE
from labs.bench.estate.jobs import CODES, KINDS
from labs.bench.estate.relays import SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from labs.bench.estate import Estate

BEHIND, PARKED, _ = SUBSCRIPTIONS
NO_MATCH = "no payload has this"
_BLANK = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to a route. `at` fills the parameters of its path."""

    method: str
    route: str
    what: str = ""
    at: str | int = ""
    query: Mapping[str, object] = field(default_factory=dict)
    body: Any = None
    jobs: int = 0
    """On so many jobs it acts."""
    status: int = 200

    @property
    def path(self) -> str:
        return _BLANK.sub(quote(str(self.at)), self.route)

    @property
    def target(self) -> str:
        return f"{self.path}?{self.parameters}" if self.query else self.path

    @property
    def parameters(self) -> str:
        return urlencode({name: str(value) for name, value in self.query.items()})

    @property
    def streams(self) -> bool:
        return self.route == "/api/v1/overview/live"

    @property
    def searches(self) -> bool:
        """Whether it looks for jobs by what they are, and so at many of them."""
        filtered = isinstance(self.body, dict) and ("filter" in self.body or self.body.get("action") == "drain")
        return self.route in {"/api/v1/jobs", "/api/v1/chains", "/api/v1/dead-letters"} or filtered

    def __str__(self) -> str:
        return f"{self.method} {self.route}" + (f": {self.what}" if self.what else "")


def questions(estate: Estate, turn: int = 0) -> list[Ask]:
    """Return all requests; a route without one is an error. Every turn acts on jobs of other kinds."""
    asked = [*_looks(estate), *_searches(estate), *_actions(estate, turn), *_pages()]
    lacking = {(route.method, route.path) for route in ROUTES} - {(ask.method, ask.route) for ask in asked}
    assert not lacking, f"nothing is asked of {sorted(lacking)}: add it to {__name__}"
    assert len(set(map(str, asked))) == len(asked), "two questions have one name"
    return asked


def _pages() -> Iterable[Ask]:
    return [Ask("GET", path, "a page of the dashboard") for path in pages()]


def _looks(estate: Estate) -> Iterable[Ask]:
    get = "GET"
    yield from (Ask(get, path) for path in ("/live", "/metrics", "/api/v1/openapi.json", "/api/v1/me"))
    yield Ask(get, "/ready")
    yield Ask("POST", "/api/v1/session", body={"token": estate.token})
    yield Ask("DELETE", "/api/v1/session")
    yield Ask(get, "/api/v1/databases")
    yield Ask(get, "/api/v1/overview", "the last hour")
    yield Ask(get, "/api/v1/overview", "five minutes", query={"minutes": 5})
    yield Ask(get, "/api/v1/overview/live", "until the first overview")
    for what, job in {
        "completed": estate.completed,
        "completed two weeks ago": estate.old,
        "dead": estate.dead,
        "dead for three months": estate.old_dead,
        "pending": estate.pending,
        "processing": estate.processing,
        "blocked": estate.blocked,
    }.items():
        yield Ask(get, "/api/v1/jobs/{id}", what, job)
    yield Ask(get, "/api/v1/jobs/{id}", "none", estate.missing, status=404)
    for what, chain in {
        "of two jobs": estate.chain,
        "of 19,000 jobs": estate.long_chain,
        "for which many wait": estate.blocking,
        "of one that waits": estate.blocked,
    }.items():
        yield Ask(get, "/api/v1/chains/{id}", what, chain)
    yield Ask(get, "/api/v1/chains/{id}", "none", estate.missing, status=404)
    yield Ask(get, "/api/v1/runners")
    yield Ask(get, "/api/v1/runners/{name}/runs", "of the outbox", "outbox", {"limit": 200})
    yield Ask(get, "/api/v1/runners/{name}/runs", "of a seldom one", "estate.export")
    yield Ask(get, "/api/v1/runners/{name}/runs", "of none", "nobody")
    yield Ask(get, "/api/v1/runs", query={"limit": 200})
    yield Ask(get, "/api/v1/archive")
    yield Ask(get, "/api/v1/archive/exports", query={"limit": 200})
    yield Ask(get, "/api/v1/archive/jobs/{id}", "that is in no file", estate.missing, status=404)
    yield from (Ask(get, f"/api/v1/{what}") for what in ("workers", "queues", "kinds", "subscriptions"))
    yield Ask(get, "/api/v1/subscriptions/{name}/parked", "the first", PARKED, {"limit": 200})
    yield Ask(get, "/api/v1/subscriptions/{name}/parked", "a page further on", PARKED, {"limit": 200, "before": 4_000})
    yield Ask(get, "/api/v1/subscriptions/{name}/parked", "of none", "nobody", status=404)
    yield Ask(get, "/api/v1/audit", query={"limit": 200})
    yield Ask(get, "/api/v1/audit", "a page further on", query={"limit": 200, "before": 20_000})
    yield Ask(get, "/outbox/stats")


def _searches(estate: Estate) -> Iterable[Ask]:
    long_ago = {
        "created_from": (estate.now - timedelta(days=12)).isoformat(),
        "created_until": (estate.now - timedelta(days=11)).isoformat(),
    }
    jobs: dict[str, Mapping[str, object]] = {
        "newest": {},
        "newest 200": {"limit": 200},
        "a page further on": {"before": estate.deep},
        "a kind": {"kind": "estate.kind7"},
        "a rare kind": {"kind": RARE},
        "a kind that is not": {"kind": "nobody"},
        "a queue": {"queue": "queue7", "limit": 200},
        **{
            status: {"status": status}
            for status in ("blocked", "pending", "processing", "completed", "failed", "cancelled")
        },
        "a rare status of a kind": {"status": "cancelled", "kind": "estate.kind7"},
        "an error code": {"error_code": "errors.code3"},
        "an order key": {"order_key": "customer 17"},
        "a unique key that is not": {"unique_key": "nobody"},
        "a day long ago": long_ago,
        "a kind on a day long ago": long_ago | {"kind": "estate.kind7"},
        "no match on a day long ago": long_ago | {"kind": "nobody"},
        "a text": {"text": "abcdef"},
        "a text that is nowhere": {"text": NO_MATCH},
        "a text that is nowhere, further on": {"text": NO_MATCH, "before": estate.deep},
        "a text that is nowhere, on a day long ago": long_ago | {"text": NO_MATCH},
    }
    yield from (Ask("GET", "/api/v1/jobs", what, query=query) for what, query in jobs.items())
    chains: dict[str, Mapping[str, object]] = {
        "newest": {},
        "newest 200": {"limit": 200},
        "a kind that is not": {"kind": "nobody"},
        "completed": {"status": "completed", "limit": 200},
        "blocked": {"status": "blocked"},
        "a page further on": {"before": estate.deep},
    }
    yield from (Ask("GET", "/api/v1/chains", what, query=query) for what, query in chains.items())
    dead: dict[str, Mapping[str, object]] = {
        "all": {},
        "a kind": {"kind": "estate.kind7"},
        "a kind that is not": {"kind": "nobody"},
        "a day long ago": long_ago,
    }
    yield from (Ask("GET", "/api/v1/dead-letters", what, query=query) for what, query in dead.items())


def _actions(estate: Estate, turn: int) -> Iterable[Ask]:
    later = (estate.now + timedelta(days=1)).isoformat()
    kinds = [f"estate.kind{(7 + 3 * turn + place) % KINDS}" for place in range(3)]
    filters: dict[str, dict[str, object]] = {
        "retry": {"error_code": f"errors.code{(3 + turn) % CODES}"},
        "cancel": {"kind": kinds[0], "status": "pending"},
        "delete": {"kind": kinds[1], "status": "pending"},
        "reschedule": {"kind": kinds[2]},
    }
    path = "/api/v1/jobs/actions"
    for action, which in filters.items():
        body: dict[str, object] = {"action": action, "filter": which}
        if action == "reschedule":
            body["at"] = later
        yield Ask("POST", path, f"{action}, previewed", body=body)
        yield Ask("POST", path, f"{action}, 100 jobs", body=body | {"preview": False}, jobs=100)
    no_kind = {"action": "cancel", "filter": {"kind": "nobody"}}
    yield Ask("POST", path, "cancel what is not, previewed", body=no_kind)
    nowhere = {"action": "cancel", "filter": {"text": NO_MATCH}}
    yield Ask("POST", path, "cancel by a text that is nowhere, previewed", body=nowhere)
    yield Ask("POST", path, "retry one", body={"action": "retry", "ids": [str(estate.old_dead)], "preview": False})
    queue = "/api/v1/queues/{queue}/actions"
    yield Ask("POST", queue, "drain, previewed", "queue5", body={"action": "drain"})
    drain = {"action": "drain", "preview": False, "limit": 100}
    yield Ask("POST", queue, "drain, 100 jobs", "queue5", body=drain, jobs=100)
    yield Ask("POST", queue, "pause", "queue6", body={"action": "pause"})
    control = {"concurrency": 7, "lease_ms": None, "rate": None}
    yield Ask("PUT", "/api/v1/queues/{queue}", at="queue6", body=control)
    yield Ask("PUT", "/api/v1/archive/retention", body={"family": "job_history", "days": 14})
    yield Ask("POST", "/api/v1/runners/{name}/actions", at="estate.runner1", body={"action": "run"})
    subscription = "/api/v1/subscriptions/{name}/actions"
    yield Ask("POST", subscription, "pause", BEHIND, body={"action": "pause"})
    since = (estate.now - timedelta(days=3)).isoformat()
    yield Ask("POST", subscription, "replay", BEHIND, body={"action": "replay", "since": since})
    yield Ask("POST", subscription, "release", PARKED, body={"action": "release", "key": "key 7"})
    yield Ask("POST", "/outbox/run-once", "nothing is due")
