"""Sequence numbers of rows that another commit overtook: the new files are written again above them.

The port of the committer, in process. A compaction that read the files which are written again is left to the next one;
one that did not goes with the message as before. Nothing that the messages name is removed here: until the commit is
published, a repetition of it starts from the same files.
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
    """Rewrites new level-0 files so that their sequence numbers lie above a bucket's maximum."""

    store: TableStore
    paths: DataPaths
    files: FileOptions
    thin: bool = False

    def rebase(
        self, messages: Sequence[CommitMessage], floors: Mapping[tuple[bytes, int], int], *, base_snapshot_id: int
    ) -> tuple[CommitMessage, ...]:
        """Messages with files whose numbers start above `floors`, based on the given snapshot.

        Raises:
            FormatError: a file is missing or damaged; nothing is left behind.
            StorageError: the storage failed; nothing is left behind that it lets us remove.
        """
        copier = FileCopier(self.store, self.paths, self.files, self.thin)
        with copier.all_or_nothing():
            return tuple(
                _above(copier, message, floors[message.partition, message.bucket], base_snapshot_id)
                for message in messages
            )


def _above(copier: FileCopier, message: CommitMessage, floor: int, base_snapshot_id: int) -> CommitMessage:
    shift = floor + 1 - min(file.min_sequence for file in message.data.new_files)
    files = tuple(new for file in message.data.new_files for new in copier.shifted(message, file, shift))
    told = tuple(
        new for file in message.data.changelog_files for new in copier.shifted(message, file, shift, changelog=True)
    )
    compact = compaction_left(message)
    return replace(
        message,
        data=replace(message.data, new_files=files, changelog_files=told),
        compact=compact,
        # A compaction that goes with it still depends on what it was planned on.
        base_snapshot_id=base_snapshot_id if compact == CompactIncrement() else message.base_snapshot_id,
    )
