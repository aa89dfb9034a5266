"""The site's Holdfast application, from its setting."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from holdfast._app.app import Holdfast

_ADVICE = 'HOLDFAST_APP must be the dotted path of a Holdfast, e.g. "shop.jobs.app"'


def application() -> Holdfast:
    """Return the Holdfast application given by HOLDFAST_APP."""
    name = getattr(settings, "HOLDFAST_APP", None)
    found = import_string(name) if isinstance(name, str) else None
    if not isinstance(found, Holdfast):
        raise ImproperlyConfigured(f"{_ADVICE}, not {name!r}")
    return found
