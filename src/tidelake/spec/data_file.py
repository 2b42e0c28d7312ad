"""The metadata of one data file in a manifest, as a frozen value.

Writers create the new files of a commit one at a time, so that a Python object for each is acceptable. Metadata whose
size grows with the table stays columnar (`manifest`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa

EMPTY_ROW = bytes(12)
"""A serialized BinaryRow without fields."""


class FileSource(IntEnum):
    """Whether a file came from a write or from a compaction."""

    APPEND = 0
    COMPACT = 1


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Minimum and maximum rows (serialized BinaryRows) and the null count of each covered column."""

    min_values: bytes = EMPTY_ROW
    max_values: bytes = EMPTY_ROW
    null_counts: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data file. `file_name` is relative to its bucket folder; `creation_time_ms` is local wall-clock time."""

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes = EMPTY_ROW
    max_key: bytes = EMPTY_ROW
    key_stats: SimpleStats = SimpleStats()
    value_stats: SimpleStats = SimpleStats()
    min_sequence: int = 0
    max_sequence: int = 0
    schema_id: int = 0
    level: int = 0
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None
    delete_row_count: int | None = 0
    embedded_index: bytes | None = None
    file_source: int | None = FileSource.APPEND
    value_stats_cols: tuple[str, ...] | None = ()
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    write_cols_sequences: tuple[int, ...] | None = None


def data_files(entries: pa.Table) -> list[DataFile]:
    """The files of an entries table (`manifest`) as values, for those that a plan did not prune."""
    columns = [_column(entries, name) for name in _FIELDS]
    return [DataFile(**dict(zip(_FIELDS, values, strict=True))) for values in zip(*columns, strict=True)]


def _column(entries: pa.Table, name: str) -> list[Any]:
    if name.endswith("_stats"):
        parts = (entries.column(f"{name}_{part}").to_pylist() for part in ("min", "max", "null_counts"))
        return [SimpleStats(low, high, tuple(nulls or ())) for low, high, nulls in zip(*parts, strict=True)]
    values: list[Any] = entries.column(name).to_pylist()
    return [_tuple(each) for each in values] if name in _LISTS else values


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


_LISTS = ("extra_files", "value_stats_cols", "write_cols", "write_cols_sequences")
_FIELDS = tuple(DataFile.__dataclass_fields__)
