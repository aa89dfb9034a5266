from __future__ import annotations

import base64
import json
from unittest.mock import ANY

import jwt
import pytest

from holdfast._ops.access import BrowserSession, Sessions
from holdfast._ops.caller import Person, Role
from tests.kit.clock import Clock

SECRET = "a secret of at least so many characters"  # noqa: S105 - guards nothing


def test_a_session_is_read_by_whoever_has_the_secret_until_it_is_over() -> None:
    clock = Clock(1_000.0)
    value = Sessions(SECRET, seconds=60, clock=clock).of_token("0123456789ab")
    other = Sessions(SECRET, clock=clock)
    assert other.read(value) == BrowserSession(ANY, "0123456789ab", None, 1_060.0)
    clock.now = 1_060.0
    assert other.read(value) is None


def test_a_process_without_a_secret_reads_only_its_own_sessions() -> None:
    value = Sessions().of_token("0123456789ab")
    assert Sessions().read(value) is None


def test_a_session_of_a_person_ends_with_what_vouched_for_them() -> None:
    clock = Clock(1_000.0)
    sessions = Sessions(SECRET, seconds=60, clock=clock)
    ann = Person("ann", Role.OPERATOR)
    assert sessions.read(sessions.of_person(ann, 1_010.0)) == BrowserSession(ANY, None, ann, 1_010.0)
    assert sessions.read(sessions.of_person(ann, 9_999.0)) == BrowserSession(ANY, None, ann, 1_060.0)


def _forged() -> list[str]:
    value = Sessions(SECRET).of_token("0123456789ab")
    head, content, mac = value.split(".")
    fields = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
    longer = base64.urlsafe_b64encode(json.dumps(fields | {"until": 9e12}).encode()).rstrip(b"=").decode()
    return [
        "", ".", content, f"{head}.{content}.", f"{content}.{mac}", f".{content}.{mac}", f"{head}..{mac}",
        f"{head}.{longer}.{mac}", f"{head}.{content}.{mac[:-2]}__", f"{head}.{content}.{'A' * 43}",
        f"{head}.{content}.{mac}.{mac}", "x" * 10_000, f"{head}.{content}é.{mac}", f"{head}.{content} .{mac}",
        jwt.encode(fields, "", "none"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", _forged(), ids=range(len(_forged())))
def test_a_session_that_was_changed_is_none(value: str) -> None:
    assert Sessions(SECRET).read(value) is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32"):
        Sessions("short")
