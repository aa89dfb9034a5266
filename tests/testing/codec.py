"""A codec that keeps payloads from being read."""

from __future__ import annotations

import json

from holdfast import JsonCodec


class Backwards(JsonCodec):
    def encode(self, value: object, *, kind: str = "") -> str:
        return json.dumps({"sealed": JsonCodec.encode(self, value, kind=kind)[::-1]})

    def plain(self, text: str) -> str:
        sealed: str = json.loads(text)["sealed"]
        return sealed[::-1]
