"""The results of steps: how they are recorded, and how they are read again."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from holdfast._model.errors import ChainFailed, HoldfastError, InvalidStep, StoryChanged
from holdfast._model.result import Result
from holdfast._model.step import returned_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._model.codec import JsonCodec
    from holdfast._model.message import Receivable
    from holdfast._model.new_job import NewJob
    from holdfast._model.step import Step
    from holdfast._store.step import Child


def result_of(step: Step, fn: Callable[..., Any]) -> Result:
    """Return how the results of a function are recorded. Raises InvalidStep if it declares no type."""
    hint = returned_type(step, fn)
    try:
        return _cached_result(step.name, hint)
    except TypeError:  # not hashable
        return StepResult(step.name, hint)


class StepResult(Result):
    """The results of a step."""

    def __init__(self, name: str, hint: Any) -> None:
        super().__init__(f"step {name!r}", type(None), lambda given: given)
        self._given = hint

    def _hint(self) -> Any:
        return type(None) if self._given is None else self._given


@lru_cache(maxsize=1024)
def _cached_result(name: str, hint: Any) -> Result:
    return StepResult(name, hint)


def received(message: Receivable[Any], text: str) -> Any:
    """Return the value of a message that was received, from JSON text."""
    try:
        return message.decode(text)
    except HoldfastError as exc:
        raise InvalidStep(f"the message {message.name} is not of its declared type: {exc}") from exc


def results_of(step: Step, jobs: Sequence[NewJob[Any]], children: Sequence[Child], codec: JsonCodec) -> list[Any]:
    """Return the results of children that have ended. Raises ChainFailed for the first that did not complete."""
    if len(children) != len(jobs):
        raise StoryChanged(f"step {step} gathers {len(jobs)} jobs, and was recorded with {len(children)}")
    for child in children:
        if child.status != "completed":
            raise ChainFailed(child.chain_id, child.status, child.error_code, child.error)
    try:
        return [
            codec.decode(child.result or "null") if job.decode is None else job.decode(child.result)
            for job, child in zip(jobs, children, strict=True)
        ]
    except HoldfastError as exc:
        raise InvalidStep(f"step {step}: the result of a job is not of its declared type: {exc}") from exc
