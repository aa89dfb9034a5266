"""The next job of a chain: one job, or a group of jobs and the one after them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast._model.call import explains, type_name
from holdfast._model.errors import InvalidJob
from holdfast._model.new_job import MOST_IN_GROUP, NewJob, check_new_job

R_co = TypeVar("R_co", covariant=True)


# No slots, for the same reason as NewJob.
@explains
@dataclass(frozen=True, init=False)
class Group(Generic[R_co]):
    """Jobs that run side by side, and one that runs after all their chains: `Continue(Group(jobs, then=last))`.

    `jobs`: at most 100,000 jobs. `then` finds their results in `job.blockers`, in order, and its result is that of the
    chain. If one of them does not complete, it fails too, or runs with `.options(if_blocker_fails="run")`.
    """

    jobs: tuple[NewJob[Any], ...]
    then: NewJob[R_co]

    def __init__(self, jobs: Iterable[NewJob[Any]], *, then: NewJob[R_co]) -> None:
        if isinstance(jobs, NewJob) or not isinstance(jobs, Iterable):
            raise TypeError(f"Group: expected a list of jobs, got {type_name(jobs)}: write Group([job], then=last)")
        object.__setattr__(self, "jobs", tuple(jobs))
        object.__setattr__(self, "then", then)
        for job in (*self.jobs, then):
            check_new_job(job, "Group")
        if len(self.jobs) > MOST_IN_GROUP:
            raise InvalidJob(f"Group: at most {MOST_IN_GROUP} jobs")


# No slots, for the same reason as NewJob.
@explains
@dataclass(frozen=True)
class Continue(Generic[R_co]):
    """Return it from a handler to complete this job and enqueue what follows in its chain, in the same transaction.

    `job`: the next job, or a `Group`.
    """

    job: NewJob[R_co] | Group[R_co]

    def __post_init__(self) -> None:
        if not isinstance(self.job, Group):
            check_new_job(self.job, "Continue")
        unique = self.next.envelope.unique
        if unique is not None and unique.window is not None:
            raise InvalidJob(f"{self.next.kind}: a job that goes on a chain has no unique window")

    @property
    def next(self) -> NewJob[R_co]:
        """The job that goes on the chain."""
        return self.job.then if isinstance(self.job, Group) else self.job

    def as_json(self, next_job: str, trace: str | None = None) -> str:
        """Return what follows as JSON: `next_job`, which is the text of `next`, with its group."""
        if not isinstance(self.job, Group) or not self.job.jobs:
            return next_job
        group = ",".join([job.as_json(trace) for job in self.job.jobs])
        anyway = ',"run_anyway":true' if self.next.envelope.if_blocker_fails == "run" else ""
        return f'{{"group":[{group}]{anyway},{next_job[1:]}'
