"""Writes ORC files with Arrow's writer, which keeps one stripe in memory and writes it when it is full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.orc as orc

from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.files.column_stats import RunningStats
from tidelake.files.options import FileOptions, codec_of
from tidelake.files.orc.seal import Sums, seal_tail
from tidelake.files.orc.types import orc_schema, to_orc
from tidelake.files.sink import Sink
from tidelake.io.fileio import OutputFile
from tidelake.spec.stats.column_stats import ColumnStats
from tidelake.spec.stats.stats_modes import StatsMode
from tidelake.spec.types.arrow_nested import dense, with_nulls_pushed_down
from tidelake.spec.types.data_types import Field

__all__ = ["OrcEncoder"]

STRIPE_BYTES: Final = 64 << 20
_SAMPLE_BYTES: Final = 4 << 20
_HEAD_BYTES: Final = 16


class OrcEncoder:
    """Writes one ORC file to an output, which the caller closes."""

    def __init__(
        self, output: OutputFile, fields: Sequence[Field], options: FileOptions, modes: Sequence[StatsMode]
    ) -> None:
        self._fields = fields
        self._schema = orc_schema(fields)
        self._output = output
        self._sums = Sums()
        self._sink = Sink(output, watch=self._sums.update)
        self._stats = [RunningStats(field.type, mode) for field, mode in zip(fields, modes, strict=True)]
        self._raw_bytes = 0
        self._raw_written = 0
        self._seen = 0
        self._ratio: float | None = None
        stripe = options.block_size or options.library_option("orc.stripe.size") or STRIPE_BYTES
        stride = options.library_option("orc.row.index.stride")
        threshold = options.library_option("orc.dictionary.key.threshold")
        self._writer = orc.ORCWriter(
            self._sink,
            compression=codec_of("orc", options.compression).lower(),
            stripe_size=stripe,
            batch_size=options.write_batch_rows,
            row_index_stride=10_000 if stride is None else stride,
            dictionary_key_size_threshold=0.8 if threshold is None else threshold,
        )

    @property
    def estimated_size(self) -> int:
        """The bytes written, plus an estimate for the open stripe."""
        return self._output.tell() + int((self._raw_bytes - self._raw_written) * (self._ratio or 1.0))

    @property
    def buffered_bytes(self) -> int:
        """The Arrow bytes of the open stripe."""
        return self._raw_bytes - self._raw_written

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows.

        Raises:
            UnsupportedError: a value cannot be stored in ORC.
            StorageError: the storage failed.
        """
        # Two bugs of Arrow's ORC writer: of a sliced struct it stores the first rows instead of those of the slice, and
        # below a null struct it stores the hidden value, which shifts all values after it.
        columns = [
            with_nulls_pushed_down(dense(to_orc(column, field.type, target.type, field.name)))
            for column, field, target in zip(batch.columns, self._fields, self._schema, strict=True)
        ]
        for stats, column in zip(self._stats, batch.columns, strict=True):
            stats.add(column)
        if self._ratio is None:
            self._ratio = _compressibility(batch)
        try:
            self._writer.write(pa.Table.from_arrays(columns, schema=self._schema))
        except TidelakeError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            if self._sink.failure is not None:
                raise self._sink.failure from error
            raise InvalidInputError("rows cannot be written to an ORC file", cause=str(error)[:300]) from error
        before = self._raw_bytes
        self._raw_bytes += batch.nbytes
        if before and self._output.tell() > self._seen + _HEAD_BYTES:
            # A stripe was written. How many rows of the last batch are in it is not known, so assume none.
            self._seen = self._output.tell()
            self._raw_written = before
            self._ratio = self._seen / before

    def flush(self) -> None:
        """Do nothing: Arrow decides when a stripe is full."""

    def finish(self) -> tuple[ColumnStats, ...]:
        """Write the remaining rows and the footer; return the statistics of each field.

        Raises:
            StorageError: the storage failed.
        """
        self._sink.hold()
        try:
            self._writer.close()
        except TidelakeError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            if self._sink.failure is not None:
                raise self._sink.failure from error
            raise InvalidInputError("rows cannot be written to an ORC file", cause=str(error)[:300]) from error
        self._output.write(seal_tail(self._sink.held_bytes(), self._sums))
        return tuple(stats.result() for stats in self._stats)

    def discard(self) -> None:
        """Drop the writer without storing what it still writes."""
        self._sink.drop()


def _compressibility(batch: pa.RecordBatch) -> float:
    """Estimate the compression ratio of rows from a sample."""
    rows = max(1, int(batch.num_rows * min(1.0, _SAMPLE_BYTES / max(1, batch.nbytes))))
    raw = batch.slice(0, rows).serialize()
    return float(min(1.0, len(pa.compress(raw, codec="zstd", asbytes=True)) / max(1, raw.size)))
