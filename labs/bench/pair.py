"""The store's claim and finish, bare, in batches of 500, against the plainest pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._store.finish import finish_jobs
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import KIND, load_jobs
from labs.bench.plain import Plain
from labs.bench.watch import Watch, alternate
from labs.bench.worker import Worker, completed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._store.statement import Row, Statement
    from labs.bench.ground import Ground

ONE_KIND = 0.92
MANY_KINDS = 0.85
BATCH = 500
PER_ROUND = 20_000
ROUNDS = 10
KINDS = [KIND, *(f"{KIND}{number}" for number in range(1, 10))]
PRIORITIES = (3, 4, 5, 6)


def measure(scale: float) -> Section:
    cases = [
        ("one kind", ONE_KIND, [KIND], (KIND,), (5,)),
        ("ten kinds registered, jobs of one", MANY_KINDS, KINDS, (KIND,), (5,)),
        ("ten kinds, jobs of all in four priorities", MANY_KINDS, KINDS, KINDS, PRIORITIES),
    ]
    figures, rows = [], []
    with ground(autovacuum="off") as base:
        for name, bar, registered, kinds, priorities in cases:
            progress(f"pair: {name}")
            watch = run(base, registered, kinds, priorities, rounds=max(1, round(ROUNDS * scale)))
            stages = ("claim", "finish")
            ours, plain = ([f"{stage} {who}" for stage in stages] for who in ("ours", "plain"))
            theirs, bare_ours = watch.median(*plain), watch.median(*ours)
            around = sum(watch.seconds["python ours"]) / len(watch.seconds["claim ours"])
            figures.append(Figure(name, theirs / bare_ours, least=bar))
            figures.append(Figure(f"{name}, with the library around it", theirs / (bare_ours + around)))
            for stage, mine, other in zip(stages, ours, plain, strict=True):
                ratio = f"{watch.median(other) / watch.median(mine):.2f}"
                rows.append((name, stage, watch.milliseconds(other), watch.milliseconds(mine), ratio))
    return Section(figures, [table(("", "of 500", "plain", "ours", "ratio"), rows)])


def run(
    base: Ground, registered: Sequence[str], kinds: Sequence[str], priorities: Sequence[int], *, rounds: int
) -> Watch:
    watch = Watch()
    with base.database() as url, connected(url) as conn:
        plain, ours = Plain(conn), Worker(conn, kinds=registered)
        plain.create()

        def plain_turn() -> None:
            with watch("claim plain"):
                rows = plain.claim(BATCH)
            with watch("finish plain"):
                plain.finish(rows)
            assert len(rows) == BATCH

        def our_turn() -> None:
            with watch("python ours"):
                reach = ours.floors.reach()
                claiming = ours.statement(BATCH, reach)
            with watch("claim ours"):
                rows = run_sync(conn, bare(claiming))
            with watch("python ours"):
                claim = claiming.read(rows)
                jobs = claim.jobs
                ours.learn(claim, reach)
            endings = completed(jobs)
            with watch("python ours"):
                finishing = finish_jobs(ours.id, endings)
            with watch("finish ours"):
                rows = run_sync(conn, bare(finishing))
            with watch("python ours"):
                refused = finishing.read(rows)
            assert len(jobs) == BATCH
            assert not refused

        for _ in range(rounds):
            load_jobs(conn, PER_ROUND, into="plain.job")
            load_jobs(conn, PER_ROUND, kinds=kinds, priorities=priorities)
            checkpoint(conn)
            alternate([plain_turn, our_turn], PER_ROUND // BATCH)
            conn.execute("VACUUM plain.job", prepare=False)
            conn.execute("VACUUM holdfast.job", prepare=False)
    return watch


def bare(statement: Statement[Any]) -> Statement[Sequence[Row]]:
    """Return the statement without what the library makes of its rows."""
    return statement._replace(read=lambda rows: rows)
