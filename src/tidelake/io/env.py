"""The doors in one hand: what a verb needs from the outside world, given at the edge and visible in signatures."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelake.io.cache import Cache
from tidelake.io.clock import Clock, SystemClock
from tidelake.io.executor import Executor, SerialExecutor
from tidelake.io.fileio import FileIO
from tidelake.io.ids import Ids, SystemIds


@dataclass(frozen=True, slots=True)
class Env:
    """Bytes, time, identity and concurrency. The defaults are the machine's own, one thread.

    `unsafe_commit` tells that the bytes may be committed to although their storage cannot create a file exclusively.
    `cache` keeps small files that never change.
    """

    io: FileIO
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    executor: Executor = field(default_factory=SerialExecutor)
    unsafe_commit: bool = False
    cache: Cache | None = None

    def close(self) -> None:
        """Stop the threads and let go of the connections."""
        self.executor.close()
        self.io.close()
