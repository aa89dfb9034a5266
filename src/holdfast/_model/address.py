"""The address of a database as users write it."""

from __future__ import annotations

from holdfast._model.scheme import ADDRESS_SHAPE, scheme_problem
from holdfast._model.settings import SettingsError


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
