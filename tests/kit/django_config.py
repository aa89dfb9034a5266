"""Django is configured once per process: for the tests of the driver and those of the kit alike."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

from holdfast import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
_SQLITE = "django.db.backends.sqlite3"
_POSTGRESQL: dict[str, Any] = {"ENGINE": "django.db.backends.postgresql"}


TASKS = {"default": {"BACKEND": "holdfast.contrib.django.tasks.HoldfastBackend", "QUEUES": ["default", "mail"]}}


@contextmanager
def connected(**addresses: str) -> Iterator[None]:
    """Point Django's connections, by alias, at these databases."""
    configure()
    for alias, address in addresses.items():
        parts = conninfo_to_dict(address)
        named = {name: str(parts.get(key) or "") for name, key in _NAMES.items()}
        connections[alias].settings_dict.update(named)
    try:
        yield
    finally:
        connections.close_all()


def configure() -> None:
    if settings.configured:
        return
    settings.configure(
        DATABASES={"default": dict(_POSTGRESQL), "orders": dict(_POSTGRESQL), "other": {"ENGINE": _SQLITE}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        HOLDFAST_APP="tests.contrib.book.application.app",
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "holdfast.contrib.django",
            "tests.contrib.book",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        ROOT_URLCONF="tests.contrib.book.urls",
        SECRET_KEY="for tests",  # noqa: S106 - guards nothing
        TASKS=TASKS
        | {
            "once": TASKS["default"] | {"OPTIONS": {"RETRY": Retry(max_attempts=1)}},
            "orders": TASKS["default"] | {"OPTIONS": {"DATABASE": "orders"}},
        },
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        USE_TZ=True,
    )
    django.setup()
