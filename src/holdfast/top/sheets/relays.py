"""Subscriptions: how far behind they are, and what is parked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.ops.question import SubscriptionAction
from holdfast.top.cell import Cell, compact, duration, number, plain, span, word
from holdfast.top.sheet import Action, Column, Found, Page, Plan, Sheet, figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.ops.answer import SubscriptionLine
    from holdfast.ops.desk import Desk
    from holdfast.ops.person import Person
    from holdfast.top.sheet import Look


async def _read(look: Look) -> Found[SubscriptionLine]:
    answer = await look.desk.subscriptions()
    lag = look.overview.relay_lag_events
    return Found(answer.subscriptions, f"{compact(lag)} events behind" if lag else "nothing behind")


def _held(subscription: SubscriptionLine) -> int:
    return sum(partition.worker is not None for partition in subscription.partitions)


def _state(subscription: SubscriptionLine) -> Cell:
    if subscription.elsewhere:
        return word("elsewhere", "bad")
    if subscription.paused:
        return word("paused", "warn")
    if not _held(subscription):
        return word("unheld", "bad")
    return word("reading", "good")


async def _open(_: Look, subscription: SubscriptionLine) -> Page:
    return Page(f"Subscription {subscription.name}", [*_lines(subscription)])


def _lines(subscription: SubscriptionLine) -> Iterator[str]:
    yield f"target  {plain(subscription.target, 200)}"
    yield f"parked  {subscription.parked:,}"
    if subscription.elsewhere:
        yield "Its positions are of another server: `holdfast events rebase` after a restore."
    yield ""
    yield f"{'partition':>9}  {'worker':>8}  {'events behind':>13}  {'seconds':>8}"
    for partition in subscription.partitions:
        worker = "-" if partition.worker is None else str(partition.worker)
        yield (
            f"{partition.partition:>9}  {worker:>8}  {partition.lag_events:>13,}  "
            f"{span(partition.lag_seconds) if partition.lag_events else '-':>8}"
        )


async def _pause(desk: Desk, by: Person, subscription: SubscriptionLine) -> Plan:
    name = subscription.name

    async def act() -> str:
        action = SubscriptionAction(action="resume" if subscription.paused else "pause")
        return (await desk.act_on_subscription(name, action, by)).message

    if subscription.paused:
        return Plan(f"Resume {name}?", "It goes on where it was paused.", act)
    return Plan(f"Pause {name}?", "Nothing more is handed over, from the next renewal of its lease on.", act)


RELAYS: Sheet[SubscriptionLine] = Sheet(
    name="relays",
    title="Relays",
    one="subscription",
    read=_read,
    row_id=lambda subscription: subscription.name,
    columns=(
        Column("subscription", lambda line, _: word(line.name)),
        Column("state", lambda line, _: _state(line)),
        figures("behind", lambda line, _: number(line.lag_events, "warn")),
        figures("by", lambda line, _: duration(line.lag_seconds if line.lag_events else 0, "warn")),
        figures("parked", lambda line, _: number(line.parked, "bad")),
        figures("held", lambda line, _: Cell(f"{_held(line)}/{len(line.partitions)}", _held(line))),
        Column("target", lambda line, _: word(line.target)),
    ),
    sorted_by="behind",
    empty="No subscription is stored: a worker stores those of its application when it starts.",
    open=_open,
    actions=(Action("pause", _pause),),
)
