"""Any story, and workers that die at any statements of it: what happens once happens once, and no result changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import ChainFailed, Fail, Holdfast, Job, Retry, Step
from tests.stories.crashing import Crew

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

ACTS = ["step", "step_on", "sleep", "receive", "timeout", "caught", "pair", "gather", "bad gather", "dead letter"]


class World:
    """Counts what happened outside of the story, and keeps every value that its handler has seen."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls = 0
        self.seen: dict[str, set[str]] = {}
        self.dead: set[int] = set()

    async def call(self) -> int:
        """Return another number each time."""
        self.calls += 1
        return self.calls

    async def fail_at_first(self) -> int:
        self.calls += 1
        if self.calls % 2:
            raise LookupError(f"call {self.calls}")
        return self.calls

    async def write(self, conn: psycopg.AsyncConnection[Any], n: int) -> int:
        await conn.execute("INSERT INTO entry VALUES (%s)", [n])
        return await self.call()

    def sees(self, name: str, value: object) -> None:
        self.seen.setdefault(name, set()).add(repr(value))

    async def act(self, job: Job[None], n: int, act: str, message: Any, child: Any) -> object:  # noqa: PLR0911, PLR0912
        match act:
            case "step":
                return await job.step(Step("step", key=n), self.call)
            case "step_on":
                async with await psycopg.AsyncConnection.connect(self.url) as conn:
                    return await job.step_on(conn, Step("step_on", key=n), self.write, n)
            case "sleep":
                await job.sleep(Step("sleep", key=n), 3600)
                return None
            case "receive":
                return await job.receive(message, key=n)
            case "timeout":
                return await job.receive(message, key=n, timeout=60)
            case "caught":
                try:
                    return await job.step(Step("caught", key=n), self.fail_at_first)
                except LookupError as exc:
                    return str(exc)
            case "pair":
                return await asyncio.gather(*[job.step(Step(f"pair {n}", key=m), self.call) for m in range(2)])
            case "gather":
                return await job.gather(Step("gather", key=n), child.new(n, False), child.new(n, False))
            case "bad gather":
                try:
                    return await job.gather(Step("gather", key=n), child.new(n, True), child.new(n, False))
                except ChainFailed as exc:
                    return exc.error
            case _:
                if n not in self.dead:
                    self.dead.add(n)
                    raise Fail("a dead letter, once")
                return None


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(st.sampled_from(ACTS), min_size=1, max_size=6),
    crashes=st.dictionaries(st.integers(0, 25), st.booleans(), max_size=4),
)
def test_any_story_with_any_crashes(ledger: Ledger, acts: list[str], crashes: dict[int, bool]) -> None:
    ledger.do("CREATE TABLE IF NOT EXISTS entry (n bigint NOT NULL)")
    ledger.do("TRUNCATE entry, holdfast.job_history, holdfast.job_failed, holdfast.replay")
    app, world = Holdfast(ledger.url), World(ledger.url)
    message = app.message("message", int)

    @app.job("child", retry=Retry(max_attempts=1000))
    async def child(n: int, fails: bool) -> int:
        if fails:
            raise Fail(f"child of {n}")
        return await world.call()

    @app.job("story", retry=Retry(max_attempts=1000))
    async def story(job: Job[None]) -> str:
        for n, act in enumerate(acts):
            world.sees(f"{act} {n}", await world.act(job, n, act, message, child))
        return "done"

    chain = ledger.enqueue_one(story.new())
    for n in range(acts.count("receive")):
        ledger.do("SELECT holdfast.send_message(%s, 'message', %s::text::json)", chain, str(n))
    waits = [act for act in acts if act in {"receive", "timeout"}]
    if "timeout" in waits[: waits.index("receive") if "receive" in waits else 0]:
        ledger.do("SELECT holdfast.send_message(%s, 'message', '-1')", chain)  # the first wait takes one, too
    for _ in range(waits.count("timeout")):
        ledger.do("SELECT holdfast.send_message(%s, 'message', '-2')", chain)
    asyncio.run(Crew(ledger.url, story, crashes, child=child).run())
    assert (
        ledger.value("SELECT result #>> '{}' FROM holdfast.job_history WHERE kind = 'story' ORDER BY id DESC LIMIT 1")
        == "done"
    )
    assert ledger.rows("SELECT n FROM entry ORDER BY n") == [(n,) for n, act in enumerate(acts) if act == "step_on"]
    assert {name for name, values in world.seen.items() if len(values) != 1} == set()
    assert ledger.value("SELECT (SELECT count(*) FROM holdfast.step) + (SELECT count(*) FROM holdfast.message)") == 0
    # No child was enqueued twice, whatever the answers that were lost.
    children = "SELECT id FROM holdfast.job_{} WHERE kind = 'child' AND chain_id IS NULL"
    made = ledger.rows(f"{children.format('history')} UNION ALL {children.format('failed')}")
    assert len(made) == 2 * sum(act.endswith("gather") for act in acts)
