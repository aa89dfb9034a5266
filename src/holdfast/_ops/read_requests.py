"""Reads the queries and bodies of the operations API within limits: unknown fields are refused."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from holdfast._ops.caller import RequestRefused
from holdfast._ops.requests import PATH, Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

Q = TypeVar("Q", bound=Question)

LONGEST_PATH = 2_048
LONGEST_QUERY = 8_192
LARGEST_BODY = 65_536
BODY_SECONDS = 10.0
FURTHEST_ZONE = timedelta(hours=14)

_SHOWN = 5
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}")
_CHARSETS = ("", "charset=utf-8", 'charset="utf-8"')


def check_target(scope: Mapping[str, Any]) -> None:
    """Refuse paths and queries that are too long, and path traversal."""
    path: str = scope["path"]
    if len(path) > LONGEST_PATH or len(scope.get("query_string", b"")) > LONGEST_QUERY:
        raise RequestRefused(414, "too_long", "The address is too long.")
    if not {".", ".."}.isdisjoint(path.split("/")) or any(character < " " for character in path):
        raise RequestRefused(404, "not_found", "Not found.")


def check_framing(scope: Mapping[str, Any]) -> None:
    """Refuse a request whose length a proxy might read differently (request smuggling)."""
    names = [name for name, _ in scope["headers"]]
    encodings, lengths = names.count(b"transfer-encoding"), names.count(b"content-length")
    if encodings + lengths > 1 or (encodings and scope.get("http_version") == "1.0"):
        raise RequestRefused(400, "ambiguous_length", "Send one Content-Length or one Transfer-Encoding, not both.")


def read_query(request: Request, model: type[Q]) -> Q:
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise RequestRefused(422, "invalid", "A parameter was given twice.")
    fields = {name: _typed(model, name, text) for name, text in given}
    return _made(model, json.dumps(fields).encode())


async def read_body(request: Request, model: type[Q]) -> Q:
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    if kind.strip().lower() != "application/json" or parameters.strip().lower() not in _CHARSETS:
        raise RequestRefused(415, "not_json", "Send application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestRefused(415, "encoded", "Send the body as it is, not encoded.")
    return _made(model, await _bytes(request))


def read_path(request: Request) -> dict[str, Any]:
    found = {}
    for name, text in request.path_params.items():
        try:
            found[name] = PATH[name].validate_python(text)
        except ValidationError as exc:
            raise _refused(exc, name) from None
    return found


async def _bytes(request: Request) -> bytes:
    check_length(request.headers.get("content-length"))
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > LARGEST_BODY:
                    raise _too_large()
    except TimeoutError:
        raise RequestRefused(408, "too_slow", "The body did not come in time.") from None
    return bytes(data)


def check_length(length: str | None) -> None:
    """Refuse a body that is too large by its Content-Length, before reading it."""
    if length is not None and (not length.isascii() or not length.isdecimal() or int(length[:20]) > LARGEST_BODY):
        raise _too_large()


def _too_large() -> RequestRefused:
    return RequestRefused(413, "too_large", f"A body has at most {LARGEST_BODY} bytes.")


def _typed(model: type[Question], name: str, text: str) -> str | int | bool:
    """Return a number or a truth value where the field is one and the text is written as in JSON, else the text."""
    field = model.model_fields.get(name)
    if field is not None and field.annotation is int and _NUMBER.fullmatch(text):
        return int(text)
    if field is not None and field.annotation is bool and text in ("true", "false"):
        return text == "true"
    return text


def _made(model: type[Q], data: bytes) -> Q:
    try:
        made = model.model_validate_json(data, strict=True)
    except ValidationError as exc:
        raise _refused(exc) from None
    _check_times(made, json.loads(data))
    return made


def _check_times(made: Question, given: Mapping[str, Any]) -> None:
    """Refuse times that pydantic accepts by mistake: numbers, impossible zones, the ends of the calendar."""
    for name in made.model_fields_set:
        value = getattr(made, name)
        if isinstance(value, Question):
            _check_times(value, given[name])
        elif isinstance(value, datetime) and not (_TIME.match(str(given[name])) and _is_sane(value)):
            message = f"{name}: a time is written like 2030-01-31T12:00:00Z"
            raise RequestRefused(422, "invalid", message, field=name)


def _is_sane(time: datetime) -> bool:
    return MINYEAR < time.year < MAXYEAR and abs(time.utcoffset() or timedelta(0)) <= FURTHEST_ZONE


def _refused(exc: ValidationError, name: str = "") -> RequestRefused:
    """Return the refusal with the invalid fields and the reasons, but without the values sent."""
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    problems = [f"{name or _where(error['loc'])}: {_how(error['type'], error['msg'])}" for error in errors[:_SHOWN]]
    more = f"; and {len(errors) - _SHOWN} more" * (len(errors) > _SHOWN)
    return RequestRefused(422, "invalid", "; ".join(problems) + more, field=name or _where(errors[0]["loc"]))


def _where(location: tuple[int | str, ...]) -> str:
    """Return the field's name, or a placeholder if it cannot be one of ours."""
    names = [str(part) if isinstance(part, int) or _FIELD.fullmatch(part) else "(a field)" for part in location[:5]]
    return ".".join(names) or "body"


def _how(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "there is no such field"
    return message.removeprefix("Value error, ")[:200]
