"""Deletion vectors as bytes: which rows of a data file are deleted, by their physical position.

An index file is a version byte and then one block for each data file. Only the index manifest says at which offset a
block starts. A block has one of two widths, which its magic number identifies:

    narrow   i32 size | i32 magic | portable roaring bitmap | i32 checksum               all big endian
    wide     i32 size | i32 magic (little endian) | i64 n | n x (i32 key | bitmap) | i32 checksum

`size` counts the bytes between itself and the checksum. The length in the index manifest means something else for each
width, as in the Java writers: for a narrow block it is that size, for a wide one it includes size and checksum.

Invariant: the positions that `decode_vector` returns are sorted and distinct, and they agree with the checksum, the
length and the number of deletions in the manifest. A block that disagrees is refused before it takes memory.
"""

from __future__ import annotations

import builtins
import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tidelake.errors import FormatError, InvalidInputError
from tidelake.spec.manifests.index_manifest import DeletionVectorRange

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = [
    "Positions",
    "VectorRange",
    "bitmap_of",
    "block_bytes_max",
    "check_version",
    "decode_vector",
    "encode_vectors",
    "positions_of",
]

Positions = npt.NDArray[np.int64]
"""Physical positions of rows in a data file, ascending and distinct."""

VectorRange = DeletionVectorRange

VERSION: Final = 1
NARROW_MAGIC: Final = 1581511376
WIDE_MAGIC: Final = 1681511377
POSITIONS_MAX: Final = 1 << 26
"""The most deleted rows of one file that are held in memory."""
_NARROW_ROWS_MAX: Final = (1 << 31) - 1  # positions are signed 32-bit integers in Java
_PARTS_MAX: Final = 128
"""Bitmaps of 2^32 rows in one wide vector: far more rows than a data file has."""
_FRAME: Final = 8  # the size before a block and the checksum after it


def encode_vectors(
    vectors: Sequence[tuple[str, BitMap]], *, wide: bool
) -> tuple[bytes, tuple[DeletionVectorRange, ...]]:
    """Return the bytes of an index file, and the range of each data file's vector in it.

    Args:
        vectors: Names of data files, each with the positions of its deleted rows. They are written in this order.
        wide: Whether the bitmaps have 64 bits (`deletion-vectors.bitmap64`).

    Raises:
        InvalidInputError: a position is too large for the narrow form.
    """
    out = bytearray([VERSION])
    ranges = []
    for name, bitmap in vectors:
        if not wide and bitmap and bitmap.max() > _NARROW_ROWS_MAX:
            raise InvalidInputError(
                "row position is too large for a 32-bit deletion vector",
                file=name,
                row=bitmap.max(),
                hint="set deletion-vectors.bitmap64 to true",
            )
        body = _wide_body(bitmap) if wide else struct.pack(">i", NARROW_MAGIC) + _serialize(bitmap)
        length = len(body) + _FRAME if wide else len(body)
        ranges.append(DeletionVectorRange(name, len(out), length, len(bitmap)))
        out += struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    return bytes(out), tuple(ranges)


def _wide_body(bitmap: BitMap) -> bytes:
    if not bitmap:
        return struct.pack("<iq", WIDE_MAGIC, 0)
    # One bitmap, with key 0: pyroaring's positions end at 2^32, and no data file has as many rows.
    return struct.pack("<iqi", WIDE_MAGIC, 1, 0) + _serialize(bitmap)


def _serialize(bitmap: BitMap) -> bytes:
    compact = bitmap.copy()  # `run_optimize` works in place, and the caller's bitmap is not ours to change
    compact.run_optimize()
    return bytes(compact.serialize())


def check_version(first: bytes, *, path: str) -> None:
    """Refuse an index file of another version by its first byte.

    Raises:
        FormatError: it has another version, or is empty.
    """
    if first[:1] != bytes([VERSION]):
        raise FormatError("deletion vectors have an unknown version", path=path, version=first[:1].hex() or None)


def block_bytes_max(range: DeletionVectorRange) -> int:  # noqa: A002 - the agreed name
    """How many bytes to read from a vector's offset to get all of it, before its width is known."""
    return range.length + _FRAME


def decode_vector(
    block: bytes,
    *,
    range: DeletionVectorRange,  # noqa: A002 - the agreed name
    path: str | None = None,
    row_count: int | None = None,
) -> Positions:
    """The deleted positions of a data file, sorted.

    Args:
        block: The bytes from the range's offset on, at least the whole block; bytes after it are ignored.
        range: What the index manifest says about the block.
        path: The path of the index file, for error messages.
        row_count: Rows of the data file; positions beyond are refused.

    Raises:
        FormatError: the size, magic number, checksum, bitmap or number of deletions is wrong.
    """
    facts: dict[str, Any] = {"path": path, "data_file": range.data_file, "offset": range.offset}
    if len(block) < _FRAME + 4:
        raise FormatError("deletion vector ends too early", **facts, size=len(block))
    (size,) = struct.unpack_from(">i", block)
    (narrow,) = struct.unpack_from(">i", block, 4)
    (wide,) = struct.unpack_from("<i", block, 4)
    if narrow != NARROW_MAGIC and wide != WIDE_MAGIC:
        raise FormatError("deletion vector has an unknown magic number", **facts, magic=block[4:8].hex())
    promised = range.length if narrow == NARROW_MAGIC else range.length - _FRAME
    if size != promised or size < 4 or len(block) < size + _FRAME:
        raise FormatError(
            "size of the deletion vector differs from its index manifest", **facts, size=size, expected=promised
        )
    body = memoryview(block)[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", block, 4 + size)
    if zlib.crc32(body) != checksum:
        raise FormatError("deletion vector does not match its checksum", **facts)
    try:
        parts = [(0, _read_bitmap(body[4:], whole=True))] if narrow == NARROW_MAGIC else _read_wide(body[4:])
    except (ValueError, IndexError, struct.error) as cause:
        raise FormatError("deletion vector is not a valid roaring bitmap", **facts) from cause
    count = sum(len(part) for _, part in parts)
    if range.cardinality is not None and count != range.cardinality:
        raise FormatError(
            "number of deletions differs from the index manifest",
            **facts,
            rows=count,
            promised=range.cardinality,
        )
    limit = POSITIONS_MAX if row_count is None else min(row_count, POSITIONS_MAX)
    last = next(((key << 32) + part.max() for key, part in reversed(parts) if part), -1)
    if count > limit or (row_count is not None and last >= row_count):
        raise FormatError("deletion vector deletes rows that the data file does not have", **facts, rows=row_count)
    return np.concatenate([np.zeros(0, np.int64), *(positions_of(part) + (key << 32) for key, part in parts)])


def _read_wide(data: memoryview) -> list[tuple[int, BitMap]]:
    (count,) = struct.unpack_from("<q", data)
    at, parts = 8, []
    if not 0 <= count <= _PARTS_MAX:
        raise ValueError("number of bitmaps")
    for number in builtins.range(count):
        (key,) = struct.unpack_from("<i", data, at)
        if key != number:  # writers fill gaps with empty bitmaps, so the keys are 0, 1, 2, ...
            raise ValueError("key of a bitmap")
        bitmap = _read_bitmap(data[at + 4 :], whole=False)
        at += 4 + len(bitmap.serialize())
        parts.append((key, bitmap))
    if at != len(data):
        raise ValueError("bytes after the last bitmap")
    return parts


def _read_bitmap(data: memoryview, *, whole: bool) -> BitMap:
    from pyroaring import BitMap  # imported here: most tables have no vectors, and `import tidelake` has to stay fast

    bitmap = BitMap.deserialize(bytes(data))
    if whole and len(bitmap.serialize()) != len(data):
        raise ValueError("bytes after the bitmap")
    return bitmap


def positions_of(bitmap: BitMap) -> Positions:
    """The positions in a bitmap, ascending."""
    return np.asarray(bitmap.to_array(), dtype=np.int64)


def bitmap_of(positions: Positions) -> BitMap:
    """Return the bitmap of these positions, which may come in any order.

    Raises:
        InvalidInputError: a position does not fit into 32 bits.
    """
    from pyroaring import BitMap  # imported here for the reason above

    if len(positions) and int(positions.max()) >> 32:
        raise InvalidInputError(
            "rows beyond the first 2^32 of a file cannot be deleted by a vector", row=positions.max()
        )
    return BitMap(array("I", positions.astype(np.uint32).tobytes()))
