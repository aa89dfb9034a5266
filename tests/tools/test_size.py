from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tools.size import measure, names, table

if TYPE_CHECKING:
    from pathlib import Path

ENGINE = """
    class Large:
        def __init__(self, a, b, c, d, e, f, g, h, *, on_end: Callable[[], None] | None) -> None:
            pass


    class Row(NamedTuple):
        kind: str
        queue: str
        status: str
        attempt: int
        priority: int
        created_at: datetime


    class Story(Row):
        payload: str
"""


def checkout(folder: Path, engine: str) -> Path:
    for name, text in {
        "src/holdfast/engine.py": textwrap.dedent(engine).lstrip(),
        "src/holdfast/job.sql": "SELECT 1;\nSELECT 2;\n",
        "tests/test_engine.py": "def test_it() -> None:\n    pass\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_what_is_counted(tmp_path: Path) -> None:
    size = measure(checkout(tmp_path, ENGINE))
    assert list(size.figures().values()) == [len(textwrap.dedent(ENGINE).strip().splitlines()), 2, 2, 3, 1, 9, 1, 1, 1]
    assert names(size).splitlines() == [
        "9 arguments: engine.py Large",
        "callables: engine.py Large: on_end",
        "shape of a job: engine.py Row",
    ]


def test_two_checkouts_stand_beside_each_other(tmp_path: Path) -> None:
    before = measure(checkout(tmp_path / "before", ENGINE))
    now = measure(checkout(tmp_path / "now", "class Small:\n    pass\n"))
    lines = table(now, before).splitlines()
    assert "| classes | 3 | 1 | -66.7 % |" in lines
    assert "| lines of `src`, SQL | 2 | 2 | +0.0 % |" in lines
    assert "| shapes of one job | 1 | 0 | -100.0 % |" in lines
