"""The plays: each brings out one kind of mistake, with the faults and the workloads of the lab."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from holdfast import OrderKey
from labs.chaos import application, trouble, versions
from labs.chaos.breaks import kinds
from labs.chaos.breaks.scene import LOOK_EVERY, Play
from labs.chaos.faults import identity, server_clock
from labs.chaos.faults.notification import forge
from labs.chaos.faults.server import terminate
from labs.chaos.ground import value
from labs.chaos.pace import Pace
from labs.chaos.producer import STEPS, Promised
from labs.chaos.trouble import GRACE

if TYPE_CHECKING:
    from labs.chaos.breaks.scene import Scene

# Of a probe that was overlooked, so much is enough to see that it was, in seconds.
OVERLOOKED = 2.6
# Endings that no lock delays are written within this time, the runs and their start included, in seconds.
AT_ONCE = 3.0
# A worker that has been alive for so long, in seconds, can be relied on to read what others cannot.
LONG_ALIVE = 6.0
# More jobs than there are slots.
CROWDED = 500
# Handlers that take longer than PACE_SECONDS of slots.py do not count for the pace: claims stay as small as they are.
UNPACED = 0.12
SLOW = Pace(lease=4.0, heartbeat=0.8, reap=0.4)


async def outlived(scene: Scene) -> None:
    """Let a run ignore its max_runtime, and complete when its own worker already runs the job again."""
    await scene.promise(Promised(kinds.stubborn.new(), "ledger"))


async def token_issued_twice(scene: Scene) -> None:
    """Crash the server just after a claim that was committed asynchronously; another worker gets the same token."""
    site = scene.site
    first, second = scene.replicas
    for replica in scene.replicas:
        replica.stop()
    # A sequence writes ahead: only when that is used up does the next token need the log, and can be lost.
    # Tokens do not go on from a clock that is behind them.
    await scene.value("SELECT setval('holdfast.token', 9000000000000000)")
    (job,) = await scene.promise(Promised(kinds.stubborn.new(again=1.5, zombie=first.name), "ledger"))
    first.cont()
    await scene.until("SELECT locked_by IS NOT NULL FROM holdfast.job WHERE id = %s", job)
    await asyncio.to_thread(site.ground.primary.crash)
    first.stop()
    await site.ground.primary.open()
    second.cont()
    scene.conn = await site.ground.admin()
    await scene.until(
        "SELECT EXISTS (SELECT FROM holdfast.job j JOIN holdfast.worker w ON w.id = j.locked_by"
        " WHERE j.id = %s AND w.name = %s)",
        job,
        second.name,
    )
    first.cont()
    await scene.ended(job, seconds=10)
    await scene.conn.close()


async def slow_commit(scene: Scene) -> None:
    """Complete, and be slow to commit, beyond the end of the lease; another worker dies, and its job is taken back."""
    (slow,) = await scene.promise(Promised(kinds.linger.new(8.0), "ledger"))
    lingering = await scene.holder(slow)
    for _ in range(100):
        (job,) = await scene.promise(Promised(application.plain.new(2.0), "plain"))
        if (other := await scene.holder(job)) is not lingering:
            other.kill()
            break
    taken = "SELECT NOT EXISTS (SELECT FROM holdfast.job WHERE id = %s AND status = 'processing' AND attempt = 1)"
    await scene.until(taken, job, seconds=scene.site.lease + 2)


async def weeks_ahead(scene: Scene) -> None:
    """Let the server's clock be weeks ahead: days of history expire, and a worker dies that holds jobs until then."""
    done = await scene.promise(*[Promised(application.plain.new(0.0), "plain") for _ in range(4)])
    for job in done:
        await scene.ended(job, seconds=10)
    await scene.promise(*[Promised(application.plain.new(5.0), "plain") for _ in range(8)])
    await scene.conn.close()
    async with server_clock.WEEKS_AHEAD.strike(scene.site, random.Random(1)), await scene.site.ground.admin() as conn:
        await conn.execute("SELECT holdfast.drop_partition(e.part) FROM holdfast.expired_partitions(100) AS e")
    scene.conn = await scene.site.ground.admin()


async def busy_leases(scene: Scene) -> None:
    """Run for longer than a lease, which the worker renews."""
    await scene.promise(*[Promised(application.plain.new(2.6), "plain") for _ in range(6)])


async def blocked_loop(scene: Scene) -> None:
    """Keep the event loop from everybody for longer than a lease."""
    await scene.promise(Promised(kinds.block.new(3.0), "plain"))


async def stumbling(scene: Scene) -> None:
    """Let jobs fail once."""
    await scene.promise(*[Promised(application.plain.new(0.05, stumbles=True), "plain") for _ in range(10)])


async def crowd(scene: Scene) -> None:
    """Let several replicas be after the same jobs, again and again."""
    for _ in range(8):
        await scene.promise(*[Promised(application.plain.new(), "plain") for _ in range(250)])


async def row_locked(scene: Scene) -> None:
    """Keep a job that is due locked; it is not the only one."""
    (job,) = await scene.promise(Promised(application.plain.new().options(delay=timedelta(seconds=1)), "plain"))
    async with scene.locked(job):
        await scene.probe_every(0.25, times=22)


async def gentle_stop(scene: Scene) -> None:
    """Stop a worker gently, with jobs that take longer than it may wait for them."""
    jobs = await scene.promise(*[Promised(application.plain.new(3.0), "plain") for _ in range(24)])
    await scene.until("SELECT count(*) = 24 FROM holdfast.job WHERE id = ANY (%s) AND status = 'processing'", jobs)
    await (await scene.holder(jobs[0])).terminate()


async def late_commit(scene: Scene) -> None:
    """Enqueue, and commit much later; others of the same kind overtake it, and go on coming."""
    late = asyncio.create_task(scene.probe(held=1.5, how="late"))
    for _ in range(80):
        await scene.probe()
        if late.done() and await scene.ended(late.result(), seconds=0.1):
            return
        await asyncio.sleep(0.1)


async def drowsy(scene: Scene) -> None:
    """Enqueue a little later each time, as the worker, far away, is about to fall asleep."""
    scene.lines[0].delay(0.06)
    for number in range(14):
        job = await scene.probe()
        if not await scene.ended(job, seconds=OVERLOOKED):
            return
        await asyncio.sleep(0.035 * number)


async def falling_asleep(scene: Scene) -> None:
    """Enqueue while the worker is awake, and commit when it sleeps."""
    scene.lines[0].delay(0.06)
    for number in range(8):
        await scene.ended(await scene.probe(), seconds=OVERLOOKED)
        await asyncio.sleep(0.03 * (number % 4))
        job = await scene.probe(held=0.9)
        if not await scene.ended(job, seconds=OVERLOOKED):
            return


async def stumbling_keys(scene: Scene) -> None:
    """Let the heads of some keys fail once."""
    for place in range(1, 6):
        await scene.promise(
            *[
                Promised(
                    application.keyed.new(0.02, stumbles=place == 1).options(order_key=OrderKey(f"key.{n}")),
                    "keyed",
                    place,
                    f"key.{n}",
                )
                for n in range(4)
            ]
        )


async def two_enders(scene: Scene) -> None:
    """Let two chains that a job comes after end in the same moment."""
    ids = await scene.promise(*[Promised(kinds.linger.new(0.8), "ledger") for _ in range(2)])
    await scene.promise(Promised(application.join.new().options(after=ids), "join", key=",".join(map(str, ids))))


async def many_wait(scene: Scene) -> None:
    """Let more jobs wait for one chain than one statement releases; kill the workers when it has ended."""
    (chain,) = await scene.promise(Promised(kinds.bulky.new(1.0), "plain"))
    waits = Promised(application.join.new().options(after=[chain]), "join", key=str(chain))
    await scene.promise(*[waits] * 1_500)
    await scene.until("SELECT EXISTS (SELECT FROM holdfast.kept_end WHERE chain_id = %s)", chain)
    for replica in scene.replicas:
        replica.kill()
    await asyncio.gather(*(replica.restart() for replica in scene.replicas))


async def killed_in_chains(scene: Scene) -> None:
    """Kill all workers as soon as a chain has gone on."""
    await scene.promise(*[Promised(application.step.new(STEPS - 1, seconds=0.1), "chain") for _ in range(6)])
    await scene.until("SELECT count(*) >= 3 FROM holdfast.job_history WHERE kind = 'step' AND payload ->> 'left' = '1'")
    for replica in scene.replicas:
        replica.kill()
    await asyncio.gather(*(replica.restart() for replica in scene.replicas))


async def busy_rows(scene: Scene) -> None:
    """Keep rows locked in the moment in which their handlers are done."""
    # The first job of a worker takes longer: because of that the handlers must not outlast the locks.
    await scene.ended(*await scene.promise(Promised(application.plain.new(), "plain")), seconds=10)
    jobs = await scene.promise(*[Promised(application.plain.new(0.6), "plain") for _ in range(4)])
    await scene.until("SELECT count(*) = 4 FROM holdfast.job WHERE id = ANY (%s) AND status = 'processing'", jobs)
    async with scene.locked(*jobs):
        await asyncio.sleep(1.4)


async def held_up(scene: Scene) -> None:
    """Keep the unique key of what follows, in an open transaction, for longer than a handler may run; others end."""
    async with await scene.site.ground.admin() as conn, conn.transaction(force_rollback=True):
        await conn.execute("SELECT holdfast.enqueue('break.follow', queue => 'plain', unique_key => %s)", [kinds.HELD])
        innocent = [Promised(application.plain.new(0.6), "plain") for _ in range(20)]
        _, *jobs = await scene.promise(Promised(kinds.go_on.new(0.5), "plain"), *innocent)
        written = "SELECT count(*) = 20 FROM holdfast.job_history WHERE id = ANY (%s)"
        await scene.until(written, jobs, seconds=AT_ONCE)
        await asyncio.sleep(kinds.BRIEFLY.total_seconds() + scene.site.lease + 0.5)


_SPOILT = """
CREATE TABLE chaos.kept AS SELECT 1 AS id;
CREATE FUNCTION chaos.spoil() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN {} RETURN NEW; END $$;
CREATE TRIGGER spoil BEFORE INSERT ON holdfast.job_history FOR EACH ROW WHEN (NEW.kind = 'break.spoilt')
    EXECUTE FUNCTION chaos.spoil()
"""


async def unwritable(scene: Scene, spoil: str) -> None:
    """Let one outcome of many be impossible to write; others end with it, and after it until it is given up."""
    await scene.conn.execute(_SPOILT.format(spoil).encode())
    # Until the oracle has judged.
    await scene.conn.execute("BEGIN")
    await scene.conn.execute("SELECT FROM chaos.kept FOR UPDATE")
    # The first job of a worker takes longer.
    await scene.ended(*await scene.promise(Promised(application.plain.new(), "plain")), seconds=10)
    culprit, *jobs = await scene.promise(
        Promised(kinds.spoilt.new(0.5), "spoilt", expected="failed"),
        *[Promised(application.plain.new(0.5), "plain") for _ in range(15)],
    )
    written = "SELECT count(*) = 15 FROM holdfast.job_history WHERE id = ANY (%s)"
    await scene.until(written, jobs, seconds=AT_ONCE)
    for _ in range(100):
        innocent = await scene.promise(Promised(application.plain.new(), "plain"))
        if not await scene.ended(*innocent, seconds=AT_ONCE) or await scene.ended(culprit, seconds=0.1):
            return


async def cut_off(scene: Scene) -> None:
    """Cut the line of a worker for longer than its lease, in the middle of a long job."""
    (job,) = await scene.promise(Promised(kinds.patient.new(4.5), "plain"))
    line = scene.lines[scene.replicas.index(await scene.holder(job))]
    line.refuse()
    await asyncio.sleep(5.5)
    line.pass_()


async def poison(scene: Scene) -> None:
    """Let a job kill its process every time, with others beside it."""
    with scene.site.fleet.expecting(trouble.EXIT_CODE):
        killer = trouble.poisons.new().options(max_attempts=4)
        jobs = await scene.promise(
            Promised(killer, "trouble", key="crashed_alone", expected="failed"),
            *[Promised(application.plain.new(1.0), "plain") for _ in range(8)],
        )
        await scene.ended(*jobs, seconds=120)


async def many_queues(scene: Scene) -> None:
    """Enqueue in the last of many queues: at first there is nothing else to do, then always more than can be done."""
    last = application.RARE[-3:]
    # More slots than claims of one job can fill, so that the queue always wants more.
    await scene.conn.execute("INSERT INTO holdfast.queue (name, concurrency) VALUES ('plain', 1000)")
    for queue in last:
        if not await scene.ended(await scene.probe(queue), seconds=OVERLOOKED):
            return
    crowding = asyncio.create_task(_crowd(scene))
    try:
        await scene.until("SELECT count(*) >= %s FROM holdfast.job", CROWDED)
        for queue in last:
            if not await scene.ended(await scene.probe(queue), seconds=OVERLOOKED):
                return
    finally:
        crowding.cancel()
        await asyncio.gather(crowding, return_exceptions=True)


async def _crowd(scene: Scene) -> None:
    """See to it that there is always more in the first queues than can be done."""
    async with await scene.site.ground.admin() as conn:
        while True:
            if await value(conn, "SELECT count(*) < %s FROM holdfast.job", CROWDED):
                await scene.promise(*[Promised(application.plain.new(UNPACED), "plain")] * (CROWDED // 2))
            await asyncio.sleep(LOOK_EVERY)


async def two_versions(scene: Scene) -> None:
    """Leave old jobs with a new payload to a worker that cannot read it, for longer than the grace; another could."""
    able, _ = scene.replicas
    await asyncio.sleep(LONG_ALIVE)
    able.stop()
    promised = [Promised(versions.newer.new("newest"), "version", expected="either") for _ in range(8)]
    await scene.promise(*promised)
    await scene.until("SELECT count(*) > 0 FROM holdfast.attempt")
    # A sound build makes no dead letter, however long this takes; a broken one makes it soon after the grace.
    with suppress(TimeoutError):
        await scene.until("SELECT count(*) > 0 FROM holdfast.job_failed", seconds=5 * GRACE)
    continued_at = await scene.value("SELECT clock_timestamp()")
    able.cont()
    # By its heartbeat the oracle sees that it was alive all along.
    await scene.until("SELECT heartbeat_at > %s FROM holdfast.worker WHERE name = %s", continued_at, able.name)


async def given_away(scene: Scene) -> None:
    """Let another worker have the id of one that works, and run jobs under it."""
    site = scene.site
    other = await identity.give_away(site, scene.replicas[0].name)
    await terminate(site, share=1)
    # A sound build registers anew and takes none of them, however long this takes. A broken one takes them when it has
    # connected again, which may take long on a busy machine.
    taken = "SELECT count(*) < %s FROM holdfast.job WHERE id = ANY (%s) AND lock_token = %s"
    registered = "EXISTS (SELECT FROM holdfast.worker WHERE name = %s)"
    held = len(other.jobs), other.jobs, other.token
    with suppress(TimeoutError):
        await scene.until(f"SELECT ({taken}) OR {registered}", *held, scene.replicas[0].name, seconds=40)
        await scene.until(taken, *held, seconds=8)
    await identity.end(site, other)


async def singletons(scene: Scene) -> None:
    """Let several replicas have the same singleton runner."""
    await scene.until("SELECT count(*) >= 8 FROM chaos.singleton WHERE what = 'ended'", seconds=20)


async def forged(scene: Scene) -> None:
    """Let a stranger say that what runs is lost or called off."""
    jobs = await scene.promise(*[Promised(application.plain.new(1.5), "plain") for _ in range(8)])
    await scene.until("SELECT count(*) = 8 FROM holdfast.job WHERE id = ANY (%s) AND status = 'processing'", jobs)
    await forge(scene.site, random.Random(1))


async def finisher_ends(scene: Scene) -> None:
    """End what writes the endings, while jobs run."""
    jobs = await scene.promise(*[Promised(application.plain.new(0.3), "plain") for _ in range(8)])
    await scene.until("SELECT count(*) = 8 FROM holdfast.job WHERE id = ANY (%s) AND status = 'processing'", jobs)
    for replica in scene.replicas:
        replica.strike("finisher")
    await scene.promise(*[Promised(application.plain.new(), "plain") for _ in range(20)])


OUTLIVED = Play("a run outlives its lease and completes", outlived, replicas=1, patience=14)
TOKEN_ISSUED_TWICE = Play(
    "a token is issued twice",
    token_issued_twice,
    options="-c synchronous_commit=off",
    environment={kinds.RUNNER: "gone"},
    patience=10,
)
SLOW_COMMIT = Play("a commit takes longer than a lease", slow_commit, pace=SLOW, patience=16)
WEEKS_AHEAD = Play("the server's clock is weeks ahead, and a worker dies", weeks_ahead, patience=16)
BUSY_LEASES = Play("handlers take longer than a lease", busy_leases, well=True, patience=6)
BLOCKED_LOOP = Play("a handler blocks the event loop", blocked_loop, well=True, patience=7)
STUMBLING = Play("jobs fail once", stumbling, patience=10)
CROWD = Play("replicas crowd around few jobs", crowd, replicas=3, well=True, patience=6)
ROW_LOCKED = Play("a due job is locked", row_locked, replicas=1, pace=SLOW, patience=4)
GENTLE_STOP = Play("a worker is stopped gently", gentle_stop, patience=10)
LATE_COMMIT = Play("a commit comes late", late_commit, replicas=1, patience=0.5)
DROWSY = Play("jobs come as a worker falls asleep", drowsy, replicas=1, patience=0.5)
FALLING_ASLEEP = Play("a commit comes when a worker has fallen asleep", falling_asleep, replicas=1, patience=0.5)
STUMBLING_KEYS = Play("heads of keys fail once", stumbling_keys, patience=10)
TWO_ENDERS = Play("two chains end at once", two_enders, patience=5)
MANY_WAIT = Play("more jobs wait for a chain than one statement releases", many_wait, patience=30)
KILLED_IN_CHAINS = Play("workers are killed between two steps of a chain", killed_in_chains, patience=8)
BUSY_ROWS = Play("rows are locked when their handlers end", busy_rows, replicas=1, well=True, patience=6)
HELD_UP = Play("a session locks a row that one ending needs", held_up, replicas=1, pace=SLOW, well=True, patience=8)
UNWRITABLE = {
    name: Play(
        f"an outcome cannot be written: {name}",
        partial(unwritable, spoil=spoil),
        replicas=1,
        pace=SLOW,
        well=True,
        patience=8,
        environment={kinds.SPOILS: "server" if spoil else "client"},
    )
    for name, spoil in kinds.SPOILT.items()
}
FORGED = Play("a stranger sends notifications", forged, replicas=1, well=True, patience=8)
FINISHER_ENDS = Play("the loop that writes endings ends", finisher_ends, replicas=1, well=True, patience=8)
CUT_OFF = Play("a worker is cut off from the server", cut_off, patience=8)
MANY_QUEUES = Play(
    "more queues than a claim takes jobs",
    many_queues,
    replicas=1,
    patience=30,
    environment={"HOLDFAST_BATCH_SIZE": "1"},
)
TWO_VERSIONS = Play("a worker cannot read a new payload", two_versions, patience=8)
GIVEN_AWAY = Play("a worker's id is given to another", given_away, patience=8)
POISON = Play("a job kills its process every time", poison, replicas=1, patience=2)
SINGLETONS = Play(
    "replicas share a singleton", singletons, replicas=3, patience=0.5, environment={kinds.RUNNER: "busy"}
)
