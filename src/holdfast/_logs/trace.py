"""The trace context of the caller, if there is one."""

from __future__ import annotations

import re
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACEPARENT = "traceparent"

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_carried: ContextVar[str | None] = ContextVar("holdfast.trace.carried", default=None)


def current_trace() -> str | None:
    """Return the W3C `traceparent` of the active span, else of the running job; None outside of a trace.

    OpenTelemetry is not imported unless the application has imported it.
    """
    module = sys.modules.get("opentelemetry.trace")
    if module is not None:
        context = module.get_current_span().get_span_context()
        if context.is_valid:
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return _carried.get()


def carry_trace(trace: str | None) -> None:
    """Set the trace for everything this task or thread creates from now on; an active span takes precedence."""
    _carried.set(trace)


def trace_in(headers: Mapping[str, str]) -> str | None:
    """Return the `traceparent` of these headers if it is valid: jobs enqueued from SQL may contain anything."""
    trace = headers.get(TRACEPARENT) if isinstance(headers, dict) else None
    return trace if isinstance(trace, str) and _FORM.fullmatch(trace) else None


def id_of(trace: str) -> str:
    """Return the trace id, which all spans of a trace share.

    >>> id_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    '0af7651916cd43dd8448eb211c80319c'
    """
    return trace[3:35]
