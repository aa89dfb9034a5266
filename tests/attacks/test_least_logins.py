"""Attacks by database users with the fewest rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._store.access import list_audit, make_access_token, record_audit, revoke_access_token
from holdfast._store.inspect import read_census, take_census
from holdfast.ops import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    Connection = psycopg.Connection[Any]
    Login = Callable[[str], Connection]

LARGE = "to_json(repeat('x', 17000000))"


def counted(conn: Connection) -> int:
    return sum(line.pending for line in run_sync(conn, read_census()).lines)


def enqueue(conn: Connection, jobs: int) -> None:
    conn.execute("SELECT count(holdfast.enqueue('mail.send')) FROM generate_series(1, %s)", [jobs])


def test_a_viewer_does_not_choose_how_much_is_counted(owner: Connection, login: Login) -> None:
    enqueue(owner, 500)
    viewer = login("holdfast_viewer")
    with pytest.raises(psycopg.errors.UndefinedFunction):
        viewer.execute("SELECT holdfast.take_census('0', 0, false)")
    for every in ("0", "-1000 years", "100000 years", None):
        viewer.execute("SELECT holdfast.take_census(%s::interval, false)", [every])
    assert counted(owner) == 500


def test_a_viewer_whose_transaction_stays_open_holds_up_no_other_count(owner: Connection, login: Login) -> None:
    run_sync(owner, take_census(every_ms=0))
    owner.execute("UPDATE holdfast.census SET at = at - interval '11 minutes'")
    viewer = login("holdfast_viewer")
    viewer.execute("SELECT pg_advisory_lock(hashtext('holdfast.census'), 0)")
    with viewer.transaction():
        viewer.execute("SELECT holdfast.take_census('0', false)")
        enqueue(owner, 3)
        owner.execute("SET lock_timeout = '2s'")
        assert run_sync(owner, take_census(every_ms=0))
        assert counted(owner) == 3
    viewer.execute("SELECT pg_advisory_unlock_all()")


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE holdfast.audit SET who = 'somebody else'",
        "UPDATE holdfast.audit SET jobs = 0",
        "UPDATE holdfast.audit SET detail = '{}'",
        "DELETE FROM holdfast.audit",
        "TRUNCATE holdfast.audit",
        "INSERT INTO holdfast.audit (at, who, role, action) VALUES ('2000-01-01', 'w', 'viewer', 'a')",
        "UPDATE holdfast.access_token SET role = 'developer'",
        "UPDATE holdfast.access_token SET digest = repeat('0', 64)",
        "UPDATE holdfast.access_token SET expires_at = NULL",
    ],
)
@pytest.mark.parametrize("role", ["holdfast_operator", "holdfast_worker", "holdfast_viewer", "holdfast_producer"])
def test_audit_entries_cannot_be_rewritten(login: Login, role: str, attack: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        login(role).execute(attack)


def test_an_operator_writes_down_what_was_done(login: Login) -> None:
    operator = login("holdfast_operator")
    run_sync(operator, record_audit("ann", Role.OPERATOR, "jobs.delete", jobs=2, ids=[7, 9], credential="token:0"))
    assert [(entry.jobs, entry.ids) for entry in run_sync(operator, list_audit())] == [(2, [7, 9])]
    run_sync(operator, make_access_token("0" * 12, name="bob", role="viewer", digest="0" * 64, days=1.0))
    assert run_sync(operator, revoke_access_token("0" * 12))


@pytest.mark.parametrize("part", ["job", "access_token", "job; DROP TABLE holdfast.job", "", None])
def test_a_worker_looks_into_no_other_table_through_the_log(login: Login, part: str | None) -> None:
    assert login("holdfast_worker").execute("SELECT holdfast.day_is_read(%s)", [part]).fetchone() == (False,)


@pytest.mark.parametrize(
    "call",
    [
        "enqueue('k', {large})",
        "enqueue_jobs(json_build_array(json_build_object('kind', 'k', 'payload', {large}))::text)",
        "enqueue_group('[]', json_build_object('kind', 'k', 'payload', {large})::text, false)",
        "publish('t', {large})",
        "publish_events(json_build_array(json_build_object('topic', 't', 'payload', {large}))::text)",
    ],
)
def test_a_producer_hands_in_no_payload_without_limit(login: Login, call: str) -> None:
    with pytest.raises(psycopg.Error, match="payload: at most 16 MiB expected"):
        login("holdfast_producer").execute(f"SELECT holdfast.{call.format(large=LARGE)}".encode())
