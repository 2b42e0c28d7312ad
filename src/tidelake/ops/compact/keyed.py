"""Compaction of one bucket of a primary-key table: merge the picked files to the output level, or upgrade them.

`changelog` plans what else the table needs: older versions from below the output level are merged in or get a deletion
vector, and changes are written to changelog files. Rows past their record-level expiry are dropped.

No snapshot refers to the new files until their message is committed. An upgraded file keeps its name, and is listed
both as deleted and as new; nothing here deletes it from storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.files.options import FileOptions
from tidelake.files.read.request import Delivery
from tidelake.files.write.keyed import KeyedWriter
from tidelake.lsm.engines.build import MergeOptions
from tidelake.lsm.files import RunFile
from tidelake.lsm.kernel import Watch
from tidelake.lsm.levels import Levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction, PickState, plan_compaction, plan_full_compaction
from tidelake.lsm.record_expiry import RecordExpiry, expiry_for
from tidelake.lsm.rewrite import Rewrite, Step, Upgrade, plan_steps
from tidelake.lsm.sections import Section
from tidelake.ops.commit.messages import CompactIncrement
from tidelake.ops.compact.changelog import ChangelogPlan, plan_lookup_and_changelog
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.keyed import BATCH_ROWS, MergeRequest, Merging, merge_section, watch_section
from tidelake.ops.scan.split import Split
from tidelake.ops.vectors.superseded_rows import BucketVectors, DeletedPositions, vectors_in
from tidelake.ops.vectors.vector_writer import NO_UPDATE, IndexUpdate, write_index_files
from tidelake.options import TableOptions
from tidelake.spec.data_file import FileSource
from tidelake.spec.manifests.index_manifest import IndexFile
from tidelake.spec.stats.stats_evolution import bounds_under
from tidelake.store.deletion_vectors import VectorOptions
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

Change = Callable[[pa.Table], pa.Table]
"""Drops or changes rows."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and how its rows are merged and written."""

    store: TableStore
    split: Split
    """The paths of its files, and their deletion vectors; the split's own list of files is not used."""
    merging: Merging
    files: FileOptions
    options: CompactionOptions
    reports_changes: bool = True
    """Whether changes go to changelog files, if the table has a changelog; False for an overwrite."""
    vectors: BucketVectors | None = None
    """Where its deletion vectors are stored; None if it has none and the table does not use them."""

    def after(self, increment: CompactIncrement) -> Bucket:
        """The bucket with its deletion vectors after a compaction."""
        if self.vectors is None or not (increment.new_index_files or increment.deleted_index_files):
            return self
        vectors = replace(self.vectors, indexes=increment.new_index_files)
        return with_vectors(replace(self, vectors=vectors))


def with_vectors(bucket: Bucket) -> Bucket:
    """The bucket, whose rows are now read with the deletion vectors of its index files."""
    known, split = bucket.vectors, bucket.split
    if known is None:
        return bucket
    found = vectors_in(known.indexes, known.paths, partition=split.partition, bucket=split.bucket)
    return replace(bucket, split=replace(split, vectors=found))


def bucket_vectors(paths: DataPaths, options: TableOptions, indexes: tuple[IndexFile, ...]) -> BucketVectors | None:
    """Where a bucket with these index files stores its deletion vectors, if it needs any.

    Raises:
        InvalidInputError: an option is wrong.
    """
    wanted = options.of(VectorOptions)
    return BucketVectors(paths, wanted, indexes) if wanted.enabled or indexes else None


def pick(
    levels: Levels, bucket: Bucket, state: PickState, *, now_ms: int, full: bool
) -> tuple[Compaction | None, PickState]:
    """The compaction that is due at a local wall-clock time.

    Raises:
        InvalidInputError: rows expire by a column that has no time.
    """
    merge = bucket.merging.options.of(MergeOptions)
    if full:
        chosen = plan_full_compaction(
            levels,
            bucket.options,
            expired=expired_files(bucket, levels.upper[-1]),
            with_vectors=bucket.split.vectors.keys(),
            deletion_vectors=merge.deletion_vectors,
        )
        return chosen, state
    return plan_compaction(
        levels,
        bucket.options,
        now_ms=now_ms,
        state=state,
        needs_lookup=merge.needs_lookup,
        deletion_vectors=merge.deletion_vectors,
    )


def expired_files(bucket: Bucket, files: Sequence[RunFile]) -> frozenset[str]:
    """The names of files that hold rows past their record-level expiry, as far as their statistics show.

    Raises:
        InvalidInputError: rows expire by a column that has no time.
    """
    expiry = expiry_for(bucket.merging.schema, bucket.merging.options)
    if expiry is None or not files:
        return frozenset()
    schema, now_ms = bucket.merging.schema, bucket.store.env.clock.now_ms()
    names: set[str] = set()
    for schema_id in {file.meta.schema_id for file in files}:
        metas = [file.meta for file in files if file.meta.schema_id == schema_id]
        found = bounds_under(
            pa.array([meta.value_stats.min_values for meta in metas], pa.large_binary()),
            pa.array([meta.value_stats.max_values for meta in metas], pa.large_binary()),
            pa.array([meta.value_stats.null_counts for meta in metas], pa.large_list(pa.int64())),
            pa.array([meta.value_stats_cols for meta in metas], pa.large_list(pa.large_string())),
            pa.array([meta.row_count for meta in metas], pa.int64()),
            file_fields=bucket.store.schemas.get(schema_id).fields,
            read_fields=schema.fields,
            wanted=[expiry.field.name],
        )
        past = expiry.mask_expired(found[expiry.field.name].min, now_ms)
        names.update(metas[place].file_name for place in np.flatnonzero(past))
    return frozenset(names)


def run_compaction(bucket: Bucket, levels: Levels, compaction: Compaction) -> tuple[CompactIncrement, Levels]:
    """Run a compaction; if it fails, the files it wrote are removed.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed.
        InvalidInputError: a merge gives a null where the table has none, or rows expire by a column without a time.
    """
    deleted = DeletedPositions()
    changelog_plan = plan_lookup_and_changelog(
        bucket.store,
        bucket.split,
        bucket.merging,
        bucket.files,
        levels,
        compaction,
        deleted,
        reports_changes=bucket.reports_changes,
    )
    steps = plan_steps(
        compaction,
        bucket.options,
        max_level=levels.max_level,
        expired=expired_files(bucket, compaction.files),
        lookup=changelog_plan.rules,
        reports_bottom=changelog_plan.reports_bottom,
    )
    work = _Work(bucket, changelog_plan, compaction.output_level)
    with undo_on_error(work.abort):
        for step in steps:
            work.run_step(step)
        changelog = work.changelog.close()
        update = _updated_vectors(bucket, work, deleted)
    increment = CompactIncrement(
        before=tuple(file.meta for file in work.before),
        after=tuple(file.meta for file in work.after),
        changelog_files=changelog,
        new_index_files=update.new,
        deleted_index_files=update.deleted,
    )
    return increment, levels.apply(work.before, work.after)


def _updated_vectors(bucket: Bucket, work: _Work, deleted: DeletedPositions) -> IndexUpdate:
    """Rewrite the deletion vectors of the bucket, if any changed: upgraded files keep theirs."""
    if bucket.vectors is None:
        return NO_UPDATE
    moved = {file.name for file in work.after}
    return write_index_files(
        bucket.store,
        bucket.vectors.paths,
        bucket.vectors.indexes,
        partition=bucket.split.partition,
        bucket=bucket.split.bucket,
        marked=deleted.bitmaps(),
        removed={file.name for file in work.before} - moved,
        options=bucket.vectors.options,
        rolled=False,
    )


class _Work:
    """Runs the steps of one compaction, in key order."""

    def __init__(self, bucket: Bucket, plan: ChangelogPlan, output_level: int) -> None:
        self._bucket, self._plan = bucket, plan
        self._keep = expiry_filter(bucket)
        self.before: list[RunFile] = []
        self.after: list[RunFile] = []
        self.changelog = self._writer(output_level, changelog=True)
        self._writers = [self.changelog]

    def run_step(self, step: Step) -> None:
        match step:
            case Upgrade():
                if step.watched and self._plan.only_marks and self._keep is None:
                    self._mark(step.file)
                elif step.watched and self._plan.reads_moved:
                    # Rows that stay in their file are reported as they are stored there: folding a lone row would
                    # report values that no file holds.
                    watch = replace(self._plan.watch, folds_lone=False)
                    self._watch(Section(((step.file,),)), watch, None, drop_delete=False)
                self.before.append(step.file)
                self.after.append(step.after)
            case Rewrite():
                writer = self._writer(step.output_level)
                self._writers.append(writer)
                for section in step.sections:
                    if self._plan.watches(step.files):
                        self._watch(section, self._plan.watch, writer, drop_delete=step.drop_delete)
                    else:
                        self._merge(section, writer, drop_delete=step.drop_delete)
                self.before += step.files
                self.after += self._bucket.merging.files(writer.close())

    def abort(self) -> None:
        """Remove all files that were written."""
        for writer in self._writers:
            writer.abort()

    def _merge(self, section: Section, writer: KeyedWriter, *, drop_delete: bool) -> None:
        bucket = self._bucket
        versions = MergeRequest(
            columns=bucket.merging.schema.names,
            ordered=True,
            drop_retracts=drop_delete,
            whole=True,
            keep=self._keep,
        )
        for rows in merge_section(bucket.store, bucket.split, section, bucket.merging, versions):
            writer.write(rows)

    def _watch(self, section: Section, watch: Watch, writer: KeyedWriter | None, *, drop_delete: bool) -> None:
        bucket = self._bucket
        for reduced in watch_section(
            bucket.store,
            bucket.split,
            section,
            bucket.merging,
            watch,
            self._plan.ages,
            drop_retracts=drop_delete,
            keep=self._keep,
        ):
            if writer is not None and reduced.rows is not None:
                writer.write(reduced.rows)
            if reduced.changes is not None:
                self.changelog.write(reduced.changes)

    def _mark(self, file: RunFile) -> None:
        """Look up the keys of an upgraded file, so that the rows they supersede get into the deletion vectors."""
        bucket, below = self._bucket, self._plan.watch.below
        assert below is not None
        keys = ReadRequest(
            schema=bucket.merging.schema,
            columns=bucket.merging.schema.trimmed_primary_keys,
            delivery=Delivery(batch_rows=BATCH_ROWS),
        )
        for batch in read_data_file(bucket.store, bucket.split, file.meta, keys):
            below.find(pa.Table.from_batches([batch]))

    def _writer(self, level: int, *, changelog: bool = False) -> KeyedWriter:
        bucket = self._bucket
        return KeyedWriter(
            bucket.store.env,
            bucket.split.bucket_path,
            bucket.merging.schema,
            bucket.files,
            level=level,
            source=FileSource.APPEND if changelog else FileSource.COMPACT,
            changelog=changelog,
        )


def expiry_filter(bucket: Bucket) -> Change | None:
    """A function that drops rows past their record-level expiry; None if rows do not expire.

    Raises:
        InvalidInputError: rows expire by a column that has no time.
    """
    expiry: RecordExpiry | None = expiry_for(bucket.merging.schema, bucket.merging.options)
    if expiry is None:
        return None
    chosen, now_ms = expiry, bucket.store.env.clock.now_ms()
    return lambda rows: chosen.drop_expired(rows, now_ms)
