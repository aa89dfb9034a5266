"""A stage for short plays: one server, and for each play a new database, a few replicas and a line to each."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import psycopg

from labs.chaos import events
from labs.chaos.breaks import SOUND
from labs.chaos.breaks.mistake import NOTE
from labs.chaos.breaks.patches import PATCHES
from labs.chaos.evidence import Evidence, gather, note_arrivals
from labs.chaos.fault import Site
from labs.chaos.fleet import Fleet
from labs.chaos.ground import DATABASE, USER, Ground, connect, value
from labs.chaos.oracle import Violation, judge
from labs.chaos.pace import Pace
from labs.chaos.prober import Probe, rare, urgent
from labs.chaos.producer import Producer, Promised
from labs.chaos.proxy import Proxy
from labs.chaos.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from types import TracebackType

    from labs.chaos.broker import Arrival
    from labs.chaos.fleet import Replica
    from labs.chaos.prober import How

CLEAN = "clean"
SAVED = "saved"
LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Play:
    """The events of one scene, such that no check finds anything in a sound build."""

    name: str
    act: Callable[[Scene], Awaitable[None]]
    replicas: int = 2
    pace: Pace = field(default_factory=Pace)
    well: bool = False
    """Nothing happens to any worker: no lease may run out."""
    patience: float = 8.0
    """Seconds after the act within which every job must have ended."""
    options: str = ""
    """Settings of the workers' sessions."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the workers."""
    events: bool = False
    """Whether events are published in it: replicas relay and receive them, and the broker's stream is new."""


@dataclass(slots=True)
class Scene:
    """The things that an act may use."""

    site: Site
    lines: list[Proxy]
    """To the server, one for each replica."""
    conn: psycopg.AsyncConnection[Any]
    """Straight to the server, as superuser."""
    probes: list[Probe] = field(default_factory=list)
    lost: range = range(0)
    """The places of the broker's stream whose events the database has lost."""
    seen: list[Violation] = field(default_factory=list)
    """The violations that the act itself saw."""

    @property
    def replicas(self) -> list[Replica]:
        return self.site.fleet.replicas

    async def promise(self, *promised: Promised) -> list[int]:
        return await self.site.load.promise(*promised)

    def note(self, check: str, case: str) -> None:
        """Note a violation that no check finds afterwards."""
        self.seen.append(Violation(check, 1, (case,)))

    async def value(self, query: str, *params: object) -> Any:
        return await value(self.conn, query, *params)

    async def until(self, query: str, *params: object, seconds: float = 10) -> None:
        """Wait until the query answers true."""
        deadline = time.monotonic() + seconds
        while not await self.value(query, *params):
            if time.monotonic() > deadline:
                raise TimeoutError(f"it did not become true within {seconds} s: {query}")
            await asyncio.sleep(LOOK_EVERY)

    async def probe(self, queue: str | None = None, *, held: float = 0, how: How = "at once") -> int:
        """Send a probe whose transaction is open for so long; with a queue, a rare one."""
        lane = self.site.load.lane()
        promised, how = (urgent(), how) if queue is None else (rare(queue), "rare")
        ids = await lane.commit([promised], whim=held)
        assert ids is not None
        self.probes.append(Probe(ids[0], how, time.monotonic()))
        await lane.close()
        return ids[0]

    async def probe_every(self, seconds: float, *, times: int) -> None:
        for _ in range(times):
            await self.probe()
            await asyncio.sleep(seconds)

    async def ended(self, *jobs: int, seconds: float) -> bool:
        """Tell whether these end within that time."""
        deadline = time.monotonic() + seconds
        while await self.value("SELECT count(*) FROM holdfast.job WHERE id = ANY (%s)", list(jobs)):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_EVERY)
        return True

    async def holder(self, job: int) -> Replica:
        """Return the worker that holds the job, once one does."""
        await self.until("SELECT EXISTS (SELECT FROM holdfast.job WHERE id = %s AND locked_by > 0)", job)
        name = await self.value(
            "SELECT w.name FROM holdfast.job j JOIN holdfast.worker w ON w.id = j.locked_by WHERE j.id = %s", job
        )
        return next(replica for replica in self.replicas if replica.name == name)

    @asynccontextmanager
    async def locked(self, *jobs: int) -> AsyncGenerator[None, None]:
        """Keep the rows of these jobs locked, as an open transaction of another session would."""
        async with await self.site.ground.admin() as conn, conn.transaction():
            await conn.execute("SELECT FROM holdfast.job WHERE id = ANY (%s) ORDER BY id FOR UPDATE", [list(jobs)])
            yield

    async def arrived(self, count: int, *, seconds: float = 10) -> None:
        """Wait until so many events have arrived in the broker's stream."""
        deadline = time.monotonic() + seconds
        while await self.site.ground.broker.count() < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{count} events did not arrive within {seconds} s")
            await asyncio.sleep(LOOK_EVERY)

    @asynccontextmanager
    async def undone(self) -> AsyncGenerator[None, None]:
        """Put the database back to the moment before the block, as a restore does, and the notes of the lab with it."""
        ground, tally = self.site.ground, self.site.load.tally
        before, acknowledged = await ground.broker.count(), dict(tally.acknowledged)
        sizes = {path: path.stat().st_size for path in self.site.folder.iterdir() if path.is_file()}
        await self.conn.close()
        async with await connect(ground.primary.url()) as server:
            await server.execute(f"DROP DATABASE IF EXISTS {SAVED}")
            await _end_sessions(server)
            await server.execute(f"CREATE DATABASE {SAVED} TEMPLATE {DATABASE} OWNER {USER}")
            await server.execute(f"ALTER DATABASE {DATABASE} ALLOW_CONNECTIONS true")
            self.conn = await ground.admin()
            yield
            await self.conn.close()
            self.lost = range(before, await ground.broker.count())
            await _end_sessions(server)
            await server.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
            for path in self.site.folder.iterdir():
                if path.is_file():
                    os.truncate(path, sizes.get(path, 0))
            tally.acknowledged = acknowledged
            await server.execute(f"ALTER DATABASE {SAVED} RENAME TO {DATABASE}")
        self.conn = await ground.admin()


class Stage:
    """`async with` builds it: one server, for many plays."""

    def __init__(self) -> None:
        self._ground = Ground(standby=False)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._ground)
            await self._command(f"ALTER DATABASE {DATABASE} RENAME TO {CLEAN}")
            # So that a crash loses what was committed asynchronously just before.
            await self._command("ALTER SYSTEM SET wal_writer_delay = '10s'")
            await self._command("SELECT pg_reload_conf()")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def play(
        self, play: Play, build: str = SOUND, prepare: Callable[[psycopg.Connection[Any]], None] | None = None
    ) -> list[Violation]:
        """Let a build go through a play, and answer with what the oracle says."""
        await self._command(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        await self._command(f"CREATE DATABASE {DATABASE} TEMPLATE {CLEAN} OWNER {USER}")
        if prepare is not None:
            await asyncio.to_thread(self._prepare, prepare)
        folder = Path(tempfile.mkdtemp(prefix="holdfast-break-"))
        try:
            return await self._play(play, build, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _play(self, play: Play, build: str, folder: Path) -> list[Violation]:
        async with AsyncExitStack() as stack:
            environment = {"HOLDFAST_CHAOS_BREAK": build, "CHAOS_LOG_LEVEL": "ERROR", **play.environment}
            broker = self._ground.broker
            environment[events.VARIABLE] = broker.url if play.events else ""
            if play.events:
                await broker.empty()
            fleet = Fleet(self._ground, play.pace, folder, replicas=play.replicas, environment=environment)
            lines = [stack.enter_context(Proxy(self._ground.primary.port)) for _ in fleet.replicas]
            for replica, line in zip(fleet.replicas, lines, strict=True):
                replica.environment |= {"CHAOS_URL": _url(line, play.options), "HOLDFAST_LISTEN": "true"}
            load = Producer(self._ground, 0, random.Random(0))
            publisher = Publisher(load, random.Random(0))
            site = Site(self._ground, fleet, load, publisher, play.pace, folder, quiet=True)
            conn = await stack.enter_async_context(await self._ground.admin())
            scene = Scene(site, lines, conn)
            async with fleet:
                begun = time.monotonic()
                async with load:
                    try:
                        await play.act(scene)
                    except TimeoutError as stuck:
                        scene.note("the play could not go on", str(stuck))
                    if play.events:
                        await self._delivered(play.patience)
                    await self._drained(play.patience)
                calm = [(begun, time.monotonic())]
                for replica in fleet.replicas:
                    replica.kill()
            if build in PATCHES and not (folder / NOTE).exists():
                return [Violation("the mistake was not made", 1, ())]
            arrivals = [one for one in await broker.arrivals() if one.place not in scene.lost] if play.events else []
            return scene.seen + await asyncio.to_thread(self._judge, scene, play, calm, arrivals)

    async def _drained(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        async with await self._ground.admin() as conn:
            while time.monotonic() < deadline:
                if not await value(conn, "SELECT count(*) FROM holdfast.job"):
                    return
                await asyncio.sleep(LOOK_EVERY)

    async def _delivered(self, patience: float) -> None:
        """Return when every event has arrived and made its job, or when that takes too long."""
        deadline = time.monotonic() + patience
        async with await self._ground.admin() as conn:
            while time.monotonic() < deadline:
                published = await value(conn, "SELECT count(*) FROM chaos.published")
                received = await value(conn, "SELECT count(*) FROM holdfast.job_history WHERE kind = 'received'")
                if min(received, await self._ground.broker.count()) >= published:
                    return
                await asyncio.sleep(LOOK_EVERY)

    def _judge(
        self, scene: Scene, play: Play, calm: list[tuple[float, float]], arrivals: list[Arrival]
    ) -> list[Violation]:
        with psycopg.connect(self._ground.admin_url(), autocommit=True) as conn:
            note_arrivals(conn, arrivals)
            gather(conn, scene.site.folder)
            site = scene.site
            return judge(
                Evidence(
                    conn,
                    site.load.tally.acknowledged,
                    deaths=site.fleet.deaths,
                    probes=scene.probes,
                    calm=calm,
                    well=play.well,
                )
            )

    async def _command(self, text: str) -> None:
        async with await psycopg.AsyncConnection.connect(self._ground.primary.url(), autocommit=True) as conn:
            await conn.execute(text.encode())

    def _prepare(self, prepare: Callable[[psycopg.Connection[Any]], None]) -> None:
        with psycopg.connect(self._ground.admin_url(), autocommit=True) as conn:
            prepare(conn)


async def _end_sessions(server: psycopg.AsyncConnection[Any]) -> None:
    """End all sessions of the database and refuse new ones, so that it can be copied or dropped."""
    await server.execute(f"ALTER DATABASE {DATABASE} ALLOW_CONNECTIONS false")
    query = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
    await server.execute(query, [DATABASE])


def _url(line: Proxy, options: str) -> str:
    settings = f"&options={quote(options)}" if options else ""
    return f"postgresql://{USER}@127.0.0.1:{line.port}/{DATABASE}?target_session_attrs=read-write{settings}"
