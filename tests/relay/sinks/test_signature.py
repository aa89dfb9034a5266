from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks

from holdfast._relay.sinks.signature import NotVerified, secret_key, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the specification's example
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = b'{"test": 2432232314}'


def signed(secret: str = SECRET, *, at: int | None = None) -> dict[str, str]:
    timestamp = int(time.time()) if at is None else at
    signature = sign(secret_key(secret), "msg_1", timestamp, BODY)
    return {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(timestamp), "Webhook-Signature": signature}


def test_the_example_of_the_specification() -> None:
    signature = sign(secret_key(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_the_official_library_signs_is_verified() -> None:
    now = datetime.now(UTC)
    signature = standardwebhooks.Webhook(SECRET).sign("msg_1", now, BODY.decode())
    headers = signed() | {"Webhook-Signature": signature, "Webhook-Timestamp": str(int(now.timestamp()))}
    assert verify(BODY, headers, SECRET) == "msg_1"


def test_any_of_several_secrets_and_of_several_signatures() -> None:
    assert verify(BODY, signed(OTHER), [SECRET, OTHER]) == "msg_1"
    both = signed()
    both["Webhook-Signature"] = f"v1a,asymmetric {signed(OTHER)['Webhook-Signature']} {both['Webhook-Signature']}"
    assert verify(BODY, both, SECRET) == "msg_1"


@pytest.mark.parametrize(
    "changes",
    [
        {"Webhook-Id": "msg_2"},
        {"Webhook-Timestamp": "soon"},
        {"Webhook-Timestamp": str(int(time.time()) - 1)},
        {"Webhook-Signature": ""},
        {"Webhook-Signature": "v1,"},
        {"Webhook-Signature": "v1,Zm9v ünicode"},
        {"Webhook-Timestamp": "1" + "0" * 400},
        {"Webhook-Timestamp": "1" + "0" * 5_000},
        {"Webhook-Signature": "v1,\udcff"},
        {"Webhook-Id": "\udcff"},
    ],
)
def test_what_was_changed_is_not_verified(changes: dict[str, str]) -> None:
    with pytest.raises(NotVerified):
        verify(BODY, signed() | changes, SECRET)


def test_another_body_another_secret_or_no_headers() -> None:
    with pytest.raises(NotVerified):
        verify(BODY + b" ", signed(), SECRET)
    with pytest.raises(NotVerified):
        verify(BODY, signed(), OTHER)
    with pytest.raises(NotVerified, match="are needed"):
        verify(BODY, {}, SECRET)
    with pytest.raises(NotVerified):
        verify(BODY, signed(), [])


def test_old_and_future_ones_are_not_verified() -> None:
    headers = signed(at=1_000_000)
    assert verify(BODY, headers, SECRET, now=1_000_300) == "msg_1"
    for now in (1_000_301, 999_699):
        with pytest.raises(NotVerified, match="too old, or from the future"):
            verify(BODY, headers, SECRET, now=now)
    assert verify(BODY, headers, SECRET, now=1_003_000, tolerance=timedelta(hours=1)) == "msg_1"
