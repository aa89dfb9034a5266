from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from holdfast import Event, Holdfast, HoldfastError, InvalidJob, Item, Job, Limit, Unique
from holdfast._model.limit import parsed_rate, rate_text

if TYPE_CHECKING:
    from collections.abc import Callable


class Row(TypedDict):
    account: int


class Entry(TypedDict):
    account: str


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("postgresql://nowhere/x")


def keys(job: Any) -> Any:
    return json.loads(job.as_json()).get("limits")


def test_the_keys_of_a_job(app: Holdfast) -> None:
    app.limit("partner-api", concurrency=4)
    own = Limit(concurrency=3, by=("customer", "region"))

    @app.job("sync", limits=["partner-api", own, Limit(rate="10/s")], unique=Unique.by("customer"))
    async def sync(job: Job[None], customer: int, region: str | None = None) -> None: ...

    made = sync.new(7, region="north")
    assert keys(made) == ["partner-api", 'sync/customer,region:[7, "north"]', "sync"]
    assert keys(made.options(priority=2, unique=None)) == keys(made)
    assert not made.envelope.plain
    assert sorted(app.limits) == ["partner-api", "sync", "sync/customer,region"]


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (42, "42"),
        ("acme", "acme"),
        ("a:b", "a:b"),
        (None, "null"),
        ([1, 2], "[1, 2]"),
        ("å" * 300, "sha256 af6b3b8f"),
        ("a\x00b", "sha256 "),
    ],
)
def test_the_value_of_a_key(app: Holdfast, value: Any, key: str) -> None:
    limit = Limit(concurrency=1, by="it").of_kind("k")
    made = limit.key("k", {"it": value})
    assert made.startswith(f"k/it:{key[:7]}") if "sha256" in key else made == f"k/it:{key}"
    assert len(made.encode()) <= 500


def test_batches_and_declared_kinds_have_limits(app: Holdfast) -> None:
    @app.batch("rows", limits=[Limit(concurrency=1, by="account")])
    async def rows(items: list[Item[Row]]) -> None: ...

    elsewhere = app.declare("elsewhere", Row, limits=[Limit(concurrency=2, by="account")])
    assert keys(rows.new(Row(account=7))) == ["rows/account:7"]
    assert keys(elsewhere.new(Row(account=8))) == ["elsewhere/account:8"]


def test_without_limits_a_job_is_plain(app: Holdfast) -> None:
    @app.job("plain")
    async def plain(job: Job[None]) -> None: ...

    assert plain.new().envelope.plain
    assert keys(plain.new()) is None


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "nothing": (Limit, "Limit: nothing is limited: write Limit"),
    "zero": (lambda: Limit(concurrency=0), "concurrency: expected a whole number from 1 to 1000000, got 0"),
    "burst": (lambda: Limit(concurrency=1, burst=3), "burst: it is of a rate"),
    "rate": (lambda: Limit(rate="10 per second"), "rate: expected a number and a time, such as"),
    "rate of nothing": (lambda: Limit(rate="0/s"), "rate: expected a number and a time"),
    "rate as number": (lambda: Limit(rate=10), "rate: expected text such as"),  # type: ignore[arg-type]
    "name": (lambda: Limit(concurrency=1).named("a:b"), "limit: a:b: a name of a limit has no colon"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_limit_that_makes_no_sense(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises(InvalidJob, match=message.replace("(", r"\(")):
        make()


def declare(app: Holdfast, *limits: Any) -> None:
    @app.job("mail", limits=limits)
    async def mail(job: Job[None], to: str) -> None: ...


def test_what_is_declared_is_checked_there(app: Holdfast) -> None:
    with pytest.raises(
        InvalidJob, match=r"mail: Limit\(by='customer'\): there is no such parameter: its parameters are to"
    ):
        declare(app, Limit(concurrency=1, by="customer"))
    with pytest.raises(InvalidJob, match=r"there is no limit .partner.: declare it before, with app\.limit"):
        declare(app, "partner")
    with pytest.raises(InvalidJob, match="mail: at most 3 limits, got 4"):
        declare(app, *[Limit(concurrency=n + 1) for n in range(4)])
    with pytest.raises(InvalidJob, match="mail: two limits have the key mail: write one"):
        declare(app, Limit(concurrency=1), Limit(rate="1/s"))
    with pytest.raises(TypeError, match="mail: limits: write limits="):
        declare(app, 3)
    app.limit("mail", concurrency=1)
    with pytest.raises(InvalidJob, match="mail: the limit mail is declared with other values already"):
        declare(app, Limit(concurrency=2))
    with pytest.raises(HoldfastError, match="a limit of this name is registered at"):
        app.limit("mail", concurrency=1)


@pytest.mark.parametrize("rate", ["10/s", "100/min", "1000/h", "5000/day", "3/5s", "7/90min"])
def test_a_rate_is_read_and_written(rate: str) -> None:
    assert rate_text(*parsed_rate(rate)) == rate


def test_a_kind_names_the_argument_of_its_tenant(app: Holdfast) -> None:
    @app.job("import", tenant="account")
    async def import_(account: int | None, row: int = 0) -> None: ...

    @app.batch("rows", tenant="account")
    async def rows(items: list[Item[Entry]]) -> None: ...

    elsewhere = app.declare("elsewhere", Entry, tenant="account")
    assert json.loads(import_.new(7).as_json())["tenant"] == "7"
    assert json.loads(import_.new(7).options(priority=1).as_json())["tenant"] == "7"
    assert "tenant" not in json.loads(import_.new(None).as_json())
    assert json.loads(rows.new(Entry(account="acme")).as_json())["tenant"] == "acme"
    assert json.loads(elsewhere.new(Entry(account="")).as_json())["tenant"] == '""'
    assert json.loads(rows.new(Entry(account="x" * 501)).as_json())["tenant"].startswith("sha256 ")


def test_a_tenant_is_the_name_of_an_argument(app: Holdfast) -> None:
    def declare(tenant: Any) -> None:
        @app.job("mail", tenant=tenant)
        async def mail(to: str) -> None: ...

    with pytest.raises(InvalidJob, match="mail: tenant='account': there is no such parameter: its parameters are to"):
        declare("account")
    with pytest.raises(TypeError, match="tenant: write tenant=the name of an argument"):
        declare(7)


def test_a_subscriber_has_limits_without_by(app: Holdfast) -> None:
    sold = app.event("sold", dict)

    def subscribe(name: str, limit: Limit) -> Any:
        @app.on(sold, name=name, limits=[limit])
        async def book(event: Event[dict[str, int]]) -> None: ...

        return app.subscriptions[name]

    assert subscribe("books", Limit(concurrency=1)).envelope.limits == ("books",)
    with pytest.raises(InvalidJob, match=r"other: Limit.by='event'.: a subscriber's jobs have the event alone"):
        subscribe("other", Limit(concurrency=1, by="event"))
