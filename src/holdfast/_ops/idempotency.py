"""A writing request with an Idempotency-Key: done once, and answered again with the answer that was stored."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from starlette.responses import Response

from holdfast._ops.caller import RequestRefused
from holdfast._store.access import begin_answered, drop_answered, find_answered, forget_answered, keep_answered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel
    from starlette.requests import Request

    from holdfast._ops.caller import Person
    from holdfast._ops.service import Service

HEADER = "Idempotency-Key"
REPEATED = "Idempotency-Replayed"
_KEY = re.compile(r"[!-~]{1,200}")
# After such a refusal the outcome is unknown: the database may have committed.
_UNKNOWN = frozenset({"database_unreachable", "tick_failed", "internal"})


def key_of(request: Request) -> str | None:
    """Return the request's idempotency key, or None."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    if len(given) > 1 or _KEY.fullmatch(given[0]) is None:
        raise RequestRefused(
            422, "invalid", f"{HEADER}: 1 to 200 visible ASCII characters expected, once.", field=HEADER
        )
    return given[0]


async def once(
    service: Service, by: Person, key: str, request: str, answer: Callable[[], Awaitable[Response]]
) -> Response:
    """Answer, or replay the answer stored under this key. `request` is a digest of the request."""
    who = f"{by.name} {by.credential or ''}"
    await service.run(forget_answered())
    if not await service.run(begin_answered(who, key, request)):
        return await _repeated(service, who, key, request)
    try:
        response = await answer()
    except RequestRefused as refused:
        if refused.code not in _UNKNOWN:
            await service.run(drop_answered(who, key))
        raise
    await service.run(keep_answered(who, key, bytes(response.body).decode()))
    return response


async def _repeated(service: Service, who: str, key: str, request: str) -> Response:
    found = await service.run(find_answered(who, key))
    if found is not None and found.request != request:
        raise RequestRefused(422, "key_reused", f"This {HEADER} was used for another request: choose a new one.")
    if found is None or found.answer is None:
        message = (
            "A request with this key is under way, or its end is not known: look at what it did before you act again."
        )
        raise RequestRefused(409, "in_progress", message)
    return Response(found.answer, headers={REPEATED: "true"}, media_type="application/json")


def digest(request: Request, body: BaseModel | None) -> str:
    text = "" if body is None else body.model_dump_json()
    return hashlib.sha256(f"{request.method} {request.url.path}?{request.url.query} {text}".encode()).hexdigest()
