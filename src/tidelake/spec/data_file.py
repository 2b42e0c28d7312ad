"""What a manifest says of one data file, as a frozen value.

New files of a commit are made one at a time by a writer, so a Python object each is fair; everything that grows with
the table stays columnar (`manifest`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

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


def data_file_from_row(row: Mapping[str, object]) -> DataFile:
    """Make a `DataFile` from one row of an entries table (`manifest`), for the survivors of a plan."""
    plain = {name: row[name] for name in _PLAIN}
    lists: dict[str, tuple[object, ...] | None] = {name: _tuple(row[name]) for name in _LISTS}
    stats = {
        f"{side}_stats": SimpleStats(
            row[f"{side}_stats_min"],  # type: ignore[arg-type]
            row[f"{side}_stats_max"],  # type: ignore[arg-type]
            tuple(row[f"{side}_stats_null_counts"] or ()),  # type: ignore[arg-type]
        )
        for side in ("key", "value")
    }
    return DataFile(**plain, **lists, **stats)  # type: ignore[arg-type]


def _tuple(values: object) -> tuple[object, ...] | None:
    return None if values is None else tuple(values)  # type: ignore[arg-type]


_LISTS = ("extra_files", "value_stats_cols", "write_cols", "write_cols_sequences")
_PLAIN = tuple(
    name for name in DataFile.__dataclass_fields__ if name not in _LISTS and name not in ("key_stats", "value_stats")
)
