"""The Helm chart, linted and rendered by Helm itself, with several sets of values."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from holdfast._ops.application import pages
from tests.deploy.containerfile import ROOT
from tests.deploy.manifests import VERSIONS, Manifest, by_name, check, check_fallback, check_network, pods, read
from tests.deploy.settings import parse

if TYPE_CHECKING:
    from collections.abc import Callable

CHART = ROOT / "deploy" / "chart"
PAGE = ROOT / "docs" / "how-to" / "deploy.md"
HELM = shutil.which("helm", path=str(Path(sys.executable).parent))
GIVEN = {"image": "registry.example/shop:1", "app": "shop.jobs:app"}

pytestmark = pytest.mark.skipif(HELM is None, reason="there is no Helm for this machine on the package index")


def _json(value: str) -> str:
    return value if value in {"true", "false"} or value.replace(".", "").isdigit() else json.dumps(value)


@pytest.fixture
def helm(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def helm(*words: str, **values: str) -> subprocess.CompletedProcess[str]:
        given = [f"--set-json={name.replace('__', '.')}={_json(value)}" for name, value in values.items()]
        return subprocess.run(  # noqa: S603 - Helm, on our own chart
            [str(HELM), *words, *given], env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
        )

    return helm


@pytest.fixture
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., list[Manifest]]:
    def render(**values: str) -> list[Manifest]:
        done = helm("template", "shop", str(CHART), **GIVEN, **values)
        assert done.returncode == 0, done.stderr
        return read(done.stdout)

    return render


def test_helm_has_nothing_to_say(helm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = helm("lint", "--strict", "--quiet", str(CHART), **GIVEN)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"scaling__enabled": "true", "scaling__queue": "pdf"},
        {"dashboard__enabled": "false"},
        {"shutdownTimeout": "0"},
        {"databasesSecret": "shop-databases", "migration__skipUnreachable": "true", "rehearsal__enabled": "true"},
        {"shutdownTimeout": "60", "worker__queues": "default=10,pdf=2", "worker__replicas": "5"},
        {"ingress__enabled": "true", "ingress__host": "jobs.example.com", "ingress__tlsSecret": "jobs-tls"},
        {"serviceMonitor__enabled": "true", "dashboard__enabled": "false"},
    ],
    ids=["default", "scaled", "no dashboard", "hasty", "several databases", "slow", "ingress", "monitored"],
)
def test_what_is_rendered_fits_kubernetes_and_our_commands(
    render: Callable[..., list[Manifest]], values: dict[str, str]
) -> None:
    check(render(**values))


def test_it_is_the_same_as_the_plain_manifests(render: Callable[..., list[Manifest]]) -> None:
    plain = [manifest for path in (ROOT / "deploy" / "kubernetes").iterdir() for manifest in read(path.read_text())]
    rendered = by_name(render(scaling__enabled="true"))
    assert rendered.keys() == by_name(plain).keys()
    budget, same_budget = by_name(plain)["PodDisruptionBudget", "worker"], rendered["PodDisruptionBudget", "worker"]
    assert budget["spec"]["maxUnavailable"] == same_budget["spec"]["maxUnavailable"] == 1
    for one in (budget, same_budget):
        assert one["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "or an outage blocks the drain of nodes"
    for name, manifest in by_name(plain).items():
        if name[0] not in {"Deployment", "Job"}:
            continue
        pod, other = manifest["spec"]["template"]["spec"], rendered[name]["spec"]["template"]["spec"]
        assert pod["securityContext"] == other["securityContext"]
        assert pod.get("terminationGracePeriodSeconds") == other.get("terminationGracePeriodSeconds")
        (container,), (same,) = pod["containers"], other["containers"]
        probes = ("startupProbe", "readinessProbe", "livenessProbe", "resources", "ports", "volumeMounts")
        assert {part: container.get(part) for part in probes} == {part: same.get(part) for part in probes}
        assert given(container["args"]) == given(same["args"])


def test_the_network_is_closed_but_for_the_ports_that_are_served(render: Callable[..., list[Manifest]]) -> None:
    plain = [manifest for path in (ROOT / "deploy" / "kubernetes").iterdir() for manifest in read(path.read_text())]
    found = by_name(render())
    check_network(found)
    check_network(by_name(render(dashboard__enabled="false")))
    for (kind, component), manifest in by_name(plain).items():
        if kind == "NetworkPolicy":
            same = found[kind, component]["spec"]
            assert {part: manifest["spec"][part] for part in ("policyTypes", "ingress")} == {
                part: same[part] for part in ("policyTypes", "ingress")
            }
    assert not [kind for kind, _ in by_name(render(networkPolicy__enabled="false")) if kind == "NetworkPolicy"]


def test_the_network_is_narrowed(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    database = {"to": [{"ipBlock": {"cidr": "10.0.0.5/32"}}], "ports": [{"port": 5432}]}
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    words = [
        f"--set-json=networkPolicy.egress={json.dumps([database])}",
        f"--set-json=networkPolicy.workerFrom={json.dumps([monitoring])}",
    ]
    done = helm("template", "shop", str(CHART), *words, **GIVEN)
    assert done.returncode == 0, done.stderr
    manifests = read(done.stdout)
    check(manifests)
    found = by_name(manifests)
    for component in ("migrate", "worker", "dashboard"):
        spec = found["NetworkPolicy", component]["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec["egress"] == [database]
    assert found["NetworkPolicy", "worker"]["spec"]["ingress"] == [{"ports": [{"port": "http"}], "from": [monitoring]}]
    assert found["NetworkPolicy", "dashboard"]["spec"]["ingress"] == [{"ports": [{"port": "http"}]}]


def test_the_oldest_kubernetes_that_it_claims_is_the_one_that_is_checked() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"


def given(words: list[str]) -> dict[str, object]:
    """Return what a command was given, however it was written."""
    return {name: value for name, value in vars(parse(words)).items() if name not in {"called", "run", "tree"}}


def test_the_migration_comes_before_everything_else(render: Callable[..., list[Manifest]]) -> None:
    job = by_name(render())["Job", "migrate"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert parse(job["spec"]["template"]["spec"]["containers"][0]["args"]).command == "migrate"


def test_every_pod_reads_the_file_of_several_databases(render: Callable[..., list[Manifest]]) -> None:
    found = [manifest for manifest in render(databasesSecret="shop-databases") if [*pods(manifest)]]
    assert len(found) == 3
    for manifest in found:
        spec = manifest["spec"]["template"]["spec"]
        secrets = [volume["secret"]["secretName"] for volume in spec["volumes"]]
        assert secrets.count("shop-databases") == 1
        names = {variable["name"] for variable in spec["containers"][0]["env"]}
        assert "HOLDFAST_DATABASES_FILE" in names
        assert "HOLDFAST_DATABASE_URL" not in names


def test_a_release_may_go_on_without_a_database_that_is_away(render: Callable[..., list[Manifest]]) -> None:
    for skips in (False, True):
        job = by_name(render(migration__skipUnreachable=str(skips).lower()))["Job", "migrate"]
        given = parse(job["spec"]["template"]["spec"]["containers"][0]["args"])
        assert (given.check, given.skip_unreachable) == (False, skips)


def test_every_pod_is_placed_pulled_and_named_as_asked(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    asked: dict[str, Any] = {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "jobs"},
        "tolerations": [{"key": "jobs", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["jobs"]}]}]}}},
    }  # fmt: skip
    given = asked | {"serviceAccount": {"name": "shop"}, "podAnnotations": {"example.com/team": "shop"}}
    words = [f"--set-json={name}={json.dumps(value)}" for name, value in given.items()]
    done = helm("template", "shop", str(CHART), *words, rehearsal__enabled="true", **GIVEN)
    assert done.returncode == 0, done.stderr
    manifests = read(done.stdout)
    check(manifests)
    found = [pod for manifest in manifests for pod in pods(manifest)]
    assert len(found) == 4
    for pod in found:
        assert {name: pod["spec"][name] for name in asked} == asked
        assert pod["spec"]["serviceAccountName"] == "shop"
        assert pod["metadata"]["annotations"]["example.com/team"] == "shop"


def test_an_ingress_leads_to_every_page_and_not_to_what_needs_no_token(render: Callable[..., list[Manifest]]) -> None:
    ingress = by_name(render(ingress__enabled="true", ingress__host="jobs.example.com"))["Ingress", "dashboard"]
    (rule,) = ingress["spec"]["rules"]
    open_ = {path["path"]: path["pathType"] for path in rule["http"]["paths"]}

    def leads(address: str) -> bool:
        return any(
            address == path or (kind == "Prefix" and address.startswith(f"{path}/")) for path, kind in open_.items()
        )

    served = [address for address in pages() if address != "/index.html"]
    assert served
    assert [address for address in served if not leads(address)] == []
    assert leads("/api/v1/overview")
    assert not any(leads(address) for address in ("/metrics", "/ready", "/live", "/outbox/stats", "/outbox/run-once"))


def test_monitors_select_what_serves_metrics(render: Callable[..., list[Manifest]]) -> None:
    found = by_name(render(serviceMonitor__enabled="true", serviceMonitor__labels__release="prometheus"))
    service, monitor = found["Service", "dashboard"], found["ServiceMonitor", "dashboard"]
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    pod, monitor = found["Deployment", "worker"]["spec"]["template"], found["PodMonitor", "worker"]
    assert monitor["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] in {port["name"] for port in container["ports"]}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert not {kind for kind, _ in by_name(render())} & {"Ingress", "ServiceMonitor", "PodMonitor"}


def test_the_scaler_reads_the_dashboard_of_its_release(render: Callable[..., list[Manifest]]) -> None:
    found = by_name(render(scaling__enabled="true", scaling__queue="pdf", scaling__oldest="12.5"))
    (trigger,) = found["ScaledObject", "worker"]["spec"]["triggers"]
    assert trigger["metadata"] == {
        "url": "http://shop-dashboard.default:8080/metrics",
        "format": "prometheus",
        "valueLocation": 'holdfast_queue_oldest_pending_age_seconds{queue="pdf"}',
        "targetValue": "12.5",
    }
    assert "replicas" not in found["Deployment", "worker"]["spec"], "two would decide about the same number"


def test_the_scaler_looks_at_each_of_several_databases(
    helm: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    databases = "scaling.databases={eu,us}"
    done = helm("template", "shop", str(CHART), f"--set={databases}", scaling__enabled="true", **GIVEN)
    assert done.returncode == 0, done.stderr
    triggers = by_name(read(done.stdout))["ScaledObject", "worker"]["spec"]["triggers"]
    metric = 'holdfast_queue_oldest_pending_age_seconds{{queue="default",database="{}"}}'
    assert [one["metadata"]["valueLocation"] for one in triggers] == [metric.format(name) for name in ("eu", "us")]
    assert databases in PAGE.read_text()


def test_the_fallback_of_the_scaler_needs_the_keda_that_is_claimed(render: Callable[..., list[Manifest]]) -> None:
    scaled = by_name(render(scaling__enabled="true"))["ScaledObject", "worker"]
    check_fallback(scaled, (CHART / "values.yaml").read_text())
    check_fallback(scaled, PAGE.read_text())


@pytest.mark.parametrize(
    ("values", "output"),
    [
        ({}, "image: String length must be greater than or equal to 1"),
        ({**GIVEN, "app": "shop/jobs.py"}, "app: Does not match pattern"),
        ({**GIVEN, "worker__replica": "3"}, "Additional property replica is not allowed"),
        (
            {**GIVEN, "scaling__enabled": "true", "dashboard__enabled": "false"},
            "scaling.enabled needs dashboard.enabled",
        ),
        ({**GIVEN, "ingress__enabled": "true"}, "ingress.host: the name of the dashboard"),
        (
            {**GIVEN, "ingress__enabled": "true", "dashboard__enabled": "false"},
            "ingress.enabled needs dashboard.enabled",
        ),
    ],
    ids=["no image", "no application", "misspelled", "no metric", "no host", "nothing to lead to"],
)
def test_values_that_are_wrong_are_refused(
    helm: Callable[..., subprocess.CompletedProcess[str]], values: dict[str, str], output: str
) -> None:
    done = helm("template", "shop", str(CHART), **values)
    assert done.returncode == 1
    assert output in done.stderr
