"""Enqueueing: one job per transaction against a plain insert of the same row, and many at once against COPY."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Holdfast
from holdfast._model.new_job import Envelope, NewJob
from labs.bench.cpu import time_on_cpu
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import connected, ground, progress
from labs.bench.load import KIND, PAYLOAD
from labs.bench.pgbench import transactions_per_second
from labs.bench.plain import Plain
from labs.bench.watch import Watch, alternate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from labs.bench.ground import Ground

CPU = 1.25
SINGLE = 0.9
PYTHON = 0.8
MANY = 0.8
CALLS = 600
"""How often each call is made when the processor time of its backend is measured."""
CLIENTS = 16
SLICE = 8
"""Seconds. In shorter ones, the first call of each client, which compiles the function, is a good part."""
SLICES = 4
CHUNKS = {1_000: 60, 5_000: 16}
"""How often so many jobs are enqueued at once."""

# The statement that `app.enqueue` sends for a job without special options.
_OURS = f"SELECT holdfast.enqueue('{KIND}', '{PAYLOAD}', 'default', 5, 3)"
_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_TRACED = f"""{_OURS[:-1]}, headers => '{{"traceparent":"{_TRACE}"}}')"""
_COLUMNS = "created_at, available_at, shard, queue, kind, payload"
_INSERT = f"""
    INSERT INTO plain.job ({_COLUMNS})
    VALUES (clock_timestamp(), clock_timestamp(), 7, 'default', '{KIND}', '{PAYLOAD}') RETURNING id
"""
_FROM_PYTHON = f"""
    INSERT INTO plain.job ({_COLUMNS})
    VALUES (clock_timestamp(), clock_timestamp(), 7, %(queue)s, %(kind)s, %(payload)s) RETURNING id
"""
_PUBLISH = f"SELECT holdfast.publish('{KIND}', '{PAYLOAD}')"
_INSERT_EVENT = f"""
    INSERT INTO plain.event (id, published_at, xid, shard, topic, payload)
    VALUES (nextval('holdfast.event_id_seq'), clock_timestamp(), pg_current_xact_id(), 7, '{KIND}', '{PAYLOAD}')
    RETURNING id
"""
# As many jobs as one day's worth of slices leave would fill the disk; each slice begins with empty tables.
_EMPTY = "TRUNCATE holdfast.job, plain.job"


def measure(scale: float) -> Section:
    with ground() as base, base.database() as url, connected(url) as conn:
        Plain(conn).create()
        cpu = _cpu(conn, max(100, round(CALLS * scale)))
        slices = max(3, round(SLICES * scale))
        rates = _by_turns(base, url, conn, slices)
        from_python = asyncio.run(_python_by_turns(url, conn, slices))
        figures = [
            Figure("one job, CPU of the backend, against INSERT", cpu["enqueue"] / cpu["INSERT"], limit=CPU),
            Figure("one job with a trace, the same", cpu["traced"] / cpu["INSERT"]),
            Figure("one event, the same", cpu["publish"] / cpu["INSERT of an event"]),
            Figure("16 clients, one job per transaction, against INSERT", ratio(rates), least=SINGLE),
            Figure("the same from Python", ratio(from_python), least=PYTHON),
        ]
        rows = [
            ("16 clients of pgbench, one job per transaction", f"{median(rates[1]):,.0f}", f"{median(rates[0]):,.0f}"),
            ("16 asyncio tasks, the same", f"{median(from_python[1]):,.0f}", f"{median(from_python[0]):,.0f}"),
        ]
        for chunk, times in CHUNKS.items():
            progress(f"enqueue: {chunk:,} at once")
            watch = _many_by_turns(conn, chunk, max(4, round(times * scale)))
            copied, enqueued = watch.median("copy"), watch.median("ours")
            figures.append(Figure(f"enqueue_many, {chunk:,} at once, against COPY", copied / enqueued, least=MANY))
            figures.append(Figure("the same, against COPY of one ready text", watch.median("text") / enqueued))
            rows.append((f"{chunk:,} at once", f"{chunk / copied:,.0f}", f"{chunk / enqueued:,.0f}"))
    tables = [
        table(("jobs/s", "INSERT or COPY", "ours"), rows),
        table(("CPU of the backend", "µs a call"), [(name, f"{1e6 * spent:.0f}") for name, spent in cpu.items()]),
    ]
    return Section(figures, tables)


def _cpu(conn: psycopg.Connection[Any], calls: int) -> dict[str, float]:
    """Return the median processor time of a call in its backend, in seconds. The order of the calls is random."""
    conn.execute("CREATE TABLE plain.event (LIKE holdfast.event INCLUDING ALL)")
    conn.execute("SET synchronous_commit = off")
    statements = {
        "INSERT": _INSERT,
        "enqueue": _OURS,
        "traced": _TRACED,
        "INSERT of an event": _INSERT_EVENT,
        "publish": _PUBLISH,
    }
    spent: dict[str, list[float]] = {name: [] for name in statements}
    names, order = list(statements), random.Random(1)
    for _ in range(calls):
        order.shuffle(names)
        for name in names:
            before = time_on_cpu(conn.info.backend_pid)
            conn.execute(statements[name]).fetchone()
            spent[name].append(time_on_cpu(conn.info.backend_pid) - before)
    conn.execute("RESET synchronous_commit")
    # The first calls plan their statements.
    return {name: median(seconds[20:]) for name, seconds in spent.items()}


def ratio(rates: tuple[list[float], list[float]]) -> float:
    """Return the median over neighbouring slices of ours against theirs."""
    return median(ours / theirs for ours, theirs in zip(*rates, strict=True))


def _by_turns(base: Ground, url: str, conn: psycopg.Connection[Any], slices: int) -> tuple[list[float], list[float]]:
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(slices):
        progress(f"enqueue: slice {number + 1} of {slices}")
        for turn in (0, 1) if number % 2 else (1, 0):
            conn.execute(_EMPTY, prepare=False)
            script = (_OURS, _INSERT)[turn]
            rates[turn].append(transactions_per_second(base.server, url, script, clients=CLIENTS, seconds=SLICE))
    return rates


async def _python_by_turns(url: str, conn: psycopg.Connection[Any], slices: int) -> tuple[list[float], list[float]]:
    """Do the same with the library: asyncio tasks with a connection each."""
    app = Holdfast()
    job = NewJob[object](Envelope(KIND), PAYLOAD)

    async def ours(client: psycopg.AsyncConnection[Any]) -> None:
        await app.enqueue(client, job)

    row = {"queue": "default", "kind": KIND, "payload": PAYLOAD}

    async def plain(client: psycopg.AsyncConnection[Any]) -> None:
        cursor = await client.execute(_FROM_PYTHON, row)
        await cursor.fetchone()

    clients = [await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0) for _ in range(CLIENTS)]
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(slices):
        progress(f"enqueue: slice {number + 1} of {slices}, from Python")
        for turn in (0, 1) if number % 2 else (1, 0):
            conn.execute(_EMPTY, prepare=False)
            rates[turn].append(await _rate(clients, (ours, plain)[turn]))
    for client in clients:
        await client.close()
    return rates


async def _rate(
    clients: list[psycopg.AsyncConnection[Any]], once: Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]
) -> float:
    begun = time.perf_counter()

    async def repeat(client: psycopg.AsyncConnection[Any]) -> int:
        done = 0
        while time.perf_counter() - begun < SLICE:
            await once(client)
            done += 1
        return done

    return sum(await asyncio.gather(*map(repeat, clients))) / SLICE


def _many_by_turns(conn: psycopg.Connection[Any], chunk: int, times: int) -> Watch:
    """COPY goes into plain.job, which has the columns and indexes of holdfast.job, row by row from ready tuples."""
    watch = Watch()
    app = Holdfast()
    jobs = [NewJob[object](Envelope(KIND), PAYLOAD) for _ in range(chunk)]
    now = datetime.now(UTC)
    text = "".join(f"{now}\t{now}\t{number % 64}\tdefault\t{KIND}\t{PAYLOAD}\n" for number in range(chunk))
    rows = [(now, now, number % 64, "default", KIND, PAYLOAD) for number in range(chunk)]

    def ours() -> None:
        with watch("ours"):
            handles = app.sync.enqueue_many(conn, jobs)
        assert len(handles) == chunk

    def copy() -> None:
        with watch("copy"), conn.cursor() as cursor, cursor.copy(f"COPY plain.job ({_COLUMNS}) FROM STDIN") as into:
            for row in rows:
                into.write_row(row)

    def copy_text() -> None:
        with watch("text"), conn.cursor() as cursor, cursor.copy(f"COPY plain.job ({_COLUMNS}) FROM STDIN") as into:
            into.write(text)

    conn.execute(_EMPTY, prepare=False)
    alternate([ours, copy, copy_text], times)
    return watch
