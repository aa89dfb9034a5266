"""Random actions of people and workers."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from holdfast._logs.failure import Failure
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Cancelled, Completed, Failed, Outcome, Released, Rescheduled, Retried
from holdfast._model.unique import Unique
from holdfast._store.claim import REACHES, WHOLE, Shards
from tests.protocol.crew import KINDS, QUEUES, WORKERS
from tests.protocol.leasing import Request
from tests.protocol.producing import WINDOW, Spec

HOUR = timedelta(hours=1)
ORDER_KEYS = ("k", "l")
UNIQUE_KEYS = ("u", "v")

attempts = st.sampled_from([1, 2, 3, 3, None])
delays = st.sampled_from([timedelta(0), timedelta(0), HOUR])
failure = Failure("E", "it broke")
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Completed("1")),
    st.just(Completed()),
    st.builds(Retried, delays, st.just(failure)),
    st.builds(Rescheduled, delays),
    st.builds(Released, delays),
    st.just(Failed(failure)),
    st.just(Cancelled()),
)
uniques = st.builds(
    Unique,
    st.sampled_from(UNIQUE_KEYS),
    window=st.sampled_from([None, None, WINDOW]),
    on_conflict=st.sampled_from(["keep", "replace", "debounce", "raise"]),
)
picks = st.sampled_from([(), (), ()]) | st.lists(st.integers(0, 30), min_size=1, max_size=3).map(tuple)
specs = st.builds(
    Spec,
    kind=st.sampled_from(KINDS),
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from([5, 5, 0, 9]),
    max_attempts=attempts,
    delay=delays,
    order=st.none() | st.builds(OrderKey, st.sampled_from(ORDER_KEYS), on_failure=st.sampled_from(["next", "block"])),
    unique=st.none() | st.none() | uniques,
    expired=st.sampled_from([False, False, True]),
    picks=picks,
    run_anyway=st.booleans(),
)
waiting = st.builds(
    Spec,
    kind=st.sampled_from(KINDS),
    max_attempts=attempts,
    order=st.none() | st.builds(OrderKey, st.sampled_from(ORDER_KEYS)),
    unique=st.none() | uniques,
    picks=st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
    run_anyway=st.booleans(),
)
followers = st.builds(
    Spec,
    kind=st.sampled_from(KINDS),
    queue=st.just(QUEUES[0]),
    max_attempts=attempts,
    order=st.none() | st.builds(OrderKey, st.sampled_from(ORDER_KEYS)),
    unique=st.none() | st.none() | st.builds(Unique, st.sampled_from(UNIQUE_KEYS)),
    picks=picks,
    run_anyway=st.booleans(),
)
keyed = st.builds(
    Spec,
    kind=st.sampled_from(KINDS),
    queue=st.just(QUEUES[0]),
    max_attempts=attempts,
    order=st.builds(OrderKey, st.sampled_from(ORDER_KEYS), on_failure=st.sampled_from(["block", "next"])),
)
requests = st.builds(
    Request,
    slots=st.sampled_from([{"default": 4, "slow": 4}, {"default": 1}, {"slow": 2, "default": 1}, {"slow": 1}]),
    kinds=st.sampled_from([KINDS, KINDS, KINDS[:1], KINDS[1:]]),
    shards=st.sampled_from([WHOLE, WHOLE, Shards(0, 8), Shards(1, 8)]),
    # The narrowest look is left out: whether it finds a job depends on how long an example takes.
    reach=st.sampled_from([None, None, *REACHES[1:]]),
    floors=st.just({}),
)
numbers = st.integers(0, WORKERS - 1)
"""The number of a worker."""
inside = st.booleans()
"""Whether to act within the transaction that is open, if one is."""
some = st.integers(0, 30)
"""Picks one of whatever there is."""
