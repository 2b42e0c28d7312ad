"""Compaction of one bucket of a primary-key table: what was picked is merged to a lower level, or only moved there.

What a table asks of its compactions beside that is told by `watching`: older versions from below the output level are
folded in, and what changed is written to changelog files. Rows past their record-level expiry are not read at all.

New files belong to nobody until their message is committed. A file that is only moved keeps its name, in what was
before and in what comes after; nothing here ever deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.errors import UnsupportedError
from tidelake.files.keyed import KeyedWriter
from tidelake.files.options import FileOptions
from tidelake.lsm.engines.build import MergeOptions
from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import Levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction, PickState, plan_compaction, plan_full_compaction
from tidelake.lsm.record_expiry import RecordExpiry, expiry_for
from tidelake.lsm.rewrite import Rewrite, Step, Upgrade, plan_steps
from tidelake.lsm.sections import Section
from tidelake.ops.commit.messages import CompactIncrement
from tidelake.ops.compact.watching import Watching, watch_compaction
from tidelake.ops.read.keyed import Merging, merge_section, watch_section
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import FileSource
from tidelake.spec.stats_evolution import bounds_under
from tidelake.store.table_store import TableStore

Change = Callable[[pa.Table], pa.Table]
"""Makes rows of others, fewer or changed."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and how its rows are merged and written."""

    store: TableStore
    split: Split
    """Where its files lie; the files of the split itself do not matter."""
    merging: Merging
    files: FileOptions
    options: CompactionOptions
    thin: bool = False
    tells: bool = True
    """Whether changes are told, where the table has them told at all: nobody is told of what an overwrite does."""


def pick(
    levels: Levels, bucket: Bucket, state: PickState, *, now_ms: int, full: bool
) -> tuple[Compaction | None, PickState]:
    """The compaction that is due at a local wall-clock time.

    Raises:
        InvalidInputError: rows expire by a column that tells no time.
    """
    merge = MergeOptions.parse(bucket.merging.options)
    if merge.deletion_vectors:
        raise UnsupportedError("deletion vectors are not written yet", option="deletion-vectors.enabled")
    if full:
        return plan_full_compaction(levels, bucket.options, expired=expired_files(bucket, levels.upper[-1])), state
    return plan_compaction(levels, bucket.options, now_ms=now_ms, state=state, needs_lookup=merge.needs_lookup)


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
    watching = watch_compaction(
        bucket.store, bucket.split, bucket.merging, bucket.files, levels, compaction, tells=bucket.tells
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
    except BaseException:
        work.abort()
        raise
    increment = CompactIncrement(
        before=tuple(file.meta for file in work.before),
        after=tuple(file.meta for file in work.after),
        changelog_files=changelog,
    )
    return increment, levels.apply(work.before, work.after)


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
                if step.watched and self._watching.reads_moved:
                    self._watch(Section(((step.file,),)), None, drop_delete=False)
                self.before.append(step.file)
                self.after.append(step.after)
            case Rewrite():
                writer = self._writer(step.output_level)
                self._writers.append(writer)
                for section in step.sections:
                    if self._watching.watches(step.files):
                        self._watch(section, writer, drop_delete=step.drop_delete)
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

    def _watch(self, section: Section, writer: KeyedWriter | None, *, drop_delete: bool) -> None:
        bucket, watching = self._bucket, self._watching
        for reduced in watch_section(
            bucket.store,
            bucket.split,
            section,
            bucket.merging,
            watching.watch,
            watching.ages,
            drop_retracts=drop_delete,
            keep=self._keep,
        ):
            if writer is not None and reduced.rows is not None:
                writer.write(reduced.rows)
            if reduced.changes is not None:
                self.changelog.write(reduced.changes)

    def _writer(self, level: int, *, changelog: bool = False) -> KeyedWriter:
        bucket = self._bucket
        return KeyedWriter(
            bucket.store.env,
            bucket.split.bucket_path,
            bucket.merging.schema,
            bucket.files,
            level=level,
            source=FileSource.COMPACT,
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
