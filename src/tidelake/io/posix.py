"""The POSIX file system calls that the local storage uses, as a port.

`LocalFileIO` decides the order of writes, syncs and links; this port executes them, one system call each. So tests run
the order of production over a disk that forgets everything that was not synced (`testing.unsynced`).

Every call takes absolute paths, raises plain `OSError` with its errno, and does not follow a symbolic link in the last
segment.
"""

# The system calls themselves are the subject of this module.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108

from __future__ import annotations

import ctypes
import errno
import io
import os
import shutil
import stat
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidelake.cleanup import undo_on_error
from tidelake.io.fileio import InputFile

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_READ_BYTES_MAX = 1 << 30


class Kind(Enum):
    """What has a name."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Stat:
    """The status of a name. Two names of one file have the same `identity`."""

    size: int
    modified_ms: int
    kind: Kind
    identity: tuple[int, int]


class Posix(Protocol):
    """The calls of a file system."""

    def open_new(self, path: str) -> int:
        """Create a file that must not exist and open it for writing."""

    def write(self, fd: int, data: bytes | memoryview) -> None:
        """Write all of the data."""

    def fsync(self, fd: int) -> None:
        """Make the content of the file survive a power loss."""

    def close(self, fd: int) -> None:
        """Close the descriptor."""

    def open_read(self, path: str) -> InputFile:
        """Open a regular file; EISDIR for a folder, ELOOP for a link, ENODEV for anything else."""

    def fsync_file(self, path: str) -> None:
        """Make the content of an existing file survive a power loss."""

    def fsync_dir(self, path: str) -> None:
        """Make the names in a folder survive a power loss."""

    def link(self, source: str, target: str) -> None:
        """Give the file a second name that must not exist."""

    def rename_noreplace(self, source: str, target: str) -> None:
        """Rename to a name that must not exist; ENOSYS or EINVAL if the file system cannot do that."""

    def replace(self, source: str, target: str) -> None:
        """Rename; replace what has the name."""

    def unlink(self, path: str) -> None:
        """Remove a name of a file."""

    def mkdir(self, path: str) -> None:
        """Create a folder in an existing one."""

    def lstat(self, path: str) -> Stat:
        """Return the status of a name."""

    def scandir(self, path: str) -> list[tuple[str, Stat]]:
        """Return the names in a folder, in any order; names that vanish while it runs are left out."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything below it; links are removed, not followed."""

    def remove_empty(self, path: str) -> None:
        """Remove an empty folder."""

    def realpath(self, path: str) -> str:
        """Return the path with all links resolved, as far as it exists."""


class OsFile(io.FileIO):
    """A file of the operating system as an `InputFile`."""

    def size(self) -> int:
        """The length of the file now."""
        return os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes; short only at the end of the file."""
        if size is None or size < 0:
            return self.readall()
        if size <= _READ_BYTES_MAX:
            return super().read(size) or b""
        # One system call returns at most 2 GiB, and may return less; Arrow treats a short read as damage.
        chunks = []
        while size > 0 and (chunk := super().read(min(size, _READ_BYTES_MAX))):
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


class RealPosix:
    """The file system of the machine."""

    def open_new(self, path: str) -> int:
        """Create a file that must not exist and open it for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)

    def write(self, fd: int, data: bytes | memoryview) -> None:
        """Write all of the data."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view[:_READ_BYTES_MAX]) :]

    def fsync(self, fd: int) -> None:
        """Make the content of the file survive a power loss."""
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close the descriptor."""
        os.close(fd)

    def open_read(self, path: str) -> InputFile:
        """Open a regular file."""
        # Non-blocking, because opening a named pipe in a table's folder would wait for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with undo_on_error(lambda: os.close(fd)):
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                raise OSError(errno.ENODEV, "not a regular file")
            return OsFile(fd, "rb", closefd=True)

    def fsync_file(self, path: str) -> None:
        """Make the content of an existing file survive a power loss."""
        self._fsync_opened(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def fsync_dir(self, path: str) -> None:
        """Make the names in a folder survive a power loss."""
        try:
            self._fsync_opened(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            # Some network file systems cannot sync folders; on those, names are durable when a call returns.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise

    def link(self, source: str, target: str) -> None:
        """Give the file a second name that must not exist."""
        os.link(source, target, follow_symlinks=False)

    def rename_noreplace(self, source: str, target: str) -> None:
        """Rename to a name that must not exist."""
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if call is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def replace(self, source: str, target: str) -> None:
        """Rename; replace what has the name."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name of a file."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Create a folder in an existing one."""
        os.mkdir(path)

    def lstat(self, path: str) -> Stat:
        """Return the status of a name."""
        return _stat(os.lstat(path))

    def scandir(self, path: str) -> list[tuple[str, Stat]]:
        """Return the names in a folder."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found.append((entry.name, _stat(entry.stat(follow_symlinks=False))))
                except FileNotFoundError:
                    continue
        return found

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything below it."""
        shutil.rmtree(path)

    def remove_empty(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def realpath(self, path: str) -> str:
        """Return the path with all links resolved, as far as it exists."""
        return os.path.realpath(path)

    def _fsync_opened(self, path: str, flags: int) -> None:
        fd = os.open(path, flags)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _stat(found: os.stat_result) -> Stat:
    kinds = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.FOLDER, stat.S_IFLNK: Kind.LINK}
    return Stat(
        size=found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        kind=kinds.get(stat.S_IFMT(found.st_mode), Kind.OTHER),
        identity=(found.st_dev, found.st_ino),
    )
