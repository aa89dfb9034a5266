from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, cast
from uuid import UUID  # noqa: TC003 - pydantic reads it

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, StrictInt
from typing_extensions import TypedDict

import holdfast
from holdfast import Fail, Holdfast, InvalidEvent, InvalidJob, Item, Job, JsonCodec, PayloadTooLarge, Reschedule
from holdfast import Job as Alias
from holdfast._model.continuation import Continue  # noqa: TC001 - pydantic reads it
from holdfast._model.new_job import check_new_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from nowhere import State  # type: ignore[import-not-found]


class Colour(enum.Enum):
    red = "r"


class Line(BaseModel):
    sku: str
    price: Decimal = Field(alias="unitPrice")


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Welcome(TypedDict):
    to: str
    name: str


def test_arguments_come_by_position_and_by_name() -> None:
    @Holdfast().job("receipt.send")
    async def send(job: Job[None], invoice_id: int, to: str, *, copy: bool = False) -> str:
        return to

    assert send.new(7, "a@b.c").payload == '{"invoice_id":7,"to":"a@b.c","copy":false}'
    assert send.new(to="a@b.c", invoice_id=7) == send.new(7, to="a@b.c")
    assert send.new(7, "a@b.c", copy=True).payload == '{"invoice_id":7,"to":"a@b.c","copy":true}'


@pytest.mark.parametrize(
    ("args", "kwargs", "output"),
    [
        ((1, 2, 3), {}, "3 arguments by position, and it takes 2"),
        ((1,), {"invoice_id": 1}, "invoice_id given twice"),
        ((1,), {}, r"the argument to is missing: write send.new\(invoice_id, to\)"),
        ((1,), {"to": "a", "cc": "b"}, "the handler has no parameter cc: "),
        (("hunter2", "a"), {}, "invoice_id: Input should be a valid integer"),
    ],
)
def test_wrong_arguments_are_refused_by_name_and_without_their_values(args: Any, kwargs: Any, output: str) -> None:
    @Holdfast().job("receipt.send")
    async def send(job: Job[None], invoice_id: int, to: str) -> None: ...

    with pytest.raises(InvalidJob, match=rf"^receipt\.send: .*{output}") as caught:
        send.new(*args, **kwargs)
    assert "hunter2" not in str(caught.value)


@dataclasses.dataclass
class Letter:
    to: str
    copies: Annotated[int, Field(gt=0)] = 1


@pytest.mark.parametrize("wrong", [Letter(to=cast("str", None)), Letter("hunter2", copies=-1)])
def test_instances_are_validated_where_the_job_is_made(wrong: Letter) -> None:
    app = Holdfast()

    @app.job("letter.send")
    async def send(job: Job[None], letter: Letter, others: list[Letter]) -> None: ...

    @app.batch("letter.post")
    async def post(items: list[Item[Letter]]) -> None: ...

    right = Letter("a@b.c")
    assert post.arguments(post.new(right).payload) == {"args": right}
    makes: list[Callable[[], object]]
    makes = [lambda: send.new(wrong, []), lambda: send.new(right, [wrong]), lambda: post.new(wrong)]
    for make in makes:
        with pytest.raises(InvalidJob, match=r"^letter\..*(to: Input should|copies: Input should)") as caught:
            make()
        assert "hunter2" not in str(caught.value)


def test_a_value_of_another_type_is_refused_before_another_service_gets_it() -> None:
    declared = Holdfast().declare("letter.send", Letter)
    assert declared.new(Letter("a@b.c", copies=2)).payload == '{"to":"a@b.c","copies":2}'
    with pytest.raises(InvalidJob, match=r"^letter\.send: it has a value that is not of the type") as caught:
        declared.new(Letter(to=cast("str", ["hunter2"])))
    assert "hunter2" not in str(caught.value)


def test_a_default_that_its_type_does_not_take_is_refused_when_it_is_used() -> None:
    @Holdfast().job("letter.send")
    async def send(job: Job[None], copies: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert send.new(1).payload == '{"copies":1}'
    with pytest.raises(InvalidJob, match=r"^letter\.send: copies: Input should be a valid integer"):
        send.new()


class Login(BaseModel):
    user: str
    password: SecretStr


def test_a_secret_that_would_be_stored_as_asterisks_is_refused() -> None:
    app = Holdfast()

    @app.job("log.in")
    async def log_in(job: Job[None], logins: list[Login]) -> None: ...

    login = Login(user="a", password=SecretStr("hunter2"))
    makes: list[Callable[[], object]]
    makes = [lambda: log_in.new([login]), lambda: app.declare("log.out", Login).new(login)]
    for make in makes:
        with pytest.raises(InvalidJob, match=r"^log\..*is stored as asterisks: declare it as str or bytes"):
            make()
    with pytest.raises(InvalidEvent, match=r"^logged\.in: .*is stored as asterisks"):
        app.event("logged.in", Login).new(login)

    @app.job("stars.count")
    async def count_stars(job: Job[None], stars: str) -> None: ...

    assert count_stars.new("*" * 10).payload == '{"stars":"**********"}'


async def test_calling_a_kind_runs_the_function() -> None:
    app = Holdfast()

    @app.job("a")
    async def twice(job: Job[None], n: int) -> int:
        return n * 2

    @app.job("b")
    def thrice(job: Job[None], n: int) -> int:
        return n * 3

    job = Job(id=1, kind="a", state=None)
    assert await twice(job, 2) == 4
    assert thrice(job, n=2) == 6
    assert (twice.is_async, thrice.is_async) == (True, False)


everything = st.fixed_dictionaries(
    {
        "when": st.datetimes(timezones=st.just(UTC)),
        "wait": st.timedeltas(timedelta(0), timedelta(days=999)),
        "uid": st.uuids(),
        "price": st.decimals(allow_nan=False, allow_infinity=False),
        "blob": st.binary(),
        "colour": st.just(Colour.red),
        "tags": st.sets(st.text(st.characters(codec="utf-8"))),
        "pair": st.tuples(st.integers(), st.text(st.characters(codec="utf-8"))),
        "by_id": st.dictionaries(st.integers(), st.builds(Point, st.integers(), st.integers())),
        "strict": st.integers(),
        "line": st.builds(lambda price: Line(sku="a", unitPrice=price), st.decimals(-9, 9)),
    }
)


_app = Holdfast()


@_app.job("everything")
def handle_everything(  # noqa: PLR0917 - one of each
    job: Job[State],
    when: datetime,
    wait: timedelta,
    uid: UUID,
    price: Decimal,
    blob: bytes,
    colour: Colour,
    tags: set[str],
    pair: tuple[int, str],
    by_id: dict[int, Point],
    strict: StrictInt,
    line: Line,
) -> None: ...


@given(everything)
def test_a_worker_gets_what_was_given(values: dict[str, Any]) -> None:
    new = handle_everything.new(**values)
    assert handle_everything.arguments(new.payload, new.payload_version) == values


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_survives_where_any_text_is_allowed(text: str) -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], value: Any, more: Any = None) -> None: ...

    assert handle.arguments(handle.new(text, more={"a": [text]}).payload) == {"value": text, "more": {"a": [text]}}


def test_half_a_pair_of_surrogates_cannot_be_a_key() -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], value: Any) -> None: ...

    with pytest.raises(InvalidJob, match=r"^a: "):
        handle.new({"\ud800": 1})


def test_defaults_are_part_of_the_payload_and_fill_old_ones() -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], a: int, tags: list[str] = ["x"], b: Annotated[int, Field(gt=0)] = 5) -> None: ...  # noqa: B006

    assert handle.new(1).payload == '{"a":1,"tags":["x"],"b":5}'
    assert handle.arguments('{"a":2}') == {"a": 2, "tags": ["x"], "b": 5}
    with pytest.raises(InvalidJob, match="b: Input should be greater than 0"):
        handle.new(1, b=0)


def test_parameters_may_have_any_name() -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], schema: int, model_config: int, _private: int, *, self: int, json: int) -> None: ...

    expected = {"schema": 1, "model_config": 2, "_private": 3, "self": 4, "json": 5}
    assert handle.arguments(handle.new(1, 2, 3, self=4, json=5).payload) == expected


def test_a_handler_without_parameters() -> None:
    @Holdfast().job("a")
    def handle(job: Job[None]) -> None: ...

    assert handle.new().payload == "{}"
    assert handle.arguments("{}") == {}


def positional(job: Job[None], a: int, /) -> None: ...
def variadic(job: Job[None], *args: int) -> None: ...
def keywords(job: Job[None], **kwargs: int) -> None: ...
def keyword_job(*, job: Job[None]) -> None: ...
def later_job(a: int, job: Job[None]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "output"),
    [
        (positional, "positional: a: the payload names every argument"),
        (variadic, r"variadic: \*args: the payload names every argument"),
        (keywords, r"keywords: \*\*kwargs: the payload names every argument"),
        (keyword_job, "keyword_job: the job is the first parameter of a handler, by position"),
        (later_job, "later_job: the job is the first parameter of a handler, by position"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_when_it_registers(handler: Callable[..., None], output: str) -> None:
    with pytest.raises(TypeError, match=output):
        Holdfast().job("a")(handler)


def untyped(job, a): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as people write it
def any_job(job: Any, a: int) -> None: ...
def other_name(_: Job[None], a: int) -> None: ...
def through_module(it: holdfast.Job[None], a: int) -> None: ...
def through_alias(it: Alias[None], a: int) -> None: ...
def for_checkers(it: OnlyForCheckers.Job[None], a: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - so
def without(a: int) -> None: ...
def without_any(a: Any) -> None: ...
def own_job(job: int, a: int) -> None: ...
def nothing() -> None: ...
def keyword(*, a: int) -> None: ...


@pytest.mark.parametrize("handler", [untyped, any_job, other_name, through_module, through_alias, for_checkers])
def test_a_first_parameter_that_is_a_job_receives_it(handler: Callable[..., None]) -> None:
    kind = Holdfast().job("a")(handler)
    assert kind.takes_job
    assert list(kind.parameters) == ["a"]


@pytest.mark.parametrize(
    ("handler", "names"),
    [(without, ["a"]), (without_any, ["a"]), (own_job, ["job", "a"]), (nothing, []), (keyword, ["a"])],
)
def test_without_a_job_every_parameter_is_an_argument(handler: Callable[..., None], names: list[str]) -> None:
    kind = Holdfast().job("a")(handler)
    assert not kind.takes_job
    assert list(kind.parameters) == names
    assert kind.new(**dict.fromkeys(names, 7)).payload == json.dumps(dict.fromkeys(names, 7), separators=(",", ":"))


def test_decorated_handlers_keep_their_signature() -> None:
    def logged(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> int:
            return function(*args, **kwargs) + 1

        return wrapper

    @Holdfast().job("a")
    @logged
    def handle(job: Job[None], n: int) -> int:
        return n

    assert handle.new(n=3).payload == '{"n":3}'
    assert handle(Job(id=1, kind="a", state=None), n=3) == 4


def test_an_annotation_that_does_not_exist_is_named() -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], state: State) -> None: ...

    with pytest.raises(InvalidJob, match="names State, which its module does not have"):
        handle.new(1)


def test_a_type_that_cannot_be_validated_is_named() -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], holdfast: Holdfast) -> None: ...

    with pytest.raises(
        InvalidJob,
        match=r"a: an argument cannot be stored as JSON: holdfast.*Holdfast is not a type that pydantic knows: use",
    ):
        handle.new(Holdfast())


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], x: float) -> None: ...

    with pytest.raises(InvalidJob):
        handle.new(number)


def test_the_codec_of_the_application_is_used() -> None:
    @Holdfast(codec=JsonCodec(max_bytes=20)).job("a")
    def handle(job: Job[None], x: str) -> None: ...

    handle.new("x" * 12)
    with pytest.raises(PayloadTooLarge, match=r"^a: 21 bytes of JSON, and the limit is 20"):
        handle.new("x" * 13)


@pytest.mark.parametrize("payload", ["", "[]", "7", '"a"', "null", '{"n":"hunter2"}', "{}", '{"n":1,"m":2}', '{"n":1'])
def test_a_payload_that_does_not_fit_is_invalid_and_not_quoted(payload: str) -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], n: int) -> None: ...

    with pytest.raises(InvalidJob) as caught:
        handle.arguments(payload)
    assert "hunter2" not in str(caught.value)


def test_a_result_is_read_as_the_handler_says() -> None:
    app = Holdfast()

    @app.job("line")
    async def line(job: Job[None]) -> Line | Continue[Line] | Fail: ...  # type: ignore[empty-body]

    @app.job("goes on")
    def goes_on(job: Job[None]) -> Continue[int | None]: ...  # type: ignore[empty-body]

    @app.job("says nothing")
    def is_empty(job: Job[None]): ...  # type: ignore[no-untyped-def]  # noqa: ANN202 - the point of it

    @app.job("only stops")
    def only_stops(job: Job[None]) -> Reschedule: ...  # type: ignore[empty-body]

    assert line.read_result('{"sku":"a","unitPrice":"1.5"}') == Line(sku="a", unitPrice=Decimal("1.5"))
    assert line.new().decode == line.read_result
    assert goes_on.read_result("7") == 7
    assert goes_on.read_result(None) is None
    assert is_empty.read_result('[{"a":1}]') == [{"a": 1}]
    assert only_stops.read_result(None) is None
    assert line.new().options(priority=1).decode == line.read_result
    with pytest.raises(InvalidJob, match="goes on: "):
        goes_on.read_result('"seven"')


def test_old_payloads_are_upgraded_step_by_step() -> None:
    @Holdfast().job("a", version=3)
    def handle(job: Job[None], amount_cents: int, currency: str) -> None: ...

    @handle.upgrade(from_version=1)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        return {"amount": payload["euros"]}

    @handle.upgrade(from_version=2)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        return {"amount_cents": payload["amount"] * 100, "currency": "EUR"}

    expected = {"amount_cents": 700, "currency": "EUR"}
    assert handle.new(700, "EUR").payload_version == 3
    assert handle.arguments('{"euros":7}', 1) == expected
    assert handle.arguments('{"amount":7}', 2) == expected
    assert handle.arguments('{"amount_cents":700,"currency":"EUR"}', 3) == expected
    with pytest.raises(InvalidJob, match="version 4 is newer than this code's 3"):
        handle.arguments("{}", 4)
    with pytest.raises(InvalidJob, match="upgrade from payload version 1: 'euros'"):
        handle.arguments("{}", 1)


def test_upgrades_must_be_known_and_make_sense() -> None:
    @Holdfast().job("a", version=2)
    def handle(job: Job[None]) -> None: ...

    with pytest.raises(InvalidJob, match="no upgrade from payload version 1"):
        handle.arguments("{}", 1)
    for wrong in (0, 2):
        with pytest.raises(ValueError, match="from_version: expected a number from 1 to 1, got"):
            handle.upgrade(from_version=wrong)

    @handle.upgrade(from_version=1)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        return {"x": {1, 2}}

    with pytest.raises(ValueError, match="has an upgrade already"):
        handle.upgrade(from_version=1)
    with pytest.raises(InvalidJob, match="an upgrade returned a value that is not JSON-serializable"):
        handle.arguments("{}", 1)


def test_declared_kinds_take_models_dataclasses_and_typed_dicts() -> None:
    app = Holdfast()
    assert (
        app.declare("line", Line).new(Line(sku="a", unitPrice=Decimal("1.50"))).payload
        == '{"sku":"a","unitPrice":"1.50"}'
    )
    assert app.declare("point", Point).new(Point(1)).payload == '{"x":1,"y":0}'
    declared = app.declare("mail.welcome", Welcome, queue="mail", priority=1, max_attempts=9, version=2)
    new = declared.new({"to": "a@b.c", "name": "A"})
    assert new.payload == '{"to":"a@b.c","name":"A"}'
    assert (
        new.envelope.head == '{"kind":"mail.welcome","payload_version":2,"queue":"mail","priority":1,"max_attempts":9'
    )
    with pytest.raises(InvalidJob, match=r"^mail\.welcome: .*name: Field required"):
        declared.new({"to": "hunter2"})  # type: ignore[typeddict-item]
    with pytest.raises(InvalidJob, match="not a JSON object"):
        app.declare("number", int).new(1)


def test_an_object_that_looks_like_a_kind_is_no_job() -> None:
    with pytest.raises(TypeError, match="expected a job, got SimpleNamespace"):
        check_new_job(SimpleNamespace(new=print, name=7), "app.enqueue")
