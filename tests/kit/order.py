"""Long tests run first: otherwise, one may be under way at the end while the other processes have nothing to do.

The order of all others stays as it is, which is random.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        return  # one process, which takes as long in any order

    def place(item: pytest.Item) -> str:
        file = item.nodeid.partition("::")[0]
        folder = file.rpartition("/")[0]
        return folder if folder in LONG else file

    items[:] = long_first(items, place, LONG, processes=worker["workercount"])


def long_first(items: Iterable[T], place: Callable[[T], str], long: tuple[str, ...], *, processes: int) -> list[T]:
    """Return the items in such an order that each process begins with its share of the long files and folders.

    At first, each process gets a part of the list, and the parts are equal. Files and folders are dealt as a whole,
    since their tests share fixtures.
    """
    items = list(items)
    places: dict[str, list[T]] = {name: [] for name in long}
    others = iter([item for item in items if place(item) not in places])
    for item in items:
        if place(item) in places:
            places[place(item)].append(item)
    found = [those for those in places.values() if those]
    ordered: list[T] = []
    for number in range(processes):
        ordered += (item for those in found[number::processes] for item in those)
        end = len(items) * (number + 1) // processes
        ordered += islice(others, max(0, end - len(ordered)))
    return ordered + list(others)
