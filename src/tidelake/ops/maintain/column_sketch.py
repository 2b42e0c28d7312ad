"""What rows say of one column, for statistics documents: counts, bounds, lengths and the number of distinct values.

Invariant: memory is bounded whatever the rows are. Distinct values are counted by their hashes: exactly up to
`HASHES_MAX` of them, and beyond that by the smallest hashes, which are spread evenly, so that how far they reach says
how many there are (a standard error of 0.4 %). Two sketches of parts of a column add up to that of the whole.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.read.extremes import find_extreme
from tidelake.spec.documents.statistics import ColumnStatistics
from tidelake.spec.rows.partition_path import internal_values, value_text
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import DataType, DecimalType, Field, Root

__all__ = ["HASHES_MAX", "ColumnSketch"]

HASHES_MAX: Final = 1 << 16
"""Hashes that are kept of a column: 512 kB."""
_TEXT: Final = frozenset({Root.CHAR, Root.VARCHAR})
_BYTES: Final = frozenset({Root.BINARY, Root.VARBINARY})
_SIZES: Final = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.BIGINT: 8,
    Root.FLOAT: 4,
    Root.DOUBLE: 8,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}
"""Bytes of one value, as planners take them."""
_UNKNOWN_TEXT, _UNKNOWN_BYTES = 20, 100
"""The lengths that stand for a column of texts or bytes without a value."""
_LEGACY_TEXT: Final = frozenset({Root.DATE, Root.TIME})
"""Types that documents hold as numbers."""

Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]


class ColumnSketch:
    """The statistics of the rows of a column that were added so far."""

    __slots__ = (
        "_arrow",
        "_field",
        "_greatest",
        "_hashes",
        "_least",
        "_length_max",
        "_length_sum",
        "_limit",
        "_nulls",
        "_values",
    )

    def __init__(self, field: Field, *, hashes_max: int = HASHES_MAX) -> None:
        self._field, self._limit = field, hashes_max
        self._arrow = to_arrow(field.type)
        self._hashes: Hashes = np.zeros(0, np.uint64)
        self._least = self._greatest = pa.array([], self._arrow)
        self._nulls = self._length_sum = self._length_max = 0
        self._values = 0

    def add(self, values: pa.Array) -> None:
        """Add the next rows."""
        self._nulls += values.null_count
        present = values.drop_null()
        if not len(present):
            return
        self._values += len(present)
        self._keep(_hash(present))
        if self._has_length:
            lengths = pc.utf8_length(present) if self._field.type.root in _TEXT else pc.binary_length(present)
            self._length_sum += pc.sum(lengths).as_py()
            self._length_max = max(self._length_max, pc.max(lengths).as_py())
        else:
            self._least = find_extreme([self._least, present], self._arrow, greatest=False)
            self._greatest = find_extreme([self._greatest, present], self._arrow, greatest=True)

    def merge(self, other: ColumnSketch) -> None:
        """Add the rows of another part of the column."""
        self._nulls += other._nulls
        self._values += other._values
        self._keep(other._hashes)
        self._length_sum += other._length_sum
        self._length_max = max(self._length_max, other._length_max)
        self._least = find_extreme([self._least, other._least], self._arrow, greatest=False)
        self._greatest = find_extreme([self._greatest, other._greatest], self._arrow, greatest=True)

    def result(self) -> ColumnStatistics:
        """The statistics, as the format's own ANALYZE makes them: texts and bytes have no minimum and maximum."""
        dtype = self._field.type
        average, longest = self._lengths()
        return ColumnStatistics(
            column_id=self._field.id,
            distinct_count=self._distinct_count(),
            min=_text(self._least, dtype),
            max=_text(self._greatest, dtype),
            null_count=self._nulls,
            average_length=average,
            max_length=longest,
        )

    @property
    def _has_length(self) -> bool:
        return self._field.type.root in _TEXT | _BYTES

    def _lengths(self) -> tuple[int, int]:
        dtype = self._field.type
        if not self._has_length:
            size = (8 if dtype.precision <= 18 else 16) if isinstance(dtype, DecimalType) else _SIZES[dtype.root]
            return size, size
        if not self._values:
            unknown = _UNKNOWN_TEXT if dtype.root in _TEXT else _UNKNOWN_BYTES
            return unknown, unknown
        return -(-self._length_sum // self._values), self._length_max

    def _keep(self, hashes: Hashes) -> None:
        if len(self._hashes) == self._limit:
            hashes = hashes[hashes < self._hashes[-1]]
        if len(hashes):
            self._hashes = np.union1d(self._hashes, hashes)[: self._limit]

    def _distinct_count(self) -> int:
        if len(self._hashes) < self._limit:
            return len(self._hashes)
        # That many hashes are below the largest of them, as a share of the whole range.
        estimate = (self._limit - 1) * (2**64 / float(self._hashes[-1]))
        return min(round(estimate), self._values)


def _hash(values: pa.Array) -> Hashes:
    """A hash of each value, equal for NaN and NaN and for 0.0 and -0.0."""
    import polars as pl  # slow to load, and only statistics need it here

    series = pl.from_arrow(values)
    assert isinstance(series, pl.Series)
    hashes = series.hash().to_numpy().astype(np.uint64, copy=True)
    # Hashes of near numbers are near each other in some releases: mix the bits, so that they are spread evenly.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashes ^= hashes >> np.uint64(shift)
        hashes *= np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(31))


def _text(value: pa.Array, dtype: DataType) -> str | None:
    if not len(value):
        return None
    return value_text(internal_values(value, dtype)[0], dtype, legacy=dtype.root in _LEGACY_TEXT)
