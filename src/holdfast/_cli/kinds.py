"""Print the kinds of an application and what their payloads are, for programs in other languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._cli import load, table
from holdfast._cli.typescript import interfaces
from holdfast._model.kind import Kind
from holdfast._model.payload_schemas import payload_schemas

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    load.configure(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json-schema", action="store_true", help="print a JSON schema with the payload of every kind")
    form.add_argument("--typescript", action="store_true", help="print TypeScript types of the payloads")


def run(arguments: argparse.Namespace) -> None:
    kinds = load.load(arguments.app).kinds
    if arguments.json_schema:
        table.print_json(payload_schemas(kinds.values()))
    elif arguments.typescript:
        print(interfaces(payload_schemas(kinds.values())), end="")
    else:
        rows = [
            (
                name,
                kind.envelope.queue,
                kind.envelope.payload_version,
                "here" if isinstance(kind, Kind) else "another service",
            )
            for name, kind in sorted(kinds.items())
        ]
        table.print_table(("kind", "queue", "version", "runs in"), rows)
