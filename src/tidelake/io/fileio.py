"""Storage as a port: what a storage must do, and the three outcomes of a publish.

A `FileIO` is opened on a root and sees nothing outside it. Every path is relative to that root, separated by `/`, and
passes one check, `normalize`: a file name that was read from a manifest can only name a file of the table.

Every commit depends on `create_exclusive`: of all writers of one name at most one gets `Created`, readers see all of
the bytes or no file, and nothing is ever replaced. The third outcome, `Unknown`, means that the reply was lost and the
file may exist. The caller then has to look before it retries, and must not delete anything.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tidelake.errors import FormatError, InvalidInputError, NotFoundError, StorageError, TidelakeError

SEGMENT_BYTES_MAX = 255
"""The longest name of a file or folder; the limit of the common file systems."""

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True, slots=True)
class Created:
    """This call created the file, and it is complete."""


@dataclass(frozen=True, slots=True)
class Exists:
    """Another writer's file has the name, and this call wrote nothing."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The reply was lost: the file may exist, and this call may have created it."""

    cause: BaseException


Outcome: TypeAlias = Created | Exists | Unknown


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A listed file or folder. `path` is relative to the root of the FileIO that listed it."""

    path: str
    size: int
    modified_ms: int
    is_dir: bool

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]


class InputFile(Protocol):
    """A file opened for random access; Arrow reads it like any Python file."""

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes from the position; if negative, the rest of the file."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position and return it."""

    def tell(self) -> int:
        """The position."""

    def size(self) -> int:
        """The length of the file."""

    def close(self) -> None:
        """Close the file."""


class OutputFile(Protocol):
    """A new file that is written from front to back; Arrow writes to it like to any Python file.

    It must not be referenced before `close` has returned. If anything fails before that, call `abort`.
    """

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Append all of the data; return its length.

        Raises:
            StorageError: the storage failed; call `abort`.
        """

    def tell(self) -> int:
        """The number of bytes written so far."""

    def flush(self) -> None:
        """Do nothing: only `close` makes the file durable."""

    def close(self) -> None:
        """Complete the file, and if it was opened as durable, make it survive a power loss; closing twice is allowed.

        Raises:
            StorageError: the storage failed, or the name is taken (`file-exists`); nothing is left behind.
        """

    def abort(self) -> None:
        """Remove what was written, if the storage allows it; after `close` this does nothing."""


class FileIO(Protocol):
    """A storage below a root. Implementations can be used from several threads."""

    @property
    def root(self) -> str:
        """The location, without secrets, so that it can be shown."""

    @property
    def is_synchronous(self) -> bool:
        """Whether an interrupted call has no effect after it ended.

        A request to an object store may still arrive after its caller was interrupted.
        """

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Read the whole file.

        Raises:
            NotFoundError: the file does not exist (`file-not-found`).
            FormatError: the file is larger than `limit`, found before reading it all, or is not a regular file.
            StorageError: the storage failed.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read exactly `length` bytes from `start`.

        Raises:
            NotFoundError: the file does not exist.
            FormatError: the file ends before that (`file-truncated`).
            StorageError: the storage failed.
        """

    def open_input(self, path: str) -> InputFile:
        """Open the file for random access; the caller closes it.

        Raises:
            NotFoundError: the file does not exist.
            StorageError: the storage failed.
        """

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a new file, whose name no other writer uses, and the folders it needs.

        Readers may see it grow, so it must not be referenced before this returns. With `durable` it survives a power
        loss when this returns, otherwise only after a later `sync`.

        Raises:
            StorageError: the storage failed, or the name is taken (`file-exists`); nothing was replaced.
        """

    def open_output(self, path: str, *, durable: bool = True) -> OutputFile:
        """Write a new file piece by piece, for data that is too large for memory; otherwise like `write`.

        Raises:
            StorageError: the storage failed, or the name is taken (`file-exists`).
        """

    def overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace a file; readers see the old or the new bytes.

        Raises:
            StorageError: the storage failed.
        """

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        """Publish the file unless the name is taken. It is durable when `Created` is returned.

        Raises:
            StorageError: the storage failed, and it is certain that nothing was written.
        """

    def exists(self, path: str, *, folder: bool = True) -> bool:
        """Return whether a file, or with `folder` a folder, has this name.

        With `folder=False` an object store, where a folder is only a prefix, saves a request.

        Raises:
            StorageError: the storage failed.
        """

    def status(self, path: str) -> FileStatus:
        """Return size, time and kind of a file or folder.

        Raises:
            NotFoundError: neither exists.
            StorageError: the storage failed.
        """

    def list(self, path: str) -> list[FileStatus]:
        """Return the direct children of a folder sorted by name; nothing if the folder does not exist.

        Raises:
            StorageError: the storage failed.
        """

    def make_dir(self, path: str) -> None:
        """Make sure that the folder exists, even if it stays empty.

        Raises:
            StorageError: the storage failed.
        """

    def delete(self, path: str) -> None:
        """Delete a file; do nothing if it does not exist.

        Raises:
            StorageError: the storage failed.
        """

    def delete_dir(self, path: str) -> None:
        """Delete a folder and everything below it without following symbolic links; do nothing if it does not exist.

        Raises:
            InvalidInputError: the path is the root.
            StorageError: the storage failed.
        """

    def delete_empty_dir(self, path: str) -> bool:
        """Delete a folder if it is empty, and return whether it was; a folder with files below is never changed.

        Raises:
            InvalidInputError: the path is the root.
            StorageError: the storage failed.
        """

    def rename_dir(self, source: str, target: str) -> None:
        """Move a folder and everything below it to a free name, in one step. Durable when this returns.

        At every moment, also after a crash, the folder is complete under exactly one of the two names. After a
        `StorageError` other than `file-exists` it can be either, so the caller has to look.

        Raises:
            NotFoundError: the folder does not exist.
            InvalidInputError: one of the two is the root, or one is inside the other.
            StorageError: the storage failed, or the new name is taken (`file-exists`); nothing was replaced.
            UnsupportedError: the storage cannot move a folder in one step (`rename-not-atomic`).
        """

    def sync(self, paths: Sequence[str]) -> None:
        """Make earlier writes of these files, and changes of these folders, survive a power loss.

        Raises:
            NotFoundError: one of them does not exist.
            StorageError: the storage failed.
        """

    def sub(self, path: str) -> FileIO:
        """Return the same storage with a folder below as its root."""

    def close(self) -> None:
        """Close connections; closing twice is allowed."""


def normalize(path: str) -> str:
    r"""Check a relative path and return it; the empty path is the root.

    It refuses absolute paths, `.` and `..`, empty segments, control characters and backslashes, names that are too long
    for a file system, and text that is not valid Unicode.

    Raises:
        InvalidInputError: the path is not allowed (`path-escape` if it would leave the root, else `invalid-path`).
    """
    if path == "":
        return path
    if path.startswith("/"):
        raise _path_error(path, "path is absolute", code="path-escape")
    if _FORBIDDEN.search(path):
        raise _path_error(path, "path has a control character or a backslash")
    for segment in path.split("/"):
        if segment == "..":
            raise _path_error(path, "path leads upwards", code="path-escape")
        if segment in ("", "."):
            raise _path_error(path, "path has an empty segment")
        if len(segment) * 4 > SEGMENT_BYTES_MAX and len(_encode(path, segment)) > SEGMENT_BYTES_MAX:
            raise _path_error(path, "name in the path is too long")
    _encode(path, path)
    return path


def file_path(path: str) -> str:
    """Check a path as `normalize` does, and that it is not the root.

    Raises:
        InvalidInputError: the path is not allowed or empty.
    """
    if normalize(path) == "":
        raise InvalidInputError("path is the root itself", code="invalid-path", hint="name a file below the root")
    return path


def join(folder: str, name: str) -> str:
    """Join a folder and a name; either may be empty, which is the root."""
    return f"{folder}/{name}" if folder and name else folder or name


def parent(path: str) -> str:
    """Return the folder of a path; for a top-level name the root."""
    return path.rpartition("/")[0]


def _encode(path: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _path_error(path, "path is not valid unicode") from error


def _path_error(path: str, message: str, *, code: str = "invalid-path") -> InvalidInputError:
    # Escape and cut the path: a hostile name must not forge log lines.
    shown = path[:200].encode("unicode_escape").decode("ascii")
    return InvalidInputError(
        message, code=code, path=shown, hint="use names below the root, separated by single slashes, without `..`"
    )


def check_move(source: str, target: str) -> None:
    """Check source and target of a folder move.

    Raises:
        InvalidInputError: one of the two is the root or not allowed, or one is inside the other.
    """
    inside = f"{file_path(target)}/".startswith(f"{file_path(source)}/") or source.startswith(target + "/")
    if inside:
        raise InvalidInputError(
            "folder cannot be moved into itself or onto a folder that contains it",
            code="invalid-path",
            source=source,
            target=target,
            hint="choose a name outside the folder",
        )


def check_range(start: int, length: int) -> None:
    """Refuse a byte range that no file can have.

    Raises:
        InvalidInputError: a bound is negative.
    """
    if start < 0 or length < 0:
        raise InvalidInputError("byte range is negative", start=start, length=length)


def not_found(path: str) -> NotFoundError:
    """Return the error for a missing file."""
    return NotFoundError(
        "file does not exist",
        code="file-not-found",
        path=path,
        hint="it may have expired or never been written; list its folder",
    )


def taken(path: str) -> StorageError:
    """Return the error for a new file whose name is in use."""
    return StorageError(
        "file already exists and was not replaced",
        code="file-exists",
        path=path,
        hint="write under a new name; two writers may use the same identifier",
    )


def too_large(path: str, size: int, limit: int) -> FormatError:
    """Return the error for a file that is larger than its limit."""
    return FormatError("file is larger than its limit", code="file-too-large", path=path, size=size, limit=limit)


def truncated(path: str, start: int, length: int, size: int) -> FormatError:
    """Return the error for a range past the end of a file."""
    return FormatError(
        "file ends before the requested bytes",
        code="file-truncated",
        path=path,
        start=start,
        length=length,
        size=size,
        hint="the file is damaged, or the metadata that refers to it is",
    )


class BufferedOutput:
    """An `OutputFile` that collects small writes and passes on large pieces.

    Arrow writes a page header of about forty bytes before every page of a megabyte, which should not be a system call.
    """

    def __init__(
        self,
        put: Callable[[bytes | memoryview], None],
        finish: Callable[[], None],
        discard: Callable[[], None],
        *,
        piece_bytes: int = 1 << 20,
    ) -> None:
        """Wrap the three calls of a storage.

        Args:
            put: Appends a piece.
            finish: Completes the file after the last piece.
            discard: Removes what was put; called if anything failed, and must not raise.
            piece_bytes: The size from which data is passed on.
        """
        self._put = put
        self._finish = finish
        self._discard = discard
        self._piece_bytes = piece_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._position = 0
        self.closed = False

    def writable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False

    def write(self, data: bytes | memoryview, /) -> int:
        """Append all of the data; return its length.

        Raises:
            InvalidInputError: the file is closed.
            StorageError: the storage failed.
        """
        if self.closed:
            raise InvalidInputError("file is closed")
        view = memoryview(data)
        size = view.nbytes
        self._position += size
        if size >= self._piece_bytes:
            self._drain()
            self._put(view)
            return size
        # Copy, because the caller may reuse its buffer.
        self._pending.append(bytes(view))
        self._pending_bytes += size
        if self._pending_bytes >= self._piece_bytes:
            self._drain()
        return size

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self._position

    def flush(self) -> None:
        """Do nothing: only `close` makes the file durable."""

    def close(self) -> None:
        """Complete the file; closing twice is allowed.

        Raises:
            StorageError: the storage failed; nothing is left behind.
        """
        if self.closed:
            return
        try:
            self._drain()
            self._finish()
        except TidelakeError:
            self.abort()
            raise
        self.closed = True

    def abort(self) -> None:
        """Remove what was written; after `close` this does nothing."""
        if self.closed:
            return
        self.closed = True
        self._pending = []
        self._discard()

    def _drain(self) -> None:
        if self._pending:
            piece, self._pending, self._pending_bytes = b"".join(self._pending), [], 0
            self._put(piece)


class BytesFile(io.BytesIO):
    """An `InputFile` over bytes in memory."""

    def size(self) -> int:
        """The length of the file."""
        return self.getbuffer().nbytes


class RangeFile(io.RawIOBase):
    """An `InputFile` that requests each range when it is read. It does not buffer: Arrow plans its own reads."""

    def __init__(self, size: int, read_range: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._read_range = read_range
        self._position = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def size(self) -> int:
        """The length of the file."""
        return self._size

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position and return it.

        Raises:
            InvalidInputError: the position would be negative, or `whence` is not 0, 1 or 2.
        """
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        if whence not in bases or bases[whence] + offset < 0:
            raise InvalidInputError("position in the file is not valid", offset=offset, whence=whence)
        self._position = bases[whence] + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes from the position; if negative or None, the rest of the file.

        Raises:
            StorageError: the storage failed.
        """
        if self.closed:
            raise InvalidInputError("file is closed")
        rest = max(0, self._size - self._position)
        count = rest if size is None or size < 0 else min(size, rest)
        if count == 0:
            return b""
        data = self._read_range(self._position, count)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Read all bytes from the position."""
        return self.read(-1)

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Read into the buffer; return the number of bytes read."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
