"""The files that a snapshot refers to, as paths relative to the table, and set operations on tables of files.

Metadata files are few and are sets of paths. Data files are many and stay columnar: a table of files has the path of
each and when it was made, the extra files of a data file in rows of their own. Files outside the table's folder are not
in it: maintenance never deletes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import FormatError, NotFoundError
from tidelake.ops.scan.plan import changelog_manifests, data_manifests, delta_manifests, live_entries, read_changes
from tidelake.spec.data_file import FileSource
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.spec.manifests.manifest import ADD
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.store.manifests import ManifestStore
from tidelake.store.paths import DataPaths

FILES = pa.schema([("path", pa.large_string()), ("made_ms", pa.int64())])
"""The columns of a table of files. `made_ms` is null if the entry has no creation time."""

COLUMNS = (
    "kind",
    "partition",
    "bucket",
    "file_name",
    "extra_files",
    "external_path",
    "creation_time_ms",
    "file_source",
)
"""The columns of manifest entries that the path of a file depends on, and when and how it was written."""

# Times of files are local times of their writers, those of snapshots are not, and clocks disagree.
_CLOCKS_APART_MS = 2 * 86_400_000


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads manifest lists and index manifests, each once."""

    manifests: ManifestStore
    paths: DataPaths
    _lists: dict[str, tuple[ManifestMeta, ...]] = field(default_factory=dict, repr=False)
    _index: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)

    # -------------------------------------------------------------------------------------------- metadata

    def metadata(self, snapshot: Snapshot, *, changelog: bool = True) -> frozenset[str]:
        """Every metadata and index file that a snapshot reaches.

        Args:
            snapshot: a snapshot, or what a tag keeps of one.
            changelog: also the list of its changelog manifests and those; a tag does not keep them.

        Raises:
            NotFoundError: one of the lists is gone.
            FormatError: one of them is damaged.
        """
        reads: list[Callable[[], tuple[ManifestMeta, ...]]] = [partial(self.data, snapshot)]
        if changelog:
            reads.append(partial(self.changelog, snapshot))
        names = (meta.file_name for read in reads for meta in read())
        return (
            self.list_named(snapshot, changelog=changelog) | self.index(snapshot) | {self._manifest(n) for n in names}
        )

    def metadata_of_lost(self, snapshot: Snapshot, *, changelog: bool = True) -> frozenset[str]:
        """The same for a snapshot of which some files may be gone or damaged: those that can be found."""
        reads: list[Callable[[], Iterable[str]]] = [
            lambda: (self._manifest(meta.file_name) for meta in self.base(snapshot)),
            lambda: (self._manifest(meta.file_name) for meta in self.delta(snapshot)),
            lambda: self.index(snapshot),
        ]
        if changelog:
            reads.append(lambda: (self._manifest(meta.file_name) for meta in self.changelog(snapshot)))
        found: set[str] = set(self.list_named(snapshot, changelog=changelog))
        for read in reads:
            try:
                found.update(read())
            except (NotFoundError, FormatError):
                continue
        return frozenset(found)

    def kept_metadata(self, changelog: Snapshot, *, reads_data: bool) -> frozenset[str]:
        """What a long-lived changelog holds: its lists and manifests, or those of its changelog files alone."""
        return self.readable_metadata(changelog) if reads_data else self.changelog_metadata(changelog)

    def readable_metadata(self, changelog: Snapshot) -> frozenset[str]:
        """The manifest lists of a long-lived changelog that are there, and the manifests in them."""
        found: set[str] = set()
        lists = (
            (changelog.base_manifest_list, self.base),
            (changelog.delta_manifest_list, self.delta),
            (changelog.changelog_manifest_list, self._changelog),
        )
        for name, read in lists:
            # Ask the storage: a cached list may be gone.
            if name is None or not self.manifests.io.exists(self._manifest(name), folder=False):
                continue
            try:
                metas = read(changelog)
            except NotFoundError:
                continue
            except FormatError:
                metas = ()
            found |= {self._manifest(name), *(self._manifest(meta.file_name) for meta in metas)}
        return frozenset(found)

    def beside(self, snapshot: Snapshot) -> frozenset[str]:
        """The index files and statistics of a snapshot, as far as they can be read."""
        found = {self._manifest(snapshot.index_manifest)} if snapshot.index_manifest is not None else set()
        if snapshot.statistics is not None:
            found.add(self.manifests.layout.statistics_path(snapshot.statistics))
        with suppress(NotFoundError, FormatError):
            found |= self.index(snapshot)
        return frozenset(found)

    def changelog_metadata(self, snapshot: Snapshot) -> frozenset[str]:
        """The list of the manifests of its changelog files, and those, as far as they can be read."""
        name = snapshot.changelog_manifest_list
        if name is None:
            return frozenset()
        try:
            return frozenset(
                {self._manifest(name), *(self._manifest(meta.file_name) for meta in self.changelog(snapshot))}
            )
        except FormatError:
            return frozenset({self._manifest(name)})

    def list_named(self, snapshot: Snapshot, *, changelog: bool = True) -> frozenset[str]:
        """List the files that the snapshot's own document names, without reading any."""
        names = [snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.index_manifest]
        names += [snapshot.changelog_manifest_list] if changelog else []
        found = {self._manifest(name) for name in names if name is not None}
        if snapshot.statistics is not None:
            found.add(self.manifests.layout.statistics_path(snapshot.statistics))
        return frozenset(found)

    def index(self, snapshot: Snapshot) -> frozenset[str]:
        """The index files of a snapshot.

        Raises:
            NotFoundError: the index manifest is gone.
            FormatError: it is damaged.
        """
        name = snapshot.index_manifest
        if name is None:
            return frozenset()
        if name not in self._index:
            entries = self.manifests.read_index(name)
            self._index[name] = frozenset(
                self.paths.index(entry.partition, entry.bucket, entry.file.file_name)
                for entry in entries
                if entry.file.external_path is None
            )
        return self._index[name]

    def base(self, snapshot: Snapshot) -> tuple[ManifestMeta, ...]:
        """The manifests of the state before."""
        name = snapshot.base_manifest_list
        return self._list(name, lambda: self.manifests.read_list(name, size=snapshot.base_manifest_list_size_bytes))

    def delta(self, snapshot: Snapshot) -> tuple[ManifestMeta, ...]:
        """The manifests of the snapshot's own change."""
        return self._list(snapshot.delta_manifest_list, lambda: delta_manifests(self.manifests, snapshot))

    def data(self, snapshot: Snapshot) -> tuple[ManifestMeta, ...]:
        """The manifests of its state."""
        return (*self.base(snapshot), *self.delta(snapshot))

    def changelog(self, snapshot: Snapshot) -> tuple[ManifestMeta, ...]:
        """The manifests of its changelog files; none where a tag brought the snapshot back without its changelog."""
        try:
            return self._changelog(snapshot)
        except NotFoundError:
            return ()

    def _changelog(self, snapshot: Snapshot) -> tuple[ManifestMeta, ...]:
        name = snapshot.changelog_manifest_list
        return () if name is None else self._list(name, lambda: changelog_manifests(self.manifests, snapshot))

    def _list(self, name: str, read: Callable[[], tuple[ManifestMeta, ...]]) -> tuple[ManifestMeta, ...]:
        if name not in self._lists:
            self._lists[name] = read()
        return self._lists[name]

    def _manifest(self, name: str) -> str:
        return self.manifests.layout.manifest_path(name)

    # -------------------------------------------------------------------------------------------- data files

    def live(self, snapshot: Snapshot) -> pa.Table:
        """The data files of a snapshot's state.

        Raises:
            NotFoundError: a manifest is gone.
            FormatError: one is damaged.
        """
        return self.locate_entries(
            live_entries(self.manifests, data_manifests(self.manifests, snapshot), columns=COLUMNS)
        )

    def read_added(self, metas: Sequence[ManifestMeta]) -> pa.Table:
        """The data files that manifests add.

        Raises:
            NotFoundError: a manifest is gone.
            FormatError: one is damaged.
        """
        entries = self.changes(metas)
        return self.locate_entries(entries.filter(pc.equal(entries.column("kind"), ADD)))

    def changes(self, metas: Sequence[ManifestMeta]) -> pa.Table:
        """The entries of manifests as they stand.

        Raises:
            NotFoundError: a manifest is gone.
            FormatError: one is damaged.
        """
        return read_changes(self.manifests, metas, columns=COLUMNS)

    def locate_entries(self, entries: pa.Table) -> pa.Table:
        """Return the paths of the files of entries, with extra files, without files outside the table."""
        return locate(entries, self.paths).select(FILES.names)


def locate(entries: pa.Table, paths: DataPaths) -> pa.Table:
    """Path, time and number of the entry of each file, extra files in rows of their own."""
    inside = pa.array(np.flatnonzero(pc.is_null(entries.column("external_path")).to_numpy()), pa.int64())
    entries = entries.take(inside).combine_chunks()
    folders = _folders(entries, paths)
    names, extra = entries.column("file_name"), entries.column("extra_files")
    owners = pc.list_parent_indices(extra)
    slash = pa.scalar("/", pa.large_string())
    own = pc.binary_join_element_wise(folders, names, slash)
    more = pc.binary_join_element_wise(folders.take(owners), pc.list_flatten(extra), slash)
    made = entries.column("creation_time_ms")
    made = made.cast(pa.int64()) if made.type != pa.int64() else made
    parts = [
        pa.table({"path": own, "made_ms": made, "entry": inside}),
        pa.table({"path": more, "made_ms": made.take(owners), "entry": inside.take(owners)}),
    ]
    return pa.concat_tables(parts)


def _folders(entries: pa.Table, paths: DataPaths) -> pa.ChunkedArray:
    """The bucket folder of each entry; a path is made once for each bucket."""
    keys = entries.select(["partition", "bucket"])
    groups = keys.group_by(["partition", "bucket"], use_threads=False).aggregate([])
    known = [
        paths.bucket(partition, bucket)
        for partition, bucket in zip(
            groups.column("partition").to_pylist(), groups.column("bucket").to_pylist(), strict=True
        )
    ]
    table = groups.append_column("folder", pa.array(known, pa.large_string()))
    numbered = keys.append_column("row", pa.array(np.arange(keys.num_rows)))
    joined = numbered.join(table, keys=["partition", "bucket"], use_threads=False)
    return joined.take(pc.sort_indices(joined.column("row"))).column("folder")


def made_by_compactions(entries: pa.Table) -> pa.Array:
    """Which entries are files that compactions wrote; for entries of old writers this is unknown, so False."""
    return pc.fill_null(pc.equal(entries.column("file_source"), FileSource.COMPACT), False)


def no_files() -> pa.Table:
    """A table of files without rows."""
    return FILES.empty_table()


def union(tables: Iterable[pa.Table]) -> pa.Table:
    """All rows of tables of files."""
    found = [table.select(FILES.names) for table in tables]
    return pa.concat_tables(found) if found else no_files()


def without(files: pa.Table, held: pa.Table | pa.Array | pa.ChunkedArray) -> pa.Table:
    """The files that are not held."""
    paths = held.column("path") if isinstance(held, pa.Table) else held
    if not files.num_rows or not len(paths):
        return files
    return files.filter(pc.invert(pc.is_in(files.column("path"), value_set=_flat(paths))))


def _flat(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    return paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths


def dead_files(deltas: Sequence[pa.Table], paths: DataPaths) -> tuple[pa.Table, int]:
    """The files that changes, oldest first, leave deleted, and how many of them are outside the table.

    A change that deletes a path and adds it again only moves the file to another level: the addition wins, in whatever
    order the two are written. A file that a later change adds again is alive.
    """
    entries = pa.concat_tables(deltas) if deltas else None
    if entries is None or not entries.num_rows:
        return no_files(), 0
    change = np.repeat(np.arange(len(deltas)), [delta.num_rows for delta in deltas])
    kinds = entries.column("kind").to_numpy()
    rank = change * 2 + (kinds == ADD)
    found = locate(entries, paths)
    found = found.append_column("rank", pa.array(rank[found.column("entry").to_numpy()]))
    newest = found.group_by("path", use_threads=False).aggregate([("rank", "max"), ("made_ms", "min")])
    dead = newest.filter(pc.equal(pc.bit_wise_and(newest.column("rank_max"), 1), 0))
    outside = pc.and_(pc.is_valid(entries.column("external_path")), pc.not_equal(entries.column("kind"), ADD))
    external = int(pc.sum(outside).as_py() or 0)
    return pa.table({"path": dead.column("path"), "made_ms": dead.column("made_ms_min")}, schema=FILES), external


def may_hold(files: pa.Table, snapshot: Snapshot) -> bool:
    """Whether a state could hold any of the files: it cannot, if all of them were made after its commit."""
    if not files.num_rows:
        return False
    made = files.column("made_ms")
    return bool(made.null_count) or pc.min(made).as_py() - _CLOCKS_APART_MS <= snapshot.time_ms
