"""Unique keys given as text, and keys made from the arguments of a job."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, InvalidJob, Item, Job, JsonCodec, NewJob, Unique
from holdfast._model.new_job import Envelope

if TYPE_CHECKING:
    from holdfast import Kind

# The keys of these arguments are stored in databases: they are the same for ever, on every version of Python.
ALL = "by:4556402de8ae345432f957c3a2f93e572e4beb0f2c2a7d5186bf8b5bfee01d5b"
ONE = "by:ee879da666d3293f496317942fde3b913834b26f8c5202aaa1253f7ade63b2f0"


@dataclass
class Line:
    article: str
    price: float


def a_kind(**options: Any) -> Kind[..., Any]:
    app = Holdfast()

    @app.job("invoice.send", **options)
    async def send(
        job: Job[None], customer_id: int, day: date, lines: list[Line], *, note: str | None = None, copies: int = 1
    ) -> None: ...

    return send


GIVEN: dict[str, Any] = {
    "customer_id": 7,
    "day": date(2026, 5, 1),
    "lines": [Line("Käse \N{GRINNING FACE}", 1.1), Line("\ud800\0", 2e-7)],
}


def key(job: NewJob[Any]) -> str:
    assert job.envelope.unique is not None
    return job.envelope.unique.key


def test_text_is_a_key() -> None:
    job = a_kind().new(**GIVEN)
    assert job.options(unique="7").envelope == job.options(unique=Unique("7")).envelope
    assert a_kind(unique="7").new(**GIVEN).envelope.unique == Unique("7")
    assert a_kind(unique="7").new(**GIVEN).options(unique=None).envelope.unique is None


def test_the_digests_never_change() -> None:
    job = a_kind().new(**GIVEN)
    assert key(job.options(unique=Unique.by())) == ALL
    assert key(job.options(unique=Unique.by("customer_id", "day"))) == ONE


@pytest.mark.parametrize("unique", [Unique.by(), Unique.by("day", "customer_id", "copies"), Unique.by("copies")])
def test_order_and_given_defaults_do_not_matter(unique: Unique) -> None:
    kind = a_kind(unique=unique)
    jobs = [
        kind.new(**GIVEN),
        kind.new(**dict(reversed(GIVEN.items()))),
        kind.new(*GIVEN.values()),
        kind.new(**GIVEN, note=None, copies=1),
        a_kind().new(**GIVEN).options(unique=unique),
        a_kind().new(**GIVEN).options(unique=Unique.by(*reversed(unique.names or ()))),
    ]
    assert len({key(job) for job in jobs}) == 1


def test_only_the_named_arguments_matter() -> None:
    kind = a_kind(unique=Unique.by("customer_id"))
    assert key(kind.new(**GIVEN)) == key(kind.new(**GIVEN | {"day": date(2027, 1, 1)}, copies=3))
    assert key(kind.new(**GIVEN)) != key(kind.new(**GIVEN | {"customer_id": 8}))
    assert key(kind.new(**GIVEN)) != key(a_kind(unique=Unique.by("copies")).new(**GIVEN))


def test_another_kind_has_another_key() -> None:
    arguments = {"customer_id": 7}
    assert Unique.by().of("a", arguments).key != Unique.by().of("b", arguments).key


def test_window_and_policy_are_kept() -> None:
    job = a_kind(unique=Unique.by("customer_id", window=60, on_conflict="replace")).new(**GIVEN)
    assert '"unique_window_ms":60000,"on_conflict":"replace"' in job.as_json()


def test_an_unknown_parameter_is_refused_at_registration() -> None:
    with pytest.raises(InvalidJob) as refused:
        a_kind(unique=Unique.by("customer"))
    assert str(refused.value) == (
        "invoice.send: Unique.by('customer'): there is no such parameter: "
        "its parameters are customer_id, day, lines, note, copies"
    )
    with pytest.raises(InvalidJob, match="its parameters are customer_id"):
        a_kind().new(**GIVEN).options(unique=Unique.by("customer"))
    with pytest.raises(TypeError, match="write unique="):
        a_kind(unique=7)


def test_keys_of_batches_and_declared_kinds() -> None:
    app = Holdfast()

    @app.batch("lines.store")
    async def store(items: list[Item[Line]]) -> None: ...

    declared = app.declare("lines.print", Line)
    for kind in (store, declared):
        jobs = [kind.new(Line("a", price)).options(unique=Unique.by("article")) for price in (1, 2)]
        assert len({key(job) for job in jobs}) == 1
        with pytest.raises(InvalidJob, match="its parameters are article, price"):
            kind.new(Line("a", 1)).options(unique=Unique.by("name"))


def test_batches_and_declared_kinds_have_a_default() -> None:
    app = Holdfast()

    @app.batch("lines.store", unique=Unique.by("article", window=60))
    async def store(items: list[Item[Line]]) -> None: ...

    declared = app.declare("lines.print", Line, unique=Unique.by("article", window=60))
    for kind in (store, declared):
        jobs = [kind.new(Line(article, price)) for article, price in (("a", 1), ("a", 2), ("b", 1))]
        assert [key(job) == key(jobs[0]) for job in jobs] == [True, True, False]
        assert '"unique_window_ms":60000' in jobs[0].as_json()
        assert jobs[0].options(unique="7").envelope.unique == Unique("7")
        assert jobs[0].options(unique=None).envelope.unique is None

    @app.batch("lines.check", unique="nightly")
    async def check(items: list[Item[Line]]) -> None: ...

    for kind in (check, app.declare("lines.count", Line, unique="nightly")):
        assert key(kind.new(Line("a", 1))) == "nightly"


def test_a_wrong_default_of_batches_and_declared_kinds_is_refused() -> None:
    app = Holdfast()

    @app.batch("lines.store", unique=Unique.by("name"))
    async def store(items: list[Item[Line]]) -> None: ...

    for kind in (store, app.declare("lines.print", Line, unique=Unique.by("name"))):
        with pytest.raises(InvalidJob, match=f"{kind.name}: .* its parameters are article, price"):
            kind.new(Line("a", 1))
    wrong: Any = 7
    with pytest.raises(TypeError, match="write unique="):
        app.declare("lines.count", Line, unique=wrong)
    with pytest.raises(TypeError, match="write unique="):
        app.batch("lines.check", unique=wrong)(store.handler)


def test_a_codec_that_encrypts_does_not_change_the_key() -> None:
    class Reversed(JsonCodec):
        def encode(self, value: object, *, kind: str = "") -> str:
            return f'"{JsonCodec.encode(self, value, kind=kind)[::-1].encode().hex()}"'

        def plain(self, text: str) -> str:
            return bytes.fromhex(text.strip('"')).decode()[::-1]

    keys = set()
    for codec in (JsonCodec(), Reversed()):
        app = Holdfast(codec=codec)

        @app.job("mail")
        async def mail(job: Job[None], to: str) -> None: ...

        keys.add(key(mail.new("a@b.c").options(unique=Unique.by("to"))))
    assert len(keys) == 1


def test_a_job_that_was_pickled_has_no_arguments() -> None:
    job = pickle.loads(pickle.dumps(a_kind(unique=Unique.by()).new(**GIVEN)))  # noqa: S301 - our own
    assert key(job) == ALL
    with pytest.raises(InvalidJob, match=r"make it with the kind's \.new"):
        job.options(unique=Unique.by())
    with pytest.raises(InvalidJob, match=r"make it with the kind's \.new"):
        NewJob(Envelope("mail"), "{}").options(unique=Unique.by())
