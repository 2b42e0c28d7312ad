"""Statistics documents of ANALYZE: row count, size and column statistics of one snapshot.

Minimum and maximum are values cast to text. Readers cast them back to the type of the column in the schema that the
document names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.spec.documents.json_doc import (
    as_object,
    encode_document,
    get_int,
    get_object,
    get_str,
    parse_object,
    unknown_members,
)
from tidelake.spec.limits import INT32_MAX

_KEYS: Final = ("snapshotId", "schemaId", "mergedRecordCount", "mergedRecordSize", "colStats")
_COLUMN_KEYS: Final = ("colId", "distinctCount", "min", "max", "nullCount", "avgLen", "maxLen")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """The statistics of one column; any of them may be missing."""

    column_id: int
    distinct_count: int | None = None
    min: str | None = None
    max: str | None = None
    null_count: int | None = None
    average_length: int | None = None
    max_length: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The statistics of a table at one snapshot."""

    snapshot_id: int
    """The analyzed snapshot, which is older than the one that refers to this document."""
    schema_id: int
    merged_record_count: int | None = None
    """Rows after merging."""
    merged_record_size_bytes: int | None = None
    columns: Mapping[str, ColumnStatistics] | None = field(default=None, hash=False)
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False)


def statistics_from_json(data: bytes, *, path: str) -> Statistics:
    """Read a statistics file.

    Raises:
        FormatError: If the bytes are not a statistics document.
    """
    doc = parse_object(data, path=path)
    columns = get_object(doc, "colStats", path, default=None)
    return Statistics(
        snapshot_id=get_int(doc, "snapshotId", path),
        schema_id=get_int(doc, "schemaId", path, minimum=0),
        merged_record_count=get_int(doc, "mergedRecordCount", path, default=None),
        merged_record_size_bytes=get_int(doc, "mergedRecordSize", path, default=None),
        columns=None if columns is None else {name: _column(name, value, path) for name, value in columns.items()},
        unknown=unknown_members(doc, _KEYS),
    )


def _column(name: str, value: object, path: str) -> ColumnStatistics:
    doc = as_object(value, key=f"colStats.{name}", path=path)
    return ColumnStatistics(
        column_id=get_int(doc, "colId", path, minimum=0, maximum=INT32_MAX),
        distinct_count=get_int(doc, "distinctCount", path, default=None),
        min=get_str(doc, "min", path, default=None),
        max=get_str(doc, "max", path, default=None),
        null_count=get_int(doc, "nullCount", path, default=None),
        average_length=get_int(doc, "avgLen", path, default=None),
        max_length=get_int(doc, "maxLen", path, default=None),
        unknown=unknown_members(doc, _COLUMN_KEYS),
    )


def statistics_to_json(statistics: Statistics) -> bytes:
    """The content of a statistics file."""
    columns = statistics.columns
    doc = _present(
        _KEYS[:4],
        statistics.snapshot_id,
        statistics.schema_id,
        statistics.merged_record_count,
        statistics.merged_record_size_bytes,
    )
    # Java writes this member also if it is null.
    doc["colStats"] = None if columns is None else {name: _column_doc(column) for name, column in columns.items()}
    return encode_document(doc | dict(statistics.unknown), statistics, statistics_from_json)


def _column_doc(column: ColumnStatistics) -> dict[str, Any]:
    doc = _present(
        _COLUMN_KEYS,
        column.column_id,
        column.distinct_count,
        column.min,
        column.max,
        column.null_count,
        column.average_length,
        column.max_length,
    )
    return doc | dict(column.unknown)


def _present(keys: tuple[str, ...], *values: object) -> dict[str, Any]:
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}
