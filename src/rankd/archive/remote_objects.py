"""The object store in a bucket: S3 and what speaks its protocol, Google Cloud Storage, Azure.

Credentials come from the environment, as for the providers' own tools. obstore is imported by the first request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankd.archive.objects import StoredObject, check_path, check_prefix, check_range
from rankd.config.masking import masked_url
from rankd.errors import ArchiveRefused, ArchiveUnavailable, RankdError
from rankd.shortening import shorten

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Bucket

CONNECT_S, REQUEST_S = 5.0, 30.0
RETRIES_MAX, RETRY_S_MAX = 3, 20.0  # none is begun after that time
BACKOFF_S, BACKOFF_S_MAX = 0.1, 2.0
_LISTED_AT_ONCE = 1_000
_ANSWER_CHARACTERS_MAX = 300
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
# What a driver's message says; the driver has no classes for these.
_NO_OBJECT = re.compile(r"NoSuchKey|BlobNotFound")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist", re.IGNORECASE)
_NO_CREDENTIALS = re.compile(
    r"169\.254\.169\.254|metadata\.google|InvalidAccessKeyId|SignatureDoesNotMatch|NoUser|UserNotFound"
)
_ERROR = re.compile(r"<Code>(.{1,100}?)</Code>\s*<Message>(.{1,300}?)</Message>", re.DOTALL)
_CLIENT_ERROR = re.compile(r"\b4(?!04|08|09|29)\d\d [A-Z]")  # a status with its reason, but those that pass


class RemoteObjects:
    """Objects of a bucket, or of a folder in it."""

    is_local = False

    def __init__(self, url: str, *, endpoint: str = "", region: str = "") -> None:
        """`url` is s3://bucket/folder, gs://… or az://…; `endpoint` and `region` are those of S3."""
        self._address = url
        self._scheme = url.partition(":")[0]
        self._options: dict[str, str] = {}
        if self._scheme == "s3":
            self._options = {name: value for name, value in (("endpoint", endpoint), ("region", region)) if value}
        self._allows_http = endpoint.startswith("http://")

    @property
    def url(self) -> str:
        """The address."""
        return masked_url(self._address)

    @cached_property
    def _bucket(self) -> Bucket:
        from obstore.store import from_url  # noqa: PLC0415 - only where there is a bucket

        seconds = timedelta(seconds=1)
        options: Any = self._options
        with self._translate_errors("open"):
            return from_url(
                self._address,
                config=options or None,
                client_options={
                    "connect_timeout": CONNECT_S * seconds,
                    "timeout": REQUEST_S * seconds,
                    **({"allow_http": True} if self._allows_http else {}),  # else as the environment says
                },
                retry_config={
                    "max_retries": RETRIES_MAX,
                    "retry_timeout": RETRY_S_MAX * seconds,
                    "backoff": {"init_backoff": BACKOFF_S * seconds, "max_backoff": BACKOFF_S_MAX * seconds, "base": 2},
                },
            )

    def put_new(self, path: str, data: bytes) -> bool:
        """Store an object unless there is one under this path; tell whether it was stored."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415

        with self._translate_errors("write"):
            try:
                self._bucket.put(check_path(path), data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def put_file(self, path: str, file: Path) -> None:
        """Store a file under a path that names its content, in parts when it is large."""
        with self._translate_errors("write"):
            self._bucket.put(check_path(path), file)

    def get(self, path: str) -> bytes | None:
        """Return a whole object; None when there is none."""
        with self._translate_errors("read"):
            try:
                return bytes(self._bucket.get(check_path(path)).bytes())
            except FileNotFoundError as problem:
                _require_answer(problem)
                return None

    def get_range(self, path: str, start: int, end: int) -> bytes | None:
        """Return bytes `start` … `end` (exclusive), fewer where the object ends; None when there is none."""
        check_range(start, end)
        with self._translate_errors("read"):
            try:
                return bytes(self._bucket.get_range(check_path(path), start=start, end=end))
            except FileNotFoundError as problem:
                _require_answer(problem)
                return None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below a folder, or all of them for ""."""
        listing = self._bucket.list(check_prefix(prefix) or None, chunk_size=_LISTED_AT_ONCE)
        while True:
            with self._translate_errors("list"):
                try:
                    objects = next(listing)
                except StopIteration:
                    return
            for each in objects:
                yield StoredObject(each["path"], each["size"], int(each["last_modified"].timestamp() * 1_000))

    def delete(self, path: str) -> None:
        """Delete an object; it is no error when there is none."""
        with self._translate_errors("delete"):
            try:
                self._bucket.delete(check_path(path))
            except FileNotFoundError as problem:
                _require_answer(problem)

    @contextmanager
    def _translate_errors(self, verb: str) -> Iterator[None]:
        """Turn the driver's errors into ours; `verb` is what was tried."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError  # noqa: PLC0415

        try:
            yield
        except RankdError:
            raise
        except (BaseError, OSError, ValueError) as problem:
            text, answer = str(problem), _answer(problem)
            if _NO_CREDENTIALS.search(text):
                raise self._refused(f"no credentials that it knows: set {self._credentials} ({answer})") from problem
            if _NO_BUCKET.search(text):
                raise self._refused("the bucket does not exist; create it, or correct archive.url") from problem
            if isinstance(problem, (PermissionDeniedError, UnauthenticatedError)):
                raise self._refused(
                    f"these credentials may not {verb} there: check {self._credentials} and the rights of the bucket "
                    f"({answer})"
                ) from problem
            if isinstance(problem, ValueError) or _CLIENT_ERROR.search(text):
                raise self._refused(
                    f"it refuses the request: check archive.url, archive.endpoint and archive.region ({answer})"
                ) from problem
            raise ArchiveUnavailable(
                f"the archive {self.url} does not answer; it is tried again ({answer})",
                public_message="the archive does not answer; try again in a moment",
            ) from problem

    @property
    def _credentials(self) -> str:
        return _CREDENTIALS[self._scheme]

    def _refused(self, problem: str) -> ArchiveRefused:
        return ArchiveRefused(f"the archive {self.url}: {problem}", public_message="the archive cannot be used")


def _require_answer(problem: Exception) -> None:
    """Raise a 404 again that does not say that there is no such object: something else has answered."""
    if not _NO_OBJECT.search(str(problem)):
        raise problem


def _answer(problem: Exception) -> str:
    """Return what the server said, or the driver's first line."""
    text = str(problem).strip()
    error = _ERROR.search(text)
    if error is not None:
        return shorten(f"{error[1]}: {error[2]}", _ANSWER_CHARACTERS_MAX)
    return shorten(text.partition("\n")[0] or type(problem).__name__, _ANSWER_CHARACTERS_MAX)
