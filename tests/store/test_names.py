"""Every name in our SQL means what PostgreSQL means by it, whatever a user puts in `public`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._store.statement import names_nothing, statements

if TYPE_CHECKING:
    from collections.abc import Callable

Connection = psycopg.Connection[Any]

# Why a function runs with its owner's rights. Every other one runs with its caller's.
DEFINERS = {
    "enqueue": "a producer may enqueue and touch no table",
    "enqueue_jobs": "a producer may enqueue and touch no table",
    "enqueue_group": "a producer may enqueue and touch no table",
    "get_result": "a producer may read the state and the result of a job by its id, and nothing else of it",
    "publish": "a producer may publish and touch no table",
    "publish_events": "a producer may publish and touch no table",
    "send_message": "a producer may send to a story and touch no table",
    "set_weight": "a producer may set the weight of a tenant and touch no table",
    "receive": "a consumer may use the inbox and touch no table",
    "ensure_partitions": "only the owner of a table adds partitions to it",
    "drop_partition": "only the owner of a table drops partitions of it",
    "set_retention": "an operator may set how long rows are kept, and not change the table otherwise",
    "set_archived": "a worker with a bucket may protect days from being dropped",
    "export_again": "a worker may attach a day again that was detached to be dropped, and owns none",
    "drop_archived": "a worker may drop a day that is verified in the archive, and owns none",
    "day_is_read": "a worker may read the log, and not its single days",
    "note_set_back": "a worker may leave a sign that the clock was set back, and none that it is right",
    "delete_chains": "nobody else deletes from history",
    "advance_bulk_action": "a worker may carry out what an operator began, and begin nothing",
    "take_census": "viewers may let the live jobs be counted",
}


def test_no_function_looks_names_up_by_the_sessions_search_path(connect: Callable[..., Connection]) -> None:
    """Its search_path is pinned, or its body was parsed when it was made (`RETURN …`)."""
    open_ones = connect().execute(
        """
        SELECT oid::regprocedure::text FROM pg_proc
        WHERE pronamespace = 'holdfast'::regnamespace AND prosqlbody IS NULL
            AND 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(proconfig, '{}'))
        """
    )
    assert open_ones.fetchall() == []


def test_every_definer_has_a_reason(connect: Callable[..., Connection]) -> None:
    found = connect().execute("SELECT proname FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace AND prosecdef")
    assert {name for (name,) in found} == DEFINERS.keys()


def test_statements_that_only_call_our_functions_are_recognized() -> None:
    calls = {name for name, sql in statements().items() if names_nothing(sql)}
    # The ones of the hot path, which are never wrapped in a transaction behind a pooler.
    assert {"claim_jobs", "renew_leases", "complete_jobs", "finish_jobs", "enqueue_job", "publish_event"} <= calls
    # Those that idle workers send.
    assert {"look_at_schedule", "look_at_periodic_jobs", "next_suspect", "reap_jobs"} <= calls
    for sql in (
        "SELECT id FROM holdfast.job WHERE status OPERATOR(public.=) 'pending'",
        "SELECT id FROM holdfast.job WHERE status OPERATOR(pg_catalog.=) lower('PENDING')",
        "UPDATE holdfast.worker SET reaped_at = now()",
        "SELECT id FROM holdfast.job WHERE (status = 'pending')",
        "SELECT count(*) FROM holdfast.job",
        "SELECT id FROM holdfast.job WHERE status = 'pending'",
        "SELECT id FROM holdfast.job WHERE status IN ('pending')",
        "SELECT DISTINCT kind FROM holdfast.job",
        "SELECT now()",
        "SELECT holdfast.cancel_job(id) FROM holdfast.job ORDER BY -id",
        "SELECT CASE status WHEN 'pending' THEN id END FROM holdfast.job",
    ):
        assert not names_nothing(sql), sql
    for name in calls:
        text = re.sub(r"--.*|%\(\w+\)s|OPERATOR\(pg_catalog\.[^)]+\)", "", statements()[name])
        unqualified = re.findall(r"(?<![.\w])(\w+)\s*\(", text)
        assert set(unqualified) <= {"coalesce", "AND", "ANY", "AS", "FROM", "id"}, name
