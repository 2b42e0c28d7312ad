"""May this storage be committed to? Everything rests on creating a file exclusively, so it is tried first.

A storage that fails the trial is refused, unless whoever commits says that it does not matter: a publisher owns the
pointer, or the option `unsafe.commit` (of the table, of one use, or of the storage) vouches for a single writer.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.io.env import Env
from tidelake.io.selftest import probe_create_exclusive
from tidelake.ops.commit.options import CommitOptions
from tidelake.ops.commit.publish import SnapshotPublisher


def require_exclusive_create(
    env: Env, options: Mapping[str, str], *, publisher: SnapshotPublisher | None = None
) -> None:
    """Refuse a storage where two writers would overwrite each other's snapshot.

    Args:
        env: the doors of the table or of its lake.
        options: the table options in force.
        publisher: who makes a snapshot the newest one, where that is not the table's own folder.

    Raises:
        StorageError: the storage cannot create a file exclusively (`no-exclusive-create`), or failed.
        InvalidInputError: `unsafe.commit` is neither true nor false.
    """
    if publisher is None and not env.unsafe_commit and not CommitOptions.parse(options).unsafe:
        probe_create_exclusive(env.io, ids=env.ids)
