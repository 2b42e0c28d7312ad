"""Small files of append tables become fewer, larger ones.

Planning is pure. Without buckets any small files of a partition may be joined; with buckets the order of rows is
kept, so only neighbours in write order are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelake.files.bucket_writer import BucketWriter
from tidelake.files.options import FileOptions
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.split import Split
from tidelake.options import Affects, OptionGroup, option
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

_MAINTENANCE = (Affects.MAINTENANCE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCompactionOptions(OptionGroup):
    """When files are small and how many make a rewrite worth it."""

    min_files: int = option("compaction.min.file-num", 5, doc="Files that are worth joining.", affects=_MAINTENANCE)
    small_ratio: float = option(
        "compaction.small-file-ratio", 0.7, doc="A file is small below this share of the target.", affects=_MAINTENANCE
    )


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files of one bucket to be read in this order and written anew."""

    split: Split
    files: tuple[DataFile, ...]


def plan_rewrites(
    buckets: Sequence[Split],
    options: AppendCompactionOptions,
    *,
    target_bytes: int,
    open_file_cost: int,
    ordered: bool,
    full: bool,
) -> list[Rewrite]:
    """What to rewrite; each split holds all files of its bucket."""
    rewrites: list[Rewrite] = []
    for split in buckets:
        if ordered:
            groups = _pick_ordered(split.files, options, target_bytes=target_bytes, full=full)
        else:
            groups = _pick_unordered(split.files, options, target_bytes, open_file_cost, full=full)
        rewrites += [Rewrite(split, tuple(group)) for group in groups if len(group) > 1]
    return rewrites


def _pick_unordered(
    files: Sequence[DataFile], options: AppendCompactionOptions, target_bytes: int, open_file_cost: int, *, full: bool
) -> list[list[DataFile]]:
    small = [file for file in files if file.file_size < target_bytes * options.small_ratio]
    groups: list[list[DataFile]] = []
    group: list[DataFile] = []
    weight = 0
    for file in sorted(small, key=lambda each: each.file_size):
        group.append(file)
        weight += file.file_size + open_file_cost
        if len(group) > 1 and weight >= 2 * target_bytes:
            groups.append(group)
            group, weight = [], 0
    if len(group) >= (2 if full else options.min_files):
        groups.append(group)
    return groups


def _pick_ordered(
    files: Sequence[DataFile], options: AppendCompactionOptions, *, target_bytes: int, full: bool
) -> list[list[DataFile]]:
    ordered = sorted(files, key=lambda each: (each.min_sequence, each.file_name))
    if full:
        while ordered and ordered[0].file_size >= target_bytes:
            ordered = ordered[1:]
        small = sum(file.file_size < target_bytes * options.small_ratio for file in ordered)
        worth = small > len(ordered) - small and len(ordered) >= 2
        return [ordered] if worth else []
    groups: list[list[DataFile]] = []
    window: list[DataFile] = []
    for file in ordered:
        window.append(file)
        if len(window) >= options.min_files:
            groups.append(window)
            window = []
        elif sum(each.file_size for each in window) >= 2 * target_bytes:
            window = window[1:]
    return groups


def run_rewrite(store: TableStore, paths: DataPaths, rewrite: Rewrite, files: FileOptions) -> CommitMessage:
    """Write the rows of the files anew, in order; the message replaces the files by the new ones.

    Raises:
        FormatError: a file is missing or damaged; nothing is left behind.
    """
    schema, split = store.schema, rewrite.split
    writer = BucketWriter(store.env, paths.bucket(split.partition, split.bucket), schema, files)
    request = ReadRequest(schema=schema, columns=tuple(field.name for field in schema.fields))
    try:
        for file in rewrite.files:
            for batch in read_data_file(store, split, file, request):
                writer.write(batch)
        first = min(file.min_sequence for file in rewrite.files)
        after = writer.close(sequence=first, source=FileSource.COMPACT)
    except BaseException:
        writer.abort()
        raise
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        compact=CompactIncrement(before=rewrite.files, after=after),
    )
