"""Rows that wait on local disk: sorted runs of each bucket, merged when the bucket is written.

Runs hold every version of a key that may still count, not merged ones: what comes out is then what merging all rows
at once gives, also where parts merge differently (a value that is taken back before it is known). A run is cut into
segments between two keys, so the windows of the merge hold all versions of their keys.

Invariant: memory of a merge is about a block of rows, or runs times a segment, or the versions of one key, whichever is
the most.
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
_HAND_SHARE: Final = 4
"""A merge has a quarter of a block of rows in hand, so that its windows and what they become fit one as well."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one bucket on disk, sorted; no key of theirs is in another segment of the run."""

    extent: Extent
    unique: bool
    """Whether every key is there once."""


@dataclass(frozen=True, slots=True)
class Window:
    """Sorted rows, all versions of their keys among them."""

    rows: pa.Table
    unique: bool
    """Whether every key is there once; then the rows are sorted."""

    def merged(self, plan: MergePlan) -> pa.Table:
        """The rows by key, each key once.

        Raises:
            InvalidInputError: a version is one the engine does not accept.
        """
        return self.rows if self.unique else merge_rows(self.rows, plan)

    def sorted(self, plan: MergePlan) -> pa.Table:
        """All rows by key, versions of a key oldest first."""
        return self.rows if self.unique else sort_versions(self.rows, plan)


Run = Sequence[Segment]


@dataclass(slots=True)
class Spill:
    """The sorted runs of all buckets of a writer, in one nameless file. Not shared between threads, but for reading."""

    options: KeyedWriteOptions
    _file: ScratchFile | None = None
    _runs: dict[int, list[list[Segment]]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Local disk in use."""
        return 0 if self._file is None else self._file.size

    @property
    def places(self) -> tuple[int, ...]:
        """The places that have rows here."""
        return tuple(self._runs)

    @property
    def full(self) -> bool:
        """Whether there may be no more: the disk limit is reached, or a merge would have too many runs."""
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
        step = 64  # what was encoded and not written is memory too
        for first in range(0, len(pieces), step):
            chosen = pieces[first : first + step]
            for (part, _, _), encoded in zip(chosen, executor.map(encode, chosen), strict=True):
                self._runs[part.place][-1].append(Segment(file.append(encoded), part.unique))

    def windows(self, place: int, rest: SortedRows | None, codec: KeyCodec) -> Iterator[Window]:
        """The rows of a place, window after window by key: what lies here, and the rows in memory, which came last.

        Raises:
            StorageError: the local disk failed.
        """
        stored = self._runs.get(place, ())
        # Segments are cut for as many runs as there may ever be. Of few runs several are taken at a time.
        budget = self.options.block_bytes // _HAND_SHARE // max(len(stored), 1)
        runs = [self._read(run, max(1, budget // self._segment_bytes)) for run in stored]
        if rest is not None:
            runs.append(iter([Window(rest.rows, rest.unique)]))
        if not stored and rest is not None:
            return runs[0]
        return windows(runs, codec)

    def forget(self, place: int) -> None:
        """Rows of a place are written elsewhere; the disk is let go with the last place."""
        self._runs.pop(place, None)
        if not self._runs:
            self.clear()

    def clear(self) -> None:
        """Let go of everything."""
        self._runs = {}
        if self._file is not None:
            self._file.close()
            self._file = None

    def _codec(self) -> pa.Codec | None:
        name = self.options.spill_codec
        return None if name is None else pa.Codec(name, self.options.spill_zstd_level if name == "zstd" else None)

    def _cuts(self, part: SortedRows) -> list[tuple[int, int]]:
        """Where a run is cut: about as large as lets every run of a merge have one segment in the buffer."""
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
class _Hand:
    """What is in hand of one run."""

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

    def give(self, bound: Any) -> Window | None:
        assert self.rows is not None
        count = len(self.keys) if self.last <= bound else count_up_to(self.keys, bound)
        if not count:
            return None
        given = Window(self.rows.slice(0, count), self.unique)
        self.rows, self.keys = self.rows.slice(count), slice_keys(self.keys, count)
        return given


def windows(runs: Sequence[Iterator[Window]], codec: KeyCodec) -> Iterator[Window]:
    """Runs, oldest first, cut into windows of ascending keys; equal keys of a window stand oldest first.

    Every run gives sorted pieces, and no key of a piece is in another of its run.
    """
    hands = [hand for run in runs if (hand := _Hand(run, codec)).refill()]
    while hands:
        bound = min(hand.last for hand in hands)
        parts = [part for hand in hands if (part := hand.give(bound)) is not None]
        if len(parts) == 1:
            yield parts[0]
        else:
            yield Window(pa.concat_tables([part.rows for part in parts]), False)
        hands = [hand for hand in hands if hand.refill()]
