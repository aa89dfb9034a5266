"""A library that is not installed is named with its extra, and every install command names our own distribution."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast._distribution import DISTRIBUTION, missing, needed, version
from tools import lock, lowest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
READ = (".md", ".py", ".toml", ".yml", ".yaml", ".sh", ".html", ".ts", ".tsx", ".sql")
PLACES = ("src", "docs", "examples", "labs", "dashboard/src", "deploy", "tools", ".ci", ".github")
INSTALLS = re.compile(r"(?:pip3? install|pip3? download|pipx install|uv add|uvx|uv tool install)\s+([^\n`]*)")
# Names of ours in such a command: the distribution, with or without extras and version.
OURS = re.compile(r"(?<![\w./-])(holdfast[\w-]*)(?:\[([a-z,]+)\])?(?![\w./-])")
BRACKETS = re.compile(r"(?<![\w./-])(holdfast[\w-]*)\[([a-z,]+)\]")

SQLALCHEMY = "type('Session', (), {'__module__': 'sqlalchemy.orm'})()"
ASYNCPG = "type('Connection', (), {'__module__': 'asyncpg.connection'})()"
RUN = "from holdfast._drivers import run_sync; run_sync({}, None)"
# What is used, the extra that it needs, the library that is missing.
USES = [
    (RUN.format(ASYNCPG), "a connection of asyncpg", "asyncpg", "asyncpg"),
    (RUN.format(SQLALCHEMY), "a connection of sqlalchemy", "sqlalchemy", "sqlalchemy"),
    ("import holdfast.contrib.django.apps", "holdfast.contrib.django", "django", "django"),
    ("import holdfast.contrib.fastapi", "holdfast.contrib.fastapi", "fastapi", "fastapi"),
    ("import holdfast.contrib.flask", "holdfast.contrib.flask", "flask", "flask"),
    ("import holdfast.contrib.pydantic_ai", "holdfast.contrib.pydantic_ai", "pydantic-ai", "pydantic_ai"),
    ("import holdfast.contrib.sentry", "holdfast.contrib.sentry", "sentry", "sentry_sdk"),
    ("from holdfast.sinks import KafkaSink; KafkaSink('h')", "a relay to Kafka", "kafka", "aiokafka"),
    ("from holdfast.sinks import NatsSink; NatsSink('nats://h')", "a relay to NATS", "nats", "nats"),
    ("from holdfast.sinks import RabbitMQSink as S; S('amqp://h')", "a relay to RabbitMQ", "rabbitmq", "aio_pika"),
    ("from holdfast.sinks import RedisSink; RedisSink('redis://h')", "a relay to Redis", "redis", "redis"),
    (
        "from holdfast.sinks import WebhookSink; WebhookSink('https://h/', 'whsec_' + 'A' * 32)",
        "a relay to a webhook",
        "webhook",
        "aiohttp",
    ),
    ("from holdfast.wake import NatsWake; NatsWake('nats://h')", "a carrier of wake-ups over NATS", "nats", "nats"),
    ("from holdfast.wake import RedisWake as W; W('redis://h')", "a carrier of wake-ups over Redis", "redis", "redis"),
    ("from holdfast.ops import operations", "holdfast.ops.operations", "ops", "starlette"),
    ("from holdfast.ops import JwtAccess", "holdfast.ops.JwtAccess", "ops", "jwt"),
    (
        "from holdfast._archive.location import Location; Location('history').open()",
        "the archive",
        "archive",
        "obstore",
    ),
    (
        "from holdfast.telemetry import Telemetry; Telemetry(registry=object())",
        "telemetry for Prometheus",
        "prometheus",
        "prometheus_client",
    ),
    (
        "from holdfast.telemetry import Telemetry; Telemetry(meter_provider=object())",
        "telemetry for OpenTelemetry",
        "opentelemetry",
        "opentelemetry",
    ),
    (
        "from holdfast.telemetry import Telemetry; Telemetry(tracer_provider=object())",
        "telemetry for OpenTelemetry",
        "opentelemetry",
        "opentelemetry",
    ),
]
# Extras without such a message: tables are plain without rich, the kit for Starlette imports nothing of it,
# `holdfast top` and `holdfast demo` are commands (tests/cli/test_serve.py and test_demo.py), and libpq has a test of
# its own below.
WITHOUT = {"binary", "cli", "demo", "mcp", "starlette", "top"}


def _last_line(code: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 - ours
    assert ended.returncode == 1, ended.stderr
    return ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(("code", "what", "extra", "library"), USES, ids=[f"{use[2]}-{use[1]}" for use in USES])
def test_a_missing_library_is_named_with_its_extra(code: str, what: str, extra: str, library: str) -> None:
    line = _last_line(f"import sys; sys.modules[{library!r}] = None; {code}")
    assert line == f"ImportError: {missing(what, extra, library)}"
    assert f"pip install '{DISTRIBUTION}[{extra}]' (in a clone: pip install '.[{extra}]')" in line


def test_every_extra_has_such_a_message() -> None:
    assert {extra for _, _, extra, _ in USES} | WITHOUT == set(EXTRAS)


def test_without_libpq_the_extra_binary_is_named() -> None:
    without = "import sys, ctypes.util; ctypes.util.find_library = lambda name: None"
    line = _last_line(
        f"{without}; sys.modules |= dict.fromkeys(['psycopg_c', 'psycopg_binary']); from holdfast import Job"
    )
    assert line == "ImportError: " + missing("holdfast", "binary", "libpq (PostgreSQL's client library)")


@pytest.mark.parametrize(
    ("libraries", "written"),
    [
        (["jwt"], "jwt, which is"),
        (["jwt", "starlette"], "jwt and starlette, which are"),
        (["jwt", "starlette", "uvicorn"], "jwt, starlette and uvicorn, which are"),
    ],
    ids=len,
)
def test_several_libraries_are_named(libraries: list[str], written: str) -> None:
    message = missing("this command", "ops", *libraries)
    assert message.startswith(f"this command needs {written} not installed: pip install ")


def test_a_module_of_ours_that_is_missing_is_no_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"holdfast\.nothing"), needed("this", "ops"):
        __import__("holdfast.nothing")


def _texts() -> list[Path]:
    found = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.suffix in READ or place == ".ci"]
    return [*ROOT.glob("*.md"), *ROOT.glob("Makefile"), *(path for path in found if path.is_file())]


def test_every_install_command_names_our_distribution() -> None:
    """On the package index the name `holdfast` belongs to another project."""
    seen, wrong = 0, []
    for path in _texts():
        text = path.read_text(errors="replace")
        named = [match for line in INSTALLS.findall(text) for match in OURS.findall(line)] + BRACKETS.findall(text)
        for name, extras in named:
            seen += 1
            if name != DISTRIBUTION or not set(filter(None, extras.split(","))) <= set(EXTRAS):
                wrong.append(f"{path.relative_to(ROOT)}: {name}[{extras}]")
    assert wrong == []
    assert seen > 10


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("pip install holdfast", [("holdfast", "")]),
        ("pip install -U 'holdfast[nats,ops]>=1' httpx", [("holdfast", "nats,ops")]),
        ("uv add holdfast-pg", [("holdfast-pg", "")]),
        ("pip install -e ./holdfast", []),
        ("pip install holdfast-0.1-py3-none-any.whl", []),
    ],
)
def test_these_are_found(command: str, named: list[tuple[str, str]]) -> None:
    assert [match for line in INSTALLS.findall(command) for match in OURS.findall(line)] == named


def test_the_distribution_has_this_name_and_the_package_keeps_its_own() -> None:
    assert PROJECT["name"] == DISTRIBUTION == "holdfast-pg"
    assert set(PROJECT["scripts"]) == {"holdfast"}
    assert version() == PROJECT["version"]


def test_the_version_is_unknown_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._distribution.DISTRIBUTION", "holdfast-nothing")
    assert version() == "unknown"


def test_every_dependency_has_a_floor_that_development_is_above() -> None:
    pins = lock.pins()
    for name, floor in lowest.floors().items():
        assert lowest.parts(pins[name]) >= lowest.parts(floor), name
