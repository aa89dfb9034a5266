from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from holdfast._relay.message import Message
from holdfast._relay.sinks.cloud_events import CloudEvents, percent_encoded, renamed

AT = datetime(2026, 5, 4, 12, 30, tzinfo=timezone(timedelta(hours=2)))


def a_message(body: bytes = b"[1, 2]", content_type: str = "application/json", key: str | None = "k") -> Message:
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "holdfast-version": "3"}
    return Message("e1", "invoice.paid", key, body, headers, AT, content_type)


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    ("content_type", "body", "data"),
    [
        ("application/json", b'{"a": [1, "\xc3\xa9"]}', {"a": [1, "é"]}),
        ("application/vnd.shop+json; charset=utf-8", b"null", None),
        ("application/octet-stream", b"\x00\xff", b"\x00\xff"),
        ("application/jsonlines", b"1\n2\n", b"1\n2\n"),
    ],
)
def test_the_official_library_reads_it(mode: str, content_type: str, body: bytes, data: object) -> None:
    envelope = CloudEvents("/shop", mode, type="com.example.paid", schema="urn:{topic}:{version}")  # type: ignore[arg-type]
    message = envelope(a_message(body, content_type))
    headers = {name: percent_encoded(value) for name, value in message.headers.items()}
    event = from_http_event(HTTPMessage(headers | {"content-type": message.content_type}, message.body))
    read = event.get_data()
    assert (read.encode() if isinstance(read, str) and isinstance(data, bytes) else read) == data
    assert event.get_attributes() == {
        "specversion": "1.0",
        "id": "e1",
        "source": "/shop",
        "type": "com.example.paid",
        "time": datetime(2026, 5, 4, 10, 30, tzinfo=UTC),
        "subject": "k",
        "dataschema": "urn:invoice.paid:3",
        "datacontenttype": content_type,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }


def test_what_a_relay_needs_stays_as_it_was() -> None:
    message = a_message(key=None)
    for envelope in (CloudEvents("/shop"), CloudEvents("/shop", "structured")):
        wrapped = envelope(message)
        assert (wrapped.id, wrapped.topic, wrapped.key) == ("e1", "invoice.paid", None)
        assert message.headers.items() <= wrapped.headers.items()
        assert "ce-subject" not in wrapped.headers


def test_attributes_are_renamed_for_other_bindings() -> None:
    assert renamed({"ce-id": "1", "cell": "2", "price-ce-id": "3"}, "ce_") == {
        "ce_id": "1",
        "cell": "2",
        "price-ce-id": "3",
    }


def test_percent_encoding() -> None:
    assert percent_encoded('Euro € "100 %" 😀') == "Euro%20%E2%82%AC%20%22100%20%25%22%20%F0%9F%98%80"
    assert percent_encoded("2026-05-04T10:30:00Z") == "2026-05-04T10:30:00Z"


@pytest.mark.parametrize(("source", "mode"), [("", "binary"), ("/shop", "batched")])
def test_what_is_no_envelope(source: str, mode: str) -> None:
    with pytest.raises(ValueError, match="must"):
        CloudEvents(source, mode)  # type: ignore[arg-type]
