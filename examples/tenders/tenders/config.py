"""The settings of the application. Holdfast reads its own, among them those of `NIGHTS`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast import Cron, Retry

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

BACKOFF_MINUTES = "1,2,4,8,16,60"
# When old rows leave. Without a time zone, Holdfast would read these settings in UTC.
NIGHTS = {
    "CLEANUP_CRON": Cron("17 3 * * *", tz="America/Santiago"),
    "ARCHIVE_EXPORT_CRON": Cron("47 3 * * *", tz="America/Santiago"),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Times are those of one attempt or one pause, not of a whole cycle."""

    database_url: str
    api_url: str
    """The API of ChileCompra."""
    api_ticket: str
    """The key to that API."""
    page_url: str
    """The web page that is scraped beside it."""
    expo_url: str
    expo_token: str
    ingest_every: timedelta
    dispatch_pause: timedelta
    """How long no push is sent after the provider answered that there are too many, unless it says how long."""
    receipt_wait: timedelta
    """Delay before the first receipt request, and between two requests."""
    receipt_deadline: timedelta
    """When a receipt that has not come will not come any more. Expo keeps receipts for a day."""
    http_timeout: timedelta
    backoff: Retry
    """How often a delivery is sent, and the pauses between."""
    hot_months: int
    """How long a tender stays in its table."""
    delivery_days: int
    """How long a delivery that has ended stays in its table."""

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Config:
        """Return the settings. An address that is missing is reported when it is needed: see `required`."""
        delays = [minutes(f"BACKOFF_MINUTES[{n}]", text) for n, text in enumerate(_parts(environ))]
        return cls(
            database_url=environ.get("HOLDFAST_DATABASE_URL") or environ.get("DATABASE_URL", ""),
            api_url=environ.get("CHILECOMPRA_API_URL", ""),
            api_ticket=environ.get("CHILECOMPRA_TICKET", ""),
            page_url=environ.get("CHILECOMPRA_PAGE_URL", ""),
            expo_url=environ.get("EXPO_URL", ""),
            expo_token=environ.get("EXPO_ACCESS_TOKEN", ""),
            ingest_every=_minutes(environ, "WORKER_INTERVAL_MINUTES", "2"),
            dispatch_pause=_minutes(environ, "DISPATCH_INTERVAL_MINUTES", "1"),
            receipt_wait=_minutes(environ, "RECEIPT_INTERVAL_MINUTES", "1"),
            receipt_deadline=60 * _minutes(environ, "RECEIPT_HOURS", "24"),
            http_timeout=_minutes(environ, "HTTP_TIMEOUT_SECONDS", "15") / 60,
            backoff=Retry.table(delays, max_attempts=len(delays) + 1, jitter=0),
            hot_months=_whole(environ, "HOT_MONTHS", "12"),
            delivery_days=_whole(environ, "DELIVERY_RETENTION_DAYS", "90"),
        )

    def required(self, *names: str) -> None:
        """Raise a ValueError that names each of these settings that is missing."""
        variables = {
            "database_url": "HOLDFAST_DATABASE_URL",
            "api_url": "CHILECOMPRA_API_URL",
            "page_url": "CHILECOMPRA_PAGE_URL",
            "expo_url": "EXPO_URL",
        }
        if missing := [variables[name] for name in names if not getattr(self, name)]:
            raise ValueError(f"{', '.join(missing)}: not set. `python -m tenders` starts what is missing")


def set_nights(environ: MutableMapping[str, str]) -> None:
    """Set those of `NIGHTS` that the environment does not have, under the name of Holdfast or the former one."""
    for name, night in NIGHTS.items():
        if not environ.get(name) and not environ.get(f"HOLDFAST_{name}"):
            environ[name] = night.text


def minutes(name: str, text: str) -> timedelta:
    """Return a number of minutes, which may have a fraction.

    >>> minutes("WORKER_INTERVAL_MINUTES", "0.5")
    datetime.timedelta(seconds=30)
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= 60 * 24 * 366:
        raise ValueError(f"{name}: expected a number above 0, got {text!r:.40}")
    return timedelta(milliseconds=max(1, round(number * 60_000)))


def _minutes(environ: Mapping[str, str], name: str, default: str) -> timedelta:
    return minutes(name, environ.get(name) or default)


def _whole(environ: Mapping[str, str], name: str, default: str) -> int:
    text = environ.get(name) or default
    if not text.isdecimal() or not 1 <= int(text) <= 9999:
        raise ValueError(f"{name}: expected a whole number from 1 to 9999, got {text!r:.40}")
    return int(text)


def _parts(environ: Mapping[str, str]) -> list[str]:
    return (environ.get("BACKOFF_MINUTES") or BACKOFF_MINUTES).split(",")
