"""Runners and schedules with their next and last runs, and relays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._ops.caller import RequestRefused
from holdfast._ops.requests import RunnerAction, SubscriptionAction
from holdfast._ops.wording import compact, counts, plain, since, span
from holdfast._top.cell import Cell, ago, ahead, duration, number, state, word
from holdfast._top.sheet import Action, Column, Plan, Sheet, SheetRows, TextPage, figures, toggle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from holdfast._ops.caller import Person
    from holdfast._ops.responses.fleet import RunnerLine, SubscriptionLine
    from holdfast._ops.service import Service
    from holdfast._store.schedule import RunLine
    from holdfast._top.sheet import Query


_SHOWN = 50


async def _read_runners(look: Query) -> SheetRows[RunnerLine]:
    answer = await look.service.runners()
    paused = sum(runner.paused for runner in answer.items)
    return SheetRows(answer.items, f"{paused} paused" if paused else "")


def _state_runners(runner: RunnerLine, now: datetime) -> Cell:
    if runner.running_since is not None:
        return word(f"running for {since(runner.running_since, now)} on #{runner.running_on}", "good")
    if runner.triggered:
        return word("triggered", "warn")
    if runner.paused:
        return word("paused", "warn")
    return word("loop" if runner.what == "loop" else "waiting", "dim")


def _next(runner: RunnerLine, now: datetime) -> Cell:
    return ahead(runner.next_at[0] if runner.next_at else None, now)


def _took(run: RunLine | None) -> Cell:
    if run is None or run.finished_at is None:
        return duration(None)
    return duration((run.finished_at - run.started_at).total_seconds())


def _outcome(run: RunLine | None) -> Cell:
    return state(None if run is None else run.outcome)


def _result_text(run: RunLine | None) -> str:
    if run is None:
        return ""
    return run.error or run.error_code or counts(run.counts)


async def _open_runners(look: Query, runner: RunnerLine) -> TextPage:
    answer = await look.service.runs(runner.name, _SHOWN)
    lines = [f"{'started':>10}  {'took':>7}  {'outcome':<10}  what it did"]
    lines += [
        f"{ago(run.started_at, look.now).text:>10}  {_took(run).text:>7}  {plain(run.outcome or '-'):<10}  "
        f"{plain(_result_text(run) or '-', 300)}"
        for run in answer.items
    ]
    return TextPage(f"Runs of {runner.name}", lines if answer.items else ["It has not run yet."])


def _scheduled(runner: RunnerLine) -> None:
    """Refuse a runner without a schedule: it cannot be paused or triggered."""
    if runner.what == "loop":
        raise RequestRefused(409, "no_schedule", f"{runner.name} has no schedule: each worker runs it continuously")


async def _pause_runners(service: Service, by: Person, runner: RunnerLine) -> Plan:
    _scheduled(runner)

    async def act() -> str:
        action = RunnerAction(action="resume" if runner.paused else "pause")
        return (await service.act_on_runner(runner.name, action, by)).message

    resumes, pauses = (
        "It goes on with its next slot; what was missed is not run.",
        "A run in progress goes on. No more slots are started until resumed.",
    )
    return toggle(runner.name, act, paused=runner.paused, resumes=resumes, pauses=pauses)


async def _run(service: Service, by: Person, runner: RunnerLine) -> Plan:
    _scheduled(runner)

    async def act() -> str:
        return (await service.act_on_runner(runner.name, RunnerAction(action="run"), by)).message

    return Plan(f"Run {runner.name} now?", "Once, soon, by a worker that has it; also when it is paused.", act)


RUNNERS: Sheet[RunnerLine] = Sheet(
    name="runners",
    title="Runners",
    one="runner",
    read=_read_runners,
    row_id=lambda runner: runner.name,
    columns=(
        Column("runner", lambda runner, _: word(runner.name)),
        Column("state", _state_runners),
        figures("next", _next),
        figures("last", lambda runner, now: ago(runner.last.started_at if runner.last else None, now)),
        figures("took", lambda runner, _: _took(runner.last)),
        Column("outcome", lambda runner, _: _outcome(runner.last)),
        Column("did", lambda runner, _: word(_result_text(runner.last))),
        Column("schedule", lambda runner, _: word(runner.schedule)),
        Column("what", lambda runner, _: word(runner.what)),
    ),
    sorted_by="runner",
    falling=False,
    empty="No schedule is stored, and nothing has run: a worker stores its schedules when it starts.",
    open=_open_runners,
    actions=(Action("run", _run), Action("pause", _pause_runners)),
)


async def _read_relays(look: Query) -> SheetRows[SubscriptionLine]:
    answer = await look.service.subscriptions()
    lag = look.overview.relay_lag_events
    return SheetRows(answer.items, f"{compact(lag)} events behind" if lag else "nothing behind")


def _held(subscription: SubscriptionLine) -> int:
    return sum(partition.worker is not None for partition in subscription.partitions)


def _state_relays(subscription: SubscriptionLine) -> Cell:
    if subscription.elsewhere:
        return word("elsewhere", "bad")
    if subscription.paused:
        return word("paused", "warn")
    if not _held(subscription):
        return word("unheld", "bad")
    return word("reading", "good")


async def _open_relays(_: Query, subscription: SubscriptionLine) -> TextPage:
    return TextPage(f"Subscription {subscription.name}", [*_lines(subscription)])


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


async def _pause_relays(service: Service, by: Person, subscription: SubscriptionLine) -> Plan:
    name = subscription.name

    async def act() -> str:
        action = SubscriptionAction(action="resume" if subscription.paused else "pause")
        return (await service.act_on_subscription(name, action, by)).message

    resumes, pauses = (
        "It goes on where it was paused.",
        "Nothing more is handed over, from the next renewal of its lease on.",
    )
    return toggle(name, act, paused=subscription.paused, resumes=resumes, pauses=pauses)


RELAYS: Sheet[SubscriptionLine] = Sheet(
    name="relays",
    title="Relays",
    one="subscription",
    read=_read_relays,
    row_id=lambda subscription: subscription.name,
    columns=(
        Column("subscription", lambda line, _: word(line.name)),
        Column("state", lambda line, _: _state_relays(line)),
        figures("behind", lambda line, _: number(line.lag_events, "warn")),
        figures("by", lambda line, _: duration(line.lag_seconds if line.lag_events else 0, "warn")),
        figures("parked", lambda line, _: number(line.parked, "bad")),
        figures("held", lambda line, _: Cell(f"{_held(line)}/{len(line.partitions)}", _held(line))),
        Column("target", lambda line, _: word(line.target)),
    ),
    sorted_by="behind",
    empty="No subscription is stored: a worker stores those of its application when it starts.",
    open=_open_relays,
    actions=(Action("pause", _pause_relays),),
)
