"""Data files that the newest snapshot lists and the storage does not have: find them, and drop them from the table.

A file is gone only if the storage says so when it is asked for the file itself. Any other answer, an error included,
ends the search, and nothing is changed. Each folder is listed once instead of asking for every file in it; a listing
only says which files to ask for.

Invariant: files that exist stay. Dropping a file changes no older snapshot and no tag: they still name it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cleanup import undo_on_error
from tidelake.notebook import pluralize
from tidelake.ops.commit.committer import Committer
from tidelake.ops.commit.messages import CommitMessage, CommitResult, Committable, DataIncrement
from tidelake.ops.context import TableContext
from tidelake.ops.scan.plan import data_manifests, live_entries
from tidelake.ops.vectors.vector_writer import index_files_of, rolls, write_index_files
from tidelake.spec.data_file import data_files
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.store.deletion_vectors import VectorOptions
from tidelake.store.external import open_external

__all__ = ["UnexistingPlan", "plan_unexisting", "run_unexisting"]

_SEARCHED = ("partition", "bucket", "file_name", "external_path")
_LISTED_MIN = 2
"""Files of one folder from which listing it is cheaper than asking for each."""


@dataclass(frozen=True, slots=True)
class UnexistingPlan:
    """Files of the newest snapshot that do not exist."""

    paths: tuple[str, ...] = ()
    """Relative to the table; the full address of a file outside it."""
    rows: int = 0
    """Rows that these files had."""
    files: int = 0
    """All files that the snapshot has."""
    snapshot: Snapshot | None = None
    entries: pa.Table | None = field(default=None, repr=False, compare=False)
    result: CommitResult | None = None
    """What the commit did; None for a plan that was not carried out."""

    def __str__(self) -> str:
        return f"{pluralize(len(self.paths), 'file')} of {self.files:,} missing, with {pluralize(self.rows, 'row')}"


def plan_unexisting(context: TableContext) -> UnexistingPlan:
    """Find the files of the newest snapshot that do not exist.

    Raises:
        StorageError: the storage failed, so that it is not known which files exist.
        UnsupportedError: a file is outside the table, on a storage that cannot be read yet.
    """
    return context.store.snapshots.on_newest(lambda snapshot: _plan(context, snapshot))


def _plan(context: TableContext, snapshot: Snapshot | None) -> UnexistingPlan:
    if snapshot is None:
        return UnexistingPlan()
    store = context.store.manifests
    metas = data_manifests(store, snapshot)
    searched = live_entries(store, metas, columns=_SEARCHED).combine_chunks()
    missing, paths = _find_missing(context, searched)
    if not paths:
        return UnexistingPlan(files=searched.num_rows, snapshot=snapshot)
    entries = live_entries(store, metas).take(pa.array(missing))
    rows = int(pc.sum(entries.column("row_count")).as_py())
    return UnexistingPlan(tuple(paths), rows, searched.num_rows, snapshot, entries)


def _find_missing(context: TableContext, searched: pa.Table) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The entries whose files do not exist, and where these would be."""
    env = context.store.env
    rows = searched.append_column("row", pa.array(np.arange(searched.num_rows)))
    inside = rows.filter(pc.is_null(rows.column("external_path")))
    buckets = inside.group_by(["partition", "bucket"], use_threads=False).aggregate(
        [("file_name", "list"), ("row", "list")]
    )

    def search(number: int) -> list[tuple[int, str]]:
        partition, bucket = (buckets.column(name)[number].as_py() for name in ("partition", "bucket"))
        folder = context.paths.bucket(partition, bucket)
        names, own = buckets.column("file_name_list")[number].values, buckets.column("row_list")[number].values
        if len(names) >= _LISTED_MIN:
            listed = pa.array([each.name for each in env.io.list(folder) if not each.is_dir], names.type)
            unlisted = pc.invert(pc.is_in(names, value_set=listed))
            names, own = names.filter(unlisted), own.filter(unlisted)
        wanted = ((row, f"{folder}/{name}") for name, row in zip(names.to_pylist(), own.to_pylist(), strict=True))
        return [(row, path) for row, path in wanted if not env.io.exists(path, folder=False)]

    found = [each for some in env.executor.map(search, range(buckets.num_rows)) for each in some]
    outside = rows.filter(pc.is_valid(rows.column("external_path")))
    for address, row in zip(*(outside.column(name).to_pylist() for name in ("external_path", "row")), strict=True):
        io, path = open_external(env.io, context.schema.options, address)
        if not io.exists(path, folder=False):
            found.append((row, address))
    found.sort()
    return np.array([row for row, _ in found], np.int64), [path for _, path in found]


def run_unexisting(context: TableContext, committer: Committer, plan: UnexistingPlan) -> CommitResult:
    """Drop the missing files from the table, with their deletion vectors.

    Raises:
        CommitConflictError: another job changed the same files; a fresh plan may find that they are not needed.
        CommitUnknownError: the storage did not say whether the commit was published.
        FormatError: an index file with other vectors is missing or damaged; nothing was committed.
        StorageError: the storage failed; nothing was committed.
    """
    if plan.entries is None:
        return CommitResult()
    messages: list[CommitMessage] = []
    with undo_on_error(lambda: committer.discard(messages)):
        messages.extend(_make_messages(context, plan.snapshot, plan.entries))
        return committer.commit(Committable(messages=tuple(messages)))


def _make_messages(context: TableContext, snapshot: Snapshot | None, entries: pa.Table) -> Iterator[CommitMessage]:
    """One message for each bucket, without the vectors of the files that it drops."""
    indexes = index_files_of(context.store, snapshot)
    options, rolled = context.options.of(VectorOptions), rolls(context.schema, context.options)
    places = entries.select(["partition", "bucket", "total_buckets"]).to_pylist()
    grouped: dict[tuple[bytes, int, int], list[int]] = {}
    for row, place in enumerate(places):
        grouped.setdefault((place["partition"], place["bucket"], place["total_buckets"]), []).append(row)
    for (partition, bucket, total), rows in grouped.items():
        files = data_files(entries.take(pa.array(rows)))
        update = write_index_files(
            context.store,
            context.paths,
            indexes.get((partition, bucket), ()),
            partition=partition,
            bucket=bucket,
            marked={},
            removed={file.file_name for file in files},
            options=options,
            rolled=rolled,
        )
        change = DataIncrement(
            deleted_files=tuple(files), new_index_files=update.new, deleted_index_files=update.deleted
        )
        yield CommitMessage(partition=partition, bucket=bucket, total_buckets=total, data=change)
