"""Limits: how many jobs of a key may run at once, and how often they may start, in the whole database."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast._model.call import explains, type_name
from holdfast._model.errors import InvalidJob
from holdfast._model.option import KEY_LIMIT, KIND_LIMIT, check_number, check_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

MOST_LIMITS = 3
"""Of one job."""
LARGEST = 1_000_000
PERIODS = {"s": 1_000, "min": 60_000, "h": 3_600_000, "day": 86_400_000}
"""The units of a rate, in milliseconds."""
_RATE = re.compile(r"(\d{1,7})/(\d{0,3})(s|min|h|day)")
_UNFIT = re.compile("[\x00-\x1f\x7f]")


@explains
@dataclass(frozen=True, slots=True)
class Limit:
    """Limits how many jobs run at once, or how often they start, in the whole database, with any number of workers.

    Jobs that have to wait are `blocked`, and take no place that other jobs could use. The values of `by` are stored as
    plain text, for operators.

    >>> Limit(rate="100/min", burst=20, by="customer_id").rule["period_ms"]
    60000
    """

    _: KW_ONLY
    concurrency: int | None = None
    """How many jobs may run at once. Default: None, any number."""
    rate: str | None = None
    """How many jobs may start in a time: `10/s`, `100/min`, `1000/h`, `5000/day`. Default: None, any number."""
    burst: int = 1
    """With a rate: the number of jobs that may start at once after a pause. Default: 1, they start evenly spaced."""
    by: str | Sequence[str] | None = None
    """The arguments whose values make the key: each key has the limit for itself. Default: None, all jobs share it."""
    name: str = field(default="", init=False)
    """The name under which operators find it: that of `app.limit`, or the kind's, with `/` and the arguments."""
    names: tuple[str, ...] = field(default=(), init=False, repr=False)
    """The arguments in `by`."""

    def __post_init__(self) -> None:
        if self.concurrency is None and self.rate is None:
            raise InvalidJob('Limit: nothing is limited: write Limit(concurrency=3) or Limit(rate="100/min")')
        if self.concurrency is not None:
            check_number("concurrency", self.concurrency, 1, LARGEST)
        check_number("burst", self.burst, 1, LARGEST)
        if self.rate is not None:
            parsed_rate(self.rate)
        elif self.burst != 1:
            raise InvalidJob('burst: it is of a rate: write Limit(rate="100/min", burst=20)')
        object.__setattr__(self, "names", _names(self.by))

    def named(self, name: str) -> Limit:
        """Return the same limit under this name."""
        check_text("limit", name, KIND_LIMIT)
        if ":" in name:
            raise InvalidJob(
                f"limit: {name}: a name of a limit has no colon: declare one with app.limit, and name it: "
                'limits=["partner-api"]'
            )
        made = replace(self)
        object.__setattr__(made, "name", name)
        return made

    def of_kind(self, kind: str) -> Limit:
        """Return the limit under the name that it has as this kind's own."""
        return self.named(f"{kind}/{','.join(self.names)}" if self.names else kind)

    def check(self, kind: str, parameters: Collection[str]) -> None:
        """Raise InvalidJob if `by` names a parameter that the kind does not have."""
        for name in self.names:
            check_argument(kind, f"Limit(by={name!r})", name, parameters)

    def key(self, kind: str, arguments: Mapping[str, object]) -> str:
        """Return the key of a job of this kind with these JSON arguments."""
        if not self.names:
            return self.name
        self.check(kind, arguments)
        values = [arguments[name] for name in self.names]
        value = values[0] if len(values) == 1 else values
        return f"{self.name}:{key_text(value, KEY_LIMIT - len(self.name.encode()) - 1)}"

    @property
    def rule(self) -> dict[str, int | None]:
        """The limit in numbers, as it is stored."""
        starts, period_ms = (None, None) if self.rate is None else parsed_rate(self.rate)
        return {"concurrency": self.concurrency, "starts": starts, "period_ms": period_ms, "burst": self.burst}


def check_argument(kind: str, option: str, name: str, parameters: Collection[str]) -> None:
    """Raise InvalidJob if the kind has no parameter of this name. `option`: what names it, as users write it."""
    if name not in parameters:
        known = f"its parameters are {', '.join(parameters)}" if parameters else "it has no parameters"
        raise InvalidJob(f"{kind}: {option}: there is no such parameter: {known}")


def key_text(value: object, most: int = KEY_LIMIT) -> str:
    """Return a JSON value as plain text of at most so many bytes; its hash if that is not possible."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    if _UNFIT.search(text) or len(text.encode(errors="replace")) > most:
        return f"sha256 {hashlib.sha256(text.encode(errors='replace')).hexdigest()}"
    return text


def parsed_rate(rate: str) -> tuple[int, int]:
    """Return how many starts, in how many milliseconds."""
    if not isinstance(rate, str):
        raise InvalidJob(f'rate: expected text such as "100/min", got {type_name(rate)}')
    found = _RATE.fullmatch(rate.strip())
    if found is None or not 1 <= (starts := int(found[1])) <= LARGEST or (found[2] and not int(found[2])):
        raise InvalidJob(
            f'rate: expected a number and a time, such as "10/s", "100/min", "1000/h" or "1/5s", got {rate!r:.40}'
        )
    return starts, int(found[2] or 1) * PERIODS[found[3]]


def rate_text(starts: int, period_ms: int) -> str:
    """Return a rate as people write it."""
    unit = next(unit for unit in reversed(PERIODS) if period_ms % PERIODS[unit] == 0 or unit == "s")
    count = period_ms / PERIODS[unit]
    return f"{starts}/{'' if count == 1 else f'{count:g}'}{unit}"


def limits_of(kind: str, given: Sequence[Limit | str], declared: Mapping[str, Limit]) -> tuple[Limit, ...]:
    """Return the limits of a kind under their names. `declared`: those of `app.limit`, which text refers to."""
    example = 'limits: write limits=[Limit(concurrency=3, by="customer_id")], or the names of app.limit'
    if isinstance(given, str | Limit) or not all(isinstance(each, str | Limit) for each in given):
        raise TypeError(f"{kind}: {example}, not {given!r:.60}")
    found: list[Limit] = []
    for each in given:
        if isinstance(each, Limit):
            found.append(each if each.name else each.of_kind(kind))
        elif each in declared:
            found.append(declared[each])
        else:
            raise InvalidJob(f"{kind}: there is no limit {each!r}: declare it before, with app.limit({each!r}, …)")
    if len(found) > MOST_LIMITS:
        raise InvalidJob(f"{kind}: at most {MOST_LIMITS} limits, got {len(found)}")
    names = [limit.name for limit in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InvalidJob(
            f'{kind}: two limits have the key {twice[0]}: write one, such as Limit(concurrency=5, rate="100/min")'
        )
    if other := [limit.name for limit in found if declared.get(limit.name, limit) != limit]:
        raise InvalidJob(
            f"{kind}: the limit {other[0]} is declared with other values already: name one of them otherwise"
        )
    return tuple(found)


def _names(by: str | Sequence[str] | None) -> tuple[str, ...]:
    if by is None:
        return ()
    names = (by,) if isinstance(by, str) else tuple(by)
    for name in names:
        check_text("by", name, KEY_LIMIT)
    return tuple(dict.fromkeys(names))
