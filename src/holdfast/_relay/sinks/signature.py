"""Signatures of the Standard Webhooks specification: created by the webhook sink, verified by the receiver."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._model.duration import as_timedelta
from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._model.duration import Duration

TOLERANCE = timedelta(minutes=5)
_PREFIX = "whsec_"
_VERSION = "v1,"
# The specification's limits of a secret, in bytes.
_SHORTEST = 24
_LONGEST = 64
_MOST_SIGNATURES = 20


class NotVerified(HoldfastError):  # noqa: N818 - named for what happened
    """This webhook was not signed with our secret, or not lately.

    Cure: Answer the request with 400. Compare the secrets of both sides and their clocks.
    """


def secret_key(secret: str) -> bytes:
    """Return the key in `whsec_…`, which is base64 of 24 to 64 bytes."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a secret is whsec_ and base64") from None
    if not secret.startswith(_PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError(f"a secret is whsec_ and base64 of {_SHORTEST} to {_LONGEST} bytes")
    return key


def sign(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return _VERSION + base64.b64encode(digest).decode()


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    *,
    tolerance: Duration = TOLERANCE,
    now: float | None = None,
) -> str:
    """Return the message's id, for deduplication; raise NotVerified if no signature matches or it is too old.

    `body` is the raw body, unparsed. With several secrets, for rotation, any of them may match. `tolerance`: the most
    that the timestamp may differ from this host's clock, in seconds or a timedelta. Default: 5 minutes.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, signatures = given["webhook-id"], given["webhook-signature"]
        timestamp = int(given["webhook-timestamp"])
        message_id.encode()
    except (KeyError, ValueError):
        raise NotVerified("the headers webhook-id, webhook-timestamp and webhook-signature are needed") from None
    # Compare integers: a huge timestamp would overflow a float.
    if abs(int(time.time() if now is None else now) - timestamp) > as_timedelta("tolerance", tolerance).total_seconds():
        raise NotVerified("the webhook is too old, or from the future")
    keys = [secret_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    expected = [sign(key, message_id, timestamp, body).encode() for key in keys]
    matches = False
    for signature in signatures.split(" ", _MOST_SIGNATURES)[:_MOST_SIGNATURES]:
        for right in expected:
            matches |= hmac.compare_digest(signature.encode(errors="replace"), right)
    if not matches:
        raise NotVerified("no signature is by a secret of ours")
    return message_id
