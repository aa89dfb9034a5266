"""The address of a database as users write it."""

from __future__ import annotations

import re

from holdfast._model.settings import ADDRESS_SHAPE, SettingsError

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,40})://", re.IGNORECASE)


def check_address(url: object, subject: str = "the address given to Holdfast") -> None:
    """Raise SettingsError for an address that is not PostgreSQL's, and never repeat it; libpq checks the rest."""
    if not isinstance(url, str):
        raise TypeError(f"Holdfast: expected an address such as {ADDRESS_SHAPE}, got {type(url).__name__}")
    scheme = _SCHEME.match(url)
    if scheme and scheme[1] not in {"postgresql", "postgres"}:
        said = f"{subject} begins with {scheme[0]}"
        raise SettingsError([f"{said}: it must look like {ADDRESS_SHAPE}, without the name of a driver"])
    if url and scheme is None and "=" not in url:
        raise SettingsError([f"{subject} has no scheme: it must look like {ADDRESS_SHAPE}"])
    authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in path:
        said = f"{subject} has several @"
        raise SettingsError([f"{said}: percent-encode special characters in user and password, @ is %40"])
