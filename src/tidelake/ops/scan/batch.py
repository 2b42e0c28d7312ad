"""The plan of a batch read: what the options ask for, found in the table and pruned, as splits.

An option that planning cannot honour is refused by name; none is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from tidelake.errors import InvalidInputError, NotFoundError, UnsupportedError
from tidelake.expr.tree import Predicate
from tidelake.io.executor import ThreadExecutor
from tidelake.ops.scan.changes import Wanted, plan_changes, plan_difference, plan_latest_delta, shared_by_halves
from tidelake.ops.scan.modes import Added, Delta, Difference, Reading, State, find_reading, plan_start
from tidelake.ops.scan.options import BucketOptions, ReadOptions, SplitOptions
from tidelake.ops.scan.planner import Plan, plan_append, sort_splits
from tidelake.ops.scan.topn import SortKey
from tidelake.spec.casts import same_type
from tidelake.spec.layout import TableLayout
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.schemas import SchemaStore
from tidelake.store.snapshots import SnapshotStore, plan_again
from tidelake.store.table_store import TableStore

_REFUSED: Final[Mapping[str, str]] = {
    "scan.bucket": "leave it out; buckets are pruned by a condition on the bucket key",
    "scan.plan-auto-tag-for-read.time-retained": "create a tag before reading, and read at it",
    "scan.fallback-snapshot-branch": "chain tables are not read yet",
    "scan.fallback-delta-branch": "chain tables are not read yet",
}
_INTERNAL: Final = ("stream-scan-mode", "batch-scan-mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRead:
    """What a batch read wants: rows of these columns, that this condition keeps, in this order, at most so many."""

    schema: Schema
    paths: DataPaths
    where: Predicate | None = None
    limit: int | None = None
    order: tuple[SortKey, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    reading: Reading | None = None
    """What to read instead of what the options say."""
    optimized: bool = False
    """Whether a primary-key table is read without a merge: its lowest level alone, as full compactions left it."""
    first_of_stream: bool = False
    """Whether the state is one that the changes of later snapshots continue."""
    waiting: bool = False
    """Whether rows of a primary-key table that wait for a compaction are read, also where reads pass over them."""
    whole_updates: bool = False
    """Whether both rows of an update are read where the condition keeps one of them."""

    @property
    def wanted(self) -> Wanted:
        """What is read of changes."""
        halves = self.whole_updates and bool(self.schema.primary_keys)
        where = shared_by_halves(self.where, self.schema) if halves else self.where
        return Wanted(schema=self.schema, paths=self.paths, where=where, options=self.options)


def check_read_options(options: Mapping[str, str]) -> None:
    """Refuse options that no read could follow, before anything is read.

    Raises:
        InvalidInputError: a value has the wrong form, or two options contradict each other.
    """
    start = plan_start(options)
    SplitOptions.parse(options)
    read = ReadOptions.parse(options)
    if read.fallback_branch is not None and read.primary_branch is not None:
        raise InvalidInputError(
            "options exclude each other",
            code="option-conflict",
            options="scan.fallback-branch, scan.primary-branch",
            hint="set one of the two",
        )
    if read.other_branch is not None and not start.is_newest:
        raise InvalidInputError(
            "another branch fills in at the newest state only",
            code="option-conflict",
            option="scan.fallback-branch" if read.fallback_branch else "scan.primary-branch",
            mode=start.mode.value,
            hint="read the branches one by one",
        )


def read_at(store: TableStore, read: BatchRead) -> Snapshot | None:
    """The snapshot at which the read ends; None for an empty table.

    Raises:
        NotFoundError: it is not there.
        InvalidInputError: options contradict each other.
    """
    match _reading(store, read):
        case State(snapshot):
            return snapshot
        case Added(_, until):
            return store.snapshots.find(until) if until > 0 else None
        case Difference(_, after):
            return after
        case Delta(snapshot):
            return snapshot


def plan_batch(store: TableStore, read: BatchRead) -> Plan:
    """Plan a batch read.

    Raises:
        InvalidInputError: options contradict each other, or a value has the wrong form.
        NotFoundError: a snapshot, tag or branch is not there.
        UnsupportedError: an option or something the table holds is not honoured by reads.
    """
    _refuse(read.options)
    check_read_options(read.options)
    options = ReadOptions.parse(read.options)
    with _planning(store, options) as planning:
        settled = read.reading is not None
        plan = _plan(planning, read, options) if settled else plan_again(lambda: _plan(planning, read, options))
    if options.sort_partition:
        plan = replace(plan, splits=sort_splits(plan.splits, read.schema))
    return plan


def _refuse(options: Mapping[str, str]) -> None:
    for key, hint in _REFUSED.items():
        if key in options:
            raise UnsupportedError("option is not honoured by reads", option=key, value=options[key], hint=hint)
    for key in _INTERNAL:
        if options.get(key, "none").strip().lower() != "none":
            raise UnsupportedError("option is internal to another engine", option=key, hint="remove it")


@contextmanager
def _planning(store: TableStore, options: ReadOptions) -> Iterator[TableStore]:
    """The store with as many threads for manifests as the options ask for."""
    if options.manifest_parallelism is None:
        yield store
        return
    executor = ThreadExecutor(options.manifest_parallelism)
    try:
        yield replace(store, manifests=replace(store.manifests, executor=executor))
    finally:
        executor.close()


def _reading(store: TableStore, read: BatchRead) -> Reading:
    return read.reading if read.reading is not None else find_reading(store, read.options)


def _plan(store: TableStore, read: BatchRead, options: ReadOptions) -> Plan:
    splits = SplitOptions.parse(read.options)
    match _reading(store, read):
        case Added(since, until, changelog):
            return plan_changes(store, read.wanted, since=since, until=until, changelog=changelog)
        case Difference(before, after):
            return plan_difference(store, read.wanted, before=before, after=after)
        case Delta(snapshot):
            return plan_latest_delta(store, read.wanted, snapshot)
        case State(snapshot, created_from_ms):
            own = _plan_state(store, snapshot, read, splits, created_from_ms)
    if options.other_branch is None or read.reading is not None:
        return own
    # Which rows come first is not known before the branches are put together.
    read = replace(read, limit=None)
    own = own if own.snapshot is None else _plan_state(store, own.snapshot, read, splits, None)
    other_store = _branch_store(store, options.other_branch)
    other = _plan_state(other_store, other_store.snapshots.latest(), read, splits, None)
    other = replace(other, splits=tuple(replace(each, branch=options.other_branch) for each in other.splits))
    return _filled(own, other) if options.fallback_branch else _filled(other, own)


def _plan_state(
    store: TableStore, snapshot: Snapshot | None, read: BatchRead, splits: SplitOptions, created_from_ms: int | None
) -> Plan:
    with store.snapshots.held_to(snapshot.id if snapshot else None):
        return _plan_files(store, snapshot, read, splits, created_from_ms)


def _plan_files(
    store: TableStore, snapshot: Snapshot | None, read: BatchRead, splits: SplitOptions, created_from_ms: int | None
) -> Plan:
    if read.schema.primary_keys:
        from tidelake.ops.scan.keyed import plan_keyed  # append tables do without the tree

        return plan_keyed(
            store,
            snapshot,
            schema=read.schema,
            paths=read.paths,
            where=read.where,
            options=splits,
            table_options=read.options,
            optimized=read.optimized,
            created_from_ms=created_from_ms,
            first_of_stream=read.first_of_stream,
            waiting=read.waiting,
        )
    return plan_append(
        store,
        snapshot,
        schema=read.schema,
        paths=read.paths,
        where=read.where,
        limit=read.limit,
        order=read.order,
        created_from_ms=created_from_ms,
        options=splits,
        buckets=BucketOptions.parse(read.options),
    )


def _filled(first: Plan, second: Plan) -> Plan:
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


def _branch_store(store: TableStore, branch: str) -> TableStore:
    """The documents of another branch of the same table, whose rows have the same columns.

    Raises:
        NotFoundError: there is no such branch.
        InvalidInputError: its columns are others.
    """
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
    return replace(store, layout=layout, schema=schema, schemas=schemas, snapshots=SnapshotStore(store.env.io, layout))
