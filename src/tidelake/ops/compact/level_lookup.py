"""Lookups of a compaction: which keys exist below its output level, in which file and row, and with what values.

The result of a compaction comes out in key order and so do the levels below, so each level is walked once, beside the
result: files whose key range holds no key are not opened, row groups before and behind the keys are not read. If there
are many keys, whole rows are read while walking, every byte once. If there are few, only the key columns are read while
walking; the other columns are read afterwards, and only the pages (or row groups, if a file has no page index) in which
a key was found. Memory is about one batch of each level, and the rows that were found.

Invariant: a key is found at the smallest level that has it, at its exact position. Keys must be looked up in ascending
order, over all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.errors import FormatError
from tidelake.expr.tree import Predicate, col
from tidelake.files.read.data_file import ROW_NUMBER
from tidelake.files.read.request import Delivery
from tidelake.files.write.keyed import KIND_FIELD, SEQUENCE_FIELD
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.files import RunFile
from tidelake.lsm.kernel import without_dictionaries
from tidelake.lsm.keys import KeyArray, KeyCodec, count_up_to, first_and_last, key_at, locate, slice_keys, window
from tidelake.ops.read.append import read_data_file
from tidelake.ops.read.keyed import BATCH_ROWS, Merging, hand_rows
from tidelake.ops.scan.request import ReadRequest
from tidelake.ops.scan.split import Split
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.types.data_types import Root, with_nullable
from tidelake.store.table_store import TableStore

__all__ = ["Found", "LevelLookup", "keys_between"]

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

_SYSTEM: Final = {SEQUENCE: SEQUENCE_FIELD, KIND: KIND_FIELD}

# Types whose order is the same for a predicate and for keys. Others, such as floats with NaN, are not worth the care.
_PRUNABLE: Final = frozenset({Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.DATE, Root.VARCHAR})

_FEW_IN: Final = 512
"""Keys are few if there are more than this many rows for each of them: then most pages hold no key."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a lookup, one element for each key."""

    hits: Bools
    files: Ints
    """The index of the file in `LevelLookup.files`; -1 if the key was not found."""
    positions: Ints
    """The row number in that file, counted from 0; -1 if the key was not found or positions are not wanted."""
    values: pa.Table | None = None
    """The wanted columns of the keys that were found, in their order; None if there are none."""


class LevelLookup:
    """Looks keys up in sorted levels, from the smallest level number to the largest."""

    def __init__(
        self,
        store: TableStore,
        split: Split,
        merging: Merging,
        levels: Sequence[Sequence[RunFile]],
        *,
        new: Sequence[RunFile] = (),
        columns: Sequence[str] = (),
        places: bool = True,
    ) -> None:
        """Prepare to look up; no file is opened yet.

        Args:
            store: The table.
            split: The bucket, with the paths of its files.
            merging: What its keys are.
            levels: The files of each level to look in, in key order, the smallest level first.
            new: The files whose keys are looked up; without them, any keys, and few.
            columns: The columns that are wanted of the rows that are found.
            places: Whether their positions in the files are wanted.
        """
        self._names = merging.schema.trimmed_primary_keys
        self._codec = KeyCodec(self._names, merging.key_types)
        self.files: tuple[RunFile, ...] = tuple(file for level in levels for file in level)
        self._walks: list[_Walk] = []
        self._store, self._split, self._schema = store, split, merging.schema
        self._columns = tuple(columns)
        self._together = bool(columns) and not _are_few(new, self.files)
        wanted = tuple(dict.fromkeys((*self._names, *columns))) if self._together else self._names
        fields = self._request(wanted)
        last = _last_key(merging, new)
        numbered = places or not self._together
        texts = [name for name in wanted if name not in (*self._names, *_SYSTEM)]
        # Pages of all columns are bounded as those of a merge are.
        rows = hand_rows([BATCH_ROWS], fields.arrow_schema.types)[0] if self._together else BATCH_ROWS

        request = replace(
            fields,
            positions=numbered,
            prune_only=True,
            # Texts stay dictionary codes until they are found: most of the rows read here are dropped.
            delivery=Delivery(batch_rows=rows, stream=self._together, dictionaries=frozenset(texts)),
        )

        def read(file: RunFile, first: Mapping[str, Any]) -> Iterator[pa.Table]:
            asked = replace(request, where=keys_between(merging, first, last))
            for batch in read_data_file(store, split, file.meta, asked):
                yield pa.Table.from_batches([batch])

        number = 0
        for level in levels:
            if level:
                self._walks.append(_Walk(level, number, _ends(merging, self._codec, level), self._codec, read))
            number += len(level)

    def _request(self, names: Sequence[str]) -> ReadRequest:
        fields = tuple(_SYSTEM.get(name) or self._schema.field(name) for name in names)
        columns = tuple(name for name in names if name not in _SYSTEM)
        return ReadRequest(schema=self._schema, columns=columns, stored=fields)

    def find(self, rows: pa.Table) -> Found:
        """Look up the keys of rows; they are sorted, and greater than those of the call before.

        Raises:
            FormatError: a file is missing or damaged.
            StorageError: the storage failed.
        """
        count = rows.num_rows
        files, positions = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        left: Ints = np.arange(count)
        whole = rows.select(list(self._names)).combine_chunks()
        needles: list[Ints] = []
        tables: list[pa.Table] = []
        for walk in self._walks:
            if not len(left):
                break
            part = whole if len(left) == count else whole.take(pa.array(left))
            for hit in walk.find(part):
                here = left[hit.needles]
                files[here] = hit.file
                if (there := hit.positions) is not None:
                    positions[here] = there
                if self._together:
                    needles.append(here)
                    tables.append(hit.rows(self._columns))
            left = left[files[left] < 0]
        hits: Bools = files >= 0
        if not self._columns or not hits.any():
            return Found(hits, files, positions)
        if not self._together:
            needles, tables = self._values(files, positions, whole)
        order = np.argsort(np.concatenate(needles), kind="stable")
        values = pa.concat_tables(tables).combine_chunks()
        in_order = bool((order == np.arange(len(order))).all())
        return Found(hits, files, positions, values if in_order else values.take(pa.array(order)))

    def _values(self, files: Ints, positions: Ints, keys: pa.Table) -> tuple[list[Ints], list[pa.Table]]:
        """Which keys were found in each file, and the wanted columns of their rows; key columns are not read again."""
        others_only = self._request([name for name in self._columns if name not in self._names])
        request = replace(others_only, delivery=Delivery(stream=True))
        schema = self._request(self._columns).arrow_schema
        needles: list[Ints] = []
        tables: list[pa.Table] = []
        for number in np.unique(files[files >= 0]).tolist():
            here = np.flatnonzero(files == number)
            meta = self.files[number].meta
            # The keys are sorted in the same way as the file, so the rows come in the order of the keys.
            batches = read_data_file(self._store, self._split, meta, request, only=positions[here])
            others = pa.Table.from_batches(batches, schema=request.arrow_schema)
            if others.num_rows != len(here):
                raise FormatError("data file lost rows while it was read", path=self._split.path_of(meta))
            known = keys.take(pa.array(here))
            arrays = [(known if name in self._names else others).column(name) for name in self._columns]
            tables.append(pa.Table.from_arrays(arrays, schema=schema))
            needles.append(here)
        return needles, tables


@dataclass(frozen=True, slots=True)
class _Hit:
    """Rows that were found in one piece of one file."""

    needles: Ints
    file: int
    piece: pa.Table
    places: Ints

    @property
    def positions(self) -> Ints | None:
        """Their positions in the file, if they were wanted."""
        if ROW_NUMBER not in self.piece.column_names:
            return None
        found: Ints = self.piece.column(ROW_NUMBER).to_numpy()[self.places]
        return found

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """Columns of these rows."""
        return without_dictionaries(self.piece.select(list(columns)).take(pa.array(self.places)))


_Ends = tuple[KeyArray, KeyArray]
"""The smallest and greatest keys of files."""


class _Walk:
    """One sorted level, walked once from its first file to its last."""

    def __init__(
        self,
        files: Sequence[RunFile],
        first_number: int,
        ends: _Ends,
        codec: KeyCodec,
        read: Callable[[RunFile, Mapping[str, Any]], Iterator[pa.Table]],
    ) -> None:
        self._files, self._first_number, self._codec, self._read = files, first_number, codec, read
        self._lows, self._highs = ends
        self._next = 0
        self._pieces: Iterator[pa.Table] = iter(())
        self._rows: pa.Table | None = None
        self._keys: KeyArray = None
        self._last: Any = None

    def find(self, rows: pa.Table) -> Iterator[_Hit]:
        """Where the keys of sorted rows are."""
        needles = self._codec.encode(rows)
        count, done = rows.num_rows, 0
        _, greatest = first_and_last(needles)
        while done < count:
            smallest = key_at(needles, done)
            if not self._reach(smallest, greatest, rows, done):
                return
            assert self._rows is not None
            rest = slice_keys(needles, done)
            taken = len(rest) if greatest <= self._last else count_up_to(rest, self._last)
            base, wanted = window([self._keys, slice_keys(rest, 0, taken)])
            places, hits = locate(base, wanted)
            there = np.flatnonzero(hits)
            if len(there):
                yield _Hit(there + done, self._first_number + self._next - 1, self._rows, places[there])
            done += taken
            self._drop(int(places[-1]) if len(places) else 0)

    def _drop(self, count: int) -> None:
        """Drop the rows before the last key that was looked up."""
        assert self._rows is not None
        self._rows = self._rows.slice(count)
        self._keys = slice_keys(self._keys, count)

    def _reach(self, smallest: Any, greatest: Any, rows: pa.Table, row: int) -> bool:
        """Read on to the piece that may hold the smallest key; False if the level has none up to the greatest."""
        if self._next and key_at(self._highs, self._next - 1) < smallest:
            self._pieces = iter(())  # the rest of the open file is smaller than all keys still to come
        while self._rows is None or self._last < smallest or not len(self._keys):
            piece = next(self._pieces, None)
            if piece is None:
                if not self._open(smallest, greatest, rows, row):
                    return False
                continue
            self._rows = piece.combine_chunks()
            self._keys = self._codec.encode(self._rows)
            _, self._last = first_and_last(self._keys)
        return True

    def _open(self, smallest: Any, greatest: Any, rows: pa.Table, row: int) -> bool:
        self._rows = None
        while self._next < len(self._files) and key_at(self._highs, self._next) < smallest:
            self._next += 1
        if self._next == len(self._files) or key_at(self._lows, self._next) > greatest:
            return False
        file = self._files[self._next]
        self._next += 1
        self._pieces = self._read(file, rows.slice(row, 1).to_pylist()[0])
        return True


def _are_few(new: Sequence[RunFile], files: Sequence[RunFile]) -> bool:
    """Whether the new files have so few keys that most pages of the other files hold none of them."""
    if not new:
        return True
    first, last = min(file.min_key for file in new), max(file.max_key for file in new)
    beside = sum(file.meta.row_count for file in files if file.min_key <= last and first <= file.max_key)
    return sum(file.meta.row_count for file in new) * _FEW_IN < beside


def _ends(merging: Merging, codec: KeyCodec, files: Sequence[RunFile]) -> _Ends:
    sides = ([file.meta.min_key for file in files], [file.meta.max_key for file in files])
    low, high = (_decode_keys(merging, side) for side in sides)
    return codec.encode(low), codec.encode(high)


def _last_key(merging: Merging, files: Sequence[RunFile]) -> Mapping[str, Any] | None:
    """The greatest key of some files; None without files."""
    if not files:
        return None
    greatest = max(files, key=lambda file: file.max_key)
    return dict(_decode_keys(merging, [greatest.meta.max_key]).to_pylist()[0])


def _decode_keys(merging: Merging, keys: Sequence[bytes]) -> pa.Table:
    names = merging.schema.trimmed_primary_keys
    types = [with_nullable(merging.schema.field(name).type, False) for name in names]
    return pa.table(decode_rows(pa.array(keys, pa.large_binary()), types), names=list(names))


def keys_between(merging: Merging, first: Mapping[str, Any], last: Mapping[str, Any] | None) -> Predicate | None:
    """A predicate for keys from `first` to `last`, on the leading key columns whose types can be pruned."""
    names: list[str] = []
    for name in merging.schema.trimmed_primary_keys:
        if merging.schema.field(name).type.root not in _PRUNABLE:
            break
        names.append(name)
    if not names:
        return None
    low: Predicate = col(names[-1]) >= first[names[-1]]
    for name in reversed(names[:-1]):
        low = (col(name) > first[name]) | ((col(name) == first[name]) & low)
    if last is None:
        return low
    high: Predicate = col(names[-1]) <= last[names[-1]]
    for name in reversed(names[:-1]):
        high = (col(name) < last[name]) | ((col(name) == last[name]) & high)
    return low & high
