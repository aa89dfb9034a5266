"""Log lines that name the job they belong to, as text or JSON, through Python's standard logging.

Importing this module changes nothing. Programs (`holdfast worker`) call `configure`. An application with its own
logging adds `ContextFilter()` to its handlers and finds `job`, `kind`, `attempt` and the other fields on every record.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import traceback
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypedDict

from holdfast._logs.masking import MASK, is_secret, mask, mask_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextvars import Token
    from typing import Unpack

Format = Literal["auto", "human", "json"]
FORMATS = ("auto", "human", "json")
LEVELS = ("debug", "info", "warning", "error", "critical")
TRACEPARENT = "traceparent"
FIELDS = ("job", "kind", "chain", "worker", "attempt", "trace", "database")
TEXT_LIMIT = 16_000
COMPLAIN_SECONDS = 60.0


class Fields(TypedDict, total=False):
    """The context fields of a log line."""

    job: int
    kind: str
    chain: int
    worker: int | str
    attempt: int
    trace: str
    """The trace id, without span ids."""
    database: str
    """The name of the database, if the worker serves several."""


context: ContextVar[Mapping[str, Any]] = ContextVar("holdfast.logs.context", default=MappingProxyType({}))
"""The context fields of this task or thread. Where `bound` is too slow, set a mapping that was built before."""

_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_carried: ContextVar[str | None] = ContextVar("holdfast.trace.carried", default=None)

# uvicorn repeats each message, with colours, in `color_message`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message", *FIELDS}
_OWN_FIELDS = ("time", "level", "logger", "message", "exception", "stack")
_LONGEST_NUMBER = 10**18
_READ = 65_536
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Lines in which a database error quotes rows.
_ROWS = re.compile(r"^[ |]*(?:DETAIL:|\[parameters:) .*\n?", re.MULTILINE)
COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
DIM = "2"


class FieldsText(str):
    """The fields of a line as text, for formatters that print only the message. Our formatters leave it out."""

    __slots__ = ()

    @classmethod
    def of(cls, extra: Mapping[str, object] | None) -> FieldsText:
        """Join the context fields and those of the line: `job=7 kind=receipt.send error=OSError`."""
        fields = {**(extra or {}), **context.get()}
        names = [*(name for name in FIELDS if name in fields), *(name for name in fields if name not in FIELDS)]
        return cls(mask(" ".join(f"{name}={_value(fields[name])}" for name in names if fields[name] is not None)))


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger for loops that must not stop: exceptions from the application's handlers and filters are caught.

    They are written to standard error, at most once a minute. The message ends with the fields of the line.
    """

    def __init__(self, name: str) -> None:
        """Log as `holdfast.<file>`, because the folder of a private module may change."""
        super().__init__(logging.getLogger(f"holdfast.{name.rpartition('.')[2]}"))
        self._complained = float("-inf")

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.logger.isEnabledFor(level):
            return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            if fields := FieldsText.of(kwargs.get("extra")):
                # All lines of one kind share a template, because tools group by it.
                msg, args = f"{msg if args else str(msg).replace('%', '%%')}: %s", (*args, fields)
            self.logger.log(level, msg, *args, **kwargs)
        except BaseException:  # noqa: BLE001 - not even a handler's SystemExit may end a worker
            self._complain()

    def _complain(self) -> None:
        now = time.monotonic()
        if now - self._complained < COMPLAIN_SECONDS:
            return
        self._complained = now
        with suppress(BaseException):
            sys.stderr.write(f"{self.logger.name}: a logging handler failed\n{traceback.format_exc(limit=-3)}")
            sys.stderr.flush()


class bound:  # noqa: N801 - reads as a verb: with bound(job=7): …
    """Set context fields for the lines of this block; fields that are not given keep their outer value.

    >>> with bound(worker="w1"), bound(job=7, kind="receipt.send", chain=7):
    ...     dict(context.get())
    {'worker': 'w1', 'job': 7, 'kind': 'receipt.send', 'chain': 7}
    """

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: Unpack[Fields]) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token: Token[Mapping[str, Any]] = context.set({**context.get(), **self._fields})

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        context.reset(self._token)


class ContextFilter(logging.Filter):
    """Adds the context fields, such as job, to each record; an `extra` of the same name becomes `extra_job`, ….

    Add it to handlers, not loggers: a logger's filters do not see the records of its child loggers.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        now, own = context.get(), vars(record)
        for name in FIELDS:
            ours = now.get(name)
            if own.setdefault(name, ours) is not ours and ours is not None:
                own[f"extra_{name}"] = own[name]
                own[name] = ours
        return True


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of ASCII JSON; values are bounded, unsupported ones become text."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _masked(_message(record)),
        }
        line |= {name: _plain(value) for name, value in _fields(record)}
        if exception := _exception(record):
            line["exception"] = exception
        if record.stack_info:
            line["stack"] = _lines(record.stack_info)
        return json.dumps(line)


class HumanFormatter(logging.Formatter):
    """Formats each record as one line, followed by its indented traceback."""

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{self.in_colour(DIM, f'{name}=')}{_value(value)}" for name, value in self.fields(record)]
        line = " ".join([self.head(record), _one_line(_masked(_message(record))), *fields])
        below = "\n".join(filter(None, (_exception(record), _lines(record.stack_info or ""))))
        return "\n    ".join([line, *below.splitlines()])

    def head(self, record: logging.LogRecord) -> str:
        """Return the beginning of a line: the time, the level and the logger."""
        level = self.in_colour(COLOURS.get(record.levelname, "0"), f"{record.levelname:<8}")
        return f"{self.in_colour(DIM, _time(record))} {level} {self.in_colour(DIM, f'{record.name}:')}"

    def fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        """Return what stands behind the message."""
        return _fields(record)

    def in_colour(self, code: str, text: str) -> str:
        """Return the text between the escape codes of this colour, or as it is if there are to be no colours."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


class Handler(logging.StreamHandler[TextIO]):
    """The handler that `configure` installs and, when called again, replaces."""

    def format(self, record: logging.LogRecord) -> str:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        return super().format(record).encode(encoding, "backslashreplace").decode(encoding)


def configure(
    format: Format = "auto",  # noqa: A002 - the name of the setting
    level: str = "info",
    stream: TextIO | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Handler:
    """Log records from `level` up to `stream` (default: standard error); return the root logger's new handler.

    `format`: `human`, `json`, or `auto`: human on a terminal, else JSON. Colour is used only on terminals, and not if
    NO_COLOR is set.
    """
    stream = sys.stderr if stream is None else stream
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {format!r}")
    if level.lower() not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    handler = Handler(stream)
    handler.addFilter(ContextFilter())
    if format == "json" or (format == "auto" and not stream.isatty()):
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(HumanFormatter(colour=is_colourful(stream, environ)))
    root = logging.getLogger()
    for former in [known for known in root.handlers if isinstance(known, Handler)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    return handler


def is_colourful(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether to write in colour: on a terminal, without NO_COLOR."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    """Return the message without the fields, which are written separately."""
    match record.args:
        case (*args, FieldsText()):
            return str(record.msg).removesuffix(": %s") % tuple(args)
    return record.getMessage()


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    own = vars(record)
    for name in FIELDS:
        if own.get(name) is not None:
            yield name, own[name]
    for name, value in own.items():
        if name not in _STANDARD:
            hidden = isinstance(value, str) and is_secret(name)
            yield f"extra_{name}" if name in _OWN_FIELDS else name, MASK if hidden else value


def _exception(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return _lines(record.exc_text or "")
    try:
        return _lines("".join(traceback.format_exception(*record.exc_info)))
    except Exception:  # noqa: BLE001 - the line is written even if printing the error fails
        return f"<{type(record.exc_info[1]).__name__} that cannot be printed>"


def _lines(text: str) -> str:
    """Mask a text of several lines; of a long one, keep the beginning and the end."""
    text = mask(_ROWS.sub("", text)).strip()
    if len(text) > TEXT_LIMIT:
        text = f"{text[: TEXT_LIMIT // 2]}\n…\n{text[-TEXT_LIMIT // 2 :]}"
    return "\n".join(_CONTROL.sub(" ", line) for line in text.split("\n"))


def _masked(text: str) -> str:
    text = mask(text, _READ)
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"


def _one_line(text: str) -> str:
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def _value(value: object) -> str:
    text = _one_line(_text(value))
    return text if text and not any(sign in text for sign in ' "=') else json.dumps(text, ensure_ascii=False)


def _text(value: object) -> str:
    try:
        return _masked(str(value))
    except Exception:  # noqa: BLE001 - the line is written even if printing the value fails
        return f"<{type(value).__name__} that cannot be printed>"


def _plain(value: object) -> Any:
    """Return a JSON-serializable value, masked and bounded."""
    if value is None or (isinstance(value, int) and -_LONGEST_NUMBER < value < _LONGEST_NUMBER):
        return value
    if isinstance(value, str):
        return _masked(value)
    try:
        text = json.dumps(value, default=_text, allow_nan=False)
        return mask_value(json.loads(text)) if len(text) <= TEXT_LIMIT else _text(value)
    except (TypeError, ValueError, RecursionError):
        return _text(value)


def current_trace() -> str | None:
    """Return the W3C `traceparent` of the active span, else of the running job; None outside of a trace.

    OpenTelemetry is not imported unless the application has imported it.
    """
    module = sys.modules.get("opentelemetry.trace")
    if module is not None:
        span = module.get_current_span().get_span_context()
        if span.is_valid:
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
    return _carried.get()


def carry_trace(trace: str | None) -> None:
    """Set the trace for everything this task or thread creates from now on; an active span takes precedence."""
    _carried.set(trace)


def trace_in(headers: Mapping[str, str]) -> str | None:
    """Return the `traceparent` of these headers if it is valid: jobs enqueued from SQL may contain anything."""
    trace = headers.get(TRACEPARENT) if isinstance(headers, dict) else None
    return trace if isinstance(trace, str) and _TRACE.fullmatch(trace) else None


def id_of(trace: str) -> str:
    """Return the trace id, which all spans of a trace share.

    >>> id_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    '0af7651916cd43dd8448eb211c80319c'
    """
    return trace[3:35]
