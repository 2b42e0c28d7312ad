"""DELETE and UPDATE of primary-key tables.

Where a version that is written last wins, matching rows are read and written again, as deletions or as new versions;
streams see them. Where it does not (the engine makes nothing of deletions, folds the new version into the old one, or
keeps the first), the sections of a bucket that hold a matching row are merged, changed and written to the lowest level,
and the commit replaces their files: copy on write.

Rows that reads do not show yet, because they wait for a compaction on level 0, are changed like all others: they would
come out later as if nobody had deleted or updated them.

Invariant: what is published was computed from the newest state of the rows it changes. A commit of others to one of
them in between is found before publishing, and the change is planned again on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, InvalidInputError
from tidelake.expr.evaluate import matches
from tidelake.expr.tree import Predicate
from tidelake.files.keyed import KeyedWriter
from tidelake.files.options import FileOptions
from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import MergeEngine, MergeOptions, sequence_groups
from tidelake.lsm.engines.retractions import find_unwilling
from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import build_levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.sections import Section, partition_files
from tidelake.ops.commit.messages import CommitMessage, DataIncrement
from tidelake.ops.compact.lookup import LevelLookup
from tidelake.ops.compact.vectors import index_files_of, run_update
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.keyed import Merging, merge_section, read_keyed_split
from tidelake.ops.read.rows import read_rows
from tidelake.ops.scan.batch import BatchRead, plan_batch
from tidelake.ops.scan.keyed import prune_by_key
from tidelake.ops.scan.options import BucketOptions
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.ops.scan.plan import delta_manifests, read_changes
from tidelake.ops.scan.planner import find_live, prune_buckets
from tidelake.ops.scan.postponed import staged_entries
from tidelake.ops.scan.split import Split, bucket_splits
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.kinds import KINDS
from tidelake.ops.write.local_merge import with_kinds
from tidelake.ops.write.rowlevel import rows_changed
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.index_manifest import HASH, IndexFile
from tidelake.spec.layout import POSTPONE_BUCKET
from tidelake.spec.schema import Schema
from tidelake.spec.snapshot import CommitKind, Snapshot
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore
from tidelake.store.vectors import VectorOptions, remove_index_files

if TYPE_CHECKING:
    from tidelake.ops.write.cross_partition import MovingKeys

Ints = np.ndarray[Any, np.dtype[np.int64]]
Change = Callable[[pa.RecordBatch], pa.RecordBatch]
"""The rows that take the place of matching rows, in their order."""

_ROW_LEVEL: Final = frozenset({"DELETE", "UPDATE", "MERGE"})
"""Operations whose rows depend on the state they were read from; all others write what they were given."""


# ------------------------------------------------------------------------------------------------ which way


def check_update(schema: Schema, columns: Collection[str], options: Mapping[str, str]) -> None:
    """Look whether columns of a table can be given new values.

    Raises:
        InvalidInputError: a column is part of the primary key, or of the partition where keys stay in theirs.
    """
    key = next((name for name in columns if name in schema.primary_keys), None)
    if key is not None:
        raise InvalidInputError(
            "primary key cannot be changed", column=key, hint="delete the row and write it with its new key"
        )
    moved = next((name for name in columns if name in schema.partition_keys), None)
    moves = BucketOptions.parse(options).bucket == -1
    if moved is not None and not (moves and MergeOptions.parse(options).engine is MergeEngine.DEDUPLICATE):
        raise InvalidInputError(
            "rows of the table cannot move to another partition",
            column=moved,
            hint="delete the row and write it with its new partition; with dynamic buckets and merge-engine "
            "deduplicate rows move by themselves",
        )


def deletions_win(schema: Schema, options: Mapping[str, str]) -> bool:
    """Whether a row of the kind -D that is written last removes its key, for every reader.

    Raises:
        InvalidInputError: an option is wrong.
    """
    merge = MergeOptions.parse(options)
    match merge.engine:
        case MergeEngine.DEDUPLICATE:
            return not merge.ignore_delete
        case MergeEngine.PARTIAL_UPDATE:
            removes = (merge.remove_on_delete or bool(merge.remove_on_group)) and not merge.ignore_delete
            # A function that is asked before the row is removed, and takes nothing back, would fail every merge.
            return removes and all(each.spares_deletions for each in find_unwilling(schema, options))
        case MergeEngine.AGGREGATION:
            return merge.aggregation_remove_on_delete and not merge.ignore_delete
        case MergeEngine.FIRST_ROW:
            return False


def versions_win(options: Mapping[str, str], columns: Iterable[str]) -> bool:
    """Whether a whole row that is written last, with new values in these columns, is what the key then shows.

    Nulls apart: see `watched`.
    """
    merge = MergeOptions.parse(options)
    if set(merge.sequence) & set(columns):
        return False  # with a smaller sequence value it would lose to the row that it replaces
    if merge.engine is MergeEngine.PARTIAL_UPDATE:
        folds = any(key.endswith((".aggregate-function", "default-aggregate-function")) for key in options)
        return not folds and not sequence_groups(options)
    return merge.engine is MergeEngine.DEDUPLICATE


def assigned_order(options: Mapping[str, str], columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that say which version is newer, if new values are given to one of them; none otherwise."""
    sequence = MergeOptions.parse(options).sequence
    return sequence if set(sequence) & set(columns) else ()


def keeps_the_first(options: Mapping[str, str]) -> bool:
    """Whether a key shows the row that came first, whatever is written later."""
    return MergeOptions.parse(options).engine is MergeEngine.FIRST_ROW


def keeps_whole_rows(options: Mapping[str, str]) -> bool:
    """Whether a version is shown as it was written, and not merged with others."""
    return MergeOptions.parse(options).engine in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW)


def watched(options: Mapping[str, str], kind: str, columns: Iterable[str] = ()) -> tuple[str, ...]:
    """Columns in which a null makes a written version lose against what its key shows."""
    merge = MergeOptions.parse(options)
    if merge.engine is not MergeEngine.PARTIAL_UPDATE:
        return ()
    if kind == "-D":
        # Without a sequence value a deletion is passed over by its group.
        return () if merge.remove_on_delete else merge.remove_on_group
    return tuple(columns)


# ------------------------------------------------------------------------------------------------ results


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change that is written and not yet committed."""

    messages: tuple[CommitMessage, ...] = ()
    rows: int = 0
    snapshot_id: int = 0
    """The state that it was computed from."""


def write_again(
    store: TableStore,
    paths: DataPaths,
    options: Mapping[str, str],
    where: Predicate,
    kind: str,
    change: Change | None = None,
    watch: Sequence[str] = (),
    *,
    moved: bool = False,
) -> Prepared | None:
    """Write matching rows again with one kind; None, and nothing is left behind, if a null would make one lose.

    Rows go to the buckets in which they were found: their keys stay what they are, and nobody has to look up where keys
    live. Only if the change gives rows other partitions (`moved`), new buckets are found for them there.

    Raises:
        FormatError: a file is missing or damaged; nothing is left behind.
        InvalidInputError: a new value does not fit.
    """
    read = BatchRead(schema=store.schema, paths=paths, where=where, options=options, waiting=True)
    plan = plan_batch(store, read)
    request = ReadRequest(schema=store.schema, columns=store.schema.names, where=where)
    writer = KeyedTableWriter(store, paths, options)
    movers = _movers(store, paths, options, plan.snapshot) if moved else None
    count = 0
    try:
        for split, batch in _located(store, plan.splits, request, options):
            changed = batch if change is None else change(batch)
            if any(changed.column(name).null_count for name in watch):
                writer.abort()
                return None
            count += changed.num_rows
            kinds = pa.repeat(pa.scalar(KINDS[kind], pa.int8()), changed.num_rows)
            if split.branch is not None:  # what another branch fills in is in no bucket of this one
                writer.write(changed, kinds)
            elif movers is None:
                writer.write(changed, kinds, np.full(changed.num_rows, split.bucket, np.int64))
            else:
                rows, buckets = movers.relocate(with_kinds(changed, kinds), (split.partition, split.bucket))
                writer.write(rows.drop_columns([KIND]), rows.column(KIND), buckets)
        messages = tuple(writer.prepare())
    except BaseException:
        writer.abort()
        raise
    return Prepared(messages, count, plan.snapshot.id if plan.snapshot else 0)


def _movers(store: TableStore, paths: DataPaths, options: Mapping[str, str], snapshot: Snapshot | None) -> MovingKeys:
    from tidelake.ops.write.cross_partition import MovingKeys  # most tables do without it

    return MovingKeys(store, paths, options, snapshot)


def _located(
    store: TableStore, splits: Iterable[Split], request: ReadRequest, options: Mapping[str, str]
) -> Iterator[tuple[Split, pa.RecordBatch]]:
    """The rows of splits, with the split that each batch comes from."""
    for split in splits:
        for batch in read_rows(store, [split], request, options):
            yield split, batch


# ------------------------------------------------------------------------------------------------ copy on write


class Edit(Protocol):
    """What a rewrite does to rows."""

    @property
    def where(self) -> Predicate:
        """A condition that every row fulfils which it changes."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What it takes to tell how many rows change."""

    def count(self, rows: pa.Table) -> int:
        """How many of these rows, all of which fulfil the condition, change."""

    def changed(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """The rows that take the place of whole rows, in their order; `names` are the columns of the table."""


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """The edit of DELETE and UPDATE. `change` gives new rows for those that match; without it they go."""

    where: Predicate
    change: Change | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What the condition looks at."""
        return tuple(sorted(self.where.columns()))

    def count(self, rows: pa.Table) -> int:
        """All of them: they match."""
        return int(rows.num_rows)

    def changed(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """The rows, with those that match changed or left out."""
        columns = {name: rows.column(name).combine_chunks() for name in self.where.columns()}
        hit = pc.fill_null(matches(self.where, columns, rows.num_rows), False)
        if self.change is None:
            return rows.filter(pc.invert(hit))
        if not pc.any(hit).as_py():
            return rows
        new = self.change(rows.filter(hit).select(list(names)).combine_chunks().to_batches()[0])
        return put_in_place(rows, np.flatnonzero(np.asarray(hit)), new)


def put_in_place(rows: pa.Table, places: Ints, new: pa.RecordBatch) -> pa.Table:
    """The rows with new ones at these places; columns that the new ones lack stay as they are."""
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


def find_buckets(
    store: TableStore, paths: DataPaths, options: Mapping[str, str], where: Predicate
) -> LiveBuckets | None:
    """The buckets of the newest snapshot that may hold rows which fulfil a condition; None for an empty table.

    Raises:
        CommitConflictError: the table has rows of a newer schema than this job knows.
    """
    schema = store.schema
    live = store.snapshots.on_newest(lambda newest: find_live(store, newest, where, schema))
    if live is None:
        return None
    entries = live.entries.filter(pc.greater_equal(live.entries.column("bucket"), 0))
    refuse_newer(store, entries)
    entries = prune_buckets(entries, where, schema, BucketOptions.parse(options))
    likely = frozenset(prune_by_key(store, entries, where, schema).column("file_name").to_pylist())
    return LiveBuckets(live.snapshot, tuple(bucket_splits(entries, live.snapshot.id, paths, live.vectors)), likely)


@dataclass(slots=True)
class CopyOnWrite:
    """Rewrites the sections of a table that hold a row which an edit changes."""

    store: TableStore
    paths: DataPaths
    options: Mapping[str, str]
    edit: Edit
    thin: bool = False
    _writers: list[KeyedWriter] = field(default_factory=list)

    def prepare(self, found: LiveBuckets | None = None) -> Prepared:
        """Write the new files; `found` are the buckets to look at, by default those of the newest snapshot.

        Raises:
            CommitConflictError: the table has rows of a newer schema than this job knows.
            FormatError: a file is missing or damaged; nothing is left behind.
            InvalidInputError: a new value does not fit, or a version cannot be merged; nothing is left behind.
        """
        if found is None:
            found = find_buckets(self.store, self.paths, self.options, self.edit.where)
        if found is None:
            return Prepared()
        messages: list[CommitMessage] = []
        count = 0
        indexes = index_files_of(self.store, found.snapshot)
        try:
            for split in found.splits:
                message, hits = self._bucket(split, found.likely, indexes.get((split.partition, split.bucket), ()))
                messages += [] if message is None else [message]
                count += hits
        except BaseException:
            self.abort(messages)
            raise
        return Prepared(tuple(messages), count, found.snapshot.id)

    def abort(self, messages: Sequence[CommitMessage]) -> None:
        """Remove the new files, and the index files of messages, as long as nobody has committed them."""
        for writer in self._writers:
            writer.abort()
        for each in messages:
            made = each.data.new_index_files
            remove_index_files(self.store, self.paths, made, partition=each.partition, bucket=each.bucket)

    def _bucket(
        self, split: Split, likely: frozenset[str], indexes: Sequence[IndexFile]
    ) -> tuple[CommitMessage | None, int]:
        merging = Merging(self.store.schema, self.options)
        levels = build_levels(merging.files(split.files), num_levels=CompactionOptions.parse(self.options).num_levels)
        old: list[DataFile] = []
        new: list[DataFile] = []
        count = 0
        for section in partition_files(levels.files):
            if likely.isdisjoint(file.name for file in section.files):
                continue
            hits = self._hits(split, section, merging)
            if hits:
                count += hits
                old += [file.meta for file in section.files]
                new += self._rewritten(split, section, merging, levels.max_level)
        if not count:
            return None, 0
        update = run_update(
            self.store,
            self.paths,
            indexes,
            partition=split.partition,
            bucket=split.bucket,
            marked={},
            removed={file.file_name for file in old},
            options=VectorOptions.parse(self.options),
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

    def _hits(self, split: Split, section: Section, merging: Merging) -> int:
        """Counted first, so that a section without a match is not written for nothing."""
        # Rows without a column could not be counted: where the condition names none, keys are read.
        columns = self.edit.columns or merging.schema.trimmed_primary_keys
        probe = ReadRequest(schema=merging.schema, columns=columns, where=self.edit.where)
        here = replace(split, files=tuple(file.meta for file in section.files), raw_convertible=False)
        return sum(self.edit.count(rows) for rows in read_keyed_split(self.store, here, probe, merging))

    def _rewritten(self, split: Split, section: Section, merging: Merging, level: int) -> tuple[DataFile, ...]:
        # All versions of its keys are in a section, so that nothing older can lie below what is written.
        writer = KeyedWriter(
            self.store.env,
            split.bucket_path,
            merging.schema,
            FileOptions.parse(self.options),
            level=level,
            source=FileSource.APPEND,
            thin=self.thin,
        )
        self._writers.append(writer)
        for rows in merge_section(
            self.store, split, section, merging, merging.schema.names, ordered=True, drop_retracts=True, whole=True
        ):
            kept = self.edit.changed(rows.combine_chunks(), merging.schema.names)
            if kept.num_rows:
                writer.write(kept)
        return writer.close()


def refuse_newer(store: TableStore, entries: pa.Table) -> None:
    """Refuse a rewrite with an older schema, which would drop the columns that rows got since.

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
            hint="open the table anew and try again",
        )


# ------------------------------------------------------------------------------------------------ others in between


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Refuses to publish a change of rows that another commit has changed since they were read.

    Compactions change no row, but for those that give rows their buckets: these may have come since. What was written
    blindly to other keys of a bucket does no harm. A rewritten section lies below whatever was written meanwhile, so
    that only rows which depend on what they replaced clash with it.
    """

    store: TableStore
    paths: DataPaths
    options: Mapping[str, str]
    snapshot_id: int

    def __call__(self, latest: Snapshot | None, messages: tuple[CommitMessage, ...]) -> None:
        """Look at the commits since.

        Raises:
            CommitConflictError: one of them reached the same rows, or has expired so that nobody can tell.
        """
        for number in range(self.snapshot_id + 1, latest.id + 1 if latest else 0):
            snapshot = self.store.snapshots.find(number)
            if snapshot is None:
                raise rows_changed(self.store, number)
            if snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE):
                self._look(snapshot, messages)
            elif snapshot.commit_kind is CommitKind.COMPACT and self._gave_buckets(snapshot, messages):
                raise rows_changed(self.store, snapshot.id)

    def _gave_buckets(self, snapshot: Snapshot, messages: Sequence[CommitMessage]) -> bool:
        """Whether a compaction took in rows that waited, in a partition of the messages."""
        postpones = BucketOptions.parse(self.options).bucket == POSTPONE_BUCKET
        return postpones and bool(staged_entries(self._entries(snapshot, messages)).num_rows)

    def _entries(self, snapshot: Snapshot, messages: Sequence[CommitMessage]) -> pa.Table:
        """What a commit changed in the partitions of messages."""
        partitions = PartitionSet(
            frozenset(message.partition for message in messages), tuple(self.store.schema.partition_types)
        )
        metas = delta_manifests(self.store.manifests, snapshot)
        return read_changes(self.store.manifests, metas, partitions=partitions)

    def _look(self, snapshot: Snapshot, messages: Sequence[CommitMessage]) -> None:
        entries = self._entries(snapshot, messages)
        # Who chooses buckets for new keys does not know what another job chose meanwhile, maybe for the same keys;
        # and rows that wait come after all that is there when they get their buckets.
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
