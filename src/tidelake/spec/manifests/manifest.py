"""Manifests: one record per file that was added to or deleted from a table, as an Arrow table.

`ENTRIES` names the columns. A manifest of a million entries is one table with columns for partition, bucket, file name,
statistics and so on, which vector operations prune; nothing here makes an object per entry. Manifests are Avro files.
Those of old tables may be ORC or Parquet, which are read but never written.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError
from tidelake.spec.avro.container import RawBlock, encode_container, frame_block, parse_container, read_blocks
from tidelake.spec.avro.decode import Column, RecordLayout, decode_blocks, flatten_schema
from tidelake.spec.avro.encode import encode_records, split_blocks
from tidelake.spec.data_file import DataFile
from tidelake.spec.limits import LIMITS, Limits

VERSION = 2
ADD, DELETE = 0, 1
BLOCK_BYTES = 64_000
"""Bytes of encoded records per block, as in the Java writer."""

_NAMESPACE = "org.apache.paimon.avro.generated"
_BINARY, _TEXT, _LONG, _INT = pa.large_binary(), pa.large_string(), pa.int64(), pa.int32()
_TEXTS, _LONGS = pa.large_list(_TEXT), pa.large_list(_LONG)


def _columns() -> Iterable[Column]:
    yield Column("version", ("_VERSION",), _INT)
    yield Column("kind", ("_KIND",), _INT)
    yield Column("partition", ("_PARTITION",), _BINARY)
    yield Column("bucket", ("_BUCKET",), _INT)
    yield Column("total_buckets", ("_TOTAL_BUCKETS",), _INT)
    for name, wire, dtype in (
        ("file_name", "_FILE_NAME", _TEXT),
        ("file_size", "_FILE_SIZE", _LONG),
        ("row_count", "_ROW_COUNT", _LONG),
        ("min_key", "_MIN_KEY", _BINARY),
        ("max_key", "_MAX_KEY", _BINARY),
    ):
        yield Column(name, ("_FILE", wire), dtype)
    for side in ("key", "value"):
        record = ("_FILE", f"_{side.upper()}_STATS")
        yield Column(f"{side}_stats_min", (*record, "_MIN_VALUES"), _BINARY)
        yield Column(f"{side}_stats_max", (*record, "_MAX_VALUES"), _BINARY)
        yield Column(f"{side}_stats_null_counts", (*record, "_NULL_COUNTS"), _LONGS)
    for name, wire, dtype, required in (
        ("min_sequence", "_MIN_SEQUENCE_NUMBER", _LONG, True),
        ("max_sequence", "_MAX_SEQUENCE_NUMBER", _LONG, True),
        ("schema_id", "_SCHEMA_ID", _LONG, True),
        ("level", "_LEVEL", _INT, True),
        ("extra_files", "_EXTRA_FILES", _TEXTS, True),
        ("creation_time_ms", "_CREATION_TIME", _LONG, False),
        ("delete_row_count", "_DELETE_ROW_COUNT", _LONG, False),
        ("embedded_index", "_EMBEDDED_FILE_INDEX", _BINARY, False),
        ("file_source", "_FILE_SOURCE", _INT, False),
        ("value_stats_cols", "_VALUE_STATS_COLS", _TEXTS, False),
        ("external_path", "_EXTERNAL_PATH", _TEXT, False),
        ("first_row_id", "_FIRST_ROW_ID", _LONG, False),
        ("write_cols", "_WRITE_COLS", _TEXTS, False),
        ("write_cols_sequences", "_WRITE_COLS_SEQUENCES", _LONGS, False),
    ):
        yield Column(name, ("_FILE", wire), dtype, required)


LAYOUT = RecordLayout("manifest", frozenset({VERSION}), tuple(_columns()))
ENTRIES = pa.schema([field for field in LAYOUT.schema if field.name != "version"])
"""The columns of an entries table."""
_EMPTY = ENTRIES.empty_table()
_Indices = np.ndarray[tuple[int], np.dtype[np.int64]]

IDENTITY_COLUMNS = ("partition", "bucket", "level", "file_name", "extra_files", "embedded_index", "external_path")
PRUNING_COLUMNS = ("kind", "partition", "bucket", "total_buckets", "level")
"""The columns that decide whether an entry is wanted; only then the others are decoded."""


# ------------------------------------------------------------------------------------------------ Avro schemas


def _nullable(avro_type: Any) -> dict[str, Any]:
    return {"type": ["null", avro_type], "default": None}


def stats_schema(name: str) -> dict[str, Any]:
    """The Avro record of simple statistics under the given record name."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": "_MIN_VALUES", "type": "bytes"},
            {"name": "_MAX_VALUES", "type": "bytes"},
            {"name": "_NULL_COUNTS", **_nullable({"type": "array", "items": ["null", "long"]})},
        ],
    }


def record_schema(fields: Sequence[dict[str, Any]]) -> str:
    """The text of a top-level record schema with the names that Java gives it."""
    record = {"type": "record", "name": "record", "namespace": _NAMESPACE, "fields": list(fields)}
    return json.dumps(record, separators=(",", ":"))


_texts: dict[str, Any] = {"type": "array", "items": "string"}
_FILE_FIELDS: list[dict[str, Any]] = [
    {"name": "_FILE_NAME", "type": "string"},
    {"name": "_FILE_SIZE", "type": "long"},
    {"name": "_ROW_COUNT", "type": "long"},
    {"name": "_MIN_KEY", "type": "bytes"},
    {"name": "_MAX_KEY", "type": "bytes"},
    {"name": "_KEY_STATS", "type": stats_schema("record__FILE__KEY_STATS")},
    {"name": "_VALUE_STATS", "type": stats_schema("record__FILE__VALUE_STATS")},
    {"name": "_MIN_SEQUENCE_NUMBER", "type": "long"},
    {"name": "_MAX_SEQUENCE_NUMBER", "type": "long"},
    {"name": "_SCHEMA_ID", "type": "long"},
    {"name": "_LEVEL", "type": "int"},
    {"name": "_EXTRA_FILES", "type": _texts},
    {"name": "_CREATION_TIME", **_nullable({"type": "long", "logicalType": "timestamp-millis"})},
    {"name": "_DELETE_ROW_COUNT", **_nullable("long")},
    {"name": "_EMBEDDED_FILE_INDEX", **_nullable("bytes")},
    {"name": "_FILE_SOURCE", **_nullable("int")},
    {"name": "_VALUE_STATS_COLS", **_nullable(_texts)},
    {"name": "_EXTERNAL_PATH", **_nullable("string")},
    {"name": "_FIRST_ROW_ID", **_nullable("long")},
    {"name": "_WRITE_COLS", **_nullable(_texts)},
]
_SEQUENCES: dict[str, Any] = {"name": "_WRITE_COLS_SEQUENCES", **_nullable({"type": "array", "items": "long"})}


def _entry_fields(file_fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": "_VERSION", "type": "int"},
        {"name": "_KIND", "type": "int"},
        {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"},
        {"name": "_TOTAL_BUCKETS", "type": "int"},
        {"name": "_FILE", "type": {"type": "record", "name": "record__FILE", "fields": file_fields}},
    ]


SCHEMA_TEXT = record_schema(_entry_fields(_FILE_FIELDS))
"""The schema that Paimon 2.0 writes."""
SCHEMA = json.loads(SCHEMA_TEXT)
SCHEMA_TEXT_SEQUENCES = record_schema(_entry_fields([*_FILE_FIELDS, _SEQUENCES]))
"""The schema of Paimon 2.1. Used only if a file has sequences per column, so that 2.0 can read all other manifests."""


def leaf_fields(schema_text: str) -> list[dict[str, Any]]:
    """The leaves of a record schema in encoding order."""

    def spread(fields: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        for member in fields:
            inner = member["type"]
            if isinstance(inner, dict) and inner["type"] == "record":
                yield from spread(inner["fields"])
            else:
                yield member

    return list(spread(json.loads(schema_text)["fields"]))


_HOSTILE_NAME = r"[/\\\x00-\x1f\x7f]|^\.|^$"


def check_file_names(names: pa.Array | pa.ChunkedArray, *, path: str) -> None:
    """Refuse file names in metadata that could lead out of their folder, vectorised.

    Raises:
        FormatError: a name has a separator or control character, starts with a dot, is empty or too long.
    """
    bad = pc.or_(pc.match_substring_regex(names, _HOSTILE_NAME), pc.greater(pc.binary_length(names), 255))
    bad = pc.fill_null(bad, True)  # a missing name is refused too
    if pc.any(bad).as_py():
        name = names.filter(bad)[0].as_py()
        raise FormatError(
            "manifest names a file that is not in its folder", code="file-name", path=path, name=ascii(name)
        )


_LEAVES = {text: leaf_fields(text) for text in (SCHEMA_TEXT, SCHEMA_TEXT_SEQUENCES)}


# ------------------------------------------------------------------------------------------------ codec


def decode_manifest(
    data: bytes, *, path: str, columns: Sequence[str] | None = None, limits: Limits = LIMITS
) -> pa.Table:
    """Read the entries of a manifest, all columns or the named ones.

    Raises:
        FormatError: the bytes are not a manifest of a known version, or they are damaged.
    """
    if data[:4] == b"PAR1" or data[:3] == b"ORC":
        return decode_columnar(data, LAYOUT, path=path, columns=columns or ENTRIES.names)
    container = parse_container(data, path=path)
    flat = flatten_schema(container.schema, LAYOUT, path=path)
    blocks = read_blocks(container, limits=limits)
    return decode_blocks(flat, blocks, LAYOUT, path=path, columns=columns or ENTRIES.names)


def encode_entries(entries: pa.Table) -> tuple[str, pa.LargeBinaryArray]:
    """The Avro schema text to write and the encoded record of each entry."""
    sequences = entries.column("write_cols_sequences")
    text = SCHEMA_TEXT if sequences.null_count == len(sequences) else SCHEMA_TEXT_SEQUENCES
    leaves = _LEAVES[text]
    version = pa.repeat(pa.scalar(VERSION, _INT), entries.num_rows)
    arrays = [version, *(entries.column(name) for name in ENTRIES.names[: len(leaves) - 1])]
    return text, encode_records(leaves, arrays)


def encode_manifest(entries: pa.Table, *, codec: str = "zstandard") -> bytes:
    """The bytes of one manifest file with these entries."""
    text, records = encode_entries(entries)
    return encode_container(text, codec, frame_blocks(split_blocks(records, block_bytes=BLOCK_BYTES), codec))


def frame_blocks(blocks: Iterable[RawBlock], codec: str) -> list[bytes]:
    """Compress and frame blocks."""
    return [frame_block(block, codec) for block in blocks]


def decode_columnar(data: bytes, layout: RecordLayout, *, path: str, columns: Sequence[str]) -> pa.Table:
    """Read metadata records that an old table stored as ORC or Parquet.

    Raises:
        FormatError: the bytes are damaged or have other columns.
    """
    from tidelake.spec.manifests.columnar_metadata import (
        read_columnar,
    )  # imported here: old tables only, and Parquet loads slowly

    return read_columnar(io.BytesIO(data), layout, path=path, columns=columns)


# ------------------------------------------------------------------------------------------------ entries


def entries_table(
    files: Sequence[tuple[int, bytes, int, int, DataFile]],
) -> pa.Table:
    """An entries table from (kind, partition, bucket, total buckets, file) of a commit's own files."""
    if not files:
        return empty_entries()
    rows: dict[str, list[Any]] = {name: [] for name in ENTRIES.names}
    rows["kind"] = [kind for kind, *_ in files]
    rows["partition"] = [partition for _, partition, *_ in files]
    rows["bucket"] = [bucket for _, _, bucket, *_ in files]
    rows["total_buckets"] = [total for _, _, _, total, _ in files]
    plain = [file for *_, file in files]
    for side in ("key", "value"):
        stats = [getattr(file, f"{side}_stats") for file in plain]
        rows[f"{side}_stats_min"] = [each.min_values for each in stats]
        rows[f"{side}_stats_max"] = [each.max_values for each in stats]
        rows[f"{side}_stats_null_counts"] = [each.null_counts for each in stats]
    for name in ENTRIES.names:
        if name in DataFile.__dataclass_fields__:
            rows[name] = [getattr(file, name) for file in plain]
    return pa.table([pa.array(rows[field.name], field.type) for field in ENTRIES], schema=ENTRIES)


def empty_entries() -> pa.Table:
    """An entries table without rows."""
    return _EMPTY


def with_kind(entries: pa.Table, kind: int) -> pa.Table:
    """The same entries, all of the given kind."""
    column = pa.repeat(pa.scalar(kind, _INT), entries.num_rows)
    return entries.set_column(entries.column_names.index("kind"), ENTRIES.field("kind"), column)


_IDENTITY_FIELDS: list[dict[str, Any]] = [
    {"type": "bytes"},
    {"type": "int"},
    {"type": "int"},
    {"type": "string"},
    {"type": _texts},
    {"type": ["null", "bytes"]},
    {"type": ["null", "string"]},
]


def identities(entries: pa.Table) -> pa.LargeBinaryArray:
    """The identity of each entry's file as one binary value: equal bytes mean the same file at the same level."""
    return encode_records(_IDENTITY_FIELDS, [entries.column(name) for name in IDENTITY_COLUMNS])


def merge_entries(entries: pa.Table, *, whole: bool = False) -> pa.Table:
    """The net effect of entries in order: an ADD and a later DELETE of the same file cancel each other.

    A DELETE without an ADD is kept, because its ADD may be in a manifest that was not read. This is an error if the
    entries are the `whole` of a snapshot. A file that was added, deleted and added again counts once.

    Raises:
        FormatError: a file is added that exists already (`double-entry`), or deleted that does not exist
            (`delete-without-add`, or `double-entry` if it existed before).
    """
    kinds = entries.column("kind")
    if entries.num_rows == 0 or (pc.sum(kinds).as_py() == 0 and not _has_duplicates(entries)):
        return entries
    order, codes = _by_identity(entries)
    sorted_kinds = kinds.to_numpy()[order]
    again = codes[1:] == codes[:-1]
    doubled = np.flatnonzero(again & (sorted_kinds[1:] == sorted_kinds[:-1]))
    if len(doubled):
        # Additions and deletions of a file must alternate. Comparing only their counts would accept ADD ADD DELETE
        # DELETE.
        index = int(order[doubled[0] + 1])
        raise FormatError(
            "file is added or deleted twice",
            code="double-entry",
            file=entries.column("file_name")[index].as_py(),
            bucket=entries.column("bucket")[index].as_py(),
        )
    last = np.concatenate([~again, [True]])
    first = np.concatenate([[True], ~again])
    if whole and (sorted_kinds[first] == DELETE).any():
        index = int(order[first][sorted_kinds[first] == DELETE][0])
        name = entries.column("file_name")[index].as_py()
        raise FormatError("manifests delete a file that does not exist", code="delete-without-add", file=name)
    counts = np.flatnonzero(last) - np.flatnonzero(first) + 1
    kept = np.sort(order[last][counts % 2 == 1])
    return entries.take(pa.array(kept))


def repeated_identity(entries: pa.Table) -> int | None:
    """The index of an entry whose file another entry names too, whatever their kinds; None if all are distinct."""
    if entries.num_rows < 2 or not _has_duplicates(entries):
        return None
    order, codes = _by_identity(entries)
    again = np.flatnonzero(codes[1:] == codes[:-1])
    return int(order[again[0] + 1]) if len(again) else None


def _by_identity(entries: pa.Table) -> tuple[_Indices, _Indices]:
    """The indices of entries sorted by file, stable within a file, and a number for each index's file."""
    codes = identities(entries).dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    return order, codes[order]


def _has_duplicates(entries: pa.Table) -> bool:
    names = entries.column("file_name")
    distinct: int = pc.count_distinct(names).as_py()
    return bool(distinct < entries.num_rows)
