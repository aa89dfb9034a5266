"""Unique keys: one job per key, the key given as text or made from the job's arguments."""

from __future__ import annotations

import hashlib
import json
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, get_args

from holdfast._model.call import explains
from holdfast._model.duration import MILLISECOND, as_timedelta
from holdfast._model.errors import InvalidJob
from holdfast._model.option import KEY_LIMIT, check_choice, check_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast._model.duration import Duration

OnConflict: TypeAlias = Literal["keep", "replace", "debounce", "raise"]

LONGEST_WINDOW = timedelta(days=31)


@explains
@dataclass(frozen=True, slots=True, init=False)
class Unique:
    """Allows one job of this kind with this key: while it is live or, with `window`, within that time.

    `on_conflict`: `keep` the existing job (default); `replace` its payload and options; `debounce`: postpone it;
    `raise` DuplicateJob. If the existing job is running, `replace` and `debounce` enqueue a successor; within a window
    there is only one job, which is kept once it has started. A job that was cancelled, or expired before it ran, frees
    its key. `Unique.by` makes the key from the job's arguments.
    """

    key: str
    _: KW_ONLY
    window: timedelta | None = None
    """Seconds or a timedelta, in whole milliseconds, at most 31 days. Default: None, while the job is live."""
    on_conflict: OnConflict = "keep"
    names: tuple[str, ...] | None = None
    """The arguments that make the key, empty for all of them. None: the key was given as text."""

    def __init__(self, key: str, *, window: Duration | None = None, on_conflict: OnConflict = "keep") -> None:
        check_text("unique", key, KEY_LIMIT)
        self._set(key, window, on_conflict, None)

    @classmethod
    def by(cls, *names: str, window: Duration | None = None, on_conflict: OnConflict = "keep") -> Self:
        """Return a policy whose key is made from these arguments of the job, or from all of them if none is named.

        The key is a hash of the kind's name and of the arguments as they are stored. It depends neither on their order
        nor on whether a default was given. Use lists, not sets: a set has no order. See the class for `window` and
        `on_conflict`.
        """
        for name in names:
            check_text("Unique.by", name, KEY_LIMIT)
        made = cls.__new__(cls)
        made._set("", window, on_conflict, tuple(sorted(set(names))))  # noqa: SLF001 - an object of this class
        return made

    def of(self, kind: str, arguments: Mapping[str, object]) -> Unique:
        """Return the policy with the key for a job of this kind with these JSON arguments."""
        if self.names is None:
            return self
        self.check(kind, arguments)
        chosen = {name: arguments[name] for name in self.names or arguments}
        made = Unique(_key(kind, chosen), window=self.window, on_conflict=self.on_conflict)
        object.__setattr__(made, "names", self.names)
        return made

    def check(self, kind: str, parameters: Collection[str]) -> None:
        """Raise InvalidJob if it names a parameter that the kind does not have."""
        if unknown := [name for name in self.names or () if name not in parameters]:
            known = f"its parameters are {', '.join(parameters)}" if parameters else "it has no parameters"
            raise InvalidJob(f"{kind}: Unique.by({unknown[0]!r}): there is no such parameter: {known}")

    def _set(self, key: str, window: Duration | None, on_conflict: OnConflict, names: tuple[str, ...] | None) -> None:
        check_choice("on_conflict", on_conflict, get_args(OnConflict))
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "window", None if window is None else _window(window))
        object.__setattr__(self, "on_conflict", on_conflict)
        object.__setattr__(self, "names", names)


def _window(given: Duration) -> timedelta:
    window = as_timedelta("window", given, least=MILLISECOND, limit=LONGEST_WINDOW, error=InvalidJob)
    if window % MILLISECOND:
        raise InvalidJob(f"window: a window is in whole milliseconds, got {window.total_seconds():.6f} s")
    return window


def _key(kind: str, arguments: Mapping[str, object]) -> str:
    """Return the hash of canonical JSON: sorted names, ASCII, no spaces. Stored jobs depend on it: never change it."""
    # Read back first: only then is every name text, and can be sorted.
    plain = json.loads(json.dumps([kind, arguments], allow_nan=False))
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"by:{hashlib.sha256(text.encode()).hexdigest()}"
