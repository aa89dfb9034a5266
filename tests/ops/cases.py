"""What is refused, one line each: who may not, what cannot be, and what is meant to break in."""
# ruff: noqa: E501 - a table is read by its columns

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._ops.access import COOKIE
from holdfast._ops.caller import Token
from holdfast._ops.read_requests import LARGEST_BODY
from tests.kit.asking import Asked, bearer
from tests.kit.issuer import Issuer

if TYPE_CHECKING:
    from collections.abc import Callable

CSRF = (("x-holdfast-csrf", "1"),)
RETRY = {"action": "retry", "ids": ["1"]}
DEEP = b'{"action":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
LONG = "x" * 201


@dataclass(frozen=True)
class World:
    """Everybody who may knock."""

    viewer: str
    operator: str
    developer: str
    expired: str
    revoked: str
    issuer: Issuer
    cookie: str
    """Of the operator's session."""

    @property
    def session(self) -> tuple[tuple[str, str], ...]:
        return (("cookie", f"{COOKIE}={self.cookie}"),)

    def secrets(self, asked: Asked) -> list[str]:
        """Return what of a request must be neither logged nor repeated."""
        tokens = [self.viewer, self.operator, self.developer, self.expired, self.revoked]
        secrets = [token.split("_", 2)[2] for token in tokens] + [self.cookie.partition(".")[2]]
        answer = [value.removeprefix("Bearer ") for name, value in asked.headers if name == "authorization"]
        return [secret for secret in (*secrets, *(one.rpartition(".")[2] for one in answer)) if len(secret) > 20]


class Case(NamedTuple):
    name: str
    asked: Callable[[World], Asked]
    status: int
    code: str


def get(path: str, query: str = "", *, who: str = "viewer") -> Callable[[World], Asked]:
    return lambda world: Asked("GET", path, query, bearer(getattr(world, who)))


def post(path: str, answer: Any, *, who: str = "operator", method: str = "POST") -> Callable[[World], Asked]:
    return lambda world: Asked(method, path, json=answer, headers=bearer(getattr(world, who)))


def raw(body: Any, content_type: str | None = "application/json", *more: tuple[str, str]) -> Callable[[World], Asked]:
    typed = () if content_type is None else (("content-type", content_type),)
    return lambda world: Asked(
        "POST", "/api/v1/jobs/actions", body=body, headers=(*bearer(world.operator), *typed, *more)
    )


def jwt(make: Callable[[Issuer], str], path: str = "/api/v1/me") -> Callable[[World], Asked]:
    return lambda world: Asked("GET", path, headers=bearer(make(world.issuer)))


def answer(*headers: tuple[str, str], method: str = "GET", path: str = "/api/v1/me") -> Callable[[World], Asked]:
    return lambda _: Asked(method, path, headers=headers)


def session(
    *headers: tuple[str, str], method: str = "POST", path: str = "/api/v1/jobs/actions"
) -> Callable[[World], Asked]:
    return lambda world: Asked(
        method, path, json=RETRY if method == "POST" else None, headers=(*world.session, *headers)
    )


def login(token: Callable[[World], str], *headers: tuple[str, str]) -> Callable[[World], Asked]:
    return lambda world: Asked("POST", "/api/v1/session", json={"token": token(world)}, headers=headers)


def _unknown(_: World) -> str:
    return Token.new().text


def _wrong(world: World) -> str:
    return world.developer[:-1] + ("A" if world.developer[-1] != "A" else "B")


UNKNOWN = f"hf_{'0' * 12}_{'x' * 43}"
TRICKS = [
    "/api/../api/v1/me", "/api/%2e%2e/api/v1/me", "/api/%2E%2E/%2e/me", "/..", "/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
    "/assets/../index.html", "/assets/%2e%2e/%2e%2e/application.py", "/assets/..%2f..%2fapplication.py", "/assets/%5c..%5capplication.py",
    "/application.py", "/pages/index.html", "//etc/passwd", "/api//me", "/api/v1/me/", "/API/me", "/api/v1/me%00", "/api/v1/me%0a", "/api%2fme/x",
    "/api/./me", "/;/api/v1/me", "/assets/%00", "/.git/config", "/assets/", "/static", "/api/v1/queues/%2e%2e/actions/x",
]  # fmt: skip

# fmt: off
CASES = [
    # who may not
    Case("nobody looks", answer(), 401, "unauthorized"),
    Case("nobody acts", lambda _: Asked("POST", "/api/v1/jobs/actions", json=RETRY), 401, "unauthorized"),
    Case("a viewer retries", post("/api/v1/jobs/actions", RETRY, who="viewer"), 403, "forbidden"),
    Case("a viewer pauses a queue", post("/api/v1/queues/mail/actions", {"action": "pause"}, who="viewer"), 403, "forbidden"),
    Case("a viewer sets a queue", post("/api/v1/queues/mail", {"concurrency": 1, "lease_ms": None, "rate": None}, who="viewer", method="PUT"), 403, "forbidden"),
    Case("a viewer runs a runner", post("/api/v1/runners/carts.sweep/actions", {"action": "run"}, who="viewer"), 403, "forbidden"),
    Case("a viewer skips events", post("/api/v1/subscriptions/ledger/actions", {"action": "skip"}, who="viewer"), 403, "forbidden"),
    Case("a viewer reads the stats", get("/outbox/stats"), 403, "forbidden"),
    Case("an operator reads the stats", get("/outbox/stats", who="operator"), 403, "forbidden"),
    Case("an operator runs a tick", lambda world: Asked("POST", "/outbox/run-once", headers=bearer(world.operator)), 403, "forbidden"),
    # tokens
    Case("a token that has expired", get("/api/v1/me", who="expired"), 401, "invalid_token"),
    Case("a token that was revoked", get("/api/v1/me", who="revoked"), 401, "invalid_token"),
    Case("a token that nobody made", lambda world: Asked("GET", "/api/v1/me", headers=bearer(_unknown(world))), 401, "invalid_token"),
    Case("the key of a token with another secret", lambda world: Asked("GET", "/api/v1/me", headers=bearer(_wrong(world))), 401, "invalid_token"),
    Case("the key of a token alone", lambda world: Asked("GET", "/api/v1/me", headers=bearer(world.developer[:16])), 401, "invalid_token"),
    Case("the digest in place of the secret", lambda _: Asked("GET", "/api/v1/me", headers=bearer(f"hf_{'0' * 12}_{'a' * 64}")), 401, "invalid_token"),
    Case("an empty bearer token", answer(("authorization", "Bearer ")), 401, "invalid_token"),
    Case("a token of 100 kB", answer(("authorization", f"Bearer hf_{'x' * 100_000}")), 401, "invalid_token"),
    Case("a token that is no ASCII", answer(("authorization", "Bearer hf_ÿþ")), 401, "invalid_token"),
    Case("two tokens", lambda world: Asked("GET", "/api/v1/me", headers=(*bearer(world.viewer), *bearer(world.developer))), 401, "invalid_token"),
    Case("a token as a password", lambda world: Asked("GET", "/api/v1/me", headers=(("authorization", f"Basic {world.viewer}"),)), 401, "unauthorized"),
    Case("a token without its scheme", lambda world: Asked("GET", "/api/v1/me", headers=(("authorization", world.viewer),)), 401, "unauthorized"),
    Case("a token in the address", lambda world: Asked("GET", "/api/v1/me", f"token={world.viewer}"), 401, "unauthorized"),
    # JWTs
    Case("a JWT that needs no signature", jwt(Issuer.unsigned), 401, "invalid_token"),
    Case("a JWT with alg None", jwt(lambda issuer: issuer.unsigned("None")), 401, "invalid_token"),
    Case("a JWT with alg nOnE", jwt(lambda issuer: issuer.unsigned("nOnE")), 401, "invalid_token"),
    Case("a JWT signed by the public key as a secret", jwt(Issuer.confused), 401, "invalid_token"),
    Case("a JWT signed by a shared key of the set", jwt(lambda issuer: issuer.confused("shared", b"a secret that must never be used here!!!")), 401, "invalid_token"),
    Case("a JWT signed by an empty secret", jwt(lambda issuer: issuer.confused("r1", b"")), 401, "invalid_token"),
    Case("a JWT of a stranger", jwt(lambda issuer: issuer.token(key=issuer.stranger)), 401, "invalid_token"),
    Case("a JWT that brings its own key", jwt(Issuer.with_header), 401, "invalid_token"),
    Case("a JWT that says where its key is", jwt(lambda issuer: issuer.with_header(jku="http://127.0.0.1/keys")), 401, "invalid_token"),
    Case("a JWT whose key is a file", jwt(lambda issuer: issuer.token(key=issuer.stranger, kid="r../../../dev/null")), 401, "invalid_token"),
    Case("a JWT with a key that is not in the set", jwt(lambda issuer: issuer.token(kid="r2")), 401, "invalid_token"),
    Case("a JWT of a stranger that names no key", jwt(lambda issuer: issuer.token(alg="RS256", kid=None, key=issuer.stranger)), 401, "invalid_token"),
    Case("a JWT whose algorithm is not the key's", jwt(lambda issuer: issuer.token(alg="RS256", kid="e1", key=issuer.rsa)), 401, "invalid_token"),
    Case("a JWT of another issuer", jwt(lambda issuer: issuer.token(iss="https://other.example")), 401, "invalid_token"),
    Case("a JWT without an issuer", jwt(lambda issuer: issuer.token(iss=None)), 401, "invalid_token"),
    Case("a JWT for another audience", jwt(lambda issuer: issuer.token(aud="shop")), 401, "invalid_token"),
    Case("a JWT without an audience", jwt(lambda issuer: issuer.token(aud=None)), 401, "invalid_token"),
    Case("a JWT that has expired", jwt(lambda issuer: issuer.token(exp=time.time() - 60)), 401, "invalid_token"),
    Case("a JWT that never expires", jwt(lambda issuer: issuer.token(exp=None)), 401, "invalid_token"),
    Case("a JWT that expires at no time", jwt(lambda issuer: issuer.token(exp="never")), 401, "invalid_token"),
    Case("a JWT that holds only later", jwt(lambda issuer: issuer.token(nbf=time.time() + 600)), 401, "invalid_token"),
    Case("a JWT whose role was raised", jwt(Issuer.tampered), 401, "invalid_token"),
    Case("a JWT without a signature", jwt(lambda issuer: issuer.token().rpartition(".")[0]), 401, "invalid_token"),
    Case("a JWT with half a signature", jwt(lambda issuer: issuer.token()[:-100]), 401, "invalid_token"),
    Case("a JWT of 8 kB", jwt(lambda issuer: issuer.token(padding="x" * 8_000)), 401, "invalid_token"),
    Case("a JWT without a name", jwt(lambda issuer: issuer.token(sub=None)), 401, "invalid_token"),
    Case("a JWT with a name of two lines", jwt(lambda issuer: issuer.token(sub="ann\nroot")), 401, "invalid_token"),
    Case("a JWT without a role", jwt(lambda issuer: issuer.token(role=None)), 403, "no_role"),
    Case("a JWT with a role that is none", jwt(lambda issuer: issuer.token(role="root")), 403, "no_role"),
    Case("a JWT with a role that is an object", jwt(lambda issuer: issuer.token(role={"developer": True})), 403, "no_role"),
    Case("a JWT of a viewer that reads the stats", jwt(lambda issuer: issuer.token(role="viewer"), "/outbox/stats"), 403, "forbidden"),
    Case("three dots", answer(("authorization", "Bearer ...")), 401, "invalid_token"),
    Case("dots and nonsense", answer(("authorization", "Bearer e30.e30.e30")), 401, "invalid_token"),
    # sessions
    Case("a session that nobody signed", answer(("cookie", f"{COOKIE}=e30.{'A' * 43}")), 401, "unauthorized"),
    Case("a session that was changed", lambda world: Asked("GET", "/api/v1/me", headers=(("cookie", f"{COOKIE}=A{world.cookie}"),)), 401, "unauthorized"),
    Case("a token as a session", lambda world: Asked("GET", "/api/v1/me", headers=(("cookie", f"{COOKIE}={world.operator}"),)), 401, "unauthorized"),
    Case("a session acts without the header", session(), 403, "csrf"),
    Case("a session acts for another site", session(*CSRF, ("origin", "https://evil.example")), 403, "csrf"),
    Case("a session acts for a site that hides", session(*CSRF, ("origin", "null")), 403, "csrf"),
    Case("a session acts for another port", session(*CSRF, ("origin", "http://ops.example:8080")), 403, "csrf"),
    Case("a session acts for a longer name", session(*CSRF, ("origin", "http://ops.example.evil.example")), 403, "csrf"),
    Case("a session acts for a site of no kind", session(*CSRF, ("origin", "http://[")), 403, "csrf"),
    Case("a session acts cross-site", session(*CSRF, ("sec-fetch-site", "cross-site"), ("origin", "http://ops.example")), 403, "csrf"),
    Case("a session acts same-site, for a sibling", session(*CSRF, ("sec-fetch-site", "same-site")), 403, "csrf"),
    Case("a session is ended by another site", session(("sec-fetch-site", "cross-site"), *CSRF, method="DELETE", path="/api/v1/session"), 403, "csrf"),
    Case("a session is ended without the header", session(method="DELETE", path="/api/v1/session"), 403, "csrf"),
    Case("another site signs a browser in", login(lambda world: world.viewer, ("origin", "https://evil.example")), 403, "csrf"),
    Case("signing in with a token that has expired", login(lambda world: world.expired), 401, "invalid_token"),
    Case("signing in with a token that was revoked", login(lambda world: world.revoked), 401, "invalid_token"),
    Case("signing in with a token that nobody made", login(_unknown), 401, "invalid_token"),
    Case("signing in with a forged JWT", login(lambda world: world.issuer.confused()), 401, "invalid_token"),
    Case("signing in with nothing", login(lambda _: ""), 422, "invalid"),
    Case("signing in with 5 kB", login(lambda _: "x" * 5_000), 422, "invalid"),
    Case("signing in with a form", lambda world: Asked("POST", "/api/v1/session", body=f"token={world.viewer}".encode(), headers=(("content-type", "application/x-www-form-urlencoded"),)), 415, "not_json"),
    Case("signing in with JSON sent as text", lambda world: Asked("POST", "/api/v1/session", body=json.dumps({"token": world.viewer}).encode(), headers=(("content-type", "text/plain"),)), 415, "not_json"),
    # bodies
    Case("no content type", raw(b"{}", None), 415, "not_json"),
    Case("XML", raw(b"<a/>", "application/xml"), 415, "not_json"),
    Case("JSON of another character set", raw(b"{}", "application/json; charset=utf-16"), 415, "not_json"),
    Case("a compressed body", raw(b"\x1f\x8b", "application/json", ("content-encoding", "gzip")), 415, "encoded"),
    Case("an oversized body", raw(b" " * (LARGEST_BODY + 1)), 413, "too_large"),
    Case("an oversized body in chunks", raw([b" " * 1_000] * 70), 413, "too_large"),
    Case("an oversized chunk", raw([b" " * 10_000_000]), 413, "too_large"),
    Case("a length that is a lie", raw([b"{}"], "application/json", ("content-length", "99999999999999999999999")), 413, "too_large"),
    Case("a length below nothing", raw([b"{}"], "application/json", ("content-length", "-1")), 413, "too_large"),
    Case("a length on a route without a body", lambda world: Asked("POST", "/outbox/run-once", body=b"x" * (LARGEST_BODY + 1), headers=bearer(world.developer)), 413, "too_large"),
    Case("no JSON", raw(b"retry"), 422, "invalid"),
    Case("nothing", raw(b""), 422, "invalid"),
    Case("half of it", raw(b'{"action":'), 422, "invalid"),
    Case("a list", raw(b"[]"), 422, "invalid"),
    Case("null", raw(b"null"), 422, "invalid"),
    Case("bytes that are no text", raw(b'{"action": "\xff\xfe"}'), 422, "invalid"),
    Case("half a character", raw(b'{"action": "retry", "filter": {"kind": "\\ud800"}}'), 422, "invalid"),
    Case("NaN", raw(b'{"action": "retry", "ids": ["1"], "limit": NaN}'), 422, "invalid"),
    Case("five thousand brackets", raw(DEEP), 422, "invalid"),
    # actions
    Case("an action that is none", post("/api/v1/jobs/actions", {"action": "explode", "ids": ["1"]}), 422, "invalid"),
    Case("no action", post("/api/v1/jobs/actions", {"ids": ["1"]}), 422, "invalid"),
    Case("neither ids nor a filter", post("/api/v1/jobs/actions", {"action": "retry"}), 422, "invalid"),
    Case("ids and a filter", post("/api/v1/jobs/actions", RETRY | {"filter": {"kind": "a"}}), 422, "invalid"),
    Case("an empty filter", post("/api/v1/jobs/actions", {"action": "cancel", "filter": {}}), 422, "invalid"),
    Case("a filter of nulls", post("/api/v1/jobs/actions", {"action": "cancel", "filter": {"kind": None}}), 422, "invalid"),
    Case("a filter by something else", post("/api/v1/jobs/actions", {"action": "cancel", "filter": {"payload": "x"}}), 422, "invalid"),
    Case("no ids", post("/api/v1/jobs/actions", {"action": "retry", "ids": []}), 422, "invalid"),
    Case("too many ids", post("/api/v1/jobs/actions", {"action": "retry", "ids": [str(n) for n in range(1, 1_002)]}), 422, "invalid"),
    Case("an id that is a number", post("/api/v1/jobs/actions", {"action": "retry", "ids": [1]}), 422, "invalid"),
    Case("an id below nothing", post("/api/v1/jobs/actions", {"action": "retry", "ids": ["-1"]}), 422, "invalid"),
    Case("an id that is a statement", post("/api/v1/jobs/actions", {"action": "retry", "ids": ["1; DROP TABLE holdfast.job"]}), 422, "invalid"),
    Case("an id of 2**63", post("/api/v1/jobs/actions", {"action": "retry", "ids": [str(2**63)]}), 422, "invalid"),
    Case("more at once than the cap", post("/api/v1/jobs/actions", RETRY | {"limit": 1_001}), 422, "invalid"),
    Case("none at once", post("/api/v1/jobs/actions", RETRY | {"limit": 0}), 422, "invalid"),
    Case("preview as a word", post("/api/v1/jobs/actions", RETRY | {"preview": "false"}), 422, "invalid"),
    Case("an unknown field", post("/api/v1/jobs/actions", RETRY | {"force": True}), 422, "invalid"),
    Case("an order key with a control character", post("/api/v1/order-keys/actions", {"action": "resume", "key": "a\x07"}), 422, "invalid"),
    Case("a reschedule to no time", post("/api/v1/jobs/actions", {"action": "reschedule", "ids": ["1"]}), 422, "invalid"),
    Case("a time without a zone", post("/api/v1/jobs/actions", {"action": "reschedule", "ids": ["1"], "at": "2030-01-01T00:00:00"}), 422, "invalid"),
    Case("a time that is none", post("/api/v1/jobs/actions", {"action": "reschedule", "ids": ["1"], "at": "2030-02-30T00:00:00Z"}), 422, "invalid"),
    Case("a time for a retry", post("/api/v1/jobs/actions", RETRY | {"at": "2030-01-01T00:00:00Z"}), 422, "invalid"),
    Case("completed jobs are retried", post("/api/v1/jobs/actions", {"action": "retry", "filter": {"status": "completed"}}), 409, "wrong_status"),
    Case("a runner that is none", post("/api/v1/runners/nobody/actions", {"action": "run"}), 404, "not_found"),
    Case("a runner explodes", post("/api/v1/runners/carts.sweep/actions", {"action": "explode"}), 422, "invalid"),
    Case("a queue with a negative concurrency", post("/api/v1/queues/mail", {"concurrency": -1, "lease_ms": None, "rate": None}, method="PUT"), 422, "invalid"),
    Case("a queue with too short a lease", post("/api/v1/queues/mail", {"concurrency": 1, "lease_ms": 1, "rate": None}, method="PUT"), 422, "invalid"),
    Case("a queue with half a control", post("/api/v1/queues/mail", {"concurrency": 1}, method="PUT"), 422, "invalid"),
    Case("a queue with too long a name", post(f"/api/v1/queues/{LONG}/actions", {"action": "pause"}), 422, "invalid"),
    Case("a queue of 101 characters", post(f"/api/v1/queues/{LONG[:101]}/actions", {"action": "pause"}), 422, "invalid"),
    Case("a queue of 51 characters of two bytes", post(f"/api/v1/queues/{'%C3%A9' * 51}", {"concurrency": 1, "lease_ms": None, "rate": None}, method="PUT"), 422, "invalid"),
    Case("a queue without a name", post("/api/v1/queues//actions", {"action": "pause"}), 422, "invalid"),
    Case("a subscription that is none", post("/api/v1/subscriptions/nobody/actions", {"action": "pause"}), 404, "not_found"),
    Case("a replay from nowhere", post("/api/v1/subscriptions/ledger/actions", {"action": "replay"}), 422, "invalid"),
    Case("a replay from two places", post("/api/v1/subscriptions/ledger/actions", {"action": "replay", "after": "1", "since": "2030-01-01T00:00:00Z"}), 422, "invalid"),
    Case("a key for a pause", post("/api/v1/subscriptions/ledger/actions", {"action": "pause", "key": "a"}), 422, "invalid"),
    # queries
    Case("a job that is none", get("/api/v1/jobs/999999999"), 404, "not_found"),
    Case("a chain that is none", get("/api/v1/chains/999999999"), 404, "not_found"),
    Case("parked events of nobody", get("/api/v1/subscriptions/nobody/parked"), 404, "not_found"),
    Case("job 0", get("/api/v1/jobs/0"), 422, "invalid"),
    Case("job -1", get("/api/v1/jobs/-1"), 422, "invalid"),
    Case("job 2**63", get(f"/api/v1/jobs/{2**63}"), 422, "invalid"),
    Case("a job of a thousand digits", get(f"/api/v1/jobs/{'9' * 1_000}"), 422, "invalid"),
    Case("a job with a word for a number", get("/api/v1/jobs/seven"), 422, "invalid"),
    Case("a job with another script's digits", get("/api/v1/jobs/%D9%A7"), 422, "invalid"),
    Case("a job with a quote", get("/api/v1/jobs/1'%20OR%20'1'='1"), 422, "invalid"),
    Case("a cursor that is none", get("/api/v1/jobs", "before=abc"), 422, "invalid"),
    Case("a cursor of 2**63", get("/api/v1/jobs", f"before={2**63}"), 422, "invalid"),
    Case("an empty cursor", get("/api/v1/audit", "before="), 422, "invalid"),
    Case("a page of 0", get("/api/v1/jobs", "limit=0"), 422, "invalid"),
    Case("a page of 201", get("/api/v1/jobs", "limit=201"), 422, "invalid"),
    Case("a page of 1e2", get("/api/v1/jobs", "limit=1e2"), 422, "invalid"),
    Case("a page of 10**30", get("/api/v1/jobs", f"limit={10**30}"), 422, "invalid"),
    Case("a page of 1_0", get("/api/v1/jobs", "limit=1_0"), 422, "invalid"),
    Case("a status that is none", get("/api/v1/jobs", "status=lost"), 422, "invalid"),
    Case("a kind with a NUL", get("/api/v1/jobs", "kind=a%00b"), 422, "invalid"),
    Case("a kind of 201 characters", get("/api/v1/jobs", f"kind={LONG}"), 422, "invalid"),
    Case("an empty kind", get("/api/v1/jobs", "kind="), 422, "invalid"),
    Case("a text of 201 characters", get("/api/v1/jobs", f"text={LONG}"), 422, "invalid"),
    Case("a text with a NUL", get("/api/v1/jobs", "text=%00"), 422, "invalid"),
    Case("a time that is a word", get("/api/v1/jobs", "created_from=yesterday"), 422, "invalid"),
    Case("a time without a zone in the address", get("/api/v1/jobs", "created_from=2030-01-01T00:00:00"), 422, "invalid"),
    Case("a time as a number", get("/api/v1/jobs", "created_from=1700000000"), 422, "invalid"),
    Case("a time as a number in a body", post("/api/v1/jobs/actions", {"action": "reschedule", "ids": ["1"], "at": 1700000000}), 422, "invalid"),
    Case("a time as a number in a filter", post("/api/v1/jobs/actions", {"action": "cancel", "filter": {"created_from": "1700000000"}}), 422, "invalid"),
    Case("a time in a zone that is nowhere", get("/api/v1/jobs", "created_from=2030-01-01T00:00:00-19:37"), 422, "invalid"),
    Case("a time before all others", get("/api/v1/dead-letters", "created_until=0001-01-01T00:00:00%2B01:00"), 422, "invalid"),
    Case("a time after all others", get("/api/v1/dead-letters", "created_until=9999-12-31T23:59:59-01:00"), 422, "invalid"),
    Case("an unknown parameter", get("/api/v1/jobs", "sort=payload"), 422, "invalid"),
    Case("an unknown parameter where there is none", get("/api/v1/me", "debug=1"), 422, "invalid"),
    Case("a parameter twice", get("/api/v1/jobs", "kind=a&kind=b"), 422, "invalid"),
    Case("an overview of an hour and a minute", get("/api/v1/overview", "minutes=61"), 422, "invalid"),
    Case("a query of 9 kB", get("/api/v1/jobs", f"kind={'x' * 9_000}"), 414, "too_long"),
    Case("ten thousand parameters", get("/api/v1/jobs", "&".join(f"p{n}=1" for n in range(10_000))), 414, "too_long"),
    Case("a path of 3 kB", get(f"/api/v1/jobs/{'1' * 3_000}"), 414, "too_long"),
    # methods
    Case("a list is posted to", post("/api/v1/jobs", {}), 405, "wrong_method"),
    Case("a job is deleted by its address", lambda world: Asked("DELETE", "/api/v1/jobs/1", headers=bearer(world.developer)), 405, "wrong_method"),
    Case("an action is looked at", get("/api/v1/jobs/actions"), 405, "wrong_method"),
    Case("a tick is looked at", get("/outbox/run-once", who="developer"), 405, "wrong_method"),
    Case("a trace", lambda world: Asked("TRACE", "/api/v1/me", headers=bearer(world.developer)), 405, "wrong_method"),
    Case("options", lambda _: Asked("OPTIONS", "/api/v1/me", headers=(("origin", "https://evil.example"), ("access-control-request-method", "GET"))), 405, "wrong_method"),
    Case("a method of our own", lambda world: Asked("BREW", "/api/v1/me", headers=bearer(world.developer)), 405, "wrong_method"),
    Case("a method that is overridden", lambda world: Asked("GET", "/api/v1/session", headers=(("x-http-method-override", "DELETE"), *bearer(world.viewer))), 405, "wrong_method"),
    Case("the first page is posted to", lambda _: Asked("POST", "/", json={}), 405, "wrong_method"),
    *[Case(f"the path {path}", get(path, who="developer"), 404, "not_found") for path in TRICKS],
]
# fmt: on
