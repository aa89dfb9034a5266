"""`holdfast archive verify`, `restore` and `query`, with a real object store."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import obstore
import pytest

from tests.cli.archiving import WRONG, archive, command, flat
from tests.cli.auditing import ME, audited
from tests.kit.databases import clone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from obstore.store import ObjectStore

    from tests.kit.archive import History
    from tools.postgres import Server

ATTEMPT = (
    "INSERT INTO holdfast.attempt (job_id, ended_at, outcome, attempt, ran_ms, error_code, error) "
    "VALUES (%s, %s, 'retry', 1, 35, 'ConnectionError', 'the mail server is away')"
)


@pytest.mark.nightly
def test_verify(history: History, bucket: ObjectStore) -> None:
    days = [history.day(100, jobs=20), history.day(99, jobs=30)]
    assert archive(history, "export").status == 0
    output = archive(history, "verify", "job_history")
    assert output.status == 0, output.out
    assert f"job_history {days[1]} 30" in flat(output.out)
    assert days[0] not in output.out
    assert output.out.endswith(f"1 file read from s3://{history.location.bucket}: all as recorded.\n")
    assert "12 files read" in archive(history, "verify", "--all").out
    assert len(archive(history, "verify", "--day", days[0], "--json").json) == 6
    [name] = [e["path"] for e in obstore.list(bucket).collect() if f"job_history/day={days[0]}/1.parquet" in e["path"]]
    whole = bytes(obstore.get(bucket, name).bytes())
    obstore.put(bucket, name, whole[:-9] + b"x" + whole[-8:])
    output = archive(history, "verify", "--all")
    assert output.status == 1
    assert "has another checksum than its manifest says" in output.out
    assert output.out.endswith("1 not as recorded.\n")
    obstore.delete(bucket, name)
    [reported] = archive(history, "verify", "job_history", "--day", days[0], "--json").json
    assert reported["difference"] == f"{name} is not in the bucket"
    obstore.put(bucket, name, whole)
    history.conn.execute("UPDATE holdfast.archive_exports SET rows = 21 WHERE rows = 20")
    output = archive(history, "verify", "job_history", "--day", days[0])
    assert "rows: 20 in the bucket, and 21 in the record" in output.out


@pytest.mark.nightly
def test_verify_of_a_bucket_that_cannot_be_read(history: History, tmp_path: Path) -> None:
    day = history.day(100, jobs=20)
    assert archive(history, "export", "job_history").status == 0
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
    # Without credentials in the environment, a machine's own are asked for at this address.
    without = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_METADATA_ENDPOINT": nowhere}
    missing = tmp_path / "not-mounted"
    for variables, cause in (
        (WRONG, "the object store refused the credentials (SignatureDoesNotMatch): check AWS_ACCESS_KEY_ID"),
        ({"HOLDFAST_ARCHIVE_ENDPOINT": nowhere}, f"the object store at {nowhere} does not answer: check "),
        (without, "credentials"),
        ({"HOLDFAST_ARCHIVE_BUCKET": "nobody"}, "the bucket does not exist: create it, or correct HOLDFAST_ARCHIVE_"),
        ({"HOLDFAST_ARCHIVE_BUCKET": missing.as_uri()}, f"the folder {missing} does not exist: correct HOLDFAST_"),
    ):
        output = archive(history, "verify", "job_history", **variables)
        assert output.status == 3, output
        assert f"job_history {day} 20" in flat(output.out)
        assert f" not read: {cause}" in flat(output.out) if variables is not without else cause in output.out
        assert output.out.endswith("; 1 not read.\n")
        assert "as recorded" not in output.out
        assert "hush" not in output.out + output.err
    assert not missing.exists()
    [reported] = archive(history, "verify", "job_history", "--json", **WRONG).json
    assert reported["difference"] is None
    assert reported["not_read"].startswith("the object store refused the credentials")


@pytest.mark.nightly
def test_a_difference_counts_more_than_a_file_that_was_not_read(history: History, tmp_path: Path) -> None:
    day = history.day(100, jobs=20)
    folder = tmp_path / "history"
    where = {"HOLDFAST_ARCHIVE_BUCKET": folder.as_uri()}
    assert command(history, "archive", "export", "--day", day, **where).status == 0
    [job] = folder.rglob("*/job_history/*/1.parquet")
    job.write_bytes(b"x" * job.stat().st_size)
    # A link to itself cannot be read, whoever asks.
    [manifest] = folder.rglob("*/run/*/1.json")
    manifest.unlink()
    manifest.symlink_to(manifest.name)
    output = command(history, "archive", "verify", "--all", **where)
    assert output.status == 1
    assert "has another checksum than its manifest says" in output.out
    assert output.out.endswith(f"5 files read from {folder.as_uri()}: 1 not as recorded; 1 not read.\n")


@pytest.mark.nightly
def test_restore(history: History) -> None:
    day = history.day(100, jobs=12)
    assert archive(history, "export").status == 0
    name = f"archive.job_history_{day.replace('-', '')}"
    output = archive(history, "restore", "job_history", day)
    assert output == (0, f"job_history {day}: 12 rows in the table {name}\n", "")
    assert history.value(f"SELECT count(*) FROM {name}") == 12
    output = archive(history, "restore", "job_history", day)
    assert output.status == 1
    assert f"the table {name} exists already: drop it, or give another one with --into" in output.err
    reported = archive(history, "restore", "job_history", day, "--into", "march", "--json").json
    assert (reported["table"], reported["rows"]) == ("public.march", 12)
    assert archive(history, "restore", "run", day).out == f"run {day}: has no rows, and no table was made\n"
    assert (ME, "archive.restore", name, None) in audited(history.conn)


@pytest.fixture
def empty(history: History, server: Server, template: str) -> Iterator[History]:
    """Another database, without records of files."""
    with clone(server, template) as url:
        yield replace(history, url=url)


@pytest.mark.nightly
def test_restore_into_an_empty_database(history: History, empty: History, bucket: ObjectStore) -> None:
    """There is no record, so the manifest is trusted, and the file must be what it says."""
    day = history.jobs_of(100, 12)
    assert archive(history, "export", "job_history").status == 0
    identity = str(history.value("SELECT replace(id::text, '-', '') FROM holdfast.identity"))
    output = archive(empty, "restore", "job_history", day)
    assert f"job_history of {day} is not archived: see " in output.err
    output = archive(empty, "restore", "job_history", day, "--identity", identity)
    assert output.status == 0, output.err
    assert output.out.startswith(f"job_history {day}: 12 rows in the table archive.job_history_")
    assert output.out.endswith("manifests say. No record of the database proves that these are the original.\n")
    for wrong, refusal in (("c0ffee", "is not in the bucket"), ("../c0ffee", "is no name of an object")):
        output = archive(empty, "restore", "job_history", day, "--identity", wrong)
        assert output.status == 1
        assert refusal in output.err
    [manifest] = [e["path"] for e in obstore.list(bucket).collect() if e["path"].endswith("1.json")]
    reported = bytes(obstore.get(bucket, manifest).bytes())
    for old, new, refusal in (
        (b'"rows": 12', b'"rows": 13', "12 rows were loaded"),
        (b'"checksum": "', b'"checksum": "0', "is not a manifest that this version can read"),
        (b'"part": 1', b'"part": 2', "describes another period"),
    ):
        obstore.put(bucket, manifest, reported.replace(old, new))
        output = archive(empty, "restore", "job_history", day, "--identity", identity, "--into", "march")
        assert (output.status, output.out) == (1, "")
        assert refusal in output.err


def test_a_forged_file_is_refused_by_every_command(history: History, bucket: ObjectStore) -> None:
    day = history.jobs_of(100, 12)
    id_ = str(history.value("SELECT max(id) FROM holdfast.job_history"))
    assert archive(history, "export", "job_history").status == 0
    [name] = [e["path"] for e in obstore.list(bucket).collect() if e["path"].endswith("1.parquet")]
    whole = bytes(obstore.get(bucket, name).bytes())
    for forged in (whole[:-9] + b"x" + whole[-8:], b"PAR1junkPAR1"):
        obstore.put(bucket, name, forged)
        for words in (
            ("restore", "job_history", day),
            ("query", "--job", id_),
        ):
            output = archive(history, *words)
            assert (output.status, output.out) == (1, ""), words
            assert output.err.startswith(f"holdfast archive: {name} has "), output.err
            assert len(output.err.splitlines()) == 1


@pytest.mark.nightly
def test_what_happened_to_a_job(history: History) -> None:
    day = history.day(100, jobs=5)
    id_ = history.value("SELECT max(id) FROM holdfast.job_history")
    history.conn.execute(ATTEMPT, [id_, f"{day} 09:00+00"])
    output = archive(history, "query", "--job", str(id_))
    assert output.status == 1
    assert f"job {id_} is still in the database, and in no file: see `holdfast jobs show {id_}`" in output.err
    assert archive(history, "export").status == 0
    output = archive(history, "query", "--job", str(id_))
    assert output.status == 0, output.err
    assert output.out.startswith(f"job {id_}, completed, in s3://{history.location.bucket}/")
    assert f"job_history/day={day}/1.parquet" in output.out
    assert "kind receipt.send" in flat(output.out)
    assert "\nAttempts (1)\n" in output.out
    assert "1 retry" in flat(output.out)
    assert f"attempt/day={day}/1.parquet" in output.out
    reported = archive(history, "query", "--job", str(id_), "--since", day, "--until", day, "--json").json
    assert {one["source"] for one in reported} == {"job_history", "attempt"}
    assert archive(history, "query", "--job", str(id_), "--until", "2020-01-01").status == 1


@pytest.mark.nightly
def test_a_job_that_left_is_named_with_the_command_that_finds_it(history: History) -> None:
    history.jobs_of(100, 5)
    id_ = history.value("SELECT max(id) FROM holdfast.job_history")
    assert archive(history, "export", "job_history").status == 0
    history.conn.execute("DELETE FROM holdfast.job_history")
    output = command(history, "jobs", "show", str(id_))
    assert output.status == 1
    assert output.err == (
        f"holdfast jobs: job {id_} is no longer in the database, and may be in the archive: run "
        f"`holdfast archive query --job {id_}`\n"
    )
    eu = {"HOLDFAST_DATABASE_URL": f"eu={history.url}"}
    output = command(history, "jobs", "show", f"eu/{id_}", **eu)
    assert output.err.endswith(f": run `holdfast archive query --job {id_} --database eu`\n")
    assert command(history, "jobs", "show", str(id_ + 1)).err.startswith(f"holdfast jobs: job {id_ + 1} does not exist")


@pytest.mark.nightly
def test_a_job_that_was_delayed_for_days_is_found_with_its_attempts(history: History) -> None:
    days = [history.day(100 - n, families=["job_history", "attempt"]) for n in range(3)]
    for n, day in enumerate(days):
        history.add(day, 1, id=f"{10 + n}")
        history.add(day, 1, id=f"{1000 + n}")
        history.conn.execute(ATTEMPT, [500, f"{day} 09:00+00"])
    history.add(days[1], 1, id="500")
    assert archive(history, "export").status == 0
    reported = archive(history, "query", "--job", "500", "--json").json
    # An attempt of a day on which the job was not is another one's, as after a reset of the ids.
    assert [(one["source"], one["file"].split("/")[-2]) for one in reported] == [
        ("job_history", f"day={days[1]}"),
        ("attempt", f"day={days[1]}"),
    ]


def test_what_became_of_an_event(history: History) -> None:
    day = history.day(100, families=["event", "delivery"])
    history.conn.execute(
        "INSERT INTO holdfast.event (id, published_at, xid, shard, topic, key, payload) "
        "SELECT n, %s, '7', 3, 'order.paid', 'customer-7', json_build_object('order_id', n) "
        "FROM generate_series(1, 50) AS n",
        [f"{day} 10:00+00"],
    )
    history.conn.execute(
        "INSERT INTO holdfast.delivery (event_id, subscription_id, attempt, status, answered_at, answer) "
        "VALUES (17, 1, 1, 503, %s, 'try later'), (17, 1, 2, 200, %s, 'thanks')",
        [f"{day} 10:01+00", f"{day} 10:02+00"],
    )
    assert archive(history, "export").status == 0
    output = archive(history, "query", "--event", "17")
    assert output.status == 0, output.err
    assert output.out.startswith(f"event 17 in s3://{history.location.bucket}/")
    assert f"event/day={day}/1.parquet" in output.out
    for field in ("topic order.paid", "key customer-7", 'payload {"order_id" : 17}'):
        assert field in flat(output.out)
    assert "\nDeliveries (2)\n" in output.out
    assert "try later" in output.out
    assert f"delivery/day={day}/1.parquet" in output.out
    reported = archive(history, "query", "--event", "17", "--since", day, "--until", day, "--json").json
    assert [one["source"] for one in reported].count("delivery") == 2
    [event] = [one["row"] for one in reported if one["source"] == "event"]
    assert (event["id"], event["topic"]) == (17, "order.paid")
    output = archive(history, "query", "--event", "77")
    assert output.status == 1
    assert "event 77 is in no file of these days" in output.err
