"""PDFs in the object store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from obstore import sign_async
from obstore.store import S3Store

# How long a link to a PDF is valid.
LINK = timedelta(minutes=10)


@dataclass(frozen=True)
class Pdf:
    """A PDF that is stored."""

    key: str
    size: int


class Storage:
    """A bucket. Credentials are those of the environment, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""

    def __init__(self, bucket: str, endpoint: str | None) -> None:
        plain = endpoint is not None and endpoint.startswith("http://")
        self._store = S3Store(
            bucket,
            config={} if endpoint is None else {"endpoint": endpoint},
            client_options={"allow_http": plain, "timeout": "30s", "connect_timeout": "5s"},
        )

    async def put(self, key: str, data: bytes) -> Pdf:
        """Write a PDF. One that has this key is replaced, so that writing twice leaves one."""
        await self._store.put_async(key, data, attributes={"Content-Type": "application/pdf"})
        return Pdf(key, len(data))

    async def get(self, key: str) -> bytes:
        return bytes(await (await self._store.get_async(key)).bytes_async())

    async def link(self, key: str) -> str:
        """Return an address from which anyone can download it for ten minutes."""
        return await sign_async(self._store, "GET", key, LINK)


def pdf_key(invoice_id: int, number: str) -> str:
    """Return where the PDF of an invoice is: always the same place."""
    return f"invoices/{invoice_id}/{number}.pdf"
