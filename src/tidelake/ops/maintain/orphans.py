"""Orphans: files that nothing refers to, left by jobs that died, by rollbacks and by deleted branches.

A file is removed only if its name occurs in no manifest, list or document of any snapshot, tag or long-lived changelog
of any branch, and only when it is older than a day by the clock of the storage: a running job has not committed its
files yet. Everything that could make the set of used names incomplete stops the operation before it deletes anything: a
document that cannot be read, a table without any used file, commits during the search. Only folders of the table are
searched, no symbolic link is followed, and a dry run is the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import (
    CommitConflictError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from tidelake.io.fileio import FileStatus
from tidelake.notebook import pluralize
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.deletion import run_deletion
from tidelake.ops.maintain.holders import (
    BranchView,
    View,
    look,
    read_changelogs,
    read_snapshots,
    read_tags,
)
from tidelake.ops.maintain.reachable import Reader
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.layout import (
    CHANGELOG_PREFIX,
    EARLIEST,
    INDEX_DIR,
    LATEST,
    MANIFEST_DIR,
    SNAPSHOT_PREFIX,
    STATISTICS_DIR,
    parse_bucket_name,
)
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.store.table_store import TableStore

DAY_MS = 86_400_000
_TICK_MS = 1_000
"""Times of files are those of the last tick of a clock, a little behind."""
_LOOKS = 5
_CANDIDATE = pa.schema([("path", pa.large_string()), ("name", pa.large_string()), ("size", pa.int64())])
_EXTERNAL = ("data-file.external-paths", "global-index.external-path")


@dataclass(frozen=True, slots=True)
class OrphanPlan:
    """Files that nothing refers to and that are old enough, with their bytes."""

    paths: tuple[str, ...] = ()
    size: int = 0
    older_than_ms: int = 0
    left: tuple[str, ...] = ()
    """Those that the storage did not delete."""
    view: View | None = field(default=None, repr=False, compare=False)
    """What held files when the plan was made."""

    def __str__(self) -> str:
        return f"{pluralize(len(self.paths), 'orphan')}, {self.size:,} bytes"


def plan_orphans(context: TableContext, *, older_than_ms: int) -> OrphanPlan:
    """Find the files that nothing refers to.

    Args:
        context: the table, on any branch.
        older_than_ms: only files that were last written before this moment; at least a day ago.

    Raises:
        InvalidInputError: the moment is less than a day ago.
        UnsupportedError: the table keeps files in folders elsewhere.
        CommitConflictError: the table kept changing during the search.
        NotFoundError: a file that a snapshot refers to is gone, so the used files cannot be determined.
        FormatError: such a file is damaged.
    """
    store = context.store
    if older_than_ms > store.env.clock.now_ms() - DAY_MS:
        raise InvalidInputError(
            "orphans must be at least a day old, because running jobs have not committed their files yet",
            older_than_ms=older_than_ms,
            hint="choose a moment at least one day ago, such as `1 d`",
        )
    _refuse_external(context)
    # Candidates first: what is written after this listing is not among them, whatever refers to it later.
    candidates = _candidates(store, older_than_ms)
    used = _Used(store, Reader(store.manifests, context.paths))
    before = look(store)
    for _ in range(_LOOKS):
        try:
            used.add(before)
        except NotFoundError:
            after = look(store)
            if after == before:
                raise  # nothing expired: it is missing
            before = after
            continue
        after = look(store)
        if after == before:
            break
        # Names only grow, so what was used a moment ago is spared too.
        before = after
    else:
        raise CommitConflictError("table kept changing during the orphan search", hint="try at a quieter time")
    names = used.names()
    if candidates.num_rows and not len(names):
        raise CommitConflictError(
            "table refers to no file at all, so every file would be an orphan",
            table=store.env.io.root,
            hint="if the table is meant to be empty, drop it and create it again",
        )
    found = candidates.filter(pc.invert(pc.is_in(candidates.column("name"), value_set=names)))
    temporary = list(_temporary(store, before, older_than_ms))
    size = int(pc.sum(found.column("size")).as_py() or 0) + sum(each.size for each in temporary)
    orphans = (*found.column("path").to_pylist(), *(each.path for each in temporary))
    return OrphanPlan(orphans, size, older_than_ms, view=before)


def run_orphans(context: TableContext, plan: OrphanPlan) -> tuple[str, ...]:
    """Delete what was planned, and the folders that this leaves empty; returns files that stayed.

    Raises:
        CommitConflictError: the table changed since the plan was made; nothing was deleted.
        InvalidInputError: by the clock of the storage the files are younger than a day.
    """
    if not plan.paths or plan.view is None:
        return ()
    store = context.store
    if plan.older_than_ms > _storage_now_ms(store) - DAY_MS + _TICK_MS:
        raise InvalidInputError(
            "by the clock of the storage the orphans may be younger than a day", hint="check the clock of this machine"
        )
    if look(store) != plan.view:
        raise CommitConflictError("table changed since the orphan search", hint="plan again", code="plan-overtaken")
    # Checked again: a job may have written a file of the same name since.
    still = [path for path in plan.paths if _is_old(store, path, plan.older_than_ms)]
    return run_deletion(store.env, still, clean_folders=True)


def _refuse_external(context: TableContext) -> None:
    given = next((key for key in _EXTERNAL if context.table_options.get(key)), None)
    if given is not None:
        raise UnsupportedError(
            "orphans of tables with files in other folders are not removed yet",
            code="option-unsupported",
            option=given,
            hint="use Apache Paimon to remove orphans of this table",
        )


def _is_old(store: TableStore, path: str, older_than_ms: int) -> bool:
    try:
        return store.env.io.status(path).modified_ms < older_than_ms
    except (NotFoundError, FormatError):
        # Gone already, or a link that leads elsewhere.
        return False


def _storage_now_ms(store: TableStore) -> int:
    """The time by the storage's own clock, from a file that is written and removed."""
    io = store.env.io
    path = f".orphans-{store.env.ids.uuid()}.tmp"
    try:
        io.overwrite(path, b".", durable=False)
        return io.status(path).modified_ms
    finally:
        with suppress(StorageError):
            io.delete(path)


# ------------------------------------------------------------------------------------------------ used names


class _Used:
    """The names that documents of the table mention; each manifest is read once."""

    def __init__(self, store: TableStore, reader: Reader) -> None:
        self._store, self._reader = store, reader
        self._done: set[tuple[str, tuple[int, int, int]]] = set()
        self._read: set[str] = set()
        self._few: set[str] = set()
        self._many: list[pa.Array] = []

    def add(self, view: View) -> None:
        """Note what every branch uses.

        Raises:
            NotFoundError: a file that a snapshot or tag needs is gone.
            FormatError: such a file is damaged.
        """
        for branch in view.every:
            self._add_branch(branch)

    def _add_branch(self, view: BranchView) -> None:
        store = self._store
        fresh = [each for each in view.files if (view.branch, each) not in self._done]
        for snapshot in read_snapshots(store, view, [number for number, _, _ in fresh]):
            self._add(snapshot, changelog=True, lost=False)
        self._done |= {(view.branch, each) for each in fresh}
        for tag in read_tags(store, view).values():
            self._add(tag, changelog=False, lost=False)
            self._add(tag, changelog=True, lost=True)
        for changelog in read_changelogs(store, view):
            self._add(changelog, changelog=True, lost=True)

    def _add(self, snapshot: Snapshot, *, changelog: bool, lost: bool) -> None:
        reader = self._reader
        self._few |= set(map(_name, reader.list_named(snapshot, changelog=changelog)))
        reads = [reader.base, reader.delta, *([reader.changelog] if changelog else [])]
        for read in reads:
            try:
                self._add_manifests(read(snapshot))
            except NotFoundError:
                # Of a changelog, and of the changelog of a tag, expiry leaves only what is still needed.
                if not lost:
                    raise
        try:
            self._few |= set(map(_name, reader.index(snapshot)))
        except NotFoundError:
            if not lost:
                raise

    def _add_manifests(self, metas: tuple[ManifestMeta, ...]) -> None:
        fresh = [meta for meta in metas if meta.file_name not in self._read]
        if not fresh:
            return
        self._few |= {meta.file_name for meta in fresh}
        entries = self._reader.manifests.read_entries(fresh, columns=["file_name", "extra_files"])
        self._many += [
            pc.unique(entries.column("file_name")),
            pc.unique(pc.list_flatten(entries.column("extra_files"))),
        ]
        self._read |= {meta.file_name for meta in fresh}

    def names(self) -> pa.Array:
        """All names so far."""
        arrays = [pa.array(sorted(self._few), pa.large_string()), *self._many]
        return pc.unique(pa.concat_arrays([each.cast(pa.large_string()) for each in arrays]))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


# ------------------------------------------------------------------------------------------------ candidates


def _candidates(store: TableStore, older_than_ms: int) -> pa.Table:
    """The old files in every folder of data and metadata, as far as they are plain files."""
    found = [each for each in _list_stored(store) if not each.is_dir and each.modified_ms < older_than_ms]
    columns = ([each.path for each in found], [each.name for each in found], [each.size for each in found])
    arrays = [pa.array(values, dtype) for values, dtype in zip(columns, _CANDIDATE.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_CANDIDATE)


def _list_stored(store: TableStore) -> Iterator[FileStatus]:
    for folder in (MANIFEST_DIR, INDEX_DIR, STATISTICS_DIR):
        yield from store.env.io.list(folder)
    yield from _buckets(store, store.layout.partition_dir(""), len(store.schema.partition_keys))


def _buckets(store: TableStore, folder: str, depth: int) -> Iterator[FileStatus]:
    for each in store.env.io.list(folder):
        if not each.is_dir:
            continue
        if depth == 0 and parse_bucket_name(each.name) is not None:
            yield from store.env.io.list(each.path)
        elif depth and "=" in each.name:
            yield from _buckets(store, each.path, depth - 1)


def _temporary(store: TableStore, view: View, older_than_ms: int) -> Iterator[FileStatus]:
    """Old files among the snapshots and changelogs that are none: what a publish that died has left."""
    for branch in view.every:
        folders = ((branch.layout.snapshot_dir, SNAPSHOT_PREFIX), (branch.layout.changelog_dir, CHANGELOG_PREFIX))
        for folder, prefix in folders:
            for each in store.env.io.list(folder):
                known = each.name.startswith(prefix) or each.name in (LATEST, EARLIEST)
                if not each.is_dir and not known and each.modified_ms < older_than_ms:
                    yield each
