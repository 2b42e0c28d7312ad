"""A local folder as storage, over the calls of `io.posix`.

What it promises beyond the contract of `FileIO`:

* **Nothing outside the root.** Names pass `normalize`; folders are resolved, and a folder that a symbolic link puts
  outside the root is refused. Deletes never follow a link.
* **A call that returned is durable.** Before it returns, it syncs the bytes of the file, its name in the folder, and
  the names of all folders up to the root, unless `durability` is "none".
* **Publishing is one system call.** `create_exclusive` writes and syncs a temporary file beside the target and then
  links it to the name. POSIX `link` fails if the name is taken, where `rename` would replace it: check and creation are
  one step. On file systems without links it uses `renameat2(NOREPLACE)`; without either, an exclusive create, which
  still has one winner but lets a reader see the file grow.

The order in `create_exclusive` matters: first the content, then the folders above, then the link, then the folder. A
crash before the link leaves a temporary file; a crash after it leaves a complete file, whose name may or may not have
survived. It never leaves an incomplete file under the name.
"""

# Paths are plain strings here: they are built for every call, and pathlib would normalize what `normalize` must see.
# ruff: noqa: PTH100, PTH118, PTH120

from __future__ import annotations

import builtins
import contextlib
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tidelake.cleanup import undo_on_error
from tidelake.errors import FormatError, InvalidInputError, StorageError, TidelakeError
from tidelake.io.fileio import (
    SEGMENT_BYTES_MAX,
    BufferedOutput,
    Created,
    Exists,
    FileStatus,
    InputFile,
    Outcome,
    OutputFile,
    Unknown,
    check_move,
    check_range,
    file_path,
    join,
    normalize,
    not_found,
    parent,
    taken,
    too_large,
    truncated,
)
from tidelake.io.ids import Ids, SystemIds
from tidelake.io.posix import Kind, Posix, RealPosix, Stat

Durability = Literal["fsync", "none"]

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_NO_LINK = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
_NO_RENAME = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})
# Errors which, on every file system, mean that the name was not created, so the outcome is certain.
_REFUSED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
)
_HINTS = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "the quota is used up: free some space and try again",
    errno.EACCES: "check the permissions of the folder",
    errno.EPERM: "check the permissions of the folder",
    errno.EROFS: "the file system is mounted read-only",
    errno.EMFILE: "too many open files: raise the limit or close some",
}
_FOLDER_TRIES = 5


@dataclass(slots=True)
class _Disk:
    """The state that all FileIOs below one opened root share."""

    top: str
    posix: Posix
    ids: Ids
    fsync: bool
    # Folders whose names were synced up to the top, with the identity that each had then.
    settled: dict[str, tuple[int, int]] = field(default_factory=dict)


class LocalFileIO:
    """A `FileIO` on a folder, which need not exist before the first write."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        ids: Ids | None = None,
        posix: Posix | None = None,
    ) -> None:
        if durability not in ("fsync", "none"):
            raise InvalidInputError("durability is not known", durability=durability, hint='use "fsync" or "none"')
        text = os.fspath(root)
        if not text or "\0" in text:
            raise InvalidInputError("folder name is empty or has a NUL character", hint="name a folder")
        top = os.path.abspath(text)
        self._bind(top, _Disk(top, posix or RealPosix(), ids or SystemIds(), durability == "fsync"))

    def _bind(self, root: str, disk: _Disk) -> None:
        self._root = root
        self._disk = disk
        self._posix = disk.posix
        self._real_root = disk.posix.realpath(root)
        self._inside: set[str] = set()

    @property
    def root(self) -> str:
        """The absolute path of the folder."""
        return self._root

    @property
    def is_synchronous(self) -> bool:
        """True: system calls end before an interrupt is raised."""
        return True

    @property
    def durability(self) -> Durability:
        """Whether writes are synced."""
        return "fsync" if self._disk.fsync else "none"

    def __repr__(self) -> str:
        return f"LocalFileIO({getattr(self, '_root', '…')!r})"  # a debugger may call this after the constructor failed

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self._posix, RealPosix):
            raise InvalidInputError("test storage cannot be pickled", root=self._root)
        return _reopen, (self._root, self.durability)

    # -- reading

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Read the whole file.

        Raises:
            NotFoundError: the file does not exist.
            FormatError: it is larger than `limit`, is a link that leaves the root, or is not a regular file.
            StorageError: the file system failed.
        """
        opened = self._open(path)
        try:
            size = opened.size()
            if limit is not None and size > limit:
                raise too_large(self._display_path(path), size, limit)
            # Ask for the size of the file, not for the limit: a small file must not allocate all that it may have.
            data = opened.read(-1 if limit is None else size + 1)
            if limit is not None and len(data) > size:
                data += opened.read(limit + 1 - size)
        except OSError as error:
            raise self._storage_error(error, "file could not be read", path) from error
        finally:
            opened.close()
        if limit is not None and len(data) > limit:
            raise too_large(self._display_path(path), len(data), limit)
        return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read exactly `length` bytes from `start`.

        Raises:
            NotFoundError: the file does not exist.
            FormatError: the file ends before that.
            StorageError: the file system failed.
        """
        check_range(start, length)
        opened = self._open(path)
        try:
            # Check before reading: a length from damaged metadata must not allocate memory.
            size = opened.size()
            if start + length > size:
                raise truncated(self._display_path(path), start, length, size)
            opened.seek(start)
            data = opened.read(length)
        except OSError as error:
            raise self._storage_error(error, "file could not be read", path) from error
        finally:
            opened.close()
        if len(data) != length:
            raise truncated(self._display_path(path), start, length, start + len(data))
        return data

    def open_input(self, path: str) -> InputFile:
        """Open the file for random access; the caller closes it.

        Raises:
            NotFoundError: the file does not exist.
            StorageError: the file system failed.
        """
        return self._open(path)

    def exists(self, path: str, *, folder: bool = True) -> bool:
        """Return whether a file, or with `folder` a folder, has this name.

        Raises:
            StorageError: the file system failed.
        """
        found = self._stat(path)
        return found is not None and (folder or found.kind is not Kind.FOLDER)

    def status(self, path: str) -> FileStatus:
        """Return size, time and kind of a file or folder.

        Raises:
            NotFoundError: neither exists.
            StorageError: the file system failed.
        """
        found = self._stat(path)
        if found is None:
            raise not_found(self._display_path(path))
        return _status(path, found)

    def list(self, path: str) -> builtins.list[FileStatus]:
        """Return the direct children sorted by name. A symbolic link is listed as a file, so that no walk follows it.

        Raises:
            StorageError: the file system failed.
        """
        folder = self._folder(normalize(path))
        try:
            found = self._posix.scandir(folder)
        except OSError as error:
            if error.errno in _MISSING:
                return []
            raise self._storage_error(error, "folder could not be listed", path) from error
        # Sort by bytes, as object stores do.
        return [_status(join(path, name), stat) for name, stat in sorted(found, key=lambda item: os.fsencode(item[0]))]

    # -- writing

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a new file, whose name no other writer uses.

        Raises:
            StorageError: the file system failed, or the name is taken.
        """
        target = self._file(path)
        try:
            self._write_new(target, data, sync=durable)
            if durable:
                self._sync_folder(os.path.dirname(target))
        except FileExistsError as error:
            raise taken(self._display_path(path)) from error
        except OSError as error:
            raise self._storage_error(error, "file could not be written", path, writing=True) from error

    def open_output(self, path: str, *, durable: bool = True) -> OutputFile:
        """Write a new file piece by piece, whose name no other writer uses.

        Raises:
            StorageError: the file system failed, or the name is taken.
        """
        target = self._file(path)
        try:
            fd = self._open_new(target)
        except FileExistsError as error:
            raise taken(self._display_path(path)) from error
        except OSError as error:
            raise self._storage_error(error, "file could not be written", path, writing=True) from error
        opened = True

        def shut() -> None:
            nonlocal opened
            if opened:
                opened = False
                self._posix.close(fd)

        def put(data: bytes | memoryview) -> None:
            try:
                self._posix.write(fd, data)
            except OSError as error:
                raise self._storage_error(error, "file could not be written", path, writing=True) from error

        def finish() -> None:
            try:
                if durable and self._disk.fsync:
                    self._posix.fsync(fd)
                # On network file systems only `close` may report that a write failed, so its error counts.
                shut()
                if durable:
                    self._sync_folder(os.path.dirname(target))
            except OSError as error:
                raise self._storage_error(error, "file could not be written", path, writing=True) from error

        def discard() -> None:
            with contextlib.suppress(OSError):
                shut()
            self._unlink_quietly(target)

        return BufferedOutput(put, finish, discard)

    def overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a temporary file and rename it over the target.

        Raises:
            StorageError: the file system failed.
        """
        target = self._file(path)
        temporary = self._temporary(target)
        try:
            with undo_on_error(lambda: self._unlink_quietly(temporary)):
                self._write_new(temporary, data, sync=durable)
                self._posix.replace(temporary, target)
            if durable:
                self._sync_folder(os.path.dirname(target))
        except OSError as error:
            raise self._storage_error(error, "file could not be replaced", path, writing=True) from error

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        """Publish the file unless the name is taken.

        Raises:
            StorageError: the file system failed, and it is certain that nothing was written.
        """
        target = self._file(path)
        folder = os.path.dirname(target)
        temporary = self._temporary(target)
        try:
            with undo_on_error(lambda: self._unlink_quietly(temporary)):
                self._write_new(temporary, data, sync=True)
                self._settle(folder)
        except OSError as error:
            raise self._storage_error(error, "file could not be published", path, writing=True) from error
        try:
            outcome = self._link(temporary, target, data, path)
        finally:
            self._unlink_quietly(temporary)
        if isinstance(outcome, Created):
            try:
                self._fsync_dir(folder)
            except OSError as error:
                # Readers see the file, but a power loss could still undo the link, so do not report success.
                return Unknown(error)
        return outcome

    def make_dir(self, path: str) -> None:
        """Make sure that the folder exists.

        Raises:
            StorageError: the file system failed.
        """
        folder = join(self._root, normalize(path))
        self._folder(parent(path))
        try:
            self._make_folders(folder)
            self._settle(folder)
        except OSError as error:
            raise self._storage_error(error, "folder could not be created", path, writing=True) from error

    def sync(self, paths: Sequence[str]) -> None:
        """Make files, their names, and the names of their folders up to the root survive a power loss.

        Raises:
            NotFoundError: one of them does not exist.
            StorageError: the file system failed.
        """
        folders: dict[str, None] = {}
        for path in paths:
            target = self._folder(path) if path == "" else self._file(path)
            try:
                if path == "" or self._posix.lstat(target).kind is Kind.FOLDER:
                    folders[target] = None
                else:
                    if self._disk.fsync:
                        self._posix.fsync_file(target)
                    folders[os.path.dirname(target)] = None
            except OSError as error:
                raise self._storage_error(error, "file could not be synced", path) from error
        for folder in folders:
            try:
                self._sync_folder(folder)
            except OSError as error:
                raise self._storage_error(
                    error, "folder could not be synced", os.path.relpath(folder, self._root)
                ) from error

    def delete(self, path: str) -> None:
        """Delete a file; do nothing if it does not exist.

        Raises:
            InvalidInputError: it is a folder.
            StorageError: the file system failed.
        """
        target = self._file(path)
        try:
            self._posix.unlink(target)
        except OSError as error:
            if error.errno in _MISSING:
                return
            if error.errno in (errno.EISDIR, errno.EPERM) and self._is_folder(target):
                raise InvalidInputError(
                    "path is a folder", path=self._display_path(path), hint="use delete_dir to remove a folder"
                ) from error
            raise self._storage_error(error, "file could not be deleted", path, writing=True) from error

    def delete_dir(self, path: str) -> None:
        """Delete a folder and everything below it without following symbolic links; do nothing if it does not exist.

        Raises:
            InvalidInputError: the path is the root.
            StorageError: the file system failed.
        """
        target = self._file(path)
        for tries_left in reversed(range(_FOLDER_TRIES)):
            try:
                if not self._posix_exists(target):
                    break
                if self._posix.lstat(target).kind is Kind.FOLDER:
                    self._posix.remove_tree(target)
                else:
                    self._posix.unlink(target)
            except OSError as error:
                # Another process may delete, or still write, below the same folder: try again.
                if error.errno not in _MISSING | {errno.ENOTEMPTY} or tries_left == 0:
                    raise self._storage_error(error, "folder could not be deleted", path, writing=True) from error
        self._forget(target)

    def delete_empty_dir(self, path: str) -> bool:
        """Delete a folder if it is empty; the system call itself refuses to delete any other.

        Raises:
            StorageError: the file system failed.
        """
        target = self._file(path)
        try:
            self._posix.remove_empty(target)
        except OSError as error:
            if error.errno in _MISSING | {errno.ENOTEMPTY, errno.EEXIST}:
                return False
            raise self._storage_error(error, "folder could not be deleted", path, writing=True) from error
        self._forget(target)
        return True

    def rename_dir(self, source: str, target: str) -> None:
        """Move a folder by one rename that replaces nothing, then sync its old and its new parent.

        Raises:
            NotFoundError: the folder does not exist.
            InvalidInputError: one of the two is the root, or one is inside the other.
            StorageError: the file system failed, or the new name is taken.
        """
        check_move(source, target)
        old, new = self._file(source), self._file(target)
        try:
            identity = self._posix.lstat(old).identity
            if not self._is_folder(old):
                raise not_found(self._display_path(source))
            self._make_folders(os.path.dirname(new))
            self._settle(os.path.dirname(new))
        except OSError as error:
            raise self._storage_error(error, "folder could not be moved", source) from error
        try:
            self._move(old, new)
        except OSError as error:
            # A network file system may repeat a call whose reply was lost, and then report that our own folder exists.
            if self._owner(identity, new) is not True:
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR) and self._posix_exists(new):
                    raise taken(self._display_path(target)) from error
                raise self._storage_error(error, "folder could not be moved", source) from error
        try:
            self._sync_folder(os.path.dirname(new))
            self._fsync_dir(os.path.dirname(old))
        except OSError as error:
            raise self._storage_error(
                error, "folder was moved but could not be synced", target, writing=True
            ) from error
        finally:
            self._forget(old)
            self._forget(new)

    def _move(self, old: str, new: str) -> None:
        try:
            self._posix.rename_noreplace(old, new)
        except OSError as error:
            if error.errno not in _NO_RENAME:
                raise
            # A plain rename can only replace an empty folder, so it is enough to check first.
            if self._posix_exists(new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
            self._posix.replace(old, new)

    def _forget(self, folder: str) -> None:
        """Drop the cached state of a folder that was moved or deleted."""
        for known in [known for known in self._disk.settled if known == folder or known.startswith(folder + "/")]:
            self._disk.settled.pop(known, None)
        self._inside.clear()

    def sub(self, path: str) -> LocalFileIO:
        """Return the same storage with a folder below as its root.

        Raises:
            FormatError: the folder is a symbolic link that leads outside the root.
        """
        below = LocalFileIO.__new__(LocalFileIO)
        below._bind(self._folder(normalize(path)), self._disk)
        return below

    def close(self) -> None:
        """Do nothing: no file stays open."""

    # -- paths

    def _file(self, path: str) -> str:
        """Return the absolute path of a file, after checking that its folder is inside the root."""
        return join(self._folder(parent(file_path(path))), path.rpartition("/")[2])

    def _folder(self, path: str) -> str:
        """Return the absolute path of a folder, after checking that it is inside the root with links resolved."""
        absolute = join(self._root, path)
        if path == "" or absolute in self._inside:
            return absolute
        self._check_inside(self._posix.realpath(absolute), path)
        if self._is_folder(absolute):
            # Remember only existing folders: a missing one could still become a link.
            self._inside.add(absolute)
        return absolute

    def _check_inside(self, real: str, path: str) -> None:
        if real != self._real_root and not real.startswith(self._real_root.rstrip("/") + "/"):
            raise FormatError(
                "path leaves the root through a symbolic link",
                code="path-escape",
                path=self._display_path(path),
                hint="replace the link by the folder or file itself, or open its target",
            )

    def _follow(self, target: str, path: str) -> str:
        """Return the target of a link in the last segment, after checking that it is inside the root."""
        real = self._posix.realpath(target)
        self._check_inside(real, path)
        return real

    def _open(self, path: str) -> InputFile:
        target = self._file(path)
        try:
            try:
                return self._posix.open_read(target)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                return self._posix.open_read(self._follow(target, path))
        except OSError as error:
            if error.errno == errno.EISDIR:
                raise not_found(self._display_path(path)) from error
            if error.errno in (errno.ENODEV, errno.ENXIO):
                raise FormatError(
                    "path is not a regular file", code="not-a-file", path=self._display_path(path)
                ) from error
            raise self._storage_error(error, "file could not be opened", path) from error

    def _stat(self, path: str) -> Stat | None:
        target = self._folder("") if path == "" else self._file(path)
        try:
            found = self._posix.lstat(target)
            if found.kind is Kind.LINK:
                found = self._posix.lstat(self._follow(target, path))
        except OSError as error:
            if error.errno in _MISSING:
                return None
            raise self._storage_error(error, "file could not be looked up", path) from error
        return found

    def _is_folder(self, absolute: str) -> bool:
        try:
            return self._posix.lstat(absolute).kind is Kind.FOLDER
        except OSError:
            return False

    # -- the order of writes and syncs

    def _write_new(self, absolute: str, data: bytes, *, sync: bool) -> None:
        """Create a file with this content, and its folders; if that fails, no file is left."""
        fd = self._open_new(absolute)
        try:
            try:
                self._posix.write(fd, data)
                if sync and self._disk.fsync:
                    self._posix.fsync(fd)
            finally:
                # On network file systems only `close` may report that a write failed, so its error counts.
                self._posix.close(fd)
        except OSError:
            self._unlink_quietly(absolute)
            raise

    def _open_new(self, absolute: str) -> int:
        # The folder nearly always exists, so try first. It may vanish again, because maintenance deletes empty folders.
        for tries_left in reversed(range(_FOLDER_TRIES)):
            try:
                return self._posix.open_new(absolute)
            except FileNotFoundError:
                if tries_left == 0:
                    raise
                self._make_folders(os.path.dirname(absolute))
        raise AssertionError

    def _make_folders(self, folder: str) -> None:
        missing = []
        while not self._is_folder(folder) and folder != os.path.dirname(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for made in reversed(missing):
            try:
                self._posix.mkdir(made)
            except FileExistsError:
                continue
            self._disk.settled.pop(made, None)
            if not made.startswith(self._disk.top.rstrip("/") + "/"):
                # At or above the root: `_settle` stops at the root and would not sync these.
                self._fsync_dir(os.path.dirname(made))

    def _sync_folder(self, folder: str) -> None:
        self._fsync_dir(folder)
        self._settle(folder)

    def _settle(self, folder: str) -> None:
        """Sync the names of the folder and of those above it, up to the opened root.

        Another process may have created a folder and not synced it yet, so every process syncs each folder once.
        """
        if not self._disk.fsync:
            return
        while folder.startswith(self._disk.top.rstrip("/") + "/"):
            above = os.path.dirname(folder)
            identity = self._posix.lstat(folder).identity
            if self._disk.settled.get(folder) != identity:
                self._posix.fsync_dir(above)
                self._disk.settled[folder] = identity
            folder = above

    def _fsync_dir(self, folder: str) -> None:
        if self._disk.fsync:
            self._posix.fsync_dir(folder)

    # -- publishing

    def _link(self, temporary: str, target: str, data: bytes, path: str) -> Outcome:
        try:
            self._posix.link(temporary, target)
        except OSError as error:
            if error.errno in _NO_LINK and self._owner(temporary, target) is None:
                return self._rename(temporary, target, data, path)
            return self._judge(error, self._owner(temporary, target), path)
        return Created()

    def _rename(self, temporary: str, target: str, data: bytes, path: str) -> Outcome:
        try:
            identity = self._posix.lstat(temporary).identity
        except OSError as error:
            raise self._storage_error(error, "file could not be published", path, writing=True) from error
        try:
            self._posix.rename_noreplace(temporary, target)
        except OSError as error:
            if error.errno in _NO_RENAME:
                return self._create(target, data, path)
            return self._judge(error, self._owner(identity, target), path)
        return Created()

    def _create(self, target: str, data: bytes, path: str) -> Outcome:
        """Create the file directly, as a last resort: it has one winner, but readers can see an incomplete file."""
        try:
            self._write_new(target, data, sync=True)
        except FileExistsError:
            return Exists()
        except OSError as error:
            if self._posix_exists(target):
                # The file is incomplete and could not be deleted. Readers detect that, so the outcome is not certain.
                return Unknown(error)
            raise self._storage_error(error, "file could not be published", path, writing=True) from error
        return Created()

    def _judge(self, error: OSError, ours: bool | None, path: str) -> Outcome:
        """Return the outcome of a failed publish, given whether the target is our file, another one, or not visible."""
        if ours:
            # A network file system may repeat a call whose reply was lost, and then report that our own file exists.
            return Created()
        if ours is False or error.errno == errno.EEXIST:
            return Exists()
        if error.errno in _REFUSED:
            raise self._storage_error(error, "file could not be published", path, writing=True) from error
        return Unknown(error)

    def _owner(self, mine: str | tuple[int, int], target: str) -> bool | None:
        """Return whether the target is our file; None if it does not exist or cannot be examined."""
        try:
            identity = self._posix.lstat(mine).identity if isinstance(mine, str) else mine
            return self._posix.lstat(target).identity == identity
        except OSError:
            return None

    def _posix_exists(self, absolute: str) -> bool:
        try:
            self._posix.lstat(absolute)
        except OSError as error:
            return error.errno not in _MISSING
        return True

    def _temporary(self, target: str) -> str:
        folder, name = os.path.split(target)
        ending = f".{self._disk.ids.uuid()}.tmp"
        # Cut long names so that the temporary name still fits; the UUID keeps it unique.
        kept = name.encode()[: SEGMENT_BYTES_MAX - len(ending) - 1].decode(errors="ignore")
        return os.path.join(folder, f".{kept}{ending}")

    def _unlink_quietly(self, absolute: str) -> None:
        try:
            self._posix.unlink(absolute)
        except OSError:
            return  # orphan cleaning deletes temporary files that are left behind

    def _display_path(self, path: str) -> str:
        return join(self._root, path)

    def _storage_error(self, error: OSError, message: str, path: str, *, writing: bool = False) -> TidelakeError:
        shown = self._display_path(path)
        if error.errno in _MISSING and not writing:
            return not_found(shown)
        if error.errno == errno.ENAMETOOLONG:
            return InvalidInputError("path is too long for the file system", code="invalid-path", path=shown)
        return StorageError(
            message,
            path=shown,
            reason=error.strerror or type(error).__name__,
            errno=errno.errorcode.get(error.errno or 0),
            hint=_HINTS.get(error.errno or 0, "check the disk and the mount, then try again"),
        )


def _status(path: str, found: Stat) -> FileStatus:
    folder = found.kind is Kind.FOLDER
    return FileStatus(path=path, size=0 if folder else found.size, modified_ms=found.modified_ms, is_dir=folder)


def _reopen(root: str, durability: Durability) -> LocalFileIO:
    return LocalFileIO(root, durability=durability)
