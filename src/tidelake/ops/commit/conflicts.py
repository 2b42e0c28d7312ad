"""Whether changes can be committed on top of a state. Pure checks over tables of entries; the first failure raises.

`base` holds the live files of the partitions that change. Level-0 files may overlap, so appends never conflict with
each other. Conflicts are: deleting a file that is gone, adding one that exists, two bucket counts in one partition, and
sorted runs whose key ranges would overlap.

The base may be large, so only vector operations run over it. Python loops run over the commit's own entries: its index
files, and the rows of the base for the data files that they name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, FormatError
from tidelake.ops.commit.changes import Changes, IndexChange
from tidelake.spec.manifests.index_manifest import DELETION_VECTORS, HASH, IndexEntry
from tidelake.spec.manifests.manifest import (
    ADD,
    DELETE,
    IDENTITY_COLUMNS,
    identities,
    merge_entries,
    repeated_identity,
    with_kind,
)
from tidelake.spec.rows.key_order import overlapping_neighbours
from tidelake.spec.types.data_types import DataType

CONFLICT_COLUMNS = ("kind", *IDENTITY_COLUMNS, "total_buckets", "min_key", "max_key")
"""The columns that the checks use; no others of the base are read."""

KEYS_MOVED = "keys-moved"
"""Code of the conflict over keys that move between partitions; it is solved by writing the rows again."""

PARTITIONS_EXPIRED = "partitions-expired"
"""Code of the conflict over files of partitions that have expired: writing their rows again will not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who commits on top of whose snapshot, for the checks and their error messages."""

    base_user: str
    commit_user: str
    overwrite: bool
    key_types: Sequence[DataType]
    ordered_levels: bool
    all_expired: Callable[[Sequence[bytes]], bool] = lambda _: False
    """Whether all of these partitions have expired by their values."""


def check_conflicts(base: pa.Table, changes: Changes, base_index: Sequence[IndexEntry], context: Context) -> None:
    """Raise if the changes contradict the state they would be put on.

    Raises:
        CommitConflictError: the message names the conflict and the other user.
    """
    base = base.select(CONFLICT_COLUMNS)
    delta = changes.delta.select(CONFLICT_COLUMNS)
    if _names_vectors(base_index) or _names_vectors(change.entry for change in changes.index):
        base, delta = _with_vectors(base, delta, base_index, changes.index, context)
    if not context.overwrite:
        # A commit that replaces files of a rescaled partition can plan again on its new files; a plain write cannot.
        replaces = bool(pc.any(pc.equal(delta.column("kind"), DELETE)).as_py())
        check_bucket_counts(pa.concat_tables([base, delta]), context, replannable=replaces)
    twice = repeated_identity(delta)
    if twice is not None:
        # Readers may collect the deletions first, whatever the order: a file both deleted and added would be lost.
        raise CommitConflictError(
            "commit names one file twice",
            code="file-conflict",
            file=delta.column("file_name")[twice],
            bucket=delta.column("bucket")[twice],
            commit_user=context.commit_user,
            hint="give a rewritten file a new name",
        )
    merged = _merge(
        pa.concat_tables([base, delta]), "file to add already exists, or file to delete is already gone", context
    )
    left = pc.equal(merged.column("kind"), DELETE)
    if pc.any(left).as_py():
        gone = merged.filter(left)
        if context.all_expired(gone.column("partition").unique().to_pylist()):
            raise _expired_conflict(gone, context)
        raise _conflict("file to delete is already gone", "file-deleted", gone, context)
    if context.ordered_levels:
        _check_levels(merged, context)


def check_bucket_counts(entries: pa.Table, context: Context, *, replannable: bool = False) -> None:
    """Check that all files of a partition with real buckets have the same number of buckets.

    `replannable` says that a new plan will take the number from the files that are live then.

    Raises:
        CommitConflictError: they do not.
    """
    fixed = entries.filter(pc.greater(entries.column("total_buckets"), 0))
    if fixed.num_rows == 0:
        return
    counts = fixed.group_by("partition", use_threads=False).aggregate(
        [("total_buckets", "min"), ("total_buckets", "max")]
    )
    mixed = counts.filter(pc.not_equal(counts.column("total_buckets_min"), counts.column("total_buckets_max")))
    if mixed.num_rows:
        conflict = CommitConflictError(
            "partition would have two bucket counts",
            code="bucket-count",
            previous=mixed.column("total_buckets_min")[0],
            new=mixed.column("total_buckets_max")[0],
            commit_user=context.commit_user,
            hint="rescale the partition with an overwrite first",
        )
        conflict.replannable = replannable
        raise conflict


def discard_duplicates(delta: pa.Table, base: pa.Table) -> pa.Table:
    """The delta without additions of files that are already live (`commit.discard-duplicate-files`)."""
    there = pc.is_in(identities(delta), value_set=identities(base))
    return delta.filter(pc.invert(pc.and_(there, pc.equal(delta.column("kind"), ADD))))


def combine_index(
    previous: Sequence[IndexEntry], changes: Sequence[IndexChange], *, vectors_by_file: bool
) -> tuple[IndexEntry, ...]:
    """The complete list of index files after a commit.

    A bucket has one hash index. It also has one file of deletion vectors, or, in tables without buckets, several. A
    commit that replaces one must name it: a file that it does not name it has not read, so keys would be lost and
    inserted twice, or deleted rows would reappear. Other index files are identified by their names. In short, a file
    must exist to be deleted, and no other may be in its place when it is added.

    Raises:
        CommitConflictError: an index file to delete is gone, or one to add (or a vector of its data file) exists.
    """
    kept: dict[tuple[object, ...], IndexEntry] = {_index_key(each, vectors_by_file): each for each in previous}
    for change in sorted(changes, key=lambda each: each.kind == ADD):
        key = _index_key(change.entry, vectors_by_file)
        there = kept.get(key)
        if change.kind == DELETE:
            if there is None or there.file.file_name != change.entry.file.file_name:
                raise _index_conflict("index file to delete is already gone", change.entry)
            del kept[key]
        else:
            if there is not None:
                raise _index_conflict("index file to add already exists", change.entry)
            kept[key] = change.entry
    if vectors_by_file:
        _check_one_vector(kept.values(), [change.entry for change in changes if change.kind == ADD])
    return tuple(kept.values())


# ------------------------------------------------------------------------------------------------ pieces


def _merge(entries: pa.Table, message: str, context: Context) -> pa.Table:
    try:
        return merge_entries(entries)
    except FormatError as cause:
        raise CommitConflictError(
            message,
            code="file-conflict",
            **cause.facts,
            base_user=context.base_user,
            commit_user=context.commit_user,
            hint="another job changed the same files: read again and retry",
        ) from cause


def _check_levels(merged: pa.Table, context: Context) -> None:
    upper = merged.filter(pc.greater_equal(merged.column("level"), 1))
    pairs = overlapping_neighbours(
        upper.column("min_key"),
        upper.column("max_key"),
        context.key_types,
        groups=[upper.column(name) for name in ("partition", "bucket", "level")],
    )
    if pairs:
        clash = upper.take(pa.array(pairs[0]))
        raise _conflict("sorted run would hold overlapping files", "key-range", clash, context)


def _conflict(message: str, code: str, entries: pa.Table, context: Context) -> CommitConflictError:
    names = entries.column("file_name").slice(0, 50).to_pylist()
    return CommitConflictError(
        message,
        code=code,
        files=", ".join(names),
        bucket=entries.column("bucket")[0],
        level=entries.column("level")[0],
        base_user=context.base_user,
        commit_user=context.commit_user,
        hint="another job compacted or overwrote the same bucket: read again and retry, or use one compacting job",
    )


def _expired_conflict(entries: pa.Table, context: Context) -> CommitConflictError:
    return CommitConflictError(
        "rows were written to partitions that have expired",
        code=PARTITIONS_EXPIRED,
        files=", ".join(entries.column("file_name").slice(0, 50).to_pylist()),
        base_user=context.base_user,
        commit_user=context.commit_user,
        hint="leave out rows that are older than partition.expiration-time before they are written",
    )


def _index_key(entry: IndexEntry, vectors_by_file: bool) -> tuple[object, ...]:
    kind = entry.file.index_type
    if kind == HASH or (kind == DELETION_VECTORS and not vectors_by_file):
        return (entry.partition, entry.bucket, kind)
    return (entry.file.file_name,)


def _index_conflict(message: str, entry: IndexEntry) -> CommitConflictError:
    return CommitConflictError(
        message,
        code="index-conflict",
        file=entry.file.file_name,
        bucket=entry.bucket,
        hint="another job changed the same rows or files: read again and retry",
    )


_Place = tuple[bytes, int, str]
"""A data file: its partition, bucket and name."""
_VectorFiles = Mapping[_Place, str]


def _check_one_vector(entries: Iterable[IndexEntry], added: Iterable[IndexEntry]) -> None:
    """Check that data files with added vectors have no other vector; older ones were checked when they were added."""
    wanted = _vector_files(added).keys()
    buckets = {place[:2] for place in wanted}
    seen: set[_Place] = set()
    for entry in entries:
        if (entry.partition, entry.bucket) in buckets:
            for place in wanted & set(_vector_places(entry)):
                if place in seen:
                    raise _index_conflict("data file would have two deletion vectors", entry)
                seen.add(place)


def _names_vectors(entries: Iterable[IndexEntry]) -> bool:
    return any(entry.file.index_type == DELETION_VECTORS for entry in entries)


def _with_vectors(
    base: pa.Table,
    delta: pa.Table,
    base_index: Sequence[IndexEntry],
    changes: Sequence[IndexChange],
    context: Context,
) -> tuple[pa.Table, pa.Table]:
    """Make the name of the deletion-vector file part of the identity of each file that this commit concerns.

    A data file whose vector changes but that is not in the delta is deleted with the old vector and added with the new
    one. So a concurrent change of the same vector is a conflict, and so is a data file that is gone.

    Raises:
        CommitConflictError: a vector is added for a data file that another job removed.
    """
    removed = _vector_files(change.entry for change in changes if change.kind == DELETE)
    added = _vector_files(change.entry for change in changes if change.kind == ADD)
    concerned = {*_places(delta), *removed, *added}
    buckets = {place[:2] for place in concerned}
    before = _vector_files(entry for entry in base_index if (entry.partition, entry.bucket) in buckets)
    names = pa.array(sorted({name for *_, name in concerned}), pa.large_string())
    near = pc.is_in(base.column("file_name"), value_set=names)
    marked = _note_vectors(base.filter(near), before)
    lost = added.keys() - set(_places(marked)) - set(_places(delta))
    if lost:
        _, bucket, name = min(lost)
        raise CommitConflictError(
            "file with rows to delete is gone",
            code="file-deleted",
            files=name,
            bucket=bucket,
            base_user=context.base_user,
            commit_user=context.commit_user,
            hint="another job compacted or overwrote the same bucket: read again and retry",
        )
    moved = _moved_vectors(marked, delta, removed, added)
    base = pa.concat_tables([base.filter(pc.invert(near)), marked])
    gone = delta.filter(pc.equal(delta.column("kind"), DELETE))
    come = delta.filter(pc.equal(delta.column("kind"), ADD))
    # A file that only moves to another level keeps its current vector.
    stays = {*_places(gone)} & {*_places(come)} - removed.keys() - added.keys()
    along = {place: name for place, name in before.items() if place in stays}
    return base, pa.concat_tables(
        [_note_vectors(gone, {**removed, **along}), _note_vectors(come, {**added, **along}), *moved]
    )


def _vector_files(entries: Iterable[IndexEntry]) -> dict[_Place, str]:
    return {place: entry.file.file_name for entry in entries for place in _vector_places(entry)}


def _vector_places(entry: IndexEntry) -> list[_Place]:
    if entry.file.index_type != DELETION_VECTORS:
        return []
    return [(entry.partition, entry.bucket, vector.data_file) for vector in entry.file.deletion_vectors or ()]


def _places(entries: pa.Table) -> list[_Place]:
    names = ("partition", "bucket", "file_name")
    return list(zip(*(entries.column(name).to_pylist() for name in names), strict=True))


def _note_vectors(entries: pa.Table, vectors: _VectorFiles) -> pa.Table:
    """The entries, with the name of each file's vector file added to its extra files."""
    if not vectors or entries.num_rows == 0:
        return entries
    marks = [vectors.get(place) for place in _places(entries)]
    extra = entries.column("extra_files").to_pylist()
    marked = [[*files, *([f"\x00{mark}"] if mark else [])] for files, mark in zip(extra, marks, strict=True)]
    index = entries.column_names.index("extra_files")
    field = entries.schema.field(index)
    return entries.set_column(index, field, pa.array(marked, field.type))


def _moved_vectors(base: pa.Table, delta: pa.Table, removed: _VectorFiles, added: _VectorFiles) -> list[pa.Table]:
    changed = ({*removed, *added}) - set(_places(delta))
    touched = [i for i, place in enumerate(_places(base)) if place in changed]
    if not touched:
        return []
    rows = base.take(pa.array(touched))
    extra = rows.column_names.index("extra_files")
    field = rows.schema.field(extra)
    plain = [[f for f in files if not f.startswith("\x00")] for files in rows.column("extra_files").to_pylist()]
    rows = rows.set_column(extra, field, pa.array(plain, field.type))
    # The vector file that this commit replaces, not the current one: if they differ, the merge finds the lost race.
    return [_note_vectors(with_kind(rows, DELETE), removed), _note_vectors(rows, added)]
