"""Spill: sorted runs of each bucket on local disk, merged when the bucket is written.

Runs hold every version of a key that may still count, and not merged versions. So the result is the same as merging all
rows at once, even where merging in parts differs (a value is retracted before it is added). A run is cut into segments
between two keys, so the windows of the merge hold all versions of their keys.

Invariant: a merge needs memory for about a block of rows, or for one segment of each run, or for the versions of one
key, whichever is the most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.io.executor import Executor
from tidelake.io.scratch import Extent, ScratchFile
from tidelake.lsm.kernel import MergePlan, merge_rows, sort_versions
from tidelake.lsm.keys import KeyArray, KeyCodec, count_up_to, first_and_last, slice_keys
from tidelake.ops.write.buffer import SortedRows
from tidelake.ops.write.keyed_options import KeyedWriteOptions

_SEGMENT_BYTES_MIN: Final = 64 << 10
_MERGE_SHARE: Final = 4
"""A merge reads a quarter of a block of rows, so that its windows and their results fit into a block too."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Sorted rows of one bucket on disk; none of their keys is in another segment of the run."""

    extent: Extent
    unique: bool
    """Whether every key has one row."""


@dataclass(frozen=True, slots=True)
class Window:
    """Rows with all versions of their keys."""

    rows: pa.Table
    unique: bool
    """Whether every key has one row; then the rows are sorted."""

    def merge_rows(self, plan: MergePlan) -> pa.Table:
        """Merge the rows to one row per key, in the order of keys.

        Raises:
            InvalidInputError: a version is one the engine does not accept.
        """
        return self.rows if self.unique else merge_rows(self.rows, plan)

    def sort_rows(self, plan: MergePlan) -> pa.Table:
        """Sort all rows by key, versions of a key oldest first."""
        return self.rows if self.unique else sort_versions(self.rows, plan)


Run = Sequence[Segment]


@dataclass(slots=True)
class Spill:
    """The sorted runs of all buckets of a writer, in one temporary file. Threads may share it for reading only."""

    options: KeyedWriteOptions
    _file: ScratchFile | None = None
    _runs: dict[int, list[list[Segment]]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Local disk in use."""
        return 0 if self._file is None else self._file.size

    @property
    def places(self) -> tuple[int, ...]:
        """The places with spilled rows."""
        return tuple(self._runs)

    @property
    def full(self) -> bool:
        """Whether no more rows may be spilled: the disk limit is reached, or a merge would have too many runs."""
        most = max(map(len, self._runs.values()), default=0)
        return self.bytes >= self.options.spill_bytes or most >= self.options.spill_files

    def add(self, parts: Sequence[SortedRows], executor: Executor) -> None:
        """Write one sorted run of each place.

        Raises:
            InvalidInputError: the codec is not known.
            StorageError: the local disk failed.
        """
        file = self._file = self._file or ScratchFile()
        options = pa.ipc.IpcWriteOptions(compression=self._codec())
        pieces = [(part, start, end) for part in parts for start, end in self._cuts(part)]

        def encode(piece: tuple[SortedRows, int, int]) -> pa.Buffer:
            part, start, end = piece
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.rows.schema, options=options) as stream:
                stream.write_table(part.rows.slice(start, end - start))
            return sink.getvalue()

        for part in parts:
            self._runs.setdefault(part.place, []).append([])
        step = 64  # encoded pieces need memory until they are written
        for first in range(0, len(pieces), step):
            chosen = pieces[first : first + step]
            for (part, _, _), encoded in zip(chosen, executor.map(encode, chosen), strict=True):
                self._runs[part.place][-1].append(Segment(file.append(encoded), part.unique))

    def windows(self, place: int, rest: SortedRows | None, codec: KeyCodec) -> Iterator[Window]:
        """The rows of a place in windows of ascending keys: the spilled rows, and `rest`, the newest rows, in memory.

        Raises:
            StorageError: the local disk failed.
        """
        stored = self._runs.get(place, ())
        # Segments are sized for the greatest number of runs. With few runs, several segments are read at a time.
        budget = self.options.block_bytes // _MERGE_SHARE // max(len(stored), 1)
        runs = [self._read(run, max(1, budget // self._segment_bytes)) for run in stored]
        if rest is not None:
            runs.append(iter([Window(rest.rows, rest.unique)]))
        if not stored and rest is not None:
            return runs[0]
        return windows(runs, codec)

    def forget(self, place: int) -> None:
        """Drop the rows of a place; the disk space is freed with the last place."""
        self._runs.pop(place, None)
        if not self._runs:
            self.clear()

    def clear(self) -> None:
        """Drop all rows and free the disk space."""
        self._runs = {}
        if self._file is not None:
            self._file.close()
            self._file = None

    def _codec(self) -> pa.Codec | None:
        name = self.options.spill_codec
        return None if name is None else pa.Codec(name, self.options.spill_zstd_level if name == "zstd" else None)

    def _cuts(self, part: SortedRows) -> list[tuple[int, int]]:
        """Where to cut a run into segments; one segment of every run of a merge fits into the buffer."""
        rows = part.rows.num_rows
        step = max(1, int(rows * self._segment_bytes / max(part.rows.nbytes, 1)))
        wanted = np.arange(step, rows, step)
        places = np.searchsorted(part.starts, wanted)
        cuts = np.unique(part.starts[places[places < len(part.starts)]])
        return list(pairwise([0, *cuts.tolist(), rows]))

    @property
    def _segment_bytes(self) -> int:
        return max(_SEGMENT_BYTES_MIN, self.options.block_bytes // max(self.options.spill_files, 1))

    def _read(self, run: Run, at_a_time: int) -> Iterator[Window]:
        for first in range(0, len(run), at_a_time):
            chosen = run[first : first + at_a_time]
            rows = pa.concat_tables([self._rows(segment.extent) for segment in chosen])
            yield Window(rows, all(segment.unique for segment in chosen))

    def _rows(self, extent: Extent) -> pa.Table:
        assert self._file is not None
        with pa.ipc.open_stream(pa.py_buffer(self._file.read(extent))) as stream:
            return stream.read_all()


# ------------------------------------------------------------------------------------------------ windows


@dataclass(slots=True)
class _RunCursor:
    """The rows of one run that are in memory."""

    run: Iterator[Window]
    codec: KeyCodec
    rows: pa.Table | None = None
    unique: bool = True
    keys: KeyArray = ()
    last: Any = None

    def refill(self) -> bool:
        while not len(self.keys):
            found = next(self.run, None)
            if found is None:
                return False
            if found.rows.num_rows:
                self.rows, self.unique = found.rows.combine_chunks(), found.unique
                self.keys = self.codec.encode(self.rows)
                _, self.last = first_and_last(self.keys)
        return True

    def take(self, bound: Any) -> Window | None:
        assert self.rows is not None
        count = len(self.keys) if self.last <= bound else count_up_to(self.keys, bound)
        if not count:
            return None
        taken = Window(self.rows.slice(0, count), self.unique)
        self.rows, self.keys = self.rows.slice(count), slice_keys(self.keys, count)
        return taken


def windows(runs: Sequence[Iterator[Window]], codec: KeyCodec) -> Iterator[Window]:
    """Cut runs, oldest first, into windows of ascending keys; equal keys of a window are in the order of the runs.

    Every run consists of sorted pieces, and no key is in two pieces of a run.
    """
    cursors = [cursor for run in runs if (cursor := _RunCursor(run, codec)).refill()]
    while cursors:
        bound = min(cursor.last for cursor in cursors)
        parts = [part for cursor in cursors if (part := cursor.take(bound)) is not None]
        if len(parts) == 1:
            yield parts[0]
        else:
            yield Window(pa.concat_tables([part.rows for part in parts]), False)
        cursors = [cursor for cursor in cursors if cursor.refill()]
