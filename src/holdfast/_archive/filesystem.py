"""Objects as files, and the bucket as a file system, that Arrow can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import obstore
import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore.store import ObjectStore


def open_file(store: ObjectStore, name: str) -> pa.NativeFile:
    """Open an object. Every read fetches the range that Arrow asks for, and no more."""
    return pa.PythonFile(ObjectReader(store, name), mode="r")


class ObjectReader:
    """An object as a file of Python. Arrow reads and closes it, in threads of its own unless a call says otherwise."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._name = name
        self._size = obstore.head(store, name)["size"]
        self._at = 0
        self._held = (0, b"")
        self.closed = False

    def hold(self, start: int, end: int) -> None:
        """Fetch a range with one request. Reads within it are served from memory until another one is held."""
        self._held = (start, self._fetch(start, end))

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        start, held = self._held
        inside = start <= self._at and end <= start + len(held)
        data = held[self._at - start : end - start] if inside else self._fetch(self._at, end)
        self._at = end
        return data

    def _fetch(self, start: int, end: int) -> bytes:
        return bytes(obstore.get_range(self._store, self._name, start=start, end=end))

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


class BucketFiles(FileSystemHandler):  # type: ignore[misc]  # Arrow has no types
    """Opens objects for reading by their names. Nothing can be listed or written."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def get_type_name(self) -> str:
        return "holdfast"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        return [self._info(path) for path in paths]

    def open_input_file(self, path: str) -> pa.NativeFile:
        return open_file(self._store, path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def _info(self, path: str) -> FileInfo:
        try:
            return FileInfo(path, FileType.File, size=obstore.head(self._store, path)["size"])
        except FileNotFoundError:
            return FileInfo(path, FileType.NotFound)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("the archive is read by the names in its records")

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        self._refuse(selector)

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
