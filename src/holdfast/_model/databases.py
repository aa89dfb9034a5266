"""The databases of an application by name, and the choice of one of them for a key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from holdfast._logs.masking import mask
from holdfast._model.call import type_name
from holdfast._model.errors import HoldfastError
from holdfast._model.scheme import ADDRESS_SHAPE, scheme_problem
from holdfast._model.settings import SettingsError

if TYPE_CHECKING:
    from os import PathLike

    from holdfast._model.settings import Settings

Place: TypeAlias = Callable[[str, Sequence[str]], str]

_EXAMPLE = '{"eu": "postgresql://…", "us": "postgresql://…"}'
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_SHAPE = "a lowercase letter, then at most 62 lowercase letters, digits, _ or -"
_NAMED = re.compile(rf"({_NAME.pattern})=(postgres(?:ql)?://.*)", re.DOTALL)
# The parts of an address that decide which database it is.
_PLACE = ("service", "host", "hostaddr", "port")
_MADE_UP = "db"
_LONGEST_NAME = 63
# A file of a thousand databases is about 100 kB.
_LARGEST_FILE = 1_048_576


def by_key(key: str, names: Sequence[str]) -> str:
    """Return the name for a key by rendezvous hashing: a new name takes over its share of the keys, and no other moves.

    The answer depends only on the key and the names, not on their order, the process or the version of Python.
    """
    return max(names, key=lambda name: (_score(key, name), name))


def _score(key: str, name: str) -> bytes:
    return blake2b(f"{name}\0{key}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Databases(Mapping[str, str]):
    """The addresses of an application's databases by name; the first one has its own runners and schedules.

    >>> databases = Databases({"eu": "postgresql://eu.internal/shop", "us": "postgresql://us.internal/shop"})
    >>> databases.place("customer-7")
    'us'
    >>> databases
    Databases(eu, us)
    """

    __slots__ = ("_addresses", "_draining", "_place")

    def __init__(self, addresses: Mapping[str, str], *, place: Place = by_key, draining: Iterable[str] = ()) -> None:
        """Name the databases: `Databases({"eu": "postgresql://…", "us": "postgresql://…"}, draining=["us"])`.

        `place(key, names)`: returns one of the names. Default: `by_key`. `draining`: names that get no new keys;
        workers serve these databases like the others. Default: none.
        """
        if not isinstance(addresses, Mapping):
            raise TypeError(f"Databases: expected a mapping such as {_EXAMPLE}, got {type_name(addresses)}")
        if isinstance(draining, str) or not isinstance(draining, Iterable):
            raise TypeError(f'draining: expected a list of names such as ["us"], got {type_name(draining)}')
        if not callable(place):
            raise TypeError(f"place: expected a function of a key and names, such as by_key, got {type_name(place)}")
        self._addresses = dict(addresses)
        self._draining = tuple(draining)
        self._place = place
        if problems := [*_problems(self._addresses, self._draining)]:
            raise SettingsError(problems)

    @classmethod
    def read(cls, path: str | PathLike[str], *, place: Place = by_key) -> Self:
        """Return the databases of a TOML file: `eu = "postgresql://…"` or `us = { url = "…", draining = true }`.

        `place(key, names)`: returns one of the names. Default: `by_key`. Raises SettingsError with the file, the name
        and the reason if the file cannot be used; it never shows an address.
        """
        addresses, draining = _parsed(path)
        try:
            return cls(addresses, place=place, draining=draining)
        except SettingsError as refused:
            raise SettingsError([f"{path}: {problem}" for problem in refused.problems]) from None

    def place(self, key: str) -> str:
        """Return the name of the database for a new key: one that is not draining."""
        if not isinstance(key, str):
            raise TypeError(f"databases.place: expected a key as text, such as str(customer_id), got {type_name(key)}")
        names = self.placeable
        name = self._place(key, names)
        if name not in names:
            function = getattr(self._place, "__name__", type_name(self._place))
            raise HoldfastError(f"place: {function} returned {name!r:.80}, expected one of {', '.join(names)}")
        return name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all databases, in the order given."""
        return tuple(self._addresses)

    @property
    def placeable(self) -> tuple[str, ...]:
        """The names that new keys may get: those that are not draining."""
        return tuple(name for name in self._addresses if name not in self._draining)

    @property
    def draining(self) -> frozenset[str]:
        """The names that get no new keys."""
        return frozenset(self._draining)

    @property
    def first(self) -> str:
        """The address of the first database, which has the runners and schedules of the application."""
        return next(iter(self._addresses.values()))

    def __getitem__(self, name: str) -> str:
        return self._addresses[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)

    def _key(self) -> tuple[Any, ...]:
        return tuple(self._addresses.items()), self.draining, self._place

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Databases) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        shown = (f"{name} (draining)" if name in self._draining else name for name in self._addresses)
        return f"{type(self).__name__}({', '.join(shown)})"


def check_address(url: object, subject: str = "the address given to Holdfast") -> None:
    """Raise SettingsError for an address that is not PostgreSQL's, and never repeat it; libpq checks the rest."""
    if not isinstance(url, str):
        raise TypeError(f"Holdfast: expected an address such as {ADDRESS_SHAPE}, got {type(url).__name__}")
    if problem := scheme_problem(url):
        raise SettingsError([f"{subject} {problem}"])
    if url and "://" not in url and "=" not in url:
        raise SettingsError([f"{subject} has no scheme: it must look like {ADDRESS_SHAPE}"])
    authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in path:
        problem = f"{subject} has several @"
        raise SettingsError([f"{problem}: percent-encode special characters in user and password, @ is %40"])


def databases_of(settings: Settings) -> Databases:
    """Return the databases that the settings name: those of the file, else those of the addresses.

    Addresses without a name get that of their database, made unique by a number.
    """
    if settings.databases_file is not None:
        return Databases.read(settings.databases_file)
    if not settings.database_urls:
        raise SettingsError(["no database: give Holdfast an address, or set HOLDFAST_DATABASE_URL"])
    return databases_at(settings.database_urls, settings.label("database_urls"))


def databases_at(addresses: Iterable[str], label: str) -> Databases:
    """Return the databases at these addresses, all of them with a name or none. `label`: what gave them."""
    pairs = [split_name(text) for text in addresses]
    names = [name for name, _ in pairs if name is not None]
    if names and len(names) < len(pairs):
        raise SettingsError([f"{label} must give a name to every address, like eu=postgresql://…, or to none"])
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise SettingsError([f"{label} must use the name {twice[0]} once"])
    urls = [url for _, url in pairs]
    return Databases(dict(zip(names, urls, strict=True))) if names else named(urls)


def split_name(text: str) -> tuple[str | None, str]:
    """Return the name and the address of `eu=postgresql://…`; the name of a plain address is None."""
    found = _NAMED.fullmatch(text)
    return (found[1], found[2]) if found else (None, text)


def named(urls: Iterable[str]) -> Databases:
    """Return databases named for their databases: `shop`, `shop-2`."""
    addresses: dict[str, str] = {}
    for url in urls:
        made, number = _name_of(url), 1
        name = made
        while name in addresses:
            number += 1
            name = f"{made[: _LONGEST_NAME - 1 - len(str(number))]}-{number}"
        addresses[name] = url
    return Databases(addresses)


def _name_of(url: str) -> str:
    """Return a name made from that of the database."""
    parts = _parts(url)
    name = re.sub(r"[^a-z0-9_-]+", "-", str(parts.get("dbname") or parts.get("user") or "").lower()).strip("-")
    return (name if _NAME.match(name) else f"{_MADE_UP}-{name}".rstrip("-"))[:_LONGEST_NAME]


def place_of(url: str) -> str:
    """Return where an address leads, without user, password and options.

    >>> place_of("postgresql://me:hush@db.internal/shop")
    'db.internal:5432/shop'
    """
    parts = _parts(url)
    if service := parts.get("service"):
        return f"service {service}"
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    host = "localhost" if host in {"127.0.0.1", "::1"} else host
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


def _parts(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except ProgrammingError:
        return {}


def _problems(addresses: Mapping[Any, Any], draining: Sequence[Any]) -> Iterator[str]:
    """Yield what is wrong with these databases. No text has a part of an address."""
    if not addresses:
        yield f"expected at least one database, such as {_EXAMPLE}"
    seen: dict[object, str] = {}
    for name, url in addresses.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            # An address in the place of a name must not be shown.
            shown = repr(mask(name)[:70]) if isinstance(name, str) and "://" not in name else type_name(name)
            yield f"the name of a database must be {_SHAPE}, not {shown}"
            continue
        if problem := _address_problem(url):
            yield f"{name}: {problem}"
            continue
        other = seen.setdefault(_identity(url), name)
        if other != name:
            yield f"{name}: {other} is the same database"
    for name in draining:
        if name not in addresses:
            yield f"draining: {name!r:.70} is not one of the databases"
    if addresses and set(addresses) <= set(draining):
        yield "draining: at least one database must take new keys"


def _address_problem(url: object) -> str:
    if not isinstance(url, str) or not url.strip():
        return f"expected an address such as postgresql://user:password@host:port/dbname, got {type_name(url)}"
    try:
        check_address(url, "the address")
    except SettingsError as refused:
        return refused.problems[0]
    return ""


def _identity(url: str) -> object:
    parts = _parts(url)
    if not parts:
        return url
    return (*(str(parts.get(part) or "") for part in _PLACE), str(parts.get("dbname") or parts.get("user") or ""))


def _parsed(path: str | PathLike[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the addresses of a file, and the names that are draining."""
    addresses: dict[str, Any] = {}
    draining: list[str] = []
    problems: list[str] = []
    for name, value in _toml(path).items():
        table = value if isinstance(value, dict) else {"url": value}
        if unknown := [key for key in table if key not in {"url", "draining"}]:
            problems.append(f"{path}: {name}: expected url and draining, got {unknown[0]!r:.40}")
        if not isinstance(table.get("draining", False), bool):
            problems.append(f"{path}: {name}: draining must be true or false, not {type_name(table['draining'])}")
        addresses[name] = table.get("url")
        draining += [name] if table.get("draining") is True else []
    if problems:
        raise SettingsError(problems)
    return addresses, draining


def _toml(path: str | PathLike[str]) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise SettingsError([f"{path}: the file is larger than 1 MiB"])
        return tomllib.loads(text.decode())
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror or type(error).__name__}"]) from None
    except (ValueError, RecursionError) as error:
        # The text of the parser names the line and column, and nothing of the line.
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else mask(str(error))
        raise SettingsError([f"{path}: not TOML: {reason}"]) from None
