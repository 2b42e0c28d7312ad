"""Which types a file index can be built on in Paimon 2.0.0.

Paimon refuses a table with any other pair of index and type, so we refuse to create one.
"""

from __future__ import annotations

from typing import Final

from tidelake.spec.types.data_types import DataType, DecimalType, Root, TimeType

_NUMBERS: Final = frozenset({Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT})
_TIMES: Final = frozenset({Root.DATE, Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
_FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})

INDEXED_TYPES: Final = {
    "bloom-filter": _NUMBERS | _TIMES | _FLOATS | _TEXTS | {Root.BINARY, Root.VARBINARY},
    "bitmap": _NUMBERS | _TIMES | _FLOATS | _TEXTS | {Root.BOOLEAN},
    "bsi": _NUMBERS | _TIMES | {Root.DECIMAL},
    "range-bitmap": _NUMBERS | _TIMES | _FLOATS | _TEXTS | {Root.BOOLEAN, Root.DECIMAL},
}
"""The column types that each kind of index supports."""


def can_index(kind: str, dtype: DataType) -> bool:
    """Whether an index of this kind supports columns of the type."""
    if dtype.root not in INDEXED_TYPES[kind]:
        return False
    if kind == "range-bitmap" and isinstance(dtype, DecimalType):
        return dtype.precision <= 18
    if kind == "range-bitmap" and isinstance(dtype, TimeType) and dtype.root is not Root.TIME:
        return dtype.precision <= 6
    return True
