"""The verbs of a table's handle for its files: deletion vectors, manifests, missing files, and purging them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelake.expr.tree import Predicate
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.replan import replan
from tidelake.ops.compact.buckets import Choice, choose_partitions
from tidelake.ops.compact.table import CompactionPlan
from tidelake.ops.maintain.manifests import (
    ManifestPlan,
    choose_options,
    plan_manifest_compaction,
    run_manifest_compaction,
)
from tidelake.ops.maintain.purge import PurgePlan, plan_purge, run_purge
from tidelake.ops.maintain.unexisting import UnexistingPlan, plan_unexisting, run_unexisting
from tidelake.table.writing import Writing, step_runner_of


class Upkeep(Writing):
    """Deletion vectors, manifests and missing files. Methods return a plan and do not act if `plan_only` is set."""

    __slots__ = ()

    def materialize_deletion_vectors(
        self,
        partitions: Sequence[Mapping[str, object]] | None = None,
        where: Predicate | str | None = None,
        *,
        plan_only: bool = False,
        on: Any | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> CompactionPlan | CommitResult:
        """Rewrite the files that have deletion vectors without their deleted rows; no row changes.

        `partitions` lists partitions as `{"dt": "2026-11-15"}`, `where` is a condition on partition columns; by default
        the whole table is looked at. An append table rewrites only files that have a vector. In a primary-key table
        every bucket that has one is compacted fully. Rows that other jobs delete while it runs stay deleted, and may
        leave new vectors. `on`, a Spark session, runs the work as its tasks. `progress` is called with the number of
        buckets or file groups that are done, and their total.

        Raises:
            InvalidInputError: both choices are given, or a column is not a partition column.
            CommitConflictError: another job changed the same buckets first, at every attempt.
            StorageError: the storage failed, or tasks failed repeatedly; nothing was committed.
        """
        from tidelake.ops.compact.materialize import plan_materialization, run_materialization

        runner = None if on is None else step_runner_of(on)
        table = self._newest()
        choice = Choice(partitions=choose_partitions(table.schema, table._predicate(where), partitions))
        if plan_only:
            return plan_materialization(table.context, choice)
        committer = table._committer(None, expires=True)
        return run_materialization(table.context, committer, choice, runner=runner, progress=progress)

    def compact_manifests(
        self,
        sort: bool | None = None,
        sort_field: str | None = None,
        max_rewrite_size: int | str | None = None,
        *,
        plan_only: bool = False,
    ) -> ManifestPlan | CommitResult:
        """Merge all manifests; with `sort`, write their entries in the order of partitions and buckets.

        A plan of few partitions then reads few manifests. `sort_field` is the partition column to sort by first, and
        `max_rewrite_size` (`"256 mb"`) limits the bytes of manifests that one call sorts. What is not given is as the
        options `manifest-sort.*` of the table say. No snapshot is made if nothing changes.

        Raises:
            InvalidInputError: `sort_field` is not a partition column, or a size cannot be parsed.
            CommitUnknownError: the storage did not say whether the snapshot was published.
        """
        options = choose_options(self.context, sort, sort_field, max_rewrite_size)
        if plan_only:
            return plan_manifest_compaction(self.context, options)
        return run_manifest_compaction(self._committer(None), options)

    def remove_unexisting_files(self, *, plan_only: bool = False) -> UnexistingPlan:
        """Drop from the newest snapshot the data files that do not exist, so that the rest can be read again.

        Their rows are lost: restore the files if that is possible. Only files that the storage does not have are
        dropped, with their deletion vectors; any other error of the storage ends the search, and nothing changes. Older
        snapshots and tags still name the files.

        Raises:
            StorageError: the storage failed; nothing was changed.
            CommitConflictError: another job changed the same files, at every attempt.
            CommitUnknownError: the storage did not say whether the commit was published.
        """
        table = self._newest()

        def attempt() -> UnexistingPlan:
            plan = plan_unexisting(table.context)
            if plan_only or not plan.paths:
                return plan
            return replace(plan, result=run_unexisting(table.context, table._committer(None), plan))

        return replan(attempt)

    def purge_files(self, *, plan_only: bool = False) -> PurgePlan:
        """Remove all rows, snapshots, changelogs, tags, branches and consumers, and keep the schema.

        Stop writers first. One snapshot without files is left. After an error in between, repeat it. Files that only a
        branch used become orphans.

        Raises:
            InvalidInputError: the handle works on a branch.
            CommitConflictError: the table kept changing while it ran: repeat it.
            CommitUnknownError: the storage did not say whether the rows are removed: repeat it.
            NotFoundError: another job removed a branch, a tag or a consumer first: repeat it.
        """
        table = self._newest()
        plan = plan_purge(table.context)
        return plan if plan_only else run_purge(table.context, table._committer(None, expires=False), plan)
