"""Compaction of one bucket of a primary-key table: what was picked is merged to a lower level, or only moved there.

New files belong to nobody until their message is committed. A file that is only moved keeps its name, in what was
before and in what comes after; nothing here ever deletes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.errors import UnsupportedError
from tidelake.files.keyed import KeyedWriter
from tidelake.files.options import FileOptions
from tidelake.lsm.engines.build import ChangelogProducer, MergeEngine, MergeOptions
from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import Levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction, PickState, plan_compaction, plan_full_compaction
from tidelake.lsm.rewrite import Rewrite, Upgrade, plan_steps
from tidelake.ops.commit.messages import CompactIncrement
from tidelake.ops.read.keyed import Merging, merge_section
from tidelake.ops.scan.split import Split
from tidelake.spec.data_file import FileSource
from tidelake.store.table_store import TableStore


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


def pick(
    levels: Levels, bucket: Bucket, state: PickState, *, now_ms: int, full: bool
) -> tuple[Compaction | None, PickState]:
    """The compaction that is due.

    Raises:
        UnsupportedError: the table's compactions have to look up older versions or to write changes.
    """
    merge = MergeOptions.parse(bucket.merging.options)
    refuse_unsupported(merge)
    if merge.engine is MergeEngine.FIRST_ROW:
        # A row of level 0 may lose to an older one anywhere below: with all levels in hand nothing is looked up.
        full = full or bool(levels.level0)
        return (plan_full_compaction(levels, bucket.options) if full else None), state
    if full:
        return plan_full_compaction(levels, bucket.options), state
    return plan_compaction(levels, bucket.options, now_ms=now_ms, state=state)


def refuse_unsupported(merge: MergeOptions) -> None:
    """Refuse tables whose compaction does more than merge.

    Raises:
        UnsupportedError: it is such a table.
    """
    if merge.changelog_producer is not ChangelogProducer.NONE:
        raise UnsupportedError(
            "changes cannot be produced yet",
            option="changelog-producer",
            value=merge.changelog_producer.value,
            hint="write to the table with write-only=true and compact it with another engine",
        )
    for wanted, key in ((merge.deletion_vectors, "deletion-vectors.enabled"), (merge.force_lookup, "force-lookup")):
        if wanted:
            raise UnsupportedError(
                "compaction cannot look up older versions yet",
                option=key,
                hint="write to the table with write-only=true and compact it with another engine",
            )


def run_compaction(bucket: Bucket, levels: Levels, compaction: Compaction) -> tuple[CompactIncrement, Levels]:
    """Carry a compaction out; what it wrote is removed again if it fails.

    Raises:
        FormatError: a file is missing or damaged.
        StorageError: the storage failed.
    """
    steps = plan_steps(compaction, bucket.options, max_level=levels.max_level)
    before: list[RunFile] = []
    after: list[RunFile] = []
    writers: list[KeyedWriter] = []
    try:
        for step in steps:
            match step:
                case Upgrade():
                    before.append(step.file)
                    after.append(step.after)
                case Rewrite():
                    writer = _writer(bucket, step.output_level)
                    writers.append(writer)
                    before += step.files
                    after += _rewritten(bucket, step, writer)
    except BaseException:
        for writer in writers:
            writer.abort()
        raise
    increment = CompactIncrement(before=tuple(file.meta for file in before), after=tuple(file.meta for file in after))
    return increment, levels.apply(before, after)


def _writer(bucket: Bucket, level: int) -> KeyedWriter:
    return KeyedWriter(
        bucket.store.env,
        bucket.split.bucket_path,
        bucket.merging.schema,
        bucket.files,
        level=level,
        source=FileSource.COMPACT,
        thin=bucket.thin,
    )


def _rewritten(bucket: Bucket, step: Rewrite, writer: KeyedWriter) -> tuple[RunFile, ...]:
    names = bucket.merging.schema.names
    for section in step.sections:
        for rows in merge_section(
            bucket.store,
            bucket.split,
            section,
            bucket.merging,
            names,
            ordered=True,
            drop_retracts=step.drop_delete,
            whole=True,
        ):
            writer.write(rows)
    return bucket.merging.files(writer.close())
