"""A file that someone else has put into the bucket is refused before it is parsed, and never becomes SQL."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeAlias

import obstore
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast._archive.child import verify
from holdfast._archive.filesystem import StoredFile
from holdfast._archive.location import ArchiveError, manifest_name
from holdfast._archive.manifest import LONGEST, Manifest
from holdfast._archive.restore import TargetTable, restore
from holdfast._archive.search import find

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore.store import ObjectStore

    from holdfast._store.archive import Export
    from tests.kit.archive import History

Columns: TypeAlias = list[tuple[str, bytes]]

TARGET = TargetTable("archive", "restored")
# In place of a name: it would end the list of columns if the type before it ended in a comment.
ESCAPE = "x\n); COMMIT; CREATE TABLE public.injected (); BEGIN; --"
HOSTILE = ["integer --", "integer /*", "text); DROP TABLE canary; --", "bigint DEFAULT pg_backend_pid()", "int\n) AS ("]
EITHER_WAY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def parquet(columns: Columns, rows: int = 1) -> bytes:
    """Return a file with these columns of text, each with a name and a type in PostgreSQL."""
    fields = [pa.field(name, pa.string(), metadata={"postgresql": type_}) for name, type_ in columns]
    arrays = [pa.array(["1"] * rows, pa.string()) for _ in fields]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), sink)
    return bytes(sink.getvalue())


def recorded(bucket: ObjectStore, export: Export, data: bytes, rows: int = 1) -> Export:
    """Replace a file, and return its record as if it was this file that had been exported."""
    etag = obstore.put(bucket, str(export.object), data).get("e_tag")
    return export._replace(rows=rows, bytes=len(data), checksum=hashlib.sha256(data).hexdigest(), etag=etag)


def content(bucket: ObjectStore, name: str) -> bytes:
    return bytes(obstore.get(bucket, name).bytes())


@pytest.fixture
async def exported(history: History) -> Export:
    history.jobs_of(100, 5)
    await history.export()
    history.conn.execute("CREATE TABLE canary ()")
    [export] = await history.exports()
    return export


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if Arrow opens a file."""

    def opened(*_: Any, **__: Any) -> None:
        raise AssertionError("the file was opened")

    monkeypatch.setattr(pq, "ParquetFile", opened)
    monkeypatch.setattr(pq, "read_schema", opened)


def tables(history: History) -> set[str]:
    return set(
        history.value(
            "SELECT array_agg(oid::regclass::text) FROM pg_class WHERE relkind IN ('r', 'p') "
            "AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
        )
    )


@pytest.mark.nightly(daily=["of the same size"])
@pytest.mark.parametrize(
    "forge",
    [lambda data: data[:-9] + b"x" + data[-8:], lambda _: parquet([("id", b"integer --"), (ESCAPE, b"text")])],
    ids=["of the same size", "of another size"],
)
@pytest.mark.usefixtures("unread")
async def test_a_forged_file_is_refused_before_it_is_opened(
    exported: Export, history: History, bucket: ObjectStore, forge: Callable[[bytes], bytes]
) -> None:
    before, name = tables(history), str(exported.object)
    data = forge(content(bucket, name))
    obstore.put(bucket, name, data)
    refused = pytest.raises(ArchiveError, match=f"{name} has .* than its record says|bytes, and its record says")
    with refused:
        restore(history.conn, bucket, exported, TARGET)
    with refused:
        find(bucket, [exported], 1)
    # A forger of the file can forge its manifest too.
    manifest = Manifest.parse(content(bucket, manifest_name(name)), name=manifest_name(name))
    forged = manifest.model_copy(update={"checksum": hashlib.sha256(data).hexdigest(), "bytes": len(data)})
    obstore.put(bucket, manifest_name(name), forged.text())
    with pytest.raises(ArchiveError, match=r"in the bucket, and .* in the record"):
        verify(bucket, manifest_name(name), exported)
    assert tables(history) == before


@pytest.mark.nightly
async def test_a_file_that_was_copied_is_read_by_its_checksum(
    exported: Export, history: History, bucket: ObjectStore
) -> None:
    copied = exported._replace(etag="of another store")
    id_ = int(copied.min_id or 0)
    [found] = find(bucket, [copied], id_)
    assert found.row["id"] == id_
    assert restore(history.conn, bucket, copied, TARGET) == 5


@pytest.mark.nightly
def test_a_file_that_is_replaced_while_it_is_read(bucket: ObjectStore) -> None:
    obstore.put(bucket, "x.parquet", b"one and")
    found = obstore.head(bucket, "x.parquet")
    file = StoredFile(bucket, "x.parquet", found["size"], found["e_tag"])
    assert file.read(0, 3) == b"one"
    obstore.put(bucket, "x.parquet", b"another")
    with pytest.raises(ArchiveError, match=r"x\.parquet was replaced while it was read"):
        file.read(4, 7)


@pytest.mark.nightly(daily=["text); DROP TABLE canary; --"])
@pytest.mark.parametrize("type_", HOSTILE)
async def test_the_types_of_a_file_are_no_sql(
    exported: Export, history: History, bucket: ObjectStore, type_: str
) -> None:
    """Also of a file that is as recorded."""
    before = tables(history)
    file = recorded(bucket, exported, parquet([("a", type_.encode()), (ESCAPE, b"text")]))
    with pytest.raises(ArchiveError, match=r"the column 'a' has the type .*, which is not known"):
        restore(history.conn, bucket, file, TARGET)
    assert tables(history) == before


@pytest.mark.nightly
async def test_a_name_of_a_column_is_quoted(exported: Export, history: History, bucket: ObjectStore) -> None:
    restore(history.conn, bucket, recorded(bucket, exported, parquet([(ESCAPE, b"text"), ('"%s', b"text")])), TARGET)
    names = history.value(
        "SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = 'archive.restored'::regclass AND attnum > 0"
    )
    assert names == [ESCAPE, '"%s']


TYPES = [
    "integer", "uuid", "character(3)", "character varying(10)", "numeric(12,2)", "numeric(3,-2)", "bit(3)", '"bit"',
    "bit varying(5)", "timestamp(0) with time zone", "time(3) without time zone[]", "interval", "interval(3)",
    "interval day to second(3)", "interval year to month[]", '"char"', "bpchar", "name", "jsonb[]",
    'public."a ""type"" (of 3) -- mine"', 'public."a ""type"" (of 3) -- mine"[]', "public.mood",
]  # fmt: skip


@pytest.mark.nightly
async def test_types_are_restored_as_the_catalog_writes_them(
    exported: Export, history: History, bucket: ObjectStore
) -> None:
    """With a search_path in which the names would be written differently."""
    history.conn.execute('CREATE DOMAIN "a ""type"" (of 3) -- mine" AS int; CREATE TYPE mood AS ENUM (\'1\')')
    history.conn.execute("CREATE DOMAIN public.uuid AS int; SET search_path = public, pg_catalog")
    file = recorded(bucket, exported, parquet([(f"c{n}", type_.encode()) for n, type_ in enumerate(TYPES)], 0), 0)
    restore(history.conn, bucket, file, TARGET)
    history.conn.execute("SET search_path = pg_catalog")
    assert (
        history.value(
            "SELECT array_agg(format_type(atttypid, atttypmod) ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = 'archive.restored'::regclass AND attnum > 0"
        )
        == TYPES
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
types = st.one_of(
    texts.map(str.encode),
    st.binary(max_size=20),
    st.builds(lambda one, other: (one + other).encode(), st.sampled_from([*TYPES, *HOSTILE]), texts),
)


@pytest.mark.nightly
@EITHER_WAY
@given(columns=st.lists(st.tuples(st.one_of(texts, st.just(ESCAPE)), types), max_size=4), rows=st.integers(0, 2))
@example(columns=[("a", b"integer --"), (ESCAPE, b"text")], rows=1)
@example(columns=[], rows=0)
@example(columns=[("a", b"\xff")], rows=1)
@example(columns=[("a", b"text"), ("a", b"text")], rows=1)
@example(columns=[("a\0b", b"text")], rows=1)
@example(columns=[("", b"text")], rows=1)
@example(columns=[("a", b"cstring")], rows=1)
def test_no_schema_of_a_file_is_more_than_a_table(
    exported: Export, history: History, bucket: ObjectStore, columns: Columns, rows: int
) -> None:
    """A file is restored as a table of its columns, or refused with an error that the command explains."""
    before = tables(history)
    file = recorded(bucket, exported, parquet(columns, rows), rows)
    try:
        restored = restore(history.conn, bucket, file, TARGET)
    except (ArchiveError, psycopg.Error):
        assert tables(history) == before
    else:
        assert restored == rows
        assert tables(history) == before | {"archive.restored"}
        history.conn.execute("DROP SCHEMA archive CASCADE")
    assert history.conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3),
    max_leaves=5,
)
NAME = "c0ffee/job_history/day=2026-03-14/1.json"
WHOLE = {
    "source": "job_history", "starts_on": "2026-03-14", "ends_on": "2026-03-15", "part": 1,
    "object": "c0ffee/job_history/day=2026-03-14/1.parquet", "rows": 5, "bytes": 900, "checksum": "0" * 64,
    "min_id": 1, "max_id": 5, "schema_version": 1, "columns": [["id", "bigint"]], "format": 1,
}  # fmt: skip


@EITHER_WAY
@given(
    text=st.one_of(
        st.binary(max_size=50),
        json_values.map(lambda value: json.dumps(value).encode()),
        st.dictionaries(st.sampled_from([*WHOLE, "more"]), json_values, min_size=1, max_size=2).map(
            lambda change: json.dumps(WHOLE | change).encode()
        ),
        st.sampled_from(list(WHOLE)).map(lambda name: json.dumps({**WHOLE, name: WHOLE["columns"]}).encode()),
    )
)
@example(text=b"[" * 100_000)
@example(text=b" " * (LONGEST + 1))
@example(text=json.dumps(WHOLE | {"object": "../../etc/passwd"}).encode())
@example(text=json.dumps(WHOLE | {"rows": 10**18}).encode())
@example(text=json.dumps(WHOLE | {"rows": True}).encode())
@example(text=json.dumps(WHOLE | {"bytes": "1"}).encode())
@example(text=json.dumps(WHOLE | {"columns": "x"}).encode())
@example(text=json.dumps(WHOLE | {"format": 99}).encode())
def test_a_manifest_is_whole_or_refused(bucket: ObjectStore, text: bytes) -> None:
    """It describes the file beside it, which is not there, and its text is what this version writes."""
    obstore.put(bucket, NAME, text)
    with pytest.raises(ArchiveError, match=r"is not a manifest that this version can read|is not in the bucket"):
        verify(bucket, NAME)
