"""Compactions of one bucket that followed each other, as one."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.ops.commit.messages import CompactIncrement
from tidelake.spec.data_file import DataFile
from tidelake.spec.index_manifest import IndexFile

__all__ = ["joined", "made_by", "passing", "passing_indexes"]


def joined(increments: Sequence[CompactIncrement]) -> CompactIncrement:
    """Compactions that followed each other as one: what lived only in between is in neither list.

    What they told of is kept in their order: a key may have changed in each of them.
    """
    before: dict[tuple[str, int], DataFile] = {}
    after: dict[tuple[str, int], DataFile] = {}
    new: dict[str, IndexFile] = {}
    old: dict[str, IndexFile] = {}
    for increment in increments:
        for index in increment.deleted_index_files:
            if new.pop(index.file_name, None) is None:
                old[index.file_name] = index
        new |= {index.file_name: index for index in increment.new_index_files}
        for file in increment.before:
            if after.pop((file.file_name, file.level), None) is None:
                before[file.file_name, file.level] = file
        for file in increment.after:
            after[file.file_name, file.level] = file
    return CompactIncrement(
        before=tuple(before.values()),
        after=tuple(after.values()),
        changelog_files=tuple(file for increment in increments for file in increment.changelog_files),
        new_index_files=tuple(new.values()),
        deleted_index_files=tuple(old.values()),
    )


def made_by(increments: Sequence[CompactIncrement]) -> tuple[DataFile, ...]:
    """The files that compactions wrote, without those that they only moved."""
    kept = {file.file_name for file in joined(increments).before}
    made = {file.file_name: file for increment in increments for file in increment.after}
    told = (file for increment in increments for file in increment.changelog_files)
    return (*(file for name, file in made.items() if name not in kept), *told)


def passing(increments: Sequence[CompactIncrement]) -> tuple[DataFile, ...]:
    """Files that one compaction made and a later one read: no commit will ever name them."""
    whole = joined(increments)
    named = {file.file_name for file in (*whole.before, *whole.after)}
    made = {file.file_name: file for increment in increments for file in increment.after}
    return tuple(file for name, file in made.items() if name not in named)


def passing_indexes(increments: Sequence[CompactIncrement]) -> tuple[IndexFile, ...]:
    """Index files that one compaction made and a later one replaced."""
    named = {index.file_name for index in joined(increments).new_index_files}
    made = (index for increment in increments for index in increment.new_index_files)
    return tuple(index for index in made if index.file_name not in named)
