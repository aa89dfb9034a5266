"""Where the archive is: a bucket of an object store or a folder, and the names of the objects in it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from holdfast._distribution import needed
from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from obstore.store import ObjectStore

    from holdfast._model.settings import Settings

_SCHEMES = ("s3", "gs", "az", "file")
# An object store that does not answer is given up after this time, and tried again in the next tick.
_PATIENCE = timedelta(seconds=30)
_RETRIES = 5
# In an error of the object store: the code of its answer, whether it refused the login, and where a request went.
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_REFUSED = re.compile(r"status code: 40[13] ")
_HOST = re.compile(r"Error performing [A-Z]+ (https?://[^/\s]+)")
# Where a machine of a cloud asks for its own credentials, once it found none in the environment.
_METADATA = ("http://169.254.", "http://metadata.google")
_ERROR_LIMIT = 300


class ArchiveError(HoldfastError):
    """The archive cannot be read or written, or does not hold what its record says.

    Cure: `holdfast archive status` shows the state of every file, and `holdfast archive verify` reads it back.
    """


class BucketUnavailable(ArchiveError):  # noqa: N818 - names describe what happened
    """The bucket does not answer, does not exist, or refused the credentials, so its files were not read.

    Cure: The message names the setting to correct. `holdfast check` asks the bucket again.
    """


@dataclass(frozen=True, slots=True)
class Location:
    """The bucket in the settings. Credentials come from the provider's own variables, such as AWS_ACCESS_KEY_ID."""

    bucket: str
    """A name, a name and a folder, or an address: `s3://`, `gs://`, `az://` or `file://`."""
    region: str | None = None
    endpoint: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Location | None:
        """Return the location in the settings; None when no bucket is set."""
        if not settings.archive_bucket:
            return None
        return cls(settings.archive_bucket, settings.archive_region, settings.archive_endpoint)

    def __post_init__(self) -> None:
        scheme = urlsplit(self.address).scheme
        if scheme not in _SCHEMES:
            known = ", ".join(f"{name}://" for name in _SCHEMES)
            raise ArchiveError(f"HOLDFAST_ARCHIVE_BUCKET: {scheme}:// is not known: use a bucket's name, or {known}")

    @property
    def address(self) -> str:
        """The bucket as an address, for people and for the object store."""
        return self.bucket if "://" in self.bucket else f"s3://{self.bucket}"

    def open(self, *, timeout: timedelta | None = None, create: bool = False) -> ObjectStore:
        """Return the object store. Nothing is requested yet.

        `timeout`: of each request, which is then not repeated. Default: 60 seconds, and failed requests are repeated.
        `create`: make a folder that does not exist. Default: raise BucketUnavailable, since a disk may not be mounted.
        """
        with needed("the archive", "archive"):
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        options: dict[str, Any] = {
            "client_options": {"timeout": "60s", "connect_timeout": "5s"},
            "retry_config": {"max_retries": _RETRIES, "retry_timeout": _PATIENCE},
        }
        if self.endpoint:
            options["endpoint"] = self.endpoint
            options["client_options"]["allow_http"] = self.endpoint.startswith("http://")
        if timeout is not None:
            options["client_options"] |= {"timeout": timeout, "connect_timeout": timeout}
            options["retry_config"] = {"max_retries": 0, "retry_timeout": timeout}
        if self.region:
            options["region"] = self.region
        if self.address.startswith("file:"):
            folder = Path(url2pathname(urlsplit(self.address).path))
            if not create and not folder.is_dir():
                raise BucketUnavailable(
                    f"the folder {folder} does not exist: correct HOLDFAST_ARCHIVE_BUCKET, or mount it"
                )
            options = {"mkdir": create, "automatic_cleanup": False}
        try:
            return from_url(self.address, **options)
        except (BaseError, ValueError, TypeError) as exc:
            raise ArchiveError(f"HOLDFAST_ARCHIVE_BUCKET: {self.address} cannot be opened: {exc}") from exc


@contextmanager
def translated() -> Iterator[None]:
    """Raise ArchiveError in place of an error of the object store, whose text has pages of details.

    It is BucketUnavailable unless an object is missing from a bucket that answers.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except TimeoutError:  # of the caller
        raise
    except (BaseError, OSError) as exc:
        # Arrow raises OSError too, for a file that it cannot read.
        unavailable = isinstance(exc, BaseError | PermissionError | ConnectionError) and not is_missing(exc)
        error = BucketUnavailable if unavailable or is_no_bucket(exc) else ArchiveError
        raise error(_explained(exc)) from exc


def is_missing(exc: Exception) -> bool:
    """Return whether an object is not in a bucket that answers."""
    from obstore.exceptions import NotFoundError

    return isinstance(exc, FileNotFoundError | NotFoundError) and not is_no_bucket(exc)


def is_no_bucket(exc: Exception) -> bool:
    return "<Code>NoSuchBucket</Code>" in str(exc)


def _explained(exc: Exception) -> str:
    """Return what went wrong in one line, and what to do about it."""
    text = str(exc).partition("\n\nDebug source")[0]
    code = found[1] if (found := _CODE.search(text)) else ""
    host = found[1] if (found := _HOST.search(text)) else "the address"
    if host.startswith(_METADATA):
        return (
            "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or your provider's"
        )
    if _REFUSED.search(text):
        cure = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that they may read and write this bucket"
        return f"the object store refused the credentials ({code or 'AccessDenied'}): {cure}"
    if code == "NoSuchBucket":
        return "the bucket does not exist: create it, or correct HOLDFAST_ARCHIVE_BUCKET"
    if code == "InvalidBucketName":
        return "the bucket's name is not valid: correct HOLDFAST_ARCHIVE_BUCKET"
    if "HTTP error" in text:
        cure = "check HOLDFAST_ARCHIVE_ENDPOINT, HOLDFAST_ARCHIVE_REGION and the network"
        return f"the object store at {host} does not answer: {cure}"
    line = text.partition("\n")[0].removeprefix("Generic S3 error: ").strip()
    return f"{line[:_ERROR_LIMIT]}{f' ({code})' if code else ''}"


def object_name(identity: str, source: str, starts_on: date, part: int, *, monthly: bool) -> str:
    """Return the name of a file. The same period has the same name each time, so that it is never stored twice.

    `identity`: of the schema, since two databases may share a bucket.

    >>> from datetime import date
    >>> object_name("c0ffee", "job_history", date(2026, 3, 1), 1, monthly=False)
    'c0ffee/job_history/day=2026-03-01/1.parquet'
    >>> object_name("c0ffee", "public.tenders", date(2026, 3, 1), 2, monthly=True)
    'c0ffee/public.tenders/month=2026-03/2.parquet'
    """
    period = f"month={starts_on:%Y-%m}" if monthly else f"day={starts_on:%Y-%m-%d}"
    return f"{identity}/{source}/{period}/{part}.parquet"


def manifest_name(file: str) -> str:
    """Return the name of the manifest beside a file."""
    return str(PurePosixPath(file).with_suffix(".json"))
