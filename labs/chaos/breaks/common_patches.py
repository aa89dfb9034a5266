"""Mistakes in the ways that most jobs take: named and plain claims, the record of a sleep, and claims ahead."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast._engine.jobs import due
from holdfast._engine.jobs.claim import Claimer
from holdfast._engine.jobs.slots import Slots
from holdfast._store import plain
from holdfast._store.statement import statements
from labs.chaos.breaks.mistake import note, substitute

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._store.statement import Statement

# A worker claims so many jobs of a queue more than it can start.
MORE = 50


def _change(name: str, *changes: tuple[str, str]) -> None:
    """Make the mistake in a named statement of plain.py; each text must be there."""
    texts, make = cast("dict[str, str]", statements()), plain.statement  # type: ignore[attr-defined]
    for old, new in changes:
        assert old in texts[name], f"{name} does not have: {old}"
        texts[name] = texts[name].replace(old, new)

    def statement(called: str, *given: Any, **params: Any) -> Statement[Any]:
        if called == name:
            note()
        return make(called, *given, **params)

    cast("Any", plain).statement = statement


def _plain(*changes: tuple[str, str]) -> None:
    """Make the mistake in plain claims. They follow one another, or the next whole claim would often mend it."""
    due.WHOLE_EVERY = due.LONGEST_PLAIN = math.inf
    _change("claim_plain", *changes)


def ignore_keys() -> None:
    _plain(("(i.order_key IS NULL AND i.limits IS NULL AND i.tenant IS NULL)", "true"))


def ignore_a_pause() -> None:
    _plain(("AND NOT EXISTS (SELECT FROM holdfast.queue q WHERE q.name = %(queue)s::text AND q.paused)", ""))


def take_suspects() -> None:
    _plain((" AND i.suspect IS NULL", ""))


def ignore_expiry() -> None:
    _plain(("coalesce(j.expires_at <= now(), false)", "false"))


def ignore_windows() -> None:
    _plain(
        ("%(windows)s::integer NOT IN (0, 8)", "%(windows)s::integer IS NULL"),
        ("CASE %(windows)s::integer WHEN 8", "CASE %(windows)s::integer WHEN -8"),
        # With row locks they would not meet.
        (" FOR NO KEY UPDATE SKIP LOCKED", ""),
        ("SELECT i.ctid,", "SELECT i.id AS ctid,"),
        ("array_agg(next.ctid)", "array_agg(next.id)"),
        ("SELECT f.ctid, f.plain", "SELECT f.id, f.plain"),
        ("WHERE j.ctid = ANY", "WHERE j.id = ANY"),
        ("AS next)::tid[])", "AS next)::bigint[])"),
    )


def trust_names() -> None:
    sql = statements()["claim_named"]
    conditions = sql[sql.index("WHERE i.id = ANY") : sql.index("FOR NO KEY UPDATE")]
    _change("claim_named", (conditions, "WHERE i.id = ANY (%(ids)s::bigint[])\n    "))


def leave_the_record() -> None:
    async def leave(_self: Claimer) -> None: ...

    substitute(Claimer, "_delete_sleep_record", leave)


def hoard() -> None:
    wanted = Slots.wanted

    def more(self: Slots, *, of: object = None) -> dict[str, int]:
        waiting = self._stocks[of].waiting
        return {queue: MORE for queue in self.queues if waiting[queue] == 0} | wanted(self, of=of)

    substitute(Slots, "wanted", more)


PATCHES: Final[dict[str, Callable[[], Any]]] = {
    "plain claim that ignores order keys": ignore_keys,
    "plain claim that ignores a pause": ignore_a_pause,
    "plain claim that takes suspects": take_suspects,
    "plain claim that ignores an expiry": ignore_expiry,
    "plain claim that ignores windows": ignore_windows,
    "name that is trusted": trust_names,
    "record of a sleep that is left": leave_the_record,
    "worker that claims more than it can start": hoard,
}
