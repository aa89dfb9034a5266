"""Stories of ten steps against the same in DBOS and absurd: what a step costs, alone and with 16 stories at once."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import sql

from labs.bench.cpu import server_seconds
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import SETTINGS, progress, version
from labs.bench.peers.place import interpreter, place
from labs.bench.peers.program import Program
from labs.bench.peers.roster import BY_NAME
from labs.bench.wal import position
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

STEPS = 10
STORIES = {1: 150, 16: 400}
ROUNDS = 3
NAMES = ("holdfast", "dbos", "absurd")
PEERS = NAMES[1:]
CPU_BAR, WAL_BAR = 1 / 3, 1.3
RATE_BARS = {1: 1.0, 16: 1.3}


class Turn(NamedTuple):
    """The costs of some tasks, or of a step."""

    wal: float
    server: float
    client: float
    seconds: float

    @property
    def micros(self) -> tuple[float, float]:
        """The processor time of the server and of the program, in microseconds."""
        return self.server * 1e6, self.client * 1e6


def measure(scale: float) -> Section:
    rounds = max(1, round(ROUNDS * scale))
    turns: defaultdict[tuple[str, int], list[Turn]] = defaultdict(list)
    # Quiet: nothing but the programs writes.
    quiet: dict[str, str | int] = {"full_page_writes": "off", "autovacuum": "off"}
    with (
        Server(version(), **(SETTINGS | quiet)) as server,
        psycopg.connect(server.url(), autocommit=True) as conn,
    ):
        for number in range(rounds):
            for at_once, stories in STORIES.items():
                for name in NAMES:
                    progress(f"stories: round {number + 1}, {name}, {at_once} at once")
                    turns[name, at_once].append(_turn(server, conn, name, at_once, max(20, round(stories * scale))))
    figures, rows = [], []
    for at_once in STORIES:
        of = {name: _median(turns[name, at_once]) for name in NAMES}
        ours, alone = of["holdfast"], "alone" if at_once == 1 else f"{at_once} at once"
        for peer in PEERS:
            theirs = of[peer]
            limit = CPU_BAR if at_once > 1 else None
            figures += [
                Figure(
                    f"{alone}: CPU of the server for a step, against {peer}", ours.server / theirs.server, limit=limit
                ),
                Figure(f"{alone}: WAL of {peer} for a step, against ours", theirs.wal / ours.wal, least=WAL_BAR),
                Figure(
                    f"{alone}: steps a second, against {peer}", theirs.seconds / ours.seconds, least=RATE_BARS[at_once]
                ),
            ]
        rows += [
            (name, str(at_once), *(f"{value:,.0f}" for value in (1 / one.seconds, one.wal, *one.micros)))
            for name, one in of.items()
        ]
    head = ("of a step", "stories at once", "steps/s", "WAL, B", "server, µs", "client, µs")
    return Section(figures, [table(head, rows)])


def _turn(server: Server, conn: psycopg.Connection[Any], name: str, at_once: int, stories: int) -> Turn:
    """Return what a step costs: stories of ten steps, less tasks without any, by one program in a fresh database."""
    dbname = sql.Identifier(f"stories_{name}")
    conn.execute(sql.SQL("CREATE DATABASE {}").format(dbname))
    try:
        adapter = f"{name}_stories.py"
        folder = place(name, python=BY_NAME[name].python)
        command = interpreter(folder, adapter)
        with Program(command, folder, server.url(f"stories_{name}"), at_once, stories) as program:
            program.wait_for_line()
            conn.execute("CHECKPOINT")
            none, ten = (_spent(server, conn, program) for _ in range(2))
    finally:
        conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(dbname))
    return Turn(*((more - less) / (STEPS * stories) for more, less in zip(ten, none, strict=True)))


def _spent(server: Server, conn: psycopg.Connection[Any], program: Program) -> Turn:
    wal, cpu = position(conn), server_seconds(server.pid)
    program.report()
    answer = program.wait_for_line()
    return Turn(position(conn) - wal, server_seconds(server.pid) - cpu, answer["client"], answer["seconds"])


def _median(turns: Sequence[Turn]) -> Turn:
    return Turn(*(median(turn[place] for turn in turns) for place in range(4)))
