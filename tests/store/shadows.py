"""Functions and operators in `public` that PostgreSQL prefers over its own, made by a login that may create there.

PostgreSQL takes the candidate whose argument types match exactly, and looks at the order of the search_path only
between candidates with the same types. So a polymorphic function or operator of `pg_catalog`, or one that needs a
conversion, loses against a twin in `public` with concrete types. Each twin writes its name down when it is called.
"""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

OPERATORS = ["=", "<>", "<", ">", "<=", ">=", "~", "&&", "+", "-", "*", "/", "%", "||", "->", "->>", "&"]
_COMPARISONS = {"=", "<>", "<", ">", "<=", ">=", "~", "&&"}
NUMBERS = ["smallint", "integer", "bigint", "numeric", "double precision", "real"]
TEXTS = ["text", "name", "varchar"]
TIMES = ["timestamptz", "timestamp", "date", "interval"]
OTHERS = ["boolean", "json", "oid", "xid8", "holdfast.status", "holdfast.outcome"]
ELEMENTS = [*NUMBERS, *TEXTS, *TIMES, *OTHERS]
ARRAYS = ["text[]", "bigint[]", "integer[]", "timestamptz[]", "name[]", "interval[]"]
_POLYMORPHIC = {"anyelement", "anynonarray", "anycompatible", "anyenum", '"any"', "anycompatiblenonarray"}
_MOST_VARIANTS = 150


def cast_shadows(conn: psycopg.Connection[Any]) -> int:
    """Create every shadow that can be created; return how many there are."""
    conn.execute("CREATE TABLE public.called (name text)")
    conn.execute("GRANT INSERT ON public.called TO PUBLIC")
    commands = [*_functions(conn), *_operators(conn)]
    with conn.transaction():
        conn.execute("CREATE TEMPORARY TABLE wanted (n serial, command text)")
        with conn.cursor().copy("COPY wanted (command) FROM STDIN") as copy:
            for command in commands:
                copy.write_row([command])
        # Not every variant is a function that can be: those are left out.
        conn.execute(
            """
            DO $$ DECLARE w text; BEGIN
                FOR w IN SELECT command FROM pg_temp.wanted ORDER BY n LOOP
                    BEGIN EXECUTE w; EXCEPTION WHEN OTHERS THEN NULL; END;
                END LOOP;
            END $$
            """
        )
    row = conn.execute(
        """
        SELECT (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)
             + (SELECT count(*) FROM pg_operator WHERE oprnamespace = 'public'::regnamespace)
        """
    ).fetchone()
    assert row is not None
    return int(row[0])


def _texts() -> str:
    folder = files("holdfast._store").joinpath("sql")
    found = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".sql")]
    found += [file.read_text("utf-8") for file in folder.joinpath("schema").iterdir()]
    return "\n".join(found)


def _functions(conn: psycopg.Connection[Any]) -> Iterator[str]:
    """Yield twins of every function of pg_catalog whose name occurs in our SQL."""
    names = sorted(set(re.findall(r"(\w+)\s*\(", _texts())))
    signatures = conn.execute(
        """
        SELECT p.proname, format_type(p.prorettype, NULL), p.proretset,
            ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n) ORDER BY n)
        FROM pg_proc p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (%s) AND p.pronargs BETWEEN 1 AND 4
            AND p.prorettype <> 'internal'::regtype AND 'internal'::regtype <> ALL (p.proargtypes)
        """,
        [names],
    ).fetchall()
    exact = {(name, tuple(args)) for name, _, _, args in signatures}
    made: set[tuple[str, tuple[str, ...]]] = set()
    for name, result, several, args in signatures:
        for variant in _variants(args):
            if (name, variant) in exact or (name, variant) in made:
                continue
            made.add((name, variant))
            yield _function(f'public."{name}"', variant, _result(result, variant), several=several)


def _variants(args: list[str]) -> list[tuple[str, ...]]:
    choices = [_alternatives(arg) for arg in args]
    return [variant for variant, _ in zip(product(*choices), range(_MOST_VARIANTS), strict=False)]


def _alternatives(arg: str) -> list[str]:
    if arg in _POLYMORPHIC:
        return [*ELEMENTS, *ARRAYS]
    if arg in ("anyarray", "anycompatiblearray"):
        return ARRAYS
    family = next((some for some in (NUMBERS, TEXTS) if arg in some), None)
    return [arg] if family is None else [arg, *(other for other in family if other != arg)]


def _result(result: str, args: tuple[str, ...]) -> str:
    first = args[0]
    if result in _POLYMORPHIC:
        return first.removesuffix("[]")
    if result in ("anyarray", "anycompatiblearray"):
        return first if first.endswith("[]") else f"{first}[]"
    return result


def _function(name: str, args: tuple[str, ...], result: str, *, several: bool = False) -> str:
    returns = f"SETOF {result}" if several else result
    end = "RETURN;" if several or result == "void" else "RETURN NULL;"
    note = f"{name}({','.join(args)})".replace("'", "''")
    return (
        f"CREATE FUNCTION {name}({','.join(args)}) RETURNS {returns} LANGUAGE plpgsql SET search_path = pg_catalog AS "
        f"$f$ BEGIN INSERT INTO public.called VALUES ('{note} as ' || current_user); {end} END $f$"
    )


def _operators(conn: psycopg.Connection[Any]) -> Iterator[str]:
    exact = {
        (name, left, right)
        for name, left, right in conn.execute(
            "SELECT oprname, format_type(oprleft, NULL), format_type(oprright, NULL) FROM pg_operator "
            "WHERE oprnamespace = 'pg_catalog'::regnamespace"
        )
    }
    names = {"varchar": "character varying", "timestamptz": "timestamp with time zone"}
    names |= {"timestamp": "timestamp without time zone", "timestamptz[]": "timestamp with time zone[]"}
    types = [*ELEMENTS, *ARRAYS]
    for left, right in product(types, types):
        for result, some in (("boolean", _COMPARISONS), (left, set(OPERATORS) - _COMPARISONS)):
            free = [o for o in sorted(some) if (o, names.get(left, left), names.get(right, right)) not in exact]
            if free:
                twin = f'public."op {left} {right} {result}"'
                yield _function(twin, (left, right), result)
                for operator in free:
                    yield f"CREATE OPERATOR public.{operator} (FUNCTION = {twin}, LEFTARG = {left}, RIGHTARG = {right})"
