"""The properties of the model: it holds, and each mistake breaks the expected one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from labs.chaos.model.spin import Search, search

if TYPE_CHECKING:
    from collections.abc import Mapping

INVARIANTS: Final = (
    "no_stale_write",
    "no_stale_renewal",
    "heartbeat_never_resurrects",
    "effect_once",
    "ends_once",
    "attempts_bounded",
    "attempts_true",
    "reaps_only_expired",
    "cancelled_stays",
)
"""In the order of their bits in lease.pml."""
LIVENESS: Final = "every_job_ends"

_QUIET = {"CRASHES": 0, "SERVER_CRASHES": 0, "LOST_ANSWERS": 0, "RELEASES": 0}


@dataclass(frozen=True, slots=True)
class Check:
    """One search."""

    name: str
    defines: Mapping[str, int | None] = field(default_factory=dict)
    breaks: str | None = None
    """The invariant that must be found broken; None: all hold."""
    liveness: bool = False
    long: bool = False
    """Only asked for by name, or with all."""

    @property
    def all_defines(self) -> dict[str, int | None]:
        """A mistake may break several things: only the one that is expected is looked at."""
        if self.breaks in INVARIANTS:
            return {**self.defines, "WATCH": 1 << INVARIANTS.index(self.breaks)}
        return {**self.defines, "WATCH": 0} if self.liveness else dict(self.defines)

    def run(self) -> Search:
        return search(self.all_defines, liveness=self.liveness, soon=self.breaks is not None)


HOLDS: Final = (
    Check("workers die, answers are lost, attempts are released", {"SERVER_CRASHES": 0}),
    Check("the server loses its last claim, answers are lost", {"CRASHES": 0, "RELEASES": 0}),
    Check("the server loses its last claim, workers die", {"LOST_ANSWERS": 0, "RELEASES": 0}),
    Check("two jobs", {**_QUIET, "CRASHES": 1, "JOBS": 2, "SLOTS": 2}),
    Check("every job ends", {"SERVER_CRASHES": 0, "RELEASES": 0}, liveness=True),
    Check("every job ends, though the server loses a claim", {"CRASHES": 0, "RELEASES": 0}, liveness=True),
    Check("a fence without holder, while no token is issued twice", {"FENCE_WITHOUT_HOLDER": None, **_QUIET}),
    Check("everything at once", long=True),
    Check("every job ends, everything at once", liveness=True, long=True),
)

MISTAKES: Final = (
    Check("finish without token", {"FINISH_WITHOUT_TOKEN": None}, "no_stale_write"),
    Check(
        "fence without holder, a token issued twice",
        {"FENCE_WITHOUT_HOLDER": None, **_QUIET, "SERVER_CRASHES": 1},
        "no_stale_write",
    ),
    Check("lease left on the row when it is taken away", {"LEASE_IS_LEFT": None}, "no_stale_write"),
    Check("reap in two steps, without a look at the token", {"REAP_IN_TWO_STEPS": None}, "reaps_only_expired"),
    Check("renew without token", {"RENEW_WITHOUT_TOKEN": None}, "no_stale_renewal"),
    Check("renew after the loss", {"RENEW_AFTER_LOSS": None}, "heartbeat_never_resurrects"),
    Check("job.complete without fence", {"COMPLETE_WITHOUT_FENCE": None}, "effect_once"),
    Check("job.complete whose fence locks nothing", {"FENCE_WITHOUT_LOCK": None}, "effect_once"),
    Check("the same, and the job ends twice", {"FENCE_WITHOUT_LOCK": None}, "ends_once"),
    Check("claim without attempt count", {"CLAIM_WITHOUT_COUNT": None}, "attempts_bounded"),
    Check(
        "the same, for ever",
        {"CLAIM_WITHOUT_COUNT": None, "ENDLESS": None, **_QUIET},
        LIVENESS,
        liveness=True,
    ),
    Check("release that counts the attempt", {"RELEASE_COUNTS": None}, "attempts_true"),
    Check("cancellation forgotten when the job goes back", {"CANCEL_IS_FORGOTTEN": None, **_QUIET}, "cancelled_stays"),
    Check("no reaper", {"NO_REAPER": None, **_QUIET, "CRASHES": 1}, LIVENESS, liveness=True),
    Check(
        "worker that claims again what it still runs, a token issued twice",
        {"CLAIMS_WHAT_IT_RUNS": None, **_QUIET, "SERVER_CRASHES": 1},
        "no_stale_write",
    ),
)

CHECKS: Final = HOLDS + MISTAKES
