"""How much of each resource a plan uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holdfast._capacity.costs import Costs
    from holdfast._capacity.deployment import Deployment

DAY = 86_400.0
# A relay reads what was published since its last pass; under load this many events, at most.
PER_RELAY = 256.0
RELAY_SECONDS = 0.005


class Demand(NamedTuple):
    """The use of one resource, and how much of it there is."""

    resource: str
    used: float
    available: float
    unit: str

    @property
    def share(self) -> float:
        return self.used / self.available if self.available > 0 else float("inf")


def demands(plan: Deployment, costs: Costs) -> list[Demand]:
    """Return the use of every resource, in the order in which they are shown."""
    produce = costs.item("enqueue", plan.payload, plan.enqueue_batch).times(plan.jobs)
    claim = costs.item("claim", plan.payload, plan.per_claim()).times(plan.jobs)
    finish = costs.item("finish", plan.payload, plan.per_finish(costs)).times(plan.jobs)
    publish = costs.item("publish", plan.event_payload).times(plan.events)
    relay = costs.item("relay", plan.event_payload, _per_relay(plan)).times(plan.events * plan.subscriptions)
    idle = costs.idle
    calls = sum(part.server for part in (produce, claim, finish, publish, relay))
    server = calls * costs.background + plan.workers * idle.server
    workers = claim.client + finish.client + relay.client + plan.workers * idle.client + plan.jobs * plan.handler_cpu
    wal = sum(part.wal for part in (produce, claim, finish, publish, relay)) + plan.workers * idle.wal
    server, workers = server / plan.server_speed, workers / plan.client_speed
    producers = (produce.client + publish.client) / plan.client_speed
    machine = Demand("CPU of the machine", server + workers + producers, plan.cores, "cores")
    return [
        machine if plan.shared else Demand("CPU of the server", server, plan.cores, "cores"),
        Demand("CPU of the workers", workers, plan.workers, "cores"),
        Demand("slots of the workers", _busy_slots(plan, costs), plan.workers * plan.concurrency, "slots"),
        Demand("claims of the workers", _claim_time(plan, costs), plan.workers, "at once"),
        Demand("WAL", wal, plan.wal, "B/s"),
        Demand("commits", _commits(plan, costs), plan.commits, "1/s"),
        Demand("connections", plan.workers * per_worker(plan, costs), plan.connections, ""),
        Demand("disk", _disk(plan, costs), plan.disk, "B"),
    ]


def per_worker(plan: Deployment, costs: Costs) -> int:
    return costs.connections + (costs.relay_connections if plan.events else 0)


def _per_relay(plan: Deployment) -> float:
    return min(max(plan.events * RELAY_SECONDS, 1.0), PER_RELAY)


def _busy_slots(plan: Deployment, costs: Costs) -> float:
    item = costs.item("claim", plan.payload, plan.per_claim()).client / plan.client_speed
    return plan.jobs * (plan.handler + plan.handler_cpu + item)


def _claim_time(plan: Deployment, costs: Costs) -> float:
    """Return the time of all claims per second, if each takes as many jobs as it may.

    A worker makes one claim at a time.
    """
    return plan.jobs * plan.claim_seconds(plan.batch, costs) / plan.batch


def _commits(plan: Deployment, costs: Costs) -> float:
    jobs = plan.jobs * (1 / plan.enqueue_batch + 1 / plan.per_claim() + 1 / plan.per_finish(costs))
    events = plan.events * (1 + plan.subscriptions / _per_relay(plan))
    return jobs + events


def _disk(plan: Deployment, costs: Costs) -> float:
    completed = plan.jobs * (1 - plan.failed) * plan.days * costs.bytes_kept("completed", plan.payload)
    failed = plan.jobs * plan.failed * plan.days_failed * costs.bytes_kept("failed", plan.payload)
    events = plan.events * plan.days_events * costs.bytes_kept("event", plan.event_payload)
    return DAY * (completed + failed + events)
