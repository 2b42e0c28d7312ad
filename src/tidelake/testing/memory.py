"""The memory storage among the fakes; it is defined in `tidelake.io.memory`, because `memory://` opens it."""

from tidelake.io.memory import MemoryFileIO

__all__ = ["MemoryFileIO"]
