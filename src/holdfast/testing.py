"""For the users' own tests: jobs looked at, run and moved in time, on a test's connection and in its transaction."""

from holdfast._testing.kit import SyncTesting, Testing
from holdfast._testing.results import Drained, Enqueued, Ran

__all__ = ["Drained", "Enqueued", "Ran", "SyncTesting", "Testing"]
