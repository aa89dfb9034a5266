"""Coming in and going out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from holdfast._ops.caller import Role
from tests.browser.live import NAMES

if TYPE_CHECKING:
    from tests.browser.conftest import Visiting
    from tests.browser.live import Live

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("role", Role)
async def test_a_token_signs_in_and_the_name_is_shown_until_sign_out(visit: Visiting, live: Live, role: Role) -> None:
    at = await visit(None)
    at.excuse("401")  # before somebody has signed in
    await at.title("Sign in to Holdfast")
    await at.page.get_by_label("Access token").fill(live.site.tokens[role])
    await at.button("Sign in").click()
    await at.title("Overview")
    who = at.page.locator(".who")
    await expect(who).to_contain_text(NAMES[role])
    await expect(who).to_contain_text(role)
    cookies = await at.context.cookies()
    assert [(cookie["name"], cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [
        ("holdfast_session", True, "Strict")
    ]
    assert await at.page.evaluate("JSON.stringify(localStorage)") == "{}"
    await at.button("Sign out").click()
    await expect(at.page.get_by_text("You are signed out.")).to_be_visible()
    assert await at.context.cookies() == []
    await at.page.reload()
    await at.title("Sign in to Holdfast")


async def test_a_wrong_token_is_refused_and_the_right_one_then_goes_where_one_wanted(
    visit: Visiting, live: Live
) -> None:
    at = await visit(None, "queues")
    at.excuse("401")
    token = live.site.tokens[Role.VIEWER]
    field = at.page.get_by_label("Access token")
    await expect(field).to_be_focused()
    await expect(field).to_have_attribute("type", "password")
    await field.fill(f"{token[:-1]}{'A' if token[-1] != 'A' else 'B'}")
    await at.page.keyboard.press("Enter")
    await expect(at.page.get_by_role("alert")).to_contain_text("This token is not accepted")
    await field.fill(token)
    await at.page.keyboard.press("Enter")
    await at.title("Queues")
