"""What a snapshot says of its files: manifests, files, partitions, buckets, index files.

Each function returns an Arrow table with the columns of the format's `t$name` of release 2.0.0, in its order and with
its texts, down to maps such as `{id=1, v=null}` whose names are sorted. One difference: the format prints the address
of a byte array in memory, which says nothing; here a binary value is shown in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.context import TableContext
from tidelake.ops.inspect.columns import Values, make_table
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.scan.plan import changelog_manifests, data_manifests, live_entries
from tidelake.ops.scan.planner import bounds_by_schema
from tidelake.spec.data_file import FileSource
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest import empty_entries
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.rows.binary_row_scalar import decode_row
from tidelake.spec.rows.partition_path import internal_values, value_text
from tidelake.spec.types.data_types import DataType, Root, with_nullable
from tidelake.store.table_store import TableStore

_UNKNOWN = "null"
_STATISTICS: Final = ("null_value_counts", "min_value_stats", "max_value_stats")
_PLAIN: Final = frozenset(
    {
        *(Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.CHAR, Root.VARCHAR),
        *(Root.DATE, Root.TIME),
    }
)
"""Types whose old style of text is that of the number, or the text itself."""


def manifests_table(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """`t$manifests`: one row per manifest of a snapshot, changelog included, with the range of partitions it covers."""
    store = context.store
    read = (data_manifests, changelog_manifests)
    metas = [meta for each in read for meta in each(store.manifests, snapshot)] if snapshot else []
    low = [_row_text(store, meta.partition_stats.min_values) for meta in metas]
    high = [_row_text(store, meta.partition_stats.max_values) for meta in metas]
    return make_table(
        "manifests",
        {
            "file_name": [m.file_name for m in metas],
            "file_size": [m.file_size for m in metas],
            "num_added_files": [m.num_added for m in metas],
            "num_deleted_files": [m.num_deleted for m in metas],
            "schema_id": [m.schema_id for m in metas],
            "min_partition_stats": low,
            "max_partition_stats": high,
            "min_row_id": [m.min_row_id for m in metas],
            "max_row_id": [m.max_row_id for m in metas],
        },
    )


def files_table(context: TableContext, snapshot: Snapshot | None, columns: AbstractSet[str] | None = None) -> pa.Table:
    """`t$files`: one row per live data file of a snapshot, with its statistics as the table's columns are now.

    Statistics are by far the dearest columns: they are left out if `columns` are given and none of them is among these.
    """
    store = context.store
    entries = live_files(store, snapshot)
    with_statistics = columns is None or not columns.isdisjoint(_STATISTICS)
    statistics = zip(_STATISTICS, _stats_texts(store, entries), strict=True) if with_statistics else ()
    front, keys = _place_columns(context, entries), _key_columns(store, entries)
    return make_table(
        "files",
        {
            **front,
            **keys,
            **dict(statistics),
            "min_sequence_number": entries.column("min_sequence"),
            "max_sequence_number": entries.column("max_sequence"),
            "creation_time": entries.column("creation_time_ms"),
            "deleteRowCount": entries.column("delete_row_count"),
            "file_source": _sources(entries.column("file_source")),
            "first_row_id": entries.column("first_row_id"),
            "write_cols": entries.column("write_cols"),
        },
    )


def file_key_ranges_table(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """`t$file_key_ranges`: one row per live data file of a snapshot, with the keys between which its rows are."""
    entries = live_files(context.store, snapshot)
    front, keys = _place_columns(context, entries), _key_columns(context.store, entries)
    return make_table("file_key_ranges", {**front, **keys, "first_row_id": entries.column("first_row_id")})


def _place_columns(context: TableContext, entries: pa.Table) -> dict[str, Values]:
    suffix = pc.replace_substring_regex(entries.column("file_name"), pattern=r"^.*\.", replacement="")
    return {
        "partition": partition_texts(context.store, entries.column("partition")),
        "bucket": entries.column("bucket"),
        "file_path": file_addresses(context, entries),
        "file_format": suffix,
        "schema_id": entries.column("schema_id"),
        "level": entries.column("level"),
        "record_count": entries.column("row_count"),
        "file_size_in_bytes": entries.column("file_size"),
    }


def _key_columns(store: TableStore, entries: pa.Table) -> dict[str, Values]:
    return {
        "min_key": _key_texts(store, entries.column("min_key")),
        "max_key": _key_texts(store, entries.column("max_key")),
    }


def partitions_table(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """`t$partitions`: rows, bytes and files of each partition. What only a catalog would know is null."""
    grouped = sum_files(context.store, snapshot, "partition")
    unknown = pa.nulls(grouped.num_rows)
    return make_table(
        "partitions",
        {
            "partition": partition_names(context, grouped.column("partition")),
            **_sums(grouped),
            "created_at": unknown,
            "created_by": unknown,
            "updated_by": unknown,
            "options": unknown,
            "total_buckets": grouped.column("total_buckets_max"),
            "done": pa.repeat(pa.scalar(False), grouped.num_rows),
            "deleted_record_count": _deleted_counts(context.store, snapshot, grouped.column("partition")),
        },
    )


def buckets_table(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """`t$buckets`: rows, bytes and files of each bucket."""
    grouped = sum_files(context.store, snapshot, "partition", "bucket")
    partitions = partition_texts(context.store, grouped.column("partition"))
    return make_table("buckets", {"partition": partitions, "bucket": grouped.column("bucket"), **_sums(grouped)})


def table_indexes_table(context: TableContext, snapshot: Snapshot | None) -> pa.Table:
    """`t$table_indexes`: one row per index file of a snapshot, with the places of its deletion vectors."""
    store = context.store
    name = None if snapshot is None else snapshot.index_manifest
    entries = () if name is None else store.manifests.read_index(name)
    files = [entry.file for entry in entries]
    fields = {field.id: field.name for field in store.schema.fields}
    covers = [file.global_index for file in files]
    ranges = [
        None
        if file.deletion_vectors is None
        else [
            {"f0": each.data_file, "f1": each.offset, "f2": each.length, "_CARDINALITY": each.cardinality}
            for each in file.deletion_vectors
        ]
        for file in files
    ]
    return make_table(
        "table_indexes",
        {
            "partition": [_row_text(store, entry.partition) for entry in entries],
            "bucket": [entry.bucket for entry in entries],
            "index_type": [file.index_type for file in files],
            "file_name": [file.file_name for file in files],
            "file_size": [file.file_size for file in files],
            "row_count": [file.row_count for file in files],
            "dv_ranges": ranges,
            "row_range_start": [each and each.row_range_start for each in covers],
            "row_range_end": [each and each.row_range_end for each in covers],
            "index_field_id": [each and each.index_field_id for each in covers],
            "index_field_name": [each and fields.get(each.index_field_id) for each in covers],
        },
    )


# ------------------------------------------------------------------------------------------------ pieces


def live_files(store: TableStore, snapshot: Snapshot | None, columns: Iterable[str] | None = None) -> pa.Table:
    """The entries of the live data files of a snapshot; of an empty table none."""
    if snapshot is None:
        return empty_entries()
    return live_entries(store.manifests, data_manifests(store.manifests, snapshot), columns=columns)


def sum_files(store: TableStore, snapshot: Snapshot | None, *by: str) -> pa.Table:
    """Rows, bytes and files of a snapshot by partition, or by partition and bucket."""
    wanted = {*by, "row_count", "file_size", "file_name", "creation_time_ms", "total_buckets"}
    entries = live_files(store, snapshot, wanted)
    sums = [(name, "sum") for name in ("row_count", "file_size")]
    others = [("file_name", "count"), ("creation_time_ms", "max"), ("total_buckets", "max")]
    return entries.group_by(list(by), use_threads=False).aggregate([*sums, *others])


def _deleted_counts(store: TableStore, snapshot: Snapshot | None, partitions: pa.ChunkedArray) -> pa.Array:
    """The rows that deletion vectors mark in each partition; null where one does not say how many it marks."""
    vectors = None if snapshot is None else snapshot_vectors(store.manifests, snapshot)
    if vectors is None:
        return pa.repeat(pa.scalar(0, pa.int64()), len(partitions))
    whole = pc.ScalarAggregateOptions(skip_nulls=False)
    sums = vectors.group_by("partition", use_threads=False).aggregate([("cardinality", "sum", whole)])
    places = pc.index_in(_flat(partitions), value_set=_flat(sums.column("partition")).cast(partitions.type))
    found = _flat(sums.column("cardinality_sum")).take(places)
    return pc.if_else(pc.is_null(places), 0, found)


def _sums(grouped: pa.Table) -> dict[str, Values]:
    return {
        "record_count": grouped.column("row_count_sum"),
        "file_size_in_bytes": grouped.column("file_size_sum"),
        "file_count": grouped.column("file_name_count"),
        "last_update_time": grouped.column("creation_time_ms_max"),
    }


def table_address(context: TableContext) -> str:
    """The full address of the table's folder, as Java writes it."""
    root = context.store.env.io.root.rstrip("/")
    return f"file:{root}" if root.startswith("/") else root


def file_addresses(context: TableContext, entries: pa.Table) -> pa.Array:
    """The full address of each file; the folder of each bucket is computed once."""
    root = table_address(context)
    partitions = _flat(entries.column("partition")).dictionary_encode()
    buckets = entries.column("bucket").to_numpy()
    places = np.stack([partitions.indices.to_numpy(zero_copy_only=False).astype(np.int64), buckets.astype(np.int64)])
    distinct, index = np.unique(places, axis=1, return_inverse=True)
    rows = partitions.dictionary.to_pylist()
    folders = [f"{root}/{context.paths.bucket(rows[partition], bucket)}/" for partition, bucket in distinct.T.tolist()]
    folder = pa.array(folders, pa.string()).take(pa.array(index.reshape(-1)))
    inside = pc.binary_join_element_wise(folder, _flat(entries.column("file_name")).cast(pa.string()), "")
    return pc.coalesce(_flat(entries.column("external_path")).cast(pa.string()), inside)


def _sources(column: pa.ChunkedArray) -> pa.Array:
    names = {each.value: each.name for each in FileSource}
    encoded = _flat(column).dictionary_encode()
    return pa.array([names.get(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


# ------------------------------------------------------------------------------------------------ statistics


def _stats_texts(store: TableStore, entries: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Null counts, minima and maxima of each file as the texts of maps by column."""
    fields = store.schema.fields
    maps = [np.full(entries.num_rows, _map_text({field.name: _UNKNOWN for field in fields}), object) for _ in range(3)]
    for rows, found in bounds_by_schema(store, entries, store.schema, store.schema.names):
        columns = (
            {field.name: found[field.name].null_count.cast(pa.string()) for field in fields},
            {field.name: value_texts(found[field.name].low, field.type) for field in fields},
            {field.name: value_texts(found[field.name].high, field.type) for field in fields},
        )
        for made, texts in zip(maps, columns, strict=True):
            made[rows] = _map_texts(texts).to_numpy(zero_copy_only=False)
    nulls, low, high = (pa.array(made, pa.string()) for made in maps)
    return nulls, low, high


def _key_texts(store: TableStore, rows: pa.ChunkedArray) -> pa.Array:
    """The key of each file as `[1, a]`; null where the table has no key."""
    schema = store.schema
    if not schema.primary_keys or not len(rows):
        return pa.nulls(len(rows), pa.string())
    types = [with_nullable(schema.field(name).type, True) for name in schema.trimmed_primary_keys]
    columns = decode_rows(_flat(rows), types)
    texts = [value_texts(column, dtype).fill_null(_UNKNOWN) for column, dtype in zip(columns, types, strict=True)]
    joined = pc.binary_join_element_wise(*texts, ", ")
    return pc.binary_join_element_wise("[", joined, "]", "")


def value_texts(values: pa.Array, dtype: DataType) -> pa.Array:
    """The text of each value; where it takes Python, it is made once for equal values."""
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.string())
    if dtype.root in _PLAIN:
        numbers = values.cast(pa.int32()) if dtype.root in (Root.DATE, Root.TIME) else values
        return numbers.cast(pa.string())
    if dtype.root in (Root.TIMESTAMP, Root.TIMESTAMP_LTZ) and (moments := _moment_texts(values)) is not None:
        return moments
    encoded = values.dictionary_encode()
    texts = [_text(value, dtype, legacy=True) for value in internal_values(encoded.dictionary, dtype)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _moment_texts(values: pa.Array) -> pa.Array | None:
    """`2024-01-02T03:04`, seconds and groups of three digits only as far as they are not zero, as Java prints them.

    None if a year has fewer or more than four digits.
    """
    moments = values.cast(pa.timestamp(values.type.unit))
    years = pc.min_max(pc.year(moments)).as_py()
    if not 1000 <= years["min"] <= years["max"] <= 9999:
        return None
    text = pc.utf8_replace_slice(moments.cast(pa.string()), 10, 11, "T")
    for _ in range({"ms": 0, "us": 1, "ns": 2}[values.type.unit]):
        text = pc.replace_substring_regex(text, r"(\.(?:\d{3})+)000$", r"\1")
    for zeros in (r"\.000$", r":00$"):
        text = pc.replace_substring_regex(text, zeros, "")
    return text


def _map_texts(columns: Mapping[str, pa.Array]) -> pa.Array:
    pairs = [
        pc.binary_join_element_wise(f"{name}=", columns[name].fill_null(_UNKNOWN), "") for name in _sort_names(columns)
    ]
    return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*pairs, ", "), "}", "")


def _map_text(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}={values[name]}" for name in _sort_names(values)) + "}"


def _sort_names(names: Mapping[str, object]) -> Sequence[str]:
    return sorted(names, key=lambda name: name.encode("utf-16-be"))  # as Java compares texts


# ------------------------------------------------------------------------------------------------ partitions


def partition_texts(store: TableStore, partitions: pa.ChunkedArray) -> pa.Array:
    """The values of the partition of each row as text such as `{2026-11-15, 7}`."""
    encoded = _flat(partitions).dictionary_encode()
    texts = pa.array([_row_text(store, row) for row in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _row_text(store: TableStore, row: bytes) -> str:
    return "{" + ", ".join(_UNKNOWN if text is None else text for text in _partition_values(store, row)) + "}"


def partition_names(context: TableContext, partitions: pa.ChunkedArray, *, legacy: bool = False) -> pa.Array:
    """The name of each of a few partitions, not escaped: `dt=2026-11-15/hr=7`; `legacy` is the old style of values."""
    return pa.array([_spec_text(context, row, legacy=legacy) for row in partitions.to_pylist()], pa.string())


def _spec_text(context: TableContext, row: bytes, *, legacy: bool) -> str:
    default = context.paths.options.default_partition_name
    texts = (
        text if text and not text.isspace() else default
        for text in _partition_values(context.store, row, legacy=legacy)
    )
    return "/".join(f"{key}={text}" for key, text in zip(context.schema.partition_keys, texts, strict=True))


def _partition_values(store: TableStore, row: bytes, *, legacy: bool = False) -> list[str | None]:
    types = store.schema.partition_types
    return [
        None if value is None else _text(value, dtype, legacy=legacy)
        for value, dtype in zip(decode_row(row, types), types, strict=True)
    ]


def _text(value: Any, dtype: DataType, *, legacy: bool) -> str:
    return value.hex() if isinstance(value, bytes) and legacy else value_text(value, dtype, legacy=legacy)


def _flat(values: pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks()
