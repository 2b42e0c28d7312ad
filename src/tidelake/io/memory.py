"""A storage in the memory of the process, for tests, demonstrations and `memory://`.

It follows the contract of `FileIO` exactly, so that tests on it are meaningful: one winner per name, no incomplete
reads, folders that exist as long as their files. Stores have names within the process, so that `memory://demo` opened
twice is the same lake.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tidelake.errors import InvalidInputError, StorageError
from tidelake.io.clock import Clock, SystemClock
from tidelake.io.fileio import (
    BufferedOutput,
    BytesFile,
    Created,
    Exists,
    FileStatus,
    InputFile,
    Outcome,
    OutputFile,
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


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    modified_ms: int


@dataclass(slots=True)
class _Store:
    """All files of one named store. `folders` maps each folder to the names in it."""

    name: str
    clock: Clock
    lock: threading.RLock = field(default_factory=threading.RLock)
    files: dict[str, _File] = field(default_factory=dict)
    folders: dict[str, set[str]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)


_NAMED: dict[str, _Store] = {}
_NAMED_LOCK = threading.Lock()


class MemoryFileIO:
    """A `FileIO` in memory. Without a name the store is private to this object."""

    def __init__(self, name: str | None = None, *, clock: Clock | None = None) -> None:
        if name is None:
            self._bind("", _Store("", clock or SystemClock()))
            return
        if not name or "/" in name:
            raise InvalidInputError("name of a memory store is empty or has a slash", name=name)
        with _NAMED_LOCK:
            store = _NAMED.setdefault(name, _Store(name, clock or SystemClock()))
        self._bind("", store)

    def _bind(self, prefix: str, store: _Store) -> None:
        self._prefix = prefix
        self._store = store

    @property
    def root(self) -> str:
        """The location as `memory://name/path`."""
        return f"memory://{self._store.name}" + (f"/{self._prefix}" if self._prefix else "")

    @property
    def is_synchronous(self) -> bool:
        """True: a call has no effect after it ended."""
        return True

    def __repr__(self) -> str:
        return f"MemoryFileIO({self.root if hasattr(self, '_store') else '…'!r})"

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            "memory storage cannot be sent to another process", root=self.root, hint="use a folder or an object store"
        )

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """Read the whole file.

        Raises:
            NotFoundError: the file does not exist.
            FormatError: it is larger than `limit`.
        """
        data = self._get(path).data
        if limit is not None and len(data) > limit:
            raise too_large(self._display_path(path), len(data), limit)
        return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read exactly `length` bytes from `start`.

        Raises:
            NotFoundError: the file does not exist.
            FormatError: the file ends before that.
        """
        check_range(start, length)
        data = self._get(path).data
        if start + length > len(data):
            raise truncated(self._display_path(path), start, length, len(data))
        return data[start : start + length]

    def open_input(self, path: str) -> InputFile:
        """Open the file for random access.

        Raises:
            NotFoundError: the file does not exist.
        """
        return BytesFile(self._get(path).data)

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002 - memory is never durable
        """Write a new file.

        Raises:
            StorageError: the name is taken.
        """
        if isinstance(self.create_exclusive(path, data), Exists):
            raise taken(self._display_path(path))

    def open_output(self, path: str, *, durable: bool = True) -> OutputFile:  # noqa: ARG002 - memory is never durable
        """Write a new file piece by piece; it appears when it is closed.

        Raises:
            StorageError: the name is taken.
        """
        if self.exists(path, folder=False):
            raise taken(self._display_path(path))
        pieces: list[bytes] = []
        return BufferedOutput(
            lambda data: pieces.append(bytes(data)), lambda: self.write(path, b"".join(pieces)), pieces.clear
        )

    def overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:  # noqa: ARG002 - see write
        """Replace the file.

        Raises:
            StorageError: a folder has the name, or a file the name of one of its folders.
        """
        key = self._key(path)
        with self._store.lock:
            self._set_file(key, data)

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        """Publish the file unless the name is taken.

        Raises:
            StorageError: a file has the name of one of its folders.
        """
        key = self._key(path)
        with self._store.lock:
            if key in self._store.files or key in self._store.folders:
                return Exists()
            self._set_file(key, data)
            return Created()

    def exists(self, path: str, *, folder: bool = True) -> bool:
        """Return whether a file, or with `folder` a folder, has this name."""
        key = join(self._prefix, normalize(path))
        with self._store.lock:
            return key in self._store.files or (folder and key in self._store.folders)

    def status(self, path: str) -> FileStatus:
        """Return size, time and kind of a file or folder.

        Raises:
            NotFoundError: neither exists.
        """
        with self._store.lock:
            found = self._status(path, join(self._prefix, normalize(path)))
        if found is None:
            raise not_found(self._display_path(path))
        return found

    def list(self, path: str) -> builtins.list[FileStatus]:
        """Return the direct children of a folder sorted by name."""
        key = join(self._prefix, normalize(path))
        with self._store.lock:
            names = sorted(self._store.folders.get(key, ()), key=str.encode)
            found = [self._status(join(path, name), join(key, name)) for name in names]
        return [status for status in found if status is not None]

    def make_dir(self, path: str) -> None:
        """Make sure that the folder exists.

        Raises:
            StorageError: a file has the name.
        """
        key = join(self._prefix, normalize(path))
        with self._store.lock:
            self._add_folders(key)
            self._store.kept.add(key)

    def delete(self, path: str) -> None:
        """Delete a file; do nothing if it does not exist.

        Raises:
            InvalidInputError: it is a folder.
        """
        key = self._key(path)
        with self._store.lock:
            if key in self._store.folders:
                raise InvalidInputError(
                    "path is a folder", path=self._display_path(path), hint="use delete_dir to remove a folder"
                )
            if self._store.files.pop(key, None) is not None:
                self._drop(key)

    def delete_empty_dir(self, path: str) -> bool:
        """Delete a folder if it is empty, and return whether it was."""
        key = self._key(path)
        with self._store.lock:
            if self._store.folders.get(key, {""}):
                return False
            del self._store.folders[key]
            self._store.kept.discard(key)
            self._drop(key)
            return True

    def delete_dir(self, path: str) -> None:
        """Delete a folder and everything below it; do nothing if it does not exist.

        Raises:
            InvalidInputError: the path is the root.
        """
        key = self._key(path)
        store = self._store
        with store.lock:
            below = key + "/"
            gone_files = [name for name in store.files if name == key or name.startswith(below)]
            gone_folders = [name for name in store.folders if name == key or name.startswith(below)]
            for name in gone_files:
                del store.files[name]
            for name in gone_folders:
                del store.folders[name]
                store.kept.discard(name)
            if gone_files or gone_folders:
                self._drop(key)

    def rename_dir(self, source: str, target: str) -> None:
        """Move a folder and everything below it to a free name.

        Raises:
            NotFoundError: the folder does not exist.
            InvalidInputError: one of the two is the root, or one is inside the other.
            StorageError: the new name is taken.
        """
        check_move(source, target)
        old, new = self._key(source), self._key(target)
        store = self._store
        with store.lock:
            if old not in store.folders:
                raise not_found(self._display_path(source))
            if new in store.files or new in store.folders:
                raise taken(self._display_path(target))
            self._add_folders(parent(new))
            moved = {name: new + name[len(old) :] for name in (*store.files, *store.folders) if _below(name, old)}
            store.files = {moved.get(name, name): file for name, file in store.files.items()}
            store.folders = {moved.get(name, name): names for name, names in store.folders.items()}
            store.kept = {moved.get(name, name) for name in store.kept}
            store.folders[parent(new)].add(new.rpartition("/")[2])
            self._drop(old)

    def sync(self, paths: Sequence[str]) -> None:
        """Check that the files exist; memory is never durable.

        Raises:
            NotFoundError: one of them does not exist.
        """
        for path in paths:
            if path:
                self.status(path)

    def sub(self, path: str) -> MemoryFileIO:
        """Return the same storage with a folder below as its root."""
        below = MemoryFileIO.__new__(MemoryFileIO)
        below._bind(join(self._prefix, normalize(path)), self._store)
        return below

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _key(self, path: str) -> str:
        return join(self._prefix, file_path(path))

    def _get(self, path: str) -> _File:
        key = self._key(path)
        with self._store.lock:
            found = self._store.files.get(key)
        if found is None:
            raise not_found(self._display_path(path))
        return found

    def _status(self, path: str, key: str) -> FileStatus | None:
        if (file := self._store.files.get(key)) is not None:
            return FileStatus(path, len(file.data), file.modified_ms, is_dir=False)
        if key in self._store.folders or key == "":
            return FileStatus(path, 0, 0, is_dir=True)
        return None

    def _set_file(self, key: str, data: bytes) -> None:
        if key in self._store.folders:
            raise self._name_clash_error(key)
        self._add_folders(parent(key))
        self._store.folders[parent(key)].add(key.rpartition("/")[2])
        self._store.files[key] = _File(bytes(data), self._store.clock.now_ms())

    def _add_folders(self, key: str) -> None:
        chain = [key]
        while key:
            key = parent(key)
            chain.append(key)
        if blocked := next((name for name in chain if name in self._store.files), None):
            raise self._name_clash_error(blocked)
        for name in chain:
            self._store.folders.setdefault(name, set())
            if name:
                self._store.folders.setdefault(parent(name), set()).add(name.rpartition("/")[2])

    def _drop(self, key: str) -> None:
        """Remove the name from its folder, and every folder that becomes empty."""
        while key:
            above = parent(key)
            names = self._store.folders.get(above, set())
            names.discard(key.rpartition("/")[2])
            if names or above in self._store.kept:
                return
            self._store.folders.pop(above, None)
            key = above

    def _name_clash_error(self, key: str) -> StorageError:
        return StorageError("file and folder cannot have the same name", path=f"memory://{key}")

    def _display_path(self, path: str) -> str:
        return join(self.root, path)


def _below(name: str, folder: str) -> bool:
    return name == folder or name.startswith(folder + "/")
