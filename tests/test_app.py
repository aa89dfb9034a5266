from __future__ import annotations

import inspect
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import Holdfast, InvalidJob, Job, KindTaken, Lease, NewJob, Retry, SyncClient, SyncJob, inbox
from holdfast._app.client import Client
from holdfast._model.settings import SettingsError
from holdfast._store.enqueue import enqueue_jobs
from holdfast.testing import SyncTesting, Testing


def test_kinds_are_registered_once() -> None:
    app = Holdfast()

    @app.job(
        "mail.send",
        queue="mail",
        priority=2,
        retry=Retry(max_attempts=9),
        lease=Lease.external,
        max_runtime=timedelta(minutes=5),
    )
    async def send(job: Job[None]) -> None: ...

    declared = app.declare("mail.welcome", dict)
    assert dict(app.kinds) == {"mail.send": send, "mail.welcome": declared}
    assert (send.name, send.work.lease, send.work.max_runtime) == ("mail.send", Lease.external, timedelta(minutes=5))
    assert send.new().as_json() == '{"kind":"mail.send","queue":"mail","priority":2,"max_attempts":9,"payload":{}}'
    for name in app.kinds:
        with pytest.raises(KindTaken, match=name):
            app.declare(name, dict)
    with pytest.raises(TypeError):
        app.kinds["other"] = send  # type: ignore[index]


def test_a_kind_with_wrong_settings_is_refused_at_once() -> None:
    with pytest.raises(InvalidJob, match="priority"):
        Holdfast().job("a", priority=10)
    with pytest.raises(ValueError, match="max_runtime"):
        Holdfast().job("a", max_runtime=timedelta(0))


@pytest.mark.parametrize(
    ("option", "output"),
    [
        ({"lease": "30"}, "lease: expected seconds or a timedelta, from 100 ms to 1 day, .*, got str"),
        ({"retry": 5}, r"write retry=Retry\(max_attempts=5\), not int"),
        ({"max_runtime": "600"}, "max_runtime: expected seconds or a timedelta, from more than 0 to .*, got str"),
    ],
    ids=str,
)
def test_an_option_of_another_type_is_refused_with_what_to_write(option: dict[str, Any], output: str) -> None:
    app = Holdfast()
    topic = app.event("said", dict[str, Any])
    for register in (app.job, app.batch, partial(app.on, topic, name="a")):
        given: Any = option if isinstance(register, partial) else {"name": "a", **option}
        with pytest.raises(TypeError, match=output):
            register(**given)


def test_where_a_handler_runs_is_checked() -> None:
    app = Holdfast()
    wrong: Any = "proces"
    with pytest.raises(ValueError, match="executor: expected one of thread, process, got 'proces'"):
        app.job("a", executor=wrong)
    with pytest.raises(TypeError, match='a: executor="process" is for a plain function: write def'):

        @app.job("a", executor="process")
        async def handle(job: Job[None]) -> None: ...

    with pytest.raises(TypeError, match=r"imports the handler in another process, and .*<lambda> cannot be imported"):
        app.job("a", executor="process")(lambda _: None)


@pytest.mark.parametrize("every", [timedelta(hours=1), "0 2 * * *", 3600], ids=str)
def test_what_is_no_schedule_is_refused_with_what_to_write(every: Any) -> None:
    app = Holdfast()

    @app.job("a")
    async def handle(job: Job[None]) -> None: ...

    output = r"write every=Every\(3600\) or every=Cron"
    with pytest.raises(TypeError, match=output):
        app.schedule("nightly", handle.new(), every=every)
    with pytest.raises(TypeError, match=output):
        app.runner("clean", every=every)(lambda _: {})
    with pytest.raises(TypeError, match=output):
        app.http_runner("call", "/call", every=every)
    assert not app.schedules
    assert not app.runners


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("postgresql+psycopg://app:hunter2@db/shop", "write postgresql://, without the name of a driver"),
        ("mysql://app:hunter2@db/shop", "give an address like postgresql://user:password@host:port/dbname"),
    ],
)
def test_an_address_for_another_library_is_refused(url: str, cure: str) -> None:
    with pytest.raises(SettingsError, match=cure) as caught:
        Holdfast(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgres://db/shop", "postgresql://", "host=db options='-c a.b=c://d'"])
def test_whatever_libpq_reads_is_an_address(url: str) -> None:
    assert Holdfast(url).url == url


def test_many_jobs_are_one_statement() -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], n: int) -> None: ...

    statement = enqueue_jobs([handle.new(n) for n in range(3)])
    assert statement.params == {
        "jobs": '[{"kind":"a","payload":{"n":0}},{"kind":"a","payload":{"n":1}},{"kind":"a","payload":{"n":2}}]',
        "plain": True,
    }
    assert [handle.id for handle in statement.read([(5, 5, True), (6, 5, False), (7, 7, True)])] == [5, 6, 7]


async def test_no_jobs_are_no_statement() -> None:
    nowhere: Any = None
    assert await Holdfast().enqueue_many(nowhere, []) == []
    assert Holdfast().sync.enqueue_many(nowhere, []) == []


@pytest.mark.parametrize(
    ("of_async", "of_sync"),
    [(Client, SyncClient), (Testing, SyncTesting), (Job, SyncJob), (inbox, inbox.sync)],
    ids=lambda of: of.__name__,
)
def test_a_sync_verb_has_the_name_and_the_arguments_of_its_async_twin(of_async: Any, of_sync: Any) -> None:
    verbs, twins = _verbs(of_async), _verbs(of_sync)
    if of_async is Job:
        verbs = {"complete": verbs["complete"]}
    assert twins == verbs
    assert twins


def _verbs(of: Any) -> dict[str, list[tuple[str, Any, Any]]]:
    """Return the public functions of a class or module, each with its parameters: names, kinds and defaults."""
    return {
        name: [(given.name, given.kind, given.default) for given in inspect.signature(verb).parameters.values()]
        for name, verb in vars(of).items()
        if inspect.isfunction(verb) and not name.startswith("_") and verb.__module__ == _home(of)
    }


def _home(of: Any) -> str:
    return str(of.__name__ if inspect.ismodule(of) else of.__module__)


async def test_a_kind_is_not_a_job() -> None:
    app = Holdfast()

    @app.job("a")
    def handle(job: Job[None]) -> None: ...

    wrong: Any = handle
    nowhere: Any = None
    with pytest.raises(TypeError, match=r"app\.enqueue: a is a Kind, not a job: call its \.new"):
        await app.enqueue(nowhere, wrong)
    with pytest.raises(TypeError, match=r"expected a job, got str: make one with a kind's \.new"):
        app.sync.enqueue_many(nowhere, [handle.new(), "a"])  # type: ignore[arg-type]


def test_the_constant_part_of_a_job_is_shared() -> None:
    @Holdfast().job("a")
    def handle(job: Job[None], n: int) -> None: ...

    one, other = handle.new(1), handle.new(2)
    assert isinstance(one, NewJob)
    assert one.envelope is other.envelope
