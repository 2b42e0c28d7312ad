"""Plan a batch read: resolve what the options ask for, prune, and pack the files into splits.

An option that planning does not support is refused by name; none is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from tidelake.errors import InvalidInputError, NotFoundError, UnsupportedError
from tidelake.io.executor import ThreadExecutor
from tidelake.ops.context import TableContext
from tidelake.ops.scan.changes import keep_updates_whole, plan_changes, plan_difference, plan_latest_delta
from tidelake.ops.scan.modes import Added, Delta, Difference, Reading, State, find_reading, plan_start
from tidelake.ops.scan.options import ReadOptions, SplitOptions
from tidelake.ops.scan.planner import Plan, plan_append, sort_splits
from tidelake.ops.scan.request import ReadRequest
from tidelake.options import TableOptions
from tidelake.spec.casts.casts import same_type
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.layout import TableLayout
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import plan_again

_REFUSED: Final[Mapping[str, str]] = {
    "scan.bucket": "leave it out; buckets are pruned by a condition on the bucket key",
    "scan.plan-auto-tag-for-read.time-retained": "create a tag before reading, and read at it",
    "scan.fallback-snapshot-branch": "chain tables are not read yet",
    "scan.fallback-delta-branch": "chain tables are not read yet",
}
_INTERNAL: Final = ("stream-scan-mode", "batch-scan-mode")


def check_read_options(options: TableOptions) -> None:
    """Refuse options that no read could follow, before anything is read.

    Raises:
        InvalidInputError: a value has the wrong form, or two options contradict each other.
    """
    start = plan_start(options)
    options.of(SplitOptions)
    read = options.of(ReadOptions)
    if read.fallback_branch is not None and read.primary_branch is not None:
        raise InvalidInputError(
            "options exclude each other",
            code="option-conflict",
            options="scan.fallback-branch, scan.primary-branch",
            hint="set one of the two",
        )
    if read.other_branch is not None and not start.is_newest:
        raise InvalidInputError(
            "partitions of another branch can be read at the newest state only",
            code="option-conflict",
            option="scan.fallback-branch" if read.fallback_branch else "scan.primary-branch",
            mode=start.mode.value,
            hint="read the branches one by one",
        )


def read_at(context: TableContext, request: ReadRequest) -> Snapshot | None:
    """The snapshot at which the read ends; None for an empty table.

    Raises:
        NotFoundError: it does not exist.
        InvalidInputError: options contradict each other.
    """
    match _choose_reading(context, request):
        case State(snapshot):
            return snapshot
        case Added(_, until):
            return context.store.snapshots.find(until) if until > 0 else None
        case Difference(_, after):
            return after
        case Delta(snapshot):
            return snapshot


def plan_batch(context: TableContext, request: ReadRequest) -> Plan:
    """Plan a batch read.

    Raises:
        InvalidInputError: options contradict each other, or a value has the wrong form.
        NotFoundError: a snapshot, tag or branch does not exist.
        UnsupportedError: an option, or a feature that the table uses, is not supported by reads.
    """
    _refuse(context.options)
    check_read_options(context.options)
    options = context.options.of(ReadOptions)
    with _manifest_threads(context, options) as planning:
        settled = request.reading is not None
        plan = _plan(planning, request) if settled else plan_again(lambda: _plan(planning, request))
    if options.sort_partition:
        plan = replace(plan, splits=sort_splits(plan.splits, request.schema))
    return plan


def _refuse(options: TableOptions) -> None:
    for key, hint in _REFUSED.items():
        if key in options:
            raise UnsupportedError("option is not supported by reads", option=key, value=options[key], hint=hint)
    for key in _INTERNAL:
        if options.get(key, "none").strip().lower() != "none":
            raise UnsupportedError("option is internal to another engine", option=key, hint="remove it")


@contextmanager
def _manifest_threads(context: TableContext, options: ReadOptions) -> Iterator[TableContext]:
    """The table, read with as many threads for manifests as the options ask for."""
    if options.manifest_parallelism is None:
        yield context
        return
    executor = ThreadExecutor(options.manifest_parallelism)
    try:
        manifests = replace(context.store.manifests, executor=executor)
        yield replace(context, store=replace(context.store, manifests=manifests))
    finally:
        executor.close()


def _choose_reading(context: TableContext, request: ReadRequest) -> Reading:
    return request.reading if request.reading is not None else find_reading(context)


def _plan(context: TableContext, request: ReadRequest) -> Plan:
    changes = keep_updates_whole(request)
    match _choose_reading(context, request):
        case Added(since, until, changelog):
            return plan_changes(context, changes, since=since, until=until, changelog=changelog)
        case Difference(before, after):
            return plan_difference(context, changes, before=before, after=after)
        case Delta(snapshot):
            return plan_latest_delta(context, changes, snapshot)
        case State() as state:
            own = _plan_state(context, state, request)
    options = context.options.of(ReadOptions)
    if options.other_branch is None or request.reading is not None:
        return own
    # Which rows come first is only known once both branches are planned.
    request = replace(request, limit=None)
    own = own if own.snapshot is None else _plan_state(context, State(own.snapshot), request)
    branch = _branch_context(context, options.other_branch)
    other = _plan_state(branch, State(branch.store.snapshots.latest()), request)
    other = replace(other, splits=tuple(replace(each, branch=options.other_branch) for each in other.splits))
    return _fill_in(own, other) if options.fallback_branch else _fill_in(other, own)


def _plan_state(context: TableContext, state: State, request: ReadRequest) -> Plan:
    with context.store.snapshots.held_to(state.snapshot.id if state.snapshot else None):
        if request.schema.primary_keys:
            from tidelake.ops.scan.keyed import plan_keyed  # append tables do without the tree

            return plan_keyed(context, state, request)
        return plan_append(context, state, request)


def _fill_in(first: Plan, second: Plan) -> Plan:
    """The first plan, with the partitions that only the second branch has."""
    added = tuple(split for split in second.splits if split.partition not in first.partitions)
    return Plan(
        first.snapshot or second.snapshot,
        first.splits + added,
        first.manifests + second.manifests,
        first.manifests_read + second.manifests_read,
        first.files_live + second.files_live,
        first.files_kept + sum(len(split.files) for split in added),
        first.where,
        first.partitions | second.partitions,
    )


def _branch_context(context: TableContext, branch: str) -> TableContext:
    """The same table on another branch with the same columns.

    Raises:
        NotFoundError: the branch does not exist.
        InvalidInputError: it has other columns.
    """
    store = context.store
    layout = TableLayout(branch=branch, data_directory=store.layout.data_directory)
    schemas = SchemaStore(store.env.io, layout)
    schema = schemas.latest()
    if schema is None:
        raise NotFoundError("branch does not exist", code="branch-not-found", branch=branch, table=store.env.io.root)
    ours, theirs = store.schema, schema
    same = ours.names == theirs.names and ours.partition_keys == theirs.partition_keys
    if not same or not all(same_type(a.type, b.type) for a, b in zip(ours.fields, theirs.fields, strict=True)):
        raise InvalidInputError(
            "branches do not have the same columns",
            branch=branch,
            table=store.env.io.root,
            hint="alter one of the two, or read them one by one",
        )
    return replace(context, store=replace(store.on_branch(layout, schemas), schema=schema))
