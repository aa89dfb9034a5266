from __future__ import annotations

import os

import pytest

from labs.chaos.faults import disk
from labs.chaos.ground import DISK
from tests.labs.chaos.stage import rows, stage, strike


@pytest.mark.prove
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_disk_that_fills(seed: int) -> None:
    async with stage(rate=1500) as site:
        if not site.ground.primary.mounted:
            pytest.skip("this machine lets us mount no volume")
        await strike(site, disk.FAULTS[0], seed)


@pytest.mark.prove
async def test_no_space_at_all_and_a_machine_that_allows_no_mount(capsys: pytest.CaptureFixture[str]) -> None:
    async with stage() as site:
        node = site.ground.primary
        if not node.mounted:
            pytest.skip("this machine lets us mount no volume")
        disk.leave(node, 0)
        found = os.statvfs(node.folder)
        assert found.f_bavail * found.f_frsize < 64_000
        disk.resize(node, DISK)
        await disk.answers(node)
        assert await rows(site, "SELECT 1") == [(1,)]
        node.mounted = False
        await strike(site, disk.FAULTS[0])
        node.mounted = True
        assert "left out: the disk cannot be filled" in capsys.readouterr().err
