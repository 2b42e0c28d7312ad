"""The door for bytes: what a storage must do, and the three answers to a publish.

A `FileIO` is opened on a root and sees nothing outside it. Every path it takes is relative to that root, separated by
`/`, and passes one gate, `normalize`: a file name read from a manifest can name a file of the table and nothing else.

The invariant the whole lake rests on is `create_exclusive`: of all writers of one name at most one is told `Created`,
readers see all of its bytes or no file, and nothing is ever replaced. Its third answer, `Unknown`, means that the reply
was lost and the file may be there. Who gets it looks before retrying and deletes nothing.
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
    """The file is ours and complete."""


@dataclass(frozen=True, slots=True)
class Exists:
    """Certain: a file of someone else has the name, and ours was not written."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The answer was lost: the file may be there and may be ours."""

    cause: BaseException


Outcome: TypeAlias = Created | Exists | Unknown


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What a listing says of one file or folder. `path` is relative to the root of the FileIO that was asked."""

    path: str
    size: int
    modified_ms: int
    is_dir: bool

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]


class InputFile(Protocol):
    """A file opened for random access; Arrow reads from it as from any Python file."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes from the position, all of the rest when negative."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move the position and return it."""

    def tell(self) -> int:
        """The position."""

    def size(self) -> int:
        """The length of the file."""

    def close(self) -> None:
        """Let go of the file."""


class OutputFile(Protocol):
    """A new file being written front to back; Arrow writes to it as to any Python file.

    It is not there to be referenced before `close` has returned. Who does not get that far calls `abort`.
    """

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Append all of the data; returns its length.

        Raises:
            StorageError: the storage failed; only `abort` makes sense now.
        """

    def tell(self) -> int:
        """How many bytes were written so far."""

    def flush(self) -> None:
        """Nothing the caller needs: what was written is safe after `close`."""

    def close(self) -> None:
        """Complete the file, and make it survive a power loss if it was opened so; closing twice is fine.

        Raises:
            StorageError: the storage failed, or the name is taken (`file-exists`); nothing of ours is left.
        """

    def abort(self) -> None:
        """Remove what was written, as far as the storage lets us; after `close` this does nothing."""


class FileIO(Protocol):
    """A storage seen through a root. Implementations are safe to use from several threads."""

    @property
    def root(self) -> str:
        """The location, fit to be shown: it holds no secret."""

    @property
    def is_synchronous(self) -> bool:
        """Whether a call that an interrupt ended has no effect any more that is not visible at once.

        A request to an object store may still be on its way when the caller has given up.
        """

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """The whole file.

        Raises:
            NotFoundError: there is no such file (`file-not-found`).
            FormatError: the file is larger than `limit`, found before reading it all, or is not a regular file.
            StorageError: the storage failed.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`.

        Raises:
            NotFoundError: there is no such file.
            FormatError: the file ends before that (`file-truncated`).
            StorageError: the storage failed.
        """

    def open_input(self, path: str) -> InputFile:
        """Open the file for random access; the caller closes it.

        Raises:
            NotFoundError: there is no such file.
            StorageError: the storage failed.
        """

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a new file under a name nobody else uses, with the folders it needs.

        Readers may see it grow: it must not be referenced before this returns. With `durable` it survives a power loss
        on return, otherwise after a later `sync`.

        Raises:
            StorageError: the storage failed, or the name is taken (`file-exists`); nothing was replaced.
        """

    def open_output(self, path: str, *, durable: bool = True) -> OutputFile:
        """Write a new file piece by piece, for what is too large to hold in memory; otherwise as `write`.

        Raises:
            StorageError: the storage failed, or the name is taken (`file-exists`).
        """

    def overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Put these bytes under the name, whatever was there; readers see the old or the new bytes.

        Raises:
            StorageError: the storage failed.
        """

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        """Publish the file unless the name is taken. Durable when `Created` is returned.

        Raises:
            StorageError: the storage failed before anything could be visible: certain, nothing was written.
        """

    def exists(self, path: str, *, folder: bool = True) -> bool:
        """Whether there is a file, or with `folder` a folder, of this name.

        Asking for files only saves a request on object stores, where a folder is a prefix.

        Raises:
            StorageError: the storage failed.
        """

    def status(self, path: str) -> FileStatus:
        """Size, time and kind of a file or folder.

        Raises:
            NotFoundError: there is neither.
            StorageError: the storage failed.
        """

    def list(self, path: str) -> list[FileStatus]:
        """The direct children of a folder sorted by name; none when it does not exist.

        Raises:
            StorageError: the storage failed.
        """

    def make_dir(self, path: str) -> None:
        """Make sure that the folder exists, even if it stays empty.

        Raises:
            StorageError: the storage failed.
        """

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine.

        Raises:
            StorageError: the storage failed.
        """

    def delete_dir(self, path: str) -> None:
        """Remove a folder and all below it, following no symbolic link; a missing one is fine.

        Raises:
            InvalidInputError: the path is the root.
            StorageError: the storage failed.
        """

    def delete_empty_dir(self, path: str) -> bool:
        """Remove a folder if nothing is in it, and tell whether that was so; what has files below is never touched.

        Raises:
            InvalidInputError: the path is the root.
            StorageError: the storage failed.
        """

    def rename_dir(self, source: str, target: str) -> None:
        """Move a folder and all below it to a name that is free, in one step. Durable on return.

        At every moment, also after a crash, the folder is whole under exactly one of the two names. After a
        `StorageError` that is not `file-exists` it is the old or the new one: look.

        Raises:
            NotFoundError: there is no such folder.
            InvalidInputError: one of the two is the root, or one lies inside the other.
            StorageError: the storage failed, or the new name is taken (`file-exists`); nothing was replaced.
            UnsupportedError: the storage cannot move a folder in one step (`rename-not-atomic`).
        """

    def sync(self, paths: Sequence[str]) -> None:
        """Make earlier writes of these files, and the changes of these folders, survive a power loss.

        Raises:
            NotFoundError: one of them is not there.
            StorageError: the storage failed.
        """

    def sub(self, path: str) -> FileIO:
        """The same storage rooted at a folder below."""

    def close(self) -> None:
        """Let go of connections; closing twice is fine."""


def normalize(path: str) -> str:
    r"""Check a relative path and return it; the empty path is the root.

    Refused are absolute paths, `.` and `..`, empty segments, control characters and backslashes, names longer than a
    file system takes, and text that is not valid Unicode.

    Raises:
        InvalidInputError: the path is not allowed (`path-escape` when it would lead outside, else `invalid-path`).
    """
    if path == "":
        return path
    if path.startswith("/"):
        raise _refused(path, "path is absolute", code="path-escape")
    if _FORBIDDEN.search(path):
        raise _refused(path, "path holds a control character or a backslash")
    for segment in path.split("/"):
        if segment == "..":
            raise _refused(path, "path leads upwards", code="path-escape")
        if segment in ("", "."):
            raise _refused(path, "path has an empty segment")
        if len(segment) * 4 > SEGMENT_BYTES_MAX and len(_encoded(path, segment)) > SEGMENT_BYTES_MAX:
            raise _refused(path, "name in the path is too long")
    _encoded(path, path)
    return path


def file_path(path: str) -> str:
    """Check a path as `normalize` does and that it is not the root itself.

    Raises:
        InvalidInputError: the path is not allowed or empty.
    """
    if normalize(path) == "":
        raise InvalidInputError("path names the root itself", code="invalid-path", hint="name a file below the root")
    return path


def join(folder: str, name: str) -> str:
    """The two joined by a separator; either may be the root, that is empty."""
    return f"{folder}/{name}" if folder and name else folder or name


def parent(path: str) -> str:
    """The folder of a path; that of a top-level name is the root."""
    return path.rpartition("/")[0]


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _refused(path, "path is not valid unicode") from error


def _refused(path: str, message: str, *, code: str = "invalid-path") -> InvalidInputError:
    # Escaped and cut: a hostile name must not forge log lines.
    shown = path[:200].encode("unicode_escape").decode("ascii")
    return InvalidInputError(
        message, code=code, path=shown, hint="use names below the root, separated by single slashes, without `..`"
    )


def check_move(source: str, target: str) -> None:
    """Check the two names of a folder that is moved.

    Raises:
        InvalidInputError: one of the two is the root or not allowed, or one lies inside the other.
    """
    inside = f"{file_path(target)}/".startswith(f"{file_path(source)}/") or source.startswith(target + "/")
    if inside:
        raise InvalidInputError(
            "folder cannot be moved into itself or onto a folder it lies in",
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
    """The error for a missing file."""
    return NotFoundError(
        "file does not exist",
        code="file-not-found",
        path=path,
        hint="it may have expired or never been written; look at the folder it is in",
    )


def taken(path: str) -> StorageError:
    """The error for a new file whose name is in use."""
    return StorageError(
        "file exists already and was not replaced",
        code="file-exists",
        path=path,
        hint="write under a fresh name; two writers may share an identifier",
    )


def too_large(path: str, size: int, limit: int) -> FormatError:
    """The error for a file over its limit."""
    return FormatError(
        "file is larger than such a file may be", code="file-too-large", path=path, size=size, limit=limit
    )


def truncated(path: str, start: int, length: int, size: int) -> FormatError:
    """The error for a range past the end of a file."""
    return FormatError(
        "file ends before the bytes that were asked for",
        code="file-truncated",
        path=path,
        start=start,
        length=length,
        size=size,
        hint="the file is damaged, or what refers to it is",
    )


class BufferedOutput:
    """An `OutputFile` that gathers small writes and hands on large pieces.

    Arrow writes a page header of some forty bytes before every page of a megabyte; each should not be a system call.
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
            discard: Removes what was put; called when anything failed and must not raise.
            piece_bytes: From this size on data is handed on.
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
        """Append all of the data; returns its length.

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
        # Copied, because the caller may reuse its buffer.
        self._pending.append(bytes(view))
        self._pending_bytes += size
        if self._pending_bytes >= self._piece_bytes:
            self._drain()
        return size

    def tell(self) -> int:
        """How many bytes were written so far."""
        return self._position

    def flush(self) -> None:
        """Nothing: what was written is safe after `close`."""

    def close(self) -> None:
        """Complete the file; closing twice is fine.

        Raises:
            StorageError: the storage failed; nothing of ours is left.
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
    """An `InputFile` that asks for each range it is read for; it buffers nothing, Arrow plans its own reads."""

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
            InvalidInputError: the position would be negative or `whence` is none of 0, 1, 2.
        """
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        if whence not in bases or bases[whence] + offset < 0:
            raise InvalidInputError("position in the file is not valid", offset=offset, whence=whence)
        self._position = bases[whence] + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes from the position, all of the rest when negative or None.

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
        """All bytes from the position."""
        return self.read(-1)

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fill the buffer as far as the file goes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
