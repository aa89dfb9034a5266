"""Sentry: dead letters as events, with the handler's traceback, the job and the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.utils import event_from_exception

from holdfast.failure import Failure

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

    from holdfast.app import Holdfast
    from holdfast.engine.hook import FailedAttempt

__all__ = ["report_to_sentry"]

# They log what is reported here, and Sentry makes an event of every error that is logged.
_SAY_THE_SAME = ("holdfast.engine.journal", "holdfast.engine.reap")


def report_to_sentry(app: Holdfast, *, every_attempt: bool = False) -> None:
    """Report each dead letter that a worker of this process makes to the client of `sentry_sdk.init`, if there is one.

    `every_attempt`: also those that will be retried, as warnings.
    """
    for logger in _SAY_THE_SAME:
        ignore_logger(logger)
    app.on_dead_letter(_report)
    if every_attempt:
        app.on_failure(_report_retried)


def _report_retried(failed: FailedAttempt) -> None:
    if failed.will_retry:  # or it is a dead letter, and told as such
        _report(failed)


def _report(failed: FailedAttempt) -> None:
    if not sentry_sdk.is_initialized():
        return
    event, hint = _what_happened(failed)
    event["level"] = "warning" if failed.will_retry else "error"
    event["logger"] = "holdfast"
    event["transaction"] = failed.kind
    event["tags"] = {"kind": failed.kind, "error_code": failed.error_code, "worker": failed.worker}
    event["contexts"] = {
        "job": {"id": failed.job_id, "attempt": failed.attempt, "will_retry": failed.will_retry, "error": failed.error}
    }
    sentry_sdk.capture_event(event, hint)


def _what_happened(failed: FailedAttempt) -> tuple[Event, Hint]:
    if failed.exception is None:
        # Nobody raised anything: grouped by what is known, not by a text that names a worker.
        return {"message": failed.error, "fingerprint": [failed.kind, failed.error_code]}, {}
    event, hint = event_from_exception(
        failed.exception,
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": "holdfast", "handled": failed.will_retry},
    )
    raised = event["exception"]["values"]
    for exception in raised:
        exception["value"] = Failure("", exception["value"] or "").text
    # The outermost comes last; what the database has of it quotes neither rows nor statements.
    raised[-1]["value"] = failed.error
    return event, hint
