"""What merges into all kinds of tables share: the part of the target that is read, rows to insert, a look at others.

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
from tidelake.ops.commit.committer import Guard
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.batch import BatchRead, plan_batch
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.ops.scan.planner import Plan, files_that_may_match
from tidelake.ops.scan.split import bucket_splits
from tidelake.ops.write.merge_join import Columns, Ints, Matcher, refuse_repeated_keys
from tidelake.ops.write.merge_rules import Action, Merge
from tidelake.ops.write.rowlevel import rows_changed
from tidelake.ops.write.verbs import Target
from tidelake.spec.manifest import ADD
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import CommitKind, Snapshot

_PIECE_ROWS: Final = 1 << 16
"""Target rows that are looked up together at least; more, if the source has more keys."""


class Partners(Protocol):
    """Who can tell whether rows have a partner in the source, wherever that is: a `Matcher` has it in memory."""

    @property
    def merge(self) -> Merge:
        """The merge."""

    def reach(self, schema: Schema) -> Predicate | None:
        """A condition that every target row with a partner fulfils; None if nothing is known."""

    def meets(self, columns: Columns, count: int) -> bool:
        """Whether one of these target rows has a partner."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A merge that is written and not yet committed."""

    messages: tuple[CommitMessage, ...]
    counts: Mapping[Action, int]
    guard: Guard | None = None
    hidden: bool = False
    """Whether new rows wait for a compaction before they are seen."""


def reach(target: Target, matcher: Partners) -> Predicate | None:
    """What target rows that matter fulfil; None if all of them matter."""
    return None if matcher.merge.looks_at_all else matcher.reach(target.store.schema)


def planned(target: Target, where: Predicate | None) -> Plan:
    """The read of the newest state of the target, rows that wait for a compaction included.

    Raises:
        UnsupportedError: the table cannot be read.
    """
    read = BatchRead(schema=target.store.schema, paths=target.paths, where=where, options=target.options, waiting=True)
    return plan_batch(target.store, read)


def deciding(target: Target, merge: Merge) -> tuple[str, ...]:
    """The columns that say which rule a row falls under; never none, since rows have to be counted."""
    names = target.store.schema.names
    return tuple(name for name in names if name in merge.decides) or names[:1]


def making(target: Target, merge: Merge) -> tuple[str, ...]:
    """The columns that changed rows are made from."""
    return merge.needs(target.store.schema) or target.store.schema.names[:1]


def pieces(batches: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.Table]:
    """Batches gathered until a look-up in the source is worth it."""
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


def named(rows: pa.Table | pa.RecordBatch) -> Columns:
    """The columns of target rows by their full names."""
    return {
        full_name(TARGET, name): column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }


def taken_at(columns: Columns, places: Ints) -> Columns:
    """The rows at these places."""
    return {name: column.take(pa.array(places)) for name, column in columns.items()}


def insert(target: Target, matcher: Matcher, write: Callable[[pa.RecordBatch], None]) -> int:
    """Write the rows that source rows without a partner become."""
    schema = target.store.schema
    rows = [matcher.inserted(rule.values, schema, places) for rule, places in matcher.unmet()]
    if target.is_keyed and rows:
        refuse_repeated_keys(pa.Table.from_batches(rows).combine_chunks().to_batches()[0], schema.primary_keys)
    for batch in rows:
        write(batch)
    return sum(batch.num_rows for batch in rows)


@dataclass(slots=True)
class NewPartners:
    """Refuses to publish rows for which others have committed a partner since the target was read.

    Whatever they add is looked at, whoever they are: of a job of another engine nobody can tell whether it read first.
    """

    target: Target
    matcher: Partners
    snapshot_id: int
    whole_rows: bool = True
    """Whether a file holds rows as they are read; if it holds parts of them, every commit counts."""

    def __call__(self, latest: Snapshot | None, messages: tuple[CommitMessage, ...]) -> None:
        """Look at the commits since; what is to be published does not matter.

        Raises:
            CommitConflictError: one of them brought a partner, or has expired so that nobody can tell.
        """
        del messages
        store = self.target.store
        for number in range(self.snapshot_id + 1, latest.id + 1 if latest else 0):
            snapshot = store.snapshots.find(number)
            if snapshot is None:
                raise rows_changed(store, number)
            if snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE) and self._brings(snapshot):
                raise rows_changed(store, number)
            self.snapshot_id = number  # seen, should the commit be tried again

    def _brings(self, snapshot: Snapshot) -> bool:
        store, schema = self.target.store, self.target.store.schema
        entries = read_changes(store.manifests, delta_manifests(store.manifests, snapshot))
        entries = entries.filter(pc.equal(entries.column("kind"), ADD))
        if not self.whole_rows:
            return bool(entries.num_rows)
        where = self.matcher.reach(schema)
        if where is not None and entries.num_rows:
            entries = entries.filter(pa.array(files_that_may_match(store, entries, where, schema)))
        columns = tuple(name for name in schema.names if name in self.matcher.merge.join.columns) or schema.names[:1]
        request = ReadRequest(schema=schema, columns=columns, where=where)
        for split in bucket_splits(entries, snapshot.id, self.target.paths, None):
            for file in split.files:
                for batch in read_data_file(store, split, file, request):
                    if self.matcher.meets(named(batch), batch.num_rows):
                        return True
        return False
