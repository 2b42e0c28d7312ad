"""Fakes that ship with the package: the same doors, with real semantics and failures on demand.

Names are loaded when they are first used, so that importing one fake does not import them all.
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
        # The language asks for this class here: `hasattr` and `from … import` rely on it.
        raise AttributeError(name)
    module = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'faulty')}")
    return getattr(module, name)
