"""Files of the archive, opened only if they are what their record or their manifest says.

A writer of the bucket can replace a file. None of it is parsed before its size and its SHA-256, or the ETag that the
store gave when it was written, are those of the record. Every later read names that ETag, so that it reads no other.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import obstore
import psycopg
from obstore.exceptions import BaseError

from holdfast._archive.filesystem import StoredFile
from holdfast._archive.location import ArchiveError, is_missing
from holdfast._archive.manifest import LONGEST, Manifest
from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore.store import ObjectStore

    from holdfast._store.archive import Export

# Bytes of a request: it has a time limit, and a file may be large.
_PIECE = 8 * 1024 * 1024


def read_manifest(store: ObjectStore, name: str) -> Manifest:
    """Return the manifest of this name. Raises ArchiveError if it is missing, or is none that this version can read."""
    if (manifest := find_manifest(store, name)) is None:
        raise ArchiveError(f"{name} is not in the bucket")
    return manifest


def find_manifest(store: ObjectStore, name: str) -> Manifest | None:
    """Return the manifest of this name; None if it is missing. See `read_manifest`."""
    try:
        found = obstore.get(store, name)
    except FileNotFoundError as exc:
        if not is_missing(exc):
            raise
        return None
    except ValueError as exc:
        raise ArchiveError(f"{name!r:.200} is no name of an object") from exc
    if (size := found.meta["size"]) > LONGEST:
        raise ArchiveError(f"{name} is not a manifest that this version can read: it has {size:,} bytes")
    return Manifest.parse(bytes(found.bytes()), name=name)


def check(store: ObjectStore, file: Export | Manifest) -> StoredFile:
    """Read a whole file, and return it if its size and checksum are as recorded. Raises ArchiveError if not."""
    return _check(_find(store, file), file)


def check_quickly(store: ObjectStore, file: Export) -> StoredFile:
    """Return a file if its size and ETag are as recorded. Raises ArchiveError if its content is not.

    The whole file is read only if its ETag differs, as after the files were copied, or was not recorded.
    """
    found = _find(store, file)
    return found if file.etag and found.etag == file.etag else _check(found, file)


@contextmanager
def downloaded(store: ObjectStore, file: Export | Manifest) -> Iterator[IO[bytes]]:
    """Yield a local copy of a file if it is as recorded: the bytes that are parsed are those that were compared."""
    with tempfile.TemporaryFile(prefix="holdfast-") as copy:
        _check(_find(store, file), file, copy.write)
        copy.seek(0)
        yield copy


@contextmanager
def parsing(name: str) -> Iterator[None]:
    """Raise ArchiveError in place of any error that the content of a file makes Arrow raise."""
    try:
        yield
    except (HoldfastError, BaseError, psycopg.Error):
        raise
    except Exception as exc:
        reason = str(exc).partition("\n")[0]
        raise ArchiveError(f"{name} cannot be read: {type(exc).__name__}: {reason:.200}") from exc


def _find(store: ObjectStore, file: Export | Manifest) -> StoredFile:
    """Return a file if its size is as recorded."""
    name = str(file.object)
    try:
        found = obstore.head(store, name)
    except FileNotFoundError as exc:
        if not is_missing(exc):
            raise
        raise ArchiveError(f"{name} is not in the bucket") from None
    if found["size"] != file.bytes:
        raise ArchiveError(f"{name} has {found['size']:,} bytes, and its {_source(file)} says {file.bytes or 0:,}")
    return StoredFile(store, name, found["size"], found.get("e_tag"))


def _check(found: StoredFile, file: Export | Manifest, on_piece: Callable[[bytes], Any] | None = None) -> StoredFile:
    digest = hashlib.sha256()
    for start in range(0, found.size, _PIECE):
        piece = found.read(start, min(found.size, start + _PIECE))
        digest.update(piece)
        if on_piece is not None:
            on_piece(piece)
    if digest.hexdigest() != file.checksum:
        raise ArchiveError(f"{found.name} has another checksum than its {_source(file)} says")
    return found


def _source(file: Export | Manifest) -> str:
    return "manifest" if isinstance(file, Manifest) else "record"
