"""A codec that cannot encode everything."""

from __future__ import annotations

from holdfast._model.codec import JsonCodec


class Keyless(JsonCodec):
    """Has no key for some values, as one that encrypts may have none for a tenant."""

    def encode(self, value: object, *, kind: str = "") -> str:
        if value == "secret":
            raise LookupError("no key for this tenant")
        return super().encode(value, kind=kind)
