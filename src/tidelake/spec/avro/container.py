"""Avro object containers: framing and bounded decompression.

A container is a header (schema, codec, sync marker) and blocks of (record count, byte size, payload, sync marker). This
module finds and decompresses the blocks itself, for two reasons: no library gets a length that was not checked, and
unchanged blocks can be copied between files without decoding a record. `avro_decode` and `avro_encode` convert records
from and to columns.
"""

from __future__ import annotations

import bz2
import functools
import hashlib
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelake.cleanup import raise_as_damage
from tidelake.errors import FormatError, InternalError, InvalidInputError
from tidelake.spec.limits import LIMITS, Limits

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
# A block may always expand to this size: the ratio of a tiny block of repeated values is far above any useful limit.
EXPANSION_FREE = 1 << 20
# Writers end a block after about 64 KB, so that real manifests stay far below both limits.
BLOCK_BYTES_MAX = 64 << 20
BLOCKS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Block:
    """Offset and size of one block's payload in the file, and the record count in its header (not verified)."""

    count: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container file: its bytes, writer schema, codec, and where its blocks are."""

    path: str
    data: bytes
    schema: Any
    codec: str
    blocks: tuple[Block, ...]

    @property
    def record_count(self) -> int:
        """The sum of the record counts in the headers of the blocks."""
        return sum(block.count for block in self.blocks)


@dataclass(frozen=True, slots=True)
class RawBlock:
    """A decompressed block: `count` encoded records without separators."""

    count: int
    payload: bytes


# ------------------------------------------------------------------------------------------------ varints


def encode_long(value: int) -> bytes:
    """The zig-zag variable-length form of a 64-bit integer."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_long(data: bytes, position: int, path: str) -> tuple[int, int]:
    value = shift = 0
    start = position
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise FormatError("Avro file has a damaged or cut-off number", path=path, offset=start)


def _read_bytes(data: bytes, position: int, path: str) -> tuple[bytes, int]:
    size, position = _read_long(data, position, path)
    if size < 0 or size > len(data) - position:
        raise FormatError("Avro header claims more bytes than the file has", path=path, offset=position)
    return data[position : position + size], position + size


# ------------------------------------------------------------------------------------------------ reading


def parse_container(data: bytes, *, path: str) -> Container:
    """Find the blocks of an Avro file without decompressing or decoding anything.

    Raises:
        FormatError: the bytes are not an Avro container, or a block does not end at a sync marker.
    """
    if data[:4] != MAGIC:
        raise FormatError("file is not an Avro container", path=path, offset=0)
    metadata, position = _read_metadata(data, path)
    sync = data[position : position + SYNC_SIZE]
    if len(sync) < SYNC_SIZE:
        raise FormatError("Avro header is cut off", path=path, offset=position)
    position += SYNC_SIZE
    blocks: list[Block] = []
    while position < len(data):
        start = position
        if len(blocks) == BLOCKS_MAX:
            raise FormatError("Avro file has too many blocks", path=path, offset=start, limit=BLOCKS_MAX)
        count, position = _read_long(data, position, path)
        size, position = _read_long(data, position, path)
        if count < 0 or size < 0 or size > len(data) - position - SYNC_SIZE:
            raise FormatError("Avro block claims more bytes than the file has", path=path, offset=start)
        if data[position + size : position + size + SYNC_SIZE] != sync:
            raise FormatError("Avro block does not end at a sync marker", path=path, offset=start)
        blocks.append(Block(count, position, size))
        position += size + SYNC_SIZE
    try:
        codec = metadata.get("avro.codec", b"null").decode()
        schema = json.loads(metadata["avro.schema"])
    except (KeyError, ValueError, RecursionError) as cause:
        raise FormatError("Avro header has no readable schema or codec", path=path) from cause
    return Container(path, data, schema, codec, tuple(blocks))


def _read_metadata(data: bytes, path: str) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    position = len(MAGIC)
    while True:
        count, position = _read_long(data, position, path)
        if count == 0:
            return metadata, position
        if count < 0:  # a negative count is followed by the byte size of the map block
            _, position = _read_long(data, position, path)
            count = -count
        if count > 1000:
            raise FormatError("Avro header has too many entries", path=path, count=count)
        for _ in range(count):
            key, position = _read_bytes(data, position, path)
            value, position = _read_bytes(data, position, path)
            metadata[key.decode("utf-8", "replace")] = value


def read_block(container: Container, block: Block, *, limits: Limits = LIMITS) -> RawBlock:
    """Decompress one block, up to the limits.

    Raises:
        FormatError: the codec is unknown, or the payload is damaged or expands beyond the limits.
    """
    payload = container.data[block.start : block.start + block.size]
    most = min(limits.manifest_bytes_max, max(BLOCK_BYTES_MAX, len(payload)))
    limit = min(most, max(EXPANSION_FREE, len(payload) * limits.manifest_ratio_max))
    try:
        decompress = DECOMPRESSORS[container.codec]
    except KeyError as cause:
        raise FormatError(
            "Avro codec is not known",
            path=container.path,
            codec=container.codec,
            hint=f"known codecs are {', '.join(DECOMPRESSORS)}",
        ) from cause
    with raise_as_damage(
        lambda cause: FormatError("Avro block is damaged", path=container.path, offset=block.start, cause=cause)
    ):
        try:
            raw = decompress(payload, limit)
        except _TooLargeError as cause:
            raise FormatError(
                "Avro block expands beyond the limit",
                path=container.path,
                offset=block.start,
                limit_bytes=limit,
                code="decompression-limit",
            ) from cause
    return RawBlock(block.count, raw)


def read_blocks(container: Container, *, limits: Limits = LIMITS) -> list[RawBlock]:
    """Decompress all blocks; their sum is limited too.

    Raises:
        FormatError: as `read_block`, or the blocks together exceed the limit.
    """
    total = 0
    # Each small block may expand to EXPANSION_FREE; without this limit many of them could fill the memory.
    most = min(limits.manifest_bytes_max, max(64 * EXPANSION_FREE, len(container.data) * limits.manifest_ratio_max))
    blocks: list[RawBlock] = []
    for block in container.blocks:
        raw = read_block(container, block, limits=limits)
        total += len(raw.payload)
        if total > most:
            raise FormatError(
                "Avro file expands beyond the limit",
                path=container.path,
                limit_bytes=most,
                code="decompression-limit",
            )
        blocks.append(raw)
    return blocks


# ------------------------------------------------------------------------------------------------ writing


def write_container(schema_text: str, codec: str, blocks: Sequence[bytes]) -> bytes:
    """Assemble a file from framed blocks made by `frame_block` (payloads already compressed with `codec`).

    The sync marker is a digest of the content: unique enough, and the same input gives the same file.
    """
    digest = hashlib.blake2b(schema_text.encode(), digest_size=SYNC_SIZE)
    for block in blocks:
        digest.update(block)
    sync = digest.digest()
    header = [MAGIC, encode_long(2)]
    for key, value in ((b"avro.schema", schema_text.encode()), (b"avro.codec", codec.encode())):
        header += [encode_long(len(key)), key, encode_long(len(value)), value]
    header += [encode_long(0), sync]
    return b"".join([*header, *(part for block in blocks for part in (block, sync))])


def encode_container(schema_text: str, codec: str, blocks: Sequence[bytes]) -> bytes:
    """Assemble a file as `write_container` does, and check that it can be read.

    The check reads the header and the frame of every block. It decodes records only if they are few: many records come
    from typed columns, and decoding them again would take longer than encoding them.

    Raises:
        InternalError: the file cannot be read.
    """
    data = write_container(schema_text, codec, blocks)
    _check_readable(data, schema_text, len(blocks))
    return data


_CHECKED_RECORDS: Final = 16
"""A file with at most this many records has all of them decoded before it is written."""


def _check_readable(data: bytes, schema_text: str, block_count: int) -> None:
    import fastavro

    try:
        container = parse_container(data, path="(not written yet)")
        if len(container.blocks) != block_count:
            raise FormatError("Avro file has the wrong number of blocks", path=container.path, expected=block_count)
        if 0 < container.record_count <= _CHECKED_RECORDS:
            schema = _reading_schema(schema_text)
            for block in container.blocks:
                raw = read_block(container, block)
                stream = io.BytesIO(raw.payload)
                for _ in range(raw.count):
                    fastavro.schemaless_reader(stream, schema, None)
                if stream.read(1):
                    raise FormatError("Avro block is longer than its records", path=container.path)
    except (FormatError, ValueError, EOFError, IndexError, TypeError) as cause:
        raise InternalError(
            "encoded Avro file is not readable, so it was not written", cause=str(cause)[:200]
        ) from cause


@functools.cache
def _reading_schema(schema_text: str) -> Any:
    import fastavro

    fields = json.loads(schema_text)["fields"]
    flat = [{"name": f"f{number}", "type": plain_type(field["type"])} for number, field in enumerate(fields)]
    return fastavro.parse_schema({"type": "record", "name": "checked", "fields": flat})


def frame_block(raw: RawBlock, codec: str) -> bytes:
    """Compress a block and put its record count and size in front.

    Raises:
        InvalidInputError: the codec is not known.
    """
    try:
        payload = COMPRESSORS[codec](raw.payload)
    except KeyError as cause:
        raise InvalidInputError(
            "Avro codec is not known", codec=codec, hint=f"use one of {', '.join(COMPRESSORS)}"
        ) from cause
    return encode_long(raw.count) + encode_long(len(payload)) + payload


def copy_block(container: Container, block: Block) -> bytes:
    """The framed bytes of a block without decompressing them, for a file with the same schema and codec."""
    payload = container.data[block.start : block.start + block.size]
    return encode_long(block.count) + encode_long(block.size) + payload


def codec_name(option: str) -> str:
    """The Avro codec for a value of `manifest.compression`.

    Raises:
        InvalidInputError: the format has no such codec.
    """
    codec = {"zstd": "zstandard"}.get(option.lower(), option.lower())
    if codec not in COMPRESSORS:
        raise InvalidInputError(
            "manifest compression is not known",
            value=option,
            hint="use zstd, null, deflate, snappy or bzip2",
            code="option-value",
        )
    return codec


def plain_type(avro_type: Any) -> Any:
    """The type without logical types: their bytes are the same, and fastavro would convert every value."""
    match avro_type:
        case {"logicalType": _, "type": inner}:
            return inner
        case [*branches]:
            return [plain_type(branch) for branch in branches]
        case _:
            return avro_type


# ------------------------------------------------------------------------------------------------ codecs


class _TooLargeError(Exception):
    pass


def _limit_output(make: Callable[[], Any]) -> Callable[[bytes, int], bytes]:
    """A decompress function for libraries whose objects take a maximum length and report the end of the stream."""

    def decompress(data: bytes, limit: int) -> bytes:
        stream = make()
        out: bytes = stream.decompress(data, limit + 1)
        if len(out) > limit:
            raise _TooLargeError
        if not stream.eof or stream.unused_data:
            raise EOFError("compressed data is cut off or followed by other bytes")
        return out

    return decompress


def _deflate_decompress(data: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(-15)
    out = stream.decompress(data, limit + 1)
    if len(out) > limit:
        raise _TooLargeError
    if not stream.eof:
        raise EOFError("compressed data is cut off")
    return out


def _deflate_compress(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


def _snappy_decompress(data: bytes, limit: int) -> bytes:
    import cramjam

    body, checksum = data[:-4], data[-4:]
    claimed = shift = 0
    for byte in body[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if claimed > limit:
        raise _TooLargeError
    out = bytes(cramjam.snappy.decompress_raw(body))
    if zlib.crc32(out).to_bytes(4, "big") != checksum:
        raise ValueError("checksum does not match")
    return out


def _snappy_compress(data: bytes) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big")


def _null_decompress(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise _TooLargeError
    return data


def _zstd_compress(data: bytes) -> bytes:
    # The checksum of a zstd frame is optional, and every reader understands it. With it, a flipped bit in a manifest is
    # an error instead of a wrong file list.
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: 3,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return zstd.compress(data, options=options)


_XZ_MEMORY = 128 << 20  # enough for the strongest preset; the header of a hostile file may demand 4 GiB

DECOMPRESSORS: dict[str, Callable[[bytes, int], bytes]] = {
    "zstandard": _limit_output(zstd.ZstdDecompressor),
    "null": _null_decompress,
    "deflate": _deflate_decompress,
    "snappy": _snappy_decompress,
    "bzip2": _limit_output(bz2.BZ2Decompressor),
    "xz": _limit_output(lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
}
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "zstandard": _zstd_compress,
    "null": lambda data: data,
    "deflate": _deflate_compress,
    "snappy": _snappy_compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
