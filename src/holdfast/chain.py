"""Chains by value: a handler returns the job that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast.errors import InvalidJob
from holdfast.new_job import NewJob, check_new_job

R_co = TypeVar("R_co", covariant=True)


# Without slots, as NewJob.
@dataclass(frozen=True)
class Continue(Generic[R_co]):
    """Return it to complete this job and let the chain go on with another: both are committed, or neither."""

    job: NewJob[R_co]

    def __post_init__(self) -> None:
        check_new_job(self.job)
        unique = self.job.envelope.unique
        if unique is not None and unique.window is not None:
            raise InvalidJob(f"{self.job.kind}: a job that goes on a chain has no unique window")
