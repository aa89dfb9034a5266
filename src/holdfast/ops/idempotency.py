"""A request with an Idempotency-Key is done once: whoever repeats it within a day gets the same answer."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from starlette.responses import Response

from holdfast.ops.refusal import Refused
from holdfast.store.answered import begin_answered, drop_answered, find_answered, forget_answered, keep_answered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel
    from starlette.requests import Request

    from holdfast.ops.desk import Desk
    from holdfast.ops.person import Person

HEADER = "Idempotency-Key"
REPEATED = "Idempotency-Replayed"
_KEY = re.compile(r"[!-~]{1,200}")
# Whether anything was done before such a refusal is not known: the database may have committed.
_UNKNOWN = frozenset({"database_unreachable", "tick_failed", "internal"})


def key_of(request: Request) -> str | None:
    """Return the key that a request carries; None: it carries none."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    if len(given) > 1 or _KEY.fullmatch(given[0]) is None:
        raise Refused(422, "invalid", f"{HEADER}: 1 to 200 visible ASCII characters expected, once.")
    return given[0]


async def once(desk: Desk, by: Person, key: str, request: str, answer: Callable[[], Awaitable[Response]]) -> Response:
    """Answer, or repeat what was answered under this key before. `request`: a digest of what is asked."""
    who = f"{by.name} {by.credential or ''}"
    await desk.ask(forget_answered())
    if not await desk.ask(begin_answered(who, key, request)):
        return await _repeated(desk, who, key, request)
    try:
        response = await answer()
    except Refused as refused:
        if refused.code not in _UNKNOWN:
            await desk.ask(drop_answered(who, key))
        raise
    await desk.ask(keep_answered(who, key, bytes(response.body).decode()))
    return response


async def _repeated(desk: Desk, who: str, key: str, request: str) -> Response:
    found = await desk.ask(find_answered(who, key))
    if found is not None and found.request != request:
        raise Refused(422, "key_reused", f"This {HEADER} was used for another request: choose a new one.")
    if found is None or found.answer is None:
        told = (
            "A request with this key is under way, or its end is not known: look at what it did before you act again."
        )
        raise Refused(409, "in_progress", told)
    return Response(found.answer, headers={REPEATED: "true"}, media_type="application/json")


def digest(method: str, path: str, body: BaseModel | None) -> str:
    said = "" if body is None else body.model_dump_json()
    return hashlib.sha256(f"{method} {path} {said}".encode()).hexdigest()
