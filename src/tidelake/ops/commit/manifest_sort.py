"""Sort the entries of manifests by partition and bucket, so that a plan of few partitions reads few manifests.

A full merge with `manifest-sort.enabled` does this. Manifests whose ranges of the sort column overlap form a section,
and a section is written again as manifests whose ranges do not overlap (two neighbours may share one value). What is in
order already is left alone, so that a merge rewrites what came since the last one. One merge sorts at most
`manifest-sort.max-rewrite-size` bytes of manifests, those with the widest ranges first: they end in narrow ones, so
that each merge makes progress.

A new manifest ends with a partition once it is half full, so that a partition that is not large is in one manifest and
little else is. Therefore a manifest counts as small here only if it is less than a quarter full.

Invariants: sorting does not change the live files. Afterwards the list has no deletions, so the order of its entries is
free. Memory holds the keys of what is sorted, and otherwise a bounded number of entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.ops.commit.options import ManifestOptions
from tidelake.spec.manifests.manifest import IDENTITY_COLUMNS, identities, merge_entries
from tidelake.spec.manifests.manifest_list import ManifestMeta
from tidelake.spec.rows.binary_row import decode_rows
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.data_types import DataType, with_nullable
from tidelake.store.manifests import ManifestNames, ManifestStore

__all__ = ["ManifestOrder", "SortPlan", "make_order", "plan_sort", "run_sort"]

Metas = tuple[ManifestMeta, ...]
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

PASS_ROWS = 1 << 18
"""Entries that are decoded whole and written at a time."""
_SMALL_PART = 4
"""A manifest is small below this part of its target size."""
_ROWS_MIN = 16
"""Entries of a manifest at least, however small its target size is."""
_FULL_SHARE = 0.95
"""How full a manifest is planned: one that turned out larger than its target would be cut in two."""


@dataclass(frozen=True, slots=True)
class ManifestOrder:
    """The order of entries: by one partition column first, then by the others, then by bucket."""

    types: tuple[DataType, ...]
    """The types of the partition columns."""
    first: int
    """The partition column to sort by first."""

    def sort(self, keys: pa.Table) -> _Ints:
        """The indices of entries in this order; entries of one bucket keep theirs."""
        coded = _flat(keys.column("partition")).dictionary_encode()
        columns = [_rank(column) for column in self._decode(coded.dictionary)]
        ranks = columns[self.first : self.first + 1] + columns[: self.first] + columns[self.first + 1 :]
        indices = coded.indices.to_numpy()
        by_partition = [rank[indices] for rank in reversed(ranks)]
        order: _Ints = np.lexsort((keys.column("bucket").to_numpy(), *by_partition))
        return order

    def rank_bounds(self, metas: Sequence[ManifestMeta]) -> tuple[_Ints, _Ints]:
        """The least and the greatest value of the sort column in each manifest, as comparable numbers."""
        stats = [meta.partition_stats for meta in metas]
        lows, highs = (
            self._decode(pa.array(rows, pa.large_binary()))[self.first]
            for rows in ([each.min_values for each in stats], [each.max_values for each in stats])
        )
        ranks = _rank(pa.concat_arrays([lows, highs]))
        low, high = ranks[: len(metas)], ranks[len(metas) :]
        # The bounds leave nulls out, which come first.
        nulls = [self.first >= len(each.null_counts) or each.null_counts[self.first] != 0 for each in stats]
        return np.where(np.array(nulls, np.bool_), 0, low), high

    def _decode(self, rows: pa.Array) -> list[pa.Array]:
        return list(decode_rows(rows, [with_nullable(dtype, True) for dtype in self.types]))


def make_order(options: ManifestOptions, schema: Schema) -> ManifestOrder | None:
    """The order in which merges write entries; None if they do not sort, as in a table without partitions.

    Raises:
        InvalidInputError: the column to sort by is not a partition column.
    """
    if not options.sort or not schema.partition_keys:
        return None
    wanted = options.sort_field or schema.partition_keys[0]
    if wanted not in schema.partition_keys:
        raise InvalidInputError(
            "manifests are sorted by partition columns only",
            code="option-value",
            option="manifest-sort.partition-field",
            value=wanted,
            hint=f"use {', '.join(schema.partition_keys)}",
        )
    return ManifestOrder(tuple(schema.partition_types), schema.partition_keys.index(wanted))


@dataclass(frozen=True, slots=True)
class SortPlan:
    """What a sort does with each manifest."""

    kept: Metas
    """Left as they are."""
    sections: tuple[Metas, ...] = ()
    """Each is written again in order."""
    unsorted: Metas = ()
    """Written again in the order that they have, because sorting them would exceed the limit."""

    @property
    def rewritten(self) -> Metas:
        """All manifests that are written again."""
        return (*(meta for section in self.sections for meta in section), *self.unsorted)


def plan_sort(
    metas: Sequence[ManifestMeta], order: ManifestOrder, changing: Collection[ManifestMeta], options: ManifestOptions
) -> SortPlan:
    """Plan which manifests are sorted; `changing` are those with entries that are deleted or delete."""
    if not metas:
        return SortPlan(())
    low, high = order.rank_bounds(metas)
    places = _join_small(_find_sections(low, high), metas, small_bytes(options))
    room = int(options.sort_rewrite_bytes)
    kept: list[ManifestMeta] = []
    sections: list[Metas] = []
    unsorted: list[ManifestMeta] = []
    for section in places:
        if len(section) == 1 and metas[section[0]] not in changing:
            kept.append(metas[section[0]])
            continue
        widest = sorted(section, key=lambda each: (low[each] - high[each], low[each]))
        ends = accumulate(metas[each].file_size for each in widest)
        # At least two, or a section of large manifests would never be sorted.
        chosen = {
            each for number, (each, end) in enumerate(zip(widest, ends, strict=True)) if end <= room or number < 2
        }
        chosen = chosen if room > 0 else set()
        head = tuple(metas[each] for each in section if each in chosen)
        room -= sum(meta.file_size for meta in head)
        rest = [metas[each] for each in section if each not in chosen]
        if len(head) == 1 and head[0] not in changing:
            rest, head = [*head, *rest], ()
        if head:
            sections.append(head)
        unsorted += [meta for meta in rest if meta in changing]
        kept += [meta for meta in rest if meta not in changing]
    return SortPlan(tuple(kept), tuple(sections), tuple(unsorted))


def small_bytes(options: ManifestOptions) -> int:
    """The size below which a manifest is small, where manifests are sorted."""
    return int(options.target_bytes) // _SMALL_PART


def _find_sections(low: _Ints, high: _Ints) -> list[list[int]]:
    """Groups of manifests whose ranges overlap, in order. Ranges that only share their ends do not overlap."""
    by_range = np.lexsort((high, low))
    highest = np.maximum.accumulate(high[by_range])
    starts = np.flatnonzero(low[by_range][1:] >= highest[:-1]) + 1
    return [part.tolist() for part in np.split(by_range, starts)]


def _join_small(sections: Sequence[list[int]], metas: Sequence[ManifestMeta], small: int) -> list[list[int]]:
    """Join neighbouring sections that are too small for a manifest of their own."""
    joined: list[list[int]] = []
    size = small
    for section in sections:
        own = sum(metas[each].file_size for each in section)
        if size < small and own < small:
            joined[-1] += section
            size += own
        else:
            joined.append(list(section))
            size = own
    return joined


def run_sort(
    store: ManifestStore,
    names: ManifestNames,
    plan: SortPlan,
    order: ManifestOrder,
    gone_ids: pa.LargeBinaryArray,
    *,
    listed: Sequence[ManifestMeta],
    schema_id: int,
) -> list[ManifestMeta]:
    """Write what is to be rewritten, without the entries of deleted files, and return the new manifests.

    `gone_ids` are the files that an entry of the list deletes, and `listed` is that list, in its order.
    """
    rewritten = frozenset(plan.rewritten)
    kept = _find_kept(store, [meta for meta in listed if meta in rewritten], gone_ids)
    written: list[ManifestMeta] = []
    for section in plan.sections:
        rows = np.concatenate([_kept_rows(meta, kept) for meta in section])
        keys = store.read_entries(section, columns=("partition", "bucket"))
        indices = order.sort(keys)
        indices = indices[rows[indices]]
        written += _write_sorted(store, names, section, indices, _find_starts(keys, indices), schema_id=schema_id)
    if plan.unsorted:
        rows = np.concatenate([_kept_rows(meta, kept) for meta in plan.unsorted])
        written += _write_rows(store, names, plan.unsorted, np.flatnonzero(rows), schema_id=schema_id)
    return written


def _kept_rows(meta: ManifestMeta, kept: Mapping[str, _Bools]) -> _Bools:
    return kept[meta.file_name] if meta.file_name in kept else np.ones(meta.num_entries, np.bool_)


def _find_kept(store: ManifestStore, metas: Sequence[ManifestMeta], gone_ids: pa.LargeBinaryArray) -> dict[str, _Bools]:
    """Which entries stay, of the manifests that have one that goes: all but those that cancel each other."""
    kept: dict[str, _Bools] = {}
    if not len(gone_ids):
        return kept
    touched: list[pa.Table] = []
    for number, meta in enumerate(metas):
        keys = store.read_entries([meta], columns=("kind", *IDENTITY_COLUMNS))
        hit = pc.is_in(identities(keys), value_set=gone_ids)
        places = np.flatnonzero(hit.to_numpy(zero_copy_only=False))
        if len(places):
            kept[meta.file_name] = np.ones(meta.num_entries, np.bool_)
            kept[meta.file_name][places] = False
            found = keys.take(pa.array(places)).append_column("row", pa.array(places))
            touched.append(found.append_column("manifest", pa.repeat(number, len(places))))
    if touched:
        left = merge_entries(pa.concat_tables(touched))  # a file that was added again after its deletion
        for number, place in zip(left.column("manifest").to_pylist(), left.column("row").to_pylist(), strict=True):
            kept[metas[number].file_name][place] = True
    return kept


def _find_starts(keys: pa.Table, indices: _Ints) -> _Ints:
    """Where another partition begins among these entries, which are sorted."""
    codes = _flat(keys.column("partition")).dictionary_encode().indices.to_numpy()[indices]
    starts: _Ints = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    return starts


def _write_sorted(
    store: ManifestStore,
    names: ManifestNames,
    metas: Sequence[ManifestMeta],
    indices: _Ints,
    starts: _Ints,
    *,
    schema_id: int,
) -> list[ManifestMeta]:
    """Write sorted entries as manifests that begin where a partition begins, as far as possible."""
    written: list[ManifestMeta] = []
    header = store.header_bytes
    bytes_per_row = _measure(metas, header)
    for begin, entries in _read_passes(store, metas, indices):
        own, first = starts - begin, 0
        while first < entries.num_rows:
            count = max(_ROWS_MIN, int((store.target_bytes * _FULL_SHARE - header) / bytes_per_row))
            end = _find_cut(own, first, count, entries.num_rows)
            made = store.write_entries(names, entries.slice(first, end - first), schema_id=schema_id)
            bytes_per_row = _measure(made, header)
            written += made
            first = end
    return written


def _measure(metas: Sequence[ManifestMeta], header: int) -> float:
    """The bytes of an entry in these manifests."""
    size = sum(max(meta.file_size - header, 1) for meta in metas)
    return size / sum(meta.num_entries for meta in metas)


def _find_cut(starts: _Ints, first: int, count: int, total: int) -> int:
    """The end of a manifest that holds about `count` entries: once it is half full it ends with its last partition."""
    if first + count >= total:
        return total
    place = int(np.searchsorted(starts, first + (count + 1) // 2))
    cut = int(starts[place]) if place < len(starts) else total
    return min(cut, first + count, total)


def _write_rows(
    store: ManifestStore, names: ManifestNames, metas: Sequence[ManifestMeta], rows: _Ints, *, schema_id: int
) -> list[ManifestMeta]:
    """Write these rows of manifests, which are numbered through all of them, in this order."""
    written: list[ManifestMeta] = []
    for _, entries in _read_passes(store, metas, rows):
        written += store.write_entries(names, entries, schema_id=schema_id)
    return written


def _read_passes(store: ManifestStore, metas: Sequence[ManifestMeta], rows: _Ints) -> Iterator[tuple[int, pa.Table]]:
    """These rows of manifests in this order, a bounded number at a time, each time with the number of the first."""
    starts = np.cumsum([0, *(meta.num_entries for meta in metas)])
    for first in range(0, len(rows), PASS_ROWS):
        wanted = rows[first : first + PASS_ROWS]
        entries = pa.concat_tables(_read_rows(store, metas, starts, np.sort(wanted)))
        places = np.argsort(np.argsort(wanted, kind="stable"), kind="stable")
        yield first, entries.take(pa.array(places)).combine_chunks()


def _read_rows(store: ManifestStore, metas: Sequence[ManifestMeta], starts: _Ints, rows: _Ints) -> Iterator[pa.Table]:
    """These rows, which ascend; a few manifests are decoded at a time."""
    if starts[-1] <= PASS_ROWS:
        yield store.read_entries(metas).take(pa.array(rows))
        return
    cuts = np.searchsorted(rows, starts)
    for number, meta in enumerate(metas):
        own = rows[cuts[number] : cuts[number + 1]] - starts[number]
        if len(own):
            yield store.read_entries([meta]).take(pa.array(own))


def _rank(values: pa.Array) -> _Ints:
    """For each value its place among the distinct ones, from 1; 0 for null."""
    distinct = values.drop_null().unique()
    ordered = distinct.take(pc.sort_indices(distinct))
    found = pc.fill_null(pc.add(pc.index_in(values, value_set=ordered), 1), 0)
    ranks: _Ints = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return ranks


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
