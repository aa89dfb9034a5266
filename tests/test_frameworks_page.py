"""The page on frameworks shows what the sample sites do."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "how-to" / "frameworks.md"


def test_every_block_of_python_stands_in_a_sample_site() -> None:
    names = ("kit/django_config.py", "contrib/book/tasks.py", "contrib/test_django_tasks.py")
    tests = [ROOT / "tests" / name for name in names]
    sources = [*(ROOT / "examples").rglob("*.py"), ROOT / "tests" / "contrib" / "test_alembic.py", *tests]
    known = [{line.strip() for line in source.read_text().splitlines()} for source in sources]
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 11
    for block in blocks:
        lines = {line.strip() for line in block.splitlines()}
        assert any(lines <= site for site in known), block


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
