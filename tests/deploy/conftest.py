from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.deploy import image as images

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.image import Image


@pytest.fixture(scope="session")
def image(shared_folder: Path) -> Image:
    """The image of the container file, as a folder."""
    return images.provide(shared_folder / "image")
