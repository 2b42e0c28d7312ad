"""Whether it is safe to commit to a storage. Commits rely on exclusive creation of files, so this is tested first.

A storage that fails the test is refused, unless a publisher of its own decides which snapshot is the newest, or the
option `unsafe.commit` (of the table, of one use, or of the storage) promises that there is a single writer.
"""

from __future__ import annotations

from tidelake.io.env import Env
from tidelake.io.selftest import probe_create_exclusive
from tidelake.ops.commit.options import CommitOptions
from tidelake.options import TableOptions
from tidelake.store.snapshots import SnapshotPublisher


def require_exclusive_create(env: Env, options: TableOptions, *, publisher: SnapshotPublisher | None = None) -> None:
    """Refuse a storage where two writers would overwrite each other's snapshot.

    Args:
        env: the storage, clock and ids of the table or of its lake.
        options: the table options in force.
        publisher: publishes snapshots, if not by creating files in the folder of the table.

    Raises:
        StorageError: the storage cannot create a file exclusively (`no-exclusive-create`), or failed.
        InvalidInputError: `unsafe.commit` is neither true nor false.
    """
    if publisher is None and not env.unsafe_commit and not options.of(CommitOptions).unsafe:
        probe_create_exclusive(env.io, ids=env.ids)
