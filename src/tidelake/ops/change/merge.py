"""MERGE: rows of a source into a table, for every kind of table, as one commit.

The source is in memory; the target is read batch by batch, only the columns that the clauses need, and only the files
that can hold a match of a source row. The result is written in one of these ways:

* `UPSERT`: a primary-key table whose rows get the same values whether their key exists or not. Nothing is read.
* `VERSIONS`: a primary-key table in which the last version wins. Changed rows are new versions, and streams see them.
* `REWRITE`: a primary-key table in which it does not. Sections that hold a changed row are merged and rewritten.
* `FILES`: a table without a key. Files that hold a changed row are rewritten, and new rows are added.
* `MARKS`: the same with deletion vectors. Changed rows get deleted positions, files stay, and new rows are added.

Invariant: what is published was computed from the newest state of the rows it changes, and no row is inserted if its
match was committed in between. A commit of another job that does either is found before publishing, and the merge is
planned again on the newest snapshot, a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.expr.tree import ALWAYS, Predicate
from tidelake.notebook import html_card
from tidelake.ops.change.merge_append import FileMerge
from tidelake.ops.change.merge_join import Matcher, refuse_repeated_keys
from tidelake.ops.change.merge_parts import (
    Prepared,
    find_deciding_columns,
    find_needed_columns,
    plan_target_read,
    reach,
)
from tidelake.ops.change.merge_rules import Action, Merge, describe_merge
from tidelake.ops.change.verbs import commit_rows, marks_rows
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.replan import replan
from tidelake.ops.context import TableContext
from tidelake.ops.write.opening import open_writer
from tidelake.spec.schemas.bucket_mode import BucketMode


class Way(Enum):
    """How a merge writes its result."""

    UPSERT = "upsert without a read"
    VERSIONS = "new versions of rows"
    REWRITE = "copy on write of sorted runs"
    FILES = "copy on write of files"
    MARKS = "deletion vectors"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What a merge did to rows, and its commit.

    `updated` and `inserted` are None if the merge did not have to distinguish the two; then `written` counts both.
    """

    commit: CommitResult
    updated: int | None = 0
    deleted: int = 0
    inserted: int | None = 0
    written: int = 0

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """The snapshots of the merge; none if there was nothing to do."""
        return self.commit.snapshot_ids

    @property
    def warnings(self) -> tuple[str, ...]:
        """What failed after the merge was published."""
        return self.commit.warnings

    @property
    def rows(self) -> int:
        """How many rows were updated, deleted or inserted."""
        return self.deleted + self.written

    def _repr_html_(self) -> str:
        ids = ", ".join(map(str, self.snapshot_ids))
        known = [("updated", self.updated), ("deleted", self.deleted), ("inserted", self.inserted)]
        facts = [(name, f"{count:,}") for name, count in known if count is not None]
        if self.updated is None:
            facts.append(("updated or inserted", f"{self.written:,}"))
        facts += [("warning", warning) for warning in self.warnings]
        return html_card(f"snapshot {ids}" if ids else "nothing to do", facts if ids else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """What a merge would do, and which part of the table it reads."""

    way: Way
    clauses: tuple[str, ...]
    on: str
    source_rows: int
    columns: tuple[str, ...] = ()
    """The columns that are read of the target."""
    files: int = 0
    bytes: int = 0
    snapshot_id: int | None = None

    def __str__(self) -> str:
        read = f"{', '.join(self.columns)} of {self.files} files, {self.bytes:,} bytes" if self.files else "nothing"
        lines = [
            f"merge of {self.source_rows:,} rows: {self.way.value}",
            f"  on      {self.on}",
            *(f"  {clause}" for clause in self.clauses),
            f"  reads   {read}",
        ]
        return "\n".join(lines)


# ------------------------------------------------------------------------------------------------ which way


def plan_merge(target: TableContext, source: pa.Table, merge: Merge) -> MergePlan:
    """Plan a merge on the newest snapshot; nothing is written.

    Raises:
        InvalidInputError: a key of the source cannot be computed.
        UnsupportedError: the table cannot be read.
    """

    def where() -> Predicate | None:
        return reach(target, Matcher(source, merge))

    return describe_plan(target, merge, choose_way(target, merge, nulls_in(source)), source.num_rows, where)


def describe_plan(
    target: TableContext, merge: Merge, way: Way, source_rows: int, where: Callable[[], Predicate | None]
) -> MergePlan:
    """Describe a merge for a user; `where` says which part of the table it reads."""
    on, *clauses = describe_merge(merge)
    plan = MergePlan(way=way, clauses=tuple(clauses), on=on, source_rows=source_rows)
    if way is Way.UPSERT:
        return plan
    found = plan_target_read(target, where())
    columns = find_needed_columns(target, merge) if way is Way.VERSIONS else find_deciding_columns(target, merge)
    files = sum(len(split.files) for split in found.splits)
    at = found.snapshot.id if found.snapshot else None
    if way is Way.FILES and marks_rows(target, found):
        plan = replace(plan, way=Way.MARKS)
    return replace(plan, columns=columns, files=files, bytes=found.size, snapshot_id=at)


def nulls_in(source: pa.Table) -> Callable[[str], bool]:
    """Which columns of a source in memory hold nulls."""
    return lambda name: bool(source.column(name).null_count)


def choose_way(target: TableContext, merge: Merge, has_nulls: Callable[[str], bool]) -> Way:
    """Choose how a merge writes its result, from the clauses and the source alone.

    `has_nulls` says whether a column of the source has nulls; it is called only where a null matters.

    Raises:
        InvalidInputError: an update sets a partition column, and rows of the table cannot move to other partitions.
    """
    if not target.is_keyed:
        return Way.FILES
    from tidelake.ops.change.keyed import assigned_order, check_update, deletions_win, versions_win
    from tidelake.ops.change.merge_keyed import upsert_values

    check_update(target.store.schema, merge.assigned_columns, target.options)
    if upsert_values(target, merge, has_nulls) is not None:
        return Way.UPSERT
    options = target.options
    # Whether a new value of a sequence column makes a row lose is known only when it is compared with the old one.
    plain = merge.assigned_columns.difference(assigned_order(options, merge.assigned_columns))
    updates_lose = merge.does(Action.UPDATE) and not versions_win(options, plain)
    if updates_lose or (merge.does(Action.DELETE) and not deletions_win(target.store.schema, options)):
        return Way.REWRITE
    return Way.VERSIONS


# ------------------------------------------------------------------------------------------------ acting


def run_merge(target: TableContext, committer: Committer, source: pa.Table, merge: Merge) -> MergeResult:
    """Merge a source into a table.

    Raises:
        InvalidInputError: a value does not fit, or several source rows change one row; the new files are removed.
        CommitConflictError: another job changed the same rows or files first at every attempt.
        CommitUnknownError: the storage did not answer whether the commit is there.
    """
    way = choose_way(target, merge, nulls_in(source))
    if way is Way.UPSERT:
        return replan(lambda: _run_upsert(target, committer, source, merge))

    return replan(lambda: commit_merge(target, committer, _prepare(target, source, merge, way)))


def commit_merge(target: TableContext, committer: Committer, prepared: Prepared) -> MergeResult:
    """Commit a merge that is written.

    Raises:
        CommitConflictError: another job changed the same rows or files first; the new files are removed.
        CommitUnknownError: the storage did not answer whether the commit is there.
    """
    done = commit_rows(target, committer, prepared.messages, "MERGE", prepared.guards, waiting=prepared.hidden)
    counts = prepared.counts
    updated, inserted = counts.get(Action.UPDATE, 0), counts.get(Action.INSERT, 0)
    deleted = counts.get(Action.DELETE, 0)
    return MergeResult(
        commit=replace(done, rows=updated + deleted + inserted),  # without rows that were only copied
        updated=updated,
        deleted=deleted,
        inserted=inserted,
        written=updated + inserted,
    )


def _prepare(target: TableContext, source: pa.Table, merge: Merge, way: Way) -> Prepared:
    matcher = Matcher(source, merge)
    if way is Way.FILES:
        return FileMerge(target, matcher).prepare()
    from tidelake.ops.change.merge_keyed import rewrite_sections, write_versions  # append tables do without the tree

    if target.bucket_mode is BucketMode.POSTPONED:
        from tidelake.ops.write.postpone import refuse_waiting

        where = reach(target, matcher)
        refuse_waiting(target.store, ALWAYS if where is None else where)
    found = write_versions(target, matcher) if way is Way.VERSIONS else None
    return rewrite_sections(target, matcher) if found is None else found


def _run_upsert(target: TableContext, committer: Committer, source: pa.Table, merge: Merge) -> MergeResult:
    from tidelake.ops.change.merge_keyed import upsert_values

    values = upsert_values(target, merge, nulls_in(source))
    assert values is not None
    schema = target.store.schema
    rows = Matcher(source, merge).make_inserts(values, schema, None)
    refuse_repeated_keys(rows, schema.primary_keys)
    writer = open_writer(target)
    with undo_on_error(writer.abort):
        writer.write(rows)
        messages = tuple(writer.prepare())
    done = commit_rows(target, committer, messages, "MERGE")
    return MergeResult(commit=done, updated=None, inserted=None, written=rows.num_rows)
