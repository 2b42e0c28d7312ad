"""Manifest lists: one record per manifest, with ranges by which a plan can skip it without reading it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from tidelake.errors import FormatError
from tidelake.spec.avro.container import encode_container, parse_container, read_blocks
from tidelake.spec.avro.decode import Column, RecordLayout, decode_blocks, flatten_schema
from tidelake.spec.avro.encode import encode_records, split_blocks
from tidelake.spec.data_file import SimpleStats
from tidelake.spec.limits import LIMITS, Limits
from tidelake.spec.manifests.manifest import (
    BLOCK_BYTES,
    decode_columnar,
    frame_blocks,
    leaf_fields,
    record_schema,
    stats_schema,
)
from tidelake.spec.names import check_file_name

VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestMeta:
    """The metadata of one manifest in its list. A range is None if the writer did not record it."""

    file_name: str
    file_size: int
    num_added: int
    num_deleted: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None

    @property
    def num_entries(self) -> int:
        """The number of records in the manifest."""
        return self.num_added + self.num_deleted


_RANGES = (
    ("min_bucket", "_MIN_BUCKET", "int"),
    ("max_bucket", "_MAX_BUCKET", "int"),
    ("min_level", "_MIN_LEVEL", "int"),
    ("max_level", "_MAX_LEVEL", "int"),
    ("min_row_id", "_MIN_ROW_ID", "long"),
    ("max_row_id", "_MAX_ROW_ID", "long"),
)


def _columns() -> Iterable[Column]:
    yield Column("version", ("_VERSION",), pa.int32())
    yield Column("file_name", ("_FILE_NAME",), pa.large_string())
    yield Column("file_size", ("_FILE_SIZE",), pa.int64())
    yield Column("num_added", ("_NUM_ADDED_FILES",), pa.int64())
    yield Column("num_deleted", ("_NUM_DELETED_FILES",), pa.int64())
    yield Column("stats_min", ("_PARTITION_STATS", "_MIN_VALUES"), pa.large_binary())
    yield Column("stats_max", ("_PARTITION_STATS", "_MAX_VALUES"), pa.large_binary())
    yield Column("stats_null_counts", ("_PARTITION_STATS", "_NULL_COUNTS"), pa.large_list(pa.int64()))
    yield Column("schema_id", ("_SCHEMA_ID",), pa.int64())
    for name, wire, avro in _RANGES:
        yield Column(name, (wire,), pa.int32() if avro == "int" else pa.int64(), required=False)


LAYOUT = RecordLayout("manifest list", frozenset({VERSION}), tuple(_columns()))
_NAMES = tuple(column.name for column in LAYOUT.columns[1:])
SCHEMA_TEXT = record_schema(
    [
        {"name": "_VERSION", "type": "int"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_NUM_ADDED_FILES", "type": "long"},
        {"name": "_NUM_DELETED_FILES", "type": "long"},
        {"name": "_PARTITION_STATS", "type": stats_schema("record__PARTITION_STATS")},
        {"name": "_SCHEMA_ID", "type": "long"},
        *({"name": wire, "type": ["null", avro], "default": None} for _, wire, avro in _RANGES),
    ]
)
_LEAVES = leaf_fields(SCHEMA_TEXT)


def decode_manifest_list(data: bytes, *, path: str, limits: Limits = LIMITS) -> tuple[ManifestMeta, ...]:
    """Read a manifest list.

    Raises:
        FormatError: the bytes are not a manifest list of a known version or damaged, or a file name is unsafe.
    """
    if data[:4] == b"PAR1" or data[:3] == b"ORC":
        table = decode_columnar(data, LAYOUT, path=path, columns=_NAMES)
    else:
        container = parse_container(data, path=path)
        flat = flatten_schema(container.schema, LAYOUT, path=path)
        table = decode_blocks(flat, read_blocks(container, limits=limits), LAYOUT, path=path, columns=_NAMES)
    return tuple(_meta(row, path) for row in table.to_pylist())


def _meta(row: dict[str, Any], path: str) -> ManifestMeta:
    stats = SimpleStats(row.pop("stats_min"), row.pop("stats_max"), tuple(row.pop("stats_null_counts") or ()))
    if min(row["file_size"], row["num_added"], row["num_deleted"]) < 0:
        raise FormatError("manifest list has a negative count", path=path, manifest=row["file_name"])
    check_file_name(row["file_name"], path=path)
    return ManifestMeta(partition_stats=stats, **row)


def encode_manifest_list(metas: Sequence[ManifestMeta], *, codec: str = "zstandard") -> bytes:
    """The bytes of a manifest list file."""
    stats = [meta.partition_stats for meta in metas]
    values: dict[str, list[Any]] = {
        "stats_min": [each.min_values for each in stats],
        "stats_max": [each.max_values for each in stats],
        "stats_null_counts": [each.null_counts for each in stats],
    }
    for member in fields(ManifestMeta):
        if member.name != "partition_stats":
            values[member.name] = [getattr(meta, member.name) for meta in metas]
    version = pa.array([VERSION] * len(metas), pa.int32())
    columns = [version, *(pa.array(values[name], LAYOUT.schema.field(name).type) for name in _NAMES)]
    blocks = split_blocks(encode_records(_LEAVES, columns), block_bytes=BLOCK_BYTES)
    return encode_container(SCHEMA_TEXT, codec, frame_blocks(blocks, codec))
