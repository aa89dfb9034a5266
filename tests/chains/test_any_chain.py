"""Any chain with groups ends as its plain evaluation would."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import ChainFailed, Continue, Fail, Group, Holdfast, Job
from tests.kit.pace import PATIENT

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

# ["give", n], ["fail"], ["go on", part], or ["add", parts, whether it runs anyway], which adds up what the parts give.
Part = list[Any]


def parts(inner: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    return st.one_of(
        st.tuples(st.just("go on"), inner).map(list),
        st.tuples(st.just("add"), st.lists(inner, min_size=1, max_size=4), st.booleans()).map(list),
    )


ANY_PART: st.SearchStrategy[Part] = st.recursive(
    st.one_of(
        st.tuples(st.just("give"), st.integers(0, 99)).map(list),
        st.tuples(st.just("give"), st.integers(0, 99)).map(list),
        st.just(["fail"]),
    ),
    parts,
    max_leaves=12,
)


def evaluate(part: Part) -> int | None:
    """Return the number that the part gives; None if it fails."""
    match part:
        case ["give", n]:
            return int(n)
        case ["go on", inner]:
            return evaluate(inner)
        case ["add", inner, anyway]:
            given = [evaluate(one) for one in inner]
            return sum(one or 0 for one in given) if anyway or None not in given else None
        case _:
            return None


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chains=st.lists(ANY_PART, min_size=3, max_size=6))
def test_any_chain_ends_as_its_plain_evaluation(ledger: Ledger, chains: list[Part]) -> None:
    ledger.do("TRUNCATE holdfast.job_history, holdfast.job_failed")
    app = Holdfast(ledger.url)

    @app.job("add")
    async def add(job: Job[None]) -> int:
        return sum(play.result(blocker) for blocker in job.blockers if blocker.status == "completed")

    @app.job("play")
    async def play(job: Job[None], part: Part) -> int | Continue[int] | Fail:
        match part:
            case ["give", n]:
                return int(n)
            case ["go on", inner]:
                return Continue(play.new(inner))
            case ["add", inner, anyway]:
                last = add.new().options(if_blocker_fails="run" if anyway else "fail")
                return Continue(Group([play.new(one) for one in inner], then=last))
            case _:
                return Fail("it fails")

    async def run() -> list[int | None]:
        found: list[int | None] = []
        handles = [play.handle(ledger.enqueue_one(play.new(part))) for part in chains]
        async with app.worker(queues={"default": 20}, **PATIENT):
            for handle in handles:
                try:
                    found.append(await app.wait(handle))
                except ChainFailed:
                    found.append(None)
        return found

    assert asyncio.run(run()) == [evaluate(part) for part in chains]
