"""Merging a branch into another one: the files that only the source has are appended to the target, in one snapshot.

Only append tables whose branches have all their snapshots, each an append, can be merged. Then a file that was merged
once stays in the target under its name, so that no repetition adds it again. Invariant: nothing that takes files away
is committed to the target between the plan and the publish, and the source's files cannot expire before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitConflictError, InvalidInputError, StorageError
from tidelake.notebook import pluralize
from tidelake.ops.commit.changes import only_in
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.guards import Proposal
from tidelake.ops.commit.messages import CommitResult
from tidelake.ops.commit.since import commits_since
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.tags import hold_snapshot, tag_store
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.options.capabilities import refuse_commit
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.manifests.manifest import empty_entries
from tidelake.store.table_store import TableStore

__all__ = ["MergePlan", "OnlyAppends", "plan_merge", "run_merge"]

_APPENDS = frozenset({CommitKind.APPEND, CommitKind.ANALYZE})


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The files to append to the target, and once they are, what was committed."""

    source: str
    target: str
    snapshot: Snapshot
    """The newest snapshot of the source."""
    target_id: int
    """The newest snapshot of the target."""
    entries: pa.Table = field(default_factory=empty_entries, repr=False, compare=False)
    result: CommitResult = field(default_factory=CommitResult)

    @property
    def files(self) -> int:
        """The number of files that only the source has."""
        count: int = self.entries.num_rows
        return count

    @property
    def rows(self) -> int:
        """The rows in them."""
        return int(pc.sum(self.entries.column("row_count")).as_py() or 0)

    def __str__(self) -> str:
        if not self.files:
            return f"{self.target} has every file of {self.source} already"
        return f"{self.target} gets {pluralize(self.files, 'file')} with {pluralize(self.rows, 'row')} of {self.source}"


def plan_merge(target: TableContext, source: TableContext) -> MergePlan:
    """Which files of one branch would be appended to another one.

    Raises:
        InvalidInputError: the branches cannot be merged; the message says why.
        UnsupportedError: one of them has an option with which tables are not committed to.
    """
    names = {"source": source.store.layout.branch, "target": target.store.layout.branch}
    if names["source"] == names["target"]:
        raise _refusal("a branch cannot be merged into itself", names, "give another branch")
    newest = [_check_history(each.store, names) for each in (source, target)]
    for each in (source, target):
        if each.store.schema.primary_keys:
            raise _refusal("only append tables can be merged", names, "use fast_forward for a primary-key table")
        refuse_commit(each.options)
    if source.store.schema.fields != target.store.schema.fields:
        raise _refusal("the columns of the branches differ", names, "change one of the schemas first")
    theirs, ours = (
        live_entries(each.store.manifests, data_manifests(each.store.manifests, snapshot))
        for each, snapshot in zip((source, target), newest, strict=True)
    )
    new = only_in(theirs, ours).combine_chunks()
    _check_schemas(source.store, target.store, new, names)
    return MergePlan(names["source"], names["target"], newest[0], newest[1].id, new)


def _check_history(store: TableStore, names: dict[str, str]) -> Snapshot:
    """The newest snapshot of a branch that has all its snapshots, and nothing but appends."""
    newest = store.snapshots.latest()
    facts = {**names, "branch": store.layout.branch}
    if newest is None:
        raise _refusal("a branch without snapshots cannot be merged", facts, "write to it first")
    for snapshot_id, snapshot in store.snapshots.walk(1, newest.id):
        if snapshot is None:
            raise _refusal(
                "a snapshot of the branch is missing",
                {**facts, "snapshot_id": snapshot_id},
                "only branches that have every snapshot from the first one on can be merged, because others may have "
                "had files that are gone by now",
            )
        if snapshot.commit_kind not in _APPENDS:
            raise _refusal(
                "a snapshot of the branch is not an append",
                {**facts, "snapshot_id": snapshot_id, "kind": snapshot.commit_kind.value},
                "after a compaction or an overwrite branches can only be moved with fast_forward",
            )
    return newest


def _check_schemas(source: TableStore, target: TableStore, new: pa.Table, names: dict[str, str]) -> None:
    """Check that both branches know the schemas of the new files, and that these are the same."""
    there = set(target.schemas.ids())
    for schema_id in sorted(new.column("schema_id").unique().to_pylist()):
        facts = {**names, "schema_id": schema_id}
        if schema_id not in there:
            raise _refusal("the target does not have a schema of the source's files", facts, "change its schema first")
        if source.schemas.get(schema_id) != target.schemas.get(schema_id):
            raise _refusal(
                "the branches have different schemas with one number",
                facts,
                "their schemas were changed separately; files with such a schema cannot be merged",
            )


def _refusal(message: str, facts: Mapping[str, object], hint: str) -> InvalidInputError:
    return InvalidInputError(message, code="branches-not-mergeable", hint=hint, **facts)


@dataclass(frozen=True, slots=True)
class OnlyAppends:
    """Guard of a merge: since its plan the target has only got appends, so no file can have come and gone."""

    store: TableStore
    planned_id: int

    def check(self, proposal: Proposal) -> None:
        """Refuse if anything else was committed, or may have been.

        Raises:
            CommitConflictError: it was; a new plan looks at the whole history.
        """
        base = max(self.planned_id, proposal.checked_id)
        for later in commits_since(self.store, base, proposal.latest.id):
            if later.kind not in _APPENDS:
                raise CommitConflictError(
                    "something else than an append was committed to the target branch while it was merged",
                    code="file-conflict",
                    snapshot_id=later.id,
                    hint="plan again",
                )


def run_merge(target: TableContext, source: TableContext, committer: Committer, plan: MergePlan) -> MergePlan:
    """Append the planned files to the target.

    Args:
        target: the target branch.
        source: the source branch; a tag holds its snapshot while this runs.
        committer: a committer of the target without hooks that expire anything.
        plan: the plan.

    Raises:
        CommitConflictError: the files are in the target by now, or it was compacted or overwritten: plan again.
        NotFoundError: the snapshot of the source expired since the plan.
        CommitUnknownError: it is unknown whether the files were committed; a repeated merge does not add them twice.
        StorageError: the storage failed, and nothing was committed.
    """
    if not plan.files:
        return plan
    tag = f"merge-branch-{source.store.env.ids.uuid()}"
    hold_snapshot(source.store, tag, plan.snapshot)
    release = partial(tag_store(source.store).delete, tag)
    with undo_on_error(release, ignore=(StorageError,)):
        done = committer.append_entries(plan.entries, guards=(OnlyAppends(target.store, plan.target_id),))
    try:
        release()
    except StorageError as error:
        left = f"merged, but tag {tag} of branch {plan.source} could not be deleted: {error.message}"
        done = replace(done, warnings=(*done.warnings, left))
    return replace(plan, result=done)
