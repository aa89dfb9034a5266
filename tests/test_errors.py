from __future__ import annotations

import pickle

import pytest

from holdfast._model import errors
from holdfast._model.errors import (
    AbortReason,
    AlreadyReplayed,
    DuplicateJob,
    HoldfastError,
    InvalidJob,
    LeaseLost,
    PayloadTooLarge,
    RoleMissing,
    SchemaMissing,
)


def tree() -> list[type[HoldfastError]]:
    return [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, HoldfastError)]


def test_the_docstring_is_the_default_message() -> None:
    assert str(SchemaMissing()) == "This database has no Holdfast schema: run `holdfast migrate`."
    assert str(InvalidJob("priority: too high")) == "priority: too high"


def test_every_error_is_drawn_in_the_tree() -> None:
    drawing = errors.__doc__ or ""
    assert all(cls.__name__ in drawing for cls in tree())


@pytest.mark.parametrize(
    "error",
    [
        DuplicateJob(7),
        AlreadyReplayed(7),
        RoleMissing("app.reschedule", "holdfast_operator"),
        PayloadTooLarge(kind="mail", size=11, limit=10),
        LeaseLost(AbortReason.timeout),
        InvalidJob("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_processes(error: HoldfastError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_a_lost_lease_says_why() -> None:
    error = LeaseLost(AbortReason.taken_by_another_worker)
    assert error.reason is AbortReason.taken_by_another_worker
    assert "taken_by_another_worker" in str(error)
