from __future__ import annotations

from tests.kit.archive import bucket, history, location, object_store, tenders

__all__ = ["bucket", "history", "location", "object_store", "tenders"]
