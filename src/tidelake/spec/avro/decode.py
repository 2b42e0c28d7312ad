"""Decode Avro records to Arrow columns, only those that are wanted.

Avro encodes nested records inline, so a schema whose inner records are flattened into top-level fields describes the
same bytes. The reader gets such a flat schema with our column names, and can then skip any leaf that is not wanted. All
blocks, of one file or of many with the same schema, are joined to one block that ends with a sentinel record. If a
count or length is wrong, the reader fails or the last record is not the sentinel.

Few records are decoded by fastavro, so that a small commit need not import polars; many by polars-avro.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from tidelake.cleanup import raise_as_damage
from tidelake.errors import FormatError
from tidelake.spec.avro.container import MAGIC, SYNC_SIZE, RawBlock, encode_long, plain_type

SENTINEL_VERSION = -0x7469_6465  # the version of a real record is never negative
BULK_COUNT = 500
"""From this many records on, the columnar reader is faster even with the time of its import."""


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf of the record: its path in the Avro schema, and its name and type in Arrow."""

    name: str
    path: tuple[str, ...]
    type: pa.DataType
    required: bool = True


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The columns of one kind of metadata file, in the order of its newest schema. The first is the version."""

    kind: str
    versions: frozenset[int]
    columns: tuple[Column, ...]
    by_path: Mapping[tuple[str, ...], Column] = field(init=False)
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_path", {column.path: column for column in self.columns})
        object.__setattr__(self, "schema", pa.schema([(column.name, column.type) for column in self.columns]))


@dataclass(frozen=True, slots=True)
class FlatSchema:
    """A flattened writer schema: `text` describes the same bytes, `names` are the columns in it that we know."""

    text: str
    names: tuple[str, ...]
    sentinel: bytes
    field_count: int


def flatten_schema(writer_schema: Any, layout: RecordLayout, *, path: str) -> FlatSchema:
    """Flatten a writer schema and match its leaves with the columns of the layout.

    Raises:
        FormatError: a required field is missing, a field is missing although a later one exists, or the schema has a
            shape that the format does not use.
    """
    leaves: list[tuple[tuple[str, ...], Any]] = []
    try:
        _collect(writer_schema, (), {}, leaves)
    except (KeyError, TypeError, RecursionError) as cause:
        raise FormatError(f"{layout.kind} has an Avro schema that cannot be understood", path=path) from cause
    found = {leaf for leaf, _ in leaves}
    if len(found) < len(leaves):
        raise FormatError(f"{layout.kind} has an Avro schema with a field twice", path=path)
    _check_fields(found, layout, path)
    flat: list[dict[str, Any]] = []
    names: list[str] = []
    sentinel: list[bytes] = []
    for index, (leaf, avro_type) in enumerate(leaves):
        column = layout.by_path.get(leaf)
        name = column.name if column else f"unknown_{index}"
        if column:
            names.append(name)
        first = column is layout.columns[0]
        flat.append({"name": name, "type": plain_type(avro_type)})
        sentinel.append(encode_long(SENTINEL_VERSION) if first else _empty_value(avro_type, layout, path))
        if column:
            _check_members(avro_type, column.type, layout, path)
    text = json.dumps({"type": "record", "name": "flat", "fields": flat}, separators=(",", ":"))
    return FlatSchema(text, tuple(names), b"".join(sentinel), len(flat))


def decode_blocks(
    flat: FlatSchema,
    blocks: Sequence[RawBlock],
    layout: RecordLayout,
    *,
    path: str,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Decode blocks that share one writer schema into the wanted columns, in the layout's order and types.

    A column that the files do not have is all null. The version column is always checked, but returned only if wanted.

    Raises:
        FormatError: records are damaged, counts are wrong, or a version is unknown.
    """
    wanted = [column for column in layout.columns if columns is None or column.name in columns]
    version = layout.columns[0].name
    present = set(flat.names)
    projected = sorted({version, *(column.name for column in wanted if column.name in present)})
    count = sum(block.count for block in blocks)
    parts = [*(block.payload for block in blocks), flat.sentinel]
    if count * flat.field_count > sum(map(len, parts)):
        raise FormatError(f"{layout.kind} claims more records than it has bytes for", path=path, records=count)
    read = _read_bulk if count >= BULK_COUNT else _read_few
    table = read(flat, parts, count + 1, projected, layout, path)
    _check_versions(table.column(version), layout, count, path)
    for column in wanted:
        if column.required and table.column(column.name).slice(0, count).null_count:
            raise FormatError(f"{layout.kind} lacks a value", path=path, field=".".join(column.path))
    arrays = [
        table.column(column.name).slice(0, count)
        if column.name in present
        else pa.chunked_array([pa.nulls(count, column.type)])
        for column in wanted
    ]
    return pa.table(arrays, schema=pa.schema([layout.schema.field(column.name) for column in wanted]))


# ------------------------------------------------------------------------------------------------ readers


def _read_bulk(
    flat: FlatSchema, parts: list[bytes], count: int, columns: list[str], layout: RecordLayout, path: str
) -> pa.Table:
    import polars_avro

    header = [MAGIC, encode_long(2)]
    for key, value in ((b"avro.schema", flat.text.encode()), (b"avro.codec", b"null")):
        header += [encode_long(len(key)), key, encode_long(len(value)), value]
    sync = bytes(SYNC_SIZE)
    frame_of_block = [encode_long(count), encode_long(sum(map(len, parts)))]
    file = b"".join([*header, encode_long(0), sync, *frame_of_block, *parts, sync])
    with raise_as_damage(partial(_damage_error, layout, path)):
        # polars-avro loops forever if a block is longer than its records, unless one batch holds all records and no
        # second batch is requested. Only the in-memory engine lets us choose the batch size.
        scan = polars_avro.scan_avro(io.BytesIO(file), batch_size=count)
        frame = scan.select(columns).limit(count).collect(engine="in-memory")
    if frame.height != count:
        raise FormatError(f"{layout.kind} holds fewer records than it claims", path=path, claimed=count - 1)
    arrow = frame.to_arrow()
    try:
        return pa.table([arrow.column(name).cast(layout.schema.field(name).type) for name in columns], names=columns)
    except pa.ArrowException as cause:
        raise _damage_error(layout, path, cause) from cause


def _read_few(
    flat: FlatSchema, parts: list[bytes], count: int, columns: list[str], layout: RecordLayout, path: str
) -> pa.Table:
    import fastavro

    schema = pa.schema([layout.schema.field(name) for name in columns])
    stream = io.BytesIO(b"".join(parts))
    with raise_as_damage(partial(_damage_error, layout, path)):
        parsed = _parse_schema(flat.text)
        records = [fastavro.schemaless_reader(stream, parsed, None) for _ in range(count)]
        if stream.tell() != sum(map(len, parts)):
            raise FormatError(f"{layout.kind} holds more bytes than its records need", path=path)
        return pa.Table.from_pylist(records, schema=schema)


_PARSED: dict[str, Any] = {}


def _parse_schema(text: str) -> Any:
    import fastavro

    if text not in _PARSED:
        if len(_PARSED) > 64:
            _PARSED.clear()
        _PARSED[text] = fastavro.parse_schema(json.loads(text))
    return _PARSED[text]


def _damage_error(layout: RecordLayout, path: str, cause: BaseException) -> FormatError:
    return FormatError(f"{layout.kind} has damaged records", path=path, cause=f"{type(cause).__name__}: {cause}"[:200])


def _check_versions(versions: pa.ChunkedArray, layout: RecordLayout, count: int, path: str) -> None:
    if versions[count].as_py() != SENTINEL_VERSION:
        raise FormatError(
            f"{layout.kind} has damaged records", path=path, cause="sizes of records do not add up to the block"
        )
    wrong = set(versions.slice(0, count).unique().to_pylist()) - layout.versions
    if wrong:
        raise FormatError(
            f"{layout.kind} has an unknown version",
            path=path,
            version=min(wrong, key=str),
            hint="version 1 was written by a preview release; write such a table again with a current release",
        )


# ------------------------------------------------------------------------------------------------ schemas


def _collect(
    record: Any, prefix: tuple[str, ...], named: dict[str, Any], out: list[tuple[tuple[str, ...], Any]]
) -> None:
    if not record["fields"]:
        raise TypeError("record without fields")
    for member in record["fields"]:
        if not isinstance(member["name"], str):
            raise TypeError("field name is not a string")
        leaf = (*prefix, member["name"])
        # A schema defines a record type once; old pypaimon refers to it by name where it occurs a second time.
        inner = named.get(member["type"], member["type"]) if isinstance(member["type"], str) else member["type"]
        if isinstance(inner, dict) and inner.get("type") == "record":
            _collect(inner, leaf, named, out)
            named[str(inner.get("name"))] = inner
        else:
            out.append((leaf, inner))
    if len(out) > 1000:
        raise TypeError("too many fields")


def _check_fields(found: set[tuple[str, ...]], layout: RecordLayout, path: str) -> None:
    # The format only ever appended fields to a record. So a gap among the known fields, or an unknown field whose name
    # differs from a missing one in a single character, means damage. Neither may silently read as null.
    groups: dict[tuple[str, ...], list[Column]] = {}
    for column in layout.columns:
        groups.setdefault(column.path[:-1], []).append(column)
    for columns in groups.values():
        missing = [column for column in columns if column.path not in found]
        last = max((i for i, column in enumerate(columns) if column.path in found), default=-1)
        for column in missing:
            twin = next((leaf for leaf in found if _one_off(leaf[-1], column.path[-1])), None)
            if column.required or columns.index(column) < last or (twin and twin not in layout.by_path):
                raise FormatError(f"{layout.kind} lacks a field", path=path, field=".".join(column.path))


def _check_members(avro_type: Any, dtype: pa.DataType, layout: RecordLayout, path: str) -> None:
    """Refuse a record inside a column unless its members are the known ones, in order; the last may be missing."""
    match avro_type:
        case ["null", inner]:
            _check_members(inner, dtype, layout, path)
        case {"type": "array", "items": items} if pa.types.is_large_list(dtype):
            _check_members(items, dtype.value_type, layout, path)
        case {"type": "record", "fields": [*members]} if pa.types.is_struct(dtype):
            for known, member in zip(dtype, members, strict=False):
                if member.get("name") != known.name:
                    raise FormatError(f"{layout.kind} lacks a field", path=path, field=known.name)


def _one_off(a: str, b: str) -> bool:
    return len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1


_DEPTH_MAX = 8


def _empty_value(avro_type: Any, layout: RecordLayout, path: str, depth: int = 0) -> bytes:
    """The encoding of an empty value of a type: zero, an empty text or list, the first branch of a union."""
    match avro_type:
        case "int" | "long" | "string" | "bytes" | "boolean" | {"type": "int" | "long"} | "null":
            return b"" if avro_type == "null" else b"\x00"
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            # A file could claim billions of items of zero bytes each, and nothing would contradict the claim.
            if depth < _DEPTH_MAX and _empty_value(inner, layout, path, depth + 1):
                return b"\x00"
        case {"type": "record", "fields": [*members]} if depth < _DEPTH_MAX:
            types = [member.get("type") if isinstance(member, dict) else None for member in members]
            return b"".join(_empty_value(each, layout, path, depth + 1) for each in types)
        case [first, *others] if depth < _DEPTH_MAX:
            empty = [_empty_value(each, layout, path, depth + 1) for each in (first, *others)]
            return b"\x00" + empty[0]
        case "float":
            return bytes(4)
        case "double":
            return bytes(8)
    raise FormatError(
        f"{layout.kind} has an Avro type that the format does not use", path=path, avro_type=str(avro_type)[:80]
    )
