from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._distribution import missing
from tests.cli.serving import Serving, token
from tests.kit.commands import PATIENCE, environment, holdfast
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer
from tests.kit.workers import enqueue, job, statuses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg

    Connect = Callable[..., psycopg.Connection[Any]]


def test_it_says_where_it_is_and_how_to_come_in(database: str, tmp_path: Path) -> None:
    with Serving(database=database, cwd=tmp_path) as serving:
        assert serving.url.startswith("http://127.0.0.1:")
        serving.wait_for_line("Nobody has an access token yet. Make one: holdfast tokens make NAME --role developer")
        viewer, developer = token(database, "viewer"), token(database, "developer")
        with serving.client() as unknown:
            assert unknown.get("/live").status_code == 200
            refused = unknown.get("/api/v1/me")
            assert refused.status_code == 401
            assert "server" not in refused.headers
        with serving.client(viewer) as looking:
            assert looking.get("/api/v1/me").json()["role"] == "viewer"
            assert looking.post("/outbox/run-once").status_code == 403
        with serving.client(developer) as developing:
            stats = developing.get("/outbox/stats")
            assert (stats.status_code, stats.json()["queue"]["total"]) == (200, 0)
            assert developing.post("/outbox/run-once").status_code == 409
        serving.process.send_signal(signal.SIGTERM)
        assert serving.ended() == 0
    assert not any(developer in line or viewer in line for line in serving.output)


@pytest.mark.nightly
def test_with_an_application_a_tick_can_be_run(database: str, shop: Path, connect: Connect) -> None:
    (made,) = enqueue(connect(), job("quick", '{"n": 1}'))
    developer = token(database, "developer")
    with Serving("shop:app", database=database, cwd=shop) as serving, serving.client(developer) as client:
        summary = client.post("/outbox/run-once").json()["summary"]
        assert (summary["processed"], summary["completed"]) == (1, 1)
        assert not any("access token" in line for line in serving.output)
    assert statuses(connect()) == {made: "completed"}


@pytest.mark.nightly(daily=["15"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_open_dashboards_do_not_hold_up_its_end(database: str, tmp_path: Path, number: signal.Signals) -> None:
    viewer = token(database, "viewer")
    with (
        Serving(database=database, cwd=tmp_path) as serving,
        serving.client(viewer) as client,
        client.stream("GET", "/api/v1/overview/live") as stream,
    ):
        lines = stream.iter_lines()
        assert any(line.startswith("data: ") for line in lines)
        serving.process.send_signal(number)
        assert serving.ended() == 0
        assert [line for line in lines if line.startswith("event: trouble")] == []


def test_json_web_tokens_by_a_file_of_keys(database: str, tmp_path: Path) -> None:
    issuer = Issuer()
    (tmp_path / "keys.json").write_text(json.dumps(issuer.keys))
    trusting = ["--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE, "--jwt-keys", "keys.json"]
    with Serving(*trusting, database=database, cwd=tmp_path) as serving:
        with serving.client(issuer.token()) as known:
            assert known.get("/api/v1/me").json()["name"] == "jwt:ann"
        with serving.client(issuer.tampered()) as forged:
            assert forged.get("/api/v1/me").status_code == 401


@pytest.mark.nightly
def test_fields_are_hidden_and_metrics_public_when_asked_for(database: str, tmp_path: Path, connect: Connect) -> None:
    (made,) = enqueue(connect(), job("k", '{"name": "Ada", "shoe_size": 39, "password": "hush"}'))
    viewer = token(database, "viewer")
    options = ["--redact-field", "shoe_size", "--redact-field", "other", "--public-metrics"]
    with Serving(*options, database=database, cwd=tmp_path) as serving:
        with serving.client(viewer) as client:
            story = client.get(f"/api/v1/jobs/{made}").json()
        with serving.client() as unknown:
            assert unknown.get("/metrics").status_code == 200
    assert story["payload"] == {"name": "Ada", "shoe_size": "[redacted]", "password": "[redacted]"}
    with Serving(database=database, cwd=tmp_path) as serving, serving.client() as unknown:
        assert unknown.get("/metrics").status_code == 401


@pytest.mark.nightly
def test_a_session_of_one_process_is_valid_at_another(database: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret of at least so many characters\n")
    shared = ["--secret-file", "secret"]
    with (
        Serving(*shared, database=database, cwd=tmp_path) as one,
        Serving(*shared, database=database, cwd=tmp_path) as other,
        Serving(database=database, cwd=tmp_path) as stranger,
        one.client() as browser,
    ):
        sent = {"token": token(database, "viewer")}
        assert browser.post("/api/v1/session", json=sent, headers={"Origin": one.url.rstrip("/")}).status_code == 200
        for serving, status in ((one, 200), (other, 200), (stranger, 401)):
            with serving.client() as same:
                same.cookies = browser.cookies
                assert same.get("/api/v1/me").status_code == status


@pytest.mark.nightly
def test_it_starts_while_the_database_is_away(tmp_path: Path) -> None:
    with Serving(database="postgresql://me:hush@127.0.0.1:1/db", cwd=tmp_path) as serving:
        serving.wait_for_line("cannot connect to the database")
        with serving.client() as client:
            assert client.get("/live").status_code == 200
            assert client.get("/ready").status_code == 503
    assert not any("hush" in line for line in serving.output)


def test_a_port_that_is_taken(database: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        output = holdfast("serve", "--port", str(port), database=database)
    assert output == (1, "", f"holdfast serve: cannot listen on 127.0.0.1:{port}: Address already in use\n")


@pytest.mark.parametrize(
    ("arguments", "states"),
    [
        (["--port", "65536"], "is not a port"),
        (["--connections", "0"], "from 1 to 100"),
        (["--timeout", "0"], "expected 0.1 to 60 seconds"),
        (["--jwt-issuer", "x"], "belong together: give all three"),
        (
            ["--jwt-issuer", "x", "--jwt-audience", "y", "--jwt-keys", "gone.json"],
            "cannot read gone.json: No such file",
        ),
        (["--jwt-issuer", "x", "--jwt-audience", "y", "--jwt-keys", "http://example.org/"], "from an https address"),
        (["--secret-file", "gone"], "--secret-file: cannot read gone: No such file"),
        (["--secret-file", "bytes"], "--secret-file: bytes is no text"),
        (["--secret-file", "short"], "--secret-file: short has less than 32 characters"),
        (["--database-url", "hush"], "cannot read the URL of --database-url"),
        (["nowhere"], "does not name an application"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_called_wrongly(database: str, tmp_path: Path, arguments: list[str], states: str) -> None:
    (tmp_path / "short").write_text("hush")
    (tmp_path / "bytes").write_bytes(bytes(range(128, 192)))
    output = holdfast("serve", *arguments, database=database, cwd=tmp_path)
    assert (output.status, output.out) == (2, "")
    assert states in output.err
    assert "hush" not in output.err


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        (["serve"], "starlette", "ops"),
        (["serve"], "uvicorn", "ops"),
        (["serve"], "psycopg_pool", "ops"),
        (["top"], "textual", "top"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_not_installed_is_named_in_one_line(database: str, command: list[str], module: str, extra: str) -> None:
    without = f"import sys; sys.modules[{module!r}] = None; from holdfast._cli import main; sys.exit(main({command!r}))"
    done = subprocess.run(  # noqa: S603 - the command under test
        [sys.executable, "-c", without],
        env=environment(database),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"holdfast {command[0]}: {missing('this command', extra, module)}\n"


@pytest.mark.nightly(daily=["jobs list"])
@pytest.mark.parametrize("command", ["queues", "events", "runners", "jobs list", "jobs cancel --kind k"])
def test_commands_that_need_no_extra(database: str, command: str) -> None:
    words = command.split()
    without = "import sys; sys.modules |= dict.fromkeys(['psycopg_pool', 'starlette', 'jwt', 'uvicorn'])"
    done = subprocess.run(  # noqa: S603 - the command under test
        [sys.executable, "-c", f"{without}; from holdfast._cli import main; sys.exit(main({words!r}))"],
        env=environment(database),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
