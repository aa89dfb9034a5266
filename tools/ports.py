"""Ports that are free."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack


def free_port(in_a_row: int = 1) -> int:
    """Return the first of so many free ports.

    They are below those that the kernel hands to outgoing connections, so that a restart finds them free again.
    """
    while True:
        first = random.SystemRandom().randrange(20000, 32000)
        with ExitStack() as probes:
            try:
                for port in range(first, first + in_a_row):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
