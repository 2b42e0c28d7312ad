"""Compaction of one bucket of a primary-key table: what was picked is merged to a lower level, or only moved there.

Where a row of level 0 loses to any older one (`first-row`), the keys of what is written are looked up below the output
level, and those that exist there are left out. Rows past their record-level expiry are not read at all.

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
from tidelake.lsm.engine import SEQUENCE
from tidelake.lsm.engines.build import ChangelogProducer, MergeEngine, MergeOptions
from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import Levels
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction, PickState, plan_compaction, plan_full_compaction
from tidelake.lsm.record_expiry import RecordExpiry, expiry_for
from tidelake.lsm.rewrite import LookupRules, Rewrite, Upgrade, plan_steps
from tidelake.ops.commit.messages import CompactIncrement
from tidelake.ops.compact.lookup import LevelLookup, Lookup
from tidelake.ops.read.keyed import Merging, merge_section
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


def pick(
    levels: Levels, bucket: Bucket, state: PickState, *, now_ms: int, full: bool
) -> tuple[Compaction | None, PickState]:
    """The compaction that is due at a local wall-clock time.

    Raises:
        UnsupportedError: the table's compactions have to write changes or deletion vectors.
        InvalidInputError: rows expire by a column that tells no time.
    """
    merge = MergeOptions.parse(bucket.merging.options)
    refuse_unsupported(merge)
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


def refuse_unsupported(merge: MergeOptions, *, write_only: bool = False) -> None:
    """Refuse tables whose compaction does more than merge, or whose writers do more than write rows.

    `write_only` leaves compactions to others; changes that are produced from the input are not theirs to write.

    Raises:
        UnsupportedError: it is such a table.
    """
    if merge.changelog_producer is ChangelogProducer.INPUT:
        raise UnsupportedError(
            "changes cannot be produced yet",
            option="changelog-producer",
            value=merge.changelog_producer.value,
            hint="write to the table with another engine, or set the option to none",
        )
    if write_only:
        return
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
        InvalidInputError: a merge gives a null where the table has none, or rows expire by a column without a time.
    """
    steps = plan_steps(
        compaction,
        bucket.options,
        max_level=levels.max_level,
        expired=expired_files(bucket, compaction.files),
        lookup=_lookup_rules(bucket, compaction),
    )
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
                    after += _rewritten(bucket, step, writer, _fresh(bucket, levels, step))
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


def _rewritten(bucket: Bucket, step: Rewrite, writer: KeyedWriter, fresh: Change) -> tuple[RunFile, ...]:
    names = bucket.merging.schema.names
    keep = living(bucket)
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
            keep=keep,
        ):
            writer.write(fresh(rows))
    return bucket.merging.files(writer.close())


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


# ------------------------------------------------------------------------------------------------ first row


def _lookup_rules(bucket: Bucket, compaction: Compaction) -> LookupRules | None:
    """How files leave level 0 where older versions win."""
    if not MergeOptions.parse(bucket.merging.options).needs_lookup:
        return None
    formats = {bucket.files.for_level(level).format for level in (0, compaction.output_level)}
    return LookupRules(format_changes=len(formats) > 1)


def _fresh(bucket: Bucket, levels: Levels, step: Rewrite) -> Change:
    """What leaves out the rows whose key exists below the output level of a step."""
    below = levels.upper[step.output_level :]
    level0 = [file for file in step.files if file.level == 0]
    if MergeOptions.parse(bucket.merging.options).engine is not MergeEngine.FIRST_ROW or not level0 or not any(below):
        return lambda rows: rows
    last = max(level0, key=lambda file: file.max_key)
    lookup = LevelLookup(bucket.store, bucket.split, bucket.merging, below, until=last)
    lifted = max((file.meta.max_sequence for file in step.files if file.level > 0), default=-1)
    # Rows from upper levels were looked up when they left level 0. Sequence numbers tell them where they are apart.
    floor = lifted if lifted < min(file.meta.min_sequence for file in level0) else -1
    return lambda rows: _unseen(rows, lookup, floor)


def _unseen(rows: pa.Table, lookup: Lookup, floor: int) -> pa.Table:
    new = rows.column(SEQUENCE).to_numpy() > floor
    places = np.flatnonzero(new)
    if not len(places):
        return rows
    found = lookup.find(rows if len(places) == rows.num_rows else rows.take(pa.array(places)))
    if not found.hits.any():
        return rows
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[places[found.hits]] = False
    return rows.filter(pa.array(keep))
