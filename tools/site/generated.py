"""Pages and parts of pages that are made of code: the Python API, the HTTP API, the log events, the layers.

A page has the marker `<!-- generated: NAME -->` where a part belongs.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._ops.openapi import document
from holdfast._ops.routes import ROUTES
from tools import layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGE = Path(__file__).parent.parent.parent / "src" / "holdfast"
_MARKER = re.compile(r"<!-- generated: ([\w-]+) -->")
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def pages() -> dict[str, str]:
    """Return the generated pages by their places: one for each public module."""
    return {f"reference/api/{name}.md": _module_page(name) for name in public_modules()}


def modules() -> str:
    """Return a table of the public modules."""
    rows = [(f"[`{name}`]({name}.md)", _summary(name)) for name in public_modules()]
    return "\n".join(_table(("module", ""), rows))


def filled(markdown: str) -> str:
    """Return the page with its generated parts."""
    parts = {"layers": layers.picture, "http-api": http_api, "log-events": log_events, "modules": modules}
    return _MARKER.sub(lambda match: parts[match[1]](), markdown)


@cache
def public_modules() -> dict[str, Path]:
    """Return the files of the modules that have a list of public names, the package first."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if "._" not in name and public_names(path):
            found[name] = path
    return found


def public_names(path: Path) -> list[str]:
    """Return `__all__` of a file."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets
        ):
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def _summary(module: str) -> str:
    docstring = ast.get_docstring(ast.parse(public_modules()[module].read_text("utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


def _module_page(module: str) -> str:
    # The application comes first: it is where readers begin.
    names = sorted(public_names(public_modules()[module]), key=lambda name: (name != "Holdfast", name))
    parts = [f"# {module}", _summary(module), *(f"::: {module}.{name}" for name in names)]
    return "\n\n".join(parts) + "\n"


def http_api() -> str:
    """Return a section for each operation of the OpenAPI document, and one for each model."""
    described = document(tuple(ROUTES))
    lines: list[str] = []
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            lines += _operation(f"{method.upper()} {path}", operation)
    lines += ["## Models", ""]
    for name, schema in sorted(described["components"]["schemas"].items()):
        lines += _model(name, schema)
    return "\n".join(lines)


def _operation(title: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from (f"### {title}", "", f"{operation['summary']}. {operation.get('description', '')}", "")
    rows = [(f"`{one['name']}`", one["in"], _type(one["schema"])) for one in operation.get("parameters", [])]
    if rows:
        yield from _table(("parameter", "in", "type"), rows)
    if body := operation.get("requestBody"):
        yield from (f"Body: {_content(body)}", "")
    answers = [
        (f"{status}", answer["description"], _content(answer)) for status, answer in operation["responses"].items()
    ]
    yield from _table(("status", "", "body"), answers)


def _model(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from (f"### {name}", "", schema.get("description", "").replace("\n", " "), "")
    if "enum" in schema:
        yield from (", ".join(f"`{value}`" for value in schema["enum"]), "")
    required = set(schema.get("required", ()))
    rows = [
        (f"`{field}`", _type(kind), "" if field in required else _default(kind), kind.get("description", ""))
        for field, kind in schema.get("properties", {}).items()
    ]
    if rows:
        yield from _table(("field", "type", "default", ""), rows)


def _default(kind: dict[str, Any]) -> str:
    return f"`{kind['default']}`" if kind.get("default") is not None else "none"


def _content(part: dict[str, Any]) -> str:
    return ", ".join(_type(content.get("schema", {})) or name for name, content in part.get("content", {}).items())


def _type(schema: dict[str, Any]) -> str:
    """Return the type in words, with a link to a model."""
    match schema:
        case {"$ref": str(model)}:
            name = model.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(map(_type, choices))
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"type": "array"}:
            return f"list of {_type(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict(inner)}:
            return f"object of {_type(inner)}"
        case _:
            return str(schema.get("const") or schema.get("format") or schema.get("type") or "any")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield from ("| " + " | ".join(head) + " |", "|---" * len(head) + "|")
    yield from ("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows)
    yield ""


def log_events() -> str:
    """Return a table of the messages that the code logs, with their fields."""
    rows = sorted({row for path in sorted(PACKAGE.rglob("*.py")) for row in _logged(path)})
    return "\n".join(_table(("message", "level", "fields", "logger"), rows))


def _logged(path: Path) -> Iterator[tuple[str, str, str, str]]:
    logger = f"`holdfast.{path.stem}`"
    for call, scope in _calls(ast.parse(path.read_text("utf-8"))):
        fields = ", ".join(f"`{name}`" for name in _fields(call, scope))
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr="log"), args=[_, message, *_]):
                level = "debug or warning"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=name), args=[message, *_]) if (
                name in _LEVELS
            ):
                level = "error" if name == "exception" else name
            case ast.Call(func=ast.Name(id="Outage"), args=[_, ast.Constant(value=str(text))]):
                yield text, "warning", "`error`, `why`, `failures`", logger
                yield f"{text}: it works again", "info", "`failures`, `seconds`", logger
                continue
            case _:
                continue
        for text in _texts(message, scope):
            if text != "%s":  # the page describes those that are made at run time
                yield text, level, fields, logger


def _calls(node: ast.AST, scope: ast.AST | None = None) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Return every call, each with the innermost function around it."""
    scope = node if scope is None or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else scope
    if isinstance(node, ast.Call):
        yield node, scope
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, scope)


def _texts(message: ast.expr, scope: ast.AST) -> Iterator[str]:
    """Return the texts that a message can be: given as such, by a condition, or by a variable."""
    match message:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one, scope), *_texts(other, scope))
        case ast.Name(id=name):
            for value in _assigned(name, scope):
                yield from _texts(value, scope)
        case _:
            pass


def _fields(call: ast.Call, scope: ast.AST) -> Iterator[str]:
    """Return the names of the extra fields: of a dictionary, of a call that makes one, or of a variable."""
    for extra in (keyword.value for keyword in call.keywords if keyword.arg == "extra"):
        for given in _assigned(extra.id, scope) if isinstance(extra, ast.Name) else [extra]:
            match given:
                case ast.Dict(keys=keys):
                    yield from (str(key.value) for key in keys if isinstance(key, ast.Constant))
                case ast.Call(keywords=keywords):
                    yield from (keyword.arg for keyword in keywords if keyword.arg is not None)
                case _:
                    pass


def _assigned(name: str, scope: ast.AST) -> Iterator[ast.expr]:
    """Return the values that a function assigns to a variable."""
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                yield value
            case _:
                pass
