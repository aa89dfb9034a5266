"""Mistakes with topics, subscriptions and relays."""

from __future__ import annotations

from tests.mistakes.mistake import Area, Mistake

TOPICS = Area(
    "Topics and events",
    "Raised by `app.event`, by the topic's `new` and by `app.publish`.",
    (
        Mistake(
            "A topic without its model",
            'app.event("order.sent")',
            "TypeError: app.event: the argument model is missing: write app.event(name, model, version=…)",
        ),
        Mistake(
            "A model that is not a type",
            'app.event("order.sent", {"id": int})',
            "TypeError: app.event: order.sent: the model is a type: give a pydantic model, a dataclass or a TypedDict, not a dict",
        ),
        Mistake(
            "A topic that is declared twice",
            'app.event("order.paid", Order)',
            "HoldfastError: order.paid: a topic of this name is registered at shop.py line 22, and again at shop.py line 1: give one of them another name",
        ),
        Mistake(
            "A payload of the wrong type",
            'paid.new({"id": "seven"})',
            "InvalidEvent: order.paid: Order: id: Input should be a valid integer, unable to parse string as an integer",
        ),
        Mistake(
            "A payload by keyword",
            "paid.new(id=7)",
            "TypeError: topic.new: there is no parameter id: it takes payload, key, headers",
        ),
        Mistake(
            "A key that is a number",
            "paid.new(Order(id=7), key=7)",
            "InvalidEvent: order.paid: key: expected text, got int",
        ),
        Mistake(
            "The payload is published",
            "await app.publish(conn, Order(id=7))",
            "TypeError: app.publish: expected an event, got Order: make one with its topic's .new(payload)",
        ),
        Mistake(
            "The topic and the payload are published",
            "await app.publish(conn, paid, Order(id=7))",
            "TypeError: app.publish: 3 arguments by position, and it takes 2: write app.publish(conn, event)",
        ),
        Mistake(
            "A job is published",
            'await app.publish(conn, mail.new("a@b.c"))',
            "TypeError: app.publish: this is a job: use app.enqueue(conn, job)",
        ),
        Mistake(
            "One event in place of a list",
            "await app.publish_many(conn, paid.new(Order(id=7)))",
            "TypeError: app.publish_many: one event is given where a list is expected: write [event], or call app.publish",
        ),
    ),
)

SUBSCRIPTIONS = Area(
    "Subscriptions and relays",
    "Raised when the module is imported.",
    (
        Mistake(
            "A topic by its name",
            """
            @app.on("order.paid", name="ship")
            async def ship(job: Job[None], event: Event[Order]) -> None: ...
            """,
            "TypeError: app.on: 'order.paid' is not a topic: give what app.event(name, Model) returned, not a name",
        ),
        Mistake(
            "A subscription without a name",
            """
            @app.on(paid)
            async def ship(job: Job[None], event: Event[Order]) -> None: ...
            """,
            "TypeError: app.on: the argument name is missing: write app.on(*topics, name=…, start=…, ordered=…, queue=…, priority=…, retry=…, lease=…, max_runtime=…)",
        ),
        Mistake(
            "A subscriber that takes the payload",
            """
            @app.on(paid, name="ship")
            async def ship(job: Job[None], order: Order) -> None: ...
            """,
            "TypeError: ship: a subscriber takes the event: write (event) or (job, event)",
        ),
        Mistake(
            "A start that does not exist",
            """
            @app.on(paid, name="ship", start="yesterday")
            async def ship(job: Job[None], event: Event[Order]) -> None: ...
            """,
            "ValueError: start: expected one of now, beginning, got 'yesterday'",
        ),
        Mistake(
            "An address in place of a sink",
            'app.relay("to-nats", paid, to="nats://127.0.0.1:4222")',
            "TypeError: to: an address alone does not say how to publish: write to=NatsSink(address). The sinks are in holdfast.sinks",
        ),
        Mistake(
            "A class in place of a sink",
            'app.relay("to-nats", paid, to=NatsSink)',
            "TypeError: to: NatsSink is a class: write to=NatsSink(address). The sinks are in holdfast.sinks",
        ),
        Mistake(
            "A relay without a sink",
            'app.relay("to-nats", paid)',
            "TypeError: app.relay: the argument to is missing: write app.relay(name, *topics, to=…, start=…, partitions=…, poison=…, window=…, envelope=…, lease=…)",
        ),
        Mistake(
            "A relay without a name",
            'app.relay(paid, to=NatsSink("nats://127.0.0.1:4222"))',
            'TypeError: app.relay: the name comes first, as a text, not a Topic: write app.relay("name", …)',
        ),
        Mistake(
            "The name of a relay is taken",
            """
            for topic in (paid, paid):
                app.relay("to-nats", topic, to=NatsSink("nats://127.0.0.1:4222"))
            """,
            "SubscriptionTaken: to-nats: a subscription of this name is registered twice, at shop.py line 2: that module is imported under two names, or its code runs again",
        ),
        Mistake(
            "Too many partitions",
            'app.relay("to-nats", paid, to=NatsSink("nats://127.0.0.1:4222"), partitions=0)',
            "ValueError: partitions: expected a number from 1 to 64, got 0",
        ),
        Mistake(
            "A webhook without a scheme",
            'WebhookSink("example.com/hook", secrets=["whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo"])',
            "ValueError: url: expected http:// or https:// with a host, without a user and a fragment",
        ),
    ),
)
