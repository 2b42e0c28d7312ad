"""May this change go on top of that state? Pure checks over entries tables; the first that fails wins.

`base` holds the live files of the partitions that change. Level 0 may overlap freely, so appends never conflict with
each other; what conflicts is deleting a file that is gone, adding one that is there, two bucket counts in one
partition, and sorted runs whose key ranges would overlap.

The base is only looked at by vector operations. Python loops run over what the commit itself brings: its index files
and the base's rows for the data files they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitConflictError, FormatError
from tidelake.ops.commit.changes import Changes, IndexChange
from tidelake.spec.index_manifest import DELETION_VECTORS, HASH, IndexEntry
from tidelake.spec.key_order import overlapping_neighbours
from tidelake.spec.manifest import (
    ADD,
    DELETE,
    IDENTITY_COLUMNS,
    identities,
    merge_entries,
    repeated_identity,
    with_kind,
)
from tidelake.spec.types import DataType

CONFLICT_COLUMNS = ("kind", *IDENTITY_COLUMNS, "total_buckets", "min_key", "max_key")
"""What the checks look at; nothing else of the base is read."""

KEYS_MOVED = "keys-moved"
"""Code of the conflict that writing again solves: another commit reached keys that move between partitions first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who commits onto what: for the checks and for the words of a refusal."""

    base_user: str
    commit_user: str
    overwrite: bool
    key_types: Sequence[DataType]
    ordered_levels: bool


def check_conflicts(base: pa.Table, changes: Changes, base_index: Sequence[IndexEntry], context: Context) -> None:
    """Raise if the changes contradict the state they would be put on.

    Raises:
        CommitConflictError: what is wrong and who was faster.
    """
    base = base.select(CONFLICT_COLUMNS)
    delta = changes.delta.select(CONFLICT_COLUMNS)
    if _names_vectors(base_index) or _names_vectors(change.entry for change in changes.index):
        base, delta = _with_vectors(base, delta, base_index, changes.index, context)
    if not context.overwrite:
        check_bucket_counts(pa.concat_tables([base, delta]), context)
    twice = repeated_identity(delta)
    if twice is not None:
        # Readers may collect the deletions first, whatever the order: a file both deleted and added would be lost.
        raise CommitConflictError(
            "commit names one file twice",
            code="file-conflict",
            file=delta.column("file_name")[twice],
            bucket=delta.column("bucket")[twice],
            commit_user=context.commit_user,
            hint="give a file that is written anew a name of its own",
        )
    merged = _merge(
        pa.concat_tables([base, delta]), "file to add is already there, or to delete is already gone", context
    )
    left = pc.equal(merged.column("kind"), DELETE)
    if pc.any(left).as_py():
        gone = merged.filter(left)
        raise _conflict("file to delete is already gone", "file-deleted", gone, context)
    if context.ordered_levels:
        _check_levels(merged, context)


def check_bucket_counts(entries: pa.Table, context: Context) -> None:
    """All files of a partition with real buckets must agree on how many there are.

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
        raise CommitConflictError(
            "partition would have two bucket counts",
            code="bucket-count",
            previous=mixed.column("total_buckets_min")[0],
            new=mixed.column("total_buckets_max")[0],
            commit_user=context.commit_user,
            hint="rescale the partition with an overwrite first",
        )


def discard_duplicates(delta: pa.Table, base: pa.Table) -> pa.Table:
    """The delta without additions of files that are already live (`commit.discard-duplicate-files`)."""
    there = pc.is_in(identities(delta), value_set=identities(base))
    return delta.filter(pc.invert(pc.and_(there, pc.equal(delta.column("kind"), ADD))))


def combine_index(
    previous: Sequence[IndexEntry], changes: Sequence[IndexChange], *, vectors_by_file: bool
) -> tuple[IndexEntry, ...]:
    """The complete list of index files after a commit.

    A bucket has one hash index. Of deletion vectors it has one file too, or, without buckets, several. Who replaces one
    has to name it: what it does not name it has not seen, so that keys would be forgotten and come twice, or deleted
    rows would come back to life. All the rest is known by its file name. In short, a file must be there to be deleted,
    and its place free for one to be added.

    Raises:
        CommitConflictError: an index file to delete is gone, or one to add (or its data file's vector) is there.
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
                raise _index_conflict("index file to add is already there", change.entry)
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
    """The data files of the added vectors must have no other; those of before were checked when they came."""
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
    """Make the name of its deletion-vector file part of each file's identity, where this commit concerns it.

    A data file whose vector changes but which is not in the delta itself is deleted with the old vector and added with
    the new one, so that a concurrent change of the same vector collides, and so does a file that is gone.

    Raises:
        CommitConflictError: rows are marked of a file that another job removed.
    """
    removed = _vector_files(change.entry for change in changes if change.kind == DELETE)
    added = _vector_files(change.entry for change in changes if change.kind == ADD)
    concerned = {*_places(delta), *removed, *added}
    buckets = {place[:2] for place in concerned}
    before = _vector_files(entry for entry in base_index if (entry.partition, entry.bucket) in buckets)
    names = pa.array(sorted({name for *_, name in concerned}), pa.large_string())
    near = pc.is_in(base.column("file_name"), value_set=names)
    marked = _marked(base.filter(near), before)
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
    # A file that only moves to another level takes its vector along, whichever that is now.
    stays = {*_places(gone)} & {*_places(come)} - removed.keys() - added.keys()
    along = {place: name for place, name in before.items() if place in stays}
    return base, pa.concat_tables([_marked(gone, {**removed, **along}), _marked(come, {**added, **along}), *moved])


def _vector_files(entries: Iterable[IndexEntry]) -> dict[_Place, str]:
    return {place: entry.file.file_name for entry in entries for place in _vector_places(entry)}


def _vector_places(entry: IndexEntry) -> list[_Place]:
    if entry.file.index_type != DELETION_VECTORS:
        return []
    return [(entry.partition, entry.bucket, vector.data_file) for vector in entry.file.deletion_vectors or ()]


def _places(entries: pa.Table) -> list[_Place]:
    names = ("partition", "bucket", "file_name")
    return list(zip(*(entries.column(name).to_pylist() for name in names), strict=True))


def _marked(entries: pa.Table, vectors: _VectorFiles) -> pa.Table:
    """The entries with the vector file of each, if it has one, noted among its extra files."""
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
    # What this commit believes the vector file to be, not what it is now: that is how a lost race shows.
    return [_marked(with_kind(rows, DELETE), removed), _marked(rows, added)]
