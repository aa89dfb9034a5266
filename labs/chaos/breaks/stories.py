"""Plays with stories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labs.chaos import application
from labs.chaos.breaks.scene import Play
from labs.chaos.producer import Promised

if TYPE_CHECKING:
    from labs.chaos.breaks.scene import Scene


async def pauses(scene: Scene) -> None:
    """Let stories be suspended once."""
    await scene.promise(*[Promised(application.story.new(), "story") for _ in range(12)])


PAUSES = Play("stories are suspended", pauses, well=True, patience=12)
