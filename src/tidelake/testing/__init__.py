"""Fakes that ship with the package: the ports of `io` with real semantics and failures on demand.

* `memory`: storage in memory
* `faulty`: storage and file system calls that fail by a plan
* `unsynced`: a local disk that forgets what was not synced
* `clock`: a clock that the test controls
* `simulation`: several processes on one storage, interleaved by a schedule
* `scenario`: the life of a table as steps, and a model of what it must hold
* `strategies`, `manifests`: Hypothesis strategies; `manifests` also has slow twins of the manifest code
* `aggregate`, `merge`, `binary_row`, `stats`: slow twins of the code of that name

A module is imported when one of its names is first used, so that importing one fake does not import them all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelake.testing.clock import FakeClock
    from tidelake.testing.faulty import Chance, Crash, Fault, FaultyFileIO, FaultyPosix, Op, PosixFault, TracingFileIO
    from tidelake.testing.memory import MemoryFileIO
    from tidelake.testing.unsynced import ForgettingPosix, UnsyncedFileIO

__all__ = [
    "Chance",
    "Crash",
    "FakeClock",
    "Fault",
    "FaultyFileIO",
    "FaultyPosix",
    "ForgettingPosix",
    "MemoryFileIO",
    "Op",
    "PosixFault",
    "TracingFileIO",
    "UnsyncedFileIO",
]

_HOMES = {
    "FakeClock": "clock",
    "ForgettingPosix": "unsynced",
    "MemoryFileIO": "memory",
    "UnsyncedFileIO": "unsynced",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        # `hasattr` and `from … import` rely on this exception, so it cannot be one of ours.
        raise AttributeError(name)
    module = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'faulty')}")
    return getattr(module, name)
