"""Open files as Arrow's threads may hold them.

Arrow reads and decodes on threads of its own, and they let go of a file or buffer a moment after the call that wanted
it has returned. Where that is an object of Python they need the interpreter's lock for it, and if the interpreter ends
in that moment the process aborts ("terminate called without an active exception"). So these threads are never given an
object of Python: a local file is opened once more by Arrow itself, of any other the bytes are copied into its memory.
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
    """Open a file of the operating system once more, as Arrow's own; None where it is not one."""
    # A subclass may watch or change what is read, which Arrow would pass by.
    if type(file) is not OsFile or sys.platform != "linux":
        return None
    try:
        # By its descriptor and not by its name: a name may mean another file by now, or lead through a link.
        return pa.OSFile(f"/proc/self/fd/{file.fileno()}")
    except OSError:
        return None  # a container without /proc


def copy_ranges(file: InputFile, size: int, ranges: Iterable[Range]) -> pa.BufferReader:
    """Copy ranges of a file to their places in a buffer of its size, which Arrow reads like the file.

    What lies between the ranges is never written, so that it takes addresses but no memory.

    Raises:
        FormatError: the file ends before a range does.
        StorageError: the storage failed.
    """
    buffer = pa.allocate_buffer(size)
    target = np.frombuffer(buffer, np.uint8)
    for start, data in read_ranges(file, ranges):
        target[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return pa.BufferReader(buffer)
