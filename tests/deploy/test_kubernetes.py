"""The plain manifests of Kubernetes."""

from __future__ import annotations

import pytest

from tests.deploy.containerfile import ROOT
from tests.deploy.manifests import by_name, check, check_fallback, check_network, read
from tests.deploy.settings import parse

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", FILES)
def test_the_manifest_fits_kubernetes_and_our_commands(name: str) -> None:
    manifests = read((FOLDER / name).read_text())
    assert manifests
    check(manifests)


def test_there_is_a_budget_for_disruptions_a_migration_a_scaler_and_a_network() -> None:
    found = by_name([manifest for name in FILES for manifest in read((FOLDER / name).read_text())])
    assert found.keys() == {
        ("Deployment", "worker"),
        ("PodDisruptionBudget", "worker"),
        ("ScaledObject", "worker"),
        ("Job", "migrate"),
        ("Deployment", "dashboard"),
        ("Service", "dashboard"),
        ("NetworkPolicy", "worker"),
        ("NetworkPolicy", "migrate"),
        ("NetworkPolicy", "dashboard"),
    }
    check_network(found)
    worker, scaled = found["Deployment", "worker"], found["ScaledObject", "worker"]
    assert found["PodDisruptionBudget", "worker"]["spec"]["maxUnavailable"] < worker["spec"]["replicas"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]
    (port,) = found["Service", "dashboard"]["spec"]["ports"]
    (trigger,) = scaled["spec"]["triggers"]
    assert (
        trigger["metadata"]["url"]
        == f"http://{found['Service', 'dashboard']['metadata']['name']}:{port['port']}/metrics"
    )
    check_fallback(scaled, (FOLDER / "scaling.yaml").read_text())
    # The worker waits until the Job has migrated.
    (waiting,) = worker["spec"]["template"]["spec"]["initContainers"]
    given = parse(waiting["args"])
    assert (given.check, given.skip_unreachable) == (True, True), "one of several databases must not stop new pods"
