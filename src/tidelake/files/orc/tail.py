"""Parses the tail of an ORC file: the seal and the statistics, which Arrow does not expose.

An ORC file ends with stripe statistics, a footer, a postscript and one byte with the length of the postscript. The
first two are compressed in chunks. All are Protocol Buffers, of which we need a few fields: the rows of each stripe,
the column numbers, user metadata, and the bounds of integers, dates, texts and decimals.

Invariant: statistics are only used for pruning. What cannot be parsed counts as unknown and is never an error: Arrow's
reader reports what is wrong with a file.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import cramjam

from tidelake.files.orc.protobuf import packed_numbers, read_message, zigzag
from tidelake.files.orc.seal import SEAL_NAME, checksum_error
from tidelake.io.fileio import InputFile
from tidelake.spec.types.data_types import DataType, DecimalType, Root

__all__ = ["OrcTail", "bounds_of", "read_tail"]

_TAIL_BYTES_MAX: Final = 64 << 20
_CHUNK_BYTES_MAX: Final = 64 << 20
_GUESS_BYTES: Final = 16 << 10
_NONE, _ZLIB, _SNAPPY, _ZSTD = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class OrcTail:
    """The parsed tail: user metadata, the numbers of the top-level columns, and the rows of each stripe.

    `stats` has for each stripe the raw statistics of each column by its number; it is empty if there are none.
    """

    user_metadata: dict[bytes, bytes]
    columns: tuple[int, ...]
    stripe_rows: tuple[int, ...]
    stats: tuple[tuple[bytes, ...], ...]


def read_tail(file: InputFile, *, path: str) -> OrcTail | None:
    """Return the tail; None if it cannot be parsed.

    Raises:
        FormatError: it cannot be parsed although the file has our seal.
        StorageError: the storage failed.
    """
    try:
        return _parse_tail(file)
    except (IndexError, ValueError, KeyError, TypeError, zlib.error, cramjam.DecompressionError) as error:
        size = min(file.size(), _GUESS_BYTES)
        if SEAL_NAME in _read_at(file, file.size() - size, size):
            raise checksum_error(path) from error
        return None


def _parse_tail(file: InputFile) -> OrcTail | None:
    size = file.size()
    postscript_size = _read_at(file, size - 1, 1)[0]
    postscript = read_message(_read_at(file, size - 1 - postscript_size, postscript_size))
    footer_size, codec = postscript[1][0], postscript.get(2, [_NONE])[0]
    metadata_size = postscript.get(5, [0])[0]
    if footer_size + metadata_size > min(size, _TAIL_BYTES_MAX):
        raise ValueError("tail is longer than the file")
    end = size - 1 - postscript_size
    footer = read_message(_decompress(_read_at(file, end - footer_size, footer_size), codec))
    metadata = read_message(_decompress(_read_at(file, end - footer_size - metadata_size, metadata_size), codec))
    user = [read_message(entry) for entry in footer.get(5, [])]
    root = read_message(footer[4][0])
    columns = tuple(number for packed in root.get(2, []) for number in packed_numbers(packed))
    rows = tuple(int(read_message(stripe)[5][0]) for stripe in footer.get(3, []))
    stats = tuple(tuple(read_message(stripe).get(1, [])) for stripe in metadata.get(1, []))
    metadata_of_user = {_bytes_of(entry[1][0]): _bytes_of(entry[2][0]) for entry in user}
    return OrcTail(metadata_of_user, columns, rows, stats if len(stats) == len(rows) else ())


def _bytes_of(value: Any) -> bytes:
    """Return the value of a field of bytes.

    Raises:
        ValueError: the field is a number.
    """
    if not isinstance(value, bytes):
        raise ValueError("field is a number")  # noqa: TRY004 - all errors of a tail are ValueErrors
    return value


def bounds_of(raw: bytes, dtype: DataType) -> tuple[Any, Any, bool]:
    """Return the bounds of a column in the internal domain (None: unknown), and whether it may have nulls."""
    try:
        message = read_message(raw)
        has_null = bool(message.get(10, [1])[0])
        low, high = _bounds(message, dtype)
    except (IndexError, ValueError, KeyError, TypeError, AttributeError, InvalidOperation):
        return None, None, True
    return (None, None, has_null) if low is None or high is None else (low, high, has_null)


def _bounds(message: dict[int, list[Any]], dtype: DataType) -> tuple[Any, Any]:
    if dtype.root in (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT) and 2 in message:
        inner = read_message(message[2][0])
        return zigzag(inner[1][0]), zigzag(inner[2][0])
    if dtype.root is Root.DATE and 7 in message:
        inner = read_message(message[7][0])
        return zigzag(inner[1][0]), zigzag(inner[2][0])
    if dtype.root is Root.VARCHAR and 4 in message:
        inner = read_message(message[4][0])
        # Long bounds are truncated: the lower one to a prefix, the upper one to the next text after its prefix.
        low, high = (inner.get(1) or inner[4])[0], (inner.get(2) or inner[5])[0]
        return low.decode(), high.decode()
    if isinstance(dtype, DecimalType) and 6 in message:
        inner = read_message(message[6][0])
        return Decimal(inner[1][0].decode()), Decimal(inner[2][0].decode())
    return None, None


def _read_at(file: InputFile, start: int, length: int) -> bytes:
    if start < 0:
        raise ValueError("position is before the start of the file")
    file.seek(start)
    return file.read(length)


def _decompress(data: bytes, codec: int) -> bytes:
    if codec == _NONE:
        return data
    out, position = [], 0
    while position < len(data):
        head = int.from_bytes(data[position : position + 3], "little")
        chunk = data[position + 3 : position + 3 + (head >> 1)]
        position += 3 + (head >> 1)
        out.append(chunk if head & 1 else _decompress_chunk(chunk, codec))
    return b"".join(out)


def _decompress_chunk(chunk: bytes, codec: int) -> bytes:
    if codec == _ZLIB:
        stream = zlib.decompressobj(-15)
        return stream.decompress(chunk, _CHUNK_BYTES_MAX)
    if codec == _SNAPPY:
        return bytes(cramjam.snappy.decompress_raw(chunk))
    if codec == _ZSTD:
        return bytes(cramjam.zstd.decompress(chunk))
    raise ValueError("codec is not known, or does not store the size of decompressed data")
