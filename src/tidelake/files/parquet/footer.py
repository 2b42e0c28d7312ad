"""The footer of a Parquet file: sealed with a checksum when we write it, verified when we read it.

Pages have checksums, the footer has none: a flipped bit in it can rename a column, move an offset, or falsify a minimum
so that rows are pruned wrongly. So our files have a seal in the footer's key-value metadata: the CRC-32 of the footer
itself (computed with zeros in its place), size and CRC-32 of the page index in front of it, and which float columns
have NaN, which Arrow's statistics silently leave out. Other readers ignore it; a footer without a seal comes from
another writer and is read without this check.

Invariant: a footer with our seal is exactly the footer that we wrote, or reading it fails.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import FormatError
from tidelake.files.int96 import INT96_BYTES, is_int96
from tidelake.files.parquet.thrift import BINARY, I32, STRUCT, Struct, read_struct, write_struct
from tidelake.files.parquet.types import Leaf, is_annotated
from tidelake.io.fileio import InputFile
from tidelake.spec.types.data_types import GeoType, Root

__all__ = ["MAGIC", "SEAL_KEY", "Footer", "open_footer", "seal_footer", "seal_text"]

MAGIC: Final = b"PAR1"
SEAL_KEY: Final = b"tidelake.seal"
TAIL_BYTES: Final = 8
_GUESS_BYTES: Final = 64 << 10
_ZEROS: Final = b"00000000"
_NO_INDEX: Final = b"index=" + _ZEROS + b":" + _ZEROS
_SEAL: Final = re.compile(rb"crc32=([0-9a-f]{8})(?: index=([0-9a-f]{8}):([0-9a-f]{8}))?(?: nan=([0-9,]*))?")

# Numbers of the Parquet definition: fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData.
_SCHEMA, _ROW_GROUPS, _COLUMNS, _META, _STATISTICS = 2, 4, 1, 3, 12
_PAGE_BOUNDS = (6, 7)  # offset and length of the index of page bounds, in a ColumnChunk
_TYPE, _TYPE_LENGTH, _CHILDREN, _LOGICAL = 1, 2, 5, 10
_NULL_COUNT = 3
_PHYSICAL_INT96, _PHYSICAL_FIXED = 3, 7
_LOGICAL_GEOMETRY, _LOGICAL_GEOGRAPHY = 17, 18


@dataclass(frozen=True, slots=True)
class Footer:
    """A parsed footer: Arrow's metadata, whether it has our seal, and the leaves known to have NaN.

    Columns are read with `readable`. Arrow converts INT96 to 64-bit nanoseconds and silently wraps values that do not
    fit, so `readable` declares such columns as the twelve bytes that they are stored as.
    """

    metadata: pq.FileMetaData
    readable: pq.FileMetaData
    readable_bytes: bytes
    """The bytes that `readable` was parsed from."""
    start: int
    """Where the footer begins in the file."""
    sealed: bool
    nan_leaves: frozenset[int] = frozenset()
    index_bytes: int = 0
    """The size of the page index in front of a sealed footer; 0 if there is none."""
    index_checksum: int = 0


def seal_text(nan_leaves: Collection[int]) -> bytes:
    """Return the seal to add to the metadata before the footer is written; `seal_footer` fills in the checksums."""
    nan = b" nan=" + ",".join(map(str, sorted(nan_leaves))).encode() if nan_leaves else b""
    return b"crc32=" + _ZEROS + b" " + _NO_INDEX + nan


def seal_footer(tail: bytes, leaves: Sequence[Leaf], seal: bytes, nan_leaves: Collection[int] = ()) -> bytes:
    """Return the last bytes of a file (page index, footer, its length, magic) with declared types and filled-in seal.

    Raises:
        FormatError: the bytes are not the end of a Parquet file with that seal.
    """
    size = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != MAGIC or size + TAIL_BYTES > len(tail):
        raise FormatError("end of the Parquet file is malformed")
    before, footer = tail[: -TAIL_BYTES - size], tail[-TAIL_BYTES - size : -TAIL_BYTES]
    if nan_leaves or any(is_int96(leaf.type) or is_annotated(leaf.type) for leaf in leaves):
        tree = read_struct(footer)
        _declare_types(tree, leaves, nan_leaves)
        footer = write_struct(tree)
    place = footer.rfind(seal)  # the last one, because a text in the statistics may look the same
    if place < 0:
        raise FormatError("footer of the Parquet file has no seal")
    place += len(b"crc32=")
    index = place + len(_ZEROS) + len(b" index=")
    index_seal = f"{len(before):08x}:{zlib.crc32(before):08x}".encode()
    footer = footer[:index] + index_seal + footer[index + len(index_seal) :]
    checksum = f"{zlib.crc32(footer):08x}".encode()
    footer = footer[:place] + checksum + footer[place + len(_ZEROS) :]
    return before + footer + len(footer).to_bytes(4, "little") + MAGIC


def _declare_types(tree: Struct, leaves: Sequence[Leaf], nan_leaves: Collection[int]) -> None:
    """Set the types and annotations that Arrow's writer cannot set, and remove page bounds that would be wrong."""
    primitives = [element for element in tree[_SCHEMA][1][1] if _CHILDREN not in element]
    changed = [index for index, leaf in enumerate(leaves) if is_int96(leaf.type) or is_annotated(leaf.type)]
    for index in changed:
        element, dtype = primitives[index], leaves[index].type
        if is_int96(dtype):
            element[_TYPE] = I32, _PHYSICAL_INT96
            element.pop(_TYPE_LENGTH, None)
        elif isinstance(dtype, GeoType):
            element[_LOGICAL] = STRUCT, _geo_annotation(dtype)
    for group in tree[_ROW_GROUPS][1][1] if _ROW_GROUPS in tree else ():
        chunks = group[_COLUMNS][1][1]
        for index in {*changed, *nan_leaves}:
            for number in _PAGE_BOUNDS:
                chunks[index].pop(number, None)
        for index in changed:
            meta = chunks[index][_META][1]
            if is_int96(leaves[index].type):
                meta[_TYPE] = I32, _PHYSICAL_INT96
            if _STATISTICS in meta:
                # Readers do not agree on an order of these types, so keep the null count only.
                kind, statistics = meta[_STATISTICS]
                meta[_STATISTICS] = kind, {number: v for number, v in statistics.items() if number == _NULL_COUNT}


def _geo_annotation(dtype: GeoType) -> Struct:
    inner: dict[int, tuple[int, Any]] = {1: (BINARY, dtype.crs.encode())}
    if dtype.root is Root.GEOMETRY:
        return {_LOGICAL_GEOMETRY: (STRUCT, inner)}
    algorithms = ("spherical", "vincenty", "thomas", "andoyer", "karney")
    if dtype.algorithm in algorithms:
        inner[2] = I32, algorithms.index(dtype.algorithm)
    return {_LOGICAL_GEOGRAPHY: (STRUCT, inner)}


def open_footer(file: InputFile, *, path: str) -> Footer:
    """Read and check the footer.

    Raises:
        FormatError: the file is not a Parquet file, or its footer is damaged or does not match its seal.
        StorageError: the storage failed.
    """
    size = file.size()
    tail_size = min(size, _GUESS_BYTES)
    tail = _read_at(file, size - tail_size, tail_size)
    if size < len(MAGIC) + TAIL_BYTES or tail[-4:] != MAGIC:
        raise FormatError("file is not a Parquet file", path=path, size=size)
    footer_size = int.from_bytes(tail[-8:-4], "little")
    if footer_size + TAIL_BYTES + len(MAGIC) > size:
        raise FormatError("footer of the Parquet file is longer than the file", path=path, size=footer_size)
    if footer_size + TAIL_BYTES > tail_size:
        tail = _read_at(file, size - footer_size - TAIL_BYTES, footer_size + TAIL_BYTES)
    footer = tail[-TAIL_BYTES - footer_size : -TAIL_BYTES]
    start = size - TAIL_BYTES - footer_size
    try:
        metadata = _parse(footer)
        seal = (metadata.metadata or {}).get(SEAL_KEY)
        kinds = {metadata.schema.column(index).physical_type for index in range(metadata.num_columns)}
        readable_bytes = _without_int96(footer) if "INT96" in kinds else footer
        readable = _parse(readable_bytes) if "INT96" in kinds else metadata
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise FormatError("footer of the Parquet file is damaged", path=path, cause=str(error)[:200]) from error
    if seal is None:
        return Footer(metadata, readable, readable_bytes, start, sealed=False)
    found = _SEAL.fullmatch(seal)
    place = footer.rfind(seal) + len(b"crc32=")
    unsealed = footer[:place] + _ZEROS + footer[place + len(_ZEROS) :]
    if found is None or f"{zlib.crc32(unsealed):08x}".encode() != found[1]:
        raise FormatError(
            "footer of the Parquet file does not match its checksum",
            path=path,
            hint="the file is damaged: restore it from a copy, or remove it from the table",
        )
    return Footer(
        metadata,
        readable,
        readable_bytes,
        start,
        sealed=True,
        nan_leaves=frozenset(int(index) for index in (found[4] or b"").split(b",") if index),
        index_bytes=int(found[2] or b"0", 16),
        index_checksum=int(found[3] or b"0", 16),
    )


def _parse(footer: bytes) -> pq.FileMetaData:
    # Arrow reads a footer from the end of a file, so give it a file with nothing else.
    return pq.read_metadata(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))


def _without_int96(footer: bytes) -> bytes:
    tree = read_struct(footer)
    primitives = [element for element in tree[_SCHEMA][1][1] if _CHILDREN not in element]
    changed = [index for index, element in enumerate(primitives) if element[_TYPE][1] == _PHYSICAL_INT96]
    for index in changed:
        primitives[index][_TYPE] = I32, _PHYSICAL_FIXED
        primitives[index][_TYPE_LENGTH] = I32, INT96_BYTES
    for group in tree[_ROW_GROUPS][1][1]:
        for index in changed:
            meta = group[_COLUMNS][1][1][index][_META][1]
            meta[_TYPE] = I32, _PHYSICAL_FIXED
            meta.pop(_STATISTICS, None)
    return write_struct(tree)


def _read_at(file: InputFile, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)
