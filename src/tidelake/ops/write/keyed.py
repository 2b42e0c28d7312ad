"""The writer of primary-key tables: rows to sorted level-0 files, and the compaction that follows.

Rows of all buckets are collected in memory (`buffer`). When the buffer is full, they are sorted and spilled to local
disk (`spill`), or go to level 0 if that makes files of a good size and no compaction due. A flush merges the rows of
each bucket key by key and writes them to level 0, several buckets at a time; compactions run in the background
(`tree`). While a block of rows is written, the next one comes in and its keys are sorted; its columns are gathered when
the files are written.

Files are durable when `prepare` returns, and no snapshot refers to them until their messages are committed. Every
round, from one `prepare` to the next, starts from the newest snapshot. A compaction that is still running then is
carried over to the next round, and dropped if another job has changed its files in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.files.options import FileOptions
from tidelake.files.write.keyed import KeyedWriter
from tidelake.io.executor import Task
from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import ChangelogProducer, MergeOptions
from tidelake.lsm.kernel import MergePlan
from tidelake.lsm.levels import build_levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import first_state
from tidelake.ops.commit.messages import BATCH_IDENTIFIER, CommitMessage
from tidelake.ops.compact.keyed import Bucket, bucket_vectors, with_vectors
from tidelake.ops.context import TableContext
from tidelake.ops.placement.bucket_counts import PartitionBuckets
from tidelake.ops.placement.dynamic_buckets import DynamicBucketOptions, DynamicBuckets
from tidelake.ops.placement.routing import Ints, Router, partitions_of
from tidelake.ops.read.keyed import Merging
from tidelake.ops.scan.split import Split
from tidelake.ops.write.buffer import SortedRows, WriteBuffer, sort_block
from tidelake.ops.write.increments import find_temporary_files, join_increments
from tidelake.ops.write.keyed_options import KeyedWriteOptions
from tidelake.ops.write.local_merge import LocalMerger, with_kinds
from tidelake.ops.write.restore import Restored, restore_places
from tidelake.ops.write.row_kind_filter import RowKindFilter
from tidelake.ops.write.rows import BATCH_ROWS
from tidelake.ops.write.spill import Spill
from tidelake.ops.write.tree import Running, Tree, remove_files
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.rows.bucket_function import PartitionBucket
from tidelake.spec.schemas.bucket_mode import BucketMode, BucketOptions
from tidelake.store.snapshots import EXPIRED

if TYPE_CHECKING:
    from tidelake.ops.placement.cross_partition import MovingKeys

__all__ = ["KeyedTableWriter", "KeyedWriteOptions", "PartitionBucket", "find_temporary_files", "join_increments"]

_GOOD_SHARE: Final = 4
"""Rows of a bucket that fill a quarter of a target file are not spilled to wait for more."""


class KeyedTableWriter:
    """Writes batches that have the table's columns and types, and perhaps kinds. Not shared between threads."""

    def __init__(
        self,
        context: TableContext,
        overwrite: bool = False,
        *,
        base_id: int | None = None,
        base_may_expire: bool = False,
        skip: int = 0,
        assigned: DynamicBuckets | None = None,
        user: str | None = None,
        counts: Mapping[bytes, int] | None = None,
        compacts: bool | None = None,
        merges_locally: bool = True,
    ) -> None:
        """Look at the options; nothing is read before the first row.

        `base_id` is the snapshot to start from (0: none), or with `base_may_expire` the newest one if that expired;
        `skip` leaves sequence numbers to other writers of the same buckets, `user` is the commit user if it is known,
        `counts` are the bucket counts that the caller decided for partitions. `compacts` overrides `write-only`; with
        `merges_locally=False` rows of equal keys were merged before they came here.

        Raises:
            InvalidInputError: an option has a wrong value.
            UnsupportedError: tables of this kind cannot be written yet.
        """
        store, table_options, schema = context.store, context.options, context.schema
        self.context, self.overwrite = context, overwrite
        self.store, self.paths, self.table_options = store, context.paths, table_options
        self._base_id, self._base_may_expire, self._skip = base_id, base_may_expire, skip
        self._assigned, self._user = assigned, user
        self._assigns_alone = False
        self._assigner_name: str | None = None
        self.options = table_options.of(KeyedWriteOptions)
        self.merge = table_options.of(MergeOptions)
        self.buckets = table_options.of(BucketOptions)
        producer = self.merge.changelog_producer
        self._tells_input = producer is ChangelogProducer.INPUT and not overwrite
        self._mode = context.bucket_mode
        self._compacts = not self.options.write_only if compacts is None else compacts
        self._files = table_options.of(FileOptions)
        self._compaction = table_options.of(CompactionOptions)
        self._merging = Merging(schema, table_options)
        # Rows of one key may be in several partitions, and for some engines the first one decides: a merge by whole
        # keys would lose their order.
        merges_locally = merges_locally and self._mode is not BucketMode.CROSS_PARTITION
        local = self.options.local_merge_bytes if merges_locally else None
        self._merger = None if local is None else LocalMerger(schema, table_options, local)
        self._row_kinds = RowKindFilter(schema, table_options)
        self._counts = PartitionBuckets(store, table_options, counts or {}, overwrite)
        self._router = Router(schema, self.buckets, self._counts)
        self._buffer = WriteBuffer()
        self._spill = Spill(self.options)
        self._round = _Round()
        self._flushing: _Flush | None = None
        self._carried: dict[PartitionBucket, Running] = {}
        self._dropped: list[Running] = []
        self._numbers: dict[PartitionBucket, int] = {}
        self._since_full: set[PartitionBucket] = set()
        self._last_identifier: int | None = None
        self._failed = False

    # -------------------------------------------------------------------------------------------- rows

    def write(self, batch: pa.RecordBatch, kinds: pa.Array | None = None, buckets: Ints | None = None) -> None:
        """Take in the rows of a batch.

        Args:
            batch: Rows of the table's columns and types.
            kinds: The kind of each row as a number (0 +I, 1 -U, 2 +U, 3 -D); all are +I when None.
            buckets: The bucket of each row, if the rows were sent to their buckets before; they are then not checked.

        Raises:
            InvalidInputError: the partition has another number of buckets, a key is null, or a row cannot be merged.
            StorageError: the storage failed.
        """
        self._refuse_failed()
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = with_kinds(batch.slice(start, BATCH_ROWS), None if kinds is None else kinds.slice(start, BATCH_ROWS))
            if buckets is not None:
                self._take_in(part, buckets[start : start + BATCH_ROWS])
                continue
            rows = self.drop_ignored_rows(part)
            if not rows.num_rows:
                continue
            if self._merger is None:
                self._take_in(rows)
                continue
            with self._mark_failed_on_error():
                for merged, its in self._merger.push(rows.drop_columns([KIND]), rows.column(KIND)):
                    self._take_in(with_kinds(merged, its))

    def drop_ignored_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the rows that the options ignore.

        Raises:
            InvalidInputError: there is a deletion, and the merge engine takes none.
        """
        return self._row_kinds.drop_ignored_rows(rows)

    @property
    def places(self) -> tuple[PartitionBucket, ...]:
        """The buckets that got rows since the last `prepare`."""
        return tuple(self._router.places)

    def _take_in(self, rows: pa.RecordBatch, settled: Ints | None = None) -> None:
        self._begin()
        keys = self._round.keys
        self._assigns_alone |= settled is None and self._assigned is None and self._mode.is_dynamic
        if settled is not None:
            partitions, names = partitions_of(rows, self.store.schema)
            self._buffer.add(rows, self._router.numbers(partitions, names, settled))
        elif keys is None:
            self._buffer.add(rows, self._router.route(rows, self._round.dynamic))
        else:
            rows, partitions, buckets = keys.settle(rows)
            self._buffer.add(rows, self._router.numbers(partitions, keys.partitions, buckets))
        if self._buffer.bytes > self.options.block_bytes:
            with self._mark_failed_on_error():
                self._make_room()

    def _mark_failed_on_error(self) -> AbstractContextManager[None]:
        """Refuse all further calls after an error inside: some of the rows that were on their way are lost then."""
        return undo_on_error(self._note_failure)

    def _note_failure(self) -> None:
        self._failed = True

    def _refuse_failed(self) -> None:
        if self._failed:
            raise InvalidInputError(
                "writer has failed before, and some of its rows are lost",
                code="writer-failed",
                hint="close it, and write all rows since the last commit again",
            )

    def _make_room(self) -> None:
        """Move buffered rows to local disk or to level 0."""
        if not self.options.spillable:
            counts = self._buffer.row_counts
            # Buckets with few rows stay in the buffer; the others hold at least half of the rows.
            chosen = np.flatnonzero(counts * 2 * np.count_nonzero(counts) >= counts.sum())
            self._flush(self._sort_rows(chosen.tolist()))
            if self._buffer.bytes * 2 > self.options.block_bytes:  # few rows, and large ones
                self._flush(self._sort_rows())
            return
        direct: list[SortedRows] = []
        rest: list[SortedRows] = []
        for part in self._sort_rows():
            (direct if self._suits_level0(part) else rest).append(part)
        if rest:
            self._spill.add(rest, self.store.env.executor)
        self._flush(direct, beside=not rest)
        if self._spill.full:
            self._flush((), self._spill.places)

    def _suits_level0(self, part: SortedRows) -> bool:
        """Whether to write rows now: they fill a file of a good size, and it makes no compaction due."""
        good = self._files.target_bytes(primary_key=True) // _GOOD_SHARE
        fewer = self._tree(part.place).runs + 1 < self._compaction.trigger
        return part.rows.nbytes >= good and fewer and part.place not in self._spill.places

    # -------------------------------------------------------------------------------------------- files

    def _sort_rows(self, only: Collection[int] | None = None) -> list[SortedRows]:
        """Sort the buffered rows of these buckets, or of all, by bucket and key."""
        batches, places = self._buffer.take(only)
        self._open(np.flatnonzero(np.bincount(places)).tolist())
        return sort_block(
            batches,
            places,
            self._merging.buffer_plan(),
            lambda place, count: self._tree(place).numbers(count),
            self.store.env.executor,
            ready=self._end_flush,
            every_version=self._tells_input,
        )

    def _flush(self, parts: Sequence[SortedRows], spilled: Collection[int] = (), *, beside: bool = False) -> None:
        """Merge rows and write them to level 0; the rows on disk of the `spilled` buckets go first.

        With `beside` the files may still be written when this returns; `_end_flush` waits for them.
        """
        self._end_flush()
        waiting: dict[int, SortedRows | None] = {**dict.fromkeys(spilled), **{part.place: part for part in parts}}
        plan = self._merging.buffer_plan()
        for place in waiting:
            tree = self._tree(place)
            if tree.runs > self._compaction.stop_trigger:
                tree.collect(wait=True)
        flush = self._flushing = _Flush(tuple(waiting), tuple(spilled))
        trees = {place: self._tree(place) for place in waiting}

        def act(place: int) -> None:
            if flush.errors:
                return
            try:
                flush.written[place] = self._write_files(trees[place], place, waiting[place], plan)
                waiting[place] = None  # written rows are not needed in memory any more
            except BaseException as error:  # noqa: BLE001 - raised when all buckets are done
                flush.errors.append(error)

        executor = self.store.env.executor
        # Compactions use the same threads. A flush in the background would wait behind a long one.
        if beside and all(tree.running is None for tree in self._round.trees.values()):
            flush.task = executor.start(lambda: executor.map(act, flush.places))
            return
        executor.map(act, flush.places)
        self._end_flush()

    def _end_flush(self) -> None:
        """Wait for the flush that is running, and start the compactions that it makes due.

        Raises:
            InvalidInputError: a row could not be merged.
            StorageError: the storage failed.
        """
        flush = self._collect_flush()
        if flush is None:
            return
        if flush.errors:
            raise flush.errors[0]
        for place in flush.spilled:
            self._spill.forget(place)
        if self._compacts:
            for place in flush.places:
                self._tree(place).collect(wait=False)
                self._tree(place).trigger()

    def _collect_flush(self) -> _Flush | None:
        """Wait for the flush that is running, and add its files to the trees."""
        flush = self._flushing
        if flush is None:
            return None
        if flush.task is not None:
            try:
                flush.task.result()  # an interrupt leaves it here, for `abort` to wait for
            except Exception as error:  # noqa: BLE001 - raised by `_end_flush`, like the errors of the buckets
                flush.errors.append(error)
        for place, (files, changelog) in flush.written.items():
            self._tree(place).add(files, changelog)
        self._flushing = None  # only now: after an interrupt `abort` has to find the files that no tree knows yet
        return flush

    def _discard_flush(self) -> None:
        """Wait for the flush that is running and remove its files, also those that a tree has already."""
        flush = self._flushing
        if flush is None:
            return
        if flush.task is not None:
            with suppress(Exception):
                flush.task.result()
        for place, (files, changelog) in flush.written.items():
            remove_files(self._tree(place).bucket, (*files, *changelog))
        self._flushing = None

    def _write_files(self, tree: Tree, place: int, rest: SortedRows | None, plan: MergePlan) -> _Files:
        """Write rows of a bucket to level 0, and to changelog files if the table's changelog is its input."""
        writer, changelog = self._writer(tree), self._writer(tree, changelog=True)
        with undo_on_error(writer.abort, changelog.abort):
            for found in self._spill.windows(place, rest, plan.keys):
                if self._tells_input:
                    changelog.write(found.sort_rows(plan))
                writer.write(found.merge_rows(plan))
            return writer.close(), changelog.close()

    def _writer(self, tree: Tree, *, changelog: bool = False) -> KeyedWriter:
        return KeyedWriter(
            self.store.env,
            tree.bucket.split.bucket_path,
            self.store.schema,
            self._files,
            level=0,
            source=FileSource.APPEND,
            changelog=changelog,
        )

    def _flush_all(self) -> None:
        with self._mark_failed_on_error():
            if self._merger is not None:
                for merged, its in self._merger.flush():
                    self._take_in(with_kinds(merged, its))
            self._flush(self._sort_rows(), self._spill.places)

    # -------------------------------------------------------------------------------------------- commits

    def compact(self, partition: bytes, bucket: int, *, full: bool = False) -> None:
        """Compact one bucket now; the result is part of the next `prepare`.

        Raises:
            UnsupportedError: the table's compactions do more than merge.
            FormatError: a file is missing or damaged.
        """
        self._refuse_failed()
        self._begin()
        self._flush_all()
        place = self._router.number((partition, bucket))
        self._open([place])
        tree = self._tree(place)
        if full:
            tree.compact_fully()
        else:
            tree.trigger()
        tree.settle()

    def compact_written(self, *, full: bool = False) -> None:
        """Compact every bucket that got rows since the last `prepare`, now.

        Raises:
            UnsupportedError: the table's compactions do more than merge.
            FormatError: a file is missing or damaged.
        """
        self._refuse_failed()
        self._begin()
        self._flush_all()  # rows in the local merge have no bucket before
        for partition, bucket in self.places:
            self.compact(partition, bucket, full=full)

    def prepare(self, identifier: int | None = None, *, wait: bool | None = None) -> list[CommitMessage]:
        """Write all buffered rows and describe everything since the last call.

        Args:
            identifier: The number of the commit; None for the commit of a batch job.
            wait: Whether to wait for running compactions. By default a batch job does, because no later commit would
                collect them, and a numbered commit does not: their result is part of a later one. If the table has
                far too many sorted runs, or its options ask for it, a commit waits in any case.

        Raises:
            InvalidInputError: a row cannot be merged, or the partition has another number of buckets.
            FormatError: a file to compact is missing or damaged.
            StorageError: the storage failed.
        """
        self._refuse_failed()
        batch = identifier is None or identifier == BATCH_IDENTIFIER
        wait = batch if wait is None else wait
        if self._carried:
            self._begin()
        self._flush_all()
        self._open([self._router.number(place) for place, each in self._carried.items() if wait or each.task.done()])
        if self._compacts:
            self._settle(None if batch else identifier, wait=wait)
        dynamic = self._round.dynamic
        states = {} if dynamic is None else {place[0]: dynamic.state_of(place[0]) for place in self._trees()}
        indexes = dynamic.prepare() if dynamic is not None else {}
        messages = [
            replace(
                tree.message(*indexes.get(place, (None, None)), at_once=self.overwrite),
                assigned_on=states.get(place[0]),
            )
            for place, tree in self._trees().items()
        ]
        if self._assigns_alone:
            # The name of its first file identifies the writer, because no other writer has it.
            names = (file.file_name for message in messages for file in message.data.new_files)
            self._assigner_name = self._assigner_name or next(names, None)
            messages = [replace(message, assigned_by=self._assigner_name) for message in messages]
        if self._round.keys is not None:
            self._round.keys.note_prepared(messages, identifier)
        self._end()
        # An overwrite replaces a partition even if its new rows cancel each other and no file is left.
        return [message for message in messages if self.overwrite or not message.is_empty]

    def _settle(self, identifier: int | None, *, wait: bool) -> None:
        """Run the full compaction before a commit if it is due, and wait for running ones as the options say."""
        if self._full_is_due(identifier):
            self._open([self._router.number(place) for place in self._since_full])
            for tree in self._trees().values():
                tree.compact_fully()
            for tree in self._trees().values():
                tree.collect(wait=True)
            self._since_full.clear()
        waits = wait or self.options.force_compact or (self.options.lookup_wait and self.merge.needs_lookup)
        for tree in self._trees().values():
            if waits:
                tree.settle()
            else:
                tree.collect(wait=tree.runs > self._compaction.stop_trigger + 1)

    def _full_is_due(self, identifier: int | None) -> bool:
        every = self._compaction.full_every_commits
        if every is None and self.merge.changelog_producer is ChangelogProducer.FULL_COMPACTION:
            every = 1  # without a full compaction the changes of this commit would never be in the changelog
        if every is None or self.overwrite:
            return False
        if identifier is None:
            return True
        before, self._last_identifier = self._last_identifier, identifier
        self._since_full |= set(self._trees())
        return identifier % every == 0 or (before is not None and identifier // every > before // every)

    def abort(self) -> None:
        """Remove files that are not prepared yet, and those of compactions that are still running."""
        self._buffer.clear()
        self._discard_flush()
        self._spill.clear()
        if self._merger is not None:
            self._merger.clear()
        for tree in self._trees().values():
            tree.discard()
        for running in (*self._carried.values(), *self._dropped):
            running.discard()
        self._carried, self._dropped = {}, []
        self._round = _Round()
        self._router.forget()
        self._failed = False

    # -------------------------------------------------------------------------------------------- rounds

    def _begin(self) -> None:
        """Look at the newest snapshot, once per round: sequence numbers and levels continue from it."""
        if self._round.begun:
            return
        snapshots, base_id = self.store.snapshots, self._base_id
        if base_id is None:
            self._round = snapshots.on_newest(self._start_round)
        else:
            try:
                with snapshots.held_to(base_id or None):
                    self._round = self._start_round(snapshots.get(base_id) if base_id else None)
            except NotFoundError as error:
                if error.code != EXPIRED or not self._base_may_expire:
                    raise
                self._round = snapshots.on_newest(self._start_round)

    def _start_round(self, snapshot: Snapshot | None) -> _Round:
        self._counts.start(snapshot)
        keys = self._moving_keys(snapshot) if self._mode is BucketMode.CROSS_PARTITION else None
        dynamic = self._dynamic_buckets(snapshot) if self._mode is BucketMode.DYNAMIC else None
        return _Round(begun=True, snapshot=snapshot, dynamic=dynamic, keys=keys)

    def _moving_keys(self, snapshot: Snapshot | None) -> MovingKeys:
        """The key index of the last round, unless another job wrote: only it knows keys that are not committed yet."""
        kept = self._round.keys
        if kept is not None and (self.overwrite or kept.follows(snapshot, self._user)):
            return kept
        from tidelake.ops.placement.cross_partition import MovingKeys  # most tables do without it

        return MovingKeys(self.context, None if self.overwrite else snapshot)

    def _dynamic_buckets(self, snapshot: Snapshot | None) -> DynamicBuckets:
        """The buckets of the last round, unless another job changed them: only they have keys not committed yet."""
        if self._assigned is not None:
            return self._assigned
        kept = self._round.dynamic
        if kept is not None and self._round.snapshot == snapshot:
            return kept
        manifest = None if self.overwrite or snapshot is None else snapshot.index_manifest
        entries = () if manifest is None else self.store.manifests.read_index(manifest)
        if kept is not None and not self.overwrite and kept.follows(entries):
            return kept
        return DynamicBuckets(self.store, self.table_options.of(DynamicBucketOptions), entries)

    def _end(self) -> None:
        """Close the round; compactions that are still running are carried over to the next one."""
        for place, tree in self._trees().items():
            self._numbers[place] = tree.next_sequence
            if tree.running is not None:
                self._carried[place] = tree.running
        for running in [each for each in self._dropped if each.task.done()]:
            running.discard()
            self._dropped.remove(running)
        self._round = _Round(snapshot=self._round.snapshot, dynamic=self._round.dynamic, keys=self._round.keys)
        self._router.forget()

    def _tree(self, number: int) -> Tree:
        return self._round.trees[number]

    def _trees(self) -> dict[PartitionBucket, Tree]:
        return {self._router.places[number]: tree for number, tree in self._round.trees.items()}

    def _open(self, numbers: Iterable[int]) -> None:
        """Open the buckets that are not open yet, with a single read of the metadata."""
        fresh = {number: self._router.places[number] for number in numbers if number not in self._round.trees}
        if not fresh:
            return
        self._begin()
        snapshot, restored = self._restore(set(fresh.values()))
        for number, place in fresh.items():
            self._check_count(place, restored[place])
            self._round.trees[number] = self._open_tree(place, restored[place], snapshot)

    def _restore(self, places: Collection[PartitionBucket]) -> tuple[Snapshot | None, dict[PartitionBucket, Restored]]:
        """Read the state of buckets from the snapshot of the round, or from the newest one if that has expired.

        Buckets may start from different snapshots: each message names its own, and the commit checks all commits since.
        """

        def restore(snapshot: Snapshot | None) -> tuple[Snapshot | None, dict[PartitionBucket, Restored]]:
            found = restore_places(
                self.store, snapshot, places, self.table_options, overwrite=self.overwrite, compacts=self._compacts
            )
            return snapshot, found

        snapshot = self._round.snapshot
        try:
            with self.store.snapshots.held_to(snapshot.id if snapshot else None):
                return restore(snapshot)
        except NotFoundError as error:
            if error.code != EXPIRED:
                raise
            return self.store.snapshots.on_newest(restore)

    def _check_count(self, place: PartitionBucket, restored: Restored) -> None:
        count, total = self._counts.of(place[0]), restored.total_buckets
        if count > 0 and total not in (None, count):
            raise InvalidInputError(
                "partition has another number of buckets",
                code="bucket-count",
                partition=self.paths.partition(place[0]) or "the table",
                previous=total,
                new=count,
                hint="use rescale() to give the partition the new number",
            )

    def _open_tree(self, place: PartitionBucket, restored: Restored, snapshot: Snapshot | None) -> Tree:
        snapshot_id = snapshot.id if snapshot else 0
        split = Split(
            snapshot_id=snapshot_id,
            partition=place[0],
            bucket=place[1],
            bucket_path=self.paths.bucket(*place),
            total_buckets=self._counts.of(place[0]),
            files=(),
        )
        bucket = with_vectors(
            Bucket(
                self.store,
                split,
                self._merging,
                self._files,
                self._compaction,
                reports_changes=not self.overwrite,
                vectors=bucket_vectors(self.paths, self.table_options, restored.indexes),
            )
        )
        levels = build_levels(self._merging.files(restored.files), num_levels=self._compaction.num_levels)
        number = max(restored.next_sequence + self._skip, self._numbers.pop(place, 0))
        tree = Tree(bucket, levels, first_state(levels), number, snapshot_id)
        running = self._carried.get(place)
        if running is not None:
            self._adopt(place, tree, running)
        return tree

    def _adopt(self, place: PartitionBucket, tree: Tree, running: Running) -> None:
        """Continue a compaction of an earlier round if its files are still there."""
        if running.fits(tree.levels):
            tree.running = running
        elif running.base_snapshot_id == tree.base_snapshot_id:
            tree.held = True  # the compaction read files of the last round, which is not committed yet
            return
        else:
            self._dropped.append(running)
            tree.held = not running.task.done()
        del self._carried[place]


_Files = tuple[tuple[DataFile, ...], tuple[DataFile, ...]]
"""Data files, and changelog files."""


@dataclass(slots=True)
class _Flush:
    """Buckets whose rows are being written to level 0."""

    places: tuple[int, ...]
    spilled: tuple[int, ...]
    task: Task[object] | None = None
    written: dict[int, _Files] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    """The state between one `prepare` and the next."""

    begun: bool = False
    snapshot: Snapshot | None = None
    dynamic: DynamicBuckets | None = None
    keys: MovingKeys | None = None
    trees: dict[int, Tree] = field(default_factory=dict)
    """The open buckets by the number of their partition and bucket."""
