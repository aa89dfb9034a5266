"""Which faults strike, and when: each alone at first, then mixed, up to three at once. The dice decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from labs.chaos.fault import Fault

MOST_AT_ONCE = 3


class Strike(NamedTuple):
    """One fault of a group."""

    fault: Fault
    after: float
    """Seconds after the group has begun."""
    seed: float


def sequence(faults: Sequence[Fault], count: int, dice: random.Random, *, alone: float) -> list[list[Strike]]:
    """Return groups of faults, `count` in all, about a share of `alone` of them in groups of one, in whole rounds.

    Recovery is waited for after each group. No fault comes again before every other has had its turn.
    """
    groups = [[fault] for fault in _rounds(faults, int(alone * count / len(faults)), dice)][:count]
    left = count - len(groups)
    deck: list[Fault] = []
    while left > 0:
        deck = deck or dice.sample(faults, len(faults))
        group = [deck.pop()]
        company = [] if group[0].alone else [fault for fault in deck if not fault.alone]
        for fault in company[: min(left, dice.choice([2, MOST_AT_ONCE])) - 1]:
            deck.remove(fault)
            group.append(fault)
        groups.append(group)
        left -= len(group)
    return [
        [Strike(fault, dice.uniform(0, 1) if len(group) > 1 else 0, dice.random()) for fault in group]
        for group in groups
    ]


def _rounds(faults: Sequence[Fault], rounds: int, dice: random.Random) -> Iterator[Fault]:
    for _ in range(rounds):
        yield from dice.sample(faults, len(faults))
