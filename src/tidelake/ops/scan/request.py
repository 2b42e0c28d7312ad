"""The read request: one value from `Scan`, or from a verb, down to the files.

Planning looks at the rows that are wanted and where they are; reading looks at the columns and at what comes with each
row; `ReadRequest.for_files` is what files are asked for. A stage that narrows a read makes another request of it by
`replace`; none passes parts of it on as parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import pyarrow as pa

from tidelake.expr.tree import Predicate
from tidelake.files.read.request import Delivery, RowRequest
from tidelake.ops.scan.modes import Reading
from tidelake.ops.scan.topn import SortKey
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.spec.types.data_types import BIGINT, STRING, Field, with_nullable

__all__ = ["ROWKIND", "ReadRequest", "Shape"]

ROWKIND: Final = "rowkind"
SEQUENCE_NUMBER: Final = "_SEQUENCE_NUMBER"
ROWKIND_FIELD: Final = Field(-1, ROWKIND, with_nullable(STRING, False))
SEQUENCE_NUMBER_FIELD: Final = Field(-1, SEQUENCE_NUMBER, with_nullable(BIGINT, False))


class Shape(Enum):
    """What the rows of a read look like."""

    ROWS = "rows"
    """The columns of the table."""
    CHANGES = "changes"
    """The kind of each row in front; of a state the rows that are there."""
    AUDIT_LOG = "audit_log"
    """The kind of each row in front; of a state also deletions that are not compacted away."""
    BINLOG = "binlog"
    """The same, every column as a list; an update is one row with what was and what is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What a reader wants: which rows, of which files, what comes with each row, and how files are read."""

    schema: Schema
    """The schema that rows are read with. Files, and other branches, may have older or other ones."""
    columns: tuple[str, ...] = ()
    where: Predicate | None = None
    limit: int | None = None
    order: tuple[SortKey, ...] = ()

    reading: Reading | None = None
    """The state or the changes that are read; None: what the options say."""
    optimized: bool = False
    """Whether a primary-key table is read without a merge: its lowest level alone, as full compactions left it."""
    waiting: bool = False
    """Whether level-0 rows are read even if reads skip them until a compaction."""
    first_of_stream: bool = False
    """Whether the state is one that the changes of later snapshots continue."""

    shape: Shape = Shape.ROWS
    numbered: bool = False
    """Whether the sequence number of each row comes behind its kind."""
    stored: tuple[Field, ...] = ()
    """What is read of files where that is not just the columns: system columns among them."""
    positions: bool = False
    """Whether the position of each row in its file comes behind the columns."""

    ignore_corrupt_files: bool = False
    ignore_lost_files: bool = False
    prune_only: bool = False
    """Whether the condition only rules out groups of rows: all rows of the others come out."""
    delivery: Delivery = field(default_factory=Delivery)

    @property
    def fields(self) -> tuple[Field, ...]:
        """What comes out of each row, in this order."""
        if self.stored:
            return self.stored
        wanted = tuple(self.schema.field(name) for name in self.columns)
        if self.shape is Shape.ROWS:
            return wanted
        return (ROWKIND_FIELD, SEQUENCE_NUMBER_FIELD, *wanted) if self.numbered else (ROWKIND_FIELD, *wanted)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return row_to_arrow(self.fields)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The columns that come out, and behind them those that only the condition looks at."""
        looked_at = sorted(self.where.columns()) if self.where is not None else ()
        return tuple(dict.fromkeys((*self.columns, *looked_at)))

    @property
    def forgives(self) -> bool:
        """Whether files may be skipped, so that counting rows must read them."""
        return self.ignore_corrupt_files or self.ignore_lost_files

    @property
    def shows_deletions(self) -> bool:
        """Whether a state is read with the kinds its rows have, deletions that are not compacted away included."""
        return self.shape in (Shape.AUDIT_LOG, Shape.BINLOG)

    @property
    def of_rows(self) -> ReadRequest:
        """The same without kinds and sequence numbers, for all rows."""
        return replace(self, shape=Shape.ROWS, numbered=False, limit=None)

    def in_part(self, share: tuple[int, int]) -> ReadRequest:
        """The same for one of so many parts of each file; the parts together are the file."""
        return replace(self, delivery=replace(self.delivery, share=share))

    def for_files(self) -> RowRequest:
        """What each file is asked for."""
        return RowRequest(
            fields=self.fields,
            where=self.where,
            filter_fields=self.schema.fields,
            prune_only=self.prune_only,
            positions=self.positions,
            delivery=self.delivery,
        )
