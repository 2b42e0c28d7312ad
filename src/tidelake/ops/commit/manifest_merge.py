"""Which manifests a commit merges: all of them if many hold deletions, otherwise neighbours that are small.

With an order (`manifest_sort`) a full merge sorts what overlaps, and other merges sort within what they join.

Invariant: merging does not change the live files. A deletion never moves before its addition. Planning is pure;
`run_merge` reads and writes through the store and returns the new list and the files that it wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ops.commit.manifest_sort import ManifestOrder, SortPlan, plan_sort, run_sort, small_bytes
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


def full_is_due(metas: Sequence[ManifestMeta], options: ManifestOptions, small_bytes: int | None = None) -> bool:
    """Whether there are enough bytes of small manifests and manifests with deletions."""
    small = int(options.target_bytes) if small_bytes is None else small_bytes
    changing = (meta.file_size for meta in metas if meta.num_deleted > 0 or meta.file_size < small)
    return sum(changing) >= options.full_threshold_bytes


def run_merge(
    store: ManifestStore,
    names: ManifestNames,
    metas: Metas,
    options: ManifestOptions,
    *,
    schema_id: int,
    order: ManifestOrder | None = None,
) -> Merged:
    """Merge manifests as planned; new files are written but not yet synced."""
    if full_is_due(metas, options, small_bytes=None if order is None else small_bytes(options)):
        merged = _run_full(store, names, metas, options, order, schema_id=schema_id)
        if merged is not None:
            return merged
        if order is not None:
            return Merged(metas, metas)  # everything is in order: joining neighbours of the list would disturb that
    after: list[ManifestMeta] = []
    for group in plan_minor(metas, options):
        after += group if len(group) == 1 else _merge_group(store, names, group, order, schema_id=schema_id)
    return _make_merged(metas, after)


def plan_sorted_merge(store: ManifestStore, metas: Metas, options: ManifestOptions, order: ManifestOrder) -> SortPlan:
    """What a full merge in this order would do."""
    _, changing = _find_changing(store, metas, ())
    return plan_sort(metas, order, changing, options)


def plan_full_merge(store: ManifestStore, metas: Metas, options: ManifestOptions) -> Metas:
    """The manifests that a full merge would rewrite; none if at most one is left to merge."""
    small = frozenset(meta for meta in metas if must_change(meta, options))
    rest = small | _find_changing(store, metas, small)[1]
    return tuple(meta for meta in metas if meta in rest) if len(rest) > 1 else ()


def _make_merged(before: Metas, after: Sequence[ManifestMeta]) -> Merged:
    known = {meta.file_name for meta in before}
    return Merged(before, tuple(after), tuple(meta.file_name for meta in after if meta.file_name not in known))


def _merge_group(
    store: ManifestStore, names: ManifestNames, group: Metas, order: ManifestOrder | None, *, schema_id: int
) -> list[ManifestMeta]:
    deletes = any(meta.num_deleted for meta in group)
    if order is not None and not deletes:  # a deletion must stay behind its addition
        entries = store.read_entries(group)
        return store.write_entries(names, entries.take(pa.array(order.sort(entries))), schema_id=schema_id)
    if not deletes:
        joined = store.concat(names, group)
        if joined is not None:
            return joined
    return store.write_entries(names, merge_entries(store.read_entries(group)), schema_id=schema_id)


def _run_full(
    store: ManifestStore,
    names: ManifestNames,
    metas: Metas,
    options: ManifestOptions,
    order: ManifestOrder | None,
    *,
    schema_id: int,
) -> Merged | None:
    # Without an order small manifests are rewritten in any case, so they need not be read to find that out.
    small = frozenset(meta for meta in metas if order is None and must_change(meta, options))
    gone_ids, changing = _find_changing(store, metas, small)
    if order is not None:
        plan = plan_sort(metas, order, changing, options)
        if not plan.rewritten:
            return None
        made = run_sort(store, names, plan, order, gone_ids, listed=metas, schema_id=schema_id)
        return _make_merged(metas, (*plan.kept, *made))
    rest = [meta for meta in metas if meta in changing or meta in small]
    if len(rest) <= 1:
        return None
    kept = [meta for meta in metas if meta not in changing and meta not in small]
    return _make_merged(metas, kept + _rewrite(store, names, rest, gone_ids, options, schema_id=schema_id))


def _find_changing(
    store: ManifestStore, metas: Metas, known: Collection[ManifestMeta]
) -> tuple[pa.LargeBinaryArray, frozenset[ManifestMeta]]:
    """The identities of deleted files, and the manifests that delete one or hold one; `known` ones are not read."""
    deleting = [meta for meta in metas if meta.num_deleted]
    gone = store.read_entries(
        deleting,
        columns=("kind", *IDENTITY_COLUMNS),
        keep=lambda table: pc.equal(table["kind"], DELETE).combine_chunks(),
    )
    gone_ids = identities(gone)
    others = [meta for meta in metas if not meta.num_deleted and meta not in known]
    holding = [meta for meta in _near(store, others, gone) if _holds(store, meta, gone_ids)]
    return gone_ids, frozenset((*deleting, *holding))


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
