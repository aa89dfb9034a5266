"""Kubernetes manifests: read, and checked against the schemas of Kubernetes and against our settings and commands."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import kubernetes_validate
import yaml

from tests.deploy.settings import load, longest_stop, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Manifest: TypeAlias = dict[str, Any]

# The oldest that the chart claims, and the newest that there are schemas for.
VERSIONS = ("1.27", kubernetes_validate.latest_version())
# Of KEDA and of the Prometheus Operator: no package has their schemas.
CUSTOM = {"ScaledObject", "ServiceMonitor", "PodMonitor"}


def read(text: str) -> list[Manifest]:
    return [found for found in yaml.safe_load_all(text) if found]


def check(manifests: Iterable[Manifest]) -> None:
    """Check everything that holds for all of our manifests."""
    for manifest in manifests:
        if manifest["kind"] not in CUSTOM:
            for version in VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)
        for pod in pods(manifest):
            _check_pod(pod)
        _check_selector(manifest)


def check_fallback(manifest: Manifest, text: str) -> None:
    """Check that `text` names the version of KEDA that the scaler needs: older ones refuse a fallback for a value."""
    spec = manifest["spec"]
    if "fallback" in spec and any(trigger.get("metricType") == "Value" for trigger in spec["triggers"]):
        assert set(re.findall(r"KEDA ([\d.]+) or newer", text)) == {"2.18"}


def by_name(manifests: Iterable[Manifest]) -> dict[tuple[str, str], Manifest]:
    """Return manifests by kind and component."""
    return {
        (manifest["kind"], manifest["metadata"]["labels"]["app.kubernetes.io/component"]): manifest
        for manifest in manifests
    }


def pods(manifest: Manifest) -> Iterator[Manifest]:
    template = manifest.get("spec", {}).get("template")
    if template is not None:
        yield template


def check_network(found: dict[tuple[str, str], Manifest]) -> None:
    """Check that pods are reached at the ports that they serve, and nowhere else."""
    components = {component for kind, component in found if kind in {"Deployment", "Job"}}
    assert components == {component for kind, component in found if kind == "NetworkPolicy"}
    for component in components:
        policy = found["NetworkPolicy", component]["spec"]
        assert "Ingress" in policy["policyTypes"]
        assert ("egress" in policy) == ("Egress" in policy["policyTypes"])
        open_ = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        workload = found.get(("Deployment", component)) or found["Job", component]
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert open_ == {port["name"] for port in container.get("ports", ())}


def _check_pod(pod: Manifest) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert "cpu" not in container["resources"]["limits"], "a throttled worker renews its leases too late"
        _check_command(spec, container)


def _check_command(spec: Manifest, container: Manifest) -> None:
    command = parse(container["args"])
    plain = {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
    settings = load(plain)
    given = {variable["name"] for variable in container["env"]}
    assert len(given & {"HOLDFAST_DATABASE_URL", "HOLDFAST_DATABASES_FILE"}) == 1
    if "HOLDFAST_DATABASES_FILE" in plain:
        _check_databases_file(spec, container, plain["HOLDFAST_DATABASES_FILE"])
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    if command.command == "worker":
        assert ports == {"http": command.http.port}
        assert timedelta(seconds=spec["terminationGracePeriodSeconds"]) > longest_stop(settings)
        assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    if command.command == "serve":
        assert ports == {"http": command.port}
        mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert any(command.secret_file.startswith(f"{path}/") for path in mounted)
    if command.command in {"worker", "serve"}:
        assert container["livenessProbe"]["httpGet"] == {"path": "/live", "port": "http"}


def _check_databases_file(spec: Manifest, container: Manifest, path: str) -> None:
    """The file has passwords, and changes while the pod runs."""
    folder, _, name = path.rpartition("/")
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == folder]
    assert mount["readOnly"] is True
    assert "subPath" not in mount, "the file would not follow changes of the secret"
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == mount["name"]]
    assert [item["path"] for item in volume["secret"]["items"]] == [name]


def _check_selector(manifest: Manifest) -> None:
    """A selector finds the pods of its own component."""
    labels, spec = manifest["metadata"]["labels"], manifest["spec"]
    if manifest["kind"] in {"Deployment", "PodDisruptionBudget"}:
        assert spec["selector"]["matchLabels"] == labels
    if manifest["kind"] == "NetworkPolicy":
        assert spec["podSelector"]["matchLabels"] == labels
    if manifest["kind"] == "Service":
        assert spec["selector"] == labels
    for pod in pods(manifest):
        assert pod["metadata"]["labels"] == labels
