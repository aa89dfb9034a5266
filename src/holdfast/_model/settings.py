"""The settings: arguments, then the environment, then defaults, checked together; each value has a source."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast._logs.masking import MASK, mask
from holdfast._model.call import type_name
from holdfast._model.duration import MILLISECOND, or_timedelta
from holdfast._model.errors import HoldfastError, meaning_of
from holdfast._model.retry import Retry
from holdfast._model.scheme import ADDRESS_SHAPE, scheme_problem
from holdfast._model.settings_table import FOLLOWS, QUEUE_ALIASES, RULES, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast._model.settings_table import Setting, Unit

_OURS = "HOLDFAST_"
_PREFIXES = ("OUTBOX_", "WORKER_", _OURS)
_WAITS = ("retry.base", "retry.maximum")
# The text for a setting that has a default but is None.
_NONE = dict.fromkeys(_WAITS, "a table") | {"retry.max_attempts": "no limit"}
_UNSET = "unset"
_ARGUMENT, _DEFAULT = "argument", "default"
_BY_FIELD = {setting.field: setting for setting in SETTINGS}
_EMPTY: dict[Unit, Any] = {"addresses": (), "queues": {}}
_TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_LONGEST_VERSION = 200
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9_-]{0,62}=)?postgres(?:ql)?://\S+|(?!.*://).*\w\s*=.*", re.DOTALL)


class SettingsError(HoldfastError):
    """The settings are refused.

    Cure: Correct every setting in `problems`. `holdfast check` shows all settings and their sources.
    """

    def __init__(self, problems: Sequence[str] = ()) -> None:
        super().__init__("\n  - ".join([meaning_of(type(self)), *problems]))
        self.problems: tuple[str, ...] = tuple(problems)


class SettingRow(NamedTuple):
    """A setting as `holdfast check` prints it; secrets are masked. `Settings.sources` explains the source."""

    name: str
    value: str
    source: str
    meaning: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Settings:
    """The settings of a worker: immutable, created by `load` and validated together.

    `holdfast check` prints each one with its value, unit and source; docs/reference/settings.md lists the defaults.

    >>> Settings.load({"HOLDFAST_BATCH_SIZE": "100", "HOLDFAST_CONCURRENCY": "8"}, concurrency=4)
    Settings(batch_size=100, concurrency=4)
    """

    database_urls: tuple[str, ...]
    """Each may begin with a name: `eu=postgresql://…`."""
    databases_file: str | None
    worker_enabled: bool
    tick_runners: tuple[str, ...] | None
    tick_overall_max: timedelta
    tick_runner_max: timedelta
    tick_runner_max_items: int
    shard_index: int | None
    shard_count: int | None
    busy_delay: timedelta
    idle_min: timedelta
    idle_max: timedelta
    jitter: timedelta
    error_backoff: timedelta
    error_jitter: timedelta
    shutdown_timeout: timedelta
    batch_size: int
    concurrency: int
    queue_concurrency: Mapping[str, int] = field(hash=False)
    process_max_jobs: int | None
    process_max_memory_mb: int | None
    lease: timedelta
    heartbeat: timedelta
    reap_interval: timedelta
    retry: Retry
    api_base_url: str | None
    api_service_token: str | None
    archive_bucket: str | None
    archive_region: str | None
    archive_endpoint: str | None
    cleanup_cron: str
    archive_export_cron: str
    listen: bool
    tracebacks: bool
    max_connections: int
    secret_names: tuple[str, ...] | None
    app_version: str | None
    log_format: str
    log_level: str
    sources: Mapping[str, str] = field(compare=False)
    """The source of each value, by variable: `argument`, the variable itself, `alias` and its name, or `default`."""
    notes: tuple[str, ...] = field(compare=False)
    """Harmless oddities found in the environment."""

    def __post_init__(self) -> None:
        if problems := list(_problems(self._values(), self.sources)):
            raise SettingsError(problems)

    @classmethod
    def load(cls, environ: Mapping[str, str], **arguments: object) -> Self:
        """Return settings from `arguments` (by field; None is ignored), else from the environment, else the defaults.

        All problems are reported together, in one `SettingsError`.
        """
        reader = _Reader(environ, {name: value for name, value in arguments.items() if value is not None})
        for setting in SETTINGS:
            reader.read(setting)
        reader.follow()
        if problems := [*reader.problems, *_problems(reader.values, reader.sources)]:
            raise SettingsError(problems)
        plain = {name: value for name, value in reader.values.items() if "." not in name}
        notes = (*reader.notes, *_unknown(environ))
        return cls(**plain, retry=reader.made_retry(), sources=reader.sources, notes=notes)

    def fitted(self, leases: Mapping[str, timedelta]) -> Self:
        """Return the settings of a worker whose kinds or queues have these `leases`; defaults follow the shortest one.

        Raises `SettingsError` for explicit values that are too long for a lease.
        """
        if problems := [problem for name, lease in leases.items() for problem in self.too_long_for(name, lease)]:
            raise SettingsError(problems)
        shortest = min([self.lease, *leases.values()])
        if shortest == self.lease:
            return self
        timeout = self.shutdown_timeout if self._given("shutdown_timeout") else min(self.shutdown_timeout, shortest)
        interval = self.reap_interval if self._given("reap_interval") else min(self.reap_interval, shortest / 6)
        return replace(self, shutdown_timeout=timeout, reap_interval=interval)

    def polling_every(self, interval: timedelta) -> Self:
        """Return the settings with pauses of at most `interval` when idle."""
        return replace(
            self, idle_max=interval, idle_min=min(self.idle_min, interval), jitter=min(self.jitter, interval)
        )

    def too_long_for(self, name: str, lease: timedelta) -> Iterator[str]:
        """Yield a problem for each explicit setting that is too long for the `lease` of `name`, a kind or a queue."""
        for left, right, agree, rule in RULES:
            explicit = right == "lease" and left in {"shutdown_timeout", "reap_interval"} and self._given(left)
            if explicit and not agree(value := getattr(self, left), lease):
                value_text = _value_text(_BY_FIELD[left], {left: value})
                limit = f"the lease of {name} ({lease / MILLISECOND:.15g})"
                yield f"{self.label(left)} ({value_text}) must be {rule} {limit}"

    def label(self, name: str) -> str:
        """Return the name under which the field `name` was set, for messages: a variable, or the argument."""
        return _label(_BY_FIELD[name], self.sources)

    def _given(self, name: str) -> bool:
        return self.sources[_BY_FIELD[name].name] != _DEFAULT

    def rows(self) -> list[SettingRow]:
        """Return every setting, in the order of the table."""
        values, sources = self._values(), self.sources
        return [
            SettingRow(known.name, _value_text(known, values), sources[known.name], known.meaning) for known in SETTINGS
        ]

    def __repr__(self) -> str:
        changed = zip(SETTINGS, self.rows(), strict=True)
        shown = [f"{known.field}={row.value}" for known, row in changed if row.source != _DEFAULT]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _values(self) -> dict[str, Any]:
        values = {known.field: attrgetter(known.field)(self) for known in SETTINGS}
        return {name: None if self.retry.steps and name in _WAITS else value for name, value in values.items()}


def read_retry(environ: Mapping[str, str]) -> Retry:
    """Return the retry policy of the environment without checking other settings: producers need only this."""
    reader = _Reader(environ, {})
    for setting in SETTINGS:
        if setting.field.startswith("retry."):
            reader.read(setting)
    reader.follow()
    if problems := [*reader.problems, *_problems(reader.values, reader.sources)]:
        raise SettingsError(problems)
    return reader.made_retry()


class _Reader:
    """Collects values, their sources, and all problems and notes."""

    def __init__(self, environ: Mapping[str, str], given: Mapping[str, object]) -> None:
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._environ, self._given = environ, given
        known = [setting.field.partition(".")[0] for setting in SETTINGS]
        self.problems += [f"{name} is not a setting{_suggestion(name, known)}" for name in given if name not in known]
        retry = given.get("retry")
        if not isinstance(retry, Retry | None):
            self.problems.append("retry (argument) must be a Retry")
        self._retry = retry if isinstance(retry, Retry) else None

    def read(self, setting: Setting) -> None:
        """Take the value of the highest layer that has one; for queues, merge the layers per queue."""
        found: dict[str, Any] = {}
        sources: list[str] = []
        before = len(self.problems)
        for source, layer in self._layers(setting):
            if not layer.keys() <= found.keys():
                sources.append(source)
            elif source != _DEFAULT and any(found[part] != value for part, value in layer.items()):
                winner = _label(setting, {setting.name: sources[0]})
                self.notes.append(f"{source.split()[-1]} is not used: {winner} has another value")
            found = layer | found
        self.sources[setting.name] = ", ".join([source for source in sources if source != _DEFAULT] or [_DEFAULT])
        if len(self.problems) == before:
            self.values[setting.field] = found if setting.unit == "queues" else found[""]

    def follow(self) -> None:
        """Adjust defaults that depend on another setting."""
        for name, other, follows in FOLLOWS:
            if {name, other} <= self.values.keys() and self.sources[_BY_FIELD[name].name] == _DEFAULT:
                value, leader = self.values[name], self.values[other]
                if isinstance(value, timedelta) and isinstance(leader, timedelta):
                    self.values[name] = follows(value, leader)

    def _layers(self, setting: Setting) -> Iterator[tuple[str, dict[str, Any]]]:
        name, _, part = setting.field.partition(".")
        owner = self._given.get(name)
        given = getattr(owner, part, None) if part else owner
        if given is not None and setting.unit == "queues" and not _is_queues(given):
            self.problems.append(f"{setting.field} (argument) must be a mapping of queues to whole numbers")
        elif given is not None or (isinstance(owner, Retry) and part):
            yield _ARGUMENT, _layer(setting, tuple(given) if isinstance(given, list) else given)
        parse = _PARSE.get(setting.unit, str)
        for variable in (setting.name, *setting.aliases):
            if text := self._environ.get(variable, "").strip():
                queue = QUEUE_ALIASES.get(variable)
                try:
                    value = {queue: _whole(text)} if queue else parse(text)
                    yield variable if variable == setting.name else f"alias {variable}", _layer(setting, value)
                except ValueError as error:
                    self.problems.append(f"{variable} {error}")
        yield _DEFAULT, _layer(setting, parse(setting.default) if setting.default else _EMPTY.get(setting.unit))

    def made_retry(self) -> Retry:
        """Return the retry policy: the argument, else that of the environment and the defaults."""
        values = {name.removeprefix("retry."): self.values[name] for name in self.values if name.startswith("retry.")}
        return self._retry or Retry(**values)


def _layer(setting: Setting, value: Any) -> dict[str, Any]:
    return dict(value) if setting.unit == "queues" else {"": or_timedelta(value) if setting.unit == "ms" else value}


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f": did you mean {close[0]}?" if close else ""


def _unknown(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a note for each name that looks like a setting and is none.

    The prefixes of other systems may also be the application's own, so there only what resembles a setting is named.
    """
    known = [name for setting in SETTINGS for name in (setting.name, *setting.aliases)]
    for name in sorted(environ):
        if name.startswith(_PREFIXES) and name not in known:
            suggestion = _suggestion(name, known)
            if suggestion or name.startswith(_OURS):
                yield f"{name} is not known{suggestion}"


def _whole(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"must be a whole number, not {_cut(text)}")
    return int(text)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError(f"must be true or false, not {_cut(text)}")
    return _TRUTH[text.lower()]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _queues(text: str) -> dict[str, int]:
    pairs = [part.partition("=") for part in _names(text)]
    if not all(name.strip() and _NUMBER.fullmatch(number.strip()) for name, _, number in pairs):
        raise ValueError(f"must be like name=2,name=3, not {_cut(text)}")
    return {name.strip(): int(number) for name, _, number in pairs}


def _is_queues(given: object) -> bool:
    return isinstance(given, Mapping) and all(isinstance(k, str) and type(n) is int for k, n in given.items())


def _cut(text: str) -> str:
    return repr(f"{mask(text):.100}")


_PARSE: dict[Unit, Callable[[str], Any]] = {
    "ms": lambda text: _whole(text) * MILLISECOND,
    "number": _whole,
    "true or false": _truth,
    "names": _names,
    "addresses": lambda text: tuple(text.split()) if "://" in text else (text,),
    "queues": _queues,
    "word": str.lower,
}
_WRITE: dict[Unit, Callable[[Any], str]] = {
    "ms": lambda value: f"{value / MILLISECOND:.15g}",
    "true or false": lambda value: str(value).lower(),
    "names": ",".join,
    "addresses": lambda value: mask(" ".join(value)),
    "queues": lambda value: ",".join(f"{name}={number}" for name, number in sorted(value.items())),
    "text": mask,
    "secret": lambda _: MASK,
}
_TYPES: dict[Unit, type] = {
    "ms": timedelta, "number": int, "true or false": bool, "names": tuple, "addresses": tuple, "queues": Mapping,
}  # fmt: skip


def _problems(values: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each invalid value, then for each pair of valid values that conflict."""
    table = _BY_FIELD
    wrong = {name: problem for name in values if (problem := next(_faults(table[name], values[name]), ""))}
    for name, problem in wrong.items():
        yield f"{_label(table[name], sources)} {problem}"
    for left, right, agree, rule in RULES:
        if {left, right} <= values.keys() - wrong.keys() and not agree(values[left], values[right]):
            one, other = (
                f"{_label(table[name], sources)} ({_value_text(table[name], values)})" for name in (left, right)
            )
            yield f"{one} must be {rule} {other}"


_EXPECTED = {timedelta: "seconds or a timedelta", int: "a whole number", bool: "True or False", str: "text"}


def _faults(setting: Setting, value: Any) -> Iterator[str]:
    kind: Any = _TYPES.get(setting.unit, str)
    if value is None and (not setting.default or setting.field in _NONE):
        return
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield f"must be {_EXPECTED.get(kind, 'a ' + kind.__name__)}, not {type_name(value)}"
        return
    numbers = {timedelta: lambda: [value / MILLISECOND], int: lambda: [value], Mapping: lambda: list(value.values())}
    for number in numbers.get(kind, list)():
        if not setting.lowest <= number <= setting.highest:
            yield f"must be from {setting.lowest} to {setting.highest}, not {number:.15g}"
    if kind is tuple and not (all(isinstance(part, str) for part in value) and len(set(value)) == len(value)):
        yield f"must be {setting.unit}, each of them once"
    elif setting.unit == "names" and not value:
        yield "must name at least one"
    elif setting.unit == "addresses" and not all(map(_ADDRESS.fullmatch, value)):
        shape = f"must be like {ADDRESS_SHAPE}, several separated by spaces"
        yield next(filter(None, map(scheme_problem, value)), shape)
    elif setting.unit == "word" and value not in setting.words:
        yield f"must be one of {', '.join(setting.words)}, not {_cut(value)}"
    elif kind is str and not value.isprintable():
        yield "must be printable text"
    elif setting.field == "app_version" and len(value.encode()) > _LONGEST_VERSION:
        yield f"must have at most {_LONGEST_VERSION} bytes"
    elif setting.field == "api_base_url" and not value.startswith(("http://", "https://")):
        yield "must begin with http:// or https://"


def _label(setting: Setting, sources: Mapping[str, str]) -> str:
    """Return the name under which the value was set; for a default, the name under which it can be set."""
    source = sources[setting.name]
    if source == _ARGUMENT:
        return f"{setting.field} (argument)"
    return setting.name if source == _DEFAULT or "," in source else source.split()[-1]


def _value_text(setting: Setting, values: Mapping[str, Any]) -> str:
    """Return a value in the form of its environment variable, secrets masked."""
    value = values[setting.field]
    if value is None or value in ((), {}):
        return _NONE.get(setting.field, _UNSET)
    return _WRITE.get(setting.unit, str)(value)
