"""What is asked of a data file: the rows that a read wants, the way they come, and the file itself.

A `RowRequest` is the same for all files of a read, a `StoredFile` is one of them. Both are plain values: another wish
is another field, and the stage that honours it (see `files/read`) finds it without another parameter on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidelake.expr.tree import Predicate
from tidelake.io.fileio import FileIO
from tidelake.spec.types.data_types import Field

__all__ = ["Delivery", "RowRequest", "StoredFile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How rows come out of a file. It changes memory and speed, never the values."""

    batch_rows: int = 1 << 16
    """Rows of a batch at most."""
    stream: bool = False
    """Whether memory holds a batch at a time, not a group of rows. A condition that drops rows needs the group."""
    dictionaries: frozenset[str] = frozenset()
    """Columns that may come as Arrow dictionaries of their type. Those do that the file itself stores so, with few
    values; none that the condition looks at."""
    share: tuple[int, int] = (0, 1)
    """Which of how many parts of the file is read, by groups of rows; the parts together are the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRequest:
    """The rows that a read wants of each of its files."""

    fields: Sequence[Field]
    """The columns to give back, with the ids, names and types of the schema that asks."""
    where: Predicate | None = None
    """Keeps the rows that match, by the names of the schema that asks."""
    filter_fields: Sequence[Field] = ()
    """Columns of that schema which `where` looks at and which are not given back. A name that is in neither list is
    taken from the fields of the file."""
    prune_only: bool = False
    """Whether `where` only rules out groups of rows: all rows of the others come out."""
    positions: bool = False
    """Whether the column `ROW_NUMBER` comes behind the others: the position of each row in its file."""
    zone: str = "UTC"
    """The time zone of casts between timestamps with and without one."""
    delivery: Delivery = field(default_factory=Delivery)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredFile:
    """One file, what its manifest says of it, and which of its rows may come out."""

    io: FileIO
    path: str
    """Its name, relative to the root of `io`."""
    format: str
    """`parquet`, `orc` or `avro`; see `options.format_of`."""
    fields: Sequence[Field]
    """The columns of the schema it was written with, system columns included."""
    size: int | None = None
    """The bytes it must have; another size means that it is another file. Not checked when None."""
    row_count: int | None = None
    """The rows it must have, likewise."""
    deleted: npt.NDArray[np.int64] | None = None
    """Positions of rows, ascending, each once: these were deleted and do not come out."""
    only: npt.NDArray[np.int64] | None = None
    """Positions of rows, likewise: no others come out, and groups without any of them are not read."""
