from __future__ import annotations

import hashlib
import re

import pytest

from holdfast._ops.caller import Token


def test_a_token_is_read_as_it_was_made() -> None:
    token = Token.new()
    assert re.fullmatch(r"hf_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", token.text)
    assert Token.read(token.text) == token
    assert token.digest == hashlib.sha256(token.secret.encode()).hexdigest()


def test_no_two_tokens_are_alike() -> None:
    assert len({Token.new().text for _ in range(1_000)}) == 1_000


def test_a_token_does_not_show_its_secret() -> None:
    token = Token.new()
    assert token.secret not in repr(token)
    assert token.secret not in f"{token!r} {token!s}"


@pytest.mark.parametrize(
    "text",
    [
        "", "hf_", "hf_0123456789ab", "hf_0123456789ab_", f"hf_0123456789ab_{'x' * 42}", f"hf_0123456789ab_{'x' * 44}",
        f"hf_0123456789AB_{'x' * 43}", f"hf_0123456789a_{'x' * 43}", f" hf_0123456789ab_{'x' * 43}",
        f"hf_0123456789ab_{'x' * 43}\n", f"hf_0123456789ab_{'x' * 42}é", f"HF_0123456789ab_{'x' * 43}",
    ],
)  # fmt: skip
def test_what_does_not_look_like_a_token_is_none(text: str) -> None:
    assert Token.read(text) is None
