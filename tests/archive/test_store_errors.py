"""Errors of the object store are one line that says what to do, and contain no secret."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import obstore
import pytest

from holdfast._archive.location import ArchiveError, Location, translated
from holdfast._model.errors import HoldfastError
from tools.ports import free_port
from tools.seaweedfs import REGION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.archive import History
    from tools.seaweedfs import SeaweedFS

KEY, SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"


def message(location: Location, act: Callable[[Any], Any]) -> str:
    with pytest.raises(ArchiveError) as caught, translated():
        act(location.open())
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 250
    return text


def test_each_error_says_what_to_do(object_store: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"test-{secrets.token_hex(6)}"
    here = Location(name, REGION, object_store.url)
    assert message(here, lambda store: obstore.get(store, "a")) == (
        "the bucket does not exist: create it, or correct HOLDFAST_ARCHIVE_BUCKET"
    )
    obstore.put(here.open(), "a", b"x")
    assert "b not found" in message(here, lambda store: obstore.get(store, "b"))
    assert "name is not valid" in message(
        Location("B", REGION, object_store.url), lambda store: obstore.put(store, "a", b"x")
    )
    port = free_port()
    away = message(Location(name, REGION, f"http://127.0.0.1:{port}"), lambda store: obstore.put(store, "a", b"x"))
    assert away.startswith(f"the object store at http://127.0.0.1:{port} does not answer: check HOLDFAST_ARCHIVE_")
    secret = secrets.token_hex(16)
    monkeypatch.setenv(SECRET, secret)
    for act in (lambda store: obstore.put(store, "a", b"x"), lambda store: obstore.head(store, "a")):
        refused = message(here, act)
        assert refused.startswith("the object store refused the credentials (")
        assert "check AWS_ACCESS_KEY_ID" in refused
        assert secret not in refused
    monkeypatch.setenv(KEY, secret)
    refused = message(here, lambda store: obstore.put(store, "a", b"x"))
    assert "(InvalidAccessKeyId)" in refused
    assert secret not in refused


@pytest.mark.nightly
async def test_a_store_that_does_not_answer_stops_a_tick_soon(history: History) -> None:
    for days_ago in range(100, 105):
        history.jobs_of(days_ago, 1)
    place, history.location = history.location, Location("b", REGION, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(HoldfastError, match=r"^3 exports failed: job_history of .+ does not answer: check HOLDFAST"):
        await history.export()
    failed = [export for export in await history.exports() if export.error]
    assert [export.running for export in failed] == [False] * 3
    # What is verified is not dropped either while nobody can look at its file.
    history.location = place
    await history.export()
    history.location = Location("b", REGION, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ArchiveError, match="does not answer"):
        await history.cleanup()
    assert history.value("SELECT count(*) FROM holdfast.job_history") == 5


@pytest.mark.nightly
def test_a_scheme_that_is_not_known_is_refused() -> None:
    with pytest.raises(ArchiveError, match="HOLDFAST_ARCHIVE_BUCKET: ftp:// is not known"):
        Location("ftp://host/bucket")
