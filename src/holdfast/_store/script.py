"""A script of SQL, split into its statements."""

from __future__ import annotations

import re

from holdfast._model.errors import HoldfastError

# Whatever may contain a semicolon, and the semicolon that ends a statement. Text between these needs no reading.
_TOKEN = re.compile(
    r"""
      --[^\r\n]*
    | (?<!\w)[eE]'(?:[^'\\]|\\.|'')*'
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | (?<![\w$])\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$
    | (?P<end>;)
    | (?P<refused>/\*|['"]|(?<![\w$])\$(?:[^\W\d]\w*|)\$|\b(?i:BEGIN\s+ATOMIC)\b)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENTS = re.compile(r"(?:\s|--[^\r\n]*+)*+")


def split(sql: str) -> list[str]:
    r"""Return the statements of a script, without their semicolons. Text that has only comments is left out.

    A semicolon in a string, a quoted name, a dollar quote or a line comment ends no statement. Block comments, function
    bodies with `BEGIN ATOMIC` and quotes without an end are refused.

    >>> split("SELECT ';'; -- one; two\nDO $$ BEGIN NULL; END $$;")
    ["SELECT ';'", '-- one; two\nDO $$ BEGIN NULL; END $$']
    """
    statements, start = [], 0
    for token in _TOKEN.finditer(sql):
        if token["refused"]:
            line = sql.count("\n", 0, token.start()) + 1
            raise HoldfastError(f"line {line}: a script with {token[0]} cannot be split into statements")
        if token["end"]:
            statements.append(sql[start : token.start()])
            start = token.end()
    return [text.strip() for text in (*statements, sql[start:]) if not _COMMENTS.fullmatch(text)]
