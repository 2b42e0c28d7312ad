"""A local disk that forgets what was not synced.

`ForgettingPosix` has two states of every file and folder: what processes see, and what certainly survives a power loss.
`fsync` of a file makes its bytes certain, `fsync` of a folder the names in it; nothing else does. At `crash` a seed
decides the rest: any subset of the names that were added or removed since the last sync of their folder survives, and a
file that was not synced comes back old, empty, truncated, zeroed or complete. A rename survives completely or not at
all, also between two folders, because file systems record it as one change. That is harsher than most file systems, and
what POSIX allows.

`UnsyncedFileIO` is the unchanged `LocalFileIO` over this disk: tests check the order of syncs that production runs.
"""

from __future__ import annotations

import errno
import os
import posixpath
from dataclasses import dataclass, field

from tidelake.io.clock import Clock, SystemClock
from tidelake.io.executor import mutex
from tidelake.io.fileio import BytesFile, InputFile
from tidelake.io.ids import Ids, SeededIds
from tidelake.io.local import LocalFileIO
from tidelake.io.posix import Kind, Stat
from tidelake.testing.faulty import FaultyPosix


@dataclass(slots=True, eq=False)
class _Fate:
    """Whether a change survives a crash; both halves of a rename between folders share one."""

    survives: bool | None = None

    def decide(self, ids: Ids) -> bool:
        if self.survives is None:
            self.survives = ids.random() < 0.5
        return self.survives


@dataclass(slots=True, eq=False)
class _Node:
    """A file or folder, as seen and as synced. `changes` are those of its names since it was synced."""

    number: int
    modified_ms: int
    folder: bool = False
    data: bytes = b""
    synced_data: bytes | None = None
    names: dict[str, _Node] = field(default_factory=dict)
    synced_names: dict[str, _Node] = field(default_factory=dict)
    changes: list[tuple[dict[str, _Node | None], _Fate]] = field(default_factory=list)

    def change(self, change: dict[str, _Node | None], fate: _Fate | None = None) -> None:
        """Set names, or remove those with None; all or none of these changes survive a crash."""
        self.changes.append((change, fate or _Fate()))
        _apply(self.names, change)


class ForgettingPosix:
    """A file system in memory with exactly the durability that POSIX guarantees."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = mutex()
        self._count = 0
        self._root = self._node(folder=True)
        self._open: dict[int, _Node] = {}
        self._fd = 1_000

    def crash(self, seed: int) -> None:
        """Lose power: the seed decides how much of what was not synced survives."""
        with self._lock:
            ids = SeededIds(seed)
            self._open.clear()
            todo = [self._root]
            seen: set[int] = set()
            while todo:
                node = todo.pop()
                if node.number in seen:
                    continue
                seen.add(node.number)
                if node.folder:
                    names = dict(node.synced_names)
                    for change, fate in node.changes:
                        if fate.decide(ids):
                            _apply(names, change)
                    node.names, node.synced_names, node.changes = names, dict(names), []
                    todo += [names[name] for name in sorted(names)]
                elif node.synced_data != node.data:
                    node.data = _forget(node, ids)
                    node.synced_data = node.data

    def open_new(self, path: str) -> int:
        with self._lock:
            folder, name = self._parent(path)
            if name in folder.names:
                raise _error(errno.EEXIST)
            node = self._node(folder=False)
            folder.change({name: node})
            self._fd += 1
            self._open[self._fd] = node
            return self._fd

    def write(self, fd: int, data: bytes | memoryview) -> None:
        with self._lock:
            node = self._descriptor(fd)
            node.data += bytes(data)
            node.modified_ms = self._clock.now_ms()

    def fsync(self, fd: int) -> None:
        with self._lock:
            node = self._descriptor(fd)
            node.synced_data = node.data

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)

    def open_read(self, path: str) -> InputFile:
        with self._lock:
            node = self._find(path)
            if node.folder:
                raise _error(errno.EISDIR)
            return BytesFile(node.data)

    def fsync_file(self, path: str) -> None:
        with self._lock:
            node = self._find(path)
            node.synced_data = node.data

    def fsync_dir(self, path: str) -> None:
        with self._lock:
            node = self._find(path)
            if not node.folder:
                raise _error(errno.ENOTDIR)
            for _, fate in node.changes:
                fate.survives = True
            node.synced_names, node.changes = dict(node.names), []

    def link(self, source: str, target: str) -> None:
        with self._lock:
            node = self._find(source)
            folder, name = self._parent(target)
            if name in folder.names:
                raise _error(errno.EEXIST)
            folder.change({name: node})

    def rename_noreplace(self, source: str, target: str) -> None:
        with self._lock:
            folder, name = self._parent(target)
            if name in folder.names:
                raise _error(errno.EEXIST)
            self.replace(source, target)

    def replace(self, source: str, target: str) -> None:
        with self._lock:
            node = self._find(source)
            old_folder, old_name = self._parent(source)
            folder, name = self._parent(target)
            if folder is old_folder:
                folder.change({name: node, old_name: None})
            else:
                fate = _Fate()
                folder.change({name: node}, fate)
                old_folder.change({old_name: None}, fate)

    def unlink(self, path: str) -> None:
        with self._lock:
            if self._find(path).folder:
                raise _error(errno.EISDIR)
            folder, name = self._parent(path)
            folder.change({name: None})

    def mkdir(self, path: str) -> None:
        with self._lock:
            folder, name = self._parent(path)
            if name in folder.names:
                raise _error(errno.EEXIST)
            folder.change({name: self._node(folder=True)})

    def lstat(self, path: str) -> Stat:
        with self._lock:
            return _stat(self._find(path))

    def scandir(self, path: str) -> list[tuple[str, Stat]]:
        with self._lock:
            node = self._find(path)
            if not node.folder:
                raise _error(errno.ENOTDIR)
            return [(name, _stat(child)) for name, child in node.names.items()]

    def remove_tree(self, path: str) -> None:
        with self._lock:
            top = self._find(path)
            todo = [top]
            while todo:
                node = todo.pop()
                for name, child in list(node.names.items()):
                    node.change({name: None})
                    if child.folder:
                        todo.append(child)
            folder, name = self._parent(path)
            folder.change({name: None})

    def remove_empty(self, path: str) -> None:
        with self._lock:
            node = self._find(path)
            if not node.folder or node.names:
                raise _error(errno.ENOTEMPTY if node.folder else errno.ENOTDIR)
            folder, name = self._parent(path)
            folder.change({name: None})

    def realpath(self, path: str) -> str:
        return posixpath.normpath(path)

    def _node(self, *, folder: bool) -> _Node:
        self._count += 1
        return _Node(self._count, self._clock.now_ms(), folder=folder)

    def _descriptor(self, fd: int) -> _Node:
        if fd not in self._open:
            raise _error(errno.EBADF)
        return self._open[fd]

    def _find(self, path: str) -> _Node:
        node = self._root
        for name in path.split("/"):
            if not name:
                continue
            if not node.folder:
                raise _error(errno.ENOTDIR)
            if name not in node.names:
                raise _error(errno.ENOENT)
            node = node.names[name]
        return node

    def _parent(self, path: str) -> tuple[_Node, str]:
        above, _, name = path.rpartition("/")
        node = self._find(above)
        if not node.folder:
            raise _error(errno.ENOTDIR)
        return node, name


class UnsyncedFileIO(LocalFileIO):
    """The local storage on a disk that forgets; `crash_at` kills the process at a call, `crash` cuts the power."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        crash_at: int | None = None,
        durability: str = "fsync",
    ) -> None:
        self.disk = ForgettingPosix(clock=clock)
        self.faults = FaultyPosix(self.disk, crash_at=crash_at)
        super().__init__(
            "/lake",
            durability="fsync" if durability == "fsync" else "none",
            ids=ids or SeededIds(0),
            posix=self.faults,
        )

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Every file system call so far, by name and path; `crash_at` counts these."""
        return self.faults.calls

    def crash(self, seed: int) -> None:
        """Cut the power and start again; the seed decides what survives."""
        self.disk.crash(seed)
        self.faults.revive()
        self._disk.settled.clear()
        self._inside.clear()


def _apply(names: dict[str, _Node], change: dict[str, _Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _forget(node: _Node, ids: Ids) -> bytes:
    """Return what a file that was not synced has after a power loss."""
    cut = int(ids.random() * (len(node.data) + 1))
    choices = (node.synced_data or b"", b"", node.data[:cut], node.data[:cut].ljust(len(node.data), b"\0"), node.data)
    return choices[int(ids.random() * len(choices))]


def _stat(node: _Node) -> Stat:
    return Stat(len(node.data), node.modified_ms, Kind.FOLDER if node.folder else Kind.FILE, (0, node.number))


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
