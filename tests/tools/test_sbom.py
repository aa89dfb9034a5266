from __future__ import annotations

import re

from tools.sbom import DASHBOARD, bundled, sbom


def test_it_has_every_dependency_with_its_version_and_hashes() -> None:
    document = sbom()
    components = {component["name"]: component for component in document["components"]}
    assert document["bomFormat"] == "CycloneDX"
    assert {"cronsim", "psycopg", "psycopg-binary", "pydantic", "pydantic-core"} <= set(components)
    assert {"greenlet", "cryptography"} <= set(components), "of the extras sqlalchemy and ops"
    assert not {"pytest", "ruff", "holdfast-pg"} & set(components)
    for component in components.values():
        if component["purl"].startswith("pkg:pypi/"):
            assert component["properties"]


def test_it_has_what_the_dashboard_bundles() -> None:
    components = {component["name"]: component for component in sbom()["components"]}
    text = "".join(path.read_text() for path in (DASHBOARD / "src").rglob("*.ts*"))
    imported = set(re.findall(r'from "((?:@[\w-]+/)?[\w-]+)[/"]', text))
    assert imported <= set(bundled())
    assert "preact" in imported
    for name in bundled():
        assert components[name]["purl"].startswith("pkg:npm/")
        assert components[name]["licenses"] == [{"expression": "MIT"}]
        (found,) = components[name]["hashes"]
        assert len(found["content"]) == 128


def test_it_names_what_depends_on_what() -> None:
    document = sbom()
    refs = {component["bom-ref"] for component in document["components"]}
    own, *others = document["dependencies"]
    assert own["ref"].startswith("pkg:pypi/holdfast-pg@")
    assert {ref.partition("@")[0] for ref in own["dependsOn"]} >= {"pkg:pypi/psycopg", "pkg:pypi/pydantic"}
    assert {line["ref"] for line in others} == refs
    assert {on for line in others for on in line["dependsOn"]} <= refs
