"""The next release of the application: a copy whose jobs have another payload."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tenders.tests.fleet import EXAMPLE

if TYPE_CHECKING:
    from pathlib import Path

# The payload of both jobs gets another name for its field, so it has another version, and an upgrade.
_CHANGES = (
    ("    delivery: int\n", "    delivery_id: int\n"),
    ("item.args.delivery", "item.args.delivery_id"),
    ('@app.batch("delivery.dispatch", ', '@app.batch("delivery.dispatch", version=2, '),
    ('@app.batch("delivery.receipt", ', '@app.batch("delivery.receipt", version=2, '),
)
_UPGRADES = """

@dispatch.upgrade(from_version=1)
@receipt.upgrade(from_version=1)
def rename(payload: dict[str, int]) -> dict[str, int]:
    return {"delivery_id": payload["delivery"]}
"""


def next_release(folder: Path) -> Path:
    """Make it in a folder, and return that."""
    shutil.copytree(EXAMPLE / "tenders", folder / "tenders", ignore=shutil.ignore_patterns("tests", "__pycache__"))
    chain = folder / "tenders" / "chain.py"
    text = chain.read_text()
    for old, new in _CHANGES:
        text = text.replace(old, new)
    assert text.count("delivery_id") == 4, "the code has changed: look at _CHANGES"
    chain.write_text(text + _UPGRADES)
    return folder
