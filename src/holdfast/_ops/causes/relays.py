"""The rules about sinks and relays."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast._ops.causes.case import be, wait
from holdfast._ops.wording import plain, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._ops.causes.case import Case
    from holdfast._ops.responses.fleet import Problem
    from holdfast._store.incident import SilentSink
    from holdfast._store.subscription import SubscriptionRow

SINK_SECONDS, SINK_TRIES = 4.0, 2
# To raise, and to keep.
LAG_SECONDS, STILL_LAG_SECONDS = 60.0, 20.0


def sinks(case: Case) -> Iterator[Problem]:
    by_relay: defaultdict[str, list[SilentSink]] = defaultdict(list)
    for line in case.facts.signals.sinks:
        by_relay[line.subscription].append(line)
    for name, lines in sorted(by_relay.items()):
        last, since = max(lines, key=lambda line: line.tries), min(line.since for line in lines)
        partitions = [line for line in case.facts.subscriptions if line.name == name]
        behind = max((line.events for line in partitions), default=0)
        if name in case.relays or case.age(since) < SINK_SECONDS or last.tries < SINK_TRIES:
            continue
        case.relays.add(name)
        target = f" ({plain(partitions[0].target, 200)})" if partitions else ""
        ahead = max(0.0, (last.next_at - case.now).total_seconds())
        yield case.problem(
            "sink_down",
            f"The sink of the relay {name} takes no events",
            f"The sink of the relay {plain(name, 200)}{target} has taken nothing for {span(case.age(since))}: "
            f"{plain(last.code)}: {plain(last.text, 160)}. Try {last.tries:,} failed, the next is "
            f"{'in ' + span(ahead) if ahead >= 1 else 'now'}; {wait(behind, 'event')}.",
            "Look at the sink: it is away, or refuses what it gets. Nothing is lost meanwhile.",
            about=name,
            since=since,
            count=behind,
            critical=True,
            page="relays",
        )


def relays(case: Case) -> Iterator[Problem]:
    lines = case.facts.subscriptions
    for name in sorted({line.name for line in lines if line.elsewhere}):
        case.relays.add(name)
        yield case.problem(
            "relay_elsewhere",
            f"The relay {name} belongs to another server",
            f"The positions of the relay {plain(name, 200)} are of another server: this database was restored.",
            "Begin anew.",
            about=name,
            critical=True,
            page="relays",
            command=f"holdfast events rebase {shlex.quote(name)}",
        )
    behind: dict[str, SubscriptionRow] = {}
    for line in lines:
        least = STILL_LAG_SECONDS if case.had("relay_behind", line.name) else LAG_SECONDS
        if line.name not in case.relays and line.seconds > max(
            least, behind[line.name].seconds if line.name in behind else 0
        ):
            behind[line.name] = line
    for name, line in sorted(behind.items()):
        held = "" if line.worker else " No worker has it."
        yield case.problem(
            "relay_behind",
            f"The relay {name} is behind",
            f"{wait(line.events, 'event').capitalize()} for the relay {plain(name, 200)}, the first for "
            f"{span(line.seconds)}.{held}",
            "See its sink, or start a worker that serves it." if held else "See its sink and its parked events.",
            about=name,
            count=line.events,
            page="relays",
        )
    parked: Counter[str] = Counter()
    for line in lines:
        parked[line.name] += line.parked
    for name, events in sorted((+parked).items()):
        yield case.problem(
            "relay_parked",
            f"The relay {name} has parked events",
            f"{be(events, f'event of the relay {plain(name, 200)}', 'parked')}: the sink "
            "refused them, or they wait behind one of their key.",
            "See why the sink refused them, and release them once it is repaired.",
            about=name,
            count=events,
            page=f"relays/{quote(name, safe='')}",
            command=f"holdfast events release {shlex.quote(name)}",
        )
