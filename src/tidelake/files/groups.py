"""What the readers of all formats share: groups of consecutive rows, and their bounds as Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = ["Group", "bound_array"]


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive rows: the number of the group, of its first row, and how many rows it has.

    A `whole` group is read as one table, any other as several.
    """

    number: int
    first_row: int
    row_count: int
    whole: bool = True


def bound_array(values: Sequence[Any], target: pa.DataType) -> pa.Array | None:
    """Return bounds of the internal domain, one per group, as an Arrow array; None if they do not fit the type."""
    try:
        if pa.types.is_timestamp(target):
            scale = {"ms": 1_000_000, "us": 1_000, "ns": 1}[target.unit]
            counts = [None if value is None else (value[0] * 1_000_000 + value[1]) // scale for value in values]
            return pa.array(counts, pa.int64()).view(target)
        if pa.types.is_date32(target) or pa.types.is_time32(target):
            return pa.array(values, pa.int32()).view(target)
        return pa.array(values, target)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return None
