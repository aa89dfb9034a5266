"""Which tests run in one process, one after the other: those of a file. Long ones come first.

Otherwise, one may be under way at the end while the other processes have nothing to do. The order of all others stays
as it is, which is random.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

# Files with tests that take ten seconds or more, or whose fixtures do, and folders whose tests share such fixtures. The
# longest first.
LONG = (
    "tests/labs/chaos/test_lab.py",
    "examples/invoicing/tests",
    "tests/docs/test_pages.py",
    "tests/docs/test_invoicing.py",
    "tests/cli/test_demo.py",
    "tests/cli/test_dev.py",
    "examples/tenders/tenders/tests/test_faults.py",
    "tests/docs/test_tenders.py",
    "examples/tenders/tenders/tests/test_moves.py",
    "tests/labs/chaos/test_model.py",
    "tests/engine/test_exact.py",
    "tests/relay/sinks/test_rabbitmq.py",
    "tests/contrib/test_sentry.py",
    "tests/tools/test_extras.py",
    "tests/ops/test_schema.py",
    "tests/labs/chaos/test_notification.py",
    "tests/labs/bench/test_claim.py",
    "tests/typing/test_typing.py",
    "tests/test_exported_symbols.py",
    "tests/tools/test_witness.py",
)


def place(item: pytest.Item) -> str:
    """Return the file of a test, its folder if that is in LONG, or the name in its marker `group`."""
    marker = item.get_closest_marker("group")
    if marker is not None:
        return str(marker.args[0])
    file = item.nodeid.partition("::")[0]
    folder = file.rpartition("/")[0]
    return folder if folder in LONG else file


def groups(places: Iterable[str]) -> list[list[int]]:
    """Return the numbers of the tests by place, in the order in which processes should begin with them."""
    found: dict[str, list[int]] = {name: [] for name in LONG}
    for number, name in enumerate(places):
        found.setdefault(name, []).append(number)
    return [numbers for numbers in found.values() if numbers]
