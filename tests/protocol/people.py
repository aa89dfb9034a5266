"""Actions of people on jobs and chains, as rules of the state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast._model.errors import ChainAwaited, DuplicateJob, InvalidJob
from holdfast._store.chain import complete_chain, delete_chains
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.inspect import delete_job
from holdfast._store.search import cancel_job, replay_job, resume_order_key
from tests.protocol import chaining, producing
from tests.protocol.crew import KINDS
from tests.protocol.leasing import Request
from tests.protocol.model import Delta
from tests.protocol.producing import Spec
from tests.protocol.stage import Stage
from tests.protocol.strategies import (
    ORDER_KEYS,
    followers,
    inside,
    numbers,
    outcomes,
    some,
    specs,
    uniques,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast._model.outcome import Outcome
    from tests.protocol.model import State
    from tests.protocol.observation import Observation

T = TypeVar("T")

# Enough jobs: more of them take time and show nothing new.
CROWD = 12


class People(Stage):
    """Drawn values never depend on the database's answers: a rule that has nothing to do does nothing."""

    @rule(jobs=st.lists(specs, min_size=1, max_size=3), inside=inside)
    def enqueue(self, jobs: list[Spec], inside: bool) -> None:
        if len(self.state.live) >= CROWD:
            return
        jobs = [spec.among(self.view(inside)) for spec in jobs]
        unfit = producing.refusable(self.view(inside), jobs, self.clock)
        refused = [
            other
            for spec, other in zip(jobs, producing.conflicts(self.view(inside), jobs), strict=True)
            if other is not None and spec.unique is not None and spec.unique.on_conflict == "raise"
        ]
        statement = enqueue_jobs([spec.new() for spec in jobs])
        try:
            done = self.act(
                "enqueue",
                inside,
                self.crew.outside,
                statement,
                lambda view, handles, _, low: producing.enqueued(view, jobs, handles, low),
            )
        except DuplicateJob as error:
            # Below zero: another one of the same call.
            assert refused, "refused for nothing"
            assert error.existing_id in refused or min(refused) < 0  # noqa: PT017 - both ways are right, in their time
            self.check_nothing_changed()
        except InvalidJob:
            assert unfit, "refused for nothing"
            self.check_nothing_changed()
        else:
            assert not (done and refused), "a duplicate was let in"
            assert not (done and unfit), "let in what can never run"

    @rule(
        jobs=st.lists(st.builds(Spec, kind=st.just(KINDS[0]), unique=uniques), min_size=1, max_size=2),
        by=numbers,
        outcome=st.none() | outcomes,
        inside=inside,
    )
    def enqueue_same(self, jobs: list[Spec], by: int, outcome: Outcome | None, inside: bool) -> None:
        """Enqueue what is there already: waiting, running, waiting again, or ended."""
        self.enqueue(jobs, inside)
        self.claim_some(by, Request({"default": 1}, KINDS), inside=False)
        if outcome is not None:
            self.finish_last(by, outcome)
        self.enqueue(jobs, inside)

    @rule(pick=some, inside=inside)
    def cancel(self, pick: int, inside: bool) -> None:
        known = self.view(inside).jobs
        job_id = pick_one(list(known), pick) if known else 0
        self.act(
            "cancel",
            inside,
            self.crew.outside,
            cancel_job(job_id),
            lambda view, answer, _, low: producing.cancelled(
                view, job_id, answer, low, stuck=self.open is not None and not inside
            ),
        )
        for holding in self.held():
            if holding.job.id == job_id:
                self.renew_some(holding.worker, [holding], inside=False)

    @rule(pick=some, inside=inside)
    def replay(self, pick: int, inside: bool) -> None:
        view = self.view(inside)
        if not (failed := self.with_status("failed")):
            return
        dead = pick_one(failed, pick)
        unknown = any(view.end_of(chain) == "not_found" for chain in dead.blockers or ())
        taken = dead.unique_key is not None and view.holder_of(dead.unique_key, dead.kind)
        try:
            self.act(
                "replay",
                inside,
                self.crew.outside,
                replay_job(dead.id, again=True),
                lambda view, made, _, low: producing.replayed(view, dead.id, made, low),
            )
        except (psycopg.errors.UniqueViolation, DuplicateJob):
            assert taken, "refused for nothing"
            self.check_nothing_changed()
        except InvalidJob:
            made = max(view.jobs) + 1
            after = view.plus(producing.replayed(view, dead.id, made, self.clock))
            assert unknown or chaining.circular(after, [after.jobs[made]]), "refused for nothing"
            self.check_nothing_changed()

    @rule(pick=some, following=st.none() | followers, inside=inside)
    def complete_chain(self, pick: int, following: Spec | None, inside: bool) -> None:
        """Somebody outside ends a chain, whatever its job does just now."""
        chains = sorted({job.chain for job in self.view(inside).jobs.values()})
        chain = pick_one(chains, pick) if chains else 4711
        if following is not None:
            following = following.among(self.view(inside))
        refusal = chaining.outside(self.view(inside), chain, following, None, self.clock)[1]
        text = None if following is None else following.new().as_json()

        def predict(view: State, answer: str, seen: Observation, low: datetime) -> Delta:
            end = view.end_of(chain)
            if end is not None:
                assert answer == ("not_found" if end == "not_found" else "already_ended")
                return Delta()
            assert answer == "completed"
            assert not refusal, "let in what may not follow"
            return chaining.outside(view, chain, following, seen, low)[0]

        try:
            self.act("complete", inside, self.crew.outside, complete_chain(chain, None, text), predict)
        except (DuplicateJob, InvalidJob):
            assert refusal, "refused for nothing"
            self.check_nothing_changed()
        for holding in self.held():
            if holding.job.chain_id == chain:
                self.renew_some(holding.worker, [holding], inside=False)

    @rule(picks=st.lists(some, min_size=1, max_size=2), cascade=st.booleans(), inside=inside)
    def delete_chains(self, picks: list[int], cascade: bool, inside: bool) -> None:
        chains = sorted({job.chain for job in self.view(inside).jobs.values()})
        doomed = {pick_one(chains, pick) for pick in picks} if chains else {4711}

        def predict(view: State, answer: list[int], _: Observation, low: datetime) -> Delta:
            gone = set(doomed)
            while waiters := chaining.waiting_outside(view, gone):
                assert cascade, "others wait for them"
                gone |= {waiter.chain for waiter in waiters}
            jobs = [job for chain in sorted(gone) for job in view.chain_of(chain)]
            assert answer == sorted({job.chain for job in jobs})
            delta = chaining.deleted(view, jobs, low)
            for key, stopper in view.stops.items():
                if stopper in delta.gone:
                    delta = delta.then(producing.resumed(view.plus(delta), key, low))
            delta.forgotten = delta.gone
            return delta

        try:
            self.act("delete", inside, self.crew.outside, delete_chains(doomed, cascade=cascade), predict)
        except ChainAwaited as error:
            assert not cascade
            waiters = chaining.waiting_outside(self.view(inside), doomed)
            assert set(error.waiters) == {waiter.id for waiter in waiters}  # noqa: PT017 - both ways are right
            self.check_nothing_changed()

    @rule(pick=some, inside=inside)
    def delete(self, pick: int, inside: bool) -> None:
        known = self.view(inside).jobs
        job_id = pick_one(list(known), pick) if known else 4711

        def predict(view: State, answer: str, _: Observation, low: datetime) -> Delta:
            job = view.jobs.get(job_id)
            if job is None or not job.live:
                assert answer == "not_found"
                return Delta()
            if job.status == "processing":
                assert answer == "processing"
                return Delta()
            assert answer == "deleted"
            return chaining.deleted(view, [job], low)

        self.act("delete", inside, self.crew.outside, delete_job(job_id), predict)

    @rule(key=st.sampled_from(ORDER_KEYS), inside=inside)
    def resume(self, key: str, inside: bool) -> None:
        def predict(view: State, answer: bool, _: Observation, low: datetime) -> Delta:
            assert answer == (key in view.stops)
            return producing.resumed(view, key, low)

        self.act("resume", inside, self.crew.outside, resume_order_key(key), predict)


def pick_one(among: Sequence[T], number: int) -> T:
    """Pick from the end, so that small numbers stand for what is new."""
    return among[-1 - number % len(among)]
