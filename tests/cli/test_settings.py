"""Settings as the commands read them: by every name they have, and not at all when they do not fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.commands import holdfast

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
    output = holdfast("check", "--json", database=database, **ALIASES)
    assert output.status == 0
    read = {row["source"]: row["value"] for row in output.json["settings"] if row["source"].startswith("alias")}
    assert set(read) == {f"alias {alias}" for alias in (*ALIASES, "DATABASE_URL")}
    for alias, text in ALIASES.items():
        assert read[f"alias {alias}"] == ("pdf=3" if alias.startswith("PDF") else text)


def test_the_argument_wins_with_a_note(database: str, shop: Path) -> None:
    text = f"from holdfast import Holdfast\napp = Holdfast({database!r})\n"
    shop.joinpath("own.py").write_text(text)
    other = "postgresql://me:hush@127.0.0.1:1/other"
    output = holdfast("check", "own:app", "--queues", "default=3", "--json", cwd=shop, HOLDFAST_DATABASE_URL=other)
    assert output.status == 0
    rows = {row["name"]: (row["value"], row["source"]) for row in output.json["settings"]}
    assert rows["HOLDFAST_DATABASE_URL"][1] == "argument"
    assert rows["HOLDFAST_QUEUE_CONCURRENCY"] == ("default=3", "argument")
    note = "HOLDFAST_DATABASE_URL is not used: database_urls (argument) has another value"
    assert output.json["notes"] == [note]
    assert "hush" not in output.out


def test_the_first_name_wins_with_a_note(database: str) -> None:
    output = holdfast("check", database=database, HOLDFAST_BATCH_SIZE="8", **ALIASES)
    assert output.status == 0
    assert "note: OUTBOX_WORKER_BATCH_SIZE is not used: HOLDFAST_BATCH_SIZE has another value" in output.out
    assert "  8  " in next(line for line in output.out.splitlines() if line.startswith("HOLDFAST_BATCH_SIZE"))


@pytest.mark.parametrize("command", [["check"], ["worker", "shop:app"], ["tick", "cycles:app"]], ids=" ".join)
def test_what_does_not_fit_together_is_refused(database: str, shop: Path, command: list[str]) -> None:
    wrong = {
        "HOLDFAST_LEASE_MS": "30000",
        "HOLDFAST_HEARTBEAT_MS": "10000",
        "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "30001",
        "HOLDFAST_REAP_INTERVAL_MS": "30000",
    }
    output = holdfast(*command, database=database, cwd=shop, **wrong)
    assert (output.status, output.out) == (1, "")
    assert "HOLDFAST_HEARTBEAT_MS (10000) must be below a third of HOLDFAST_LEASE_MS (30000)" in output.err
    assert "HOLDFAST_SHUTDOWN_TIMEOUT_MS (30001) must be at most HOLDFAST_LEASE_MS (30000)" in output.err
    assert "HOLDFAST_REAP_INTERVAL_MS (30000) must be below HOLDFAST_LEASE_MS (30000)" in output.err
