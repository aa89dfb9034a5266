"""A comparison runs each of two checkouts by the names that it has."""

from labs.bench.compare import TURNS


def test_a_turn_uses_names_that_exist() -> None:
    imports = [line for line in TURNS.splitlines() if line.startswith(("import ", "from "))]
    assert len(imports) > 5
    exec("\n".join(imports), {})  # noqa: S102 - our own text
