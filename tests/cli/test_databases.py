"""Commands over several databases: all of them, one chosen by name, and one that does not answer."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._store.schema import migrations
from holdfast._store.subscription import subscribe
from holdfast._store.worker import pause_queue
from tests.cli.auditing import ME, audited
from tests.kit.commands import Output, holdfast
from tests.kit.databases import clone
from tests.kit.workers import FAILED, Worker, enqueue, job, statuses
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Connection = psycopg.Connection[Any]

NOWHERE = "postgresql://me:hush@127.0.0.1:1/nowhere"


class Two(NamedTuple):
    """Two databases, and a connection to each."""

    urls: dict[str, str]
    eu: Connection
    us: Connection

    def run(self, *arguments: str, cwd: Path | None = None, **more: str) -> Output:
        """Run a command for both, and for `more` databases."""
        listed = " ".join(f"{name}={url}" for name, url in {**self.urls, **more}.items())
        return holdfast(*arguments, cwd=cwd, HOLDFAST_DATABASE_URL=listed)


@pytest.fixture
def two(server: Server, template: str) -> Iterator[Two]:
    with ExitStack() as stack:
        urls = {name: stack.enter_context(clone(server, template)) for name in ("eu", "us")}
        yield Two(urls, *(stack.enter_context(psycopg.connect(url, autocommit=True)) for url in urls.values()))


@contextmanager
def frozen(server_version: int) -> Iterator[str]:
    """Yield the address of a server that accepts connections and answers nothing."""
    with Server(server_version) as server:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            yield f"{server.url()}?connect_timeout=2"
        finally:
            os.kill(server.pid, signal.SIGCONT)


def failed(conn: Connection, **options: Any) -> int:
    """Make a dead letter."""
    worker = Worker(conn)
    (made,) = enqueue(conn, job("k", **options))
    worker.end(worker.claim(), FAILED)
    return made


# --- choosing


def test_a_command_for_one_database_asks_which(two: Two) -> None:
    for command in (["queues", "pause", "mail"], ["events", "pause", "x"], ["archive"], ["retention", "set", "runs=9"]):
        output = two.run(*command)
        assert output.status == 2
        message = "HOLDFAST_DATABASE_URL names 2 databases: choose one with --database: eu, us"
        assert output.err == f"holdfast {command[0]}: {message}\n"


def test_one_is_chosen_by_name(two: Two) -> None:
    two.us.execute("INSERT INTO holdfast.queue (name) VALUES ('mail')")
    assert two.run("queues", "pause", "mail", "--database", "us").status == 0
    assert two.run("queues", "--database", "us", "--json").json["items"][0]["paused"]
    assert two.run("queues", "list", "--database", "eu", "--json").json["items"] == []
    output = two.run("queues", "--database", "eux")
    assert (output.status, output.err) == (2, "holdfast queues: there is no database eux: did you mean eu?\n")
    output = two.run("jobs", "list", "--database", "eu", "--database-url", two.urls["us"])
    assert output.status == 2
    assert output.err == "holdfast jobs list: --database-url and --database exclude each other: give one of them\n"
    output = two.run("queues", "--database", "eu", "list", "--database-url", two.urls["us"])
    assert output.status == 2
    assert output.err == "holdfast queues: --database and --database-url exclude each other: give one of them\n"


def test_a_file_names_them_as_well(two: Two, tmp_path: Path) -> None:
    file = tmp_path / "databases.toml"
    file.write_text(f'eu = "{two.urls["eu"]}"\nus = {{ url = "{two.urls["us"]}", draining = true }}\n')
    enqueue(two.us, job("k"))
    output = holdfast("jobs", "list", "--json", HOLDFAST_DATABASES_FILE=str(file))
    assert [(one["database"], one["kind"]) for one in output.json] == [("us", "k")]
    output = holdfast("jobs", "list", HOLDFAST_DATABASES_FILE=str(tmp_path / "absent.toml"))
    assert output.status == 1
    assert "absent.toml: cannot be read" in output.err


def test_the_only_database_may_have_no_name(database: str) -> None:
    output = holdfast("jobs", "list", "--database", "eu", database=database)
    assert (output.status, output.err) == (
        2,
        "holdfast jobs: --database: DATABASE_URL gives the only database no name\n",
    )
    assert holdfast("jobs", "list", "--database", "eu", HOLDFAST_DATABASE_URL=f"eu={database}").status == 0


# --- migrate


def test_all_are_migrated_where_one_fails(server: Server, database: str) -> None:
    with clone(server, "template0") as empty:
        listed = f"gone={NOWHERE} new={empty} old={database}"
        output = holdfast("migrate", "--check", HOLDFAST_DATABASE_URL=listed)
        assert (output.status, output.out) == (1, "old: The schema is up to date.\n")
        gone, new = output.err.splitlines()
        assert gone.startswith(
            "holdfast migrate: gone: cannot connect to the database of HOLDFAST_DATABASE_URL, gone: "
        )
        assert new == "holdfast migrate: new: This database has no Holdfast schema: run `holdfast migrate`."
        output = holdfast("migrate", HOLDFAST_DATABASE_URL=listed)
        assert output.status == 1
        applied = [f"new: applied {migration.name}" for migration in migrations()]
        assert output.out.splitlines() == [*applied, "old: The schema is up to date."]
        assert len(output.err.splitlines()) == 1
        assert "hush" not in output.err
        output = holdfast("migrate", "--database", "new", HOLDFAST_DATABASE_URL=listed)
        assert (output.status, output.out, output.err) == (0, "The schema is up to date.\n", "")


def test_one_that_is_away_can_be_skipped(server: Server, database: str, server_version: int) -> None:
    with clone(server, "template0") as empty, frozen(server_version) as silent:

        def run(*options: str, **urls: str) -> Output:
            listed = " ".join(f"{name}={url}" for name, url in urls.items())
            return holdfast("migrate", "--skip-unreachable", *options, HOLDFAST_DATABASE_URL=listed)

        output = run("--check", gone=NOWHERE, silent=silent, old=database)
        assert (output.status, output.out) == (0, "old: The schema is up to date.\n")
        for name, line in zip(("gone", "silent"), output.err.splitlines(), strict=True):
            assert line.startswith(f"holdfast migrate: {name}: skipped: cannot connect to the database of ")
        assert "hush" not in output.err
        output = run("--check", gone=NOWHERE, new=empty, old=database)
        assert output.status == 1, "one that answers and is not migrated"
        assert run(gone=NOWHERE, new=empty, old=database).status == 0
        assert run("--check", new=empty).status == 0
        assert run("--check", gone=NOWHERE, other=NOWHERE.replace("nowhere", "elsewhere")).status == 1, "none answers"
        assert run("--check", gone=NOWHERE).status == 1, "the only one"


# --- jobs


def test_jobs_of_all_are_listed_newest_first(two: Two) -> None:
    made = [("eu", *enqueue(two.eu, job("a"))), ("us", *enqueue(two.us, job("b"))), ("eu", *enqueue(two.eu, job("c")))]
    output = two.run("jobs", "list", "--json")
    assert (output.status, output.err) == (0, "")
    assert [(one["database"], one["id"]) for one in output.json] == made[::-1]
    output = two.run("jobs", "list", "--limit", "2")
    head, *lines, more = output.out.splitlines()
    assert head.split()[:3] == ["DATABASE", "ID", "STATUS"]
    assert [line.split()[:4] for line in lines] == [
        ["eu", f"eu/{made[2][1]}", "pending", "c"],
        ["us", f"us/{made[1][1]}", "pending", "b"],
    ]
    assert more == "The newest 2. There may be more."


def test_one_that_does_not_answer_is_a_line_at_the_end(two: Two, server_version: int) -> None:
    enqueue(two.eu, job("a"))
    with frozen(server_version) as silent:
        output = two.run("jobs", "list", gone=NOWHERE, silent=silent)
    assert output.status == 3
    assert "eu/1" in output.out
    gone, late = output.err.splitlines()
    assert gone.startswith("gone: not asked: connection failed: ")
    assert "refused" in gone
    assert late.startswith("silent: not asked: connection timeout expired")
    assert "hush" not in output.err
    output = two.run("jobs", "list", "--json", gone=NOWHERE)
    assert (output.status, [one["id"] for one in output.json]) == (3, [1])


def test_show_finds_a_job_by_its_id(two: Two) -> None:
    enqueue(two.eu, job("a"))
    enqueue(two.us, job("b"), job("c"))
    for wanted in ("2", "us/2"):
        output = two.run("jobs", "show", wanted, "--json")
        assert (output.status, output.json["database"], output.json["job"]["kind"]) == (0, "us", "c")
    assert two.run("jobs", "show", "2").out.splitlines()[1].split() == ["database", "us"]
    output = two.run("jobs", "show", "1")
    assert (output.status, output.err) == (2, "holdfast jobs: 2 databases have a job 1: say which one: eu/1 or us/1\n")
    output = two.run("jobs", "show", "7")
    assert output.status == 1
    assert output.err.startswith("holdfast jobs: job 7 does not exist: ")
    output = two.run("jobs", "show", "7", gone=NOWHERE)
    assert output.status == 3
    assert output.err.splitlines()[1] == "holdfast jobs: job 7 was not found: not every database was asked"
    assert two.run("jobs", "show", "eux/1").err == "holdfast jobs: there is no database eux: did you mean eu?\n"
    output = two.run("jobs", "show", "eu/x")
    assert output.status == 2
    assert "'x' is not the id of a job" in output.err


def test_jobs_of_several_databases_are_acted_on_by_their_names(two: Two) -> None:
    mine, other = failed(two.eu), failed(two.us)
    output = two.run("jobs", "retry", str(mine))
    assert (output.status, output.err) == (
        2,
        f"holdfast jobs: {mine}: there are 2 databases: write eu/{mine} or us/{mine}\n",
    )
    assert two.run("jobs", "retry", "9").err == "holdfast jobs: 9: there are 2 databases: none of them has this job\n"
    output = two.run("jobs", "retry", f"eu/{mine}", f"us/{other}", "us/9", "gone/1", gone=NOWHERE)
    assert output.status == 1
    again = f"runs again as job eu/{mine + 1}", f"runs again as job us/{other + 1}"
    only = "does not exist, see `holdfast jobs list`: only a dead letter (failed) can be retried"
    assert output.out.splitlines() == [f"eu/{mine}: {again[0]}", f"us/{other}: {again[1]}", f"us/9: {only}"]
    assert output.err.startswith("gone: not asked: ")
    assert statuses(two.us) == {other: "failed", other + 1: "pending"}
    assert [line[:3] for line in audited(two.us)] == [(ME, "jobs.retry", str(other))]
    output = two.run("jobs", "cancel", f"us/{other + 1}", "--json")
    assert output.json == [{"database": "us", "id": other + 1, "result": "cancelled", "message": "cancelled"}]
    assert statuses(two.eu)[mine + 1] == "pending"


def test_a_filter_is_applied_everywhere(two: Two) -> None:
    dead = failed(two.eu)
    failed(two.us), failed(two.us)
    output = two.run("jobs", "retry", "--status", "failed")
    assert output.status == 0
    head, *lines = output.out.splitlines()
    assert head.split()[0] == "DATABASE"
    assert [line.split()[1] for line in lines[:-2]] == [f"eu/{dead}", "us/2", "us/1"]
    assert lines[-2:] == [
        "eu: 1 job would be retried. Give --yes to do it.",
        "us: 2 jobs would be retried. Give --yes to do it.",
    ]
    output = two.run("jobs", "retry", "--status", "failed", "--yes", gone=NOWHERE)
    assert (output.status, output.out) == (3, "eu: 1 of 1 job retried.\nus: 2 of 2 jobs retried.\n")
    output = two.run("jobs", "retry", "--kind", "none", "--json")
    assert [(one["database"], one["matched"]) for one in output.json] == [("eu", 0), ("us", 0)]


def test_an_order_key_goes_on_where_it_is_stopped(two: Two) -> None:
    failed(two.us, order_key=OrderKey("customer 7", on_failure="block"))
    output = two.run("jobs", "resume-key", "customer 7")
    assert (output.status, output.out) == (0, "us: customer 7: goes on with its next job\n")
    output = two.run("jobs", "resume-key", "customer 7", gone=NOWHERE)
    assert output.status == 1
    assert "is not blocked" in output.err


# --- other listings


def test_other_listings_have_a_column_of_databases(two: Two) -> None:
    for conn in (two.eu, two.us):
        enqueue(conn, job("k", queue="mail"))
    run_sync(two.us, pause_queue("mail"))
    output = two.run("queues")
    lines = [line.split()[:3] for line in output.out.splitlines()]
    assert lines[:3] == [["DATABASE", "NAME", "STATE"], ["eu", "mail", "unserved"], ["us", "mail", "paused"]]
    assert [line[:3] for line in lines[3:]] == [["Live", "jobs", "of"]] * 2
    output = two.run("retention", gone=NOWHERE)
    assert output.status == 3
    assert {line.split()[0] for line in output.out.splitlines()} == {"DATABASE", "eu", "us"}
    for command in ("events", "runners"):
        assert two.run(command, "--json").json == []


def test_tokens_are_those_of_the_first(two: Two) -> None:
    assert two.run("tokens", "make", "ann", "--role", "viewer").status == 0
    assert [one["name"] for one in two.run("tokens", "list", "--json").json] == ["ann"]
    assert two.run("tokens", "list", "--json", "--database", "us").json == []


# --- check


def findings(output: Output) -> dict[tuple[str, str], tuple[str, str]]:
    return {(one["database"], one["subject"]): (one["verdict"], one["message"]) for one in output.json["findings"]}


def test_every_database_is_checked(two: Two, tmp_path: Path) -> None:
    enqueue(two.eu, job("k"))
    run_sync(two.eu, subscribe("out", target="nats", topics=["sold"], partitions=1, beginning=True))
    two.eu.execute("SELECT holdfast.publish('sold', '{}')")
    (tmp_path / "shop.py").write_text(
        "from holdfast import Databases, Holdfast\n"
        f"app = Holdfast(Databases({two.urls | {'gone': NOWHERE}!r}, draining=['us', 'gone']))\n"
    )
    output = holdfast("check", "shop:app", "--json", cwd=tmp_path)
    assert output.status == 1
    found = findings(output)
    assert found["eu", "placement"] == ("ok", "takes new keys: 1 unfinished job, 1 event not handed over")
    assert found["us", "placement"] == ("note", "is draining and takes no new keys: nothing is left to do")
    assert found["eu", "schema"][0] == found["us", "schema"][0] == "ok"
    assert found["gone", "database"][0] == "wrong"
    assert "hush" not in output.out
    enqueue(two.us, job("k"), job("k"))
    found = findings(holdfast("check", "shop:app", "--json", "--database", "us", cwd=tmp_path))
    assert {name for name, _ in found} == {"-", "us"}
    assert found["us", "placement"][1].endswith("no new keys: 2 unfinished jobs, 0 events not handed over")
    found = findings(holdfast("check", "shop:app", "--json", "--server", cwd=tmp_path))
    assert found["eu", "version"][0] == found["us", "version"][0] == "ok"
    assert found["us", "placement"][0] == "note"
