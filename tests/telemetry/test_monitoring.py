"""The alert rules and the dashboard that are shipped as examples."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from holdfast._telemetry.metrics import FLEET, PROCESS
from tools.prometheus import promtool

if TYPE_CHECKING:
    from collections.abc import Iterator

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = MONITORING / "prometheus" / "holdfast.rules.yml"
DASHBOARD = MONITORING / "grafana" / "holdfast.json"
PAGES = MONITORING.parents[1] / "dashboard" / "src" / "app.tsx"
OF_DATABASE = "{{ with $labels.database }}@{{ . }}/{{ end }}"


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target


def test_the_rules_are_valid() -> None:
    assert "18 rules found" in promtool("check", "rules", RULES)


def test_the_rules_fire_when_they_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", RULES.with_name("holdfast.rules.test.yml"))


def test_every_alert_is_tested() -> None:
    """Once where all is well, and once where it is not."""
    alerts = [line.split()[-1] for line in RULES.read_text().splitlines() if "- alert:" in line]
    tests = RULES.with_name("holdfast.rules.test.yml").read_text()
    assert len(alerts) == 18
    assert [alert for alert in alerts if tests.count(alert) < 2] == []


def test_every_alert_leads_to_a_page_of_the_dashboard() -> None:
    pages = set(re.findall(r'^    case "([a-z-]*)":$', PAGES.read_text(), re.MULTILINE))
    assert {"", "jobs", "relays"} <= pages
    for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
        address, _, path = rule["annotations"]["dashboard"].partition("#/")
        assert address == "http://127.0.0.1:8080/"
        assert re.split("[/?]", path.removeprefix(OF_DATABASE))[0] in pages, rule["alert"]


def test_only_series_of_a_database_are_grouped_by_it_and_the_page_names_the_other_alerts() -> None:
    by_database = {one.prometheus for one in FLEET} | {one.prometheus for one in PROCESS if "database" in one.labels}
    unnamed = set()
    for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
        series = set(re.findall(r"holdfast_\w+", rule["expr"]))
        if not series <= by_database:
            assert "database" not in rule["expr"] + rule["annotations"]["dashboard"], rule["alert"]
            unnamed.add(rule["alert"])
    paragraphs = (RULES.parents[3] / "docs" / "how-to" / "metrics.md").read_text().split("\n\n")
    [reported] = [paragraph for paragraph in paragraphs if paragraph.startswith("A worker's metrics cover all")]
    assert set(re.findall(r"`(Holdfast\w+)`", reported)) == unnamed


def test_every_expression_of_the_dashboard_is_one(tmp_path: Path) -> None:
    expressions = [target["expr"].replace("$__rate_interval", "5m") for _, target in targets()]
    assert len(expressions) > 30
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    written = tmp_path / "rules.yml"
    written.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", written)


def test_the_dashboard_asks_the_source_that_a_person_chooses() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(target["datasource"] == source for _, target in targets())
    assert {panel["datasource"]["uid"] for panel in dashboard()["panels"] if panel["type"] != "row"} == {
        "${datasource}"
    }
    names = [variable["name"] for variable in dashboard()["templating"]["list"]]
    used = {word for _, target in targets() for word in ("queue", "database") if f"${word}" in target["expr"]}
    assert used <= set(names)


def test_the_chosen_databases_narrow_the_series_that_have_the_label_and_empty_no_panel_of_the_others() -> None:
    """Series of a single database, which have no such label, match the choice of all."""
    labelled = {one.prometheus for one in FLEET} | {one.prometheus for one in PROCESS if "database" in one.labels}
    for title, target in targets():
        for series, labels in re.findall(r"(holdfast_\w+)(\{[^}]*\})?", target["expr"]):
            assert ('database=~"$database"' in labels) == (series in labelled), (title, series)
        if "by (database" in target["expr"]:
            assert 'database=~"$database"' in target["expr"], title
    [variable] = [one for one in dashboard()["templating"]["list"] if one["name"] == "database"]
    assert (variable["allValue"], variable["multi"]) == (".*", True)


def test_no_panel_lies_on_another() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    tops = [panel["gridPos"]["y"] for panel in panels]
    assert all(before <= after for before, after in pairwise(tops))
