from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from labs.chaos.breaks import plays
from labs.chaos.breaks.builds import BUILDS, Build
from labs.chaos.breaks.patches import PATCHES
from labs.chaos.breaks.results import read
from labs.chaos.breaks.scene import Stage
from labs.chaos.fleet import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import psycopg

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


async def test_each_mistake_in_sql_can_be_made(conn: psycopg.Connection[Any]) -> None:
    for build in BUILDS:
        with conn.transaction(force_rollback=True):
            build.prepare(conn)


async def test_each_mistake_in_python_can_be_made() -> None:
    code = (
        "import os; from labs.chaos.breaks import apply; from labs.chaos.breaks.patches import PATCHES\n"
        "for name in PATCHES:\n"
        "    if not os.fork(): apply(name); os._exit(0)\n"
        "    assert os.wait()[1] == 0, name"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT)
    assert await process.wait() == 0


@pytest.mark.prove
async def test_a_mistake_that_is_not_made_is_not_caught(stage: Stage) -> None:
    # This play has neither a relay nor a feed.
    (found,) = await stage.play(plays.STUMBLING, "message ids without a time")
    assert found.check == "the mistake was not made"


async def test_the_report_has_all_of_them_caught() -> None:
    results = read()
    assert [(result.build, result.play, result.expected) for result in results] == [
        (build.name, build.play.name, build.caught_by) for build in BUILDS
    ]
    assert all(result.caught and result.sound for result in results)
