"""A throwaway Prometheus that scrapes the given targets, and the program that checks its rules."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from tools.broker import Broker, provide

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

PACKAGE = "prometheus"
SCRAPE_SECONDS = 1


class Prometheus(Broker):
    def __init__(self, targets: Sequence[str], *, rules: Sequence[Path] = ()) -> None:
        """`targets`: HOST:PORT each, scraped every second."""
        self._program = provide("prometheus", PACKAGE, "apt-get install prometheus")
        self._name = f"holdfast-{secrets.token_hex(8)}"
        super().__init__()
        config = {
            "global": {
                "scrape_interval": f"{SCRAPE_SECONDS}s",
                "evaluation_interval": f"{SCRAPE_SECONDS}s",
                "external_labels": {"ground": self._name},
            },
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [{"job_name": "holdfast", "static_configs": [{"targets": list(targets)}]}],
        }
        # JSON is YAML.
        (self.folder / "prometheus.yml").write_text(json.dumps(config))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        return [
            self._program,
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def is_ours(self, peer: socket.socket) -> bool:  # noqa: ARG002 - its API is asked instead
        output = self.ask("status/config")
        return self._name in output["yaml"]

    def ask(self, path: str, **parameters: str) -> Any:
        """Ask its HTTP API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:  # noqa: S310 - our own
            output = json.load(answer)
        assert output["status"] == "success", output
        return output["data"]

    def query(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Return the value of each series, by its labels without those of the scrape."""
        found = self.ask("query", query=expression)["result"]
        left_out = {"__name__", "instance", "job"}
        return {
            tuple(sorted(item for item in series["metric"].items() if item[0] not in left_out)): float(
                series["value"][1]
            )
            for series in found
        }

    def wait_for(self, expression: str, seconds: float = 60) -> dict[tuple[tuple[str, str], ...], float]:
        """Return what a query finds, when it finds something: a comparison finds what it holds for."""
        deadline = time.monotonic() + seconds
        while not (found := self.query(expression)):
            assert time.monotonic() < deadline, f"not within {seconds} s: {expression}; {self.ask('targets')}"
            time.sleep(0.1)
        return found


def promtool(*arguments: str | Path, given: str | None = None) -> str:
    """Run it on files or on what is given, and return what it says; raise that when it does not agree."""
    program = provide("promtool", PACKAGE, "apt-get install prometheus")
    done = subprocess.run([program, *arguments], input=given, capture_output=True, text=True, timeout=60, check=False)
    output = done.stdout + done.stderr
    if done.returncode:
        raise AssertionError(output)
    return output
