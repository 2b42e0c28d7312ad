"""Compaction of append tables: join small files, and rewrite files without their deleted rows.

Planning is pure. Without buckets any small files of a partition may be joined; with buckets the order of rows is
kept, so only neighbours in write order are joined. A file with a deletion vector is rewritten even alone if it is
small, if many of its rows are deleted, or in a full compaction; its vector is removed in the same snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelake.cleanup import undo_on_error
from tidelake.files.options import FileOptions
from tidelake.files.write.bucket import BucketWriter
from tidelake.lsm.options import CompactionOptions
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement
from tidelake.ops.read.append import ReadRequest, read_data_file
from tidelake.ops.scan.split import Split
from tidelake.options import Affects, OptionGroup, option, same_option
from tidelake.spec.data_file import DataFile, FileSource
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore

_MAINTENANCE = (Affects.MAINTENANCE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCompactionOptions(OptionGroup):
    """Which files are small, and how many of them justify a rewrite."""

    min_files: int = option("compaction.min.file-num", 5, doc="Files that are worth joining.", affects=_MAINTENANCE)
    small_ratio: float = same_option(CompactionOptions, "small_file_ratio")
    delete_ratio: float = option(
        "compaction.delete-ratio-threshold",
        0.2,
        doc="A file of an append table is rewritten above this share of deleted rows.",
        affects=_MAINTENANCE,
    )


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files of one bucket to read in this order and to rewrite."""

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
        due = _due(split, options, target_bytes=target_bytes, full=full)
        if ordered:
            groups = _pick_ordered(split.files, options, due, target_bytes=target_bytes, full=full)
        else:
            plain = [file for file in split.files if file.file_name not in split.vectors]
            groups = _pick_unordered(plain, options, target_bytes, open_file_cost, full=full)
            groups += _pick_marked(split, due, target_bytes, open_file_cost)
        wanted = [group for group in groups if len(group) > 1 or any(file.file_name in due for file in group)]
        rewrites += [Rewrite(split.with_files(group), tuple(group)) for group in wanted]
    return rewrites


def plan_vector_rewrites(
    buckets: Sequence[Split], *, target_bytes: int, open_file_cost: int, ordered: bool
) -> list[Rewrite]:
    """What to rewrite so that no file of these buckets keeps a deletion vector; no other file is touched.

    In a table with buckets (`ordered`) each file is rewritten alone, so that its rows keep their place.
    """
    rewrites: list[Rewrite] = []
    for split in buckets:
        due = frozenset(file.file_name for file in split.files if file.file_name in split.vectors)
        if ordered:
            groups = [[file] for file in split.files if file.file_name in due]
        else:
            groups = _pick_marked(split, due, target_bytes, open_file_cost)
        rewrites += [Rewrite(split.with_files(group), tuple(group)) for group in groups]
    return rewrites


def _due(split: Split, options: AppendCompactionOptions, *, target_bytes: int, full: bool) -> frozenset[str]:
    """Names of the files with deletion vectors to rewrite, even alone."""
    found = set()
    for file in split.files:
        vector = split.vectors.get(file.file_name)
        if vector is not None:
            small = file.file_size < target_bytes * options.small_ratio
            deleted = file.row_count if vector.cardinality is None else vector.cardinality
            if full or small or deleted > options.delete_ratio * file.row_count:
                found.add(file.file_name)
    return frozenset(found)


def _pick_marked(split: Split, due: frozenset[str], target_bytes: int, open_file_cost: int) -> list[list[DataFile]]:
    """Files with deletion vectors, those of one index file together, so that it is left whole or not at all."""
    by_index: dict[str, list[DataFile]] = {}
    for file in split.files:
        if file.file_name in due:
            by_index.setdefault(split.vectors[file.file_name].path, []).append(file)
    groups: list[list[DataFile]] = [[]]
    weight = 0
    for files in by_index.values():
        if weight >= 2 * target_bytes:
            groups.append([])
            weight = 0
        groups[-1] += sorted(files, key=lambda each: (each.min_sequence, each.file_name))
        weight += sum(file.file_size + open_file_cost for file in files)
    return [group for group in groups if group]


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
    files: Sequence[DataFile],
    options: AppendCompactionOptions,
    due: frozenset[str],
    *,
    target_bytes: int,
    full: bool,
) -> list[list[DataFile]]:
    ordered = sorted(files, key=lambda each: (each.min_sequence, each.file_name))
    if full:
        while ordered and ordered[0].file_size >= target_bytes and ordered[0].file_name not in due:
            ordered = ordered[1:]
        small = sum(file.file_size < target_bytes * options.small_ratio for file in ordered)
        worth = small > len(ordered) - small and len(ordered) >= 2
        return [ordered] if worth or any(file.file_name in due for file in ordered) else []
    groups: list[list[DataFile]] = []
    window: list[DataFile] = []
    for file in ordered:
        window.append(file)
        if len(window) >= options.min_files:
            groups.append(window)
            window = []
        elif sum(each.file_size for each in window) >= 2 * target_bytes:
            window = window[1:]
    taken = {file.file_name for group in groups for file in group}
    # A file that is rewritten alone keeps its sequence numbers, so the order among the files does not change.
    return groups + [[file] for file in ordered if file.file_name in due - taken]


def run_rewrite(store: TableStore, paths: DataPaths, rewrite: Rewrite, files: FileOptions) -> CommitMessage:
    """Rewrite the rows of the files in order; the message replaces the files by the new ones.

    Raises:
        FormatError: a file is missing or damaged; nothing is left behind.
    """
    schema, split = store.schema, rewrite.split
    writer = BucketWriter(store.env, paths.bucket(split.partition, split.bucket), schema, files)
    request = ReadRequest(schema=schema, columns=tuple(field.name for field in schema.fields))
    with undo_on_error(writer.abort):
        for file in rewrite.files:
            for batch in read_data_file(store, split, file, request):
                writer.write(batch)
        first = min(file.min_sequence for file in rewrite.files)
        after = writer.close(sequence=first, source=FileSource.COMPACT)
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        compact=CompactIncrement(before=rewrite.files, after=after),
    )
