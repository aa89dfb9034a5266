"""The mutation sites of a Python file, found in its syntax tree."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard

from labs.mutants.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
}
EXTREMES = {"min": "max", "max": "min"}
# Texts for people, and what only a type checker reads.
UNTOUCHED = (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Assert)
UNTOUCHED_FIELDS = {"annotation", "returns", "decorator_list", "slice", "type_params"}
LOGS = ("log.", "warnings.")


def python_sites(file: str, text: str) -> Iterator[Site]:
    """Yield each place where an operator, a condition, a constant, a call or an assignment can be changed."""
    yield from _File(file, text).visit(ast.parse(text), "", (0, 0))


class _File:
    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def visit(self, node: ast.AST, function: str, lines: tuple[int, int]) -> Iterator[Site]:
        if isinstance(node, UNTOUCHED) or self._is_log(node) or self._is_for_types(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
            lines = (node.lineno, node.end_lineno or node.lineno)
        for change, start, end, new in self._changes(node, function):
            yield Site(
                self._file,
                function or "<module>",
                lines if function else (node.lineno, node.lineno),  # type: ignore[attr-defined]
                self._text.count("\n", 0, start) + 1,
                change,
                start,
                end,
                self._text[start:end],
                new,
            )
        for name, value in ast.iter_fields(node):
            if name not in UNTOUCHED_FIELDS:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self.visit(child, function, lines)

    def _changes(self, node: ast.AST, function: str) -> Iterator[tuple[str, int, int, str]]:  # noqa: PLR0912
        match node:
            case ast.Expr(value=(ast.Call() as call) | ast.Await(value=ast.Call() as call)) if not self._is_log(call):
                yield "drop call", *self._span(node), "pass"
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Constant):
                yield "negate condition", *self._span(test), f"not ({self._of(test)})"
            case ast.Assign(targets=[ast.Attribute()]) if not function.endswith("__init__"):
                yield "drop assignment", *self._span(node), "pass"
            case ast.Compare():
                for (left, right), operator in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
                    yield self._between("comparison", left, right, *COMPARISONS[type(operator)])
            case ast.BoolOp():
                pair = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in pairwise(node.values):
                    yield self._between("and/or", left, right, *pair)
                    yield "drop operand", self._span(left)[1], self._span(right)[1], ""
                first, second = node.values[:2]
                yield "drop operand", self._span(first)[0], self._span(second)[0], ""
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield "drop not", *self._span(node), self._of(operand)
            case ast.Call(func=ast.Name(id=name)) if name in EXTREMES:
                yield "min/max", *self._span(node.func), EXTREMES[name]
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                yield self._between("arithmetic", node.left, node.right, *ARITHMETIC[type(node.op)])
            case ast.AugAssign(op=ast.Add() | ast.Sub()):
                old, new = ARITHMETIC[type(node.op)]
                yield self._between("arithmetic", node.target, node.value, f"{old}=", f"{new}=")
            case ast.Constant(value=bool() as value):
                yield "constant", *self._span(node), str(not value)
            case ast.Constant(value=int() as value):
                yield "constant", *self._span(node), str(value + 1)
            case ast.Constant(value=float() as value):
                yield "constant", *self._span(node), repr(value * 2 or 1.0)
            case ast.Continue():
                yield "drop continue", *self._span(node), "pass"

    def _between(self, change: str, left: ast.AST, right: ast.AST, old: str, new: str) -> tuple[str, int, int, str]:
        start, end = self._span(left)[1], self._span(right)[0]
        return change, start, end, self._text[start:end].replace(old, new, 1)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        """Columns of the syntax tree count bytes."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _of(self, node: ast.AST) -> str:
        return self._text[slice(*self._span(node))]

    def _is_log(self, node: ast.AST) -> TypeGuard[ast.Call]:
        return isinstance(node, ast.Call) and self._of(node.func).startswith(LOGS)

    def _is_for_types(self, node: ast.AST) -> bool:
        return isinstance(node, ast.If) and self._of(node.test) == "TYPE_CHECKING"
