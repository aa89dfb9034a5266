"""For the users' own tests: jobs looked at, run and moved in time, on a test's connection and in its transaction."""

from holdfast.testing.enqueued import Enqueued
from holdfast.testing.kit import Testing
from holdfast.testing.ran import Drained, Ran

__all__ = ["Drained", "Enqueued", "Ran", "Testing"]
