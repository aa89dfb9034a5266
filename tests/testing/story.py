"""The test that every kind of connection must pass: enqueue, inspect, run, advance time, run again."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job, OrderKey, Retry, Unique

if TYPE_CHECKING:
    from holdfast import NewJob
    from holdfast.testing import Drained, Testing

HOUR = timedelta(hours=1)


@dataclass
class Story:
    """An application, what its handlers did, and the jobs that a test enqueues."""

    app: Holdfast = field(default_factory=Holdfast)
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        @self.app.job("async", queue="a")
        async def on_loop(job: Job[None], name: str) -> str:
            self.ran.append(name)
            return name

        @self.app.job("plain", retry=Retry(max_attempts=2))
        def plain(job: Job[None], name: str) -> str:
            self.ran.append(name)
            if name == "fails":
                raise RuntimeError("it fails")
            return name

        key = OrderKey("k")
        self.first = on_loop.new("first").options(order_key=key)
        self.second = plain.new("second").options(order_key=key)
        self.later = plain.new("later").options(delay=HOUR, unique=Unique("u", window=timedelta(days=30)))
        self.fails = plain.new("fails")
        self.alone = on_loop.new("alone").options(delay=HOUR, headers={"é": "ü"})

    @property
    def jobs(self) -> list[NewJob[Any]]:
        return [self.first, self.second, self.later, self.fails]

    async def report(self, kit: Testing) -> None:
        conn: Any = kit.connection
        for job in self.jobs:
            await self.app.enqueue(conn, job)
            await kit.assert_enqueued(job)
        assert not (await self.app.enqueue(conn, self.later)).created
        self.check_first(await kit.drain(raise_errors=False))
        assert (await kit.run_job(self.alone)).result == "alone"
        await kit.travel(HOUR)
        self.check_second(await kit.drain(raise_errors=False))
        await kit.travel(timedelta(days=30))
        assert (await self.app.enqueue(conn, self.later)).created
        await kit.assert_enqueued(self.later, times=1)

    def report_sync(self, kit: Testing) -> None:
        conn: Any = kit.connection
        for job in self.jobs:
            self.app.sync.enqueue(conn, job)
            kit.sync.assert_enqueued(job)
        assert not self.app.sync.enqueue(conn, self.later).created
        self.check_first(kit.sync.drain(raise_errors=False))
        assert kit.sync.run_job(self.alone).result == "alone"
        kit.sync.travel(HOUR)
        self.check_second(kit.sync.drain(raise_errors=False))
        kit.sync.travel(timedelta(days=30))
        assert self.app.sync.enqueue(conn, self.later).created
        kit.sync.assert_enqueued(self.later, times=1)

    def check_first(self, drained: Drained) -> None:
        assert [ran.result for ran in drained if ran.outcome == "completed"] == ["first", "second"]
        assert len(drained.retried) == 1
        self.ran.clear()

    def check_second(self, drained: Drained) -> None:
        assert self.ran == ["alone", "fails", "later"], "in the order in which they came due"
        assert (len(drained.completed), len(drained.failed)) == (1, 1)
