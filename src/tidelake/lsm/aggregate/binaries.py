"""`rbm32`, `rbm64`, `hll_sketch` and `theta_sketch`: unions of sets that are stored as binaries.

Each value is a structure of its own, so these functions loop over the keys that have two values. Bitmaps and theta
sketches have the same bytes as Java's; in a HyperLogLog sketch in its early, exact form the order of coupons may
differ. The libraries are an optional dependency and are imported with the first union.
"""

from __future__ import annotations

import importlib
import struct
from abc import abstractmethod
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import FormatError, UnsupportedError
from tidelake.lsm.aggregate import roaring64
from tidelake.lsm.aggregate.arrays import valid
from tidelake.lsm.aggregate.base import Function
from tidelake.lsm.aggregate.roaring64 import ARRAY, BITMAP, RUN, Container

__all__ = ["Bitmap32", "Bitmap64", "HllSketch", "ThetaSketch"]

_LG_K: Final = 12
"""The size of Paimon's unions: 4096 registers or entries."""

_ARRAY_MAX: Final = 4096
_COOKIE, _COOKIE_WITH_RUNS = 12346, 12347
_THETA_SINGLE, _THETA_EMPTY = 0x20, 0x04


@dataclass(frozen=True, slots=True)
class _Union(Function):
    @abstractmethod
    def unite(self, one: bytes, other: bytes) -> bytes:
        """Return the union of two values."""

    def merge(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        """See `Aggregate.merge`."""
        both = valid(older) & valid(newer)
        rows = np.flatnonzero(both)
        united = [
            self._unite_values(one, other)
            for one, other in zip(
                older.take(pa.array(rows)).to_pylist(), newer.take(pa.array(rows)).to_pylist(), strict=True
            )
        ]
        place = np.where(valid(older), np.arange(len(older)), len(older) + np.arange(len(older)))
        place[rows] = 2 * len(older) + np.arange(len(rows))
        return pa.concat_arrays([older, newer, pa.array(united, older.type)]).take(pa.array(place))

    def _unite_values(self, one: bytes, other: bytes) -> bytes:
        try:
            return self.unite(one, other)
        except (FormatError, ValueError, RuntimeError, IndexError, MemoryError) as cause:
            raise FormatError(
                "value is not valid for its aggregate function",
                column=self.column,
                function=self.name,
                cause=str(cause)[:200],
            ) from cause

    def _library(self, name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except ImportError as cause:
            raise UnsupportedError(
                "aggregate function needs a library that is not installed",
                column=self.column,
                function=self.name,
                library=name,
                hint="pip install 'tidelake[sketches]'",
            ) from cause


@dataclass(frozen=True, slots=True)
class Bitmap32(_Union):
    """The union of 32-bit roaring bitmaps in the portable format."""

    def unite(self, one: bytes, other: bytes) -> bytes:
        """See `_Union.unite`."""
        from pyroaring import BitMap  # an optional dependency, and slow to import

        left, right = BitMap.deserialize(one), BitMap.deserialize(other)
        left |= right
        left.run_optimize()
        return bytes(left.serialize())


@dataclass(frozen=True, slots=True)
class Bitmap64(_Union):
    """The union of 64-bit roaring bitmaps in Java's format."""

    def unite(self, one: bytes, other: bytes) -> bytes:
        """See `_Union.unite`."""
        from pyroaring import BitMap  # see above

        def join(own: Container, more: Container | None) -> Container:
            left = BitMap.deserialize(_portable(own))
            if more is not None:
                left |= BitMap.deserialize(_portable(more))
            left.run_optimize()
            return _container(bytes(left.serialize()))

        return roaring64.unite(one, other, join)


@dataclass(frozen=True, slots=True)
class HllSketch(_Union):
    """The union of HyperLogLog sketches, with 4 bits per register."""

    def unite(self, one: bytes, other: bytes) -> bytes:
        """See `_Union.unite`."""
        library = self._library("datasketches")
        union = library.hll_union(_LG_K)
        for each in (one, other):
            union.update(library.hll_sketch.deserialize(each))
        return bytes(union.get_result(library.tgt_hll_type.HLL_4).serialize_compact())


@dataclass(frozen=True, slots=True)
class ThetaSketch(_Union):
    """The union of theta sketches, compact and ordered."""

    def unite(self, one: bytes, other: bytes) -> bytes:
        """See `_Union.unite`."""
        library = self._library("datasketches")
        union = library.theta_union(_LG_K)
        for each in (one, other):
            union.update(library.compact_theta_sketch.deserialize(each))
        return _as_java(bytes(union.get_result().serialize()))


def _as_java(sketch: bytes) -> bytes:
    """Set the fields that only Java sets: the sampling rate, the flag of a single item, and no seed if empty."""
    out = bytearray(sketch)
    if out[5] & _THETA_EMPTY:
        out[6:8] = b"\0\0"
    elif out[0] == 1:
        out[5] |= _THETA_SINGLE
    else:
        out[12:16] = struct.pack("<f", 1.0)
    return bytes(out)


def _portable(container: Container) -> bytes:
    """Return a portable 32-bit bitmap with one container."""
    if container.kind == RUN:
        return struct.pack("<HHBHH", _COOKIE_WITH_RUNS, 0, 1, 0, container.count - 1) + container.payload
    return struct.pack("<IIHHI", _COOKIE, 1, 0, container.count - 1, 16) + container.payload


def _container(bitmap: bytes) -> Container:
    """Return the only container of a portable 32-bit bitmap."""
    if struct.unpack_from("<H", bitmap)[0] == _COOKIE_WITH_RUNS:
        return Container(RUN, struct.unpack_from("<H", bitmap, 7)[0] + 1, bitmap[9:])
    count = struct.unpack_from("<H", bitmap, 10)[0] + 1
    return Container(ARRAY if count <= _ARRAY_MAX else BITMAP, count, bitmap[16:])
