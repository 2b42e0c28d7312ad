"""Storage that fails on demand: before the effect, after it, halfway, with a lost reply, or because the process dies.

Every operation is numbered and logged. A test runs its scenario once to count them, then once per number and kind of
fault, and so visits every point at which something can fail:

    clean = FaultyFileIO(MemoryFileIO())
    scenario(clean)
    for op in clean.ops:
        faulty = FaultyFileIO(MemoryFileIO(), {op.number: Fault.AFTER})
        ...

A `Crash` is a `BaseException`, because no handler of the code under test may catch it: none would run after `kill -9`.
After it every operation raises it again until `revive`, so that clean-up code that still runs cannot touch the storage.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from tidelake.errors import StorageError
from tidelake.io.executor import mutex
from tidelake.io.fileio import (
    BufferedOutput,
    FileIO,
    FileStatus,
    InputFile,
    Outcome,
    OutputFile,
    RangeFile,
    Unknown,
    join,
    not_found,
)
from tidelake.io.ids import SeededIds
from tidelake.io.posix import Posix, Stat

R = TypeVar("R")

READS = frozenset({"read", "read_range", "open_input", "input_read", "exists", "status", "list"})
"""The operations that change nothing."""


class Crash(BaseException):
    """The process died here."""


class Fault(Enum):
    """What goes wrong with an operation."""

    BEFORE = "before"
    """A storage error, and no effect."""
    AFTER = "after"
    """The effect, and a storage error; `create_exclusive` returns Unknown."""
    LOST = "lost"
    """`create_exclusive` returns Unknown without effect; others as BEFORE."""
    TORN = "torn"
    """`write` leaves a prefix of the bytes and fails; atomic operations fail without effect."""
    CRASH = "crash"
    """The process dies before the effect."""
    CRASH_AFTER = "crash_after"
    """The process dies after the effect."""
    NO_SPACE = "no_space"
    """As TORN, with the error of a full disk."""
    NOT_FOUND = "not_found"
    """A read fails because the file does not exist; others as BEFORE."""
    BROKEN = "broken"
    """An error that is not a storage error, and no effect."""
    INTERRUPT = "interrupt"
    """A KeyboardInterrupt before the effect; the process continues."""
    INTERRUPT_AFTER = "interrupt_after"
    """A KeyboardInterrupt after the effect; the process continues."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation on a storage. Numbers start at 1; the path is relative to the outermost root."""

    number: int
    name: str
    path: str


class Plan(Protocol):
    """Decides which operations fail."""

    def __call__(self, op: Op, /) -> Fault | None:
        """Return the fault of an operation, or None."""


class Chance:
    """Random faults from a seed, with probability `p` per operation, at most `max_faults` in total."""

    def __init__(
        self,
        seed: int,
        *,
        p: float = 0.01,
        max_faults: int = 100,
        faults: Sequence[Fault] = (Fault.BEFORE, Fault.AFTER, Fault.LOST, Fault.TORN, Fault.NO_SPACE, Fault.NOT_FOUND),
    ) -> None:
        self._ids = SeededIds(seed)
        self._p = p
        self._left = max_faults
        self._faults = tuple(faults)

    def __call__(self, op: Op, /) -> Fault | None:  # noqa: ARG002 - random
        if self._left == 0 or self._ids.random() >= self._p:
            return None
        self._left -= 1
        return self._faults[int(self._ids.random() * len(self._faults))]


@dataclass(slots=True)
class _OperationLog:
    """The log of operations and the state of the process, shared by a FileIO and all below it."""

    plan: Plan | None
    ops: list[Op]
    injected_faults: list[tuple[Op, Fault]]
    crashed: bool = False


class _WrappedFileIO(ABC):
    """A FileIO that wraps another and sends every operation through `_run`."""

    def __init__(self, inner: FileIO, prefix: str = "") -> None:
        self.inner = inner
        self._prefix = prefix

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def is_synchronous(self) -> bool:
        # Like an object store: an interrupted operation may still take effect.
        return False

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        return self._run("read", path, lambda: self.inner.read(path, limit=limit))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._run("read_range", path, lambda: self.inner.read_range(path, start, length))

    def open_input(self, path: str) -> InputFile:
        return self._run("open_input", path, lambda: self.inner.open_input(path))

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._run(
            "write",
            path,
            lambda: self.inner.write(path, data, durable=durable),
            torn=lambda: self.inner.write(path, data[: len(data) // 2], durable=durable),
        )

    def open_output(self, path: str, *, durable: bool = True) -> OutputFile:
        inner = self._run("open_output", path, lambda: self.inner.open_output(path, durable=durable))

        def put(data: bytes | memoryview) -> None:
            half = bytes(data)[: len(data) // 2]
            self._run("output_write", path, lambda: _write(inner, data), torn=lambda: _write(inner, half))

        def remove() -> None:
            inner.abort()
            self.inner.delete(path)

        def discard() -> None:
            # An abort is best effort, so a fault in it is not an error.
            with contextlib.suppress(StorageError):
                self._run("output_abort", path, remove)

        return BufferedOutput(put, lambda: self._run("output_close", path, inner.close), discard)

    def overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._run("overwrite", path, lambda: self.inner.overwrite(path, data, durable=durable))

    def create_exclusive(self, path: str, data: bytes) -> Outcome:
        return self._run("create_exclusive", path, lambda: self.inner.create_exclusive(path, data), lost=Unknown)

    def exists(self, path: str, *, folder: bool = True) -> bool:
        return self._run("exists", path, lambda: self.inner.exists(path, folder=folder))

    def status(self, path: str) -> FileStatus:
        return self._run("status", path, lambda: self.inner.status(path))

    def list(self, path: str) -> builtins.list[FileStatus]:
        return self._run("list", path, lambda: self.inner.list(path))

    def make_dir(self, path: str) -> None:
        self._run("make_dir", path, lambda: self.inner.make_dir(path))

    def delete(self, path: str) -> None:
        self._run("delete", path, lambda: self.inner.delete(path))

    def delete_dir(self, path: str) -> None:
        self._run("delete_dir", path, lambda: self.inner.delete_dir(path))

    def rename_dir(self, source: str, target: str) -> None:
        self._run("rename_dir", target, lambda: self.inner.rename_dir(source, target))

    def delete_empty_dir(self, path: str) -> bool:
        return self._run("delete_empty_dir", path, lambda: self.inner.delete_empty_dir(path))

    def sync(self, paths: Sequence[str]) -> None:
        self._run("sync", paths[0] if len(paths) == 1 else "", lambda: self.inner.sync(paths))

    def close(self) -> None:
        self.inner.close()

    @abstractmethod
    def _run(
        self,
        name: str,
        path: str,
        effect: Callable[[], R],
        *,
        torn: Callable[[], None] | None = None,
        lost: Callable[[BaseException], R] | None = None,
    ) -> R:
        """Run the effect, or fail."""


def _write(output: OutputFile, data: bytes | memoryview) -> None:
    output.write(data)


class _FaultyInput(RangeFile):
    """An open file; each of its reads is an operation of its own."""

    def __init__(self, inner: InputFile, run: Callable[[Callable[[], bytes]], bytes]) -> None:
        super().__init__(inner.size(), lambda start, length: run(lambda: self._fetch(start, length)))
        self._inner = inner

    def _fetch(self, start: int, length: int) -> bytes:
        self._inner.seek(start)
        return self._inner.read(length)

    def close(self) -> None:
        # Closing never fails: the kernel closes the files of a dead process too.
        self._inner.close()
        super().close()


class FaultyFileIO(_WrappedFileIO):
    """A `FileIO` whose operations fail by a plan: a mapping of operation numbers to faults, or a function."""

    def __init__(self, inner: FileIO, plan: Plan | Mapping[int, Fault | str] | None = None) -> None:
        super().__init__(inner)
        if isinstance(plan, Mapping):
            by_number = {number: Fault(fault) for number, fault in plan.items()}
            plan = lambda op: by_number.get(op.number)  # noqa: E731 - the mapping as a plan
        self._log = _OperationLog(plan, [], [])
        self._lock = mutex()

    @property
    def ops(self) -> builtins.list[Op]:
        """Every operation so far, including failed ones."""
        return self._log.ops

    @property
    def injected_faults(self) -> builtins.list[tuple[Op, Fault]]:
        """Every fault that was injected so far, with its operation."""
        return self._log.injected_faults

    @property
    def has_crashed(self) -> bool:
        """Whether the process has crashed and was not revived."""
        return self._log.crashed

    def revive(self) -> None:
        """Start the process again on the storage that the crash left."""
        self._log.crashed = False

    def open_input(self, path: str) -> InputFile:
        return _FaultyInput(super().open_input(path), lambda read: self._run("input_read", path, read))

    def sub(self, path: str) -> FaultyFileIO:
        below = FaultyFileIO.__new__(FaultyFileIO)
        _WrappedFileIO.__init__(below, self.inner.sub(path), join(self._prefix, path))
        below._log = self._log
        below._lock = self._lock
        return below

    def _run(
        self,
        name: str,
        path: str,
        effect: Callable[[], R],
        *,
        torn: Callable[[], None] | None = None,
        lost: Callable[[BaseException], R] | None = None,
    ) -> R:
        op, fault = self._next(name, join(self._prefix, path))
        if fault is None:
            return effect()
        error = StorageError("fault was injected", op=op.name, number=op.number, path=op.path, fault=fault.value)
        match fault:
            case Fault.CRASH:
                raise self._die()
            case Fault.CRASH_AFTER:
                effect()
                raise self._die()
            case Fault.BROKEN:
                raise RuntimeError("fault was injected")
            case Fault.INTERRUPT:
                raise KeyboardInterrupt
            case Fault.INTERRUPT_AFTER:
                effect()
                raise KeyboardInterrupt
            case Fault.AFTER:
                effect()
                if lost is not None:
                    return lost(error)
            case Fault.LOST if lost is not None:
                return lost(error)
            case Fault.TORN | Fault.NO_SPACE if torn is not None:
                torn()
            case Fault.NOT_FOUND if name in READS - {"exists", "list"}:
                raise not_found(op.path)
        if fault is Fault.NO_SPACE:
            error = StorageError("disk is full", op=op.name, path=op.path, errno="ENOSPC")
        raise error

    def _next(self, name: str, path: str) -> tuple[Op, Fault | None]:
        with self._lock:
            log = self._log
            if log.crashed:
                raise Crash
            op = Op(len(log.ops) + 1, name, path)
            log.ops.append(op)
            fault = log.plan(op) if log.plan is not None else None
            if fault is not None:
                log.injected_faults.append((op, fault))
            return op, fault

    def _die(self) -> Crash:
        self._log.crashed = True
        return Crash()


class TracingFileIO(_WrappedFileIO):
    """A `FileIO` that records every path it was called with, relative to the outermost root."""

    def __init__(self, inner: FileIO) -> None:
        super().__init__(inner)
        self.ops: builtins.list[Op] = []
        self._lock = mutex()

    @property
    def paths(self) -> set[str]:
        """Every path touched so far."""
        return {op.path for op in self.ops}

    def sub(self, path: str) -> TracingFileIO:
        below = TracingFileIO.__new__(TracingFileIO)
        _WrappedFileIO.__init__(below, self.inner.sub(path), join(self._prefix, path))
        below.ops = self.ops
        below._lock = self._lock
        return below

    def sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._note("sync", path)
        self.inner.sync(paths)

    def _run(
        self,
        name: str,
        path: str,
        effect: Callable[[], R],
        *,
        torn: Callable[[], None] | None = None,  # noqa: ARG002 - nothing goes wrong here
        lost: Callable[[BaseException], R] | None = None,  # noqa: ARG002 - nothing goes wrong here
    ) -> R:
        self._note(name, path)
        return effect()

    def _note(self, name: str, path: str) -> None:
        with self._lock:
            self.ops.append(Op(len(self.ops) + 1, name, join(self._prefix, path)))


@dataclass(frozen=True, slots=True)
class PosixFault:
    """The `nth` call of one kind fails with an errno; with `after` it has its effect first."""

    call: str
    number: int
    nth: int = 1
    after: bool = False


class FaultyPosix:
    """A file system below `LocalFileIO` with calls that fail, or one at which the process crashes."""

    def __init__(self, inner: Posix, faults: Iterable[PosixFault] = (), *, crash_at: int | None = None) -> None:
        self.inner = inner
        self.calls: list[tuple[str, str]] = []
        self.crash_at = crash_at
        self.crashed = False
        self._faults = {(fault.call, fault.nth): fault for fault in faults}
        self._counts: dict[str, int] = {}
        self._lock = mutex()

    def revive(self) -> None:
        """Start the process again, with no further crash planned."""
        self.crashed = False
        self.crash_at = None

    def open_new(self, path: str) -> int:
        return self._call("open_new", path, lambda: self.inner.open_new(path))

    def write(self, fd: int, data: bytes | memoryview) -> None:
        self._call("write", "", lambda: self.inner.write(fd, data))

    def fsync(self, fd: int) -> None:
        self._call("fsync", "", lambda: self.inner.fsync(fd))

    def close(self, fd: int) -> None:
        if self.crashed:
            # The kernel closes the files of a dead process.
            self.inner.close(fd)
        self._call("close", "", lambda: self.inner.close(fd))

    def open_read(self, path: str) -> InputFile:
        return self._call("open_read", path, lambda: self.inner.open_read(path))

    def fsync_file(self, path: str) -> None:
        self._call("fsync_file", path, lambda: self.inner.fsync_file(path))

    def fsync_dir(self, path: str) -> None:
        self._call("fsync_dir", path, lambda: self.inner.fsync_dir(path))

    def link(self, source: str, target: str) -> None:
        self._call("link", target, lambda: self.inner.link(source, target))

    def rename_noreplace(self, source: str, target: str) -> None:
        self._call("rename_noreplace", target, lambda: self.inner.rename_noreplace(source, target))

    def replace(self, source: str, target: str) -> None:
        self._call("replace", target, lambda: self.inner.replace(source, target))

    def unlink(self, path: str) -> None:
        self._call("unlink", path, lambda: self.inner.unlink(path))

    def mkdir(self, path: str) -> None:
        self._call("mkdir", path, lambda: self.inner.mkdir(path))

    def lstat(self, path: str) -> Stat:
        return self._call("lstat", path, lambda: self.inner.lstat(path))

    def scandir(self, path: str) -> list[tuple[str, Stat]]:
        return self._call("scandir", path, lambda: self.inner.scandir(path))

    def remove_tree(self, path: str) -> None:
        self._call("remove_tree", path, lambda: self.inner.remove_tree(path))

    def remove_empty(self, path: str) -> None:
        self._call("remove_empty", path, lambda: self.inner.remove_empty(path))

    def realpath(self, path: str) -> str:
        return self.inner.realpath(path)

    def _call(self, name: str, path: str, effect: Callable[[], R]) -> R:
        with self._lock:
            if self.crashed:
                raise Crash
            self.calls.append((name, path))
            if len(self.calls) == self.crash_at:
                self.crashed = True
                raise Crash
            self._counts[name] = self._counts.get(name, 0) + 1
            fault = self._faults.get((name, self._counts[name]))
        if fault is None:
            return effect()
        if fault.after:
            effect()
        raise OSError(fault.number, os.strerror(fault.number) if fault.number in errno.errorcode else "injected")
