"""The settings and commands that a file of deploy/ names, compared with those of the code."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast import _cli as cli
from holdfast._engine.process import GRACE_SECONDS
from holdfast._model.settings import Settings
from holdfast._model.settings_table import SETTINGS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

NAMES = {name for setting in SETTINGS for name in (setting.name, *setting.aliases)}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command as `holdfast` does."""
    return cli._parser().parse_args(list(words))


def load(environment: Mapping[str, str]) -> Settings:
    """Return the settings of an environment; each variable of ours must be one that is read."""
    ours = {name: value for name, value in environment.items() if name.startswith("HOLDFAST_")}
    assert ours.keys() <= NAMES, ours.keys() - NAMES
    settings = Settings.load(ours)
    assert not settings.notes
    return settings


def longest_stop(settings: Settings) -> timedelta:
    """How long a worker with these settings may take to exit after SIGTERM."""
    return settings.shutdown_timeout + timedelta(seconds=GRACE_SECONDS)
