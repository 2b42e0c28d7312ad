"""Drop deleted rows inside Spark, from what its own Parquet reader returns.

The deletion vectors of all files become one array of bits, a word for 64 rows. Spark gets the array as the result of a
scalar subquery, so that no query plan holds or prints it, and looks up the bit of each row by the file name and row
index that its reader reports. Invariant: exactly the rows that no vector lists come out, whatever row groups and pages
a filter prunes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelake.ops.read.append import deleted_rows
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import DataFile
from tidelake.store.table_store import TableStore

METADATA: Final = "_metadata"
"""The struct with the file name and row index of a row; a column of the table with that name hides it."""
VECTOR_FILES_MAX: Final = 64
"""Files with vectors that Spark reads itself. Not more, because each row searches the names of all of them."""
VECTOR_ROWS_MAX: Final = 1 << 27
"""Rows of such files. Not more, because every task gets a bit for each row: 16 MiB."""
_WORD: Final = 64

SplitFile = tuple[Split, DataFile]


def has_vector(split: Split, file: DataFile) -> bool:
    """Whether a file of a split has a deletion vector."""
    return file.file_name in split.vectors


def drop_deleted_rows(spark: SparkSession, store: TableStore, rows: DataFrame, files: Sequence[SplitFile]) -> DataFrame:
    """Drop the deleted rows of files that Spark reads itself.

    Raises:
        NotFoundError: an index file with a vector does not exist any more.
        FormatError: a vector is damaged, or does not fit its file.
    """
    words = [_words(store, each) for each in files]
    starts = np.cumsum([0, *map(len, words)]) * _WORD
    first_bits = f.create_map(
        *(
            f.lit(each)
            for (_, file), start in zip(files, starts.tolist(), strict=False)
            for each in (file.file_name, start)
        )
    )
    bits = pa.table({"bits": pa.array([np.concatenate(words)], pa.list_(pa.int64()))})
    position = first_bits[f.col(f"{METADATA}.file_name")] + f.col(f"{METADATA}.row_index")
    bit = _bit(spark.createDataFrame(bits).scalar(), position)
    # A row of another file, or behind the last one, has no bit. The filter would drop it silently.
    unknown = f.raise_error("a row is outside of the files that were planned to be read").cast("tinyint")
    return rows.where(f.coalesce(bit, unknown) == 0)


def _words(store: TableStore, split_file: SplitFile) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    split, file = split_file
    deleted = np.zeros(-(-file.row_count // _WORD) * _WORD, np.uint8)
    deleted[deleted_rows(store, split, file)] = 1
    return np.packbits(deleted, bitorder="little").view("<i8").astype(np.int64, copy=False)


def _bit(words: Column, position: Column) -> Column:
    return f.getbit(f.get(words, f.shiftright(position, 6).cast("int")), position.bitwiseAND(_WORD - 1).cast("int"))
