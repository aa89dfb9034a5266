"""Objects as files that Arrow can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import obstore
import pyarrow as pa
from obstore.exceptions import PreconditionError

from holdfast._archive.location import ArchiveError

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ObjectStore


class StoredFile(NamedTuple):
    """An object whose size and ETag are known."""

    store: ObjectStore
    name: str
    size: int
    etag: str | None

    def read(self, start: int, end: int) -> bytes:
        """Return a range of its bytes. Raises ArchiveError if the object of this name has another ETag by now."""
        options: GetOptions = {"range": (start, end)}
        if self.etag is not None:
            options["if_match"] = self.etag
        try:
            return bytes(obstore.get(self.store, self.name, options=options).bytes())
        except PreconditionError:
            raise ArchiveError(f"{self.name} was replaced while it was read") from None


def open_file(file: StoredFile) -> pa.NativeFile:
    """Open an object. Every read fetches the range that Arrow asks for, and no more."""
    return pa.PythonFile(ObjectReader(file), mode="r")


class ObjectReader:
    """An object as a file of Python. Arrow reads and closes it, in threads of its own unless a call says otherwise."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._size = file.size
        self._at = 0
        self._held = (0, b"")
        self.closed = False

    def hold(self, start: int, end: int) -> None:
        """Fetch a range with one request. Reads within it are served from memory until another one is held."""
        self._held = (start, self._file.read(start, end))

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        start, held = self._held
        inside = start <= self._at and end <= start + len(held)
        data = held[self._at - start : end - start] if inside else self._file.read(self._at, end)
        self._at = end
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
