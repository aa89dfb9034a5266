"""Somebody acts and wants the audit to say less, or to name another; or goes on after signing out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._engine import once as tick_module
from holdfast._model.errors import HoldfastError
from holdfast._ops import outbox as outbox_module
from holdfast._ops.access import COOKIE
from holdfast._ops.caller import Token
from holdfast.ops import JwtAccess, Role, operations
from tests.attacks.api import make_token
from tests.kit.access import PATIENT
from tests.kit.asking import Asked, ask, bearer
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer
from tests.kit.shop import make_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.applications import Starlette

    from tests.kit.ledger import Ledger

SECRET = "one for all the processes behind an address"  # noqa: S105 - made up
CSRF = ("x-holdfast-csrf", "1")


@pytest.fixture
async def sites(database: str) -> AsyncIterator[Callable[..., Starlette]]:
    made: list[Starlette] = []

    def make(**options: Any) -> Starlette:
        made.append(operations(make_app(database), timeout=PATIENT, secret=SECRET, **options))
        return made[-1]

    yield make
    for site in made:
        await site.state.operations.close()


async def test_the_line_names_the_credential_the_address_and_every_job(
    sites: Callable[..., Starlette], database: str, ledger: Ledger
) -> None:
    token = make_token(database, Role.OPERATOR)
    made = ledger.rows("SELECT holdfast.enqueue('mail.send', '{\"to\": \"a\"}') FROM generate_series(1, 250)")
    ids = [row[0] for row in made]
    action = {"action": "delete", "ids": [str(id_) for id_ in ids], "preview": False}
    asked = Asked("POST", "/api/v1/jobs/actions", json=action, headers=bearer(token), client="192.0.2.99")
    assert (await ask(sites(), asked)).json["done"] == 250
    lines = ledger.rows("SELECT who, credential, address, ids FROM holdfast.audit")
    assert {line[:3] for line in lines} == {("ann", f"token:{key_of(token)}", "192.0.2.99")}
    assert sorted(id_ for line in lines for id_ in line[3]) == ids


def key_of(token: str) -> str:
    read = Token.read(token)
    assert read is not None
    return read.key


async def test_a_tick_by_hand_is_written_down_before_it_begins(
    sites: Callable[..., Starlette], database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line stays although the process is killed meanwhile."""
    seen: list[str] = []

    async def killed(*_: Any, **__: Any) -> Any:
        seen.extend(row[0] for row in ledger.rows("SELECT action FROM holdfast.audit"))
        raise RuntimeError("killed")

    assert tick_module.run_tick is outbox_module.run_tick  # type: ignore[attr-defined]
    monkeypatch.setattr(outbox_module, "run_tick", killed)
    asked = Asked("POST", "/outbox/run-once", headers=bearer(make_token(database, Role.DEVELOPER)))
    assert (await ask(sites(), asked)).status == 500
    assert seen == ["outbox.run_once.begin"]


def test_a_name_stands_for_one_token(database: str, ledger: Ledger) -> None:
    first = make_token(database, Role.VIEWER)
    with pytest.raises((HoldfastError, psycopg.errors.UniqueViolation)):
        make_token(database, Role.DEVELOPER)
    ledger.do("UPDATE holdfast.access_token SET revoked_at = now() WHERE key = %s", key_of(first))
    make_token(database, Role.DEVELOPER)


async def test_a_subject_of_a_jwt_cannot_take_a_local_name(
    sites: Callable[..., Starlette], database: str, ledger: Ledger
) -> None:
    make_token(database, Role.OPERATOR)
    ledger.do("INSERT INTO holdfast.queue (name) VALUES ('mail')")
    issuer = Issuer()
    site = sites(jwt=JwtAccess(issuer=ISSUER, audience=AUDIENCE, keys=issuer.keys))
    headers = bearer(issuer.token(role="operator", sub="ann"))
    asked = Asked("POST", "/api/v1/queues/mail/actions", json={"action": "pause"}, headers=headers)
    assert (await ask(site, asked)).status == 200
    assert ledger.rows("SELECT who, credential FROM holdfast.audit") == [("jwt:ann", f"jwt:{ISSUER}")]


@pytest.mark.parametrize("by", ["token", "jwt"])
async def test_a_copied_cookie_is_of_no_use_after_signing_out(
    sites: Callable[..., Starlette], database: str, by: str
) -> None:
    issuer = Issuer()
    options = {"jwt": JwtAccess(issuer=ISSUER, audience=AUDIENCE, keys=issuer.keys)}
    here, elsewhere = sites(**options), sites(**options)
    text = make_token(database, Role.VIEWER) if by == "token" else issuer.token(role="viewer", sub="bob")
    signed = await ask(here, Asked("POST", "/api/v1/session", json={"token": text}))
    cookie = ("cookie", signed.headers["set-cookie"].partition(";")[0])
    assert cookie[1].startswith(COOKIE)
    me = Asked("GET", "/api/v1/me", headers=(cookie,))
    assert (await ask(here, me)).status == 200
    assert (await ask(here, Asked("DELETE", "/api/v1/session", headers=(cookie, CSRF)))).status == 200
    assert (await ask(here, me)).status == 401
    assert (await ask(elsewhere, me)).status == 401
