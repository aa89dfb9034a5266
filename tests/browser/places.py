"""Every page, by its name: where it is, and its title."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.browser import shop

if TYPE_CHECKING:
    from tests.browser.live import Live


class Place(NamedTuple):
    path: str
    title: str


PLACES = {
    "overview": Place("", "Overview"),
    "trends": Place("trends?by=kind", "Trends"),
    "jobs": Place("jobs?queue=payments", "Jobs"),
    "job": Place("jobs/{dead}", "Job #{dead}"),
    "chains": Place("chains", "Chains"),
    "chain": Place("chains/{chain}", "Chain #{chain}"),
    "dead-letters": Place("dead-letters", "Dead letters"),
    "queues": Place("queues", "Queues"),
    "limits": Place("limits", "Limits"),
    "workers": Place("workers", "Workers"),
    "runners": Place("runners", "Runners"),
    "runs": Place("runners/maintenance", "maintenance"),
    "relays": Place("relays", "Relays"),
    "parked": Place("relays/to-nats", "Parked events of to-nats"),
    "bulk-actions": Place("bulk-actions", "Bulk actions"),
    "archive": Place("archive", "Archive"),
    "audit": Place("audit", "Audit"),
}


def furnish(live: Live) -> dict[str, Place]:
    """Let every page have something to show, and return them."""
    (dead, *_) = live.fail("Furnished", [1, 2, 3])
    chains = live.enqueue(*(shop.check_order.new(order) for order in (1, 2, 3)))
    (chain,) = live.enqueue(shop.summarize.new("2026-11-15").options(after=chains))
    live.wait(shop.send_mail.new("later@example.org"))
    live.pay(1, note="x" * shop.LARGEST_EVENT, key="furnished")
    live.until_parked("furnished", 1)
    live.until_all([chain], "completed")
    live.declare("mail-server", concurrency=2)
    known = {"dead": dead, "chain": chain}
    return {name: Place(*(text.format(**known) for text in place)) for name, place in PLACES.items()}
