"""Steps without a worker: which functions declare the type of their results, and how failures travel."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine  # noqa: TC003 - read at run time
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from unittest.mock import AsyncMock

import pytest

from holdfast import Holdfast, InvalidStep, Retry, Step, StepFailed
from holdfast._model.failure_record import raised_again, recorded
from holdfast._model.step import is_async, returned_type

T = TypeVar("T")
app = Holdfast()


@dataclass
class Charge:
    id: str


class Box(Generic[T]):
    def get(self) -> T:
        raise NotImplementedError


class Bank:
    async def charge(self) -> Charge:
        return Charge("x")

    @staticmethod
    def static() -> Charge:
        return Charge("x")

    @classmethod
    def of_class(cls) -> Charge:
        return Charge("x")

    def __call__(self) -> Charge:
        return Charge("x")


class AsyncBank:
    async def __call__(self) -> Charge:
        return Charge("x")


def wrapping(function: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(function)
    def wrapped(*args: Any) -> T:
        return function(*args)

    return wrapped


def bare(function: Callable[..., Any]) -> Any:
    def bared(*args: Any):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return function(*args)

    return bared


def future() -> Awaitable[Charge]:
    raise NotImplementedError


def coroutine() -> Coroutine[Any, Any, Charge]:
    raise NotImplementedError


def optional() -> Charge | None:
    return None


def nothing() -> None: ...


def annotated() -> Annotated[int, "x"]:
    return 3


def generic(given: list[T]) -> T:
    return given[0]


def many(given: T) -> list[T]:
    return [given]


def with_unknown_parameter(given: Missing) -> Charge:  # type: ignore[name-defined]  # noqa: F821 - as for checkers only
    raise NotImplementedError(given)


def with_unknown_result() -> Missing:  # type: ignore[name-defined]  # noqa: F821 - as for checkers only
    raise NotImplementedError


def untyped():  # type: ignore[no-untyped-def]  # noqa: ANN201
    return 1


@app.job("kind")
def kind(n: int) -> Charge:
    return Charge(str(n))


DECLARED = [
    (Bank().charge, Charge),
    (Bank.static, Charge),
    (Bank.of_class, Charge),
    (Bank(), Charge),
    (AsyncBank(), Charge),
    (functools.partial(Bank().charge), Charge),
    (functools.partial(functools.partial(Charge), "x"), Charge),
    (wrapping(Bank.static), Charge),
    (future, Charge),
    (coroutine, Charge),
    (optional, Charge | None),
    (nothing, type(None)),
    (annotated, Annotated[int, "x"]),
    (with_unknown_parameter, Charge),
    (kind, Charge),
]
UNDECLARED = [
    bare(Bank.static),
    lambda: 1,
    generic,
    functools.partial(many, 1),
    untyped,
    len,
    AsyncMock(),
    Box[int]().get,
]


@pytest.mark.parametrize(("function", "hint"), DECLARED)
def test_the_declared_type_is_found(function: Callable[..., Any], hint: Any) -> None:
    assert returned_type(Step("x"), function) == hint


@pytest.mark.parametrize("function", UNDECLARED)
def test_a_function_without_one_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidStep, match="declares no result type"):
        returned_type(Step("x"), function)
    assert returned_type(Step("x", returns=int), function) is int


def test_a_type_that_exists_for_type_checkers_only_is_named() -> None:
    with pytest.raises(InvalidStep, match="names Missing, which its module does not have at run time"):
        returned_type(Step("x"), with_unknown_result)


def test_async_functions_are_recognized() -> None:
    assert [is_async(f) for f in (Bank().charge, AsyncBank(), functools.partial(Bank().charge))] == [True] * 3
    assert [is_async(f) for f in (Bank.static, Bank(), Charge, lambda: 1)] == [False] * 4


@pytest.mark.parametrize("fields", [{"attempts": 0}, {"timeout": 0}, {"key": ""}])
def test_an_option_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError if "timeout" in fields else Exception):
        Step("x", **fields)


class DeclinedError(Exception):
    def __init__(self, amount: int, *, bank: object) -> None:
        super().__init__(f"declined {amount}", amount)
        self.amount = amount
        self.bank = bank


def test_a_failure_is_raised_again_with_its_class_and_plain_values() -> None:
    again = raised_again(recorded(DeclinedError(7, bank=object()), Retry()))
    assert type(again) is DeclinedError
    assert again.args == ("declined 7", 7)
    assert vars(again) == {"amount": 7}


def test_secrets_in_its_texts_are_masked() -> None:
    again = raised_again(recorded(ConnectionError("cannot reach postgres://app:hunter2@db/app"), Retry()))
    assert str(again) == "cannot reach postgres://app:***@db/app"


def test_a_failure_of_an_unknown_class_is_a_failed_step() -> None:
    fields = recorded(DeclinedError(7, bank=1), Retry()) | {"type": "gone.module:DeclinedError"}
    again = raised_again(fields)
    assert isinstance(again, StepFailed)
    assert again.code == "DeclinedError"
    assert Retry(on=()).retries(again)
    once = recorded(DeclinedError(7, bank=1), Retry(never=(DeclinedError,))) | {"type": "gone.module:DeclinedError"}
    assert not Retry().retries(raised_again(once))
    # No class but an Exception is made.
    for name in ("builtins:SystemExit", "builtins:int", "os:system", "asyncio:CancelledError"):
        assert isinstance(raised_again(fields | {"type": name}), StepFailed)


def test_the_error_of_a_group_of_one_is_the_error() -> None:
    again = raised_again(recorded(ExceptionGroup("one", [TimeoutError("late")]), Retry()))
    assert type(again) is TimeoutError
    assert asyncio.TimeoutError is TimeoutError
