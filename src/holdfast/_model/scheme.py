"""The scheme of a database's address, and the shape of one that is accepted."""

from __future__ import annotations

import re

ADDRESS_SHAPE = "postgresql://user:password@host:port/dbname"
_SCHEMES = ("postgresql", "postgres")
# An address may begin with the name of its database.
_SCHEME = re.compile(r"(?:[a-z][a-z0-9_-]{0,62}=)?([a-z][a-z0-9+.-]{0,40})://", re.IGNORECASE)


def scheme_problem(address: str) -> str:
    """Return what is wrong with the scheme of an address, and nothing else of the address; empty if nothing is.

    >>> scheme_problem("postgresql+psycopg://shop@db/shop")
    'begins with postgresql+psycopg://: write postgresql://, without the name of a driver'
    """
    found = _SCHEME.match(address)
    if found is None or found[1].lower() in _SCHEMES:
        return ""
    if found[1].lower().partition("+")[0] in _SCHEMES:
        return f"begins with {found[1]}://: write postgresql://, without the name of a driver"
    return f"begins with {found[1]}://, and Holdfast needs PostgreSQL: give an address like {ADDRESS_SHAPE}"
