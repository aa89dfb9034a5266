from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from holdfast._engine.supervisor import Supervisor
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It dies, cannot be started for a while, and then ends well; the other place goes on all the time."""
    program, go = tmp_path / "program", tmp_path / "go"

    def install(text: str) -> None:
        made = tmp_path / "made"
        made.write_text(f"#!/bin/sh\n{text}\n")
        made.chmod(0o755)
        made.rename(program)

    install(f"rm {program}; exit 3")
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    supervisor = Supervisor(lambda place: ["/bin/sh", "-c", wait] if place else [str(program)], 2)
    with caplog.at_level(logging.ERROR, "holdfast"):
        running = asyncio.create_task(supervisor.run())
        try:
            await until(lambda: caplog.text.count("could not be started, No such file") >= 2)
            assert "exit code 3" in caplog.text
            assert not running.done()
            install("exit 0")
        finally:
            go.touch()
        assert await running
    assert not supervisor.refused
