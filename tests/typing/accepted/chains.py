"""Chains: the result type runs through branches and loops."""

from typing import assert_type

from holdfast import Fail, Handle, Holdfast, Job, NewJob
from holdfast._model.new_job import Continue

app = Holdfast()


@app.job("ship")
async def ship(job: Job[None], order: int) -> str:
    return f"shipped {order}"


@app.job("pay")
async def pay(job: Job[None], order: int) -> Continue[str]:
    return Continue(ship.new(order))


@app.job("check")
async def check(job: Job[None], order: int, tries: int = 0) -> str | Continue[str] | Fail:
    if tries > 9:
        return Fail("too often")
    return Continue(check.new(order, tries + 1)) if tries else "not needed"


@app.job("report")
def report(job: Job[None]) -> Continue[str | None] | None:
    return Continue(ship.new(1))


assert_type(ship.new(1), NewJob[str])
assert_type(pay.new(1), NewJob[str])
assert_type(check.new(1), NewJob[str])
assert_type(Continue(pay.new(1)), Continue[str])


def options(first: Handle[str]) -> None:
    assert_type(ship.new(1).options(after=[first, 7], if_blocker_fails="run"), NewJob[str])
