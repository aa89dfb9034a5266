"""Sentry: dead letters as events, with the handler's traceback, the job and the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._distribution import needed
from holdfast._logs.failure import Failure

with needed("holdfast.contrib.sentry", "sentry"):
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.utils import event_from_exception

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

    from holdfast._app.app import Holdfast
    from holdfast._engine.report.hook import FailedAttempt

__all__ = ["report_to_sentry"]

# These loggers log the same failures, and Sentry would create a second event for each logged error.
_SAME_FAILURES = ("holdfast.job_log", "holdfast.reap")


def report_to_sentry(app: Holdfast, *, every_attempt: bool = False) -> None:
    """Report each dead letter of this process's workers to the client of `sentry_sdk.init`, if there is one.

    `every_attempt`: also report failures that will be retried, as warnings. Default no.
    """
    for logger in _SAME_FAILURES:
        ignore_logger(logger)
    app.on_dead_letter(_report)
    if every_attempt:
        app.on_failure(_report_retried)


def _report_retried(failed: FailedAttempt) -> None:
    if failed.will_retry:  # otherwise it is reported as a dead letter
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
        # There is no exception: group by kind and code, because the text names a worker.
        return {"message": failed.error, "fingerprint": [failed.kind, failed.error_code]}, {}
    event, hint = event_from_exception(
        failed.exception,
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": "holdfast", "handled": failed.will_retry},
    )
    raised = event["exception"]["values"]
    for exception in raised:
        exception["value"] = Failure("", exception["value"] or "").text
    # The outermost exception is last. Its stored text quotes neither rows nor statements.
    raised[-1]["value"] = failed.error
    return event, hint
