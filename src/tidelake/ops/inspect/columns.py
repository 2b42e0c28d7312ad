"""The columns of the system tables: names, types, keys and order, as Apache Paimon 2.0.0 has them.

Columns that are newer than that release stand behind those of it. Every system table is made by `make_table`, so that
an empty one and a full one, in process and on Spark, have the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import Field
from tidelake.spec.types.type_codec import parse_type

__all__ = ["Values", "make_table", "schema_of"]

Values: TypeAlias = pa.Array | pa.ChunkedArray | Sequence[Any]

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "snapshots": (
        "snapshot_id BIGINT NOT NULL",
        "schema_id BIGINT NOT NULL",
        "commit_user STRING NOT NULL",
        "commit_identifier BIGINT NOT NULL",
        "commit_kind STRING NOT NULL",
        "commit_time TIMESTAMP(3) NOT NULL",
        "base_manifest_list STRING NOT NULL",
        "delta_manifest_list STRING NOT NULL",
        "changelog_manifest_list STRING",
        "total_record_count BIGINT",
        "delta_record_count BIGINT",
        "changelog_record_count BIGINT",
        "watermark BIGINT",
        "next_row_id BIGINT",
        "operation STRING",
        "writer_version STRING",
    ),
    "schemas": (
        "schema_id BIGINT NOT NULL",
        "fields STRING NOT NULL",
        "partition_keys STRING NOT NULL",
        "primary_keys STRING NOT NULL",
        "options STRING NOT NULL",
        "comment STRING",
        "update_time TIMESTAMP(3) NOT NULL",
    ),
    "options": ("key STRING NOT NULL", "value STRING NOT NULL"),
    "files": (
        "partition STRING",
        "bucket INT NOT NULL",
        "file_path STRING NOT NULL",
        "file_format STRING NOT NULL",
        "schema_id BIGINT NOT NULL",
        "level INT NOT NULL",
        "record_count BIGINT NOT NULL",
        "file_size_in_bytes BIGINT NOT NULL",
        "min_key STRING",
        "max_key STRING",
        "null_value_counts STRING NOT NULL",
        "min_value_stats STRING NOT NULL",
        "max_value_stats STRING NOT NULL",
        "min_sequence_number BIGINT",
        "max_sequence_number BIGINT",
        "creation_time TIMESTAMP(3)",
        "deleteRowCount BIGINT",
        "file_source STRING",
        "first_row_id BIGINT",
        "write_cols ARRAY<STRING>",
    ),
    "file_key_ranges": (
        "partition STRING",
        "bucket INT NOT NULL",
        "file_path STRING NOT NULL",
        "file_format STRING NOT NULL",
        "schema_id BIGINT NOT NULL",
        "level INT NOT NULL",
        "record_count BIGINT NOT NULL",
        "file_size_in_bytes BIGINT NOT NULL",
        "min_key STRING",
        "max_key STRING",
        "first_row_id BIGINT",
    ),
    "file_indexes": (
        "partition STRING",
        "bucket INT NOT NULL",
        "file_path STRING NOT NULL",
        "file_size_in_bytes BIGINT NOT NULL",
        "record_count BIGINT NOT NULL",
        "schema_id BIGINT NOT NULL",
        "column_name STRING NOT NULL",
        "index_type STRING NOT NULL",
        "storage_type STRING NOT NULL",
        "index_file_path STRING",
        "index_size_in_bytes BIGINT NOT NULL",
        "index_container_size_in_bytes BIGINT NOT NULL",
        "is_empty BOOLEAN NOT NULL",
    ),
    "table_indexes": (
        "partition STRING",
        "bucket INT NOT NULL",
        "index_type STRING NOT NULL",
        "file_name STRING NOT NULL",
        "file_size BIGINT NOT NULL",
        "row_count BIGINT NOT NULL",
        "dv_ranges ARRAY<ROW<`f0` STRING NOT NULL, `f1` INT NOT NULL, `f2` INT NOT NULL, `_CARDINALITY` BIGINT>>",
        "row_range_start BIGINT",
        "row_range_end BIGINT",
        "index_field_id INT",
        "index_field_name STRING",
    ),
    "manifests": (
        "file_name STRING NOT NULL",
        "file_size BIGINT NOT NULL",
        "num_added_files BIGINT NOT NULL",
        "num_deleted_files BIGINT NOT NULL",
        "schema_id BIGINT NOT NULL",
        "min_partition_stats STRING",
        "max_partition_stats STRING",
        "min_row_id BIGINT",
        "max_row_id BIGINT",
    ),
    "partitions": (
        "partition STRING",
        "record_count BIGINT NOT NULL",
        "file_size_in_bytes BIGINT NOT NULL",
        "file_count BIGINT NOT NULL",
        "last_update_time TIMESTAMP(3)",
        "created_at TIMESTAMP(3)",
        "created_by STRING",
        "updated_by STRING",
        "options STRING",
        "total_buckets INT NOT NULL",
        "done BOOLEAN NOT NULL",
        "deleted_record_count BIGINT",
    ),
    "buckets": (
        "partition STRING",
        "bucket INT NOT NULL",
        "record_count BIGINT NOT NULL",
        "file_size_in_bytes BIGINT NOT NULL",
        "file_count BIGINT NOT NULL",
        "last_update_time TIMESTAMP(3)",
    ),
    "tags": (
        "tag_name STRING NOT NULL",
        "snapshot_id BIGINT NOT NULL",
        "schema_id BIGINT NOT NULL",
        "commit_time TIMESTAMP(3) NOT NULL",
        "record_count BIGINT",
        "create_time TIMESTAMP(3)",
        "time_retained STRING",
    ),
    "branches": ("branch_name STRING NOT NULL", "create_time TIMESTAMP(3) NOT NULL"),
    "consumers": ("consumer_id STRING NOT NULL", "next_snapshot_id BIGINT NOT NULL"),
    "aggregation_fields": (
        "field_name STRING NOT NULL",
        "field_type STRING NOT NULL",
        "function STRING",
        "function_options STRING",
        "comment STRING",
    ),
    "statistics": (
        "snapshot_id BIGINT NOT NULL",
        "schema_id BIGINT NOT NULL",
        "mergedRecordCount BIGINT",
        "mergedRecordSize BIGINT",
        "colstat STRING",
    ),
    "sys.tables": (
        "database_name STRING",
        "table_name STRING",
        "table_type STRING",
        "partitioned BOOLEAN",
        "primary_key BOOLEAN",
        "owner STRING",
        "created_at BIGINT",
        "created_by STRING",
        "updated_at BIGINT",
        "updated_by STRING",
        "record_count BIGINT",
        "file_size_in_bytes BIGINT",
        "file_count BIGINT",
        "last_file_creation_time BIGINT",
    ),
    "sys.partitions": (
        "database_name STRING",
        "table_name STRING",
        "partition_name STRING",
        "record_count BIGINT",
        "file_size_in_bytes BIGINT",
        "file_count BIGINT",
        "last_file_creation_time BIGINT",
        "done BOOLEAN",
    ),
    "sys.all_table_options": ("database_name STRING", "table_name STRING", "key STRING", "value STRING"),
    "sys.catalog_options": ("key STRING NOT NULL", "value STRING NOT NULL"),
}
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "snapshots": ("snapshot_id",),
    "schemas": ("schema_id",),
    "options": ("key",),
    "files": ("file_path",),
    "file_key_ranges": ("file_path",),
    "file_indexes": ("file_path", "column_name", "index_type"),
    "table_indexes": ("file_name",),
    "manifests": ("file_name",),
    "partitions": ("partition",),
    "buckets": ("partition", "bucket"),
    "tags": ("tag_name",),
    "branches": ("branch_name",),
    "consumers": ("consumer_id",),
    "aggregation_fields": ("field_name",),
    "statistics": ("snapshot_id",),
    "sys.tables": ("database_name", "table_name"),
    "sys.partitions": ("database_name", "table_name", "partition_name"),
    "sys.all_table_options": ("table_name",),
    "sys.catalog_options": ("key",),
}


@cache
def schema_of(name: str) -> Schema:
    """The columns and the key of a system table."""
    split = (text.partition(" ") for text in _COLUMNS[name])
    fields = tuple(Field(number, column, parse_type(dtype)) for number, (column, _, dtype) in enumerate(split))
    return Schema(id=0, fields=fields, highest_field_id=len(fields) - 1, primary_keys=_KEYS[name])


def make_table(name: str, columns: Mapping[str, Values]) -> pa.Table:
    """The rows of a system table from its columns, or some of them, brought to their declared types."""
    schema = row_to_arrow([field for field in schema_of(name).fields if field.name in columns])
    assert list(columns) == schema.names, (name, list(columns))
    return pa.Table.from_arrays([_to_type(columns[field.name], field.type) for field in schema], schema=schema)


def _to_type(values: Values, dtype: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if values.type == dtype else values.cast(dtype)
    return pa.array(values, dtype)
