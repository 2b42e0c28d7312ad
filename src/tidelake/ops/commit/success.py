"""Marking partitions done with a `_SUCCESS` file, for jobs that wait for complete partitions."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tidelake.errors import FormatError, NotFoundError
from tidelake.io.clock import Clock
from tidelake.io.fileio import FileIO
from tidelake.spec.documents.success import Success, mark_success, success_from_json, success_to_json
from tidelake.spec.layout import TableLayout


def mark_done(io: FileIO, layout: TableLayout, partition_paths: Iterable[str], clock: Clock) -> list[str]:
    """Write or refresh the marker of each partition and return the paths written.

    A marker that is there keeps its creation time; a damaged one is replaced.
    """
    written = []
    for partition in partition_paths:
        path = layout.success_path(partition)
        previous: Success | None = None
        with suppress(NotFoundError, FormatError):
            previous = success_from_json(io.read(path, limit=1 << 16), path=path)
        io.overwrite(path, success_to_json(mark_success(previous, time_ms=clock.now_ms())))
        written.append(path)
    return written
