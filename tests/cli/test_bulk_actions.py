"""`holdfast bulk-actions`: actions on all jobs of a filter, listed, stopped and resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cli.auditing import audited
from tests.kit.commands import holdfast
from tests.kit.workers import enqueue, job, number

if TYPE_CHECKING:
    import psycopg


def test_one_is_begun_at_a_rate_listed_stopped_and_resumed(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job() for _ in range(30)))
    by_filter = ["cancel", "--kind", "k", "--rate", "1/min", "--yes", "--detach"]
    output = holdfast("jobs", *by_filter, database=database)
    assert output == (
        0,
        "1 of 1 job cancelled, or asked to stop.\nThe workers carry it on: see `holdfast bulk-actions show 1`.\n",
        "",
    )
    [line] = holdfast("bulk-actions", "--json", database=database).json["items"]
    shown = (line["id"], line["action"], line["state"], line["kind"], line["expected"], line["done"])
    assert shown == ("1", "cancel", "running", "k", 30, 1)
    output = holdfast("bulk-actions", "stop", "1", database=database)
    assert (output.status, output.out.splitlines()[1].split()[:3]) == (0, ["1", "cancel", "stopped"])
    output = holdfast("bulk-actions", "stop", "1", database=database)
    assert output == (1, "", "holdfast bulk-actions: Bulk action 1 is stopped, not running.\n")
    assert holdfast("bulk-actions", "resume", "1", database=database).status == 0
    assert "kind k" in holdfast("bulk-actions", database=database).out
    actions = [action for _, action, *_ in audited(conn)]
    assert actions == ["jobs.cancel", "bulk_action.stop", "bulk_action.resume"]


def test_a_command_waits_for_the_end_of_its_action(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, *(job() for _ in range(120)))
    output = holdfast("jobs", "cancel", "--kind", "k", "--yes", database=database)
    assert output.out == "120 of 120 jobs cancelled, or asked to stop.\n"
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 0


def test_there_is_none_or_not_this_one(database: str) -> None:
    assert holdfast("bulk-actions", database=database) == (0, "No bulk actions.\n", "")
    output = holdfast("bulk-actions", "show", "7", database=database)
    assert (output.status, "There is no bulk action 7" in output.err) == (1, True)
