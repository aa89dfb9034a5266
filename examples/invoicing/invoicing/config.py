"""The settings of the environment. Holdfast reads its own settings from the same environment: OUTBOX_…, WORKER_…."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_SECRET = 32
_NEEDED = ("SMTP_URL", "SESSION_SECRET", "WORKER_API_SERVICE_TOKEN")


class ConfigError(Exception):
    pass


@dataclass(frozen=True)
class Smtp:
    """The mail server.

    `smtp://host:25` has no login and no encryption. `smtp://user:password@host:587` turns on TLS by STARTTLS before the
    login, and fails if the server does not support it. `smtps://user:password@host` uses TLS from the start.
    """

    host: str
    port: int
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, address: str) -> Self:
        parts = urlsplit(address)
        if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
            raise ConfigError("SMTP_URL: expected an address such as smtp://mail.example.org:25")
        tls = parts.scheme == "smtps"
        user, password = (unquote(part) if part else None for part in (parts.username, parts.password))
        return cls(parts.hostname, parts.port or (465 if tls else 25), tls, user, password)


@dataclass(frozen=True)
class Config:
    database_url: str = field(repr=False)
    smtp: Smtp
    session_secret: str = field(repr=False)
    """Signs the cookies of people who are signed in."""
    service_token: str = field(repr=False)
    """The runners send it to the internal endpoints. Holdfast reads the same variable."""
    bucket: str = "invoices"
    store_endpoint: str | None = None
    """The address of the object store, unless it is Amazon's. Credentials are in AWS_ACCESS_KEY_ID and the like."""
    mail_from: str = "invoices@example.org"
    company: str = "Example Music School"
    time_zone: ZoneInfo = field(default=ZoneInfo("Europe/Berlin"))
    """Decides which day, and which month, it is."""
    chromium: str | None = None
    """The browser that renders PDFs. None: the first one that is found."""
    secure_cookies: bool = False
    """Send cookies over HTTPS only."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Read the environment. Raise ConfigError with every variable that is missing."""
        database_url = database_of(environment)
        if missing := [name for name in _NEEDED if not environment.get(name)]:
            raise ConfigError(f"set {', '.join(missing)}")
        if len(environment["SESSION_SECRET"]) < LEAST_SECRET:
            raise ConfigError(f"SESSION_SECRET: give at least {LEAST_SECRET} random characters")
        return cls(
            database_url=database_url,
            smtp=Smtp.read(environment["SMTP_URL"]),
            session_secret=environment["SESSION_SECRET"],
            service_token=environment["WORKER_API_SERVICE_TOKEN"],
            bucket=environment.get("INVOICE_BUCKET") or cls.bucket,
            store_endpoint=environment.get("INVOICE_STORE_ENDPOINT") or None,
            mail_from=environment.get("MAIL_FROM") or cls.mail_from,
            company=environment.get("COMPANY_NAME") or cls.company,
            time_zone=ZoneInfo(environment.get("COMPANY_TIME_ZONE") or "Europe/Berlin"),
            chromium=environment.get("CHROMIUM") or None,
            secure_cookies=environment.get("SECURE_COOKIES") == "true",
        )


def database_of(environment: Mapping[str, str]) -> str:
    """Return the address of the database. Holdfast reads the same two names, in this order: there is one database."""
    found = environment.get("HOLDFAST_DATABASE_URL") or environment.get("DATABASE_URL")
    if not found:
        raise ConfigError("set DATABASE_URL")
    return found
