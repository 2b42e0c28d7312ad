"""The ports in one value: what a verb needs from the outside world, created at the edge and visible in signatures."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelake.io.cache import Cache
from tidelake.io.clock import Clock, SystemClock
from tidelake.io.executor import Executor, SerialExecutor
from tidelake.io.fileio import FileIO
from tidelake.io.ids import Ids, SystemIds
from tidelake.io.lock import Lock, NoLock


@dataclass(frozen=True, slots=True)
class Env:
    """Storage, clock, identifiers and executor. The defaults are those of the machine, with one thread.

    `unsafe_commit` allows commits to a storage that cannot create a file exclusively.
    `cache` keeps small files that never change. `lock` is held while a snapshot is published.
    """

    io: FileIO
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    executor: Executor = field(default_factory=SerialExecutor)
    unsafe_commit: bool = False
    cache: Cache | None = None
    lock: Lock = field(default_factory=NoLock)

    def close(self) -> None:
        """Stop the threads and close the connections."""
        self.executor.close()
        self.io.close()
