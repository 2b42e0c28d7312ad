"""Look-ups of a compaction: which keys exist below its output level, in which file, where in it, and with what values.

The result of a compaction comes out in key order and so do the levels below, so each level is walked once, beside the
result: files that no key can lie in are not opened, row groups before and behind the keys are not read. Of many keys
the rows are read as they are walked past, every byte once. Of few only the key columns are; the other columns are read
afterwards, of the pages alone (or row groups, where a file has no page index) in which a key was found. Memory is about
one piece of each level, and what was found.

Invariant: a key is found at the smallest level that has it, and found exactly where it is there. Keys must be asked for
in ascending order, over all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from tidelake.errors import FormatError
from tidelake.expr.tree import Predicate, col
from tidelake.files.keyed import KIND_FIELD, SEQUENCE_FIELD
from tidelake.files.read import ROW_NUMBER
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.files import RunFile
from tidelake.lsm.kernel import without_dictionaries
from tidelake.lsm.keys import KeyArray, KeyCodec, count_up_to, first_and_last, key_at, locate, slice_keys, window
from tidelake.ops.read.append import read_data_file
from tidelake.ops.read.keyed import BATCH_ROWS, KeyedRequest, Merging, hand_rows
from tidelake.ops.scan.split import Split
from tidelake.spec.binary_row import decode_rows
from tidelake.spec.types import Root, with_nullable
from tidelake.store.table_store import TableStore

__all__ = ["Found", "LevelLookup", "Lookup", "keys_between"]

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

_SYSTEM: Final = {SEQUENCE: SEQUENCE_FIELD, KIND: KIND_FIELD}

# Types whose order is the same for a predicate and for keys; NaN alone makes the others not worth a thought.
_PRUNABLE: Final = frozenset({Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.DATE, Root.VARCHAR})

_FEW_IN: Final = 512
"""Rows for each key to look up from which on keys are few: most pages then hold none of them."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for keys, one element for each."""

    hits: Bools
    files: Ints
    """The number of the file among `LevelLookup.files`; -1 where there is none."""
    positions: Ints
    """The place of the row in that file, counted from 0; -1 where there is none, or nobody wants to know."""
    values: pa.Table | None = None
    """The columns that were asked for, of the keys that were found, in their order; None where there are none."""


class Lookup(Protocol):
    """Finds older versions of keys."""

    def find(self, rows: pa.Table) -> Found:
        """Look up the keys of rows, which are sorted, and all behind those of the call before.

        Raises:
            FormatError: a file is missing or damaged.
            StorageError: the storage failed.
        """


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
            split: Where its files lie.
            merging: What its keys are.
            levels: The files of each level to look in, in key order, the smallest level first.
            new: The files whose keys are looked up; without them any few keys may be.
            columns: What is wanted of the rows that are found.
            places: Whether it matters where in their files they are.
        """
        self._names = merging.schema.trimmed_primary_keys
        self._codec = KeyCodec(self._names, merging.key_types)
        self.files: tuple[RunFile, ...] = tuple(file for level in levels for file in level)
        self._walks: list[_Walk] = []
        self._store, self._split, self._schema = store, split, merging.schema
        self._columns = tuple(columns)
        self._together = bool(columns) and not _are_few(new, self.files)
        wanted = tuple(dict.fromkeys((*self._names, *columns))) if self._together else self._names
        request = self._request(wanted)
        last = _last_key(merging, new)
        numbered = places or not self._together
        texts = [name for name in wanted if name not in (*self._names, *_SYSTEM)]
        # Pages of all columns are bounded as those of a merge are.
        rows = hand_rows([BATCH_ROWS], request.arrow_schema.types)[0] if self._together else BATCH_ROWS

        def read(file: RunFile, first: Mapping[str, Any]) -> Iterator[pa.Table]:
            asked = replace(request, where=keys_between(merging, first, last))
            for batch in read_data_file(
                store,
                split,
                file.meta,
                asked,
                batch_rows=rows,
                row_numbers=numbered,
                dictionaries=texts,  # of few values a row's number is enough until it is wanted
                stream=self._together,
                loosely=True,
            ):
                yield pa.Table.from_batches([batch])

        number = 0
        for level in levels:
            if level:
                self._walks.append(_Walk(level, number, _ends(merging, self._codec, level), self._codec, read))
            number += len(level)

    def _request(self, names: Sequence[str]) -> KeyedRequest:
        fields = tuple(_SYSTEM.get(name) or self._schema.field(name) for name in names)
        columns = tuple(name for name in names if name not in _SYSTEM)
        return KeyedRequest(schema=self._schema, columns=columns, wanted=fields)

    def find(self, rows: pa.Table) -> Found:
        """Look up the keys of rows, which are sorted, and all behind those of the call before.

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
        """Which keys were found in each file, and the wanted columns of their rows; keys themselves are known."""
        request = self._request([name for name in self._columns if name not in self._names])
        schema = self._request(self._columns).arrow_schema
        needles: list[Ints] = []
        tables: list[pa.Table] = []
        for number in np.unique(files[files >= 0]).tolist():
            here = np.flatnonzero(files == number)
            meta = self.files[number].meta
            # Keys are sorted as the file is, so that these are its rows in their order.
            batches = read_data_file(self._store, self._split, meta, request, only=positions[here], stream=True)
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
    """Rows of one piece of one file that were looked for."""

    needles: Ints
    file: int
    piece: pa.Table
    places: Ints

    @property
    def positions(self) -> Ints | None:
        """Where in the file they are, if that was asked for."""
        if ROW_NUMBER not in self.piece.column_names:
            return None
        found: Ints = self.piece.column(ROW_NUMBER).to_numpy()[self.places]
        return found

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """Columns of them."""
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
        """Let go of rows in front of the last key that was looked for."""
        assert self._rows is not None
        self._rows = self._rows.slice(count)
        self._keys = slice_keys(self._keys, count)

    def _reach(self, smallest: Any, greatest: Any, rows: pa.Table, row: int) -> bool:
        """Take pieces until one ends at or behind the smallest key; False when none that begins early enough does."""
        if self._next and key_at(self._highs, self._next - 1) < smallest:
            self._pieces = iter(())  # the rest of the open file lies in front of all that will be asked for
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
    """Whether the keys of some files are so few beside the rows of others that most pages of these hold none."""
    if not new:
        return True
    first, last = min(file.min_key for file in new), max(file.max_key for file in new)
    beside = sum(file.meta.row_count for file in files if file.min_key <= last and first <= file.max_key)
    return sum(file.meta.row_count for file in new) * _FEW_IN < beside


def _ends(merging: Merging, codec: KeyCodec, files: Sequence[RunFile]) -> _Ends:
    sides = ([file.meta.min_key for file in files], [file.meta.max_key for file in files])
    low, high = (_decoded(merging, side) for side in sides)
    return codec.encode(low), codec.encode(high)


def _last_key(merging: Merging, files: Sequence[RunFile]) -> Mapping[str, Any] | None:
    """The greatest key of some files; None where there are none."""
    if not files:
        return None
    greatest = max(files, key=lambda file: file.max_key)
    return dict(_decoded(merging, [greatest.meta.max_key]).to_pylist()[0])


def _decoded(merging: Merging, keys: Sequence[bytes]) -> pa.Table:
    names = merging.schema.trimmed_primary_keys
    types = [with_nullable(merging.schema.field(name).type, False) for name in names]
    return pa.table(decode_rows(pa.array(keys, pa.large_binary()), types), names=list(names))


def keys_between(merging: Merging, first: Mapping[str, Any], last: Mapping[str, Any] | None) -> Predicate | None:
    """What holds for keys from `first` to `last`, as far as the leading columns are safe to ask."""
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
