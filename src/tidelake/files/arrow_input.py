"""Opens files for Arrow without giving its threads Python objects.

Arrow reads and decodes on its own threads, and these release a file or buffer a moment after the call that needed it
has returned. If that is a Python object, they need the interpreter's lock for it, and if the interpreter exits at that
moment, the process aborts ("terminate called without an active exception"). So Arrow opens a local file a second time
itself, and the bytes of any other file are copied into Arrow's memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidelake.files.ranges import Range, read_ranges
from tidelake.io.fileio import InputFile
from tidelake.io.posix import OsFile

__all__ = ["copy_ranges", "open_natively"]


def open_natively(file: InputFile) -> pa.NativeFile | None:
    """Let Arrow open an operating system file a second time; return None for any other file."""
    # A subclass may observe or change what is read, which Arrow would bypass.
    if type(file) is not OsFile or sys.platform != "linux":
        return None
    try:
        # Open it by descriptor: by now its name may belong to another file, or lead through a link.
        return pa.OSFile(f"/proc/self/fd/{file.fileno()}")
    except OSError:
        return None  # a container without /proc


def copy_ranges(file: InputFile, size: int, ranges: Iterable[Range]) -> pa.BufferReader:
    """Copy ranges of a file to the same offsets of a buffer of its size, which Arrow reads like the file.

    Memory between the ranges is never touched, so it takes address space but no memory.

    Raises:
        FormatError: the file ends before a range does.
        StorageError: the storage failed.
    """
    buffer = pa.allocate_buffer(size)
    target = np.frombuffer(buffer, np.uint8)
    for start, data in read_ranges(file, ranges):
        target[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return pa.BufferReader(buffer)
