"""Plays with events: each brings out one kind of mistake in reading the log, relaying it, or making jobs of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from labs.chaos.breaks.scene import Play
from labs.chaos.events import PARTITIONS

if TYPE_CHECKING:
    from labs.chaos.breaks.scene import Scene
    from labs.chaos.publisher import Voice

# Every partition of every subscription is held, no replica has more than a fair share, and every replica has one.
_SHARED = """
    SELECT coalesce(sum(held), 0) = %s AND coalesce(max(held), 0) <= %s
        AND (SELECT count(DISTINCT worker_id) FROM holdfast.member WHERE until > now()) = %s
    FROM (SELECT count(*) FILTER (WHERE s.name = 'out') AS held
          FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k, holdfast.position_of(s.id, k) AS p
          WHERE p.locked_by IS NOT NULL GROUP BY p.locked_by) AS w
"""
_HOLDERS = """
    SELECT array_agg(DISTINCT w.name) FROM holdfast.subscription s, generate_series(0, s.partitions - 1) AS k,
        holdfast.position_of(s.id, k) AS p LEFT JOIN holdfast.worker w ON w.id = p.locked_by WHERE s.name = 'out'
"""
_JOINED = """
    SELECT count(*) FROM holdfast.member m JOIN holdfast.worker w ON w.id = m.worker_id WHERE w.name = %s
"""
# A relay that was rung has read by then, in seconds.
READ = 0.3
ROUNDS = 7
EVENTS = 20


async def _shared(scene: Scene) -> None:
    """Wait until the partitions are shared out."""
    replicas = len(scene.replicas)
    await scene.until(_SHARED, PARTITIONS, -(-PARTITIONS // replicas), replicas, seconds=15)


def _keys(voice: Voice, count: int) -> list[str]:
    return [voice.key() for _ in range(count)]


async def broker_gone(scene: Scene) -> None:
    """Publish while the broker is gone, and kill the workers before it comes back."""
    await _shared(scene)
    voice, broker = scene.site.publisher.voice(), scene.site.ground.broker
    broker.kill()
    await voice.commit([_keys(voice, 20)])
    await scene.until("SELECT count(*) = 20 FROM holdfast.job_history WHERE kind = 'received'")
    await asyncio.sleep(READ)
    for replica in scene.replicas:
        replica.kill()
    broker.restart()
    await asyncio.gather(*(replica.restart() for replica in scene.replicas))
    await voice.close()


async def late_events(scene: Scene) -> None:
    """Publish, and commit when others have been read that were published later, or just before."""
    await _shared(scene)
    early, late = scene.site.publisher.voice(), scene.site.publisher.voice()
    for number in range(2 * ROUNDS):
        # The late one has the lower number; or the highest there is, so that a snapshot does not list it.
        first, second = (late, early) if number % 2 else (early, late)
        holds = {early: 0.06, late: 0.06 + READ}
        one = asyncio.create_task(first.commit([_keys(first, 12)], whim=holds[first]))
        await asyncio.sleep(0.02)
        await asyncio.gather(one, second.commit([_keys(second, 12)], whim=holds[second]))
    for voice in (early, late):
        await voice.close()


async def delayed_move(scene: Scene) -> None:
    """Hold back what a relay says to the server, when all it read is confirmed, until another has its partitions."""
    await _shared(scene)
    voice, broker = scene.site.publisher.voice(), scene.site.ground.broker
    slow, line = scene.replicas[0], scene.lines[0]
    broker.freeze()
    await voice.commit([_keys(voice, 40)])
    # A job of its own would stay locked, in a transaction that cannot end.
    await scene.until("SELECT count(*) = 40 FROM holdfast.job_history WHERE kind = 'received'")
    # Just after it has renewed its lease nothing else of it is on its way.
    joined = await scene.value(_JOINED, slow.name)
    await scene.until(f"SELECT ({_JOINED}) > %s", slow.name, joined)
    line.delay(30)
    broker.thaw()
    await scene.until(f"SELECT ({_HOLDERS}) = ARRAY[%s]", scene.replicas[1].name)
    await voice.commit([_keys(voice, 40)])
    await scene.until("SELECT count(*) = 80 FROM holdfast.job_history WHERE kind = 'received'", seconds=20)
    line.pass_()
    await voice.close()


async def odd_shares(scene: Scene) -> None:
    """Let more replicas take part than can have the same number of partitions."""
    await _shared(scene)
    voice = scene.site.publisher.voice()
    for _ in range(8):
        await voice.commit([_keys(voice, 250)])
        await asyncio.sleep(READ)
    await voice.close()


async def killed_while_feeding(scene: Scene) -> None:
    """Kill the workers as soon as the job of an event has ended."""
    await _shared(scene)
    voice = scene.site.publisher.voice()
    await voice.commit([_keys(voice, 10)])
    await scene.until("SELECT count(*) >= 3 FROM holdfast.job_history WHERE kind = 'received'")
    for replica in scene.replicas:
        replica.kill()
    await asyncio.gather(*(replica.restart() for replica in scene.replicas))
    await voice.close()


async def put_back(scene: Scene) -> None:
    """Put the database back to an earlier moment, while the workers live on: lost events were relayed already."""
    await _shared(scene)
    voice, received = (
        scene.site.publisher.voice(),
        "SELECT count(*) = %s FROM holdfast.job_history WHERE kind = 'received'",
    )
    await voice.commit([_keys(voice, EVENTS)])
    await scene.until(received, EVENTS)
    await scene.arrived(EVENTS)
    await voice.close()
    async with scene.undone():
        lost = scene.site.publisher.voice()
        await lost.commit([_keys(lost, EVENTS)])
        await scene.until(received, 2 * EVENTS, seconds=20)
        await scene.arrived(2 * EVENTS)
        await lost.close()
    await _shared(scene)
    again = scene.site.publisher.voice()
    await again.commit([_keys(again, EVENTS)])
    await scene.until(received, 2 * EVENTS, seconds=20)


BROKER_GONE = Play("workers are killed while the broker is gone", broker_gone, replicas=1, events=True)
LATE_EVENTS = Play("events are committed late", late_events, replicas=1, well=True, patience=8, events=True)
DELAYED_MOVE = Play("a relay is cut off before it moves on", delayed_move, patience=6, events=True)
ODD_SHARES = Play("replicas share partitions unevenly", odd_shares, replicas=3, well=True, events=True)
KILLED_WHILE_FEEDING = Play("workers are killed while events become jobs", killed_while_feeding, events=True)
PUT_BACK = Play("the database is put back to an earlier moment", put_back, patience=12, events=True)
