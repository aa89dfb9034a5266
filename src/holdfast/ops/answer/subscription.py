"""Subscriptions, their partitions, and what they parked."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations

from holdfast.ops.answer.part import Answer, ErrorText, Id


class PartitionLine(Answer):
    partition: int
    worker: Id | None
    lag_events: int
    lag_seconds: float
    at: datetime


class SubscriptionLine(Answer):
    name: str
    target: str
    paused: bool
    elsewhere: bool
    """Its positions are of another server: this database was restored, and the subscription must be rebased."""
    lag_events: int
    lag_seconds: float
    parked: int
    partitions: list[PartitionLine]


class Subscriptions(Answer):
    subscriptions: list[SubscriptionLine]


class ParkedLine(Answer):
    event_id: Id
    topic: str | None
    key: str | None
    holds_key: bool
    parked_at: datetime
    released_at: datetime | None
    error_code: str | None
    error: ErrorText | None


class ParkedPage(Answer):
    parked: list[ParkedLine]
    next: Id | None
