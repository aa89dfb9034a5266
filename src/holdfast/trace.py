"""The trace that the caller is in, if there is one."""

from __future__ import annotations

import sys


def current_trace() -> str | None:
    """Return a W3C `traceparent`; None outside of a trace. Who does not use OpenTelemetry does not load it."""
    module = sys.modules.get("opentelemetry.trace")
    if module is None:
        return None
    context = module.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
