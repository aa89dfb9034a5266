"""Every public name is documented: a first line that is a sentence, and the unit and default of each measure."""

from __future__ import annotations

import ast
import inspect
import re
from datetime import timedelta
from importlib import import_module
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import holdfast
from holdfast._model.settings_table import SETTINGS
from tests.test_front_door import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = re.compile(r"\b(?:timedelta|int|float)\b")
# Numbers that count nothing: ids, versions and the like.
_IDENTIFIERS = re.compile(
    r"(?:\w+_)?ids?|chains?|job|key|before|after|(?:\w+_)?version|status|token|attempt|now|clock|random|bounds|run_id"
)
# Users receive these and do not make them. Their fields are results.
_RECEIVED = {"Enqueued", "GroupProgress", "JobInfo", "JobList", "Progress", "Running", "ScheduleLine"}
_UNITS = re.compile(
    r"seconds?\b|\bms\b|characters|bytes|[KM]iB|jobs|events|attempts|chains|items|ticks|connections|processes|"
    r"streams|entries|failures|schedules|times|0 to 9|0 to 1\b|concurrency|number",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"See `([\w.]+)`")


class Documented(NamedTuple):
    name: str
    value: Any
    text: str | None


def _own(value: Any) -> str | None:
    # A method may inherit its docstring, a class may not.
    return inspect.cleandoc(vars(value).get("__doc__") or "") if inspect.isclass(value) else inspect.getdoc(value)


def _members(value: type) -> Iterator[tuple[str, Any]]:
    for base in value.__mro__:
        if base.__module__.startswith("holdfast"):
            for name, member in vars(base).items():
                member = member.__func__ if isinstance(member, classmethod | staticmethod) else member  # noqa: PLW2901
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    yield name, member


def _assigned(module: str, name: str) -> str | None:
    """Return the docstring under `name = …` in the module that defines the name."""
    for home in [module, *_homes(module)]:
        body = ast.parse(inspect.getsource(import_module(home))).body
        if (text := _attribute_docstrings(body).get(name)) is not None:
            return text
    return None


def _homes(module: str) -> list[str]:
    """Return the modules from which a public module imports its names."""
    nodes = ast.walk(ast.parse(inspect.getsource(import_module(module))))
    found = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return [name for name in found if name.startswith("holdfast.")]


def _attribute_docstrings(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for statement, following in pairwise(body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found


def _public() -> Iterator[Documented]:
    seen = set()
    for module in ("holdfast", *NAMES):
        loaded = import_module(module)
        yield Documented(module, loaded, _own(loaded))
        for name in loaded.__all__:
            value = getattr(loaded, name)
            path = f"{module}.{name}"
            if id(value) in seen:
                continue
            seen.add(id(value))
            if inspect.ismodule(value):
                continue  # a public module, which is in NAMES itself
            if not inspect.isclass(value) and not inspect.isfunction(value):
                yield Documented(path, value, _assigned(module, name))
                continue
            yield Documented(path, value, _own(value))
            if inspect.isclass(value):
                for member_name, member in _members(value):
                    if id(member) not in seen:
                        seen.add(id(member))
                        yield Documented(f"{path}.{member_name}", member, _own(member))


PUBLIC = {found.name: found for found in _public()}


def test_the_first_line_is_a_sentence() -> None:
    problems = []
    for found in PUBLIC.values():
        first, *rest = (found.text or "").splitlines() or [""]
        if not re.fullmatch(r"[A-Z`].*\.", first) or (rest and rest[0]):
            problems.append(f"{found.name}: {first!r}")
    assert problems == []


def _measures(value: Any, *, settings: bool = False) -> Iterator[inspect.Parameter]:
    """Yield the parameters that take a duration, a size, a count or a limit."""
    if inspect.isclass(value):
        received = issubclass(value, Exception) or value.__name__ in _RECEIVED
        if received or (value is holdfast.Settings and not settings):
            return
    elif not inspect.isfunction(value):
        return
    for parameter in inspect.signature(value).parameters.values():
        if _NUMBER.search(str(parameter.annotation)) and not _IDENTIFIERS.fullmatch(parameter.name):
            yield parameter


def _explained(of: Documented, parameter: str) -> str | None:
    """Return what a docstring says of a parameter: the clause after its name, or the attribute's own docstring."""
    if inspect.isclass(of.value):
        for base in of.value.__mro__:
            if base.__module__.startswith("holdfast"):
                tree = ast.parse(dedent(inspect.getsource(base))).body[0]
                assert isinstance(tree, ast.ClassDef)
                if (own := _attribute_docstrings(tree.body).get(parameter)) is not None:
                    return own
    texts = [of.text or "", inspect.getdoc(of.value.__init__) or "" if inspect.isclass(of.value) else ""]
    for text in texts:
        clause = re.search(
            rf"`{parameter}`(?:(?:,| and) `\w+`)*(?P<text>.*?)(?= `\w+`(?:(?:,| and) `\w+`)*:|\n>>>|\Z)",
            text,
            re.DOTALL,
        )
        if clause is not None:
            return " ".join(clause["text"].split())
        for other in _REFERENCE.findall(text):
            beside = PUBLIC.get(f"{of.name.rpartition('.')[0]}.{other}") or PUBLIC.get(_beside(of.name, other))
            if beside is not None and (explained := _explained(beside, parameter)) is not None:
                return explained
    return None


def _beside(name: str, other: str) -> str:
    """Return the full name of a method of another class of the same module: `Holdfast.wait` for `SyncClient.wait`."""
    return f"{name.rsplit('.', 2)[0]}.{other}"


def _written(default: Any) -> str:
    """Return how a default is written, as a pattern; anything when it is not a number."""
    match default:
        case timedelta():
            seconds = default.total_seconds()
            return f"{seconds:g} s|{seconds * 1000:,.0f} ms|{seconds / 60:g} minutes?|{seconds / 3600:g} hours?"
        case bool() | None:
            return ""
        case int() | float():
            return rf"\b(?:{default:,g}|{default}|{default / 1024:g} KiB|{default / 2**20:g} MiB)(?!\w)"
        case _:
            return ""


def _problems(of: Documented, parameter: inspect.Parameter) -> Iterator[str]:
    explained = _explained(of, parameter.name)
    if explained is None:
        yield "it is not explained"
        return
    if "timedelta" not in str(parameter.annotation) and not _UNITS.search(explained):
        yield f"no unit in {explained!r}"
    if parameter.default is not inspect.Parameter.empty:
        written = re.search(_written(parameter.default), explained)
        if not written or not re.search(r"\bdefault", explained, re.IGNORECASE):
            yield f"the default {parameter.default} is not in {explained!r}"


def test_a_measure_has_its_unit_and_default() -> None:
    problems = [
        f"{found.name}({parameter.name}): {problem}"
        for found in PUBLIC.values()
        for parameter in _measures(found.value)
        for problem in _problems(found, parameter)
    ]
    assert problems == []


def test_a_setting_has_its_unit_and_default_in_the_table() -> None:
    """The fields of `Settings` are explained by the table that `holdfast check` and docs/reference/settings.md show."""
    table = {setting.field: setting for setting in SETTINGS}
    for parameter in _measures(holdfast.Settings, settings=True):
        setting = table[parameter.name]
        assert setting.unit in {"ms", "number", "queues"}
        assert setting.meaning
        assert setting.default or "None" in str(parameter.annotation) or setting.unit == "queues"


@pytest.mark.parametrize(
    ("text", "default", "problem"),
    [
        ("Wait. `timeout`: for an answer. Default: 30 seconds.", timedelta(seconds=30), None),
        ("Wait. `timeout`: for an answer.", timedelta(seconds=30), "the default"),
        ("Wait. `timeout`: for an answer. Default: 20 seconds.", timedelta(seconds=30), "the default"),
        ("Wait.", timedelta(seconds=30), "it is not explained"),
    ],
)
def test_these_problems_are_found(text: str, default: timedelta, problem: str | None) -> None:
    parameter = inspect.Parameter("timeout", inspect.Parameter.KEYWORD_ONLY, default=default, annotation="timedelta")
    found = list(_problems(Documented("wait", _problems, text), parameter))
    assert [line.startswith(problem or "") for line in found] == ([True] if problem else [])
