"""Settings whose times are those of a test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast import Retry


def ms(milliseconds: float) -> timedelta:
    return timedelta(milliseconds=milliseconds)


QUICK: dict[str, Any] = {
    "lease": ms(30_000),
    "heartbeat": ms(2_000),
    "reap_interval": ms(300),
    "shutdown_timeout": ms(1000),
    "idle_min": ms(100),
    "idle_max": ms(1000),
    "jitter": ms(0),
}
# What nobody renews runs out within a test; a server that stands still for a second loses nothing.
LEASE = 4.0
BRIEF: dict[str, Any] = QUICK | {"lease": ms(LEASE * 1000), "heartbeat": ms(750)}
# What is held is aborted soon when nobody answers, and long before its lease has run out.
ALERT: dict[str, Any] = QUICK | {"heartbeat": ms(300)}
# A lease so long that whatever is recovered within a test was recovered in another way.
PATIENT: dict[str, Any] = {"jitter": ms(0)}
# Polling so rare that it explains nothing: whoever looks sooner was woken.
MINUTE: dict[str, Any] = {"idle_min": ms(60_000), "idle_max": ms(60_000), "jitter": ms(0)}
AT_ONCE = Retry(max_attempts=3, base=ms(0), jitter=ms(0))
