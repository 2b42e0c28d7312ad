"""Rows with their kinds: changes as they lie in files, states with what was deleted, and what two states differ by.

The first column is `rowkind` (+I, -U, +U, -D), then comes the sequence number if it is asked for. An append table only
knows insertions; what a primary-key table does is in `keyed_changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from tidelake.ops.read.append import ReadRequest, read_splits
from tidelake.ops.scan.split import Split
from tidelake.spec.types import BIGINT, STRING, Field, with_nullable
from tidelake.store.table_store import TableStore

ROWKIND: Final = "rowkind"
SEQUENCE_NUMBER: Final = "_SEQUENCE_NUMBER"
ROWKIND_FIELD: Final = Field(-1, ROWKIND, with_nullable(STRING, False))
SEQUENCE_NUMBER_FIELD: Final = Field(-1, SEQUENCE_NUMBER, with_nullable(BIGINT, False))
KINDS: Final = pa.array(["+I", "-U", "+U", "-D"], pa.string())
"""The names of kinds, by their numbers in data files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest(ReadRequest):
    """What a reader of changes wants of each row, its kind in front."""

    sequence: bool = False
    """Whether the sequence number of each row is wanted too."""
    deletions: bool = False
    """Whether a state is read with the kinds its rows have, deletions that are not compacted away included."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The kind, the sequence number if wanted, and the wanted columns in the order asked for."""
        front = (ROWKIND_FIELD, SEQUENCE_NUMBER_FIELD) if self.sequence else (ROWKIND_FIELD,)
        return (*front, *(self.schema.field(name) for name in self.columns))

    @property
    def plain(self) -> ReadRequest:
        """The same without kinds and sequence numbers."""
        return ReadRequest(
            schema=self.schema,
            columns=self.columns,
            where=self.where,
            ignore_corrupt_files=self.ignore_corrupt_files,
            ignore_lost_files=self.ignore_lost_files,
            share=self.share,
        )


def read_change_rows(
    store: TableStore, splits: Iterable[Split], request: ChangeRequest, options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """The rows of splits with their kinds, one split after the other.

    Raises:
        FormatError: a file is missing or damaged.
        InvalidInputError: a version is one that the merge engine does not accept.
    """
    left = request.limit
    for split in splits:
        for batch in _rows(store, split, replace(request, limit=None), options):
            if left == 0:
                return
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            if batch.num_rows:
                yield batch


def _rows(
    store: TableStore, split: Split, request: ChangeRequest, options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    if request.schema.primary_keys:
        from tidelake.ops.read.keyed_changes import read_keyed_changes  # append tables do without the tree

        for rows in read_keyed_changes(store, split, request, options):
            yield from rows.to_batches()
        return
    for batch in read_splits(store, [split], request.plain):
        yield pa.RecordBatch.from_arrays([repeat_kind(0, batch.num_rows), *batch.columns], schema=request.arrow_schema)


def repeat_kind(kind: int, count: int) -> pa.Array:
    """The name of a kind, so many times."""
    return pa.repeat(KINDS[kind], count)
