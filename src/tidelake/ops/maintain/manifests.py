"""Merge all manifests of a table at once, and sort them by partition and bucket if that is wanted.

The files of the table do not change, and neither do its rows: a plan of few partitions only reads fewer manifests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelake.errors import InvalidInputError
from tidelake.notebook import pluralize
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.manifest_merge import plan_full_merge, plan_sorted_merge
from tidelake.ops.commit.manifest_sort import make_order
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.options import ManifestOptions
from tidelake.ops.context import TableContext
from tidelake.ops.scan.plan import data_manifests
from tidelake.options import Bytes, parse_bytes
from tidelake.spec.documents.snapshot import Snapshot

__all__ = ["ManifestPlan", "choose_options", "plan_manifest_compaction", "run_manifest_compaction"]


@dataclass(frozen=True, slots=True)
class ManifestPlan:
    """The manifests of a table, and how many of them a compaction would rewrite."""

    manifests: int = 0
    size: int = 0
    deleted_entries: int = 0
    undersized: int = 0
    """Manifests below the target size."""
    rewritten: int = 0
    rewritten_size: int = 0
    sorts: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be rewritten."""
        return not self.rewritten

    def __str__(self) -> str:
        act = "sorts" if self.sorts else "merges"
        return (
            f"{act} {self.rewritten:,} of {pluralize(self.manifests, 'manifest')} ({self.rewritten_size:,} of "
            f"{self.size:,} bytes); {pluralize(self.undersized, 'manifest')} below the target size, "
            f"{self.deleted_entries:,} deleted entries"
        )


def choose_options(
    context: TableContext, sort: bool | None, sort_field: str | None, max_rewrite_size: int | str | None
) -> ManifestOptions:
    """The options of a table for its manifests, with those that are given for one use.

    Raises:
        InvalidInputError: a size cannot be parsed.
    """
    options = context.options.of(ManifestOptions)
    if sort is not None:
        options = replace(options, sort=sort)
    if sort_field is not None:
        options = replace(options, sort_field=sort_field)
    if max_rewrite_size is not None:
        options = replace(options, sort_rewrite_bytes=_read_size(max_rewrite_size))
    return options


def _read_size(size: int | str) -> Bytes:
    try:
        return parse_bytes(str(size))
    except ValueError as cause:
        raise InvalidInputError("size cannot be parsed", size=repr(size)[:80], hint='write "256 mb"') from cause


def plan_manifest_compaction(context: TableContext, options: ManifestOptions) -> ManifestPlan:
    """Plan which manifests of the newest snapshot are rewritten; it reads manifests that have deletions.

    Raises:
        InvalidInputError: manifests are to be sorted by a column that is not a partition column.
    """
    order = make_order(options, context.schema)

    def plan(snapshot: Snapshot | None) -> ManifestPlan:
        if snapshot is None:
            return ManifestPlan()
        store = context.store.manifests
        metas = data_manifests(store, snapshot)
        rewritten = (
            plan_full_merge(store, metas, options)
            if order is None
            else plan_sorted_merge(store, metas, options, order).rewritten
        )
        return ManifestPlan(
            manifests=len(metas),
            size=sum(meta.file_size for meta in metas),
            deleted_entries=sum(meta.num_deleted for meta in metas),
            undersized=sum(meta.file_size < options.target_bytes for meta in metas),
            rewritten=len(rewritten),
            rewritten_size=sum(meta.file_size for meta in rewritten),
            sorts=order is not None,
        )

    return context.store.snapshots.on_newest(plan)


def run_manifest_compaction(committer: Committer, options: ManifestOptions) -> CommitResult:
    """Merge the manifests as one COMPACT snapshot, if that changes them.

    Raises:
        InvalidInputError: manifests are to be sorted by a column that is not a partition column.
        CommitUnknownError: the storage did not say whether the snapshot was published.
    """
    return committer.compact_manifests(options)
