"""Which manifests a commit merges: all of them if many hold deletions, otherwise neighbours that are small.

Invariant: merging does not change the live files. A deletion never moves before its addition. Planning is pure;
`run_merge` reads and writes through the store and returns the new list and the files that it wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.commit.options import ManifestOptions
from tidelake.ops.scan.partitions import PartitionSet
from tidelake.spec.manifests.manifest import DELETE, IDENTITY_COLUMNS, empty_entries, identities, merge_entries
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.store.manifests import ManifestNames, ManifestStore

Metas = tuple[ManifestMeta, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """The manifests before and after a merge, and the names of new files."""

    before: Metas
    after: Metas
    made: tuple[str, ...] = ()

    def reapply(self, metas: Metas) -> Merged | None:
        """The same merge for a list that only grew at its end, or None if it no longer fits."""
        if metas[: len(self.before)] != self.before:
            return None
        return Merged(metas, self.after + metas[len(self.before) :], self.made)


def plan_minor(metas: Sequence[ManifestMeta], options: ManifestOptions) -> list[Metas]:
    """Groups of neighbours to merge into one manifest; a group of one is not rewritten."""
    groups: list[Metas] = []
    group: list[ManifestMeta] = []
    size = 0
    for meta in metas:
        group.append(meta)
        size += meta.file_size
        if size >= options.target_bytes:
            groups.append(tuple(group))
            group, size = [], 0
    if len(group) >= options.merge_min_count:
        groups.append(tuple(group))
    else:
        groups += [(meta,) for meta in group]
    return groups


def must_change(meta: ManifestMeta, options: ManifestOptions) -> bool:
    """Whether a full merge rewrites this manifest in any case: it deletes, or is too small."""
    return meta.num_deleted > 0 or meta.file_size < options.target_bytes


def full_is_due(metas: Sequence[ManifestMeta], options: ManifestOptions) -> bool:
    """Whether there are enough bytes of small manifests and manifests with deletions."""
    return sum(meta.file_size for meta in metas if must_change(meta, options)) >= options.full_threshold_bytes


def run_merge(
    store: ManifestStore, names: ManifestNames, metas: Metas, options: ManifestOptions, *, schema_id: int
) -> Merged:
    """Merge manifests as planned; new files are written but not yet synced."""
    if full_is_due(metas, options):
        merged = _run_full(store, names, metas, options, schema_id=schema_id)
        if merged is not None:
            return merged
    after: list[ManifestMeta] = []
    for group in plan_minor(metas, options):
        after += group if len(group) == 1 else _merge_group(store, names, group, schema_id=schema_id)
    known = {meta.file_name for meta in metas}
    return Merged(metas, tuple(after), tuple(meta.file_name for meta in after if meta.file_name not in known))


def _merge_group(store: ManifestStore, names: ManifestNames, group: Metas, *, schema_id: int) -> list[ManifestMeta]:
    if not any(meta.num_deleted for meta in group):
        joined = store.concat(names, group)
        if joined is not None:
            return joined
    return store.write_entries(names, merge_entries(store.read_entries(group)), schema_id=schema_id)


def _run_full(
    store: ManifestStore, names: ManifestNames, metas: Metas, options: ManifestOptions, *, schema_id: int
) -> Merged | None:
    deleting = [meta for meta in metas if meta.num_deleted]
    gone = store.read_entries(
        deleting,
        columns=("kind", *IDENTITY_COLUMNS),
        keep=lambda table: pc.equal(table["kind"], DELETE).combine_chunks(),
    )
    gone_ids = identities(gone)
    large = [meta for meta in metas if not must_change(meta, options)]
    near = set(_near(store, large, gone))
    kept = {meta for meta in large if meta not in near or not _holds(store, meta, gone_ids)}
    rest = [meta for meta in metas if meta not in kept]
    if len(rest) <= 1:
        return None
    after = [meta for meta in metas if meta in kept]
    after += _rewrite(store, names, rest, gone_ids, options, schema_id=schema_id)
    known = {meta.file_name for meta in metas}
    return Merged(metas, tuple(after), tuple(meta.file_name for meta in after if meta.file_name not in known))


def _near(store: ManifestStore, metas: Sequence[ManifestMeta], gone: pa.Table) -> list[ManifestMeta]:
    """The manifests whose partition range may hold a deleted file."""
    if gone.num_rows == 0:
        return []
    partitions = frozenset(gone.column("partition").unique().to_pylist())
    return PartitionSet(partitions, store.partition_types).prune(metas)


def _holds(store: ManifestStore, meta: ManifestMeta, gone_ids: pa.LargeBinaryArray) -> bool:
    entries = store.read_entries([meta], columns=IDENTITY_COLUMNS)
    return bool(pc.any(pc.is_in(identities(entries), value_set=gone_ids)).as_py())


def _rewrite(
    store: ManifestStore,
    names: ManifestNames,
    metas: Sequence[ManifestMeta],
    gone_ids: pa.LargeBinaryArray,
    options: ManifestOptions,
    *,
    schema_id: int,
) -> list[ManifestMeta]:
    """Rewrite manifests without deleted entries; memory holds the deletions and a few manifests of target size."""
    touched = [empty_entries()]
    pending: list[pa.Table] = []
    written: list[ManifestMeta] = []
    size = 0
    for meta in metas:
        entries = store.read_entries([meta])
        hit = pc.is_in(identities(entries), value_set=gone_ids)
        touched.append(entries.filter(hit))
        pending.append(entries.filter(pc.invert(hit)))
        size += meta.file_size
        if size >= 4 * options.target_bytes:
            written += store.write_entries(names, pa.concat_tables(pending), schema_id=schema_id)
            pending, size = [], 0
    pending.append(merge_entries(pa.concat_tables(touched)))
    return written + store.write_entries(names, pa.concat_tables(pending), schema_id=schema_id)
