from __future__ import annotations

import pytest
from starlette.requests import Request

from holdfast import Holdfast
from holdfast._model.errors import HoldfastError
from holdfast.contrib.starlette import holdfast_of


def test_a_request_leads_to_the_application() -> None:
    app = Holdfast()
    assert holdfast_of(Request({"type": "http", "state": {"holdfast": app}})) is app


def test_without_the_lifespan_it_says_what_is_missing() -> None:
    with pytest.raises(HoldfastError, match=r"lifespan=lifespan\(app\)"):
        holdfast_of(Request({"type": "http"}))
