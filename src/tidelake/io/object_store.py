"""Amazon S3, Google Cloud Storage and Azure Blob Storage as storage, through `obstore`.

Publishing is a conditional put ("create"): the store itself decides the race. It cannot decide what happened if a reply
is lost: a client that repeats a put whose first reply was lost gets the error that the object exists, which is its own
object. So puts that publish are retried here and not in the library, every refusal is settled by reading the object
back and comparing bytes, and if doubt remains, the outcome is `Unknown`.

An object appears complete or not at all, and is durable when the put returns; there is nothing to sync. Folders are
prefixes: they exist while there is an object below them.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidelake.errors import InvalidInputError, StorageError, TidelakeError, UnsupportedError
from tidelake.io import aws
from tidelake.io.clock import Clock, SystemClock
from tidelake.io.fileio import (
    BufferedOutput,
    Created,
    Exists,
    FileStatus,
    InputFile,
    Outcome,
    OutputFile,
    RangeFile,
    Unknown,
    check_move,
    check_range,
    file_path,
    join,
    normalize,
    not_found,
    taken,
    too_large,
    truncated,
)
from tidelake.io.ids import Ids, SystemIds
from tidelake.io.retry import RetryOptions, delays
from tidelake.io.secrets import Secret, environment_secrets, redact, reveal, scrub, wrap

SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""The URL schemes of object stores, and the store of each."""

FOLDER_MARKER = ".folder"
"""The empty object that keeps an otherwise empty folder visible."""

PUT_BYTES_MAX = 32 << 20
"""Larger new files are uploaded in parts, after checking that the name is free."""

PART_BYTES = 16 << 20
"""Size of a part of an object that is written piece by piece."""

_DELETE_BATCH = 1_000
_PUBLISH_RETRY = RetryOptions(delay_min_ms=50, delay_max_ms=1_000, tries_min=1, tries_max=4)
_STATUS = re.compile(r"status code: (\d{3})")
_METADATA = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "fd00:ec2::254")
"""Hosts that a cloud machine asks for the credentials of its role; a store does so if it has no others."""
_CREDENTIALS = {
    "s3": "give access_key_id and secret_access_key as storage options, or set AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with boto3 installed; skip_signature=True reads a public bucket",
    "gs": "give service_account as a storage option, or set GOOGLE_APPLICATION_CREDENTIALS; skip_signature=True reads a"
    " public bucket",
    "az": "give account_key or sas_key as a storage option, or set AZURE_STORAGE_ACCOUNT_KEY; skip_signature=True reads"
    " a public container",
}
_NO_CONDITION = (
    "use a store that has conditional puts (If-None-Match), and leave its storage option conditional_put as it is;"
    " unsafe.commit does not help where the store refuses them"
)
_CLIENT_KEYS = frozenset({"allow_http", "allow_invalid_certificates", "timeout", "connect_timeout", "read_timeout"})
_OPTION_PREFIX = re.compile(r"^(fs\.)?(s3a?|gs|gcs|azure|abfs)[._]|^fs\.")
# Option names of Paimon, Hadoop and command-line tools, and the store's own name of each.
_ALIASES = {
    "s3": {
        "access_key": "access_key_id",
        "secret_key": "secret_access_key",
        "session_token": "session_token",
        "token": "session_token",
        "endpoint_url": "endpoint",
        "endpoint_region": "region",
    },
    "gs": {"token": "bearer_token"},
    "az": {"account": "account_name", "key": "account_key", "sas_token": "sas_key"},
}


@dataclass(frozen=True, slots=True)
class _Bucket:
    """What all FileIOs of one opened bucket share. `once` never retries a request, `store` retries safe ones."""

    url: str
    store: Any
    once: Any
    exceptions: Any
    secrets: tuple[Secret, ...]
    clock: Clock
    ids: Ids


class ObjectStoreFileIO:
    """A `FileIO` on a bucket or container, or a prefix of one."""

    def __init__(
        self,
        scheme: str,
        bucket: str,
        prefix: str = "",
        *,
        storage: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        """Open a bucket without sending a request.

        Raises:
            InvalidInputError: the library is not installed, or an option is not known to the store.
        """
        kind = SCHEMES[scheme]
        self._options = options = wrap(storage or {})
        self._scheme = scheme
        self._bucket_name = bucket
        secrets = (*(value for value in options.values() if isinstance(value, Secret)), *environment_secrets())
        store, once, exceptions = _open_stores(kind, bucket, options, secrets)
        self._bind(
            normalize(prefix),
            _Bucket(
                f"{scheme}://{bucket}", store, once, exceptions, secrets, clock or SystemClock(), ids or SystemIds()
            ),
        )

    def _bind(self, prefix: str, bucket: _Bucket) -> None:
        self._prefix = prefix
        self._bucket = bucket

    @property
    def root(self) -> str:
        """The location as `scheme://bucket/prefix`."""
        return join(self._bucket.url, self._prefix)

    @property
    def is_synchronous(self) -> bool:
        """False: a request may reach the store after its caller has given up."""
        return False

    @property
    def storage_options(self) -> dict[str, object]:
        """The options it was opened with; credentials among them are wrapped."""
        return dict(self._options)

    def __repr__(self) -> str:
        # A debugger may call this after the constructor failed.
        made = hasattr(self, "_bucket")
        return f"ObjectStoreFileIO({self.root if made else '…'!r}, {redact(getattr(self, '_options', {}))!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Credentials are never pickled: the other process uses those of its own environment.
        plain = {key: value for key, value in self._options.items() if not isinstance(value, Secret)}
        return _reopen, (self._scheme, self._bucket_name, self._prefix, plain)

    # -- reading

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Read the whole object.

        Raises:
            NotFoundError: the object does not exist.
            FormatError: it is larger than `limit`.
            StorageError: the store failed.
        """
        try:
            found = self._bucket.store.get(self._key(path))
            size = found.meta["size"]
            if limit is not None and size > limit:
                raise too_large(self._display_path(path), size, limit)
            return bytes(found.bytes())
        except self._errors as error:
            raise self._storage_error(error, "object could not be read", path) from None

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read exactly `length` bytes from `start`.

        Raises:
            NotFoundError: the object does not exist.
            FormatError: the object ends before that.
            StorageError: the store failed.
        """
        check_range(start, length)
        if length == 0:
            self.status(path)
            return b""
        try:
            data = bytes(self._bucket.store.get_range(self._key(path), start=start, length=length))
        except self._errors as error:
            if _status_of(error) == 416:
                raise truncated(self._display_path(path), start, length, self.status(path).size) from None
            raise self._storage_error(error, "object could not be read", path) from None
        if len(data) != length:
            raise truncated(self._display_path(path), start, length, start + len(data))
        return data

    def open_input(self, path: str) -> InputFile:
        """Open the object for random access; each read is one request.

        Raises:
            NotFoundError: the object does not exist.
            StorageError: the store failed.
        """
        size = self._head(path)["size"]
        return RangeFile(size, lambda start, length: self.read_range(path, start, length))

    def exists(self, path: str, *, folder: bool = True) -> bool:
        """Return whether an object has this name, or with `folder` whether any object is below it.

        Raises:
            StorageError: the store failed.
        """
        return self._find(path, folder=folder) is not None

    def status(self, path: str) -> FileStatus:
        """Return size, time and kind of an object or prefix.

        Raises:
            NotFoundError: neither exists.
            StorageError: the store failed.
        """
        found = self._find(path, folder=True)
        if found is None:
            raise not_found(self._display_path(path))
        return found

    def list(self, path: str) -> builtins.list[FileStatus]:
        """Return the objects and prefixes directly below, sorted by name.

        Raises:
            StorageError: the store failed.
        """
        key = join(self._prefix, normalize(path))
        try:
            found = self._bucket.store.list_with_delimiter(key or None)
        except self._errors as error:
            raise self._storage_error(error, "folder could not be listed", path) from None
        start = len(key) + 1 if key else 0
        folders = {name[start:].rstrip("/") for name in found["common_prefixes"]}
        # Some tools create an object with the name of the folder as a marker; it is not a child of the folder.
        children = [
            FileStatus(join(path, meta["path"][start:]), meta["size"], _millis(meta), is_dir=False)
            for meta in found["objects"]
            if len(meta["path"]) > start and meta["path"][start:] not in folders
        ]
        children += [FileStatus(join(path, name), 0, 0, is_dir=True) for name in folders if name]
        return sorted(children, key=lambda child: child.name.encode())

    # -- writing

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002 - a put is durable
        """Write a new object, whose name no other writer uses.

        Raises:
            StorageError: the store failed, or the name is taken.
        """
        if len(data) > PUT_BYTES_MAX:
            if self.exists(path, folder=False):
                raise taken(self._display_path(path))
            self.overwrite(path, data)
            return
        match self.create_exclusive(path, data):
            case Exists():
                raise taken(self._display_path(path))
            case Unknown(cause):
                raise StorageError(
                    "reply to a write was lost",
                    path=self._display_path(path),
                    reason=_reason(cause, self._bucket.secrets),
                    hint="the object may exist, but nothing refers to it: write again under a new name",
                ) from None

    def open_output(self, path: str, *, durable: bool = True) -> OutputFile:  # noqa: ARG002 - a put is durable
        """Write a new object piece by piece; a large one is uploaded in parts and appears when it is closed.

        Raises:
            StorageError: the store failed, or the name is taken.
        """
        if self.exists(path, folder=False):
            raise taken(self._display_path(path))
        return _Upload(self, path).output

    def overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002 - a put is durable
        """Create or replace the object.

        Raises:
            StorageError: the store failed.
        """
        try:
            self._bucket.store.put(self._key(path), data)
        except self._errors as error:
            raise self._storage_error(error, "object could not be written", path, writing=True) from None

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        """Publish the object unless the name is taken.

        Raises:
            StorageError: the store failed, and it is certain that nothing was written.
        """
        key = self._key(path)
        doubt: BaseException | None = None
        failure: BaseException | None = None
        waits = delays(_PUBLISH_RETRY, self._bucket.ids.random)
        while True:
            try:
                self._bucket.once.put(key, data, mode="create", use_multipart=False)
                return Created()
            except self._errors as error:
                failure = error
            if self._is_conflict(failure) or not _is_certain(failure):
                settled = self._settle(key, data)
                if settled is not None:
                    return settled
            if not _was_not_sent(failure):
                if _is_certain(failure) and not self._is_conflict(failure):
                    break
                doubt = failure
            wait = next(waits, None)
            if wait is None:
                break
            self._bucket.clock.sleep(wait)
        if doubt is not None:
            return Unknown(StorageError("reply to a publish was lost", reason=_reason(doubt, self._bucket.secrets)))
        raise self._storage_error(failure, "object could not be published", path, writing=True) from None

    def make_dir(self, path: str) -> None:
        """Make sure that the folder appears in listings, by an empty object in it.

        Raises:
            StorageError: the store failed.
        """
        if normalize(path) and not self.exists(path):
            self.overwrite(join(path, FOLDER_MARKER), b"")

    def delete(self, path: str) -> None:
        """Delete an object; do nothing if it does not exist.

        Raises:
            StorageError: the store failed.
        """
        self._delete_keys([self._key(path)], path)

    def delete_dir(self, path: str) -> None:
        """Delete all objects below the prefix, if there are any.

        Raises:
            InvalidInputError: the path is the root.
            StorageError: the store failed.
        """
        key = self._key(path)
        try:
            keys = [meta["path"] for batch in self._bucket.store.list(key, chunk_size=_DELETE_BATCH) for meta in batch]
        except self._errors as error:
            raise self._storage_error(error, "folder could not be listed", path) from None
        for start in range(0, len(keys), _DELETE_BATCH):
            self._delete_keys(keys[start : start + _DELETE_BATCH], path)

    def rename_dir(self, source: str, target: str) -> None:
        """Refuse: an object store copies and deletes objects one by one, and a commit in between would be lost.

        Raises:
            UnsupportedError: always (`rename-not-atomic`).
            InvalidInputError: one of the two is the root, or one is inside the other.
        """
        check_move(source, target)
        raise UnsupportedError(
            "object store cannot move a folder in one step",
            code="rename-not-atomic",
            source=self._display_path(source),
            target=self._display_path(target),
            hint="write the rows into a new table, and drop the old one when nothing uses it any more",
        )

    def delete_empty_dir(self, path: str) -> bool:
        """Return whether the folder is empty: a prefix without objects does not exist, so nothing has to be deleted."""
        return not self.exists(file_path(path))

    def sync(self, paths: Sequence[str]) -> None:
        """Do nothing: a put is durable when it returns."""

    def sub(self, path: str) -> ObjectStoreFileIO:
        """Return the same bucket with a prefix below as its root."""
        below = ObjectStoreFileIO.__new__(ObjectStoreFileIO)
        below._options = self._options
        below._scheme = self._scheme
        below._bucket_name = self._bucket_name
        below._bind(join(self._prefix, normalize(path)), self._bucket)
        return below

    def close(self) -> None:
        """Connections close with the last FileIO of the bucket."""

    @property
    def _errors(self) -> tuple[type[BaseException], ...]:
        # Besides its own exceptions the library raises built-in ones for missing objects, invalid arguments and
        # operations that a store does not support.
        return (self._bucket.exceptions.BaseError, OSError, ValueError, NotImplementedError)

    def _key(self, path: str) -> str:
        return join(self._prefix, file_path(path))

    def _head(self, path: str) -> Any:
        try:
            return self._bucket.store.head(self._key(path))
        except self._errors as error:
            raise self._storage_error(error, "object could not be looked up", path) from None

    def _find(self, path: str, *, folder: bool) -> FileStatus | None:
        if normalize(path):
            try:
                meta = self._bucket.store.head(self._key(path))
                return FileStatus(path, meta["size"], _millis(meta), is_dir=False)
            except FileNotFoundError:
                pass
            except self._errors as error:
                raise self._storage_error(error, "object could not be looked up", path) from None
        if not folder:
            return None
        key = join(self._prefix, path)
        try:
            below = next(iter(self._bucket.store.list(key or None, chunk_size=1)), ())
        except self._errors as error:
            raise self._storage_error(error, "folder could not be listed", path) from None
        return FileStatus(path, 0, 0, is_dir=True) if below or not path else None

    def _settle(self, key: str, data: bytes) -> Outcome | None:
        """Return whether the object with this name is ours or another writer's; None if it cannot be read."""
        try:
            found = self._bucket.store.get(key)
            same = found.meta["size"] == len(data) and bytes(found.bytes()) == data
        except self._errors:
            return None
        return Created() if same else Exists()

    def _is_conflict(self, error: BaseException) -> bool:
        """Return whether the store refused because of another object or another request; only a read shows which."""
        exceptions = self._bucket.exceptions
        return isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError)

    def _delete_keys(self, keys: builtins.list[str], path: str) -> None:
        try:
            self._bucket.store.delete(keys)
        except FileNotFoundError:
            # Some stores fail on a missing object and may not have deleted those after it.
            if len(keys) > 1:
                for key in keys:
                    self._delete_keys([key], path)
        except self._errors as error:
            raise self._storage_error(error, "object could not be deleted", path, writing=True) from None

    def _display_path(self, path: str) -> str:
        return join(self.root, path)

    def _storage_error(self, error: BaseException, message: str, path: str, *, writing: bool = False) -> TidelakeError:
        if isinstance(error, TidelakeError):
            return error
        shown = self._display_path(path)
        no_bucket = "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error)
        if isinstance(error, FileNotFoundError) and not writing and not no_bucket:
            return not_found(shown)
        if _asked_for_credentials(error):
            reason, hint = _reason(error, self._bucket.secrets), _CREDENTIALS[SCHEMES[self._scheme]]
            return StorageError("no credentials found", code="no-credentials", path=shown, reason=reason, hint=hint)
        status = _status_of(error)
        code, hint = None, "check the connection and the store, then try again"
        if no_bucket:
            code, hint = "bucket-not-found", "create the bucket first, or correct its name"
        elif status in (401, 403):
            code, hint = "storage-denied", "check the credentials in the storage options and what they may do"
        elif status == 501 or isinstance(error, (self._bucket.exceptions.NotSupportedError, NotImplementedError)):
            code, hint = "no-exclusive-create", _NO_CONDITION
        return StorageError(message, code=code, path=shown, reason=_reason(error, self._bucket.secrets), hint=hint)


class _Upload:
    """An object that is being written: buffered in memory while it is small, then uploaded in parts."""

    def __init__(self, io: ObjectStoreFileIO, path: str) -> None:
        self._io = io
        self._path = path
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._parts: Any = None
        self.output = BufferedOutput(self._add_piece, self._finish, self._discard)

    def _add_piece(self, data: bytes | memoryview) -> None:
        self._held.append(bytes(data))
        self._held_bytes += len(self._held[-1])
        if self._held_bytes > PART_BYTES:
            self._send()

    def _send(self) -> None:
        from obstore import open_writer

        bucket, key = self._io._bucket, self._io._key(self._path)
        data, self._held, self._held_bytes = b"".join(self._held), [], 0
        try:
            if self._parts is None:
                self._parts = open_writer(bucket.store, key, buffer_size=PART_BYTES, max_concurrency=4)
            self._parts.write(data)
        except self._io._errors as error:
            raise self._io._storage_error(error, "object could not be written", self._path, writing=True) from None

    def _finish(self) -> None:
        if self._parts is None:
            self._io.write(self._path, b"".join(self._held))
            return
        self._send()
        try:
            self._parts.close()
        except self._io._errors as error:
            raise self._io._storage_error(error, "object could not be written", self._path, writing=True) from None

    def _discard(self) -> None:
        self._held = []
        if self._parts is None:
            return
        # Parts of an upload that is never completed stay in the bucket and cost money, so complete it, then delete.
        with contextlib.suppress(*self._io._errors):
            self._parts.close()
        with contextlib.suppress(StorageError):
            self._io.delete(self._path)


def _open_stores(
    kind: str, bucket: str, options: Mapping[str, object], secrets: tuple[Secret, ...]
) -> tuple[Any, Any, Any]:
    try:
        from obstore import exceptions, store
    except ImportError as error:
        raise InvalidInputError(
            "object stores need an extra that is not installed",
            code="extra-missing",
            hint="pip install 'tidelake[s3]'",
        ) from error
    make = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}[kind]
    config, client = _configure(kind, reveal(options))
    more = _profile(config) if kind == "s3" else {}
    try:
        return (
            make(bucket, config=config, client_options=client, **more),
            make(bucket, config=config, client_options=client, retry_config=_no_retry(), **more),
            exceptions,
        )
    except exceptions.UnknownConfigurationKeyError as error:
        raise InvalidInputError(
            "storage option is not known to this store",
            reason=_reason(error, secrets),
            hint="common ones are endpoint, region, access_key_id, secret_access_key, timeout",
        ) from None
    except (exceptions.BaseError, ValueError, TypeError, OSError) as error:
        raise InvalidInputError(
            "storage options are not valid", reason=_reason(error, secrets), hint="correct the storage options"
        ) from None


def _profile(config: dict[str, object]) -> dict[str, Any]:
    """Remove the AWS profile from the settings and return it as the store's credential provider."""
    wanted = aws.is_wanted(config, os.environ)
    named = [config.pop(name) for name in (aws.PROFILE, f"aws_{aws.PROFILE}") if name in config]
    found = aws.find_profile(str(named[0]) if named else None) if wanted else None
    if found is None:
        return {}
    if found.region and not {"region", "aws_region"} & set(config):
        config["region"] = found.region
    return {"credential_provider": found}


def _no_retry() -> dict[str, object]:
    return {"max_retries": 0, "retry_timeout": timedelta(seconds=60)}


def _configure(kind: str, options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Translate options to the library's names: those of the store, and those of its HTTP client."""
    config: dict[str, object] = {}
    client: dict[str, object] = {}
    if _parse_bool(os.environ.get("AWS_ALLOW_HTTP", "")):
        client["allow_http"] = True
    for given, value in options.items():
        name = _OPTION_PREFIX.sub("", given.lower()).replace("-", "_").replace(".", "_")
        name = _ALIASES[kind].get(name, name)
        if name.removeprefix("aws_") in _CLIENT_KEYS:
            name = name.removeprefix("aws_")
        if name == "path_style_access":
            config["virtual_hosted_style_request"] = not _parse_bool(value)
        elif name in _CLIENT_KEYS:
            client[name] = _parse_bool(value) if name.startswith("allow") else str(value)
        else:
            config[name] = value if isinstance(value, bool) else str(value)
    if str(config.get("endpoint", "")).startswith("http://"):
        client.setdefault("allow_http", True)
    return config, client


def _parse_bool(value: object) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() in ("true", "1", "yes")


def _status_of(error: BaseException) -> int | None:
    found = _STATUS.search(str(error))
    return int(found.group(1)) if found else None


def _is_certain(error: BaseException) -> bool:
    """Return whether the error proves that the store did not write the object."""
    status = _status_of(error)
    if status is not None:
        return status == 501 or (400 <= status < 500 and status not in (408, 409, 412, 425, 429))
    return isinstance(error, (ValueError, NotImplementedError)) or _was_not_sent(error)


def _was_not_sent(error: BaseException) -> bool:
    """Return whether no connection was made, so that the store never got the request."""
    return "kind: Connect" in str(error) or _asked_for_credentials(error)


def _asked_for_credentials(error: BaseException) -> bool:
    """Return whether the request that failed was to the machine's credential service, not to the store."""
    return any(place in str(error) for place in _METADATA)


def _reason(error: BaseException, secrets: tuple[Secret, ...]) -> str:
    """Return the first line of the library's message, without credentials."""
    text = str(error).strip()
    return scrub(text.splitlines()[0] if text else type(error).__name__, secrets)[:500]


def _millis(meta: Any) -> int:
    return int(meta["last_modified"].timestamp() * 1_000)


def _reopen(scheme: str, bucket: str, prefix: str, options: Mapping[str, object]) -> ObjectStoreFileIO:
    return ObjectStoreFileIO(scheme, bucket, prefix, storage=options)
