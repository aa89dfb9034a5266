"""The counts of a run: how much happened, not whether it was right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from labs.chaos.ticks import PREFIX

if TYPE_CHECKING:
    from labs.chaos.evidence import Evidence
    from labs.chaos.fault import Site


@dataclass(frozen=True, slots=True)
class Story:
    """Counts of a run."""

    workloads: dict[str, int]
    """Jobs that ended, by workload; the later steps of chains are theirs."""
    outcomes: dict[str, int]
    """Attempts that did not simply complete their job."""
    runs: int
    """Starts of handlers."""
    plain: int
    """Plain jobs."""
    plain_twice: int
    """Of those, how many ran more than once without having failed: lost leases, and releases."""
    throughput: list[tuple[float, float]]
    """Jobs that ended, by second of the run."""
    probes: list[float]
    """How long probes waited in calm and storm alike, in seconds, sorted."""
    rolled_back: int
    unknown: int
    """Commits whose answer was lost."""
    deaths: int
    """Of workers, by faults that let a handler kill them."""
    starts: int
    """Of worker processes."""
    ticks: int
    """One-shot ticks."""
    ticked: int
    """Jobs that they completed."""
    failovers: int
    pooler_falls: list[str]
    """The pooler's last log lines, for each time that it ended by itself."""
    singletons: int
    events: int
    """Published and committed."""
    rolled_back_events: int
    """Events that were rolled back, with their transaction or with a savepoint."""
    handed_again: int
    """Confirmations by the broker of events that it had confirmed before."""
    arrived_again: int
    """Of those, how many it did not know again: they are in its stream more than once."""

    @property
    def jobs(self) -> int:
        return sum(self.workloads.values())


def report(evidence: Evidence, site: Site, ticks: int) -> Story:
    workloads = evidence.rows(
        "SELECT coalesce(workload, 'chain'), count(*) FROM chaos.ended GROUP BY 1 ORDER BY count(*) DESC"
    )
    outcomes = evidence.rows("SELECT outcome::text, count(*) FROM holdfast.attempt GROUP BY 1 ORDER BY 1")
    twice = evidence.value(
        "SELECT count(*) FROM chaos.ended e JOIN chaos.started s ON s.job = e.id WHERE e.workload = 'plain'"
        " AND s.starts > 1 + (SELECT count(*) FROM holdfast.attempt a WHERE a.job_id = e.id AND a.outcome = 'retry')"
    )
    seconds = evidence.rows(
        "SELECT floor(extract(epoch FROM finished_at) - %s)::integer, count(*) FROM chaos.ended GROUP BY 1",
        site.begun_at,
    )
    begun = dict(
        evidence.rows(
            "SELECT s.job, s.first_begun FROM chaos.started s JOIN chaos.promise p ON p.job = s.job"
            " WHERE p.workload = 'probe'"
        )
    )
    counted = dict(seconds)
    return Story(
        workloads=dict(workloads),
        outcomes=dict(outcomes),
        runs=evidence.value("SELECT count(*) FROM chaos.run"),
        plain=dict(workloads).get("plain", 0),
        plain_twice=twice,
        throughput=[(float(second), float(counted.get(second, 0))) for second in range(max(counted, default=0) + 1)],
        probes=sorted(begun[one.job] / 1e9 - one.committed for one in evidence.probes if one.job in begun),
        rolled_back=site.load.tally.rolled_back,
        unknown=site.load.tally.unknown,
        deaths=sum(one.expected for one in evidence.deaths),
        starts=sum(replica.starts for replica in site.fleet.replicas),
        ticks=ticks,
        ticked=evidence.value("SELECT count(*) FROM chaos.ended WHERE starts_with(worker, %s)", PREFIX),
        failovers=site.ground.failovers,
        pooler_falls=site.ground.pooler.falls,
        singletons=evidence.value("SELECT count(*) FROM chaos.singleton WHERE what = 'ended'"),
        events=evidence.value("SELECT count(*) FROM chaos.published"),
        rolled_back_events=site.publisher.tally.rolled_back,
        handed_again=evidence.value("SELECT count(*) - count(DISTINCT event) FROM chaos.handed"),
        arrived_again=evidence.value("SELECT count(*) - count(DISTINCT event) FROM chaos.arrival"),
    )
