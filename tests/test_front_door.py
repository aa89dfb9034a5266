"""Users may import these modules with these names. All else is private, and no document or example shows it."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parent.parent
NAMES = {
    "holdfast.contrib.alembic": {"include_name"},
    "holdfast.contrib.django.tasks": {"HoldfastBackend"},
    "holdfast.contrib.fastapi": {"App", "lifespan", "while_connected"},
    "holdfast.contrib.flask": {"init_app"},
    "holdfast.contrib.pydantic_ai": {"HoldfastDurability", "StepOptions", "durable"},
    "holdfast.contrib.sentry": {"report_to_sentry"},
    "holdfast.contrib.starlette": {"holdfast_of", "lifespan", "while_connected"},
    "holdfast.archive": {"Archive", "ArchiveError"},
    "holdfast.inbox": {"consumer", "once", "sync"},
    "holdfast.inbox.sync": {"consumer", "once"},
    "holdfast.logs": {"ContextFilter", "HumanFormatter", "JsonFormatter", "bound", "configure", "mask"},
    "holdfast.ops": {"JwtAccess", "Person", "Role", "end_streams", "operations"},
    "holdfast.sinks": {
        "Breaker",
        "CloudEvents",
        "Gone",
        "KafkaSink",
        "Message",
        "NatsSink",
        "NotVerified",
        "Publish",
        "RabbitMQSink",
        "Receipt",
        "RedisSink",
        "Refused",
        "Sink",
        "Unavailable",
        "WebhookSink",
        "verify",
    },
    "holdfast.telemetry": {"INSTRUMENTS", "Instrument", "Telemetry", "instrument"},
    "holdfast.testing": {"Drained", "Enqueued", "Ran", "SyncTesting", "Testing"},
    "holdfast.wake": {"NatsWake", "RedisWake"},
}
# Django and Flask find these by their places: nothing is to be imported from them but the models.
PLACES = {
    "holdfast.contrib",
    "holdfast.contrib.django",
    "holdfast.contrib.django.admin",
    "holdfast.contrib.django.apps",
    "holdfast.contrib.django.management",
    "holdfast.contrib.django.management.commands",
    "holdfast.contrib.django.management.commands.holdfast",
    "holdfast.contrib.django.migrations",
    "holdfast.contrib.django.migrations.0001_schema",
    "holdfast.contrib.django.models",
    "holdfast.contrib.django.site",
    "holdfast.contrib.flask.site",
}
IMPORTED = re.compile(r"^\s*(?:from|import) (holdfast(?:\.\w+)*)", re.MULTILINE)
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"]
SHOWN = [ROOT / "README.md", *PAGES, *sorted((ROOT / "examples").rglob("*.py"))]


def _modules() -> set[str]:
    names = set()
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast.", onerror=lambda _: None):
        if "._" not in found.name:
            names.add(found.name)
    return names


def test_these_modules_are_public() -> None:
    assert _modules() == set(NAMES) | PLACES


@pytest.mark.parametrize("module", sorted(NAMES))
def test_a_public_module_has_these_names(module: str) -> None:
    loaded = import_module(module)
    assert set(loaded.__all__) == NAMES[module]
    assert all(getattr(loaded, name) is not None for name in loaded.__all__)


def test_dir_shows_only_what_users_need() -> None:
    assert set(dir(holdfast)) == set(holdfast.__all__)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_modules_are_shown(path: Path) -> None:
    assert set(IMPORTED.findall(path.read_text())) <= {"holdfast", *NAMES, *PLACES}


@pytest.mark.parametrize("module", ["holdfast.ops", "holdfast.sinks"])
def test_an_unknown_name_is_refused(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        import_module(module).nothing  # noqa: B018 - it is to fail
