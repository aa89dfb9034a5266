"""A file that is not what was written is noticed: when it is verified, and again before its day is dropped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import obstore
import pytest

from holdfast._archive.child import verify
from holdfast._archive.location import ArchiveError, manifest_name
from holdfast._archive.restore import TargetTable, restore

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tests.kit.archive import History


def content(bucket: ObjectStore, name: str) -> bytes:
    return bytes(obstore.get(bucket, name).bytes())


async def test_every_change_of_a_file_is_noticed_and_its_day_exported_anew(
    history: History, bucket: ObjectStore
) -> None:
    day = history.jobs_of(100, 500)
    history.remember("job_history")
    await history.export()
    [export] = await history.exports()
    assert export.object is not None
    name, manifest = export.object, manifest_name(export.object)
    whole, reported = content(bucket, name), json.loads(content(bucket, manifest))

    def refused(match: str) -> None:
        with pytest.raises(ArchiveError, match=match):
            verify(bucket, manifest)

    assert verify(bucket, manifest)["rows"] == 500
    obstore.put(bucket, name, whole[:-100] + bytes(100))
    refused("another checksum")
    obstore.put(bucket, name, whole + b"x")
    refused("bytes, and its manifest says")
    obstore.put(bucket, name, whole[: len(whole) // 2])
    refused("bytes, and its manifest says")
    obstore.put(bucket, name, b"")
    refused("0 bytes")
    obstore.delete(bucket, name)
    refused("is not in the bucket")
    obstore.put(bucket, name, whole)
    for change in ({"rows": 499}, {"bytes": 1}, {"checksum": "0" * 64}):
        obstore.put(bucket, manifest, json.dumps(reported | change).encode())
        refused("manifest says")
    obstore.put(bucket, manifest, json.dumps(reported | {"object": "elsewhere.parquet"}).encode())
    refused("describes another file, 'elsewhere.parquet'")
    obstore.put(bucket, manifest, b"{}")
    refused("is not a manifest")
    obstore.delete(bucket, manifest)
    refused("is not in the bucket")

    # The record still says verified. Before the drop the size and the tag are compared, and the day stays.
    obstore.put(bucket, name, whole[:-100] + bytes(100))
    assert await history.cleanup() == {"periods_changed": 1}
    [export] = await history.exports()
    assert (export.state, export.drop_eligible_at) == ("exporting", None)
    assert "was changed after it was verified" in (export.error or "")
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 500
    assert await history.export() == {"periods_exported": 1, "rows_exported": 500, "bytes_exported": len(whole)}
    assert content(bucket, name) == whole
    obstore.delete(bucket, name)
    assert await history.cleanup() == {"periods_changed": 1}
    assert "no longer in the bucket" in ((await history.exports())[0].error or "")
    await history.export()
    assert await history.cleanup() == {"periods_dropped": 1}
    [export] = await history.exports()
    assert (export.state, export.object) == ("dropped", name)
    restore(history.conn, bucket, export, TargetTable("archive", "restored"))
    assert history.differences("public.job_history_before", "archive.restored") == 0
    assert str(export.starts_on) == day
