from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import HoldfastError
from holdfast._store.access import (
    find_access_token,
    is_name_free,
    list_access_tokens,
    list_audit,
    make_access_token,
    record_audit,
    revoke_access_token,
)

if TYPE_CHECKING:
    from tests.kit.workers import Connect

KEY = "0123456789ab"
DIGEST = "f" * 64


def test_a_token_is_found_by_its_key_until_it_expires(connect: Connect) -> None:
    conn = connect()
    expires = run_sync(conn, make_access_token(KEY, name="ci", role="viewer", digest=DIGEST, days=1))
    found = run_sync(conn, find_access_token(KEY))
    assert found is not None
    assert (found.name, found.role, found.digest, found.expires_at, found.expired) == (
        "ci",
        "viewer",
        DIGEST,
        expires,
        False,
    )
    conn.execute("UPDATE holdfast.access_token SET expires_at = now() - interval '1 second'")
    assert [token.expired for token in run_sync(conn, list_access_tokens())] == [True]
    assert run_sync(conn, find_access_token("ba9876543210")) is None


def test_a_token_without_an_end_does_not_expire(connect: Connect) -> None:
    conn = connect()
    assert run_sync(conn, make_access_token(KEY, name="ci", role="viewer", digest=DIGEST, days=None)) is None
    assert [token.expired for token in run_sync(conn, list_access_tokens())] == [False]


def test_a_name_is_taken_until_its_token_expires(connect: Connect) -> None:
    conn = connect()
    for key, name in ((KEY, "ci"), (KEY[::-1], "cd")):
        run_sync(conn, make_access_token(key, name=name, role="viewer", digest=DIGEST, days=1))
    assert not run_sync(conn, is_name_free("ci"))
    assert run_sync(conn, is_name_free("other"))
    conn.execute("UPDATE holdfast.access_token SET expires_at = now() - interval '1 second'")
    assert run_sync(conn, is_name_free("ci"))
    revoked = {token.name for token in run_sync(conn, list_access_tokens()) if token.revoked_at is not None}
    assert revoked == {"ci"}, "the token of another name stays as it is"


def test_a_token_is_revoked_once(connect: Connect) -> None:
    conn = connect()
    run_sync(conn, make_access_token(KEY, name="ci", role="viewer", digest=DIGEST, days=None))
    assert run_sync(conn, revoke_access_token(KEY))
    assert not run_sync(conn, revoke_access_token(KEY))
    assert [token.revoked_at is None for token in run_sync(conn, list_access_tokens())] == [False]


@pytest.mark.parametrize(
    "wrong",
    [{"role": "admin"}, {"digest": "secret"}, {"key": "short"}, {"name": ""}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_no_token_is_not_kept(connect: Connect, wrong: dict[str, str]) -> None:
    given = {"key": KEY, "name": "ci", "role": "viewer", "digest": DIGEST} | wrong
    with pytest.raises(HoldfastError):
        run_sync(connect(), make_access_token(given.pop("key"), **given, days=None))


def test_what_was_done_is_listed_the_newest_first(connect: Connect) -> None:
    conn = connect()
    came = {"credential": "token:0123456789ab", "address": "192.0.2.7"}
    detail = {"filter": {"kind": "mail"}}
    run_sync(conn, record_audit("ann", "operator", "jobs.retry", jobs=2, ids=[7, 9], detail=detail, **came))
    run_sync(conn, record_audit("bob\0", "developer", "queue.pause", target="x" * 2000))
    newest, oldest = run_sync(conn, list_audit())
    assert (oldest.who, oldest.jobs, oldest.ids, oldest.detail) == ("ann", 2, [7, 9], detail)
    assert (oldest.credential, oldest.address) == tuple(came.values())
    assert (newest.who, len(newest.target or "")) == ("bob", 250)
    assert run_sync(conn, list_audit(before=newest.id)) == [oldest]
