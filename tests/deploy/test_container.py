"""The container file: its steps build an environment that runs as its user, and its health check is right."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import _cli as cli
from holdfast._distribution import version
from tests.deploy.containerfile import FILE, FOLDERS, ROOT, stages
from tests.deploy.program import Program, run
from tools.ports import free_port

if TYPE_CHECKING:
    from tests.deploy.image import Image


@pytest.mark.nightly
def test_the_last_stage_is_small_and_is_not_root() -> None:
    dashboard, python, build, last = stages(FILE.read_text())
    assert (dashboard.name, python.name, build.name, last.name) == ("dashboard", "python", "build", "")
    # The virtualenv works only with the very Python that made it.
    assert build.base == last.base == "python"
    assert "slim" in python.base
    assert not python.steps
    assert not last.all("RUN")
    assert [step.words for step in last.all("COPY")] == [["--from=build", "/opt/holdfast", "/opt/holdfast"]]
    uid, gid = map(int, last.last("USER").text.split(":"))
    assert uid > 0
    assert gid > 0
    assert last.last("STOPSIGNAL").text == "SIGTERM"
    # In the list form there is no shell between the engine's signals and the worker.
    assert last.last("ENTRYPOINT").text.startswith("[")
    assert last.last("CMD").text.startswith("[")
    cli._parser().parse_args(last.last("CMD").words)


@pytest.mark.nightly
def test_no_step_leaves_the_folders_of_the_image() -> None:
    for stage in stages(FILE.read_text()):
        for step in (*stage.all("RUN"), *stage.all("WORKDIR")):
            named = re.findall(r"(?<![\w.$*/])/[\w/-]+", step.text)
            assert all(path.startswith(FOLDERS) for path in named), step.text


def test_everything_that_is_copied_is_in_the_build_context() -> None:
    kept = FILE.with_name("Containerfile.dockerignore").read_text().splitlines()
    for stage in stages(FILE.read_text()):
        for step in stage.all("COPY"):
            *sources, _ = step.words
            for source in sources if not sources[0].startswith("--from=") else ():
                assert (ROOT / source).exists(), source
                assert {f"!{source}", f"!{Path(source).parts[0]}"} & set(kept), source


@pytest.mark.nightly
def test_the_dashboard_is_built_as_make_builds_it() -> None:
    scripts = json.loads((ROOT / "dashboard" / "package.json").read_text())["scripts"]
    first = stages(FILE.read_text())[0]
    assert [step.text for step in first.all("RUN")] == ["npm ci --no-audit --no-fund", "npm run build"]
    assert "build" in scripts
    assert "run --silent build" in (ROOT / "Makefile").read_text()


@pytest.mark.nightly
def test_every_user_may_read_the_image_and_only_root_may_write_to_it(image: Image) -> None:
    for path in (image.root / "opt").rglob("*"):
        mode = path.lstat().st_mode
        assert mode & 0o004, path
        assert path.is_symlink() or not mode & 0o022, path


@pytest.mark.nightly
def test_the_image_has_the_command_and_nothing_of_the_build(image: Image) -> None:
    output = run(image.command("--version"), cwd=image.root / "app", env=image.environment())
    assert output.stdout == f"holdfast {version()}\n", output
    code = "from importlib.metadata import distributions; print(*sorted({d.name.lower() for d in distributions()}))"
    listed = run(image.program("python", "-c", code), cwd=image.root / "app", env=image.environment())
    assert {"holdfast-pg", "psycopg-binary", "uvicorn", "prometheus_client"} <= set(listed.stdout.split())
    assert not {"hatchling", "pip", "pytest", "wheel"} & set(listed.stdout.split())


@pytest.mark.nightly
@pytest.mark.skipif(not (ROOT / "src/holdfast/_ops/pages/index.html").exists(), reason="`make dashboard` did not run")
def test_the_dashboard_is_in_the_image(image: Image) -> None:
    assert len([*image.root.glob("opt/holdfast/lib/*/site-packages/holdfast/_ops/pages/index.html")]) == 1


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_it_runs_as_its_user(image: Image) -> None:
    code = "import os; print(os.getuid(), os.getgid(), os.getgroups())"
    output = run(image.program("python", "-c", code), cwd=image.root / "app", env=image.environment())
    assert output.stdout == f"{image.user.replace(':', ' ')} []\n", output


@pytest.mark.nightly
def test_the_health_check_tells_a_live_worker_from_a_stopped_one(image: Image, database: str) -> None:
    port = free_port()
    env = image.environment(
        HOLDFAST_DATABASE_URL=database,
        HEALTH_URL=image.environment()["HEALTH_URL"].replace("9464", str(port)),
        PYTHONPATH=str(ROOT / "deploy"),
    )
    check, app = image.healthcheck(), image.root / "app"
    assert run(check, cwd=app, env=env).returncode == 1
    command = image.command("worker", "shop:app", "--http", f"127.0.0.1:{port}")
    with Program(command, cwd=app, env=env) as worker:
        worker.wait_for_line("worker started")
        assert run(check, cwd=app, env=env).returncode == 0
        status, _ = worker.stop()
        assert status == 0
        assert run(check, cwd=app, env=env).returncode == 1
