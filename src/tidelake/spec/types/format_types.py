"""Which data types a file format can store.

Every write to a table would fail if its file format could not store one of its columns, so such a table cannot be
created. Formats that this module does not name are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelake.spec.types.data_types import DataType, ElementType, Root, RowType, TimeType, walk

_TEXTS: Final = frozenset({Root.CHAR, Root.VARCHAR})
_PARQUET_ONLY: Final = frozenset({Root.VARIANT, Root.GEOMETRY, Root.GEOGRAPHY})


def _not_in_any(dtype: DataType) -> bool:
    return isinstance(dtype, RowType) and not dtype.fields


def _not_in_orc(dtype: DataType) -> bool:
    return dtype.root in _PARQUET_ONLY or dtype.root in (Root.VECTOR, Root.BLOB)


def _not_in_avro(dtype: DataType) -> bool:
    if isinstance(dtype, TimeType):
        return dtype.precision > (3 if dtype.root is Root.TIME else 6)
    if isinstance(dtype, ElementType) and dtype.root is Root.MULTISET:
        return (
            dtype.element.root not in _TEXTS
        )  # stored as a map from element to count, and the keys of an Avro map are strings
    return dtype.root in _PARQUET_ONLY


_REFUSED: Final[Mapping[str, Callable[[DataType], bool]]] = {"orc": _not_in_orc, "avro": _not_in_avro}


def unstorable(file_format: str, dtype: DataType) -> DataType | None:
    """The type, or the first type inside it, that files of this format cannot store; None if they can store all."""
    refused = _REFUSED.get(file_format, _not_in_any)
    return next((each for each in walk(dtype) if _not_in_any(each) or refused(each)), None)
