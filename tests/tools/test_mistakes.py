from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from tools import mistakes

if TYPE_CHECKING:
    from holdfast import HoldfastError


def test_the_page_is_made_from_the_classes() -> None:
    assert mistakes.PAGE.read_text() == mistakes.page(), "run python -m tools.mistakes --write"


@pytest.mark.parametrize("error", mistakes.error_classes(), ids=lambda error: error.__name__)
def test_every_error_class_has_a_meaning_and_a_cure(error: type[HoldfastError]) -> None:
    meaning, _, cure = inspect.cleandoc(error.__doc__ or "").partition("\n\nCure: ")
    assert meaning.endswith(".")
    assert cure.endswith(".")
    assert f"{error.__name__}` |" in mistakes.page()
