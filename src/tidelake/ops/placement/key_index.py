"""An index of the partition and bucket of every key, for keys that move between partitions.

The index stores a key as a digest of 128 bits. The seeds are random per process, so that keys collide neither by chance
nor because a user chose them to. The index is a few sorted layers of digests. The newest layer that has a key is right,
and layers grow by doubling, because a single sorted array would be copied for every small batch.

Invariant: memory is bounded by the given limit, whatever the number of keys. Layers beyond it are in a local temporary
file that is memory-mapped, so that a lookup reads only the pages it needs. Layers are merged by ranges of digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.io.ids import Ids
from tidelake.io.scratch import Extent, ScratchFile
from tidelake.spec.rows.binary_row import encode_rows
from tidelake.spec.types.data_types import DataType, with_nullable

__all__ = ["KEY_BYTES", "NO_KEYS", "Digester", "Digests", "KeyIndex", "Layer", "sorted_layer", "spill_layers"]

Ints = np.ndarray[Any, Any]
_Bools = npt.NDArray[np.bool_]
KEY_BYTES: Final = 24
"""The size of a key in a layer."""
_CHUNK_KEYS: Final = 1 << 20
"""Keys that a merge of layers holds in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Digests:
    """The digests of keys, row by row, as two words each."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.high)

    def __getitem__(self, rows: Any) -> Digests:
        return Digests(self.high[rows], self.low[rows])

    def group_keys(self) -> tuple[Ints, Ints]:
        """The first row of each distinct key, in digest order, and for each row the number of its key."""
        order = np.lexsort((self.low, self.high))
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = _differ(self, order[1:], self, order[:-1])
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(fresh) - 1
        return order[fresh], numbers


def _differ(one: Digests, rows: Ints, other: Digests, places: Ints) -> _Bools:
    found: _Bools = (one.high[rows] != other.high[places]) | (one.low[rows] != other.low[places])
    return found


@dataclass(frozen=True, slots=True)
class Digester:
    """Computes digests of keys; only digests of the same digester can be compared."""

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    seeds: tuple[int, int]

    @classmethod
    def of(cls, names: Sequence[str], types: Sequence[DataType], ids: Ids) -> Digester:
        """A digester of key columns with its own seeds."""
        seeds = int(ids.random() * 2**53), int(ids.random() * 2**53)
        return cls(tuple(names), tuple(with_nullable(dtype, False) for dtype in types), seeds)

    def digests(self, rows: pa.RecordBatch) -> Digests:
        """The digests of the keys of rows.

        Raises:
            InvalidInputError: a key does not fit its type.
        """
        import polars as pl  # slow to load, and most writers do not need it

        encoded = encode_rows([rows.column(name) for name in self.names], self.types, length=rows.num_rows)
        keys = pl.Series(values=encoded)
        high, low = (keys.hash(seed).to_numpy() for seed in self.seeds)
        return Digests(high, low)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Distinct keys in digest order, and the place of each."""

    keys: Digests
    places: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def in_memory(self) -> bool:
        """Whether it is in memory and not on local disk."""
        return bool(self.places.flags.writeable)

    def find(self, wanted: Digests) -> tuple[Ints, _Bools]:
        """The position of each wanted key in the layer, and whether it is there."""
        at = np.searchsorted(self.keys.high, wanted.high)
        hit = np.zeros(len(wanted), np.bool_)
        open_rows = np.arange(len(wanted))
        while len(open_rows):  # more than one round only if different keys share half of their digest
            inside = at[open_rows] < len(self)
            open_rows = open_rows[inside]
            same = self.keys.high[at[open_rows]] == wanted.high[open_rows]
            open_rows = open_rows[same]
            equal = self.keys.low[at[open_rows]] == wanted.low[open_rows]
            hit[open_rows[equal]] = True
            open_rows = open_rows[~equal]
            at[open_rows] += 1
        return at, hit

    def between(self, start: np.uint64, end: np.uint64 | None) -> Layer:
        """The keys whose digests start at `start` or later and before `end`."""
        first = int(np.searchsorted(self.keys.high, start))
        last = len(self) if end is None else int(np.searchsorted(self.keys.high, end))
        return Layer(self.keys[first:last], self.places[first:last])


NO_KEYS: Final = Digests(np.empty(0, np.uint64), np.empty(0, np.uint64))
_EMPTY: Final = Layer(NO_KEYS, np.empty(0, np.int64))


def sorted_layer(keys: Digests, places: npt.NDArray[np.int64]) -> Layer:
    """A layer from keys in any order; keys with equal digests are all kept."""
    order = np.lexsort((keys.low, keys.high))
    return Layer(keys[order], places[order])


@dataclass(slots=True)
class KeyIndex:
    """Keys and their places, in memory up to a limit of bytes. Not shared between threads."""

    limit_bytes: int
    _layers: list[Layer] = field(default_factory=list)
    """Oldest first; a key is at most once in each."""

    def __len__(self) -> int:
        """Keys of all layers; a key that moved counts once in each layer that has it."""
        return sum(map(len, self._layers))

    def find(self, keys: Digests) -> npt.NDArray[np.int64]:
        """The place of each key; -1 if the key is unknown."""
        found = np.full(len(keys), -1, np.int64)
        left = np.arange(len(keys))
        for layer in reversed(self._layers):
            at, hit = layer.find(keys[left])
            found[left[hit]] = layer.places[at[hit]]
            left = left[~hit]
        return found

    def counts(self) -> dict[int, int]:
        """Keys of each place, as of the last `load`."""
        found: Counter[int] = Counter()
        for layer in self._layers:
            for start in range(0, len(layer), _CHUNK_KEYS):
                places, counts = np.unique(layer.places[start : start + _CHUNK_KEYS], return_counts=True)
                found.update(dict(zip(places.tolist(), counts.tolist(), strict=True)))
        return dict(found)

    def put(self, layer: Layer) -> None:
        """Add distinct keys, whose places replace older ones.

        Raises:
            StorageError: the local disk failed.
        """
        if not len(layer):
            return
        merged = [layer]
        while self._layers and len(self._layers[-1]) <= 2 * sum(map(len, merged)):
            merged.append(self._layers.pop())
        self._layers.append(self._store(map(_newest, _ranges(merged)), sum(map(len, merged))))

    def load(self, layers: Sequence[Layer]) -> Layer:
        """Start from the layers of a whole table, which should have no key in common; return the keys that are twice.

        The returned layer has two or more places for each of its keys, and is normally empty.

        Raises:
            StorageError: the local disk failed.
        """
        twice: list[Layer] = []

        def check_parts() -> Iterator[Layer]:
            for part in _ranges(layers):
                same = ~_firsts(part)
                if same.any():
                    same[:-1] |= same[1:]
                    twice.append(Layer(part.keys[same], part.places[same]))
                yield part

        self._layers = []
        self._layers = [self._store(check_parts(), sum(map(len, layers)))]
        return _join_layers(twice)

    def _store(self, parts: Iterator[Layer], count: int) -> Layer:
        """Make one layer of parts in digest order: in memory while there is room, else on local disk."""
        used = sum(len(each) for each in self._layers if each.in_memory)
        return _join_layers(list(parts)) if (used + count) * KEY_BYTES <= self.limit_bytes else spill_layers(parts)


def spill_layers(parts: Iterable[Layer]) -> Layer:
    """Make one layer on local disk of parts in digest order; the disk space is freed with the layer.

    Raises:
        StorageError: the local disk failed.
    """
    files = [ScratchFile() for _ in range(3)]
    try:
        for part in parts:
            for file, column in zip(files, (part.keys.high, part.keys.low, part.places), strict=True):
                file.append(np.ascontiguousarray(column).data)
        high, low, places = (np.frombuffer(file.map(Extent(0, file.size)), np.uint64) for file in files)
    finally:
        for file in files:
            file.close()  # the mapping stays valid until the last array on it is freed
    return Layer(Digests(high, low), places.view(np.int64))


def _firsts(layer: Layer) -> _Bools:
    """Mark the first of neighbours with equal digests."""
    first = np.ones(len(layer), np.bool_)
    first[1:] = _differ(layer.keys, np.arange(1, len(layer)), layer.keys, np.arange(len(layer) - 1))
    return first


def _newest(layer: Layer) -> Layer:
    first = _firsts(layer)
    return layer if first.all() else Layer(layer.keys[first], layer.places[first])


def _ranges(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Merge layers by digest ranges of about equal length; of equal digests, that of the first layer comes first."""
    count = max(1, -(-sum(map(len, layers)) // _CHUNK_KEYS))
    bounds = [np.uint64(number * (2**64 // count)) for number in range(count)]
    for start, end in zip(bounds, [*bounds[1:], None], strict=True):
        whole = _join_layers([layer.between(start, end) for layer in layers])
        yield sorted_layer(whole.keys, whole.places)


def _join_layers(layers: Sequence[Layer]) -> Layer:
    if len(layers) == 1:
        return layers[0]
    if not layers:
        return _EMPTY
    keys = Digests(
        np.concatenate([each.keys.high for each in layers]), np.concatenate([each.keys.low for each in layers])
    )
    return Layer(keys, np.concatenate([each.places for each in layers]))
