"""Positions in the log: how far a partition of a subscription has read, and the page that comes next."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast.store.statement import Row, Statement, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.store.statement import Parameter

Phase: TypeAlias = Literal["again", "late", "new"]
# Above every transaction: where the number that bounds the late ones is not known yet.
_ANY_XID = "18446744073709551615"


# A row of the log as it came: id, topic, key, payload, headers, published_at, version, trace. To make something with
# names of each would cost a relay more than the rest of reading.
LoggedEvent: TypeAlias = tuple[int, str, "str | None", str, "str | None", "datetime", int, "str | None"]


@dataclass(frozen=True, slots=True)
class Position:
    """What the table `position` says of reading; its comment says what each word means."""

    seen: str
    seen_id: int
    seen_top: int
    seen_xid: str | None
    """None: not stored yet."""
    next: str | None = None
    next_id: int | None = None
    next_top: int | None = None
    next_xid: str | None = None
    phase: Phase | None = None
    last_id: int | None = None

    def stored(self, xid: str) -> Position:
        """Return the position with what storing it has added: the number of the transaction that did."""
        return Position(
            self.seen,
            self.seen_id,
            self.seen_top,
            self.seen_xid or xid,
            self.next,
            self.next_id,
            self.next_top,
            (self.next_xid or xid) if self.next is not None else None,
            self.phase,
            self.last_id,
        )


class Cut(NamedTuple):
    """Which events a partition of a subscription reads."""

    topics: tuple[str, ...]
    """None: all."""
    partitions: int
    partition: int
    base_id: int = 0


class Page(NamedTuple):
    events: list[LoggedEvent]
    after: Position
    """Where reading goes on when they are handed over."""

    @property
    def last(self) -> bool:
        """Nothing more was there when it was read."""
        return self.after.phase is None


def read_events(cut: Cut, position: Position, *, most: int) -> Statement[Page]:
    """Read what comes next, looking at so many events at most. It writes nothing and holds nothing open."""

    def page(rows: Sequence[Row]) -> Page:
        found: list[Any] = list(rows)
        end = json.loads(found.pop()[3])
        return Page(found, _after(position, found, end))

    params: dict[str, Parameter] = {
        "topics": text_array(cut.topics),
        "partitions": cut.partitions,
        "partition": cut.partition,
        "base_id": cut.base_id,
        "seen": position.seen,
        "seen_id": position.seen_id,
        "seen_top": position.seen_top,
        "seen_xid": position.seen_xid or _ANY_XID,
        "next": position.next,
        "next_id": position.next_id,
        "next_top": position.next_top,
        "phase": position.phase,
        "last_id": position.last_id,
        "most": most,
    }
    return Statement(statements()["read_events"], params, page)


def _after(before: Position, events: Sequence[LoggedEvent], end: dict[str, Any]) -> Position:
    if end["phase"] is None:
        return Position(end["next"], end["next_id"], end["next_top"], before.next_xid)
    to_next, last_id = end.get("next"), end.get("last_id")
    return Position(
        before.seen,
        before.seen_id,
        before.seen_top,
        before.seen_xid,
        to_next,
        end.get("next_id"),
        end.get("next_top"),
        before.next_xid if to_next == before.next else None,
        end["phase"],
        events[-1][0] if last_id is None else last_id,
    )
