"""Write a bill of materials, CycloneDX 1.6, of what an installation with every extra consists of.

`python -m tools.sbom` prints it, from pyproject.toml and the versions and hashes of requirements.txt, and from what the
dashboard bundles. Only packages that Holdfast and its extras need are in it, on the Python that runs this.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock

ROOT = Path(__file__).parent.parent
DASHBOARD = ROOT / "dashboard"


def sbom() -> dict[str, Any]:
    """Return the document. It is the same for the same files and the same Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(line for extra in extras for line in extra)]
    depends = _closure([Requirement(line) for line in wanted])
    hashes = lock.hashes()
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    locked = json.loads((DASHBOARD / "package-lock.json").read_text())["packages"]
    parts = [_bundled_component(name, locked[f"node_modules/{name}"]) for name in bundled()]
    bundled_refs = [part["bom-ref"] for part in parts]
    direct = sorted({canonicalize_name(Requirement(line).name) for line in wanted})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "purl": own,
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": [*(_component(name, hashes) for name in sorted(depends)), *parts],
        "dependencies": [
            {"ref": own, "dependsOn": [*(_purl(name) for name in direct if name in depends), *bundled_refs]},
            *({"ref": _purl(name), "dependsOn": sorted(map(_purl, on))} for name, on in sorted(depends.items())),
            *({"ref": ref, "dependsOn": []} for ref in bundled_refs),
        ],
    }


def bundled() -> list[str]:
    """Return the packages that the dashboard bundles, as its build lists them."""
    text = (DASHBOARD / "vite.config.ts").read_text()
    (listed,) = re.findall(r"^const BUNDLED = (\[.+\]);$", text, re.MULTILINE)
    return sorted(json.loads(listed))


def _bundled_component(name: str, locked: dict[str, str]) -> dict[str, Any]:
    algorithm, _, digest = locked["integrity"].partition("-")
    assert algorithm == "sha512"
    purl = f"pkg:npm/{name.replace('@', '%40')}@{locked['version']}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": locked["version"],
        "purl": purl,
        "licenses": [{"expression": locked["license"]}],
        "hashes": [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}],
    }


def _closure(wanted: list[Requirement]) -> dict[str, set[str]]:
    """Return every installed package that these need, with the names of those that it needs itself."""
    found: dict[str, set[str]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        requirement = wanted.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        needs = [
            need
            for need in map(Requirement, metadata.requires(name) or ())
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        ]
        found.setdefault(name, set()).update(canonicalize_name(need.name) for need in needs)
        wanted += needs
    return found


def _purl(name: str) -> str:
    return f"pkg:pypi/{name}@{metadata.version(name)}"


def _component(name: str, hashes: dict[tuple[str, str], list[str]]) -> dict[str, Any]:
    about, version = metadata.metadata(name), metadata.version(name)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(name),
        "name": name,
        "version": version,
        "purl": _purl(name),
    }
    if "License-Expression" in about:
        component["licenses"] = [{"expression": about["License-Expression"]}]
    # The lock file has one hash per file of a release, and an installation has one of these files.
    found = hashes[name, version]
    component["properties"] = [{"name": "holdfast:sha256", "value": value} for value in sorted(found)]
    return component


if __name__ == "__main__":
    json.dump(sbom(), sys.stdout, indent=1)
    print()
