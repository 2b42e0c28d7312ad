"""Writes Avro data files: rows are encoded and written as blocks when they arrive.

Avro has no checksums, so our files have two kinds: zstd frames with a checksum, and in the header the CRC-32 of the
schema (`tidelake.schema.crc32`), because with a flipped bit in its name a column would read as null.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidelake.files.avro.encode import encode_columns
from tidelake.files.avro.types import avro_schema
from tidelake.files.column_stats import RunningStats
from tidelake.files.options import FileOptions, codec_of
from tidelake.io.fileio import OutputFile
from tidelake.spec.avro.container import MAGIC, SYNC_SIZE, RawBlock, encode_long, frame_block
from tidelake.spec.avro.encode import split_blocks
from tidelake.spec.stats.column_stats import ColumnStats
from tidelake.spec.stats.stats_modes import StatsMode
from tidelake.spec.types.data_types import Field

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["CHECKSUM_KEY", "AvroEncoder"]

CHECKSUM_KEY: Final = "tidelake.schema.crc32"
BLOCK_BYTES: Final = 256 << 10
_ROWS_MAX: Final = 1 << 16
"""Rows to encode at once; all of their columns are in memory in encoded form."""


class AvroEncoder:
    """Writes one Avro file to an output, which the caller closes."""

    def __init__(
        self, output: OutputFile, fields: Sequence[Field], options: FileOptions, modes: Sequence[StatsMode]
    ) -> None:
        self._output = output
        schema = avro_schema(fields)
        self._types = [member["type"] for member in schema["fields"]]
        self._stats = [RunningStats(field.type, mode) for field, mode in zip(fields, modes, strict=True)]
        self._codec = codec_of("avro", options.compression)
        self._level = options.zstd_level
        text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False).encode()
        self._sync = hashlib.blake2b(text + self._codec.encode(), digest_size=SYNC_SIZE).digest()
        entries = {
            b"avro.schema": text,
            b"avro.codec": self._codec.encode(),
            CHECKSUM_KEY.encode(): f"{zlib.crc32(text):08x}".encode(),
        }
        header = [MAGIC, encode_long(len(entries))]
        for key, value in entries.items():
            header += [encode_long(len(key)), key, encode_long(len(value)), value]
        output.write(b"".join([*header, encode_long(0), self._sync]))

    @property
    def estimated_size(self) -> int:
        """The bytes written; nothing is buffered."""
        return self._output.tell()

    @property
    def buffered_bytes(self) -> int:
        """0, because rows are written when they arrive."""
        return 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows as blocks.

        Raises:
            StorageError: the storage failed.
        """
        for start in range(0, batch.num_rows, _ROWS_MAX):
            part = batch.slice(start, _ROWS_MAX)
            for stats, column in zip(self._stats, part.columns, strict=True):
                stats.add(column)
            records = encode_columns(part.columns, self._types)
            for block in split_blocks(records, block_bytes=BLOCK_BYTES):
                self._output.write(self._frame(block) + self._sync)

    def _frame(self, block: RawBlock) -> bytes:
        if self._codec != "zstandard":
            return frame_block(block, self._codec)
        parameters: dict[int, int] = {
            zstd.CompressionParameter.compression_level: self._level,
            zstd.CompressionParameter.checksum_flag: 1,
        }
        payload = zstd.compress(block.payload, options=parameters)
        return encode_long(block.count) + encode_long(len(payload)) + payload

    def flush(self) -> None:
        """Do nothing: rows are written when they arrive."""

    def finish(self) -> tuple[ColumnStats, ...]:
        """Return the statistics of each field; an Avro file has no footer."""
        return tuple(stats.result() for stats in self._stats)

    def discard(self) -> None:
        """Do nothing: nothing is buffered."""
