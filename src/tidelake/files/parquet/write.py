"""Writes Parquet files: rows are buffered until a row group is full, and the footer is sealed at the end.

Memory holds one row group as Arrow and one of its columns in encoded form; `docs/adr/0004-row-groups.md` explains its
size.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.files.column_stats import FLOATS, bounds_of_chunk, finish, has_nan, long_bounds, merge_bounds
from tidelake.files.hidden import clear_hidden_values
from tidelake.files.options import FileOptions, codec_of
from tidelake.files.parquet.dictionaries import dictionary_columns
from tidelake.files.parquet.footer import SEAL_KEY, seal_footer, seal_text
from tidelake.files.parquet.types import leaves, parquet_schema, to_physical
from tidelake.files.sink import Sink
from tidelake.io.fileio import OutputFile
from tidelake.spec.stats.column_stats import ColumnStats
from tidelake.spec.stats.stats_modes import StatsKind, StatsMode
from tidelake.spec.types.data_types import Field, children

__all__ = ["ROW_GROUP_BYTES", "ROW_GROUP_ROWS", "ParquetEncoder"]

ROW_GROUP_BYTES: Final = 128 << 20
"""The Arrow bytes of a row group, unless `file.block-size` is set."""
ROW_GROUP_ROWS: Final = 1 << 18
"""The largest number of rows of a row group."""


class ParquetEncoder:
    """Writes one Parquet file to an output, which the caller closes."""

    def __init__(
        self, output: OutputFile, fields: Sequence[Field], options: FileOptions, modes: Sequence[StatsMode]
    ) -> None:
        self._fields = fields
        self._modes = modes
        self._output = output
        self._sink = Sink(output)
        self._schema = parquet_schema(fields)
        self._leaves = leaves(fields)
        self._first_leaf = {leaf.column: index for index, leaf in reversed(list(enumerate(self._leaves)))}
        self._group_bytes = int(options.block_size or _number(options, "parquet.block.size") or ROW_GROUP_BYTES)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._raw_bytes = 0
        self._nan: set[int] = set()
        self._long: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._groups = 0
        self.row_count = 0
        codec = codec_of("parquet", options.compression)
        level = _number(options, "parquet.compression.codec.zstd.level") or options.zstd_level
        self._dictionary = options.dictionary
        self._opened: pq.ParquetWriter | None = None
        self._open_writer = functools.partial(
            pq.ParquetWriter,
            self._sink,
            self._schema,
            version="1.0",
            compression=codec,
            compression_level=level if codec == "ZSTD" else None,
            dictionary_pagesize_limit=_number(options, "parquet.dictionary.page.size"),
            data_page_size=_number(options, "parquet.page.size"),
            write_statistics=True,
            write_page_checksum=True,
            write_page_index=True,
            store_schema=False,
            store_decimal_as_integer=True,
            write_time_adjusted_to_utc=True,
            use_compliant_nested_type=True,
        )

    @property
    def estimated_size(self) -> int:
        """The bytes written, plus an estimate for buffered rows, assuming that they compress like those before."""
        ratio = self._output.tell() / self._raw_bytes if self._raw_bytes else 1.0
        return self._output.tell() + int(self._pending_bytes * min(1.0, ratio))

    @property
    def buffered_bytes(self) -> int:
        """The Arrow bytes of buffered rows."""
        return self._pending_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer rows, and write every full row group."""
        start = 0
        while start < batch.num_rows:
            # Take at least a thousand rows at a time: the size of a slice is only known once it exists.
            part = batch.slice(start, min(ROW_GROUP_ROWS - self._pending_rows, batch.num_rows - start))
            size = part.nbytes
            if self._pending_bytes + size > self._group_bytes and part.num_rows > _ROWS_MIN:
                fitting = int(part.num_rows * max(0, self._group_bytes - self._pending_bytes) / size)
                part = part.slice(0, max(_ROWS_MIN, fitting))
                size = part.nbytes
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self._pending_bytes += size
            start += part.num_rows
            if self._pending_rows >= ROW_GROUP_ROWS or self._pending_bytes >= self._group_bytes:
                self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group.

        Raises:
            InvalidInputError: a NOT NULL column has nulls.
            StorageError: the storage failed.
        """
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending)
        columns = [
            pa.chunked_array([_to_stored_array(chunk, field, target) for chunk in column.chunks], target.type)
            if pa.types.is_nested(target.type) or target.type != column.type
            else column
            for column, field, target in zip(table.columns, self._fields, self._schema, strict=True)
        ]
        self._note_missing_stats(table)
        physical = pa.Table.from_arrays(columns, schema=self._schema)
        try:
            if self._opened is None:  # the first rows decide which columns get a dictionary
                self._opened = self._open_writer(use_dictionary=dictionary_columns(physical, wanted=self._dictionary))
            self._opened.write_table(physical, row_group_size=table.num_rows)
        except TidelakeError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            if self._sink.failure is not None:
                raise self._sink.failure from error
            raise InvalidInputError("rows cannot be written to a Parquet file", cause=str(error)[:300]) from error
        self._groups += 1
        self.row_count += table.num_rows
        self._raw_bytes += self._pending_bytes
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _note_missing_stats(self, table: pa.Table) -> None:
        """Collect the statistics that the footer will not have."""
        for index, (field, mode) in enumerate(zip(self._fields, self._modes, strict=True)):
            if field.type.root in FLOATS:
                leaf = self._first_leaf[index]
                if leaf not in self._nan and has_nan(table.column(index)):
                    self._nan.add(leaf)
            elif mode.kind not in (StatsKind.NONE, StatsKind.COUNTS):
                bounds = long_bounds(table.column(index), field.type)
                if bounds is not None:
                    self._long[self._groups, index] = bounds

    def finish(self) -> tuple[ColumnStats, ...]:
        """Write the remaining rows and the footer; return the statistics of each field.

        Raises:
            InvalidInputError: a NOT NULL column has nulls.
            StorageError: the storage failed.
        """
        self.flush()
        assert self._opened is not None
        seal = seal_text(self._nan)
        self._sink.hold()
        self._opened.add_key_value_metadata({SEAL_KEY: seal})
        self._opened.close()
        self._output.write(seal_footer(self._sink.held_bytes(), self._leaves, seal, self._nan))
        return self._statistics(self._opened.writer.metadata)

    def discard(self) -> None:
        """Drop the writer without writing a footer."""
        # Arrow writes a footer even when the writer is garbage collected, so drop these bytes.
        self._sink.drop()
        if self._opened is not None:
            self._opened.is_open = False

    def _statistics(self, metadata: pq.FileMetaData) -> tuple[ColumnStats, ...]:
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        rows = [group.num_rows for group in groups]
        found = []
        for index, (field, mode) in enumerate(zip(self._fields, self._modes, strict=True)):
            if mode.kind is StatsKind.NONE or children(field.type):
                found.append(finish(None, None, None, field.type, mode))
                continue
            leaf = self._first_leaf[index]
            parts = []
            for number, group in enumerate(groups):
                low, high, nulls = bounds_of_chunk(group.column(leaf), field.type)
                if low is None and (number, index) in self._long:
                    low, high = self._long[number, index]
                parts.append((low, high, nulls))
            low, high, nulls = merge_bounds(parts, rows)
            if leaf in self._nan:
                low = high = None
            found.append(finish(low, high, nulls, field.type, mode))
        return tuple(found)


_ROWS_MIN: Final = 1024


def _to_stored_array(chunk: pa.Array, field: Field, target: pa.Field) -> pa.Array:
    return clear_hidden_values(to_physical(chunk, field.type, target.type), target)


def _number(options: FileOptions, key: str) -> int | None:
    value = options.library_option(key)
    return int(value) if isinstance(value, int | float) else None
