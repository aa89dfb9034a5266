"""Settings as the commands read them: by every name they have, and not at all when they do not fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._model.settings_table import SETTINGS
from tests.cli.commands import holdfast

if TYPE_CHECKING:
    from pathlib import Path

ALIASES: dict[str, Any] = {
    "OUTBOX_WORKER_POLL_MS": "900",
    "OUTBOX_WORKER_BATCH_SIZE": "9",
    "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "90000",
    "OUTBOX_WORKER_MAX_ATTEMPTS": "4",
    "OUTBOX_WORKER_RETRY_BASE_MS": "2000",
    "OUTBOX_WORKER_RETRY_MAX_MS": "70000",
    "PDF_RENDER_CONCURRENCY": "3",
}


def test_every_alias_is_read(database: str) -> None:
    said = holdfast("check", "--json", database=database, **ALIASES)
    assert said.status == 0
    read = {row["source"]: row["value"] for row in said.json["settings"] if "(alias)" in row["source"]}
    assert set(read) == {f"environment (alias) {alias}" for setting in SETTINGS for alias in setting.aliases}
    for alias, text in ALIASES.items():
        assert read[f"environment (alias) {alias}"] == ("pdf=3" if alias.startswith("PDF") else text)


def test_the_first_name_wins_with_a_note(database: str) -> None:
    said = holdfast("check", database=database, OUTBOX_BATCH_SIZE="8", **ALIASES)
    assert said.status == 0
    assert "note: OUTBOX_WORKER_BATCH_SIZE is not used: OUTBOX_BATCH_SIZE is set too" in said.out
    assert "  8  " in next(line for line in said.out.splitlines() if line.startswith("OUTBOX_BATCH_SIZE"))


@pytest.mark.parametrize("command", [["check"], ["worker", "shop:app"], ["tick", "cycles:app"]], ids=" ".join)
def test_what_does_not_fit_together_is_refused(database: str, shop: Path, command: list[str]) -> None:
    wrong = {
        "OUTBOX_LEASE_DURATION_MS": "30000",
        "OUTBOX_LEASE_HEARTBEAT_MS": "10000",
        "WORKER_SHUTDOWN_TIMEOUT_MS": "30001",
        "OUTBOX_REAP_INTERVAL_MS": "30000",
    }
    said = holdfast(*command, database=database, cwd=shop, **wrong)
    assert (said.status, said.out) == (1, "")
    assert "OUTBOX_LEASE_HEARTBEAT_MS (10000) must be below a third of OUTBOX_LEASE_DURATION_MS (30000)" in said.err
    assert "WORKER_SHUTDOWN_TIMEOUT_MS (30001) must be at most OUTBOX_LEASE_DURATION_MS (30000)" in said.err
    assert "OUTBOX_REAP_INTERVAL_MS (30000) must be below OUTBOX_LEASE_DURATION_MS (30000)" in said.err
