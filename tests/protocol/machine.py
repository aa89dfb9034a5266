"""The lease protocol as a state machine: anybody does anything, and the database does what the model says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast._model.outcome import Completed, Outcome
from tests.protocol.crew import KINDS, QUEUES
from tests.protocol.leasing import Request
from tests.protocol.people import People, pick_one
from tests.protocol.stage import Open, Worker
from tests.protocol.strategies import (
    followers,
    inside,
    keyed,
    numbers,
    outcomes,
    requests,
    some,
    specs,
    waiting,
)

if TYPE_CHECKING:
    from holdfast._store.claim import ClaimedJob
    from tests.protocol.producing import Spec


class LeaseMachine(People):
    """The state machine: workers, time and people."""

    # Rules: what workers do.

    @rule(by=numbers, request=requests, inside=inside)
    def claim(self, by: int, request: Request, inside: bool) -> None:
        self.claim_some(by, request, inside)

    # Hypothesis leaves half of the rules out of each example: what everything else needs is there twice.
    @rule(by=numbers)
    def claim_all(self, by: int) -> None:
        self.claim_some(by, Request(dict.fromkeys(QUEUES, 100), KINDS), inside=False)

    @rule(by=numbers, limit=st.sampled_from([1, 1, 3]), inside=inside)
    def claim_suspects(self, by: int, limit: int, inside: bool) -> None:
        self.claim_some(by, Request(dict.fromkeys(QUEUES, 100), KINDS, suspects=limit), inside)

    @rule(jobs=st.lists(specs | keyed, min_size=1, max_size=3), by=numbers, outcome=outcomes)
    def work(self, jobs: list[Spec], by: int, outcome: Outcome) -> None:
        """The most frequent steps of workers."""
        self.enqueue(jobs, inside=False)
        self.claim_all(by)
        self.finish_last(by, outcome)

    @rule(
        jobs=st.lists(specs, min_size=1, max_size=2),
        waiters=st.lists(waiting, min_size=1, max_size=2),
        by=numbers,
        outcome=outcomes,
        call_off=st.booleans(),
        inside=inside,
    )
    def wait(
        self, *, jobs: list[Spec], waiters: list[Spec], by: int, outcome: Outcome, call_off: bool, inside: bool
    ) -> None:
        """Some jobs come after others, which end; perhaps the last of them is called off."""
        self.enqueue(jobs, inside=False)
        self.enqueue(waiters, inside)
        if call_off:
            self.cancel(0, inside=False)
        self.claim_all(by)
        self.finish_last(by, outcome)

    @rule(jobs=st.lists(keyed, max_size=2), by=numbers, following=followers, careful=st.booleans(), inside=inside)
    def go_on(self, jobs: list[Spec], by: int, following: Spec, careful: bool, inside: bool) -> None:
        """A chain goes on, in the worker's batch or in the handler's own transaction, perhaps past others of a key."""
        if jobs:
            self.enqueue(jobs, inside=False)
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
        """Finish a job of an order key as its holder."""
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
        lost = pick_one(held, pick)
        self.pass_time("locked_until = clock_timestamp() - interval '1 minute'", {lost.job.id})
        self.reap_some(100, KINDS, inside=False)
        self.pass_time("available_at = clock_timestamp()", {job.id for job in self.state.live if job.id == lost.job.id})
        again_by = next((n for n, worker in enumerate(self.workers) if worker.id == lost.worker), 0)
        self.claim_all(again_by)
        self.claim_suspects(again_by, 1, inside=False)
        self.renew_some(lost.worker, [lost], inside=False)
        again = {holding.job: new for holding in self.held() if holding.job.id == lost.job.id}
        for outcome in (Completed(), old):
            self.finish_some(lost.worker, {lost.job: outcome}, inside=False, careful=careful)
        for stranger in self.workers:
            if again and stranger.id != lost.worker:
                self.finish_some(stranger.id, dict.fromkeys(again, Completed()), inside=False)
        self.finish_some(lost.worker, {lost.job: old, **again}, inside=False, careful=careful)

    @rule(by=numbers, limit=st.sampled_from([1, 2, 100]))
    def die(self, by: int, limit: int) -> None:
        """A worker dies between two statements and starts anew; its jobs are reaped, and its zombie does not know."""
        ours = {holding.job.id for holding in self.held() if holding.worker == self.workers[by].id}
        if ours:
            self.pass_time("locked_until = clock_timestamp() - interval '1 minute'", ours)
        self.restart(by)
        self.reap_some(limit, KINDS, inside=False)
        self.claim_suspects(by, limit, inside=False)

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
        """Finish held jobs; perhaps with a claim in the batch that is lost, or another's."""
        if not (held := self.held()):
            return
        worker = pick_one(held, picks[0][0]).worker
        ours = [holding for holding in held if holding.worker == worker]
        endings = {pick_one(ours, pick).job: outcome for pick, outcome in picks}
        if stale is not None:
            endings.setdefault(pick_one(self.holdings, stale).job, picks[0][1])
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
        endings = {pick_one(self.holdings, pick).job: outcome for pick, outcome in picks}
        self.finish_some(pick_one(names, by), endings, inside, careful=careful)

    @rule(
        picks=st.lists(some, min_size=1, max_size=4),
        stale=st.lists(some, max_size=2),
        by=st.none() | some,
        inside=inside,
    )
    def renew(self, picks: list[int], stale: list[int], by: int | None, inside: bool) -> None:
        if not (held := self.held()):
            return
        holdings = {*[pick_one(held, pick) for pick in picks], *[pick_one(self.holdings, pick) for pick in stale]}
        worker = pick_one(self.workers, by).id if by is not None else pick_one(held, picks[0]).worker
        self.renew_some(worker, holdings, inside)

    @rule(limit=st.sampled_from([1, 2, 100]), kinds=st.sampled_from([KINDS, KINDS[:1]]), inside=inside)
    def reap(self, limit: int, kinds: tuple[str, ...], inside: bool) -> None:
        self.reap_some(limit, kinds, inside)

    # Rules: what time does.

    @rule(picks=st.lists(some, min_size=1, max_size=3))
    def expire(self, picks: list[int]) -> None:
        if not (running := self.with_status("processing")):
            return
        ids = {pick_one(running, pick).id for pick in picks}
        self.pass_time("locked_until = clock_timestamp() - id %% 7 * interval '1 second' - interval '1 minute'", ids)

    @rule(picks=st.lists(some, min_size=1, max_size=3), seconds=st.sampled_from([0, 0, 30, 3600]))
    def make_due(self, picks: list[int], seconds: int) -> None:
        if not (waiting := [job for job in self.state.live if job.status in {"pending", "blocked"}]):
            return
        ids = {pick_one(waiting, pick).id for pick in picks}
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
            self.claim_suspects(by, 1, inside=False)
            held = {holding.job: Completed() for holding in self.held() if holding.worker == worker.id}
            if held:
                self.finish_some(worker.id, held, inside=False)
