"""The compose file names what exists, and everything in it but Grafana is started as processes: a job is done."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.containerfile import ROOT
from tests.deploy.program import run
from tests.deploy.settings import load, longest_stop, parse
from tests.kit.shown import SHOWN
from tools.compose import FILE, Up, commands, free_ports, services, volumes
from tools.prometheus import promtool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.deploy.image import Image
    from tools.postgres import Server


def ours() -> dict[str, dict[str, Any]]:
    """Return the services that run our image."""
    return {name: service for name, service in services().items() if service["image"] == "holdfast"}


def test_our_services_run_commands_and_settings_that_exist() -> None:
    assert ours().keys() == {"migrate", "worker", "dashboard"}
    for service in ours().values():
        parse(service["command"])
        load(service["environment"])
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.nightly
def test_a_worker_is_stopped_no_sooner_than_it_needs() -> None:
    worker = services()["worker"]
    grace = timedelta(seconds=int(worker["stop_grace_period"].removesuffix("s")))
    assert grace > longest_stop(load(worker["environment"]))


@pytest.mark.nightly
def test_workers_start_after_the_migration_and_the_migration_after_the_server() -> None:
    after: dict[str, Any] = {name: service.get("depends_on", {}) for name, service in services().items()}
    assert after["migrate"] == {"postgres": {"condition": "service_healthy"}}
    for name in ("worker", "dashboard"):
        assert after[name] == {"migrate": {"condition": "service_completed_successfully"}}


@pytest.mark.nightly
def test_every_file_that_is_mounted_exists() -> None:
    mounted = [source for name in services() for source, _ in volumes(name)]
    assert len(mounted) == 6
    assert [source for source in mounted if not source.is_file()] == []


@pytest.mark.nightly
def test_only_this_machine_reaches_the_ports() -> None:
    ports = [port for service in services().values() for port in service.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.nightly
def test_the_servers_health_check_tells_whether_it_accepts_connections(server: Server, tmp_path: Path) -> None:
    _, *check = services()["postgres"]["healthcheck"]["test"]
    env = {"PATH": "/usr/lib/postgresql/15/bin:/usr/bin:/bin"}
    assert run([*check, f"--port={server.port}"], cwd=tmp_path, env=env).returncode == 0
    assert run([*check, "--port=1"], cwd=tmp_path, env=env).returncode == 2


@pytest.mark.nightly
def test_prometheus_scrapes_our_services_with_our_rules(tmp_path: Path) -> None:
    text = (FILE.parent / "monitoring" / "prometheus" / "prometheus.yaml").read_text()
    rules = next(source for source, target in volumes("prometheus") if "rules" in target)
    here = tmp_path / "prometheus.yml"
    here.write_text(text.replace("/etc/prometheus/holdfast.rules.yml", str(rules)))
    assert "SUCCESS" in promtool("check", "config", here)
    workers, fleet = yaml.safe_load(text)["scrape_configs"]
    (found,) = workers["dns_sd_configs"]
    assert found["names"] == ["worker"]
    assert parse(services()["worker"]["command"]).http.port == found["port"]
    assert fleet["static_configs"] == [{"targets": [f"dashboard:{parse(services()['dashboard']['command']).port}"]}]


@pytest.mark.nightly
def test_grafana_finds_prometheus_and_the_board() -> None:
    folder = FILE.parent / "monitoring" / "grafana"
    (source,) = yaml.safe_load((folder / "datasource.yaml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = yaml.safe_load((folder / "boards.yaml").read_text())["providers"]
    places = {target.removesuffix(":ro"): source for source, target in volumes("grafana")}
    board = places[f"{provider['options']['path']}/holdfast.json"]
    assert json.loads(board.read_text())["title"] == "Holdfast"


@pytest.mark.nightly
def test_three_commands_lead_to_a_dashboard_with_a_job_done(
    image: Image, server_version: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    first, second, third = commands()
    assert first == "up --detach"
    began = time.monotonic()
    with Up(image, tmp_path, free_ports(), version=server_version) as up:
        assert up.order == ["postgres", "prometheus", "grafana", "migrate", "worker", "dashboard"]
        assert healthy(image, up, "worker")
        assert healthy(image, up, "dashboard")

        output = up.exec(*second.removeprefix("exec ").split())
        assert output.stdout == "receipt for order 7 sent, attempt 1\n", output
        output = up.exec(*third.removeprefix("exec ").split())
        token = output.stdout.splitlines()[0]
        page = ask(f"{up.dashboard}/")
        assert b"<title>" in page
        listed = json.loads(ask(f"{up.dashboard}/api/v1/jobs?status=completed", token))
        took = time.monotonic() - began
        assert [job["kind"] for job in listed["items"]] == ["receipt.send"], listed
        record_property(SHOWN, f"compose as processes: three commands and {took:.1f} seconds to a job done")
        assert took < 60

        assert up.prometheus.wait_for("holdfast_fleet_workers == 1")
        assert up.prometheus.wait_for("holdfast_worker_up == 1")
        check_scaling(ask(f"{up.dashboard}/metrics").decode())

        status, seconds = up.services["worker"].stop()
        assert status == 0
        assert seconds < 45
        assert not healthy(image, up, "worker")


def healthy(image: Image, up: Up, service: str) -> bool:
    env = up.environment(service)
    # The address of a worker is that of the image.
    env["HEALTH_URL"] = env["HEALTH_URL"].replace(":9464/", f":{up.ports['9464']}/")
    return run(image.healthcheck(), cwd=up.app, env=env).returncode == 0


def ask(url: str, token: str = "") -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own
        return bytes(answer.read())


def check_scaling(metrics: str) -> None:
    """The metric that the autoscaler reads exists, once."""
    scaled = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "scaling.yaml").read_text())
    (trigger,) = scaled["spec"]["triggers"]
    wanted = re.fullmatch(r'(\w+)\{queue="(\w+)"\}', trigger["metadata"]["valueLocation"])
    assert wanted is not None
    assert wanted[1] == "holdfast_queue_oldest_pending_age_seconds"
    samples = [
        sample
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == wanted[1] and sample.labels == {"queue": wanted[2]}
    ]
    assert len(samples) == 1
    assert samples[0].value >= 0
