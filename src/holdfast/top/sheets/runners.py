"""Runners and schedules: when they run next, and how they ran last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.ops.question import RunnerAction
from holdfast.ops.refusal import Refused
from holdfast.top.cell import Cell, ago, ahead, duration, plain, word
from holdfast.top.sheet import Action, Column, Found, Page, Plan, Sheet, figures

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.ops.answer import RunLine, RunnerLine
    from holdfast.ops.desk import Desk
    from holdfast.ops.person import Person
    from holdfast.top.cell import Tone
    from holdfast.top.sheet import Look

_TONES: dict[str | None, Tone] = {"completed": "good", "failed": "bad", "lost": "bad"}
_SHOWN = 50


async def _read(look: Look) -> Found[RunnerLine]:
    answer = await look.desk.runners()
    paused = sum(runner.paused for runner in answer.runners)
    return Found(answer.runners, f"{paused} paused" if paused else "")


def _state(runner: RunnerLine) -> Cell:
    if runner.running_since is not None:
        return word("running", "good")
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
    return word(None) if run is None else word(run.outcome, _TONES.get(run.outcome, "plain"))


def _said(run: RunLine | None) -> str:
    if run is None:
        return ""
    return run.error or run.error_code or ", ".join(f"{count} {what}" for what, count in run.counts.items() if count)


async def _open(look: Look, runner: RunnerLine) -> Page:
    answer = await look.desk.runs(runner.name, _SHOWN)
    lines = [f"{'started':>10}  {'took':>7}  {'outcome':<10}  what it did"]
    lines += [
        f"{ago(run.started_at, look.now).text:>10}  {_took(run).text:>7}  {plain(run.outcome or '-'):<10}  "
        f"{plain(_said(run) or '-', 300)}"
        for run in answer.runs
    ]
    return Page(f"Runs of {runner.name}", lines if answer.runs else ["It has not run yet, or did nothing."])


def _scheduled(runner: RunnerLine) -> None:
    """Refuse what has no schedule: there is nothing to pause, and nothing to run out of turn."""
    if runner.what == "loop":
        raise Refused(409, "no_schedule", f"{runner.name} has no schedule: each worker runs it again and again")


async def _pause(desk: Desk, by: Person, runner: RunnerLine) -> Plan:
    _scheduled(runner)

    async def act() -> str:
        action = RunnerAction(action="resume" if runner.paused else "pause")
        return (await desk.act_on_runner(runner.name, action, by)).message

    if runner.paused:
        return Plan(f"Resume {runner.name}?", "It goes on with its next slot; what was missed is not run.", act)
    return Plan(f"Pause {runner.name}?", "What runs goes on. No more of its slots are started until resumed.", act)


async def _run(desk: Desk, by: Person, runner: RunnerLine) -> Plan:
    _scheduled(runner)

    async def act() -> str:
        return (await desk.act_on_runner(runner.name, RunnerAction(action="run"), by)).message

    return Plan(f"Run {runner.name} now?", "Once, soon, by a worker that has it; also when it is paused.", act)


RUNNERS: Sheet[RunnerLine] = Sheet(
    name="runners",
    title="Runners",
    one="runner",
    read=_read,
    row_id=lambda runner: runner.name,
    columns=(
        Column("runner", lambda runner, _: word(runner.name)),
        Column("state", lambda runner, _: _state(runner)),
        figures("next", _next),
        figures("last", lambda runner, now: ago(runner.last.started_at if runner.last else None, now)),
        figures("took", lambda runner, _: _took(runner.last)),
        Column("outcome", lambda runner, _: _outcome(runner.last)),
        Column("did", lambda runner, _: word(_said(runner.last))),
        Column("schedule", lambda runner, _: word(runner.schedule)),
        Column("what", lambda runner, _: word(runner.what)),
    ),
    sorted_by="runner",
    falling=False,
    empty="No schedule is stored, and nothing has run: a worker stores its schedules when it starts.",
    open=_open,
    actions=(Action("run", _run), Action("pause", _pause)),
)
