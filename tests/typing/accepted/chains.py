"""Chains: the result type runs through branches and loops."""

from typing import assert_type

from holdfast import Continue, Fail, Group, Handle, Holdfast, Job, NewJob

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


@app.job("pack")
async def pack(job: Job[None], orders: list[int]) -> Continue[str]:
    return Continue(Group([ship.new(order) for order in orders], then=check.new(1)))


@app.job("pack.some")
def pack_some(job: Job[None]) -> int | Continue[int] | Continue[str]:
    return Continue(Group((ship.new(1), pay.new(2)), then=ship.new(3))) if job.id else 7


@app.job("report")
def report(job: Job[None]) -> Continue[str | None] | None:
    return Continue(ship.new(1))


assert_type(ship.new(1), NewJob[str])
assert_type(pay.new(1), NewJob[str])
assert_type(check.new(1), NewJob[str])
assert_type(Continue(pay.new(1)), Continue[str])
assert_type(pack.new([1]), NewJob[str])
assert_type(Continue(Group([pay.new(1), check.new(2)], then=ship.new(3))), Continue[str])
assert_type(Group([], then=ship.new(3)).then, NewJob[str])


def options(first: Handle[str]) -> None:
    assert_type(ship.new(1).options(after=[first, 7], if_blocker_fails="run"), NewJob[str])
