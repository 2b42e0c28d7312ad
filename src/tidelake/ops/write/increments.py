"""Join successive compactions of one bucket to one."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.ops.commit.messages import CompactIncrement
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifests.index_manifest import IndexFile

__all__ = ["find_temporary_files", "find_temporary_indexes", "join_increments", "made_by"]


def join_increments(increments: Sequence[CompactIncrement]) -> CompactIncrement:
    """Join successive compactions: files that existed only in between are in neither list.

    Their changelog files are kept in order, because a key may have changed in each of them.
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
    """The files that compactions wrote, without upgraded files."""
    kept = {file.file_name for file in join_increments(increments).before}
    made = {file.file_name: file for increment in increments for file in increment.after}
    changelog = (file for increment in increments for file in increment.changelog_files)
    return (*(file for name, file in made.items() if name not in kept), *changelog)


def find_temporary_files(increments: Sequence[CompactIncrement]) -> tuple[DataFile, ...]:
    """Files that one compaction wrote and a later one replaced: no snapshot will ever refer to them."""
    whole = join_increments(increments)
    named = {file.file_name for file in (*whole.before, *whole.after)}
    made = {file.file_name: file for increment in increments for file in increment.after}
    return tuple(file for name, file in made.items() if name not in named)


def find_temporary_indexes(increments: Sequence[CompactIncrement]) -> tuple[IndexFile, ...]:
    """Index files that one compaction wrote and a later one replaced."""
    named = {index.file_name for index in join_increments(increments).new_index_files}
    made = (index for increment in increments for index in increment.new_index_files)
    return tuple(index for index in made if index.file_name not in named)
