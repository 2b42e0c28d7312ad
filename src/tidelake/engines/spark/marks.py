"""Rows that deletion vectors mark, left out by Spark itself while its own reader reads their files.

The vectors of all files become one array of bits, a word for 64 rows. Spark gets it as the answer of a scalar subquery,
so that no plan holds or prints it, and asks for the bit of each row by the place that its reader tells. Invariant: a
row comes out if and only if no vector marks it, whatever row groups and pages a filter leaves out.
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
"""What Spark tells of a row's file, unless the table has a column of that name."""
MARKED_FILES_MAX: Final = 64
"""Files with vectors that Spark reads itself: each row looks for the name of its own among them."""
MARKED_ROWS_MAX: Final = 1 << 27
"""Rows of such files: every task gets a bit for each."""
_WORD: Final = 64

Place = tuple[Split, DataFile]


def is_marked(split: Split, file: DataFile) -> bool:
    """Whether a vector marks rows of a file of a split."""
    return file.file_name in split.vectors


def without_marked(spark: SparkSession, store: TableStore, rows: DataFrame, places: Sequence[Place]) -> DataFrame:
    """Rows as Spark reads them from files with vectors, without those that these mark.

    Raises:
        NotFoundError: a file that holds a vector is gone.
        FormatError: a vector is damaged, or does not fit its file.
    """
    words = [_words(store, place) for place in places]
    starts = np.cumsum([0, *map(len, words)]) * _WORD
    first_bits = f.create_map(
        *(
            f.lit(each)
            for (_, file), start in zip(places, starts.tolist(), strict=False)
            for each in (file.file_name, start)
        )
    )
    bits = pa.table({"bits": pa.array([np.concatenate(words)], pa.list_(pa.int64()))})
    place = first_bits[f.col(f"{METADATA}.file_name")] + f.col(f"{METADATA}.row_index")
    bit = _bit(spark.createDataFrame(bits).scalar(), place)
    # A row of another file, or behind the last, would have no bit; without an error it would be gone in silence.
    unknown = f.raise_error("a row lies outside of the files that were planned to be read").cast("tinyint")
    return rows.where(f.coalesce(bit, unknown) == 0)


def _words(store: TableStore, place: Place) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    split, file = place
    marked = np.zeros(-(-file.row_count // _WORD) * _WORD, np.uint8)
    marked[deleted_rows(store, split, file)] = 1
    return np.packbits(marked, bitorder="little").view("<i8").astype(np.int64, copy=False)


def _bit(words: Column, place: Column) -> Column:
    return f.getbit(f.get(words, f.shiftright(place, 6).cast("int")), place.bitwiseAND(_WORD - 1).cast("int"))
