"""Webhooks, against a server on this host."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, Literal

import pytest
import standardwebhooks
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from holdfast._model.retry import Retry
from holdfast._relay.message import LONGEST_REST, Gone, NotTaken, Receipt, Refused, Unavailable
from holdfast._relay.sinks.cloud_events import CloudEvents
from holdfast._relay.sinks.signature import verify
from holdfast._relay.sinks.webhook import (
    STANDARD_RETRY,
    Breaker,
    WebhookSink,
    readable,
)
from tests.kit.waiting import until
from tests.relay.sinks.endpoint import Endpoint, answer
from tests.relay.sinks.publishing import AT, KEYS, MANY, PAGE, a_message, publish_all, works

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the specification's example
NEXT = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def sink(endpoint: Endpoint) -> Callable[..., WebhookSink]:
    def sink(**changes: Any) -> WebhookSink:
        values: dict[str, Any] = {"url": endpoint.url, "secrets": SECRET, "allow_private": True}
        return WebhookSink(**(values | changes))

    return sink


async def test_a_message_arrives_signed(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    async with sink().open() as publish:
        assert await publish(a_message(headers={"holdfast-topic": "invoice.paid"})) == Receipt(200, "ok")
    (request,) = endpoint.requests
    assert request.line == "POST /hooks?shop=1 HTTP/1.1"
    assert request.body == b'{"number": 7}'
    assert request.headers["webhook-id"] == "event-7"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["holdfast-topic"] == "invoice.paid"
    assert request.headers["holdfast-key"] == "customer%207"
    assert standardwebhooks.Webhook(SECRET).verify(request.body, request.headers) == {"number": 7}
    assert verify(request.body, request.headers, SECRET) == "event-7"


async def test_while_a_secret_is_replaced_both_sign(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    async with sink(secrets=(NEXT, SECRET)).open() as publish:
        await publish(a_message())
    (request,) = endpoint.requests
    for secret in (SECRET, NEXT):
        standardwebhooks.Webhook(secret).verify(request.body, request.headers)


async def test_the_endpoints_answer_is_shortened(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers.append(answer(202, "a\x1b[31m\r\nb\x00" + "x" * 100_000))
    async with sink().open() as publish:
        receipt = await publish(a_message())
        assert receipt is not None
        assert receipt.status == 202
        assert len(receipt.text) == 1000
        assert receipt.text.startswith("a [31m b x")
        # The rest of a long answer is not waited for, and the next message goes through.
        assert await publish(a_message(8)) == Receipt(200, "ok")


def test_an_answer_that_is_no_text() -> None:
    assert readable(b"\xff\xfe\x80 ok\n") == "\ufffd\ufffd\ufffd ok"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_refusals(endpoint: Endpoint, sink: Callable[..., WebhookSink], status: int) -> None:
    endpoint.answers.append(answer(status, "no such hook"))
    async with sink().open() as publish:
        with pytest.raises(Refused, match=f"answered {status}: no such hook") as refusal:
            await publish(a_message())
    assert refusal.value.receipt == Receipt(status, "no such hook")


async def test_one_that_is_gone(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers.append(answer(410, "moved away"))
    async with sink().open() as publish:
        with pytest.raises(Gone, match="answered 410: moved away") as gone:
            await publish(a_message())
    assert gone.value.receipt == Receipt(410, "moved away")


@pytest.mark.parametrize("status", [302, 408, 425, 500, 502, 504])
async def test_failures_are_tried_again(endpoint: Endpoint, sink: Callable[..., WebhookSink], status: int) -> None:
    endpoint.answers.append(answer(status, "later", location="http://127.0.0.1:1/", retry_after="7"))
    async with sink().open() as publish:
        with pytest.raises(NotTaken, match=f"answered {status}: later") as failure:
            await publish(a_message())
        assert failure.value.receipt == Receipt(status, "later")
        assert failure.value.retry_after == 7
        await publish(a_message())
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_after_is_respected(endpoint: Endpoint, sink: Callable[..., WebhookSink], status: int) -> None:
    endpoint.answers.append(answer(status, "slow down", retry_after="60"))
    async with sink().open() as publish:
        with pytest.raises(Unavailable, match=f"answered {status}") as first:
            await publish(a_message())
        with pytest.raises(Unavailable, match="left alone") as second:
            await publish(a_message())
    assert (first.value.retry_after, first.value.receipt) == (60, Receipt(status, "slow down"))
    assert 30 < (second.value.retry_after or 0) <= 60
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("output", "seconds"),
    [
        ("0", 0),
        ("999999999", 86_400),
        ("soon", None),
        ("nan", None),
        (format_datetime(datetime.now(UTC) + timedelta(hours=30), usegmt=True), 86_400),
        (format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True), 0),
    ],
    ids=["at once", "too long", "a word", "no number", "tomorrow", "an hour ago"],
)
async def test_what_retry_after_may_say(
    endpoint: Endpoint, sink: Callable[..., WebhookSink], output: str, seconds: float | None
) -> None:
    endpoint.answers.append(answer(503, retry_after=output))
    async with sink().open() as publish:
        with pytest.raises(Unavailable) as failure:
            await publish(a_message())
    assert failure.value.retry_after == seconds


async def test_a_retry_after_of_a_day_is_cut_to_minutes(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers.append(answer(503, retry_after="86400"))
    async with sink().open() as publish:
        with pytest.raises(Unavailable):
            await publish(a_message())
        with pytest.raises(Unavailable, match="left alone") as second:
            await publish(a_message())
    assert LONGEST_REST - 60 < (second.value.retry_after or 0) <= LONGEST_REST


async def test_while_the_circuit_is_open_nothing_is_sent(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers += [answer(500)] * 3
    async with sink(breaker=Breaker(failures=3, rest=timedelta(hours=1))).open() as publish:
        for _ in range(3):
            with pytest.raises(NotTaken):
                await publish(a_message())
        with pytest.raises(Unavailable) as failure:
            await publish(a_message())
    assert 3500 < (failure.value.retry_after or 0) <= 3600
    assert len(endpoint.requests) == 3


async def test_after_the_rest_a_probe_closes_the_circuit(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers.append(answer(500))
    async with sink(breaker=Breaker(failures=1, rest=timedelta(milliseconds=50))).open() as publish:
        with pytest.raises(NotTaken):
            await publish(a_message())
        await until(lambda: works(publish, a_message()))
        await asyncio.gather(*[publish(a_message(number)) for number in range(5)])
    assert len(endpoint.requests) == 7


async def test_refusals_do_not_open_the_circuit(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers += [answer(404)] * 5
    async with sink(breaker=Breaker(failures=2)).open() as publish:
        for _ in range(5):
            with pytest.raises(Refused):
                await publish(a_message())
        await publish(a_message())


async def test_a_probe_that_is_given_up_does_not_keep_the_circuit_open(
    endpoint: Endpoint, sink: Callable[..., WebhookSink]
) -> None:
    endpoint.answers += [answer(500), None]
    async with sink(breaker=Breaker(failures=1, rest=timedelta(milliseconds=1))).open() as publish:
        with pytest.raises(NotTaken):
            await publish(a_message())
        await asyncio.sleep(0.002)
        probe = asyncio.ensure_future(publish(a_message()))
        await until(lambda: len(endpoint.requests) == 2)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        await publish(a_message())


async def test_an_endpoint_that_does_not_answer(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers.append(None)
    async with sink(timeout=timedelta(seconds=0.2)).open() as publish:
        with pytest.raises(NotTaken, match="no answer"):
            await publish(a_message())


async def test_an_answer_that_does_not_end(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers.append(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegun")
    async with sink(timeout=timedelta(seconds=0.2)).open() as publish:
        with pytest.raises(NotTaken, match="no answer"):
            await publish(a_message())


async def test_an_endpoint_that_dies_and_comes_back(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    endpoint.answers += [answer(200), None]
    async with sink().open() as publish:
        await publish(a_message(1))
        under_way = asyncio.ensure_future(publish(a_message(2)))
        await until(lambda: len(endpoint.requests) == 2)
        await endpoint.stop()
        with pytest.raises(NotTaken):
            await under_way
        with pytest.raises(NotTaken):
            await publish(a_message(3))
        await endpoint.start()
        await publish(a_message(4))
    assert endpoint.requests[-1].headers["webhook-id"] == "event-4"


async def test_many_at_once_arrive_once_and_in_order(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    async with sink().open() as publish:
        await publish_all(publish, (a_message(number) for number in range(MANY)))
    of_key: dict[str, list[int]] = defaultdict(list)
    for request in endpoint.requests:
        of_key[request.headers["holdfast-key"]].append(json.loads(request.body)["number"])
    assert sorted(number for numbers in of_key.values() for number in numbers) == list(range(MANY))
    assert len(of_key) == KEYS
    assert all(numbers == sorted(numbers) for numbers in of_key.values())
    assert endpoint.connections <= 256


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_cloud_events(
    endpoint: Endpoint, sink: Callable[..., WebhookSink], mode: Literal["binary", "structured"]
) -> None:
    async with sink().open() as publish:
        await publish(CloudEvents(source="/shop", mode=mode)(a_message(key='Käthe "100 %"')))
    (request,) = endpoint.requests
    event = from_http_event(HTTPMessage(request.headers, request.body))
    assert event.get_data() == {"number": 7}
    assert (event.get_id(), event.get_source(), event.get_type()) == ("event-7", "/shop", "invoice.paid")
    assert (event.get_subject(), event.get_time()) == ('Käthe "100 %"', AT)


async def test_an_event_cannot_speak_for_us(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    forged = {"Webhook-Id": "x", "HOST": "x", "Content-Length": "1", "Authorization": "x", "X-Mine": "x", "x-its": "x"}
    async with sink(headers={"authorization": "Bearer ours", "x-mine": "ours"}).open() as publish:
        await publish(a_message(headers=forged))
        with pytest.raises(Refused, match="cannot be sent"):
            await publish(a_message(headers={"a": "b\r\nc: d"}))
        with pytest.raises(Refused, match="cannot be sent"):
            await publish(a_message(headers={"a b": "c"}))
        for half in ({"headers": {"a": "\ud800"}}, {"id": "\ud800"}, {"key": "\ud800"}):
            with pytest.raises(Refused, match="cannot be encoded"):
                await publish(a_message(**half))
    (request,) = endpoint.requests
    assert request.headers["host"] == f"127.0.0.1:{endpoint.port}"
    assert request.headers["webhook-id"] == "event-7"
    assert request.headers["authorization"] == "Bearer ours"
    assert (request.headers["x-mine"], request.headers["x-its"]) == ("ours", "x")


async def test_too_large(endpoint: Endpoint, sink: Callable[..., WebhookSink]) -> None:
    async with sink(max_size=1000).open() as publish:
        with pytest.raises(Refused, match="1001 bytes"):
            await publish(a_message(body=b"1" * 1001))
    assert not endpoint.requests


@pytest.mark.parametrize("host", ["localhost", "0x7f.1"])
async def test_a_name_that_leads_to_a_private_address(endpoint: Endpoint, host: str) -> None:
    sink = WebhookSink(f"http://{host}:{endpoint.port}/", SECRET)
    async with sink.open() as publish:
        with pytest.raises(Refused, match="private network"):
            await publish(a_message())
    assert endpoint.connections == 0


async def test_a_name_with_two_faces(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that was public at the first lookup, and is private at the connection, is refused."""
    looked_up: list[str] = []
    real = socket.getaddrinfo

    def two_faced(host: Any, *args: Any, **options: Any) -> Any:
        if host != "rebinding.example":
            return real(host, *args, **options)
        looked_up.append(host)
        # Answers of a resolver that is under somebody else's control: each time another one.
        address = "203.0.114.7" if len(looked_up) == 1 else "127.0.0.1"
        return real(address, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", two_faced)
    assert two_faced("rebinding.example", endpoint.port)[0][4][0] == "203.0.114.7"
    async with WebhookSink(f"http://rebinding.example:{endpoint.port}/", SECRET).open() as publish:
        with pytest.raises(Refused, match="private network"):
            await publish(a_message())
    assert len(looked_up) == 2
    assert endpoint.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[::ffff:192.168.0.1]/",
        "http://2130706433/",
        "http://me:secret@example.com/",
        "ftp://example.com/",
        "example.com",
    ],
)
def test_what_is_no_endpoint(url: str) -> None:
    with pytest.raises(ValueError, match=r"url: expected http:// or https://|private network"):
        WebhookSink(url, SECRET)


@pytest.mark.parametrize("secrets", ["", "secret", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!!", ()])
def test_what_is_no_secret(secrets: Any) -> None:
    with pytest.raises(ValueError, match="secret"):
        WebhookSink("https://example.com/", secrets)


def test_it_says_when_to_try_again_and_where_it_is() -> None:
    sink = WebhookSink("https://example.com/hooks?token=s3cret", SECRET)
    assert sink.retry == STANDARD_RETRY
    assert sum(sink.retry.delays()[:-1]) == 27 * 3_600_000 + 35 * 60_000 + 5_000
    assert sink.name == "https://example.com/hooks"
    assert "s3cret" not in repr(sink)
    assert SECRET not in repr(sink)
    assert WebhookSink("https://example.com/", SECRET, retry=Retry(3)).retry == Retry(3)


async def test_the_page_is_true(endpoint: Endpoint) -> None:
    text = PAGE.read_text().split("\n## Webhooks\n")[1].split("\n## ")[0]
    names: dict[str, Any] = {}
    exec("".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), names)  # noqa: S102 - our own page
    sink = replace(names["sink"], url=endpoint.url, allow_private=True)
    async with sink.open() as publish:
        await publish(a_message())
    (request,) = endpoint.requests
    assert await names["receive"](request.body, request.headers) == 204
    assert await names["receive"](request.body + b" ", request.headers) == 401
