"""Check a table against its invariants. Reads all its metadata, changes nothing.

I1  snapshot ids are dense from the earliest to the latest
I2  every file that a snapshot reaches exists, with the recorded size
I3  the manifests of each snapshot replay to a live set; its base is the state of the snapshot before
I4  record counts add up
I5  sorted runs do not overlap; sequence ranges of level-0 files of a bucket are disjoint (else a warning)
I6  key hashes are in the hash index of one dynamic bucket of their partition, and every such bucket has one
I7  deletion vectors belong to live files, one to a file, and have as many positions as they say, all within the file
I9  schemas exist, and field ids are unique and within bounds
I10 files that nothing refers to are listed (a remark: they may belong to a running job)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, NotFoundError, TidelakeError, UnsupportedError
from tidelake.io.fileio import FileIO
from tidelake.notebook import html_card, html_table, plain
from tidelake.ops.context import TableContext
from tidelake.ops.maintain.expire import ExpireOptions, streams_read_data
from tidelake.ops.maintain.finding import Finding, Severity
from tidelake.ops.maintain.reachable import Reader, made_by_compactions
from tidelake.ops.scan.deletion_vectors import snapshot_vectors
from tidelake.ops.scan.plan import changelog_manifests, data_manifests, delta_manifests, live_entries, read_changes
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.documents.tag import tag_from_json
from tidelake.spec.layout import (
    BRANCH_DIR,
    BRANCH_PREFIX,
    INDEX_DIR,
    MANIFEST_DIR,
    STATISTICS_DIR,
    TAG_PREFIX,
    parse_bucket_name,
    parse_named,
)
from tidelake.spec.manifests.index_manifest import DeletionVectorRange
from tidelake.spec.manifests.manifest import ADD, DELETE, identities, merge_entries
from tidelake.spec.names import MAIN_BRANCH
from tidelake.spec.rows.key_order import overlapping_neighbours
from tidelake.spec.schemas.schema import schema_violations
from tidelake.store.deletion_vectors import FileVector, read_vector
from tidelake.store.external import open_external
from tidelake.store.paths import DataPaths
from tidelake.store.schemas import SchemaStore
from tidelake.store.table_store import TableStore

__all__ = ["CheckReport", "Finding", "Severity", "check_table"]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check looked at and found."""

    table: str
    snapshots: int
    files: int
    findings: tuple[Finding, ...] = ()
    orphans: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no error was found; warnings and remarks do not count."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def summary(self) -> str:
        """The outcome in one line."""
        outcome = "ok" if self.ok else f"{len(self.errors)} {'error' if len(self.errors) == 1 else 'errors'}"
        counts = f"{self.snapshots} snapshots, {self.files} files, {len(self.orphans)} orphans"
        return f"{plain(self.table)}: {outcome} ({counts})"

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"  {finding}" for finding in self.findings)])

    def __repr__(self) -> str:
        return f"CheckReport({self.summary})"

    def _repr_html_(self) -> str:
        rows = ((f.severity.value, f.invariant, f.place, f.message) for f in self.findings)
        return html_card(self.summary, (), html_table(("severity", "invariant", "place", "message"), rows))


LOOKS_MAX: Final = 10
"""How often a table is checked again because its newest snapshot expired during the check."""
_Before = tuple[Snapshot, pa.Table]
"""The snapshot before and its live files."""


@dataclass(slots=True)
class _Walk:
    """What the walk over the snapshots collects."""

    holder: str = ""
    """The snapshot, tag or changelog that is being checked."""
    found: list[tuple[Finding, str]] = field(default_factory=list)
    """Findings, each with its holder."""
    reached: dict[str, str] = field(default_factory=dict)
    """The last holder of each file: snapshots come oldest first, and expire in that order."""
    sizes: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    """Files that may be there or not."""
    hashed: set[tuple[str, ...]] = field(default_factory=set)
    """The hash indexes of partitions that were checked, by the names of their files."""
    external: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Sizes and last holders of the files outside the table, by their addresses."""

    def reach(self, paths: Iterable[str]) -> None:
        self.reached.update(dict.fromkeys(paths, self.holder))

    def error(self, invariant: str, message: str, place: str) -> None:
        self.found.append((Finding(invariant, Severity.ERROR, message, place), self.holder))

    def warn(self, invariant: str, message: str, place: str) -> None:
        self.found.append((Finding(invariant, Severity.WARNING, message, place), self.holder))

    def collect_findings(self, io: FileIO) -> tuple[Finding, ...]:
        """The findings of holders that still exist: those that expired during the check may lack files."""
        there = {holder: not holder or io.exists(holder, folder=False) for _, holder in self.found}
        return tuple(finding for finding, holder in self.found if there[holder])


def check_table(context: TableContext, *, deep: bool = False) -> CheckReport:
    """Check every invariant that can be checked without reading rows.

    Snapshots, tags and changelogs that are deleted during the check are left out. If the newest snapshot is one of
    them, the table is checked again.

    Args:
        context: the table.
        deep: also check sorted runs, deletion vectors and hash indexes of every snapshot, not only of the newest.
    """
    # Without caches: the check must see what is stored now.
    store = context.store
    store = replace(store, env=replace(store.env, cache=None), manifests=replace(store.manifests, cache=None))
    context = replace(context, store=store)
    for _ in range(LOOKS_MAX - 1):
        report, newest = _check_once(context, deep=deep)
        if newest is None or store.snapshots.exists(newest):
            return report
    return _check_once(context, deep=deep)[0]


def _check_once(context: TableContext, *, deep: bool) -> tuple[CheckReport, int | None]:
    """The report, and the newest snapshot that was checked."""
    walk, store = _Walk(), context.store
    ids, state = _check_branch(context, walk, deep=deep)
    for branch in _branches(store):
        _check_branch(replace(context, store=branch), walk, deep=deep)
    orphans = _check_files(store, walk)
    files = 0 if state is None else state.num_rows
    report = CheckReport(store.env.io.root, len(ids), files, walk.collect_findings(store.env.io), tuple(orphans))
    return report, ids[-1] if ids else None


def _check_branch(context: TableContext, walk: _Walk, *, deep: bool) -> tuple[list[int], pa.Table | None]:
    """Check the schemas, snapshots and tags of one branch; returns its snapshot ids and its newest live files."""
    store, paths = context.store, context.paths
    walk.holder = ""
    _check_schemas(store, walk)
    ids = _check_dense(store, walk)
    before: _Before | None = None
    state: pa.Table | None = None
    outlived = _keeps_changelogs(context) and streams_read_data(context)
    for snapshot_id in ids:
        walk.holder = place = store.layout.snapshot_path(snapshot_id)
        try:
            snapshot = store.snapshots.get(snapshot_id)
            state = _check_snapshot(context, walk, before, snapshot, place)
            changelog = read_changes(store.manifests, changelog_manifests(store.manifests, snapshot))
        except TidelakeError as error:
            walk.error("I3", str(error), place)
            before, state = None, None
            continue
        before = (snapshot, state)
        _reach_data(walk, state, paths)
        _reach_data(walk, changelog, paths)
        if outlived:
            _reach_kept(context, walk, snapshot)
        if deep or snapshot_id == ids[-1]:
            _check_runs(store, walk, state, place)
            _check_indexes(context, walk, snapshot, state, place)
    _check_tags(context, walk)
    _check_changelogs(context, walk)
    return ids, state


def _keeps_changelogs(context: TableContext) -> bool:
    """Whether changelogs of the table outlive their snapshots; not where the options that say so are wrong."""
    try:
        return context.table_options.of(ExpireOptions).keeps_changelogs_longer
    except InvalidInputError:
        return False


def _check_changelogs(context: TableContext, walk: _Walk) -> None:
    """Check that the files that streams read of long-lived changelogs exist; their other files may be gone."""
    store, reads_data = context.store, streams_read_data(context)
    for changelog_id in store.changelogs.ids():
        walk.holder = place = store.layout.changelog_path(changelog_id)
        try:
            changelog = store.changelogs.get(changelog_id)
            metas = list(changelog_manifests(store.manifests, changelog))
            needed = changelog.commit_kind is CommitKind.APPEND and reads_data
            metas += delta_manifests(store.manifests, changelog) if needed else ()
            entries = read_changes(store.manifests, metas)
        except TidelakeError as error:
            walk.error("I2", str(error), place)
            continue
        _reach_data(walk, entries.filter(pc.equal(entries.column("kind"), ADD)), context.paths)
        lists = (changelog.changelog_manifest_list, changelog.delta_manifest_list if needed else None)
        names = (*(meta.file_name for meta in metas), *(each for each in lists if each is not None))
        walk.reach(map(store.layout.manifest_path, names))
        if reads_data:
            _reach_kept(context, walk, changelog)


def _reach_kept(context: TableContext, walk: _Walk, changelog: Snapshot) -> None:
    """Note the other files of a changelog: if they exist they are not orphans, if not they are not missing."""
    reader = Reader(context.store.manifests, context.paths)
    walk.kept |= reader.readable_metadata(changelog)
    try:
        entries = reader.changes(reader.delta(changelog))
    except TidelakeError:
        return
    walk.kept.update(
        reader.locate_entries(entries.filter(pc.invert(made_by_compactions(entries)))).column("path").to_pylist()
    )


def _check_tags(context: TableContext, walk: _Walk) -> None:
    store = context.store
    for each in store.env.io.list(store.layout.tag_dir):
        if each.is_dir or parse_named(each.name, TAG_PREFIX) is None:
            continue
        walk.holder = each.path
        try:
            tag = tag_from_json(store.env.io.read(each.path, limit=16 << 20), path=each.path)
            # Expiry keeps the state of a tagged snapshot, but neither its changelog files nor the list of them.
            snapshot = replace(tag.snapshot, changelog_manifest_list=None)
            state = _check_snapshot(context, walk, None, snapshot, each.path)
        except TidelakeError as error:
            walk.error("I3", str(error), each.path)
            continue
        _reach_data(walk, state, context.paths)


def _branches(store: TableStore) -> Iterator[TableStore]:
    """The stores of the other branches, which share the folders of manifests and data with the main branch."""
    if store.layout.branch != MAIN_BRANCH:
        return
    io = store.env.io
    for each in io.list(BRANCH_DIR):
        name = parse_named(each.name, BRANCH_PREFIX)
        if each.is_dir and name is not None:
            layout = replace(store.layout, branch=name)
            yield store.on_branch(layout, SchemaStore(io, layout))


# ------------------------------------------------------------------------------------------------ documents


def _check_schemas(store: TableStore, walk: _Walk) -> None:
    ids = store.schemas.ids()
    if not ids:
        walk.error("I9", "table has no schema", "schema")
    for schema_id in ids:
        place = f"schema-{schema_id}"
        try:
            schema = store.schemas.get(schema_id)
        except TidelakeError as error:
            walk.error("I9", str(error), place)
            continue
        for violation in schema_violations(schema):
            walk.warn("I9", str(violation), place)


def _check_dense(store: TableStore, walk: _Walk) -> list[int]:
    """The ids of the snapshots; gaps and wrong hints are reported only if the ids no longer change."""
    ids = store.snapshots.ids()
    for _ in range(LOOKS_MAX):
        gaps = [(one + 1, other - 1) for one, other in pairwise(ids) if other > one + 1]
        found = (store.snapshots.earliest_id(), store.snapshots.latest_id())
        wanted = (ids[0], ids[-1]) if ids else (None, None)
        if not gaps and found == wanted:
            return ids
        before, ids = ids, store.snapshots.ids()
        if ids == before:
            break
    else:
        return ids  # they kept changing; the last ones are checked
    if gaps:
        missing = ", ".join(f"{first} to {last}" if last > first else f"{first}" for first, last in gaps[:10])
        walk.error("I1", f"snapshots are missing between the earliest and the latest: {missing}", "snapshot")
    if found != wanted:
        walk.error("I1", f"hints lead to {found} instead of {wanted}", "snapshot")
    return ids


def _check_snapshot(
    context: TableContext, walk: _Walk, before: _Before | None, snapshot: Snapshot, place: str
) -> pa.Table:
    store, manifests = context.store, context.store.manifests
    previous = before[0] if before else None
    store.schemas.get(snapshot.schema_id)
    metas = data_manifests(manifests, snapshot)
    state = live_entries(manifests, metas)
    delta = read_changes(manifests, delta_manifests(manifests, snapshot))
    _reach_metadata(context, walk, snapshot, [m.file_name for m in (*metas, *changelog_manifests(manifests, snapshot))])
    for schema_id in state.column("schema_id").unique().to_pylist():
        store.schemas.get(schema_id)
    _check_counts(walk, previous, snapshot, state, delta, place)
    if before is not None and previous is not None and snapshot.id == previous.id + 1:
        replayed = merge_entries(pa.concat_tables([before[1], delta]))
        if _identity_set(replayed) != _identity_set(state):
            walk.error("I3", "the state is not that of the snapshot before plus its own change", place)
        if snapshot.time_ms < previous.time_ms:
            walk.warn("I1", "commit time is earlier than that of the previous snapshot", place)
    return state


def _check_counts(
    walk: _Walk, previous: Snapshot | None, snapshot: Snapshot, state: pa.Table, delta: pa.Table, place: str
) -> None:
    rows = _rows(delta, ADD) - _rows(delta, DELETE)
    if snapshot.delta_record_count is not None and snapshot.delta_record_count != rows:
        walk.error("I4", f"delta record count is {snapshot.delta_record_count}, its files have {rows}", place)
    total = int(pc.sum(state.column("row_count")).as_py() or 0)
    if snapshot.total_record_count is not None and snapshot.total_record_count != total:
        walk.error("I4", f"total record count is {snapshot.total_record_count}, its files have {total}", place)
    mark = previous.watermark if previous else None
    # A return to an older snapshot (`rollback_to(as_latest=True)`) brings its watermark back.
    returns = snapshot.commit_kind is CommitKind.OVERWRITE
    if mark is not None and not returns and (snapshot.watermark is None or snapshot.watermark < mark):
        walk.warn("I4", "watermark fell", place)


def _reach_metadata(context: TableContext, walk: _Walk, snapshot: Snapshot, manifests: Iterable[str]) -> None:
    store, layout = context.store, context.store.layout
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
    walk.reach(map(layout.manifest_path, (*manifests, *(each for each in lists if each))))
    if snapshot.statistics:
        walk.reach([layout.statistics_path(snapshot.statistics)])
    if snapshot.index_manifest:
        walk.reach([layout.manifest_path(snapshot.index_manifest)])
        for entry in store.manifests.read_index(snapshot.index_manifest):
            if entry.file.external_path is None:
                path = context.paths.index(entry.partition, entry.bucket, entry.file.file_name)
                walk.reach([path])
                walk.sizes[path] = entry.file.file_size


# ------------------------------------------------------------------------------------------------ data files


def _reach_data(walk: _Walk, state: pa.Table, paths: DataPaths) -> None:
    inside = state.filter(pc.is_null(state.column("external_path")))
    outside = state.filter(pc.is_valid(state.column("external_path")))
    addresses, sizes = (outside.column(name).to_pylist() for name in ("external_path", "file_size"))
    walk.external.update((address, (size, walk.holder)) for address, size in zip(addresses, sizes, strict=True))
    folders: dict[tuple[bytes, int], str] = {}
    columns = ("partition", "bucket", "file_name", "file_size", "extra_files")
    for partition, bucket, name, size, extra in zip(*(inside.column(c).to_pylist() for c in columns), strict=True):
        if (partition, bucket) not in folders:
            folders[partition, bucket] = paths.bucket(partition, bucket)
        folder = folders[partition, bucket]
        walk.sizes[f"{folder}/{name}"] = size
        walk.reach(f"{folder}/{each}" for each in (name, *extra))


def _check_indexes(context: TableContext, walk: _Walk, snapshot: Snapshot, state: pa.Table, place: str) -> None:
    try:
        _check_vectors(context, walk, snapshot, state, place)
        _check_hashes(context, walk, snapshot, state)
    except TidelakeError as error:  # the snapshot may expire between two reads of its index manifest
        walk.error("I3", str(error), place)


def _check_vectors(context: TableContext, walk: _Walk, snapshot: Snapshot, state: pa.Table, place: str) -> None:
    store = context.store
    vectors = snapshot_vectors(store.manifests, snapshot)
    if vectors is None:
        return
    keys = ["partition", "bucket", "data_file"]
    counts = vectors.group_by(keys, use_threads=False).aggregate([([], "count_all")])
    for name in counts.filter(pc.greater(counts.column("count_all"), 1)).column("data_file").slice(0, 10).to_pylist():
        walk.error("I7", f"data file {name} has two deletion vectors", place)
    live = state.select(["partition", "bucket", "file_name", "row_count"]).rename_columns([*keys, "row_count"])
    known = vectors.join(live, keys, join_type="left outer", use_threads=False)
    gone = known.filter(pc.is_null(known.column("row_count")))
    for name in gone.column("data_file").slice(0, 10).to_pylist():
        walk.error("I7", f"deletion vector of a data file that is not live: {name}", place)
    for row in known.filter(pc.is_valid(known.column("row_count"))).to_pylist():
        where = DeletionVectorRange(row["data_file"], row["offset"], row["length"], row["cardinality"])
        path = context.paths.index(row["partition"], row["bucket"], row["file_name"])
        try:
            found = FileVector(path, row["file_size"], where, row["external_path"])
            read_vector(store, found, row_count=row["row_count"])
        except NotFoundError:
            continue  # I2 reports missing files
        except TidelakeError as error:
            walk.error("I7", str(error), place)


def _check_hashes(context: TableContext, walk: _Walk, snapshot: Snapshot, state: pa.Table) -> None:
    if context.is_keyed:
        from tidelake.ops.maintain.key_check import check_hash_indexes  # append tables do without it

        for each in check_hash_indexes(context, snapshot, state, walk.hashed):
            walk.found.append((each, walk.holder))


def _check_runs(store: TableStore, walk: _Walk, state: pa.Table, place: str) -> None:
    schema = store.schema
    if not schema.primary_keys:
        return
    types = [schema.field(name).type for name in schema.trimmed_primary_keys]
    upper = state.filter(pc.greater_equal(state.column("level"), 1))
    groups = [upper.column(name) for name in ("partition", "bucket", "level")]
    names = upper.column("file_name")
    for a, b in overlapping_neighbours(upper.column("min_key"), upper.column("max_key"), types, groups=groups):
        walk.error("I5", f"files of one sorted run overlap: {names[a]}, {names[b]}", place)
    _check_sequences(walk, state, place)


def _check_sequences(walk: _Walk, state: pa.Table, place: str) -> None:
    fresh = state.filter(pc.equal(state.column("level"), 0))
    order = [("partition", "ascending"), ("bucket", "ascending"), ("min_sequence", "ascending")]
    fresh = fresh.take(pc.sort_indices(fresh, sort_keys=order))
    if fresh.num_rows < 2:
        return
    first, second = fresh.slice(0, fresh.num_rows - 1), fresh.slice(1)
    same = pc.and_(
        pc.equal(first.column("partition"), second.column("partition")),
        pc.equal(first.column("bucket"), second.column("bucket")),
    )
    clash = pc.and_(same, pc.greater_equal(first.column("max_sequence"), second.column("min_sequence")))
    for name in first.column("file_name").filter(clash).slice(0, 10).to_pylist():
        walk.warn("I5", f"sequence numbers of level-0 files overlap: {name}", place)


def _check_files(store: TableStore, walk: _Walk) -> list[str]:
    found = dict(_stored_files(store))
    for path, holder in sorted(walk.reached.items()):
        walk.holder = holder
        if path not in found:
            walk.error("I2", "file is missing", path)
        elif path in walk.sizes and walk.sizes[path] != found[path]:
            walk.error("I2", f"file has {found[path]} bytes instead of {walk.sizes[path]}", path)
    for address, (size, holder) in sorted(walk.external.items()):
        walk.holder = holder
        _check_external(store, walk, address, size)
    orphans = sorted(set(found) - walk.reached.keys() - walk.kept)
    for path in orphans[:20]:
        walk.found.append((Finding("I10", Severity.REMARK, "file is reached by no snapshot", path), ""))
    return orphans


def _check_external(store: TableStore, walk: _Walk, address: str, size: int) -> None:
    try:
        io, path = open_external(store.env.io, store.schema.options, address)
        found = io.status(path).size
    except UnsupportedError as error:
        walk.warn("I2", error.message, address)
    except NotFoundError:
        walk.error("I2", "file is missing", address)
    except TidelakeError as error:
        walk.error("I2", error.message, address)
    else:
        if found != size:
            walk.error("I2", f"file has {found} bytes instead of {size}", address)


def _stored_files(store: TableStore) -> Iterator[tuple[str, int]]:
    io = store.env.io
    for folder in (MANIFEST_DIR, INDEX_DIR, STATISTICS_DIR):
        yield from ((each.path, each.size) for each in io.list(folder) if not each.is_dir)
    yield from _bucket_files(store, store.layout.partition_dir(""), len(store.schema.partition_keys))


def _bucket_files(store: TableStore, folder: str, depth: int) -> Iterator[tuple[str, int]]:
    for each in store.env.io.list(folder):
        if not each.is_dir:
            continue
        if depth == 0 and parse_bucket_name(each.name) is not None:
            yield from ((f.path, f.size) for f in store.env.io.list(each.path) if not f.is_dir)
        elif depth and "=" in each.name:
            yield from _bucket_files(store, each.path, depth - 1)


def _rows(entries: pa.Table, kind: int) -> int:
    return int(pc.sum(entries.column("row_count").filter(pc.equal(entries.column("kind"), kind))).as_py() or 0)


def _identity_set(entries: pa.Table) -> frozenset[bytes]:
    return frozenset(identities(entries).to_pylist())
