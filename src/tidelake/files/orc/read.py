"""Reads ORC files stripe by stripe with Arrow's reader, and prunes stripes by their statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.orc as orc

from tidelake.errors import FormatError, UnsupportedError
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.tree import Predicate
from tidelake.files.groups import Group, bound_array
from tidelake.files.orc.seal import SEAL_NAME, sealed_file
from tidelake.files.orc.tail import bounds_of, read_tail
from tidelake.files.orc.types import from_orc
from tidelake.files.schema_mapping import Source, same_values
from tidelake.io.fileio import InputFile
from tidelake.spec.types.arrow_types import to_arrow

__all__ = ["OrcSource"]


class OrcSource:
    """An open ORC file."""

    def __init__(self, file: InputFile, *, path: str) -> None:
        """Open the file.

        Raises:
            FormatError: it is not an ORC file, or is damaged.
            StorageError: the storage failed.
        """
        self._path = path
        self._tail = read_tail(file, path=path)
        if self._tail is not None and SEAL_NAME in self._tail.user_metadata:
            # Read the tail again through the file that verifies checksums.
            file = sealed_file(file, self._tail.user_metadata, path=path)
            self._tail = read_tail(file, path=path)
        self._file = file
        self._opened = orc.ORCFile(file)
        names = self._opened.schema.names
        if len(set(names)) != len(names):
            raise FormatError("file has two columns with the same name", path=path)
        self._places = {name: index for index, name in enumerate(names)}

    @property
    def row_count(self) -> int:
        """The number of rows of the file."""
        return int(self._opened.nrows)

    def groups(self) -> list[Group]:
        """Return the stripes.

        Raises:
            FormatError: their rows do not add up to those of the file.
        """
        count = self._opened.nstripes
        if self._tail is not None and len(self._tail.stripe_rows) == count:
            stripes = self._tail.stripe_rows
        else:
            stripes = tuple(self._opened.read_stripe(number, columns=[0]).num_rows for number in range(count))
        found, first = [], 0
        for number, rows in enumerate(stripes):
            found.append(Group(number, first, rows))
            first += rows
        if first != self.row_count:
            raise FormatError("stripes do not add up to the rows of the file", path=self._path, rows=self.row_count)
        return found

    def has(self, name: str) -> bool:
        """Return whether the file has a column with this name."""
        return name in self._places

    def prune_groups(self, groups: Sequence[Group], where: Predicate, sources: Sequence[Source]) -> list[Group]:
        """Return the stripes that may have a matching row.

        Raises:
            InvalidInputError: a value of the predicate does not fit its column.
        """
        if self._tail is None or not self._tail.stats:
            return list(groups)
        columns, stats = self._tail.columns, self._tail.stats
        bounds: dict[str, Bounds] = {}
        rows = pa.array([group.row_count for group in groups], pa.int64())
        for source in sources:
            stored = source.found
            if stored is None or not self.has(stored.name) or not same_values(stored.type, source.field.type):
                continue
            place = self._places[stored.name]
            if place >= len(columns) or any(columns[place] >= len(stats[group.number]) for group in groups):
                continue
            parts = [bounds_of(stats[group.number][columns[place]], stored.type) for group in groups]
            target = to_arrow(source.field.type)
            low, high = (bound_array([part[side] for part in parts], target) for side in (0, 1))
            if low is None or high is None:
                continue
            nulls = pa.array([None if part[2] else 0 for part in parts], pa.int64())
            bounds[source.field.name] = Bounds(low, high, nulls, rows)
        keep = may_match(where, bounds, len(groups)).to_pylist()
        return [group for group, kept in zip(groups, keep, strict=True) if kept]

    def pick(self, *_: object) -> None:
        """Return None: rows of a group cannot be read without the others."""

    def read(self, group: Group, sources: Sequence[Source], batch_rows: int) -> Iterator[pa.Table]:  # noqa: ARG002
        """Yield one table with the wanted columns that the file has, under the file's names.

        Raises:
            FormatError: the file is damaged.
            StorageError: the storage failed.
        """
        wanted = [source.found for source in sources if source.found is not None and self.has(source.found.name)]
        places = [self._places[field.name] for field in wanted]
        try:
            batch = self._opened.read_stripe(group.number, columns=places)
        except pa.ArrowInvalid as error:
            if "out of range for nanosecond" not in str(error):
                raise
            raise UnsupportedError(
                "ORC file has a timestamp outside the years 1677 to 2262, which cannot be read",
                path=self._path,
                hint="rewrite the table in the format parquet with the software that wrote it",
            ) from error
        if batch.num_rows != group.row_count:
            raise FormatError("stripe does not have the number of rows in the footer", path=self._path)
        columns = [from_orc(batch.column(field.name), field.type) for field in wanted]
        yield pa.Table.from_arrays(columns, names=[field.name for field in wanted])
