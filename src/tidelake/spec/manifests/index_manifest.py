"""Index manifests: the complete list of the live index files of a snapshot (hash indexes, deletion vectors, others)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError
from tidelake.spec.avro.container import encode_container, parse_container, read_blocks
from tidelake.spec.avro.decode import Column, RecordLayout, decode_blocks, flatten_schema
from tidelake.spec.avro.encode import encode_records, split_blocks
from tidelake.spec.limits import LIMITS, Limits
from tidelake.spec.manifests.manifest import (
    BLOCK_BYTES,
    check_file_names,
    decode_columnar,
    frame_blocks,
    leaf_fields,
    record_schema,
)
from tidelake.spec.names import check_file_name

VERSION = 1
HASH = "HASH"
DELETION_VECTORS = "DELETION_VECTORS"


@dataclass(frozen=True, slots=True)
class DeletionVectorRange:
    """Where the deletion vector of one data file is stored in its index file."""

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalIndexMeta:
    """The row range and fields that a global index file covers."""

    row_range_start: int
    row_range_end: int
    index_field_id: int
    extra_field_ids: tuple[int, ...] | None = None
    index_meta: bytes | None = None
    source_meta: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """One index file, without its partition and bucket."""

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    global_index: GlobalIndexMeta | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index file and the partition and bucket it belongs to."""

    partition: bytes
    bucket: int
    file: IndexFile


_RANGE = {
    "type": "record",
    "name": "record__DELETIONS_VECTORS_RANGES",
    "fields": [
        {"name": "f0", "type": "string"},
        {"name": "f1", "type": "int"},
        {"name": "f2", "type": "int"},
        {"name": "_CARDINALITY", "type": ["null", "long"], "default": None},
    ],
}
_GLOBAL = {
    "type": "record",
    "name": "record__GLOBAL_INDEX",
    "fields": [
        {"name": "_ROW_RANGE_START", "type": "long"},
        {"name": "_ROW_RANGE_END", "type": "long"},
        {"name": "_INDEX_FIELD_ID", "type": "int"},
        {"name": "_EXTRA_FIELD_IDS", "type": ["null", {"type": "array", "items": "int"}], "default": None},
        {"name": "_INDEX_META", "type": ["null", "bytes"], "default": None},
        {"name": "_SOURCE_META", "type": ["null", "bytes"], "default": None},
    ],
}
_RANGE_ARROW = pa.struct(
    [("f0", pa.large_string()), ("f1", pa.int32()), ("f2", pa.int32()), ("_CARDINALITY", pa.int64())]
)
_GLOBAL_ARROW = pa.struct(
    [
        ("_ROW_RANGE_START", pa.int64()),
        ("_ROW_RANGE_END", pa.int64()),
        ("_INDEX_FIELD_ID", pa.int32()),
        ("_EXTRA_FIELD_IDS", pa.large_list(pa.int32())),
        ("_INDEX_META", pa.large_binary()),
        ("_SOURCE_META", pa.large_binary()),
    ]
)


def _columns() -> Iterable[Column]:
    yield Column("version", ("_VERSION",), pa.int32())
    yield Column("kind", ("_KIND",), pa.int32())
    yield Column("partition", ("_PARTITION",), pa.large_binary())
    yield Column("bucket", ("_BUCKET",), pa.int32())
    yield Column("index_type", ("_INDEX_TYPE",), pa.large_string())
    yield Column("file_name", ("_FILE_NAME",), pa.large_string())
    yield Column("file_size", ("_FILE_SIZE",), pa.int64())
    yield Column("row_count", ("_ROW_COUNT",), pa.int64())
    yield Column("ranges", ("_DELETIONS_VECTORS_RANGES",), pa.large_list(_RANGE_ARROW), required=False)
    yield Column("external_path", ("_EXTERNAL_PATH",), pa.large_string(), required=False)
    yield Column("global_index", ("_GLOBAL_INDEX",), _GLOBAL_ARROW, required=False)


LAYOUT = RecordLayout("index manifest", frozenset({VERSION}), tuple(_columns()))
_NAMES = tuple(column.name for column in LAYOUT.columns[1:])
SCHEMA_TEXT = record_schema(
    [
        {"name": "_VERSION", "type": "int"},
        {"name": "_KIND", "type": "int"},
        {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"},
        {"name": "_INDEX_TYPE", "type": "string"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
        {
            "name": "_DELETIONS_VECTORS_RANGES",
            "type": ["null", {"type": "array", "items": ["null", _RANGE]}],
            "default": None,
        },
        {"name": "_EXTERNAL_PATH", "type": ["null", "string"], "default": None},
        {"name": "_GLOBAL_INDEX", "type": ["null", _GLOBAL], "default": None},
    ]
)
_LEAVES = leaf_fields(SCHEMA_TEXT)


def decode_index_manifest(data: bytes, *, path: str, limits: Limits = LIMITS) -> tuple[IndexEntry, ...]:
    """Read an index manifest.

    Raises:
        FormatError: the bytes are not an index manifest or damaged, a file name is unsafe, or an entry is a DELETE.
    """
    return tuple(_entry(row, path) for row in _decode(data, path, limits).to_pylist())


VECTORS = pa.schema(
    [
        ("partition", pa.large_binary()),
        ("bucket", pa.int32()),
        ("file_name", pa.large_string()),
        ("file_size", pa.int64()),
        ("external_path", pa.large_string()),
        ("data_file", pa.large_string()),
        ("offset", pa.int32()),
        ("length", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
"""One row for each deletion vector: its index file, and its range in that file."""


def decode_vector_table(data: bytes, *, path: str, limits: Limits = LIMITS) -> pa.Table:
    """The deletion vectors that an index manifest lists, as a table of `VECTORS`.

    Raises:
        FormatError: the bytes are not an index manifest or damaged, a file name is unsafe, or an entry is a DELETE.
    """
    table = _decode(data, path, limits)
    if pc.any(pc.not_equal(table.column("kind"), 0)).as_py():
        raise FormatError("index manifest lists a deleted file", path=path)
    table = table.filter(pc.equal(table.column("index_type"), DELETION_VECTORS)).combine_chunks()
    check_file_names(table.column("file_name"), path=path)
    parents = pc.list_parent_indices(table.column("ranges"))
    ranges = pc.list_flatten(table.column("ranges"))
    if ranges.null_count:
        raise FormatError("index manifest has a deletion vector without a range", path=path)
    owners = table.select(VECTORS.names[:5]).take(parents)
    parts = [pc.struct_field(ranges, name) for name in ("f0", "f1", "f2", "_CARDINALITY")]
    return pa.Table.from_arrays([*owners.columns, *parts], schema=VECTORS)


def _decode(data: bytes, path: str, limits: Limits) -> pa.Table:
    if data[:4] == b"PAR1" or data[:3] == b"ORC":
        return decode_columnar(data, LAYOUT, path=path, columns=_NAMES)
    container = parse_container(data, path=path)
    flat = flatten_schema(container.schema, LAYOUT, path=path)
    return decode_blocks(flat, read_blocks(container, limits=limits), LAYOUT, path=path, columns=_NAMES)


def _entry(row: dict[str, Any], path: str) -> IndexEntry:
    if row["kind"] != 0:
        raise FormatError("index manifest lists a deleted file", path=path, file=row["file_name"])
    check_file_name(row["file_name"], path=path)
    ranges, whole = row["ranges"], row["global_index"]
    vectors = None
    if ranges is not None:
        if any(each is None for each in ranges):
            raise FormatError("index manifest has a deletion vector without a range", path=path, file=row["file_name"])
        vectors = tuple(DeletionVectorRange(r["f0"], r["f1"], r["f2"], r["_CARDINALITY"]) for r in ranges)
    return IndexEntry(
        row["partition"],
        row["bucket"],
        IndexFile(
            index_type=row["index_type"],
            file_name=row["file_name"],
            file_size=row["file_size"],
            row_count=row["row_count"],
            deletion_vectors=vectors,
            external_path=row["external_path"],
            global_index=None if whole is None else _global(whole),
        ),
    )


def _global(row: dict[str, Any]) -> GlobalIndexMeta:
    extra = row["_EXTRA_FIELD_IDS"]
    return GlobalIndexMeta(
        row_range_start=row["_ROW_RANGE_START"],
        row_range_end=row["_ROW_RANGE_END"],
        index_field_id=row["_INDEX_FIELD_ID"],
        extra_field_ids=None if extra is None else tuple(extra),
        index_meta=row["_INDEX_META"],
        source_meta=row["_SOURCE_META"],
    )


def encode_index_manifest(entries: Sequence[IndexEntry], *, codec: str = "zstandard") -> bytes:
    """The bytes of an index manifest file."""
    files = [entry.file for entry in entries]
    values: dict[str, list[Any]] = {
        "kind": [0] * len(entries),
        "partition": [entry.partition for entry in entries],
        "bucket": [entry.bucket for entry in entries],
        "ranges": [None if file.deletion_vectors is None else _range_rows(file.deletion_vectors) for file in files],
        "global_index": [None if file.global_index is None else _global_row(file.global_index) for file in files],
    }
    for name in ("index_type", "file_name", "file_size", "row_count", "external_path"):
        values[name] = [getattr(file, name) for file in files]
    version = pa.array([VERSION] * len(entries), pa.int32())
    columns = [version, *(pa.array(values[name], LAYOUT.schema.field(name).type) for name in _NAMES)]
    blocks = split_blocks(encode_records(_LEAVES, columns), block_bytes=BLOCK_BYTES)
    return encode_container(SCHEMA_TEXT, codec, frame_blocks(blocks, codec))


def _range_rows(vectors: Sequence[DeletionVectorRange]) -> list[dict[str, Any]]:
    return [{"f0": v.data_file, "f1": v.offset, "f2": v.length, "_CARDINALITY": v.cardinality} for v in vectors]


def _global_row(meta: GlobalIndexMeta) -> dict[str, Any]:
    return {
        "_ROW_RANGE_START": meta.row_range_start,
        "_ROW_RANGE_END": meta.row_range_end,
        "_INDEX_FIELD_ID": meta.index_field_id,
        "_EXTRA_FIELD_IDS": meta.extra_field_ids,
        "_INDEX_META": meta.index_meta,
        "_SOURCE_META": meta.source_meta,
    }
