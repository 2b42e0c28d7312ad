"""Rebase: rewrite new files with newer sequence numbers, because another commit reached their buckets first.

This is the committer's port, in process. A compaction that read one of the rewritten files is dropped and left to the
next one; any other compaction stays in its message. No file that the messages name is removed here, because until the
commit is published, another attempt starts from the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidelake.files.options import FileOptions
from tidelake.ops.commit.messages import CommitMessage, CompactIncrement
from tidelake.ops.write.rewrite import FileCopier, compaction_left
from tidelake.store.paths import DataPaths
from tidelake.store.table_store import TableStore


@dataclass(frozen=True, slots=True)
class InProcessRebaser:
    """Rewrites new level-0 files so that their sequence numbers are greater than a bucket's maximum."""

    store: TableStore
    paths: DataPaths
    files: FileOptions

    def rebase(
        self, messages: Sequence[CommitMessage], floors: Mapping[tuple[bytes, int], int], *, base_snapshot_id: int
    ) -> tuple[CommitMessage, ...]:
        """Rewrite the files of messages with sequence numbers above `floors`, based on the given snapshot.

        Raises:
            FormatError: a file is missing or damaged; the new files are removed.
            StorageError: the storage failed; the new files are removed as far as it lets us.
        """
        copier = FileCopier(self.store, self.paths, self.files)
        with copier.all_or_nothing():
            return tuple(
                _above(copier, message, floors[message.partition, message.bucket], base_snapshot_id)
                for message in messages
            )


def _above(copier: FileCopier, message: CommitMessage, floor: int, base_snapshot_id: int) -> CommitMessage:
    shift = floor + 1 - min(file.min_sequence for file in message.data.new_files)
    files = tuple(new for file in message.data.new_files for new in copier.copy_shifted(message, file, shift))
    changelog = tuple(
        new
        for file in message.data.changelog_files
        for new in copier.copy_shifted(message, file, shift, changelog=True)
    )
    compact = compaction_left(message)
    return replace(
        message,
        data=replace(message.data, new_files=files, changelog_files=changelog),
        compact=compact,
        # A compaction in the message still depends on the snapshot that it was planned on.
        base_snapshot_id=base_snapshot_id if compact == CompactIncrement() else message.base_snapshot_id,
    )
