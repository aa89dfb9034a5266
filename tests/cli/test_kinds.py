"""`holdfast kinds`: what programs in other languages enqueue, as JSON schema and as TypeScript."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from holdfast._cli.typescript import interfaces
from tests.kit.commands import holdfast

ROOT = Path(__file__).parents[2]
TSC = ROOT / "dashboard" / "node_modules" / ".bin" / "tsc"
SHOP = """
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal, Optional, TypedDict
from pydantic import BaseModel
from holdfast import Holdfast, Job

app = Holdfast()

class Line(BaseModel):
    article: str
    price: Decimal
    tags: set[str] = set()

class Node(BaseModel):
    value: int
    children: list["Node"] = []

@dataclass
class Label:
    text: str
    size: tuple[int, int] = (1, 1)

@app.job("order.place", queue="orders", version=2)
async def place(
    job: Job[None], customer_id: int, lines: list[Line], at: datetime, how: Literal["air", "sea"] = "air"
) -> str: ...

@app.job("tree.walk")
def walk(job: Job[None], root: Node, more: dict[str, float] | None = None, *, anything: object = None) -> None: ...

@app.job("nightly.clean")
def clean(job: Job[None]) -> None: ...

print_label = app.declare("label.print", Label)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "kinds_shop.py").write_text(SHOP)
    return tmp_path


def test_the_kinds_are_listed(shop: Path) -> None:
    lines = [line.split() for line in holdfast("kinds", "kinds_shop:app", cwd=shop).out.splitlines()]
    assert lines[0] == ["KIND", "QUEUE", "VERSION", "RUNS", "IN"]
    assert lines[1:] == [
        ["label.print", "default", "1", "another", "service"],
        ["nightly.clean", "default", "1", "here"],
        ["order.place", "orders", "2", "here"],
        ["tree.walk", "default", "1", "here"],
    ]


def schema_of(shop: Path) -> Any:
    return holdfast("kinds", "kinds_shop:app", "--json-schema", cwd=shop).json


@pytest.mark.parametrize(
    ("kind", "payload", "fits"),
    [
        (
            "order.place",
            {"customer_id": 1, "lines": [{"article": "a", "price": "9.90"}], "at": "2026-01-01T00:00:00Z"},
            True,
        ),
        ("order.place", {"customer_id": "one", "lines": [], "at": "2026-01-01T00:00:00Z"}, False),
        ("order.place", {"customer_id": 1, "lines": [], "at": "2026-01-01T00:00:00Z", "how": "road"}, False),
        ("order.place", {"customer_id": 1, "lines": [], "at": "2026-01-01T00:00:00Z", "extra": 1}, False),
        ("tree.walk", {"root": {"value": 1, "children": [{"value": 2}]}}, True),
        ("tree.walk", {"root": {"value": 1, "children": [2]}}, False),
        ("nightly.clean", {}, True),
        ("nightly.clean", {"n": 1}, False),
        ("label.print", {"text": "x", "size": [2, 3]}, True),
    ],
)
def test_a_payload_fits_the_schema_if_its_handler_takes_it(shop: Path, kind: str, payload: object, fits: bool) -> None:
    schema = schema_of(shop)
    jsonschema.Draft202012Validator.check_schema(schema)
    of_kind = schema["properties"][kind] | {"$defs": schema["$defs"]}
    assert jsonschema.Draft202012Validator(of_kind).is_valid(payload) is fits


def test_typescript_names_every_payload(shop: Path) -> None:
    text = holdfast("kinds", "kinds_shop:app", "--typescript", cwd=shop).out
    assert '"order.place": {' in text
    assert 'how?: "air" | "sea";' in text
    assert "lines: Array<Line>;" in text
    assert "children?: Array<Node>;" in text
    assert "size?: [number, number];" in text
    assert "anything?: unknown;" in text
    assert '"nightly.clean": Record<string, never>;' in text


@pytest.mark.skipif(not TSC.exists(), reason="`make dashboard` did not run")
def test_a_compiler_takes_the_types_and_refuses_what_does_not_fit(shop: Path) -> None:
    (shop / "kinds.ts").write_text(holdfast("kinds", "kinds_shop:app", "--typescript", cwd=shop).out)
    (shop / "use.ts").write_text(
        'import type { Payloads } from "./kinds";\n'
        'const fits: Payloads["tree.walk"] = { root: { value: 1, children: [{ value: 2 }] }, more: { a: 1 } };\n'
        'export const empty: Payloads["nightly.clean"] = {};\n'
        "// @ts-expect-error a road is no way\n"
        'export const wrong: Payloads["order.place"]["how"] = "road";\n'
        "// @ts-expect-error the root is missing\n"
        'export const less: Payloads["tree.walk"] = {};\n'
    )
    done = subprocess.run(  # noqa: S603 - the dashboard's own compiler
        [str(TSC), "--noEmit", "--strict", "--module", "esnext", "--moduleResolution", "bundler", "use.ts"],
        cwd=shop, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_names_that_are_no_identifiers() -> None:
    schema = {
        "type": "object",
        "properties": {"a-b": {"$ref": "#/$defs/x.Y[int]"}},
        "$defs": {"x.Y[int]": {"type": ["string", "null"]}},
    }
    text = interfaces(schema)
    assert '"a-b"?: x_Y_int_;' in text
    assert "export type x_Y_int_ = string | null;" in text
