"""MERGE into append tables: changed rows are removed from their files, and new ones are added, in one commit.

A first pass reads the columns that decide, file by file, and finds the positions of rows that change; only files with
such rows are read whole.

Invariant: a file is changed once, with all its positions. Only the positions of one file and of one batch of the target
are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.expr.tree import Predicate
from tidelake.files.options import FileOptions
from tidelake.files.read.data_file import ROW_NUMBER
from tidelake.ops.change.copy_on_write import CopiedFiles
from tidelake.ops.change.merge_join import Ints, MatchedPairs, Matcher, join_pairs
from tidelake.ops.change.merge_parts import (
    NoNewMatches,
    Prepared,
    find_deciding_columns,
    insert,
    pieces,
    qualify_columns,
    reach,
    take_rows,
)
from tidelake.ops.change.merge_rules import Action
from tidelake.ops.change.verbs import marks_rows, plan_rewrite
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.planner import Plan
from tidelake.ops.scan.split import Split
from tidelake.ops.write.opening import open_writer
from tidelake.spec.data_file import DataFile

_FILE: Final = "_FILE"
"""The column with the number of the file that a row comes from."""


class FileTaker(Protocol):
    """Removes rows from files: by copying the others (`CopiedFiles`), or with deletion vectors (`MarkedFiles`)."""

    def take(
        self, split: Split, file: DataFile, positions: Ints, taken: Callable[[pa.RecordBatch, int], None] | None = None
    ) -> None:
        """Remove the rows at these ascending positions from a file, and pass the whole rows to `taken`."""

    def finish(self) -> tuple[CommitMessage, ...]:
        """Describe the changes for the committer."""

    def abort(self) -> None:
        """Remove the new files, which must not be committed."""


def _taker(target: TableContext, plan: Plan) -> FileTaker:
    if plan.snapshot is not None and marks_rows(target, plan):
        from tidelake.ops.change.merge_on_write import MarkedFiles  # tables without vectors do without

        return MarkedFiles(target.store, target.paths, plan.snapshot, target.options)
    return CopiedFiles(target.store, target.paths, target.options.of(FileOptions))


@dataclass(slots=True)
class FileMerge:
    """A merge into a table without a key: rows are removed from files, and new ones are added."""

    target: TableContext
    matcher: Matcher
    counts: dict[Action, int] = field(default_factory=dict)

    def prepare(self) -> Prepared:
        """Write all files and return what to commit.

        Raises:
            InvalidInputError: a value does not fit, or several source rows change one row; the new files are removed.
            CommitConflictError: the table has rows of a newer schema than this job knows.
        """
        target, matcher = self.target, self.matcher
        where = reach(target, matcher)
        plan = plan_rewrite(target, where)
        files = _taker(target, plan)
        writer = open_writer(target)
        with undo_on_error(writer.abort, files.abort):
            for split, file, pairs in self._find_changed_files(plan.splits, where):
                self._take(files, writer.write, split, file, pairs)
            self.counts[Action.INSERT] = insert(target, matcher, writer.write)
            removed = files.finish()
            added = writer.prepare()
        guard = NoNewMatches(target, matcher, plan.snapshot.id if plan.snapshot else 0)
        inserts = matcher.merge.does(Action.INSERT)
        return Prepared((*removed, *added), self.counts, (guard,) if inserts else ())

    def _take(
        self,
        files: FileTaker,
        write: Callable[[pa.RecordBatch], None],
        split: Split,
        file: DataFile,
        pairs: MatchedPairs,
    ) -> None:
        """Remove changed rows from a file, and write their new versions."""
        matcher, schema = self.matcher, self.target.store.schema
        for number, rule in enumerate(matcher.merge.rules):
            self.counts[rule.action] = self.counts.get(rule.action, 0) + len(pairs.of(number))

        def write_updates(rows: pa.RecordBatch, first: int) -> None:
            here = pairs.at(np.arange(first, first + rows.num_rows))
            columns = qualify_columns(rows)
            for number, rule in enumerate(matcher.merge.rules):
                places = np.flatnonzero(here.rules == number)
                if rule.action is Action.UPDATE and len(places):
                    write(matcher.make_updates(rule, schema, take_rows(columns, places), here.at(places)))

        files.take(split, file, pairs.rows, write_updates if matcher.merge.does(Action.UPDATE) else None)

    def _find_changed_files(
        self, splits: Sequence[Split], where: Predicate | None
    ) -> Iterator[tuple[Split, DataFile, MatchedPairs]]:
        """Find files with rows that change, one after the other; the pairs have positions in the file."""
        files = [(split, file) for split in splits for file in split.files]
        waiting: list[tuple[int, MatchedPairs]] = []
        for rows in pieces(self._narrow(files, where), self.matcher.count):
            numbers = rows.column(_FILE).to_numpy()
            positions = rows.column(ROW_NUMBER).to_numpy()
            pairs = self.matcher.find_pairs(qualify_columns(rows), rows.num_rows)
            owners = numbers[pairs.rows]
            for owner in np.unique(owners).tolist():
                here = pairs.at(np.flatnonzero(owners == owner))
                waiting.append((owner, replace(here, rows=positions[here.rows])))
            # The last file may continue in the next batch.
            yield from self._whole(files, waiting, int(numbers[-1]))
            waiting = [each for each in waiting if each[0] == numbers[-1]]
        yield from self._whole(files, waiting, len(files))

    def _whole(
        self, files: Sequence[tuple[Split, DataFile]], waiting: Sequence[tuple[int, MatchedPairs]], until: int
    ) -> Iterator[tuple[Split, DataFile, MatchedPairs]]:
        for owner in sorted({each for each, _ in waiting if each < until}):
            yield (*files[owner], join_pairs([pairs for each, pairs in waiting if each == owner]))

    def _narrow(self, files: Sequence[tuple[Split, DataFile]], where: Predicate | None) -> Iterator[pa.RecordBatch]:
        """Read the columns that decide, with the number of the file and the position in it."""
        store, merge = self.target.store, self.matcher.merge
        request = ReadRequest(
            schema=store.schema, columns=find_deciding_columns(self.target, merge), where=where, positions=True
        )
        for number, (split, file) in enumerate(files):
            for batch in read_data_file(store, split, file, request):
                if batch.num_rows:
                    owner = pa.array(np.full(batch.num_rows, number, np.int64))
                    yield batch.append_column(_FILE, owner)
