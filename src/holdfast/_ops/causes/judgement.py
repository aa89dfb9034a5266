"""Runs the rules in their order, and decides whether all is well."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast._ops.causes.case import Case
from holdfast._ops.causes.fleet import census, locked, paused, reapers, runners, unserved, workers
from holdfast._ops.causes.jobs import backlog, failing, slow, stopped_keys, unread
from holdfast._ops.causes.relays import relays, sinks
from holdfast._ops.wording import counted, span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast._ops.facts import Facts
    from holdfast._ops.responses.fleet import Problem

    Rule: TypeAlias = Callable[[Case], Iterable[Problem]]

# Older figures are no ground to call anything well.
FRESH_SECONDS = 15.0
# At most so many problems of one code are named. The last one counts the others.
MOST_OF_A_CODE = 5

# A rule that finds a cause marks what the cause explains: queues and kinds whose jobs wait, and relays. Later rules
# leave those out.
RULES: tuple[Rule, ...] = (
    locked,
    workers,
    paused,
    unserved,
    stopped_keys,
    unread,
    sinks,
    failing,
    slow,
    backlog,
    relays,
    reapers,
    runners,
    census,
)


class Verdict(NamedTuple):
    ok: bool
    text: str
    """In a few words: all is well, or why that is not said."""
    problems: list[Problem]
    """Critical ones first."""


def judge(facts: Facts, before: Sequence[Problem] = ()) -> Verdict:
    """Return the causes, and whether all is well. `before`: the problems of the last look. Default: none."""
    problems = causes(facts, before)
    now, at = facts.census.now, facts.census.at
    live = any(worker.state == "live" for worker in facts.workers)
    if problems:
        text = counted(len(problems), "problem")
    elif not live:
        text = "No worker is alive"
    elif at is None or (now - at).total_seconds() > FRESH_SECONDS:
        when = "never" if at is None else f"{span((now - at).total_seconds())} ago"
        text = f"Nothing wrong is known: jobs were counted {when}"
    else:
        return Verdict(True, "All is well", [])  # noqa: FBT003 - sets ok
    return Verdict(False, text, problems)  # noqa: FBT003 - as above


def causes(facts: Facts, before: Sequence[Problem] = ()) -> list[Problem]:
    case = Case(facts, before)
    found = [problem for rule in RULES for problem in rule(case)]
    kept: list[Problem] = []
    for _, same in groupby(sorted(found, key=lambda problem: problem.code), key=lambda problem: problem.code):
        first, rest = (all_ := list(same))[:MOST_OF_A_CODE], all_[MOST_OF_A_CODE:]
        if rest:
            last = first[-1]
            first[-1] = last.model_copy(update={"text": f"{last.text} And {len(rest)} more like this."})
        kept += first
    order = {code: place for place, code in enumerate(problem.code for problem in found)}
    return sorted(kept, key=lambda problem: (problem.severity != "critical", order[problem.code]))
