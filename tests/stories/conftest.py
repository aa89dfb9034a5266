from __future__ import annotations

from tests.kit.fixtures import app, ledger

__all__ = ["app", "ledger"]
