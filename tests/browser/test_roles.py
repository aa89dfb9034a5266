"""The rights of each role: the same clicks, and the server's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast._ops.caller import Role
from tests.browser import shop
from tests.browser.places import PLACES, furnish
from tests.browser.visit import Visit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from playwright.async_api import Browser

    from tests.browser.conftest import Visiting
    from tests.browser.live import Live
    from tests.browser.places import Place

pytestmark = pytest.mark.asyncio(loop_scope="session")

REASON = "Needs the role operator; yours is viewer."
FORCE = """
async ([method, path, body]) => {
  const headers = {"content-type": "application/json", "x-holdfast-csrf": "1"};
  const answer = await fetch(path, {method, headers, body: JSON.stringify(body)});
  return [answer.status, (await answer.json()).error];
}
"""
FORCED = {
    "act on jobs": ("POST", "api/v1/jobs/actions", {"action": "cancel", "ids": ["1"], "preview": False}),
    "preview": ("POST", "api/v1/jobs/actions", {"action": "cancel", "ids": ["1"]}),
    "pause a queue": ("POST", "api/v1/queues/mail/actions", {"action": "pause"}),
    "set a queue": ("PUT", "api/v1/queues/mail", {"concurrency": 0, "lease_ms": None, "rate": None}),
    "set a limit": ("PUT", "api/v1/limits/mail-server", {"concurrency": 0, "rate": None}),
    "reset a limit": ("DELETE", "api/v1/limits/mail-server", {}),
    "set the retention": ("PUT", "api/v1/archive/retention", {"family": "run", "days": 2}),
    "run a runner": ("POST", "api/v1/runners/carts.sweep/actions", {"action": "run"}),
    "skip a subscription": ("POST", "api/v1/subscriptions/ledger/actions", {"action": "skip"}),
    "run once": ("POST", "outbox/run-once", {}),
}


class Act(NamedTuple):
    """An action by its buttons, on something new each time."""

    prepare: Callable[[Live, Role], str]
    """Make what is acted on, and return the path of its page."""
    press: str
    confirm: str | None
    states: str
    undo: str | None = None


def _dead(live: Live, role: Role) -> str:
    (made,) = live.fail(f"Retry{role}", [1])
    return f"jobs/{made}"


def _waiting(live: Live, role: Role) -> str:
    (made,) = live.wait(shop.send_sms.new(f"for the {role}"))
    return f"jobs/{made}"


def _group(live: Live, role: Role) -> str:
    live.fail(f"Group{role}", [1, 2])
    return "dead-letters"


ACTS = {
    "retry": Act(_dead, "Retry…", "Retry 1 job", "Retried 1 job."),
    "cancel": Act(_waiting, "Cancel…", "Cancel 1 job", "Cancelled 1 job."),
    "pause": Act(
        lambda *_: "queues",
        "Pause mail",
        None,
        "mail: workers claim nothing more from their next heartbeat on",
        "Resume mail",
    ),
    "retry group": Act(_group, "Retry card.charge, Group{}Outage", "Retry 2 jobs", "Retried 2 jobs."),
}


@pytest.fixture(scope="module")
def places(live: Live) -> dict[str, Place]:
    return furnish(live)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def viewer(browser: Browser, live: Live) -> AsyncIterator[Visit]:
    async with Visit(browser, live.site, Role.VIEWER) as at:
        await at.go()
        yield at


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.DEVELOPER])
@pytest.mark.parametrize("name", ACTS)
async def test_operators_and_developers_can_act(visit: Visiting, live: Live, name: str, role: Role) -> None:
    act = ACTS[name]
    at = await visit(role, act.prepare(live, role))
    await at.button(act.press.format(role)).click()
    if act.confirm is not None:
        await at.button(act.confirm).click()
    await at.wait_for_message(act.states)
    if act.undo is not None:
        await at.button(act.undo).click()
        await expect(at.button(act.press)).to_be_visible()


@pytest.mark.parametrize("name", ACTS)
async def test_a_viewer_sees_why_an_action_is_disabled(visit: Visiting, live: Live, name: str) -> None:
    act = ACTS[name]
    at = await visit(Role.VIEWER, act.prepare(live, Role.VIEWER))
    sent: list[str] = []
    at.page.on("request", lambda request: sent.append(request.method))
    button = at.button(act.press.format(Role.VIEWER))
    await expect(button).to_have_attribute("aria-disabled", "true")
    await expect(button).to_have_attribute("title", REASON)
    await button.click(force=True)
    await at.wait_for_message(REASON)
    await expect(at.dialog).to_have_count(0)
    assert "POST" not in sent


@pytest.mark.parametrize("name", PLACES)
async def test_a_viewer_sees_every_page_and_no_enabled_action(
    viewer: Visit, places: dict[str, Place], name: str
) -> None:
    await viewer.go(places[name].path)
    await viewer.title(places[name].title)
    await viewer.settled()
    acting = viewer.page.locator("main button[data-why]")
    reasons = {await button.get_attribute("data-why") for button in await acting.all()}
    assert reasons <= {REASON}
    assert await viewer.page.locator("main .button.danger:not([aria-disabled=true])").count() == 0
    viewer.check()


@pytest.mark.parametrize("name", FORCED)
async def test_the_server_refuses_a_viewer_that_bypasses_the_page(viewer: Visit, name: str) -> None:
    viewer.excuse("403")
    assert await viewer.page.evaluate(FORCE, FORCED[name]) == [403, "forbidden"]


async def test_only_a_developer_may_run_the_outbox_by_hand(visit: Visiting) -> None:
    at = await visit(Role.OPERATOR)
    at.excuse("403")
    assert await at.page.evaluate(FORCE, FORCED["run once"]) == [403, "forbidden"]
