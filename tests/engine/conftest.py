from __future__ import annotations

from tests.kit.fixtures import app, bouncer, ledger, own_server

__all__ = ["app", "bouncer", "ledger", "own_server"]
