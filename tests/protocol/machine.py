"""The lease protocol as a state machine: anybody does anything, and the database does what the model says."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.errors import ChainAwaited, DuplicateJob, InvalidJob
from holdfast.outcome import Completed, Outcome
from holdfast.store.cancel import cancel_job, replay_job, resume_order_key
from holdfast.store.chain import complete_chain, delete_chains
from holdfast.store.enqueue import enqueue_jobs
from holdfast.store.inspect import delete_job
from tests.protocol import chaining, producing
from tests.protocol.crew import KINDS, QUEUES
from tests.protocol.leasing import Request
from tests.protocol.model import Delta
from tests.protocol.producing import Spec
from tests.protocol.stage import Open, Stage, Worker
from tests.protocol.strategies import (
    ORDER_KEYS,
    followers,
    inside,
    keyed,
    numbers,
    outcomes,
    requests,
    some,
    specs,
    uniques,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.store.claim import ClaimedJob
    from tests.protocol.model import State
    from tests.protocol.observation import Observation

T = TypeVar("T")

# Enough jobs: more of them take time and show nothing new.
CROWD = 12


class LeaseMachine(Stage):
    """What is drawn never depends on what the database answered: a rule that has nothing to do does nothing."""

    # Rules: what people do.

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
        job_id = _pick(list(known), pick) if known else 0
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
        dead = _pick(failed, pick)
        unknown = any(view.end_of(chain) == "not_found" for chain in dead.blockers or ())
        taken = dead.unique_key is not None and view.holder_of(dead.unique_key, dead.kind)
        try:
            self.act(
                "replay",
                inside,
                self.crew.outside,
                replay_job(dead.id),
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
        chain = _pick(chains, pick) if chains else 4711
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
        doomed = {_pick(chains, pick) for pick in picks} if chains else {4711}

        def predict(view: State, answer: list[int], _: Observation, low: datetime) -> Delta:
            gone = set(doomed)
            while waiters := chaining.waiting_outside(view, gone):
                assert cascade, "others wait for them"
                gone |= {waiter.chain for waiter in waiters}
            jobs = [job for chain in sorted(gone) for job in view.chain_of(chain)]
            assert answer == sorted({job.chain for job in jobs})
            delta = chaining.deleted(view, jobs, low)
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
        job_id = _pick(list(known), pick) if known else 4711

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

    # Rules: what workers do.

    @rule(by=numbers, request=requests, inside=inside)
    def claim(self, by: int, request: Request, inside: bool) -> None:
        self.claim_some(by, request, inside)

    # Hypothesis leaves half of the rules out of each example: what everything else needs is there twice.
    @rule(by=numbers)
    def claim_all(self, by: int) -> None:
        self.claim_some(by, Request(dict.fromkeys(QUEUES, 100), KINDS), inside=False)

    @rule(jobs=st.lists(specs | keyed, min_size=1, max_size=3), by=numbers, outcome=outcomes)
    def work(self, jobs: list[Spec], by: int, outcome: Outcome) -> None:
        """What nearly all workers do nearly all the time."""
        self.enqueue(jobs, inside=False)
        self.claim_all(by)
        self.finish_last(by, outcome)

    @rule(
        jobs=st.lists(specs, min_size=1, max_size=2),
        waiters=st.lists(waiting, min_size=1, max_size=2),
        by=numbers,
        outcome=outcomes,
        inside=inside,
    )
    def wait(self, jobs: list[Spec], waiters: list[Spec], by: int, outcome: Outcome, inside: bool) -> None:
        """Some jobs come after others, which end."""
        self.enqueue(jobs, inside=False)
        self.enqueue(waiters, inside)
        self.claim_all(by)
        self.finish_last(by, outcome)

    @rule(by=numbers, following=followers, careful=st.booleans(), inside=inside)
    def go_on(self, by: int, following: Spec, careful: bool, inside: bool) -> None:
        """A chain goes on, in the worker's batch or in the handler's own transaction."""
        self.claim_all(by)
        for holding in reversed(self.held()):
            if holding.worker == self.workers[by].id:
                endings: dict[ClaimedJob, Outcome] = {holding.job: Completed()}
                self.finish_some(holding.worker, endings, inside, careful=careful, following={holding.job: following})
                break

    @rule(early=st.lists(keyed, min_size=1, max_size=2), late=st.lists(keyed, min_size=1, max_size=2), by=numbers)
    def commit_late(self, early: list[Spec], late: list[Spec], by: int) -> None:
        """The first to take their places in their keys are the last to be seen there."""
        if self.open is None:
            self.begin()
            self.enqueue(early, inside=True)
            self.enqueue(late, inside=False)
            self.claim_all(by)
            self.end("commit")
        self.claim_all(by)

    @rule(by=numbers, outcome=outcomes)
    def finish_head(self, by: int, outcome: Outcome) -> None:
        """Finish a job of an order key, whoever holds it."""
        self.claim_all(by)
        for holding in self.held():
            if holding.job.order_key is not None:
                self.finish_some(holding.worker, {holding.job: outcome}, inside=False)
                break

    @rule(pick=some, old=outcomes, new=outcomes, careful=st.booleans())
    def claim_anew(self, pick: int, old: Outcome, new: Outcome, careful: bool) -> None:
        """A worker loses a job, has it again under another token, and remembers both claims."""
        if not (held := self.held()):
            return
        lost = _pick(held, pick)
        self.pass_time("locked_until = clock_timestamp() - interval '1 minute'", {lost.job.id})
        self.reap_some(100, KINDS, inside=False)
        self.pass_time("available_at = clock_timestamp()", {job.id for job in self.state.live if job.id == lost.job.id})
        self.claim_all(next((n for n, worker in enumerate(self.workers) if worker.id == lost.worker), 0))
        self.renew_some(lost.worker, [lost], inside=False)
        again = {holding.job: new for holding in self.held() if holding.job.id == lost.job.id}
        for outcome in (Completed(), old):
            self.finish_some(lost.worker, {lost.job: outcome}, inside=False, careful=careful)
        for stranger in self.workers:
            if again and stranger.id != lost.worker:
                self.finish_some(stranger.id, dict.fromkeys(again, Completed()), inside=False)
        self.finish_some(lost.worker, {lost.job: old, **again}, inside=False, careful=careful)

    @rule(by=numbers, most=st.sampled_from([1, 2, 100]))
    def die(self, by: int, most: int) -> None:
        """A worker dies between two statements and starts anew; its jobs are reaped, and its zombie does not know."""
        ours = {holding.job.id for holding in self.held() if holding.worker == self.workers[by].id}
        if ours:
            self.pass_time("locked_until = clock_timestamp() - interval '1 minute'", ours)
        self.restart(by)
        self.reap_some(most, KINDS, inside=False)

    @rule(by=numbers)
    def restart(self, by: int) -> None:
        self.workers[by] = Worker(self.crew.register(f"w{by}"), self.crew.workers[by])

    @rule(
        picks=st.lists(st.tuples(some, outcomes), min_size=1, max_size=4),
        careful=st.booleans(),
        stale=st.none() | some,
        following=st.none() | followers,
        inside=inside,
    )
    def finish(
        self,
        picks: list[tuple[int, Outcome]],
        careful: bool,
        stale: int | None,
        following: Spec | None,
        inside: bool,
    ) -> None:
        """Finish what somebody holds; perhaps with a claim in the batch that is lost, or another's."""
        if not (held := self.held()):
            return
        worker = _pick(held, picks[0][0]).worker
        ours = [holding for holding in held if holding.worker == worker]
        endings = {_pick(ours, pick).job: outcome for pick, outcome in picks}
        if stale is not None:
            endings.setdefault(_pick(self.holdings, stale).job, picks[0][1])
        nexts = {} if following is None else {next(iter(endings)): following}
        self.finish_some(worker, endings, inside, careful=careful, following=nexts)

    @rule(
        picks=st.lists(st.tuples(some, outcomes), min_size=1, max_size=3), by=some, careful=st.booleans(), inside=inside
    )
    def finish_as_anybody(self, picks: list[tuple[int, Outcome]], by: int, careful: bool, inside: bool) -> None:
        """Finish with claims of any age, under the name of any worker that ever claimed, or started since."""
        if not self.holdings:
            return
        names = sorted({holding.worker for holding in self.holdings} | {worker.id for worker in self.workers})
        endings = {_pick(self.holdings, pick).job: outcome for pick, outcome in picks}
        self.finish_some(_pick(names, by), endings, inside, careful=careful)

    @rule(
        picks=st.lists(some, min_size=1, max_size=4),
        stale=st.lists(some, max_size=2),
        by=st.none() | some,
        inside=inside,
    )
    def renew(self, picks: list[int], stale: list[int], by: int | None, inside: bool) -> None:
        if not (held := self.held()):
            return
        holdings = {*[_pick(held, pick) for pick in picks], *[_pick(self.holdings, pick) for pick in stale]}
        worker = _pick(self.workers, by).id if by is not None else _pick(held, picks[0]).worker
        self.renew_some(worker, holdings, inside)

    @rule(most=st.sampled_from([1, 2, 100]), kinds=st.sampled_from([KINDS, KINDS[:1]]), inside=inside)
    def reap(self, most: int, kinds: tuple[str, ...], inside: bool) -> None:
        self.reap_some(most, kinds, inside)

    # Rules: what time does.

    @rule(picks=st.lists(some, min_size=1, max_size=3))
    def expire(self, picks: list[int]) -> None:
        if not (running := self.with_status("processing")):
            return
        ids = {_pick(running, pick).id for pick in picks}
        self.pass_time("locked_until = clock_timestamp() - id %% 7 * interval '1 second' - interval '1 minute'", ids)

    @rule(picks=st.lists(some, min_size=1, max_size=3), seconds=st.sampled_from([0, 0, 30, 3600]))
    def make_due(self, picks: list[int], seconds: int) -> None:
        if not (waiting := [job for job in self.state.live if job.status in {"pending", "blocked"}]):
            return
        ids = {_pick(waiting, pick).id for pick in picks}
        self.pass_time(f"available_at = clock_timestamp() - interval '{seconds} seconds'", ids)

    # Rules: a transaction that stays open for a while.

    @precondition(lambda self: self.open is None)
    @rule()
    def begin(self) -> None:
        self.crew.slow.execute("BEGIN")
        self.open = Open(self.clock)

    @precondition(lambda self: self.open is not None)
    @rule(how=st.sampled_from(["commit", "commit", "rollback", "kill"]))
    def end(self, how: str) -> None:
        assert self.open is not None
        delta, self.open = self.open.delta, None
        if how == "commit":
            self.crew.slow.execute("COMMIT")
            self.state = self.state.plus(delta)
        elif how == "rollback":
            self.crew.slow.execute("ROLLBACK")
        else:
            self.crew.kill_slow()
        self.check_nothing_changed()

    def teardown(self) -> None:
        """Let everybody work on: everything that was ever committed ends."""
        if self.broken:
            return
        if self.open is not None:
            self.end("rollback")
        for _ in range(len(self.state.live) * 3 + 3):
            if not self.state.live:
                break
            self._drain()
        assert not self.state.live, "some jobs never end"

    def _drain(self) -> None:
        for key in tuple(self.state.stops):
            self.resume(key, inside=False)
        self.pass_time(
            "available_at = clock_timestamp()", {job.id for job in self.state.live if job.status == "pending"}
        )
        self.pass_time(
            "locked_until = clock_timestamp() - interval '1 minute'", {j.id for j in self.with_status("processing")}
        )
        self.reap_some(100, KINDS, inside=False)
        for by, worker in enumerate(self.workers):
            self.claim_all(by)
            held = {holding.job: Completed() for holding in self.held() if holding.worker == worker.id}
            if held:
                self.finish_some(worker.id, held, inside=False)


def _pick(among: Sequence[T], number: int) -> T:
    """Pick from the end, so that small numbers stand for what is new."""
    return among[-1 - number % len(among)]
