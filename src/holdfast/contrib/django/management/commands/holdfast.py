"""`manage.py holdfast …` is `holdfast …` with the site's application and database."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand
from django.db import DEFAULT_DB_ALIAS

from holdfast._cli import main_with
from holdfast.contrib.django._application import address

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

_VARIABLE = "HOLDFAST_DATABASE_URL"


class Command(BaseCommand):
    help = "Run a command of Holdfast: migrate, worker, tick, jobs, runners, check. They need no APP and no address."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own spelling

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database",
            metavar="ALIAS",
            help=f"one of DATABASES, named before the command (default: {_VARIABLE}, else {DEFAULT_DB_ALIAS})",
        )
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the command, as `holdfast --help` lists them")

    def handle(self, *, database: str | None, arguments: list[str], **_: Any) -> None:
        if database is not None or not os.environ.get(_VARIABLE):
            # Set in the environment, so that processes started by `worker --processes` find it too.
            os.environ[_VARIABLE] = address(database or DEFAULT_DB_ALIAS)
        if status := main_with("holdfast.contrib.django.site:app", arguments):
            sys.exit(status)
