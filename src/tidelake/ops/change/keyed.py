"""DELETE and UPDATE of primary-key tables.

If the version that is written last wins, matching rows are read and written again, as deletions or as new versions;
streams see them. If it does not win (the engine ignores deletions, merges the new version into the old one, or keeps
the first), the sections of a bucket that hold a matching row are merged, changed and written to the lowest level, and
the commit replaces their files: copy on write.

Level-0 rows that reads do not show yet are changed like all others. Otherwise a later compaction would show them
without the delete or update.

Invariant: what is published was computed from the newest state of the rows it changes. If another job commits to one of
these rows in between, this is found before publishing, and the change is planned again on the newest snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.expr.evaluate import matches
from tidelake.expr.tree import Predicate
from tidelake.files.options import FileOptions
from tidelake.files.write.keyed import KeyedWriter
from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import MergeEngine, MergeOptions, sequence_groups
from tidelake.lsm.engines.retractions import find_unretractable_columns
from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import build_levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.sections import Section, partition_files
from tidelake.ops.change.copy_on_write import rows_changed
from tidelake.ops.commit.guards import Proposal
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.commit.since import LaterCommit, commits_since
from tidelake.ops.compact.level_lookup import LevelLookup
from tidelake.ops.context import TableContext
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.keyed import MergeRequest, Merging, merge_section, read_keyed_split
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.batch import plan_batch
from tidelake.ops.scan.keyed import prune_by_key
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.planner import find_live, prune_buckets
from tidelake.ops.scan.postponed import staged_entries
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.ops.vectors.vector_writer import index_files_of, write_index_files
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.local_merge import with_kinds
from tidelake.options import TableOptions
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.manifests.index_manifest import HASH, IndexFile
from tidelake.spec.rows.row_kind import KINDS
from tidelake.spec.schemas.bucket_mode import BucketMode, BucketOptions, bucket_mode
from tidelake.spec.schemas.schema import Schema
from tidelake.store.deletion_vectors import VectorOptions, remove_index_files
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

if TYPE_CHECKING:
    from tidelake.ops.placement.cross_partition import MovingKeys

Ints = np.ndarray[Any, np.dtype[np.int64]]
Change = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Makes the rows that replace matching rows, in their order."""

_ROW_LEVEL: Final = frozenset({"DELETE", "UPDATE", "MERGE"})
"""Operations whose new rows depend on rows that were read; all others write the rows they are given."""


# ------------------------------------------------------------------------------------------------ which way


def check_update(schema: Schema, columns: Collection[str], options: TableOptions) -> None:
    """Check that columns of a table may be updated.

    Raises:
        InvalidInputError: a column is part of the primary key, or of the partition and rows cannot move.
    """
    key = next((name for name in columns if name in schema.primary_keys), None)
    if key is not None:
        raise InvalidInputError(
            "primary key cannot be changed", column=key, hint="delete the row and write it with its new key"
        )
    moved = next((name for name in columns if name in schema.partition_keys), None)
    moves = bucket_mode(schema, options) is BucketMode.CROSS_PARTITION
    if moved is not None and not (moves and options.of(MergeOptions).engine is MergeEngine.DEDUPLICATE):
        raise InvalidInputError(
            "rows of the table cannot move to another partition",
            column=moved,
            hint="delete the row and write it with its new partition; with dynamic buckets and merge-engine "
            "deduplicate rows move by themselves",
        )


def deletions_win(schema: Schema, options: TableOptions) -> bool:
    """Whether a row of the kind -D that is written last removes its key, for every reader.

    Raises:
        InvalidInputError: an option is wrong.
    """
    merge = options.of(MergeOptions)
    match merge.engine:
        case MergeEngine.DEDUPLICATE:
            return not merge.ignore_delete
        case MergeEngine.PARTIAL_UPDATE:
            removes = (merge.remove_on_delete or bool(merge.remove_on_group)) and not merge.ignore_delete
            # A function that sees the deletion before the row is removed, and cannot retract, would fail every merge.
            return removes and all(each.spares_deletions for each in find_unretractable_columns(schema, options))
        case MergeEngine.AGGREGATION:
            return merge.aggregation_remove_on_delete and not merge.ignore_delete
        case MergeEngine.FIRST_ROW:
            return False


def versions_win(options: TableOptions, columns: Iterable[str]) -> bool:
    """Whether readers see a whole row that is written last, with new values in these columns, as it is.

    Nulls are an exception: see `find_null_sensitive_columns`.
    """
    merge = options.of(MergeOptions)
    if set(merge.sequence) & set(columns):
        return False  # with a smaller sequence value it would lose to the row that it replaces
    if merge.engine is MergeEngine.PARTIAL_UPDATE:
        folds = any(key.endswith((".aggregate-function", "default-aggregate-function")) for key in options)
        return not folds and not sequence_groups(options)
    return merge.engine is MergeEngine.DEDUPLICATE


def assigned_order(options: TableOptions, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that decide which version is newer, if one of them gets new values; none otherwise."""
    sequence = options.of(MergeOptions).sequence
    return sequence if set(sequence) & set(columns) else ()


def keeps_the_first(options: TableOptions) -> bool:
    """Whether the first row of a key stays, whatever is written later."""
    return options.of(MergeOptions).engine is MergeEngine.FIRST_ROW


def keeps_whole_rows(options: TableOptions) -> bool:
    """Whether readers see a version as it was written, not merged with others."""
    return options.of(MergeOptions).engine in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW)


def find_null_sensitive_columns(options: TableOptions, kind: str, columns: Iterable[str] = ()) -> tuple[str, ...]:
    """Columns in which a null of the new version would not replace the old value."""
    merge = options.of(MergeOptions)
    if merge.engine is not MergeEngine.PARTIAL_UPDATE:
        return ()
    if kind == "-D":
        # A sequence group ignores a deletion without a sequence value.
        return () if merge.remove_on_delete else merge.remove_on_group
    return tuple(columns)


# ------------------------------------------------------------------------------------------------ results


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change that is written and not yet committed."""

    messages: tuple[CommitMessage, ...] = ()
    rows: int = 0
    snapshot_id: int = 0
    """The snapshot that it was computed from."""


def write_again(
    context: TableContext,
    where: Predicate,
    kind: str,
    change: Change | None = None,
    watch: Sequence[str] = (),
    *,
    moved: bool = False,
) -> Prepared | None:
    """Write matching rows again with one row kind; None, without any new file, if a null would not replace a value.

    Rows go to the buckets in which they were found: their keys do not change, so no lookup is needed. Only if the
    change moves rows to other partitions (`moved`), new buckets are chosen for them there.

    Raises:
        FormatError: a file is missing or damaged; the new files are removed.
        InvalidInputError: a new value does not fit.
    """
    schema = context.schema
    request = ReadRequest(schema=schema, columns=schema.names, where=where, waiting=True)
    plan = plan_batch(context, request)
    writer = KeyedTableWriter(context)
    movers = _movers(context, plan.snapshot) if moved else None
    count = 0
    with undo_on_error(writer.abort):
        for split, batch in _read_by_split(context, plan.splits, request):
            changed = batch if change is None else change(batch)
            if any(changed.column(name).null_count for name in watch):
                writer.abort()
                return None
            count += changed.num_rows
            kinds = pa.repeat(pa.scalar(KINDS[kind], pa.int8()), changed.num_rows)
            if split.branch is not None:  # rows of the fallback branch are in no bucket of this branch
                writer.write(changed, kinds)
            elif movers is None:
                writer.write(changed, kinds, np.full(changed.num_rows, split.bucket, np.int64))
            else:
                rows, buckets = movers.relocate(with_kinds(changed, kinds), (split.partition, split.bucket))
                writer.write(rows.drop_columns([KIND]), rows.column(KIND), buckets)
        messages = tuple(writer.prepare())
    return Prepared(messages, count, plan.snapshot.id if plan.snapshot else 0)


def _movers(context: TableContext, snapshot: Snapshot | None) -> MovingKeys:
    from tidelake.ops.placement.cross_partition import MovingKeys  # most tables do without it

    return MovingKeys(context, snapshot)


def _read_by_split(
    context: TableContext, splits: Iterable[Split], request: ReadRequest
) -> Iterator[tuple[Split, pa.RecordBatch]]:
    """Read the rows of splits, with the split that each batch comes from."""
    for split in splits:
        for batch in read_rows(context, [split], request):
            yield split, batch


# ------------------------------------------------------------------------------------------------ copy on write


class Edit(Protocol):
    """What a rewrite changes in rows."""

    @property
    def where(self) -> Predicate:
        """A condition that matches every row that changes."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `count` needs."""

    def count(self, rows: pa.Table) -> int:
        """How many of these rows change; all of them match the condition."""

    def change_rows(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """Make the rows that replace whole rows, in their order; `names` are the columns of the table."""


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """The edit of DELETE and UPDATE. `change` makes new rows for those that match; without it they are deleted."""

    where: Predicate
    change: Change | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the condition."""
        return tuple(sorted(self.where.columns()))

    def count(self, rows: pa.Table) -> int:
        """All of them match."""
        return int(rows.num_rows)

    def change_rows(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """Change or delete the rows that match."""
        columns = {name: rows.column(name).combine_chunks() for name in self.where.columns()}
        hit = pc.fill_null(matches(self.where, columns, rows.num_rows), False)
        if self.change is None:
            return rows.filter(pc.invert(hit))
        if not pc.any(hit).as_py():
            return rows
        new = self.change(rows.filter(hit).select(list(names)).combine_chunks().to_batches()[0])
        return put_in_place(rows, np.flatnonzero(np.asarray(hit)), new)


def put_in_place(rows: pa.Table, places: Ints, new: pa.RecordBatch) -> pa.Table:
    """Replace the rows at these positions; columns that the new rows do not have keep their values."""
    old = rows.take(pa.array(places))
    arrays = [
        new.column(name) if name in new.schema.names else old.column(name).combine_chunks()
        for name in rows.column_names
    ]
    both = pa.concat_tables([rows, pa.Table.from_arrays(arrays, schema=rows.schema)]).combine_chunks()
    order = np.arange(rows.num_rows)
    order[places] = np.arange(rows.num_rows, both.num_rows)
    return both.take(pa.array(order))


@dataclass(frozen=True, slots=True)
class LiveBuckets:
    """The buckets of a snapshot that may hold rows to change, with all their files."""

    snapshot: Snapshot
    splits: tuple[Split, ...]
    likely: frozenset[str]
    """Files that may hold such a row; a section without one of them has none."""


def find_buckets(store: TableStore, paths: DataPaths, options: TableOptions, where: Predicate) -> LiveBuckets | None:
    """Find the buckets of the newest snapshot that may hold rows that match a condition; None for an empty table.

    Raises:
        CommitConflictError: the table has rows of a newer schema than this job knows.
    """
    schema = store.schema
    live = store.snapshots.on_newest(lambda newest: find_live(store, newest, where, schema))
    if live is None:
        return None
    entries = live.entries.filter(pc.greater_equal(live.entries.column("bucket"), 0))
    refuse_newer(store, entries)
    entries = prune_buckets(entries, where, schema, options.of(BucketOptions))
    likely = frozenset(prune_by_key(store, entries, where, schema).column("file_name").to_pylist())
    return LiveBuckets(live.snapshot, tuple(bucket_splits(entries, live.snapshot.id, paths, live.vectors)), likely)


@dataclass(slots=True)
class CopyOnWrite:
    """Rewrites the sections of a table that hold a row to change."""

    store: TableStore
    paths: DataPaths
    options: TableOptions
    edit: Edit
    _writers: list[KeyedWriter] = field(default_factory=list)

    def prepare(self, found: LiveBuckets | None = None) -> Prepared:
        """Write the new files; `found` are the buckets to look at, by default those of the newest snapshot.

        Raises:
            CommitConflictError: the table has rows of a newer schema than this job knows.
            FormatError: a file is missing or damaged; the new files are removed.
            InvalidInputError: a new value does not fit, or a version cannot be merged; the new files are removed.
        """
        if found is None:
            found = find_buckets(self.store, self.paths, self.options, self.edit.where)
        if found is None:
            return Prepared()
        messages: list[CommitMessage] = []
        count = 0
        indexes = index_files_of(self.store, found.snapshot)
        with undo_on_error(lambda: self.abort(messages)):
            for split in found.splits:
                message, matches = self._bucket(split, found.likely, indexes.get((split.partition, split.bucket), ()))
                messages += [] if message is None else [message]
                count += matches
        return Prepared(tuple(messages), count, found.snapshot.id)

    def abort(self, messages: Sequence[CommitMessage]) -> None:
        """Remove the new files, and the index files of messages; none of them may be committed."""
        for writer in self._writers:
            writer.abort()
        for each in messages:
            made = each.data.new_index_files
            remove_index_files(self.store, self.paths, made, partition=each.partition, bucket=each.bucket)

    def _bucket(
        self, split: Split, likely: frozenset[str], indexes: Sequence[IndexFile]
    ) -> tuple[CommitMessage | None, int]:
        merging = Merging(self.store.schema, self.options)
        levels = build_levels(merging.files(split.files), num_levels=self.options.of(CompactionOptions).num_levels)
        old: list[DataFile] = []
        new: list[DataFile] = []
        count = 0
        for section in partition_files(levels.files):
            if likely.isdisjoint(file.name for file in section.files):
                continue
            matches = self._count_matches(split, section, merging)
            if matches:
                count += matches
                old += [file.meta for file in section.files]
                new += self._rewrite_section(split, section, merging, levels.max_level)
        if not count:
            return None, 0
        update = write_index_files(
            self.store,
            self.paths,
            indexes,
            partition=split.partition,
            bucket=split.bucket,
            marked={},
            removed={file.file_name for file in old},
            options=self.options.of(VectorOptions),
            rolled=False,
        )
        message = CommitMessage(
            partition=split.partition,
            bucket=split.bucket,
            total_buckets=split.total_buckets,
            data=DataIncrement(
                new_files=tuple(new),
                deleted_files=tuple(old),
                new_index_files=update.new,
                deleted_index_files=update.deleted,
            ),
        )
        return message, count

    def _count_matches(self, split: Split, section: Section, merging: Merging) -> int:
        """Count the rows to change first, because a section without any does not have to be rewritten."""
        # A batch without columns has no row count, so keys are read if the condition names no column.
        columns = self.edit.columns or merging.schema.trimmed_primary_keys
        probe = ReadRequest(schema=merging.schema, columns=columns, where=self.edit.where)
        here = replace(split, files=tuple(file.meta for file in section.files), raw_convertible=False)
        return sum(self.edit.count(rows) for rows in read_keyed_split(self.store, here, probe, merging))

    def _rewrite_section(self, split: Split, section: Section, merging: Merging, level: int) -> tuple[DataFile, ...]:
        # A section holds all versions of its keys, so no older version can be below the files written here.
        writer = KeyedWriter(
            self.store.env,
            split.bucket_path,
            merging.schema,
            self.options.of(FileOptions),
            level=level,
            source=FileSource.APPEND,
        )
        self._writers.append(writer)
        versions = MergeRequest(columns=merging.schema.names, ordered=True, drop_retracts=True, whole=True)
        for rows in merge_section(self.store, split, section, merging, versions):
            kept = self.edit.change_rows(rows.combine_chunks(), merging.schema.names)
            if kept.num_rows:
                writer.write(kept)
        return writer.close()


def refuse_newer(store: TableStore, entries: pa.Table) -> None:
    """Refuse a rewrite with an older schema: it would drop the columns added since.

    Raises:
        CommitConflictError: the table has rows of a newer schema than this job knows.
    """
    newest = pc.max(entries.column("schema_id")).as_py() or 0
    if newest > store.schema.id:
        raise CommitConflictError(
            "table has rows of a newer schema than this job knows",
            code="schema-changed",
            table=store.env.io.root,
            known=store.schema.id,
            found=newest,
            hint="open the table again and retry",
        )


# ------------------------------------------------------------------------------------------------ others in between


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Refuses to publish a change of rows that another commit has changed since they were read.

    Compactions change no row, except those that move staged rows to their buckets, because these rows may be new. Plain
    writes to other keys of a bucket do no harm. A rewritten section is below all files that were written in between, so
    it conflicts only with row-level changes, whose rows depend on what they replaced.
    """

    store: TableStore
    paths: DataPaths
    options: TableOptions
    snapshot_id: int

    def check(self, proposal: Proposal) -> None:
        """Check the commits since.

        Raises:
            CommitConflictError: one of them changed the same rows, or has expired and cannot be checked.
        """
        messages = proposal.messages
        for later in commits_since(self.store, self.snapshot_id, proposal.latest.id):
            if later.snapshot is None:
                raise rows_changed(self.store, later.id)
            if later.kind in (CommitKind.APPEND, CommitKind.OVERWRITE):
                self._look(later, later.snapshot, messages)
                restored = later.find_restored_files()
                places = {(message.partition, message.bucket) for message in messages}
                if restored is None or any((partition, bucket) in places for partition, bucket, _ in restored):
                    raise rows_changed(self.store, later.id)
            elif later.kind is CommitKind.COMPACT and self._gave_buckets(later, messages):
                raise rows_changed(self.store, later.id)

    def _gave_buckets(self, later: LaterCommit, messages: Sequence[CommitMessage]) -> bool:
        """Whether a compaction moved staged rows to buckets, in a partition of the messages."""
        postpones = bucket_mode(self.store.schema, self.options) is BucketMode.POSTPONED
        return postpones and bool(staged_entries(self._entries(later, messages)).num_rows)

    def _entries(self, later: LaterCommit, messages: Sequence[CommitMessage]) -> pa.Table:
        """What a commit changed in the partitions of messages."""
        return later.read_entries(
            partitions=PartitionSet(
                frozenset(message.partition for message in messages), tuple(self.store.schema.partition_types)
            )
        )

    def _look(self, later: LaterCommit, snapshot: Snapshot, messages: Sequence[CommitMessage]) -> None:
        entries = self._entries(later, messages)
        # A writer that chooses buckets for new keys does not know what another job chose in between, maybe for the same
        # keys; and staged rows become the newest versions when they get their buckets.
        assigned = {
            each.partition
            for each in messages
            if each.bucket == POSTPONE_BUCKET or any(file.index_type == HASH for file in each.data.new_index_files)
        }
        for split in bucket_splits(entries, snapshot.id, self.paths, None):
            mine = [each for each in messages if (each.partition, each.bucket) == (split.partition, split.bucket)]
            overwritten = bool(mine) and snapshot.commit_kind is CommitKind.OVERWRITE
            if overwritten or split.partition in assigned or any(self._meets(each, split, snapshot) for each in mine):
                raise rows_changed(self.store, snapshot.id, split.bucket)

    def _meets(self, message: CommitMessage, theirs: Split, snapshot: Snapshot) -> bool:
        merging = Merging(self.store.schema, self.options)
        found = merging.files(theirs.files)
        if message.data.deleted_files:
            ours = merging.files(message.data.deleted_files)
            return snapshot.operation in _ROW_LEVEL and any(_overlap(mine, file) for mine in ours for file in found)
        here = replace(theirs, files=message.data.new_files)
        keys = ReadRequest(schema=merging.schema, columns=merging.schema.trimmed_primary_keys)
        for own in merging.files(message.data.new_files):
            near = [file for file in found if _overlap(own, file)]
            if not near:
                continue
            lookup = LevelLookup(self.store, theirs, merging, [[file] for file in near], new=[own])
            for batch in read_data_file(self.store, here, own.meta, keys):
                if lookup.find(pa.Table.from_batches([batch])).hits.any():
                    return True
        return False


def _overlap(one: RunFile, other: RunFile) -> bool:
    return one.min_key <= other.max_key and other.min_key <= one.max_key
