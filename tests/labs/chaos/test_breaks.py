from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from labs.chaos.breaks.builds import BUILDS, Build
from labs.chaos.breaks.patches import PATCHES
from labs.chaos.breaks.results import read
from labs.chaos.breaks.scene import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from labs.chaos.breaks.scene import Play

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with Stage() as stage:
        yield stage


def _plays() -> list[object]:
    quick = {build.play.name for build in BUILDS if build.quick}
    plays = {build.play.name: build.play for build in BUILDS}
    return [
        pytest.param(play, id=name, marks=[] if name in quick else [pytest.mark.prove]) for name, play in plays.items()
    ]


@pytest.mark.nightly(daily=["finish without token"])
@pytest.mark.parametrize(
    "build",
    [pytest.param(build, id=build.name, marks=[] if build.quick else [pytest.mark.prove]) for build in BUILDS],
)
async def test_a_broken_build_is_caught(stage: Stage, build: Build) -> None:
    found = await stage.play(build.play, build.name, build.prepare)
    assert build.caught_by in {violation.check for violation in found}, found


@pytest.mark.nightly(daily=["a run outlives its lease and completes"])
@pytest.mark.parametrize("play", _plays())
async def test_of_a_sound_build_the_oracle_says_nothing(stage: Stage, play: Play) -> None:
    assert await stage.play(play) == []


async def test_each_build_is_broken_once() -> None:
    assert len({build.name for build in BUILDS}) == len(BUILDS)
    for build in BUILDS:
        assert bool(build.changes) != (build.name in PATCHES), build.name


async def test_the_report_has_all_of_them_caught() -> None:
    results = read()
    assert [(result.build, result.play, result.expected) for result in results] == [
        (build.name, build.play.name, build.caught_by) for build in BUILDS
    ]
    assert all(result.caught and result.sound for result in results)
