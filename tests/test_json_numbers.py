"""NaN and the infinities are refused wherever a value becomes JSON, by name, and never stored as null."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel
from pydantic.dataclasses import dataclass as pydantic_dataclass

from holdfast import Holdfast, InvalidEvent, InvalidJob, Item, Job
from holdfast._model.not_json import find_unserializable

if TYPE_CHECKING:
    from collections.abc import Callable

NAN, INF = math.nan, math.inf
app = Holdfast()


class Reading(BaseModel):
    value: Any = None
    more: dict[str, Any] = {}


class Deferred(BaseModel, defer_build=True):
    value: Any = None


@dataclass
class Plain:
    value: Any = None


@pydantic_dataclass
class Checked:
    value: Any = None


@app.job("measure")
async def measure(  # type: ignore[no-untyped-def]  # a parameter without a type is one of the cases
    job: Job[None],
    *,
    bare=None,  # noqa: ANN001 - as above
    any_: Any = None,
    thing: object = None,
    fields: dict | None = None,  # type: ignore[type-arg]
    items: list[Any] | None = None,
    number: float = 1.0,
    reading: Reading | None = None,
) -> None: ...


@app.batch("measure.batch")
async def batch(items: list[Item[Reading]]) -> None: ...


declared = app.declare("measure.declared", Reading)
deferred = app.declare("measure.deferred", Deferred)


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ({"bare": NAN}, "bare is NaN"),
        ({"bare": INF}, "bare is Infinity"),
        ({"bare": -INF}, "bare is -Infinity"),
        ({"any_": NAN}, "any_ is NaN"),
        ({"any_": {"rows": [{"x": 1.5}, {"x": NAN}]}}, r"any_\.rows\.1\.x is NaN"),
        ({"thing": (1, INF)}, r"thing\.1 is Infinity"),
        ({"fields": {"q": NAN}}, r"fields\.q is NaN"),
        ({"items": [None, NAN]}, r"items\.1 is NaN"),
        ({"number": NAN}, "number is NaN"),
        ({"reading": Reading(value=NAN)}, r"reading\.value is NaN"),
        ({"reading": Reading(more={"a": [INF]})}, r"reading\.more\.a\.0 is Infinity"),
        ({"any_": Plain(NAN)}, r"any_\.value is NaN"),
        ({"any_": Reading(value=NAN)}, r"any_\.value is NaN"),
        ({"any_": Checked(NAN)}, r"any_\.value is NaN"),
        ({"any_": [Plain(Reading(more={"a": NAN}))]}, r"any_\.0\.value\.more\.a is NaN"),
    ],
)
def test_an_argument_is_refused_by_name_however_it_is_declared(given: dict[str, Any], output: str) -> None:
    with pytest.raises(
        InvalidJob, match=rf"^measure: {output}, which JSON does not have: pass None or a string instead"
    ):
        measure.new(**given)


@pytest.mark.parametrize(
    ("make", "error", "output"),
    [
        (lambda: batch.new(Reading(value=NAN)), InvalidJob, "measure.batch: value is NaN"),
        (lambda: declared.new(Reading(value={"a": INF})), InvalidJob, "measure.declared: value.a is Infinity"),
        (lambda: deferred.new(Deferred(value=NAN)), InvalidJob, "measure.deferred: value is NaN"),
        (
            lambda: app.event("measured", Reading).new(Reading(value=NAN)),
            InvalidEvent,
            "measured: value is NaN",
        ),
        (
            lambda: app.event("measured.plain", Plain).new(Plain([Reading(value=-INF)])),
            InvalidEvent,
            "measured.plain: value.0.value is -Infinity",
        ),
    ],
)
def test_batches_declared_kinds_and_events_refuse_them_too(
    make: Callable[[], object], error: type[Exception], output: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == f"{output}, which JSON does not have: pass None or a string instead"


def test_null_and_other_values_without_a_type_are_stored() -> None:
    job = measure.new(any_=Reading(more={"a": None}), items=[None, 1e308], fields={"a": Plain()})
    assert measure.arguments(job.payload)["any_"] == {"value": None, "more": {"a": None}}
    assert measure.arguments(job.payload)["items"] == [None, 1e308]


@pytest.mark.parametrize(
    ("result", "output"),
    [({"score": NAN}, r"score is NaN"), ({"score": [Reading(value=INF)]}, r"score\.0\.value is Inf")],
)
def test_a_result_is_refused_by_name(result: dict[str, Any], output: str) -> None:
    @Holdfast().job("score")
    async def score(job: Job[None]) -> dict[str, Any]:
        return {}

    with pytest.raises(InvalidJob, match=f"^score: {output}"):
        score.codec.encode(score.returns.plain(result), kind=score.name)


def test_a_long_path_is_cut() -> None:
    value: object = NAN
    for _ in range(100):
        value = [value]
    with pytest.raises(InvalidJob) as caught:
        measure.new(bare=value)
    assert len(str(caught.value)) < 200


@dataclass
class Box:
    items: Any


class Crate(BaseModel):
    items: Any


@pytest.mark.parametrize("made", [Box, Crate])
def test_what_cannot_be_serialized_is_named_inside_objects_too(made: type[Any]) -> None:
    assert find_unserializable(made(items=[1])) is None
    found = find_unserializable(made(items=[1, object()]))
    assert found is not None
    assert found.startswith("items.1 is of type object")
