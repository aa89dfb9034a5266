"""With the site's own authentication: a user without a role is refused as such, however often they ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.exceptions import HTTPException

from holdfast._ops.caller import FAILURES
from holdfast.ops import Person, Role, operations
from tests.kit.asking import Asked, ask, bearer

if TYPE_CHECKING:
    from starlette.requests import Request

NOWHERE = "postgresql://127.0.0.1:1/none"
STATS = Asked("GET", "/outbox/stats", headers=bearer("of-the-site"))


def _permission(request: Request) -> Person | None:
    if request.headers.get("authorization") == "Bearer of-the-site":
        raise PermissionError
    return None


async def _forbidden(request: Request) -> Person | None:
    if request.headers.get("authorization") == "Bearer of-the-site":
        raise HTTPException(403)
    raise HTTPException(401)


def _viewer(request: Request) -> Person | None:
    known = request.headers.get("authorization") == "Bearer of-the-site"
    return Person("ann", Role.VIEWER) if known else None


@pytest.mark.parametrize("authenticate", [_permission, _forbidden, _viewer])
async def test_a_known_user_without_the_role_gets_403_every_time(authenticate: object) -> None:
    site = operations(url=NOWHERE, authenticate=authenticate)  # type: ignore[arg-type]
    assert {(await ask(site, STATS)).status for _ in range(2 * FAILURES)} == {403}


@pytest.mark.parametrize("authenticate", [_permission, _forbidden, _viewer])
async def test_a_user_whom_the_site_does_not_know_gets_401_and_is_not_counted_as_guessing(authenticate: object) -> None:
    site = operations(url=NOWHERE, authenticate=authenticate)  # type: ignore[arg-type]
    unknown = Asked("GET", "/outbox/stats", headers=bearer("expired"))
    assert {(await ask(site, unknown)).status for _ in range(2 * FAILURES)} == {401}
    assert (await ask(site, STATS)).status == 403


async def test_guessing_our_own_tokens_is_still_limited() -> None:
    site = operations(url=NOWHERE, authenticate=_viewer)
    guess = Asked("GET", "/outbox/stats", headers=bearer("hf_nonsense"))
    assert [(await ask(site, guess)).status for _ in range(FAILURES + 1)][-1] == 429
