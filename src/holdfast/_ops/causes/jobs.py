"""The rules about order keys, payloads, failures, long runs and backlogs.

Some thresholds are pairs: to raise a problem, and to keep it, so that it neither comes nor goes with every look.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from holdfast._engine.worker_report import DEPLOY_GRACE
from holdfast._ops.causes.case import be, page, wait
from holdfast._ops.facts import FAILING_MINUTES
from holdfast._ops.wording import counted, plain, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._ops.causes.case import Case, Pair
    from holdfast._ops.responses.fleet import Problem
    from holdfast._store.incident import LongRun, RepeatedError, UnreadPayload
    from holdfast._store.inspect import KindCount

# Dead letters of a kind in FAILING_MINUTES, and their share of what ended.
FAILING, STILL_FAILING = (10, 0.10), (5, 0.05)
# The same in the last fifteen seconds of workers' reports, when nearly everything fails.
FAILING_AT_ONCE = (5, 0.5)
# A kind has recovered when it fails no more for three times the mean pause between its failures, within these bounds.
QUIET_SECONDS, MOST_QUIET_SECONDS = 15.0, 120.0
# Retries in the last fifteen seconds, and their share of all attempts.
STORM, STILL_STORM = (8, 0.5), (4, 0.25)
UNREAD_SECONDS = 20.0
# Jobs wait behind long ones that take every slot: for so long.
SLOW_SECONDS, STILL_SLOW_SECONDS = 5.0, 2.0
SLOW_PART = 0.5
# A due job is late; and it has waited for so long that a person should act.
LATE_SECONDS, STILL_LATE_SECONDS, OLD_SECONDS = 60.0, 15.0, 300.0
# A queue that needs longer than this to empty is not catching up.
LONGEST_CATCH_UP = 3600.0
MOST_LINES = 2


def stopped_keys(case: Case) -> Iterator[Problem]:
    stops = sorted(case.facts.signals.stops, key=lambda stop: -stop.waiting)
    shown = stops if len(stops) <= MOST_LINES else stops[:1]
    for stop in shown:
        others = stops[1:] if shown != stops else []
        waiting = stop.waiting + sum(other.waiting for other in others)
        keys = f", and {counted(len(others), 'other key')}" if others else ""
        error = f", {plain(stop.kind)}, failed with {plain(stop.code or 'an error')}" if stop.kind else " failed"
        yield case.problem(
            "order_stopped",
            "An order key is stopped",
            f"The order key {plain(stop.key, 100)}{keys} is stopped since job {stop.job}{error}; "
            f"{wait(waiting, 'job')}.",
            f"Retry job {stop.job}, or resume the key without it.",
            about=stop.key,
            since=stop.at,
            count=waiting,
            critical=bool(waiting),
            page=f"jobs/{stop.job}",
            command=f"holdfast jobs resume-key {shlex.quote(stop.key)}",
        )


def unread(case: Case) -> Iterator[Problem]:
    by_kind: defaultdict[tuple[str, int], list[UnreadPayload]] = defaultdict(list)
    for line in case.facts.signals.unread:
        if case.age(line.last) < UNREAD_SECONDS:
            by_kind[line.kind, line.version].append(line)
    for (kind, version), lines in sorted(by_kind.items()):
        jobs, since, own = sum(line.jobs for line in lines), min(line.since for line in lines), lines[0].own
        case.explain((line.queue, line.kind) for line in case.facts.census.lines if line.kind == kind)
        code = f"version {own}" if own != version else "the same version, but another model"
        deployed = max((worker.started_at for worker in case.live if worker.name == lines[0].worker), default=since)
        left = DEPLOY_GRACE - case.age(since)
        of = case.version(line.worker for line in lines)
        until = f"for another {span(left)}, then they fail" if left > 0 else "while another worker reads them"
        yield case.problem(
            "payload_unread",
            f"Payloads of {kind} do not fit the code",
            f"{counted(jobs, 'job')} of {plain(kind, 200)} with payload version {version} cannot be read by the worker "
            f"{plain(lines[0].worker)}{f' ({of})' if of else ''}, which started {span(case.age(deployed))} ago and "
            f"reads {code}; they are given back {until}.",
            "Deploy code that reads this version, or go back to the code that does.",
            about=kind,
            since=since,
            count=jobs,
            critical=True,
            page=page("jobs", kind=kind),
            command="holdfast worker",
        )


class _Ended(NamedTuple):
    """The attempts of a kind that ended: within FAILING_MINUTES, and as workers reported them just now."""

    failed: int
    completed: int
    errors: list[RepeatedError]

    @property
    def error(self) -> str:
        if not self.errors:
            return ""
        last = max(self.errors, key=lambda error: error.last)
        return f": {plain(last.code)}: {plain(last.text, 160)}" if last.text != last.code else f": {plain(last.code)}"

    def lately(self, what: str) -> int:
        return sum(getattr(error, what) for error in self.errors)


def _ended(case: Case) -> dict[Pair, _Ended]:
    failed: Counter[Pair] = Counter()
    completed: Counter[Pair] = Counter()
    errors: defaultdict[Pair, list[RepeatedError]] = defaultdict(list)
    for line in case.facts.ends:
        if line.outcome in ("failed", "completed"):
            (failed if line.outcome == "failed" else completed)[line.queue, line.kind] += line.jobs
    for error in case.facts.signals.errors:
        # A reaper does not report the queue.
        for pair in [pair for pair in failed if pair[1] == error.kind and not error.queue] or [
            (error.queue, error.kind)
        ]:
            errors[pair].append(error)
    return {pair: _Ended(failed[pair], completed[pair], errors.get(pair, [])) for pair in sorted({*failed, *errors})}


def failing(case: Case) -> Iterator[Problem]:
    """Find kinds that fail for good, and kinds whose attempts fail again and again."""
    for (queue, kind), ended in _ended(case).items():
        all_ = ended.failed + ended.completed
        had = case.had("kind_failing", kind)
        least, part = STILL_FAILING if had else FAILING
        lately = ended.lately("failed")
        at_once = lately >= FAILING_AT_ONCE[0] and lately >= FAILING_AT_ONCE[1] * (lately + ended.lately("completed"))
        many = ended.failed >= least and ended.failed >= part * all_
        if (many or at_once) and not _is_quiet(case, queue, kind, ended):
            since = min((error.since for error in ended.errors), default=None)
            failed = max(ended.failed, lately)
            yield case.problem(
                "kind_failing",
                f"Jobs of {kind} fail",
                f"{failed:,} of {max(all_, failed):,} jobs of {plain(kind, 200)} failed for good within "
                f"{FAILING_MINUTES} minutes{ended.error}{_of_version(case, ended)}.",
                "Repair the cause, then retry the dead letters. Until then, pause the queue.",
                about=kind,
                since=since,
                count=failed,
                critical=True,
                page=page("dead-letters", kind=kind),
                command=f"holdfast queues pause {shlex.quote(queue)}",
            )
            continue
        had = case.had("retry_storm", kind)
        least, part = STILL_STORM if had else STORM
        retried = ended.lately("retried")
        attempts = retried + lately + ended.lately("completed")
        if retried >= least and retried >= part * attempts:
            yield case.problem(
                "retry_storm",
                f"Attempts of {kind} fail again and again",
                f"{plain(kind, 200)} is retried {4 * retried:,} times a minute{ended.error}{_of_version(case, ended)}.",
                "See what the handler calls. Pause the queue to spare it.",
                about=kind,
                since=min(error.since for error in ended.errors),
                count=4 * retried,
                page=page("jobs", kind=kind),
                command=f"holdfast queues pause {shlex.quote(queue)}",
            )


def _of_version(case: Case, ended: _Ended) -> str:
    version = case.version(error.worker for error in ended.errors)
    return f"; all in {version}" if version else ""


def _is_quiet(case: Case, queue: str, kind: str, ended: _Ended) -> bool:
    """Return whether a kind has failed no more for a while, as far as its workers report."""
    if ended.errors:
        pause = 3 * 60 * FAILING_MINUTES / max(1, ended.failed)
        return min(case.age(error.last) for error in ended.errors) > max(QUIET_SECONDS, min(pause, MOST_QUIET_SECONDS))
    return (queue, kind) in case.served


def slow(case: Case) -> Iterator[Problem]:
    """Find a kind whose long runs take every slot of a queue, behind which jobs wait."""
    by_queue: defaultdict[str, list[KindCount]] = defaultdict(list)
    for line in case.waiting():
        by_queue[line.queue].append(line)
    for queue, lines in sorted(by_queue.items()):
        names = {worker.name for worker in case.live if queue in worker.queues}
        runs = [run for run in case.facts.signals.running if run.queue == queue and run.full and run.worker in names]
        oldest = max(case.age(line.oldest_due_at) for line in lines)
        if not names or {run.worker for run in runs} < names:
            continue
        by_kind: defaultdict[str, list[LongRun]] = defaultdict(list)
        for run in runs:
            by_kind[run.kind].append(run)
        kind, longest = max(by_kind.items(), key=lambda found: sum(run.jobs for run in found[1]))
        jobs, since = sum(run.jobs for run in longest), min(run.since for run in longest)
        least = STILL_SLOW_SECONDS if case.had("slow_kind", kind) else SLOW_SECONDS
        if oldest < least or jobs < SLOW_PART * sum(run.jobs for run in runs):
            continue
        due = sum(line.due for line in lines)
        case.explain((line.queue, line.kind) for line in lines)
        yield case.problem(
            "slow_kind",
            f"Jobs of {kind} take every slot of {queue}",
            f"{counted(jobs, 'job')} of {plain(kind, 200)} {'takes' if jobs == 1 else 'take'} every slot of the queue "
            f"{plain(queue, 200)}, the longest for {span(case.age(since))}; {wait(due, 'due job')} behind "
            f"{'it' if jobs == 1 else 'them'}.",
            "Give the queue more slots, or that kind a queue of its own.",
            about=kind,
            since=since,
            count=due,
            page=page("jobs", kind=kind, status="processing"),
            command=f"holdfast queues set {shlex.quote(queue)} --concurrency {2 * jobs}",
        )


def backlog(case: Case) -> Iterator[Problem]:
    by_queue: defaultdict[str, list[KindCount]] = defaultdict(list)
    for line in case.waiting():
        by_queue[line.queue].append(line)
    signals, at = case.facts.signals, case.facts.census.at
    for queue, lines in sorted(by_queue.items()):
        due, oldest = sum(line.due for line in lines), max(case.age(line.oldest_due_at) for line in lines)
        had = case.had("catching_up", queue) or case.had("backlog", queue)
        if oldest < (STILL_LATE_SECONDS if had else LATE_SECONDS):
            continue
        late, waits = plain(queue, 200), be(due, "job", "due")
        passed = 0.0 if at is None or signals.earlier_at is None else (at - signals.earlier_at).total_seconds()
        before = sum(line.due for line in case.facts.census.lines if line.queue == queue)
        drained = (signals.earlier_due.get(queue, 0) - before) / passed if passed > 0 else 0.0
        ended = sum(end.lately for end in case.facts.ends if end.queue == queue) / (60 + case.now.second)
        out = max(ended, drained, 0.0)
        since = min((line.oldest_due_at for line in lines if line.oldest_due_at), default=None)
        if drained > 0 and due / drained < LONGEST_CATCH_UP:
            yield case.problem(
                "catching_up",
                f"The queue {queue} is catching up",
                f"The queue {late} is catching up: {waits}, the first for {span(oldest)}; {out - drained:.1f} a second "
                f"come in and {out:.1f} end, so it is done in about {span(due / drained)}.",
                "Nothing to do, unless that is too late: then start more workers.",
                about=queue,
                since=since,
                count=due,
                page="queues",
            )
        else:
            yield case.problem(
                "backlog",
                f"The queue {queue} is behind",
                f"The queue {late} is behind: {waits}, the first for {span(oldest)}, and they do not become fewer.",
                "Start more workers, or raise its concurrency.",
                about=queue,
                since=since,
                count=due,
                critical=oldest > OLD_SECONDS,
                page="queues",
                command="holdfast worker",
            )
