"""MERGE into append tables: changed rows are taken out of their files, and new ones are added, in one commit.

A first pass reads the columns that decide, file by file, and finds the positions of rows that change; only files with
such rows are read whole.

Invariant: a file is taken apart once, with all its positions, and no more of them are in memory than one file and one
piece of the target have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from tidelake.expr.tree import Predicate
from tidelake.files.read import ROW_NUMBER
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.planner import Plan
from tidelake.ops.scan.split import Split
from tidelake.ops.write.merge_join import Hits, Ints, Matcher, joined_hits
from tidelake.ops.write.merge_parts import NewPartners, Prepared, deciding, insert, named, pieces, reach, taken_at
from tidelake.ops.write.merge_rules import Action
from tidelake.ops.write.rowlevel import CopiedFiles
from tidelake.ops.write.verbs import Target, marks_rows, plan_rewrite
from tidelake.spec.data_file import DataFile

_FILE: Final = "_FILE"
"""The column that tells from which file a row of a piece comes."""


class FileTaker(Protocol):
    """Takes rows out of files: by copying the others (`CopiedFiles`), or by marking them (`MarkedFiles`)."""

    def take(
        self, split: Split, file: DataFile, positions: Ints, taken: Callable[[pa.RecordBatch, int], None] | None = None
    ) -> None:
        """Take the rows at these positions, which ascend, out of a file, and show them whole to `taken`."""

    def finish(self) -> tuple[CommitMessage, ...]:
        """What was done, to be committed."""

    def abort(self) -> None:
        """Remove what was written and nobody has committed."""


def _taker(target: Target, plan: Plan) -> FileTaker:
    if plan.snapshot is not None and marks_rows(target, plan):
        from tidelake.ops.write.marking import MarkedFiles  # tables without vectors do without

        return MarkedFiles(target.store, target.paths, plan.snapshot, target.options)
    return CopiedFiles(target.store, target.paths, target.files)


@dataclass(slots=True)
class FileMerge:
    """A merge into a table without a key: rows are taken out of files, and new ones are added."""

    target: Target
    matcher: Matcher
    counts: dict[Action, int] = field(default_factory=dict)

    def prepare(self) -> Prepared:
        """Write everything but the commit.

        Raises:
            InvalidInputError: a value does not fit, or several source rows change one row; nothing is left behind.
            CommitConflictError: the table has rows of a newer schema than this job knows.
        """
        target, matcher = self.target, self.matcher
        where = reach(target, matcher)
        plan = plan_rewrite(target, where)
        files = _taker(target, plan)
        writer = target.writer()
        try:
            for split, file, hits in self._found(plan.splits, where):
                self._take(files, writer.write, split, file, hits)
            self.counts[Action.INSERT] = insert(target, matcher, writer.write)
            removed = files.finish()
            added = writer.prepare()
        except BaseException:
            writer.abort()
            files.abort()
            raise
        guard = NewPartners(target, matcher, plan.snapshot.id if plan.snapshot else 0)
        inserts = matcher.merge.does(Action.INSERT)
        return Prepared((*removed, *added), self.counts, guard if inserts else None)

    def _take(
        self,
        files: FileTaker,
        write: Callable[[pa.RecordBatch], None],
        split: Split,
        file: DataFile,
        hits: Hits,
    ) -> None:
        """Take changed rows out of a file, and write what becomes of them."""
        matcher, schema = self.matcher, self.target.store.schema
        for number, rule in enumerate(matcher.merge.rules):
            self.counts[rule.action] = self.counts.get(rule.action, 0) + len(hits.of(number))

        def taken(rows: pa.RecordBatch, first: int) -> None:
            here = hits.at(np.arange(first, first + rows.num_rows))
            columns = named(rows)
            for number, rule in enumerate(matcher.merge.rules):
                places = np.flatnonzero(here.rules == number)
                if rule.action is Action.UPDATE and len(places):
                    write(matcher.updated(rule, schema, taken_at(columns, places), here.at(places)))

        files.take(split, file, hits.rows, taken if matcher.merge.does(Action.UPDATE) else None)

    def _found(self, splits: Sequence[Split], where: Predicate | None) -> Iterator[tuple[Split, DataFile, Hits]]:
        """Files with rows that change, one after the other; hits hold positions in the file."""
        files = [(split, file) for split in splits for file in split.files]
        waiting: list[tuple[int, Hits]] = []
        for rows in pieces(self._narrow(files, where), self.matcher.count):
            numbers = rows.column(_FILE).to_numpy()
            positions = rows.column(ROW_NUMBER).to_numpy()
            hits = self.matcher.hits(named(rows), rows.num_rows)
            owners = numbers[hits.rows]
            for owner in np.unique(owners).tolist():
                here = hits.at(np.flatnonzero(owners == owner))
                waiting.append((owner, replace(here, rows=positions[here.rows])))
            # The last file may go on in the next piece.
            yield from self._whole(files, waiting, int(numbers[-1]))
            waiting = [each for each in waiting if each[0] == numbers[-1]]
        yield from self._whole(files, waiting, len(files))

    def _whole(
        self, files: Sequence[tuple[Split, DataFile]], waiting: Sequence[tuple[int, Hits]], until: int
    ) -> Iterator[tuple[Split, DataFile, Hits]]:
        for owner in sorted({each for each, _ in waiting if each < until}):
            yield (*files[owner], joined_hits([hits for each, hits in waiting if each == owner]))

    def _narrow(self, files: Sequence[tuple[Split, DataFile]], where: Predicate | None) -> Iterator[pa.RecordBatch]:
        """What decides about rows, with the number of their file and their place in it."""
        store, merge = self.target.store, self.matcher.merge
        request = ReadRequest(schema=store.schema, columns=deciding(self.target, merge), where=where)
        for number, (split, file) in enumerate(files):
            for batch in read_data_file(store, split, file, request, row_numbers=True):
                if batch.num_rows:
                    owner = pa.array(np.full(batch.num_rows, number, np.int64))
                    yield batch.append_column(_FILE, owner)
