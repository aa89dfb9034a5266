from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast._app.app import Holdfast
from holdfast._model.continuation import Continue
from holdfast._model.errors import InvalidJob
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.unique import Unique


def test_it_holds_the_job_that_follows() -> None:
    following = NewJob[str](Envelope("next"), "{}")
    assert Continue(following).job is following
    assert Continue[str](following) == Continue(following)


def test_a_unique_window_is_refused() -> None:
    following: NewJob[Any] = NewJob(Envelope("next"), "{}")
    Continue(following.options(unique=Unique("u")))
    with pytest.raises(InvalidJob, match="next: a job that goes on a chain has no unique window"):
        Continue(following.options(unique=Unique("u", window=timedelta(hours=1))))


@pytest.mark.parametrize("other", [Holdfast().declare("next", dict[str, Any]), "next", None])
def test_only_a_new_job_goes_on(other: Any) -> None:
    with pytest.raises(TypeError, match=r"^Continue: .*\.new\("):
        Continue(other)
