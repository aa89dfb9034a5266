"""The ground the state machine moves on: each step runs one statement and compares all rows with the model."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import psycopg
from hypothesis.stateful import RuleBasedStateMachine

from holdfast._drivers import run_sync
from holdfast._model.errors import ChainAwaited, DuplicateJob, InvalidJob
from holdfast._model.outcome import Completed, Outcome
from holdfast._store.claim import Claim, ClaimedJob, Floors, Lane, claim_jobs
from holdfast._store.finish import Ending, finish_jobs, is_plain
from holdfast._store.lease import Held, claim_suspects, reap_jobs, renew_leases
from holdfast._store.statement import Statement
from tests.protocol import leasing
from tests.protocol.leasing import LEASE, RETRY, Request, write_of
from tests.protocol.model import Delta, ModelJob, State
from tests.protocol.observation import Observation, observe, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.protocol.crew import Connection, Crew
    from tests.protocol.producing import Spec

T = TypeVar("T")

NOTHING: Mapping[ClaimedJob, Spec] = {}

# The claim stops looking after 200 ms; one that took this long may have left something.
HURRIED = 0.1


@dataclass(slots=True)
class Worker:
    id: int
    conn: Connection
    floors: Floors = field(default_factory=Floors)


@dataclass(frozen=True, slots=True)
class Holding:
    """A claim as the worker remembers it, for ever."""

    worker: int
    job: ClaimedJob


@dataclass(slots=True)
class Open:
    """An open transaction."""

    began: datetime
    delta: Delta = field(default_factory=Delta)


class Stage(RuleBasedStateMachine):
    crew: ClassVar[Crew]

    def __init__(self) -> None:
        super().__init__()
        self.crew.reset()
        self.workers = [Worker(self.crew.register(f"w{n}"), conn) for n, conn in enumerate(self.crew.workers)]
        self.state = State()
        self.open: Open | None = None
        self.holdings: list[Holding] = []
        self.last_token = 0
        self.broken = False
        self.clock = observe(self.crew.outside).clock

    def claim_some(self, by: int, request: Request, inside: bool) -> None:
        worker, reach = self.workers[by], request.reach
        floors = None if reach is None else worker.floors
        if floors is not None:
            request = replace(request, floors=self._heeded(floors, inside))
        leases = dict.fromkeys(request.kinds, LEASE)
        statement = claim_jobs(worker.id, request.slots, leases, floors=floors, reach=reach or 0, shards=request.shards)
        if request.suspects:
            apart = claim_suspects(worker.id, request.slots, leases, request.suspects)
            statement = Statement(apart.sql, apart.params, lambda rows: Claim(apart.read(rows), again=False))
        started = time.monotonic()

        def predict(view: State, claim: Claim, seen: Observation, low: datetime) -> Delta:
            exact = self.open is None and not claim.again and time.monotonic() - started < HURRIED
            # In an order that does not depend on where the rows happen to lie: an example must be the same each time.
            for job in sorted(claim.jobs):
                assert job.token > self.last_token, "a token came again"
                self.holdings.append(Holding(worker.id, job))
            self.last_token = max([self.last_token, *(job.token for job in claim.jobs)])
            if reach is not None:
                worker.floors.advance(claim.jobs, reach=reach, took=0, promoted=claim.promoted)
            return leasing.claimed(view, request, claim, seen, worker=worker.id, low=low, exact=exact)

        self.act("claim", inside, worker.conn, statement, predict)

    def _heeded(self, floors: Floors, inside: bool) -> dict[Lane, tuple[datetime, int]]:
        """Return the floors that a claim heeds: what is later than its transaction began lies ahead of its clock."""
        latest = self.open.began if inside and self.open is not None else datetime.max.replace(tzinfo=UTC)
        return {lane: floor for lane, floor in floors._floors.items() if floor[0] <= latest}

    def finish_some(
        self,
        worker: int,
        endings: Mapping[ClaimedJob, Outcome],
        inside: bool,
        *,
        careful: bool = False,
        following: Mapping[ClaimedJob, Spec] = NOTHING,
    ) -> None:
        """Finish these jobs; what is `following` comes after those that complete."""
        nexts = {job: spec.among(self.view(inside)) for job, spec in following.items()}
        nexts = {job: spec for job, spec in nexts.items() if isinstance(endings[job], Completed)}
        given = [
            Ending(job, Completed(next=nexts[job].new().as_json()) if job in nexts else outcome)
            for job, outcome in endings.items()
        ]
        plain = {e.claimed for e in given if not careful and is_plain(e)}
        phases = [
            [
                write_of(e.claimed, worker, e.outcome, nexts.get(e.claimed))
                for e in given
                if (e.claimed in plain) == short
            ]
            for short in (True, False)
        ]

        def predict(view: State, answers: dict[Held, Any], seen: Observation, low: datetime) -> Delta:
            busy = self.busy({claim.id for claim, answer in answers.items() if answer == "busy"}, inside)
            whole = Delta()
            for writes in phases:
                delta, expected = leasing.settled(view.plus(whole), writes, seen, low, busy)
                # Done the short way, there is nothing to say.
                assert {w: str(answers.get(Held(w.id, w.token), "completed")) for w in writes} == expected
                whole = whole.then(delta)
            return whole

        refusal = leasing.refusal(self.view(inside), phases, self.clock)
        try:
            done = self.act("finish", inside, self.conn(worker), finish_jobs(worker, given, careful=careful), predict)
        except (DuplicateJob, InvalidJob):
            assert refusal.possible, "refused for nothing"
            self.check_nothing_changed()
            return
        # Whoever has something locked may have kept the culprit from leaving.
        alone = self.open is None or inside
        assert not (done and alone and refusal.sure), "let in what may not follow"
        if not done and not careful:
            # Somebody has one of the rows locked: the careful way does not wait for rows.
            self.finish_some(worker, endings, inside, careful=True, following=following)

    def renew_some(self, worker: int, holdings: Iterable[Holding], inside: bool) -> None:
        claims = {Held(holding.job.id, holding.job.token): LEASE for holding in holdings}

        def predict(view: State, answers: dict[Held, Any], _: Observation, low: datetime) -> Delta:
            busy = self.busy({claim.id for claim, answer in answers.items() if answer == "busy"}, inside)
            delta, expected = leasing.renewed(view, worker, list(claims), low, busy)
            assert answers == expected
            return delta

        self.act("renew", inside, self.conn(worker), renew_leases(worker, claims), predict)

    def finish_last(self, by: int, outcome: Outcome) -> None:
        ours = [holding.job for holding in self.held() if holding.worker == self.workers[by].id]
        if ours:
            self.finish_some(self.workers[by].id, {ours[-1]: outcome}, inside=False)

    def reap_some(self, limit: int, kinds: tuple[str, ...], inside: bool) -> None:
        def predict(view: State, reaped: Any, seen: Observation, low: datetime) -> Delta:
            jobs = reaped.jobs
            due = [job.id for job in leasing.expired(view, kinds, low)]
            found = [job.id for job in jobs]
            if self.open is None:
                assert set(found) <= set(due)
                assert len(found) == min(limit, len(due))
            assert set(found) <= set(due), "took a lease that had not ended"
            self.busy({job.id for job in jobs if job.answer == "busy"}, inside)
            delta, answers = leasing.reaped(view, jobs, seen, low)
            assert {job.id: job.answer for job in jobs} == {write.id: answer for write, answer in answers.items()}
            return delta

        statement = reap_jobs(dict.fromkeys(kinds, RETRY), limit=limit, jitter=timedelta(0))
        self.act("reap", inside, self.crew.outside, statement, predict)

    def act(
        self,
        cause: str,
        inside: bool,
        conn: Connection,
        statement: Statement[T],
        predict: Callable[[State, T, Observation, datetime], Delta],
    ) -> bool:
        """Run the statement and compare what the database then holds; False if it was refused for a lock."""
        opened = self.open if inside else None
        conn = self.crew.slow if opened is not None else conn
        view = self.view(inside)
        low = self.clock if opened is None else opened.began
        self.broken = True
        try:
            with conn.transaction() if opened is not None else nullcontext():
                result = run_sync(conn, statement)
        except psycopg.errors.LockNotAvailable:
            assert self.open is not None, "waited for a lock that nobody has"
            assert opened is None
            self.check_nothing_changed()
            return False
        except (psycopg.errors.UniqueViolation, DuplicateJob, InvalidJob, ChainAwaited):
            self.broken = False
            raise
        seen = observe(conn)
        delta = predict(view, result, seen, low)
        after = verify(view, delta, seen, cause)
        self.clock = seen.clock
        if opened is None:
            self.state = after
        else:
            delta.jobs = {job_id: after.jobs[job_id] for job_id in delta.jobs}
            opened.delta = opened.delta.then(delta)
        self.broken = False
        return True

    def pass_time(self, change: str, ids: set[int]) -> None:
        """Let time pass for these jobs."""
        try:
            self.crew.outside.execute(f"UPDATE holdfast.job SET {change} WHERE id = ANY (%s)".encode(), [list(ids)])
        except psycopg.errors.LockNotAvailable:
            assert self.open is not None
        seen = observe(self.crew.outside)
        for job_id in ids:
            job, row = self.state.jobs[job_id], seen.live[job_id]
            moved = job.becomes(job.status, available_at=row.available_at, locked_until=row.locked_until)
            self.state = self.state.plus(Delta({job_id: moved}))
        self.state = verify(self.state, Delta(), seen, None)
        self.clock = seen.clock

    def check_nothing_changed(self) -> None:
        self.broken = True
        seen = observe(self.crew.outside)
        verify(self.state, Delta(), seen, None)
        self.clock = seen.clock
        self.broken = False

    def view(self, inside: bool) -> State:
        return self.state.plus(self.open.delta) if inside and self.open is not None else self.state

    def busy(self, ids: set[int], inside: bool) -> set[int]:
        assert not ids or (self.open is not None and not inside), "busy, and nobody has anything locked"
        return ids

    def conn(self, worker: int) -> Connection:
        return next((known.conn for known in self.workers if known.id == worker), self.crew.outside)

    def with_status(self, status: str) -> list[ModelJob]:
        return [job for job in self.state.jobs.values() if job.status == status]

    def held(self) -> list[Holding]:
        """Return the claims that hold."""
        jobs = self.state.jobs
        return [
            holding
            for holding in self.holdings
            if holding.job.id in jobs and jobs[holding.job.id].held_by(holding.worker, holding.job.token)
        ]
