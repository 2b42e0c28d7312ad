"""What a table says of itself: snapshots, schemas, options, manifests, files, partitions.

Each function returns an Arrow table with the columns of the format's `t$name`; every face renders the same function.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.scan.plan import changelog_manifests, data_manifests, live_entries
from tidelake.spec.binary_row import decode_rows
from tidelake.spec.binary_row_scalar import decode_row
from tidelake.spec.manifest import empty_entries
from tidelake.spec.partition_path import value_text
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.type_codec import fields_to_json
from tidelake.spec.types import with_nullable
from tidelake.store.table_store import TableStore

_TIME = pa.timestamp("ms")


def snapshots_table(store: TableStore) -> pa.Table:
    """`t$snapshots`: one row per snapshot that is kept, oldest first."""
    found = [store.snapshots.find(snapshot_id) for snapshot_id in store.snapshots.ids()]
    kept = [snapshot for snapshot in found if snapshot]
    return pa.table(
        {
            "snapshot_id": pa.array([s.id for s in kept], pa.int64()),
            "schema_id": pa.array([s.schema_id for s in kept], pa.int64()),
            "commit_user": pa.array([s.commit_user for s in kept], pa.string()),
            "commit_identifier": pa.array([s.commit_identifier for s in kept], pa.int64()),
            "commit_kind": pa.array([s.commit_kind.value for s in kept], pa.string()),
            "commit_time": pa.array([s.time_ms for s in kept], _TIME),
            "base_manifest_list": pa.array([s.base_manifest_list for s in kept], pa.string()),
            "delta_manifest_list": pa.array([s.delta_manifest_list for s in kept], pa.string()),
            "changelog_manifest_list": pa.array([s.changelog_manifest_list for s in kept], pa.string()),
            "total_record_count": pa.array([s.total_record_count for s in kept], pa.int64()),
            "delta_record_count": pa.array([s.delta_record_count for s in kept], pa.int64()),
            "changelog_record_count": pa.array([s.changelog_record_count for s in kept], pa.int64()),
            "watermark": pa.array([s.watermark for s in kept], pa.int64()),
            "next_row_id": pa.array([s.next_row_id for s in kept], pa.int64()),
            "operation": pa.array([s.operation for s in kept], pa.string()),
        }
    )


def schemas_table(store: TableStore) -> pa.Table:
    """`t$schemas`: one row per schema."""
    import msgspec

    kept = [store.schemas.get(schema_id) for schema_id in store.schemas.ids()]

    def text(value: object) -> str:
        return msgspec.json.encode(value).decode()

    return pa.table(
        {
            "schema_id": pa.array([s.id for s in kept], pa.int64()),
            "fields": pa.array([text(fields_to_json(s.fields)) for s in kept], pa.string()),
            "partition_keys": pa.array([text(list(s.partition_keys)) for s in kept], pa.string()),
            "primary_keys": pa.array([text(list(s.primary_keys)) for s in kept], pa.string()),
            "options": pa.array([text(dict(s.options)) for s in kept], pa.string()),
            "comment": pa.array([s.comment for s in kept], pa.string()),
            "update_time": pa.array([s.time_ms for s in kept], _TIME),
        }
    )


def options_table(store: TableStore) -> pa.Table:
    """`t$options`: key and value of each option that is set."""
    items = sorted(store.schema.options.items())
    return pa.table(
        {
            "key": pa.array([key for key, _ in items], pa.string()),
            "value": pa.array([value for _, value in items], pa.string()),
        }
    )


def manifests_table(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    """`t$manifests`: one row per manifest of a snapshot, changelog included, with the range of partitions it covers."""
    read = (data_manifests, changelog_manifests)
    metas = [meta for each in read for meta in each(store.manifests, snapshot)] if snapshot else []
    return pa.table(
        {
            "file_name": pa.array([m.file_name for m in metas], pa.string()),
            "file_size": pa.array([m.file_size for m in metas], pa.int64()),
            "num_added_files": pa.array([m.num_added for m in metas], pa.int64()),
            "num_deleted_files": pa.array([m.num_deleted for m in metas], pa.int64()),
            "schema_id": pa.array([m.schema_id for m in metas], pa.int64()),
            "min_partition_stats": pa.array(
                [_row_text(store, m.partition_stats.min_values) for m in metas], pa.string()
            ),
            "max_partition_stats": pa.array(
                [_row_text(store, m.partition_stats.max_values) for m in metas], pa.string()
            ),
            "min_row_id": pa.array([m.min_row_id for m in metas], pa.int64()),
            "max_row_id": pa.array([m.max_row_id for m in metas], pa.int64()),
        }
    )


def files_table(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    """`t$files`: one row per live data file of a snapshot."""
    entries = _live(store, snapshot)
    suffix = pc.replace_substring_regex(entries.column("file_name"), pattern=r"^.*\.", replacement="")
    return pa.table(
        {
            "partition": partition_texts(store, entries.column("partition")),
            "bucket": entries.column("bucket"),
            "file_path": entries.column("file_name").cast(pa.string()),
            "file_format": suffix.cast(pa.string()),
            "schema_id": entries.column("schema_id"),
            "level": entries.column("level"),
            "record_count": entries.column("row_count"),
            "file_size_in_bytes": entries.column("file_size"),
            "min_sequence_number": entries.column("min_sequence"),
            "max_sequence_number": entries.column("max_sequence"),
            "creation_time": entries.column("creation_time_ms").cast(_TIME),
            "deleteRowCount": entries.column("delete_row_count"),
        }
    )


def partitions_table(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    """`t$partitions`: rows, bytes and files of each partition."""
    entries = _live(store, snapshot)
    grouped = entries.group_by("partition", use_threads=False).aggregate(
        [("row_count", "sum"), ("file_size", "sum"), ("file_name", "count"), ("creation_time_ms", "max")]
    )
    return pa.table(
        {
            "partition": pa.array([_spec_text(store, row.as_py()) for row in grouped.column("partition")], pa.string()),
            "record_count": grouped.column("row_count_sum"),
            "file_size_in_bytes": grouped.column("file_size_sum"),
            "file_count": grouped.column("file_name_count"),
            "last_update_time": grouped.column("creation_time_ms_max").cast(_TIME),
        }
    )


def partition_texts(store: TableStore, partitions: pa.ChunkedArray) -> pa.Array:
    """The values of each partition as text such as `{2026-11-15, 7}`."""
    if not len(partitions):
        return pa.array([], pa.string())
    encoded = partitions.combine_chunks().dictionary_encode()
    texts = pa.array([_row_text(store, row) for row in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def partition_columns(store: TableStore, partitions: pa.ChunkedArray) -> Sequence[pa.Array]:
    """The partition columns as Arrow arrays."""
    types = [with_nullable(dtype, True) for dtype in store.schema.partition_types]
    return decode_rows(partitions.combine_chunks(), types)


def _live(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    if snapshot is None:
        return empty_entries()
    return live_entries(store.manifests, data_manifests(store.manifests, snapshot))


def _row_text(store: TableStore, row: bytes) -> str:
    return "{" + ", ".join("null" if text is None else text for text in _value_texts(store, row)) + "}"


def _spec_text(store: TableStore, row: bytes) -> str:
    """`dt=2026-11-15/hr=7`: readable, so neither escaped nor in the old style of some folder names."""
    default = store.schema.options.get("partition.default-name", "__DEFAULT_PARTITION__")
    texts = (text if text and not text.isspace() else default for text in _value_texts(store, row))
    return "/".join(f"{key}={text}" for key, text in zip(store.schema.partition_keys, texts, strict=True))


def _value_texts(store: TableStore, row: bytes) -> list[str | None]:
    types = store.schema.partition_types
    values = decode_row(row, types)
    return [None if v is None else value_text(v, t, legacy=False) for v, t in zip(values, types, strict=True)]
