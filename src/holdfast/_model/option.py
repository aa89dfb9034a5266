"""The checks of an option's value: text, numbers, choices, times and headers, with what is wrong and what to write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast._model.call import type_name
from holdfast._model.errors import InvalidJob

KIND_LIMIT = 200
QUEUE_LIMIT = 100
KEY_LIMIT = 500
HEADERS_LIMIT = 8_192
TAG_LIMIT = 100
MOST_TAGS = 8
_EXAMPLES = {
    "at": "at=datetime.now(UTC) + timedelta(hours=1)",
    "expires": "expires=timedelta(hours=1)",
    "headers": 'headers={"tenant": "acme"}',
    "order_key": 'order_key="customer-7"',
    "unique": 'unique="invoice-7"',
}
_UNFIT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def check_type(option: str, value: object, expected: type[Any]) -> Any:
    if not isinstance(value, expected):
        example = f", such as {_EXAMPLES[option]}" if option in _EXAMPLES else ""
        wanted = "text" if expected is str else expected.__name__
        raise InvalidJob(f"{option}: expected {wanted}{example}, got {type_name(value)}")
    return value


def check_text(option: str, value: str, limit: int) -> None:
    check_type(option, value, str)
    if not value or _UNFIT.search(value) or (len(value) * 4 > limit and len(value.encode()) > limit):
        got = f"{len(value.encode(errors='replace'))} bytes{' with one' * bool(_UNFIT.search(value))}"
        raise InvalidJob(f"{option}: expected 1 to {limit} bytes of text without control characters, got {got}")


def check_number(option: str, value: object, least: int, limit: int) -> None:
    if type(value) is not int or not least <= value <= limit:
        got = f"{value!r:.40}" if isinstance(value, int | float | str) else type(value).__name__
        raise InvalidJob(f"{option}: expected a whole number from {least} to {limit}, got {got}")


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidJob(f"{option}: expected one of {', '.join(choices)}, got {value!r:.40}")


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags, each once, in their order."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidJob(f"tags: expected a list of words, such as tags=['eu'], got {type(tags).__name__}")
    found = tuple(dict.fromkeys(tags))
    if len(found) > MOST_TAGS:
        raise InvalidJob(f"tags: expected at most {MOST_TAGS} words, got {len(found)}")
    for tag in found:
        check_text("tags", tag, TAG_LIMIT)
    return found


def check_time(option: str, value: datetime) -> str:
    check_type(option, value, datetime)
    if value.utcoffset() is None:
        raise InvalidJob(f"{option}: the datetime has no time zone: write {_EXAMPLES['at']}, or give it tzinfo=UTC")
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError:
        raise InvalidJob(f"{option}: the datetime is outside the calendar, in UTC the years 1 to 9999") from None


def frozen_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(check_type("headers", headers, Mapping).items())
    for name, value in pairs:
        check_text("headers", name, KEY_LIMIT)
        if not isinstance(value, str) or "\x00" in value:
            raise InvalidJob(
                f"headers: expected text without NUL characters as the value of {name}, got {type(value).__name__}"
            )
    return tuple(sorted(pairs))


def checked_headers(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    headers = dict(pairs)
    try:
        size = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    except UnicodeEncodeError:
        raise InvalidJob("headers: text that is not valid Unicode") from None
    if size > HEADERS_LIMIT:
        raise InvalidJob(f"headers: {size} bytes, and the limit is {HEADERS_LIMIT}")
    return headers
