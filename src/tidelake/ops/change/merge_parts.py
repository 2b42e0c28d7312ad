"""What merges into all kinds of tables share: reading the target, rows to insert, and a guard against new matches.

Target rows come in pieces, so that memory holds the source and about as many target rows, whatever the table holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.expr.sides import TARGET, full_name
from tidelake.expr.tree import Predicate
from tidelake.ops.change.copy_on_write import rows_changed
from tidelake.ops.change.merge_join import Columns, Ints, Matcher, refuse_repeated_keys
from tidelake.ops.change.merge_rules import Action, Merge
from tidelake.ops.commit.guards import Guard, Proposal
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.commit.since import LaterCommit, commits_since
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.batch import plan_batch
from tidelake.ops.scan.planner import Plan, files_that_may_match
from tidelake.ops.scan.split import bucket_splits
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.spec.manifests.manifest import ADD
from tidelake.spec.schemas.schema import Schema

_PIECE_ROWS: Final = 1 << 16
"""Target rows that are looked up together, at least; more, if the source has more keys."""


class MatchFinder(Protocol):
    """Knows whether rows have a match in the source, wherever that is: a `Matcher` has it in memory."""

    @property
    def merge(self) -> Merge:
        """The merge."""

    def reach(self, schema: Schema) -> Predicate | None:
        """A condition that holds for every target row with a match; None if nothing is known."""

    def meets(self, columns: Columns, count: int) -> bool:
        """Whether one of these target rows has a match."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A merge that is written and not yet committed."""

    messages: tuple[CommitMessage, ...]
    counts: Mapping[Action, int]
    guards: tuple[Guard, ...] = ()
    hidden: bool = False
    """Whether readers see the new rows only after a compaction."""


def reach(target: TableContext, matcher: MatchFinder) -> Predicate | None:
    """A condition that holds for all target rows that matter; None if all rows matter."""
    return None if matcher.merge.looks_at_all else matcher.reach(target.store.schema)


def plan_target_read(target: TableContext, where: Predicate | None) -> Plan:
    """Plan a read of the newest snapshot of the target, level-0 rows included.

    Raises:
        UnsupportedError: the table cannot be read.
    """
    return plan_batch(target, ReadRequest(schema=target.store.schema, where=where, waiting=True))


def find_deciding_columns(target: TableContext, merge: Merge) -> tuple[str, ...]:
    """The columns that decide which rule applies to a row; at least one, because rows have to be counted."""
    names = target.store.schema.names
    return tuple(name for name in names if name in merge.decides) or names[:1]


def find_needed_columns(target: TableContext, merge: Merge) -> tuple[str, ...]:
    """The columns that new versions of changed rows are made from."""
    return merge.needs(target.store.schema) or target.store.schema.names[:1]


def pieces(batches: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.Table]:
    """Join batches until there are enough rows for a lookup in the source."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= max(_PIECE_ROWS, least):
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks()


def qualify_columns(rows: pa.Table | pa.RecordBatch) -> Columns:
    """The columns of target rows by their qualified names."""
    return {
        full_name(TARGET, name): column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }


def take_rows(columns: Columns, places: Ints) -> Columns:
    """Take the rows at these positions."""
    return {name: column.take(pa.array(places)) for name, column in columns.items()}


def insert(target: TableContext, matcher: Matcher, write: Callable[[pa.RecordBatch], None]) -> int:
    """Write the rows to insert for source rows without a match."""
    schema = target.store.schema
    rows = [matcher.make_inserts(rule.values, schema, places) for rule, places in matcher.unmet()]
    if target.is_keyed and rows:
        refuse_repeated_keys(pa.Table.from_batches(rows).combine_chunks().to_batches()[0], schema.primary_keys)
    for batch in rows:
        write(batch)
    return sum(batch.num_rows for batch in rows)


@dataclass(frozen=True, slots=True)
class NoNewMatches:
    """Refuses to publish inserted rows if another job has committed a match for one since the target was read.

    All added rows are checked, whatever the operation: other engines do not record whether their job read first.
    """

    target: TableContext
    matcher: MatchFinder
    snapshot_id: int
    whole_rows: bool = True
    """Whether a file holds rows as they are read; if it holds parts of them, every commit counts."""

    def check(self, proposal: Proposal) -> None:
        """Check the commits since; the messages to publish do not matter.

        Raises:
            CommitConflictError: one of them added a match, or has expired and cannot be checked.
        """
        store = self.target.store
        for later in commits_since(store, max(self.snapshot_id, proposal.checked_id), proposal.latest.id):
            if later.snapshot is None:
                raise rows_changed(store, later.id)
            if later.kind in (CommitKind.APPEND, CommitKind.OVERWRITE) and self._brings(later):
                raise rows_changed(store, later.id)

    def _brings(self, later: LaterCommit) -> bool:
        store, schema = self.target.store, self.target.store.schema
        if later.find_restored_files() != frozenset():
            return True  # rows are back that no entry shows, or it is unknown
        entries = later.read_entries()
        entries = entries.filter(pc.equal(entries.column("kind"), ADD))
        if not self.whole_rows:
            return bool(entries.num_rows)
        where = self.matcher.reach(schema)
        if where is not None and entries.num_rows:
            entries = entries.filter(pa.array(files_that_may_match(store, entries, where, schema)))
        columns = tuple(name for name in schema.names if name in self.matcher.merge.join.columns) or schema.names[:1]
        request = ReadRequest(schema=schema, columns=columns, where=where)
        for split in bucket_splits(entries, later.id, self.target.paths, None):
            for file in split.files:
                for batch in read_data_file(store, split, file, request):
                    if self.matcher.meets(qualify_columns(batch), batch.num_rows):
                        return True
        return False
