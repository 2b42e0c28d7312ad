"""Deleting the files of a commit that certainly never happened.

Engines call abort after a failed commit, with all messages, even if the snapshot was published. So files are deleted
only if certainly no snapshot refers to them; otherwise they stay, and orphan cleaning finds them later. A file that a
compaction read is never deleted unless the same message added it, nor is a file that was only moved to another level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelake.errors import StorageError
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.context import TableContext

PathOf = Callable[[bytes, int, str], str]
"""The path of a data file, or of an index file, from its partition, bucket and name."""


@dataclass(frozen=True, slots=True)
class AbortResult:
    """The files an abort deleted, or why it deleted none."""

    deleted: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    reason: str | None = None


def plan_abort(messages: Sequence[CommitMessage], path_of: PathOf, index_path_of: PathOf) -> tuple[str, ...]:
    """The files that these messages added."""
    paths: dict[str, None] = {}
    for message in messages:
        data = message.data
        moved = {file.file_name for file in message.compact.before} - {file.file_name for file in data.new_files}
        files = [*data.new_files, *data.changelog_files, *message.compact.after, *message.compact.changelog_files]
        for file in files:
            if file.file_name not in moved and file.external_path is None:
                for name in (file.file_name, *file.extra_files):
                    paths[path_of(message.partition, message.bucket, name)] = None
        for index in (*data.new_index_files, *message.compact.new_index_files):
            if index.external_path is None:
                paths[index_path_of(message.partition, message.bucket, index.file_name)] = None
    return tuple(paths)


def referenced_names(messages: Iterable[CommitMessage]) -> frozenset[str]:
    """Names of the files that the messages replaced and did not add."""
    found: set[str] = set()
    for message in messages:
        data = message.data
        read = {file.file_name for file in (*message.compact.before, *data.deleted_files)}
        found |= read - {file.file_name for file in data.new_files}
    return frozenset(found)


def remove_files(context: TableContext, messages: Iterable[CommitMessage]) -> None:
    """Remove the new files of messages that are certainly not published; what cannot be removed becomes an orphan."""

    def path_of(partition: bytes, bucket: int, name: str) -> str:
        return context.store.layout.data_path(context.paths.partition(partition), bucket, name)

    for path in plan_abort(tuple(messages), path_of, context.paths.index):
        with suppress(StorageError):  # orphan cleaning will find it
            context.store.env.io.delete(path)
