"""Authentication of the caller: by an access token, a JWT, a signed session cookie, or the host application."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from jwt import decode, encode
from jwt.exceptions import PyJWTError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from holdfast._logs.log import Log
from holdfast._ops.caller import PREFIX, Person, RequestRefused, Role, Token

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast._ops.caller import Failures
    from holdfast._ops.jwt import JwtAccess
    from holdfast._store.access import AccessToken


Authenticate: TypeAlias = Callable[[Request], Person | Awaitable[Person | None] | None]
FindToken: TypeAlias = "Callable[[str], Awaitable[AccessToken | None]]"
IsEnded: TypeAlias = Callable[[str], Awaitable[bool]]
By: TypeAlias = Literal["token", "jwt", "session", "host"]
Caller: TypeAlias = tuple[Person, By]

log = Log(__name__)

FRESH = 10.0
"""Seconds for which a looked-up token is cached."""
MOST_KNOWN = 1_000
PATIENCE = 10.0
_NO_DIGEST = "0" * 64


class _Known(NamedTuple):
    row: AccessToken
    at: float


class Access:
    """Authenticates callers. Failures are counted by address, but do not block credentials verified before."""

    def __init__(  # noqa: PLR0913 - one keyword per way to authenticate
        self,
        find: FindToken,
        *,
        sessions: Sessions,
        failures: Failures,
        jwt: JwtAccess | None = None,
        authenticate: Authenticate | None = None,
        is_ended: IsEnded | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_ended(id)` returns whether the user signed out of this session."""
        self._find = find
        self._is_ended = is_ended
        self._sessions_seen: OrderedDict[str, tuple[bool, float]] = OrderedDict()
        self._sessions = sessions
        self._failures = failures
        self._jwt = jwt
        self._authenticate = authenticate
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def allowed(self, request: Request, needed: Role) -> Person:
        """Return the caller if they have the role, else raise RequestRefused."""
        person, by = await self._caller(request)
        if by in ("session", "host") and request.method not in SAFE:
            _check_site(request)
        elif by == "jwt" and request.method not in SAFE:
            # A proxy may have made the token of a cookie, which a browser sends for any site.
            check_origin(request)
        if not person.role.may(needed):
            raise RequestRefused(403, "forbidden", f"This needs the role {needed}.")
        return replace(person, credential=person.credential or by, address=_address(request) or None)

    async def login(self, request: Request, text: str) -> tuple[Person, str]:
        """Return the person that a token identifies, and a new session for them."""
        check_origin(request)
        if text.startswith(PREFIX):
            row = await self._token(text, _address(request))
            return _person(row), self._sessions.of_token(row.key)
        if self._jwt is not None:
            person, until = await self._verified(self._jwt, text, _address(request))
            return person, self._sessions.of_person(person, until)
        raise self._failed(request.method, _address(request))

    async def _caller(self, request: Request) -> Caller:
        bearer = _bearer(request)
        if bearer is not None and bearer.startswith(PREFIX):
            return _person(await self._token(bearer, _address(request))), "token"
        if self._authenticate is not None and (person := await self._asked(self._authenticate, request)) is not None:
            return person, "host"
        if bearer is not None and (self._jwt is not None or self._authenticate is None):
            if self._jwt is None:
                raise self._failed("bearer", _address(request))
            person, _ = await self._verified(self._jwt, bearer, _address(request))
            return person, "jwt"
        if (cookie := request.cookies.get(COOKIE)) is not None:
            return await self._session(cookie), "session"
        raise RequestRefused(401, "unauthorized", "Sign in, or send a token: `Authorization: Bearer …`.")

    async def _token(self, text: str, address: str) -> AccessToken:
        token = Token.read(text)
        if token is None:
            raise self._failed("shape", address)
        known = self._known.get(token.key)
        trusted = known is not None and hmac.compare_digest(token.digest, known.row.digest)
        if not trusted:
            self._failures.check(address)
        row = await self._row(token.key)
        if not hmac.compare_digest(token.digest, _NO_DIGEST if row is None else row.digest) or row is None:
            raise self._failed(f"token {token.key}", address)
        if (why := _ended(row)) is not None:
            raise self._failed(f"token {token.key}", address, why)
        return row

    async def _row(self, key: str) -> AccessToken | None:
        known = self._known.get(key)
        if known is not None and self._clock() - known.at < FRESH:
            return known.row
        at = self._clock()
        row = await self._find(key)
        self._known.pop(key, None)
        if row is not None:
            self._known[key] = _Known(row, at)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return row

    def sign_out(self, session: str) -> None:
        """Record at once that a session has ended. Other processes notice within ten seconds."""
        self._see(session, ended=True)

    def _see(self, session: str, *, ended: bool) -> None:
        self._sessions_seen[session] = (ended, self._clock())
        self._sessions_seen.move_to_end(session)
        while len(self._sessions_seen) > MOST_KNOWN:
            self._sessions_seen.popitem(last=False)

    async def _has_ended(self, session: str) -> bool:
        if self._is_ended is None:
            return False
        ended, at = self._sessions_seen.get(session, (False, -FRESH))
        if not ended and self._clock() - at >= FRESH:
            ended = await self._is_ended(session)
            self._see(session, ended=ended)
        return ended

    async def _session(self, cookie: str) -> Person:
        session = self._sessions.read(cookie)
        if session is None or await self._has_ended(session.id):
            raise RequestRefused(401, "unauthorized", "The session is over: sign in again.")
        if session.person is not None:
            return replace(session.person, credential=f"session:{session.id}")
        row = await self._row(session.key or "")
        if row is None or _ended(row) is not None:
            raise RequestRefused(401, "unauthorized", "The token of this session holds no more: sign in with another.")
        return replace(_person(row), credential=f"token:{row.key} session:{session.id}")

    async def _verified(self, jwt: JwtAccess, text: str, address: str) -> tuple[Person, float]:
        verified = await jwt.verify(text)
        if verified is None:
            raise self._failed("jwt", address)
        person, until = verified
        return jwt.named(person), until

    async def _asked(self, authenticate: Authenticate, request: Request) -> Person | None:
        try:
            async with asyncio.timeout(PATIENCE):
                if inspect.iscoroutinefunction(authenticate):
                    answer = await authenticate(request)
                else:
                    answer = await run_in_threadpool(authenticate, request)
                    if inspect.isawaitable(answer):
                        answer = await answer
        except TimeoutError:
            raise RequestRefused(503, "authentication_slow", "The site did not say in time who asks.") from None
        except PermissionError:
            raise RequestRefused(403, "no_role", "The site knows you, but you have no role here.") from None
        except HTTPException as exc:
            raise _refused_by_host(exc) from exc
        if answer is not None and not isinstance(answer, Person):
            raise TypeError(f"authenticate returned {type(answer).__name__}, and not a Person or None")
        return answer

    def _failed(self, what: str, address: str, why: str = "This token is not known.") -> RequestRefused:
        self._failures.check(address)
        self._failures.add(address)
        log.info("a caller was refused", extra={"refused": what, "why": why, "client": address})
        return RequestRefused(401, "invalid_token", why)


def _bearer(request: Request) -> str | None:
    """Return the request's bearer token. With two headers, return one that is never valid."""
    headers = request.headers.getlist("authorization")
    if len(headers) > 1:
        return ""
    scheme, _, token = headers[0].partition(" ") if headers else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def _refused_by_host(exc: HTTPException) -> Exception:
    """Return the refusal if the host's own dependency raised 401 or 403; any other status is an error."""
    match exc.status_code:
        case 401:
            return RequestRefused(401, "unauthorized", "The site does not know you: sign in there.")
        case 403:
            return RequestRefused(403, "no_role", "The site knows you, but you have no role here.")
        case _:
            return exc


def _check_site(request: Request) -> None:
    """Refuse a request that another site made the browser send.

    A browser sends cookies with every request, whichever site caused it. A bearer token beside a cookie proves
    nothing, because the cookie may have authenticated the caller. Only a caller without cookies needs no header.
    """
    if _bearer(request) is None or "cookie" in request.headers:
        check_header(request)
    check_origin(request)


def _address(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _ended(row: AccessToken) -> str | None:
    if row.revoked_at is not None:
        return "This token was revoked."
    return "This token has expired." if row.expired else None


def _person(row: AccessToken) -> Person:
    return Person(row.name, Role(row.role), f"token:{row.key}")


HEADER = "x-holdfast-csrf"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}


def check_origin(request: Request) -> None:
    """Refuse a request that a browser sends on behalf of another site.

    Sec-Fetch-Site also works behind a proxy that changes the host, and no page can set it. Programs send neither.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site != "same-origin":
            raise _refused()
        return
    origin = request.headers.get("origin")
    if origin is not None and not _same(origin, request.headers.get("host", "")):
        raise _refused()


def check_header(request: Request) -> None:
    """Refuse a request that another site's form or link could send: neither can set a custom header."""
    if HEADER not in request.headers:
        raise RequestRefused(403, "csrf", f"A session needs the header {HEADER} to act.")
    check_origin(request)


def _refused() -> RequestRefused:
    return RequestRefused(403, "csrf", "Another site asked for this.")


def _same(origin: str, host: str) -> bool:
    try:
        asked, ours = urlsplit(origin), urlsplit(f"//{host}")
        ports = asked.port, ours.port
    except ValueError:
        return False
    usual = _PORTS.get(asked.scheme)
    if usual is None or asked.hostname is None:
        return False
    return (asked.hostname, ports[0] or usual) == (ours.hostname, ports[1] or usual)


COOKIE = "holdfast_session"
SECONDS = 12 * 3600.0
LEAST_SECRET = 32
_LONGEST = 2_048
_ALGORITHM = "HS256"


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session: either a token's key, looked up at each use, or the person of a JWT."""

    id: str
    """Not secret. Used to end the session early."""
    key: str | None
    person: Person | None
    until: float
    """Unix time in seconds, by the clock of the machine that signed it."""


class Sessions:
    """Signs and verifies session cookies.

    Without a `secret` each process generates its own: a restart ends all sessions, and several processes behind one
    address need a common secret.
    """

    def __init__(
        self, secret: str | None = None, *, seconds: float = SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        if secret is not None and len(secret) < LEAST_SECRET:
            raise ValueError(f"the secret that signs sessions must have at least {LEAST_SECRET} characters")
        self._key = hashlib.sha256(b"holdfast session " + (secret or secrets.token_hex(32)).encode()).digest()
        self._seconds = seconds
        self._clock = clock

    def of_token(self, key: str) -> str:
        return self._signed({"key": key, "until": self._clock() + self._seconds})

    def of_person(self, person: Person, until: float) -> str:
        """Return a session for the person of a JWT, valid no longer than the JWT."""
        ends = min(until, self._clock() + self._seconds)
        return self._signed({"name": person.name, "role": person.role, "until": ends})

    def read(self, value: str) -> BrowserSession | None:
        """Return the session, or None if it is expired or not signed by us."""
        if len(value) > _LONGEST:
            return None
        try:
            fields = decode(value, self._key, [_ALGORITHM])
        except PyJWTError:
            return None
        if fields["until"] <= self._clock():
            return None
        person = Person(fields["name"], Role(fields["role"])) if "name" in fields else None
        return BrowserSession(fields["id"], fields.get("key"), person, fields["until"])

    def write(self, request: Request, response: Response, value: str) -> None:
        """Set the cookie, restricted to this application's path."""
        response.set_cookie(COOKIE, value, max_age=int(self._seconds), **_where(request))

    def forget(self, request: Request, response: Response) -> None:
        response.delete_cookie(COOKIE, **_where(request))

    def _signed(self, fields: dict[str, Any]) -> str:
        return encode({"id": secrets.token_hex(8), **fields}, self._key, _ALGORITHM)


def _where(request: Request) -> dict[str, Any]:
    return {
        "path": quote(request.scope.get("root_path", "")) or "/",
        "secure": request.url.scheme == "https",
        "httponly": True,
        "samesite": "strict",
    }
