"""Opens what a write of a table needs, by its bucket mode: the writer, and the ports of the committer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidelake.files.options import FileOptions
from tidelake.ops.commit.guards import Guard
from tidelake.ops.commit.rebase import Reassigner
from tidelake.ops.context import TableContext
from tidelake.ops.write.append import AppendWriter
from tidelake.spec.schemas.bucket_mode import BucketMode, BucketOptions

if TYPE_CHECKING:  # append tables do without the tree
    from tidelake.ops.placement.dynamic_buckets import DynamicBuckets
    from tidelake.ops.write.keyed import KeyedTableWriter
    from tidelake.ops.write.postpone import DecidingWriter, StagingWriter
    from tidelake.ops.write.sequence_rebaser import InProcessRebaser

__all__ = ["TableWriter", "make_overwrite_guards", "make_reassigner", "make_rebaser", "open_writer"]

TableWriter: TypeAlias = "AppendWriter | KeyedTableWriter | StagingWriter | DecidingWriter"
"""A writer of rows of a table."""


def open_writer(
    context: TableContext,
    *,
    overwrite: bool = False,
    assigned: DynamicBuckets | None = None,
    user: str | None = None,
    numbered: bool = False,
    merges_locally: bool = True,
    compacts: bool | None = None,
) -> TableWriter:
    """Open a writer of the table's rows; `assigned` chooses dynamic buckets, if the writer does not do so itself.

    `user` is the commit user of its messages, if it is known. With postponed buckets, rows of `numbered` commits are
    staged, and those of other commits go straight to buckets. With `merges_locally=False` rows of equal keys were
    merged before they came here. `compacts` overrides `write-only`.

    Raises:
        UnsupportedError: tables of this kind cannot be written yet.
    """
    options = context.options
    if not context.is_keyed:
        files, buckets = options.of(FileOptions), options.of(BucketOptions)
        return AppendWriter(context.store, context.paths, files, buckets, overwrite=overwrite)
    if context.bucket_mode is BucketMode.POSTPONED:
        from tidelake.ops.scan.postponed import PostponeOptions
        from tidelake.ops.write.postpone import DecidingWriter, StagingWriter

        if numbered or not options.of(PostponeOptions).batch_fixed:
            return StagingWriter(context, user)
        return DecidingWriter(context, overwrite=overwrite, user=user)
    from tidelake.ops.write.keyed import KeyedTableWriter

    return KeyedTableWriter(
        context, overwrite, assigned=assigned, user=user, merges_locally=merges_locally, compacts=compacts
    )


def make_overwrite_guards(context: TableContext, user: str) -> tuple[Guard, ...]:
    """The guards of an overwrite of some partitions: no key may have moved, if keys can move."""
    if context.bucket_mode is not BucketMode.CROSS_PARTITION:
        return ()
    from tidelake.ops.placement.cross_partition import KeysUnmoved

    return (KeysUnmoved(context.store, context.paths, user),)


def make_rebaser(context: TableContext) -> InProcessRebaser | None:
    """The port that gives rows newer sequence numbers than a concurrent commit; None for append tables."""
    if not context.is_keyed:
        return None
    from tidelake.ops.write.sequence_rebaser import InProcessRebaser

    return InProcessRebaser(context.store, context.paths, context.options.of(FileOptions))


def make_reassigner(context: TableContext) -> Reassigner | None:
    """The port that sends rows to the bucket that a concurrent commit gave their keys; None for append tables."""
    if not context.is_keyed:
        return None
    if context.bucket_mode is BucketMode.CROSS_PARTITION:
        from tidelake.ops.write.reassign_keys import KeyReassigner

        return KeyReassigner(context)
    from tidelake.ops.write.reassign import BucketReassigner

    return BucketReassigner(context)
