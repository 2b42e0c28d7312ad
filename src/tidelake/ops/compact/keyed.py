"""Compaction of one bucket of a primary-key table: what was picked is merged to a lower level, or only moved there.

What a table asks of its compactions beside that is told by `watching`: older versions from below the output level are
folded in or marked as deleted, and what changed is written to changelog files. Rows past their record-level expiry are
not read at all.

New files belong to nobody until their message is committed. A file that is only moved keeps its name, in what was
before and in what comes after; nothing here ever deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelake.files.keyed import KeyedWriter
from tidelake.files.options import FileOptions
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
from tidelake.ops.compact.marks import BucketVectors, Marks, vectors_in
from tidelake.ops.compact.vectors import NO_UPDATE, IndexUpdate, run_update
from tidelake.ops.compact.watching import Watching, watch_compaction
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.read.keyed import BATCH_ROWS, Merging, merge_section, watch_section
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import FileSource
from tidelake.spec.index_manifest import IndexFile
from tidelake.spec.stats_evolution import bounds_under
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore
from tidelake.store.vectors import VectorOptions

Change = Callable[[pa.Table], pa.Table]
"""Makes rows of others, fewer or changed."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and how its rows are merged and written."""

    store: TableStore
    split: Split
    """Where its files lie, and their deletion vectors; the files of the split itself do not matter."""
    merging: Merging
    files: FileOptions
    options: CompactionOptions
    thin: bool = False
    tells: bool = True
    """Whether changes are told, where the table has them told at all: nobody is told of what an overwrite does."""
    vectors: BucketVectors | None = None
    """Where the vectors of its files are kept; None where neither it has any nor the table wants any."""

    def after(self, increment: CompactIncrement) -> Bucket:
        """The bucket with the deletion vectors that a compaction of it left."""
        if self.vectors is None or not (increment.new_index_files or increment.deleted_index_files):
            return self
        vectors = replace(self.vectors, indexes=increment.new_index_files)
        return with_vectors(replace(self, vectors=vectors))


def with_vectors(bucket: Bucket) -> Bucket:
    """A bucket whose rows are read with the vectors that its index files hold."""
    known, split = bucket.vectors, bucket.split
    if known is None:
        return bucket
    found = vectors_in(known.indexes, known.paths, partition=split.partition, bucket=split.bucket)
    return replace(bucket, split=replace(split, vectors=found))


def bucket_vectors(
    paths: DataPaths, options: Mapping[str, str], indexes: tuple[IndexFile, ...]
) -> BucketVectors | None:
    """Where a bucket with these index files keeps its vectors, if it needs any.

    Raises:
        InvalidInputError: an option is wrong.
    """
    wanted = VectorOptions.parse(options)
    return BucketVectors(paths, wanted, indexes) if wanted.enabled or indexes else None


def pick(
    levels: Levels, bucket: Bucket, state: PickState, *, now_ms: int, full: bool
) -> tuple[Compaction | None, PickState]:
    """The compaction that is due at a local wall-clock time.

    Raises:
        InvalidInputError: rows expire by a column that tells no time.
    """
    merge = MergeOptions.parse(bucket.merging.options)
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
    """The names of files that hold rows past their record-level expiry, as far as their statistics tell.

    Raises:
        InvalidInputError: rows expire by a column that tells no time.
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
        past = expiry.expired(found[expiry.field.name].min, now_ms)
        names.update(metas[place].file_name for place in np.flatnonzero(past))
    return frozenset(names)


def run_compaction(bucket: Bucket, levels: Levels, compaction: Compaction) -> tuple[CompactIncrement, Levels]:
    """Carry a compaction out; what it wrote is removed again if it fails.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed.
        InvalidInputError: a merge gives a null where the table has none, or rows expire by a column without a time.
    """
    marks = Marks()
    watching = watch_compaction(
        bucket.store, bucket.split, bucket.merging, bucket.files, levels, compaction, marks, tells=bucket.tells
    )
    steps = plan_steps(
        compaction,
        bucket.options,
        max_level=levels.max_level,
        expired=expired_files(bucket, compaction.files),
        lookup=watching.rules,
        tells_bottom=watching.tells_bottom,
    )
    work = _Work(bucket, watching, compaction.output_level)
    try:
        for step in steps:
            work.carry_out(step)
        changelog = work.changelog.close()
        update = _updated_vectors(bucket, work, marks)
    except BaseException:
        work.abort()
        raise
    increment = CompactIncrement(
        before=tuple(file.meta for file in work.before),
        after=tuple(file.meta for file in work.after),
        changelog_files=changelog,
        new_index_files=update.new,
        deleted_index_files=update.deleted,
    )
    return increment, levels.apply(work.before, work.after)


def _updated_vectors(bucket: Bucket, work: _Work, marks: Marks) -> IndexUpdate:
    """Write the vectors of the bucket anew, if any changed: files that were only moved keep theirs."""
    if bucket.vectors is None:
        return NO_UPDATE
    moved = {file.name for file in work.after}
    return run_update(
        bucket.store,
        bucket.vectors.paths,
        bucket.vectors.indexes,
        partition=bucket.split.partition,
        bucket=bucket.split.bucket,
        marked=marks.bitmaps(),
        removed={file.name for file in work.before} - moved,
        options=bucket.vectors.options,
        rolled=False,
    )


class _Work:
    """The steps of one compaction as they are carried out, in key order."""

    def __init__(self, bucket: Bucket, watching: Watching, output_level: int) -> None:
        self._bucket, self._watching = bucket, watching
        self._keep = living(bucket)
        self.before: list[RunFile] = []
        self.after: list[RunFile] = []
        self.changelog = self._writer(output_level, changelog=True)
        self._writers = [self.changelog]

    def carry_out(self, step: Step) -> None:
        match step:
            case Upgrade():
                if step.watched and self._watching.only_marks and self._keep is None:
                    self._mark(step.file)
                elif step.watched and self._watching.reads_moved:
                    # Rows that are not written are told of as they stay, not as the engine would write them.
                    watch = replace(self._watching.watch, folds_lone=False)
                    self._watch(Section(((step.file,),)), watch, None, drop_delete=False)
                self.before.append(step.file)
                self.after.append(step.after)
            case Rewrite():
                writer = self._writer(step.output_level)
                self._writers.append(writer)
                for section in step.sections:
                    if self._watching.watches(step.files):
                        self._watch(section, self._watching.watch, writer, drop_delete=step.drop_delete)
                    else:
                        self._merge(section, writer, drop_delete=step.drop_delete)
                self.before += step.files
                self.after += self._bucket.merging.files(writer.close())

    def abort(self) -> None:
        """Remove everything that was written."""
        for writer in self._writers:
            writer.abort()

    def _merge(self, section: Section, writer: KeyedWriter, *, drop_delete: bool) -> None:
        bucket = self._bucket
        for rows in merge_section(
            bucket.store,
            bucket.split,
            section,
            bucket.merging,
            bucket.merging.schema.names,
            ordered=True,
            drop_retracts=drop_delete,
            whole=True,
            keep=self._keep,
        ):
            writer.write(rows)

    def _watch(self, section: Section, watch: Watch, writer: KeyedWriter | None, *, drop_delete: bool) -> None:
        bucket = self._bucket
        for reduced in watch_section(
            bucket.store,
            bucket.split,
            section,
            bucket.merging,
            watch,
            self._watching.ages,
            drop_retracts=drop_delete,
            keep=self._keep,
        ):
            if writer is not None and reduced.rows is not None:
                writer.write(reduced.rows)
            if reduced.changes is not None:
                self.changelog.write(reduced.changes)

    def _mark(self, file: RunFile) -> None:
        """Look up the keys of a file that is only moved, for the rows that it supersedes."""
        bucket, below = self._bucket, self._watching.watch.below
        assert below is not None
        keys = ReadRequest(schema=bucket.merging.schema, columns=bucket.merging.schema.trimmed_primary_keys)
        for batch in read_data_file(bucket.store, bucket.split, file.meta, keys, batch_rows=BATCH_ROWS):
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
            thin=bucket.thin,
            changelog=changelog,
        )


def living(bucket: Bucket) -> Change | None:
    """What drops rows past their record-level expiry, now; None where rows do not expire.

    Raises:
        InvalidInputError: rows expire by a column that tells no time.
    """
    expiry: RecordExpiry | None = expiry_for(bucket.merging.schema, bucket.merging.options)
    if expiry is None:
        return None
    chosen, now_ms = expiry, bucket.store.env.clock.now_ms()
    return lambda rows: chosen.living(rows, now_ms)
