"""The memory storage under the name tests look for; it lives in `tidelake.io.memory`, because `memory://` opens it."""

from tidelake.io.memory import MemoryFileIO

__all__ = ["MemoryFileIO"]
