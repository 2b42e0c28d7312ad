"""Reads Avro data files: we frame and decompress the blocks, polars-avro decodes the columns.

Blocks are decoded some megabytes at a time, and only the wanted columns. We append a known record to each piece: if a
count or length in the file is wrong, decoding fails, or this record is not the last one.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import raise_as_damage
from tidelake.errors import FormatError
from tidelake.expr.tree import Predicate
from tidelake.files.avro.types import from_avro, plain_schema
from tidelake.files.avro.write import CHECKSUM_KEY
from tidelake.files.groups import Group
from tidelake.files.schema_mapping import Source
from tidelake.io.fileio import InputFile
from tidelake.spec.avro.container import MAGIC, SYNC_SIZE, RawBlock, encode_long, parse_container, read_block
from tidelake.spec.limits import Limits

__all__ = ["AvroSource"]

_PIECE_BYTES: Final = 32 << 20
# Data compresses far better than metadata: one long text of a single repeated letter fills a block.
_LIMITS: Final = Limits(manifest_bytes_max=1 << 30, manifest_ratio_max=1 << 20)
_PRESENT: Final = 1
"""The branch number of a record that is not null."""
_TOKEN_NUMBER: Final = 0x7469_6465
_TOKEN_TEXT: Final = "\x00tide\x00"
_TOKEN_FLOAT: Final = b"tide"
_TOKEN_DOUBLE: Final = b"tidelake"


class AvroSource:
    """An open Avro file."""

    def __init__(self, file: InputFile, *, path: str) -> None:
        """Read the file and frame its blocks.

        Raises:
            FormatError: it is not an Avro file, or is damaged.
            StorageError: the storage failed.
        """
        self._path = path
        file.seek(0)
        data = file.read()
        self._container = parse_container(data, path=path)
        _check_schema(data, path)
        schema = plain_schema(self._container.schema, {})
        # Paimon 0.9 declares nullable records: each record then begins with its branch number.
        self._numbered = isinstance(schema, list) and len(schema) == 2 and schema[0] == "null"
        record = schema[1] if self._numbered else schema
        if not isinstance(record, dict) or record.get("type") != "record":
            raise FormatError("schema of the Avro file is not a record", path=path)
        names = [member["name"] for member in record["fields"]]
        if len(set(names)) != len(names):
            raise FormatError("file has two columns with the same name", path=path)
        branch: list[dict[str, Any]] = [{"name": "", "type": "int"}] if self._numbered else []
        self._members = [*branch, *record["fields"]]
        self._places = {name: index + len(branch) for index, name in enumerate(names)}
        # Name columns by number: polars-avro does not accept every column name.
        flat = [{"name": f"c{index}", "type": member["type"]} for index, member in enumerate(self._members)]
        self._schema_text = json.dumps({"type": "record", "name": "row", "fields": flat})
        self._token = _token_place(self._members)
        self._closing = b"".join(
            _token_bytes(member["type"]) if index == self._token else _empty_bytes(member["type"], path)
            for index, member in enumerate(self._members)
        )

    @property
    def row_count(self) -> int:
        """The number of rows, as stored in the blocks."""
        return self._container.record_count

    def groups(self) -> list[Group]:
        """Return all rows as one group: Avro has no statistics to prune by."""
        return [Group(0, 0, self.row_count, whole=False)]

    def has(self, name: str) -> bool:
        """Return whether the file has a column with this name."""
        return name in self._places

    def prune_groups(self, groups: Sequence[Group], where: Predicate, sources: Sequence[Source]) -> list[Group]:  # noqa: ARG002
        """Return all groups."""
        return list(groups)

    def pick(self, *_: object) -> None:
        """Return None: rows of a group cannot be read without the others."""

    def read(self, group: Group, sources: Sequence[Source], batch_rows: int) -> Iterator[pa.Table]:  # noqa: ARG002
        """Yield tables of consecutive rows with the wanted columns that the file has, under the file's names.

        Raises:
            FormatError: the file is damaged.
        """
        wanted = {source.found.name: source.found for source in sources if source.found is not None}
        wanted = {name: field for name, field in wanted.items() if self.has(name)}
        for blocks in self._pieces():
            count = sum(block.count for block in blocks)
            columns = self._decode(blocks, count, [self._places[name] for name in wanted])
            yield pa.Table.from_arrays(
                [
                    pa.chunked_array([from_avro(chunk, field.type) for chunk in columns[self._places[name]].chunks])
                    for name, field in wanted.items()
                ],
                names=list(wanted),
            )

    def _pieces(self) -> Iterator[list[RawBlock]]:
        piece: list[RawBlock] = []
        size = 0
        for place in self._container.blocks:
            block = read_block(self._container, place, limits=_LIMITS)
            if block.count:
                piece.append(block)
                size += len(block.payload)
            if size >= _PIECE_BYTES:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    def _decode(self, blocks: list[RawBlock], count: int, places: list[int]) -> dict[int, pa.ChunkedArray]:
        import polars_avro

        payload = b"".join([*(block.payload for block in blocks), self._closing])
        if count > len(payload):
            raise FormatError("Avro blocks have more records than bytes", path=self._path, records=count)
        header = [MAGIC, encode_long(2)]
        for key, value in ((b"avro.schema", self._schema_text.encode()), (b"avro.codec", b"null")):
            header += [encode_long(len(key)), key, encode_long(len(value)), value]
        sync = bytes(SYNC_SIZE)
        file = b"".join(
            [*header, encode_long(0), sync, encode_long(count + 1), encode_long(len(payload)), payload, sync]
        )
        names = sorted({f"c{place}" for place in (*places, self._token)})
        with raise_as_damage(self._decode_error):
            # One batch that holds all: the reader would wait for ever for a second one that a wrong length promises.
            scan = polars_avro.scan_avro(io.BytesIO(file), batch_size=count + 1)
            frame = scan.select(names).limit(count + 1).collect(engine="in-memory")
        if frame.height != count + 1:
            raise FormatError(
                "Avro file has fewer records than its blocks say",
                path=self._path,
                expected=count,
                found=frame.height - 1,
            )
        table = frame.to_arrow()
        if not _is_token(table.column(f"c{self._token}")[count].as_py()):
            raise FormatError("Avro records do not end where they should", path=self._path)
        if self._numbered and pc.any(pc.not_equal(table.column("c0").slice(0, count), _PRESENT)).as_py():
            raise FormatError("Avro file has a null instead of a row", path=self._path)
        return {place: table.column(f"c{place}").slice(0, count) for place in places}

    def _decode_error(self, cause: BaseException) -> FormatError:
        return FormatError(
            "Avro file has damaged records", path=self._path, cause=f"{type(cause).__name__}: {cause}"[:200]
        )


def _check_schema(data: bytes, path: str) -> None:
    """Compare the schema with its checksum, which our own files have in their header."""
    found = _header_entries(data)
    expected = found.get(CHECKSUM_KEY.encode())
    if expected is not None and f"{zlib.crc32(found.get(b'avro.schema', b'')):08x}".encode() != expected:
        raise FormatError("schema of the Avro file does not match its checksum", path=path)


def _header_entries(data: bytes) -> dict[bytes, bytes]:
    """Return the entries of a header that `parse_container` has accepted."""
    entries: dict[bytes, bytes] = {}
    position = len(MAGIC)
    while True:
        count, position = _long(data, position)
        if count == 0:
            return entries
        if count < 0:
            _, position = _long(data, position)
            count = -count
        for _ in range(count):
            size, position = _long(data, position)
            key, position = data[position : position + size], position + size
            size, position = _long(data, position)
            entries[key], position = data[position : position + size], position + size


def _long(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


# ------------------------------------------------------------------------------------------------ the closing record


def _unwrap_nullable(avro_type: Any) -> Any:
    return avro_type[1] if isinstance(avro_type, list) and len(avro_type) == 2 and avro_type[0] == "null" else avro_type


def _token_place(members: Sequence[dict[str, Any]]) -> int:
    """Return the column that identifies the appended record: the first whose type allows an unlikely value."""
    for kinds in (("int", "long"), ("string", "bytes"), ("float", "double")):
        for index, member in enumerate(members):
            if _unwrap_nullable(member["type"]) in kinds:
                return index
    return 0


def _token_bytes(avro_type: Any) -> bytes:
    branch = b"\x02" if isinstance(avro_type, list) else b""
    match _unwrap_nullable(avro_type):
        case "int" | "long":
            return branch + encode_long(_TOKEN_NUMBER)
        case "string" | "bytes":
            return branch + encode_long(len(_TOKEN_TEXT)) + _TOKEN_TEXT.encode()
        case "float":
            return branch + _TOKEN_FLOAT
        case "double":
            return branch + _TOKEN_DOUBLE
    return _empty_bytes(avro_type, "")


def _is_token(value: Any) -> bool:
    if isinstance(value, bool) or value is None or not isinstance(value, int | float | str | bytes):
        return _is_empty(value)
    if isinstance(value, int):
        return value == _TOKEN_NUMBER
    if isinstance(value, float):
        return value in (*struct.unpack("<f", _TOKEN_FLOAT), *struct.unpack("<d", _TOKEN_DOUBLE))
    return value in (_TOKEN_TEXT, _TOKEN_TEXT.encode())


def _is_empty(value: Any) -> bool:
    """Return whether a value is what `_empty_bytes` encodes; a ROW is empty if all of its members are."""
    return all(map(_is_empty, value.values())) if isinstance(value, dict) else not value


def _empty_bytes(avro_type: Any, path: str, depth: int = 0) -> bytes:
    """Return the encoding of the smallest value of a type."""
    match avro_type:
        case "null":
            return b""
        case "int" | "long" | "boolean" | "string" | "bytes" | {"type": "array" | "map"}:
            return b"\x00"
        case "float":
            return bytes(4)
        case "double":
            return bytes(8)
        case [first, *_]:
            return b"\x00" + _empty_bytes(first, path, depth + 1)
        case {"type": "record", "fields": [*members]}:
            return b"".join(_empty_bytes(member["type"], path, depth + 1) for member in members)
    raise FormatError("Avro schema has a type that data files do not have", path=path, avro_type=str(avro_type)[:80])
