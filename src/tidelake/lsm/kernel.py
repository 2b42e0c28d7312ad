"""The merge kernel: merges sorted runs into one row per key, in bounded memory.

Each run yields sorted pieces, and a cursor holds the current piece of each run. The smallest last key of these pieces
bounds a window; every cursor hands over its rows up to that bound, the window is reduced, and empty cursors fetch
their next piece. The largest part of a window is its base: it is only searched and filtered, never sorted or gathered,
because in most trees it has nearly all rows. Keys with one version pass through unchanged; the versions of the other
keys are ordered and folded by the merge engine, all keys at once.

Invariant: the output is what the engine gives for every key when it is fed all versions, oldest first; with `ordered`
it is sorted by key. Memory depends on the current pieces, not on the size of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidelake.lsm.difference import KeyRows, changed_keys, difference
from tidelake.lsm.engine import KIND, SEQUENCE, Engine, Ints, Versions
from tidelake.lsm.keys import (
    KeyArray,
    KeyCodec,
    Keys,
    concat,
    count_up_to,
    first_and_last,
    locate,
    slice_keys,
    window,
)
from tidelake.lsm.ranks import sequence_ranks
from tidelake.spec.types.data_types import Field


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one file, sorted by key, each key once. The first of several key columns may be an Arrow dictionary."""

    rows: pa.Table
    age: int = 0
    """Larger is newer. Orders versions only if `MergePlan.by_age`."""
    level: int = 0


@dataclass(frozen=True, slots=True)
class MergePlan:
    """How the versions of a key are ordered and merged."""

    keys: KeyCodec
    engine: Engine
    sequence: tuple[str, ...] = ()
    """The columns of `sequence.field`, which are compared before the sequence number."""
    descending: bool = False
    by_age: bool = False
    """All sequence numbers of a newer file are larger, so comparing ages is enough."""
    newest_level_only: bool = False
    """Of the versions above level 0 only the one at the smallest level counts: lookups merged the others into it."""
    drop_retracts: bool = False
    ordered: bool = False
    output: tuple[str, ...] | None = None
    """The columns to return, all if None. Columns needed only for merging are then not copied."""

    def select_output(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the output columns only."""
        return rows if self.output is None else rows.select(self.output)

    def drop_unneeded_columns(self, rows: pa.Table) -> pa.Table:
        """Decode dictionaries, and drop key columns that are only needed to encode the keys."""
        if self.output is not None and self.engine.takes_last:
            unwanted = set(self.keys.columns).difference(self.output, self.sequence)
            rows = rows.drop_columns([name for name in rows.column_names if name in unwanted])
        return without_dictionaries(rows)


def without_dictionaries(rows: pa.Table) -> pa.Table:
    """Return the rows with dictionary columns decoded."""
    for index, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type):
            field = rows.field(index).with_type(column.type.value_type)
            rows = rows.set_column(index, field, column.cast(field.type))
    return rows


def merge(runs: Sequence[Iterator[Piece]], plan: MergePlan) -> Iterator[pa.Table]:
    """Merge runs. Each run is sorted by key and has each key once.

    Raises:
        InvalidInputError: the engine does not accept one of the versions, or a key is null.
    """
    for parts in _windows(runs, plan):
        yield from _reduce(parts, plan)


def merge_rows(rows: pa.Table, plan: MergePlan) -> pa.Table:
    """Merge rows in order of arrival into sorted rows with each key once.

    If `plan.by_age`, the later row is the newer one.

    Raises:
        InvalidInputError: the engine does not accept one of the versions, or a key is null.
    """
    if not rows.num_rows:
        return rows
    (keys,) = window([plan.keys.encode(rows)], sorted_parts=False)
    group = _Groups.of(keys)
    none = np.zeros(rows.num_rows, np.int64)
    found = _fold(
        _GatheredRows(rows.combine_chunks(), keys, none, none),
        group,
        None,
        np.zeros(group.count, bool),
        np.zeros(group.count, np.int64),
        plan,
    )
    return _join_by_group(found, plan.select_output(rows).schema)


def sort_versions(rows: pa.Table, plan: MergePlan) -> pa.Table:
    """Sort rows by key, and the versions of a key oldest first, as a merge would order them.

    Raises:
        InvalidInputError: a key is null.
    """
    (keys,) = window([plan.keys.encode(rows)], sorted_parts=False)
    groups = _Groups.of(keys)
    of_row = np.empty(rows.num_rows, np.int64)
    of_row[groups.order] = np.repeat(np.arange(groups.count), groups.sizes)
    rows = rows.combine_chunks()
    return rows.take(pa.array(np.lexsort((*_ties(rows, np.arange(rows.num_rows), plan), of_row))))


# ------------------------------------------------------------------------------------------------ changes


@dataclass(frozen=True, slots=True)
class Older:
    """Versions of keys on levels that the merge does not read."""

    places: Ints
    """The positions of the keys that have such a version, ascending."""
    rows: pa.Table | None = None
    """Those versions, with the columns of the runs; None if the merge only needs to know that they exist."""
    levels: Ints | None = None
    ages: Ints | None = None


class Below(Protocol):
    """Looks up versions on the levels below the runs of a merge."""

    def find(self, rows: pa.Table) -> Older:
        """Return the older versions of keys. Keys are sorted, and larger than those of the previous call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Which versions are new, and which changes a merge reports for the keys that have a new version."""

    top: int | None = None
    """The level with the known rows; all others are new. None: level 0 is new, all other levels are known."""
    below: Below | None = None
    """Looks up keys that have a new version and no known one in the runs."""
    reports_changes: bool = True
    """Whether to compute changes at all."""
    compared: tuple[Field, ...] | None = None
    """Report an update only if one of these columns differs; None reports every update."""
    first_wins: bool = False
    """First-row: a known key keeps its row, and only keys that are not known yet are reported."""
    folds_lone: bool = False
    """Whether the engine also folds keys with a single version, new or known, which it may change."""
    columns: tuple[Field, ...] = ()
    """All columns: a known row that the engine changes on its own is reported if one of them differs."""

    def is_new(self, level: int) -> bool:
        """Return whether the versions on a level are new."""
        return level <= 0 if self.top is None else level != self.top


@dataclass(frozen=True, slots=True)
class Reduced:
    """The merged rows of a window and the changes they mean, both sorted by key; None if there are none."""

    rows: pa.Table | None
    changes: pa.Table | None = None


def merge_watched(runs: Sequence[Iterator[Piece]], plan: MergePlan, watch: Watch) -> Iterator[Reduced]:
    """Merge runs into rows sorted by key, and report the changes of the keys that have new versions.

    The rows are those of `merge`, with the versions found by `watch.below` folded in. All columns are returned.

    Raises:
        InvalidInputError: the engine does not accept one of the versions, or a key is null.
    """
    assert plan.ordered
    assert plan.output is None
    for parts in _windows(runs, plan):
        if watch.folds_lone:
            parts = [piece for part in parts for piece in _split_changed_alone(part, plan, watch)]
        if any(watch.is_new(part.level) or part.changes_alone for part in parts):
            yield _reduce_watched(parts, plan, watch)
        else:
            yield from (Reduced(rows) for rows in _reduce(parts, plan))


def _split_changed_alone(part: _Part, plan: MergePlan, watch: Watch) -> list[_Part]:
    """Split off the rows of a known part that the engine may change on its own, so that they become groups."""
    changed = None if watch.is_new(part.level) else plan.engine.changes_alone(part.rows)
    if changed is None or not changed.any():
        return [part]
    if changed.all():
        return [replace(part, changes_alone=True)]
    halves = [part.rows.filter(pa.array(mask)).combine_chunks() for mask in (~changed, changed)]
    return [
        replace(part, rows=rows, keys=plan.keys.encode(rows), changes_alone=alone)
        for rows, alone in zip(halves, (False, True), strict=True)
    ]


def _reduce_watched(parts: list[_Part], plan: MergePlan, watch: Watch) -> Reduced:
    known = [part for part in parts if not (watch.is_new(part.level) or part.changes_alone)]
    # Only what is known may be the base: every key with a new version is then one of the groups.
    base = max(known, key=lambda part: part.rows.num_rows) if known else None
    rest = sorted((part for part in parts if part is not base), key=lambda part: part.age)
    keys = window([part.keys for part in ([base, *rest] if base is not None else rest)])
    small = _gather(rest, keys[-len(rest) :])
    groups = _Groups.of(small.keys)
    if base is not None:
        places, hits = locate(keys[0], small.keys.take(groups.firsts))
    else:
        places, hits = np.zeros(groups.count, np.int64), np.zeros(groups.count, bool)
    alone = any(part.changes_alone for part in parts)
    versions = _KnownVersions.of(small, groups, base, places, hits, watch, untouched=alone)
    asked = np.flatnonzero(versions.touched & ~versions.there)
    older: Older | None = None
    if watch.below is not None and len(asked):
        keys_alone = small.rows.select(list(plan.keys.columns))
        older = watch.below.find(keys_alone.take(pa.array(groups.firsts[asked])))
        if not len(older.places):
            older = None
    beyond = None if older is None or older.rows is None else _GroupedOlder.of(older, asked)
    unfiltered = replace(plan, drop_retracts=False)
    found = _fold(small, groups, base, hits, places, unfiltered, beyond=beyond, lone=watch.folds_lone)
    if watch.first_wins:
        fresh = np.zeros(groups.count, bool)
        fresh[asked] = True
        if older is not None:
            fresh[asked[older.places]] = False
            found = found.without_groups(asked[older.places])
        changes = found.select_groups(fresh).rows if watch.reports_changes else None
    elif watch.reports_changes:
        known_rows, reported = versions.rows(beyond), versions.touched
        if len(known_rows.keys) and alone:
            others = ~reported
            changed = changed_keys(known_rows.only(others[known_rows.keys]), found.select_groups(others), watch.columns)
            reported = reported.copy()
            reported[changed] = True
        before = known_rows.only(reported[known_rows.keys])
        changes = difference(before, found.select_groups(reported), compared=watch.compared)
    else:
        changes = None
    found_changes = changes if changes is not None and changes.num_rows else None
    if plan.drop_retracts:
        found = found.without_retracts()
    if base is None:
        merged = _join_by_group(found, small.rows.schema)
        return Reduced(merged if merged.num_rows else None, found_changes)
    keep = _mask_unreplaced(base, places[hits], plan)
    tables = list(_interleave(base.rows, keep, places, found))
    return Reduced(pa.concat_tables(tables) if tables else None, found_changes)


@dataclass(frozen=True, slots=True)
class _GroupedOlder:
    """Versions from lower levels, and the group of each."""

    rows: pa.Table
    groups: Ints
    ages: Ints
    levels: Ints

    @classmethod
    def of(cls, older: Older, asked: Ints) -> _GroupedOlder:
        assert older.rows is not None
        assert older.ages is not None
        assert older.levels is not None
        return cls(older.rows, asked[older.places], older.ages, older.levels)


@dataclass(frozen=True, slots=True)
class _KnownVersions:
    """The known version of each group: of its versions that are not new, the one at the smallest level."""

    small: _GatheredRows
    base: _Part | None
    touched: Ints
    """Which groups have a new version."""
    there: Ints
    """Which groups have a version that is not new."""
    in_small: tuple[Ints, Ints]
    """Groups, and their rows in the smaller parts."""
    in_base: tuple[Ints, Ints]
    """Groups, and their rows in the base."""

    @classmethod
    def of(
        cls,
        small: _GatheredRows,
        groups: _Groups,
        base: _Part | None,
        places: Ints,
        hits: Ints,
        watch: Watch,
        *,
        untouched: bool,
    ) -> _KnownVersions:
        of_row = np.empty(len(groups.order), np.int64)
        of_row[groups.order] = np.repeat(np.arange(groups.count), groups.sizes)
        new = small.levels <= 0 if watch.top is None else small.levels != watch.top
        touched = np.zeros(groups.count, bool)
        touched[of_row[new]] = True
        best = np.full(groups.count, np.iinfo(np.int64).max)
        rows = np.flatnonzero(~new)
        np.minimum.at(best, of_row[rows], small.levels[rows])
        if base is not None:
            nearer = hits & (base.level < best)
            best[nearer] = base.level
        else:
            nearer = np.zeros(groups.count, bool)
        wanted = touched | untouched
        rows = rows[(small.levels[rows] == best[of_row[rows]]) & wanted[of_row[rows]] & ~nearer[of_row[rows]]]
        chosen = np.flatnonzero(nearer & wanted)
        there = best < np.iinfo(np.int64).max
        return cls(small, base, touched, there, (of_row[rows], rows), (chosen, places[chosen]))

    def rows(self, beyond: _GroupedOlder | None) -> KeyRows:
        """Return the known versions of the groups that were asked for, with those from lower levels."""
        tables, groups = [self.small.rows.take(pa.array(self.in_small[1]))], [self.in_small[0]]
        if self.base is not None and len(self.in_base[0]):
            tables.append(self.base.rows.take(pa.array(self.in_base[1])))
            groups.append(self.in_base[0])
        if beyond is not None:
            tables.append(beyond.rows)
            groups.append(beyond.groups)
        return KeyRows(pa.concat_tables(tables), np.concatenate(groups))


# ------------------------------------------------------------------------------------------------ windows


def _windows(runs: Sequence[Iterator[Piece]], plan: MergePlan) -> Iterator[list[_Part]]:
    """Yield window after window: the parts of the runs that hold all versions of the keys up to a bound."""
    cursors = [cursor for run in runs if (cursor := _RunCursor(run, plan)).refill()]
    while cursors:
        bound = min(cursor.last for cursor in cursors)
        yield [part for cursor in cursors if (part := cursor.take_up_to(bound)) is not None]
        cursors = [cursor for cursor in cursors if cursor.refill()]


class _RunCursor:
    """The current piece of one run, of which windows take rows from the front."""

    def __init__(self, run: Iterator[Piece], plan: MergePlan) -> None:
        self._run = run
        self._plan = plan
        self._rows: pa.Table | None = None
        self._keys: KeyArray = np.empty(0, np.uint64)
        self._piece: Piece | None = None
        self.last: Any = None

    def refill(self) -> bool:
        """Fetch the next piece if the current one is used up; return False at the end of the run."""
        while not len(self._keys):
            piece = next(self._run, None)
            if piece is None:
                return False
            if piece.rows.num_rows:
                self._piece = piece
                rows = piece.rows.combine_chunks()
                self._keys = self._plan.keys.encode(rows)
                self._rows = self._plan.drop_unneeded_columns(rows)
                _, self.last = first_and_last(self._keys)
        return True

    def take_up_to(self, bound: Any) -> _Part | None:
        """Take the rows up to the bound; None if there are none."""
        assert self._rows is not None
        assert self._piece is not None
        count = len(self._keys) if self.last <= bound else count_up_to(self._keys, bound)
        if not count:
            return None
        part = _Part(self._rows.slice(0, count), slice_keys(self._keys, 0, count), self._piece.age, self._piece.level)
        self._rows = self._rows.slice(count)
        self._keys = slice_keys(self._keys, count)
        return part


@dataclass(frozen=True, slots=True)
class _Part:
    rows: pa.Table
    keys: KeyArray
    age: int
    level: int
    changes_alone: bool = False
    """Whether the engine may change each of these rows even if it is the only version of its key."""


@dataclass(frozen=True, slots=True)
class _GatheredRows:
    """Rows of several parts as one table, with the key, age and level of each row."""

    rows: pa.Table
    keys: Keys
    ages: Ints
    levels: Ints


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows ordered by key and grouped by equal keys."""

    order: Ints
    starts: Ints
    """Where each group begins, and the number of rows at the end."""

    @classmethod
    def of(cls, keys: Keys) -> _Groups:
        order = keys.order()
        return cls(order, np.append(keys.starts(order), len(order)))

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Ints:
        return np.diff(self.starts)

    @property
    def firsts(self) -> Ints:
        found: Ints = self.order[self.starts[:-1]]
        return found

    @property
    def lasts(self) -> Ints:
        found: Ints = self.order[self.starts[1:] - 1]
        return found


@dataclass(slots=True)
class _Folded:
    """The merged rows of groups, and the group of each."""

    tables: list[pa.Table] = field(default_factory=list)
    groups: list[Ints] = field(default_factory=list)

    def add(self, rows: pa.Table, groups: Ints, plan: MergePlan) -> None:
        if plan.drop_retracts and (kinds := _kinds(rows)) is not None:
            adds = (kinds & 1) == 0
            if not adds.all():
                rows, groups = plan.select_output(rows).filter(pa.array(adds)), groups[adds]
        if rows.num_rows:
            self.tables.append(plan.select_output(rows))
            self.groups.append(groups)

    def select_groups(self, wanted: Ints) -> KeyRows:
        """Return the rows of the groups for which a mask is true."""
        return KeyRows(pa.concat_tables(self.tables), np.concatenate(self.groups)).only(
            wanted[np.concatenate(self.groups)]
        )

    def without_groups(self, gone: Ints) -> _Folded:
        """Return the rows without those of some groups."""
        masks = [~np.isin(groups, gone) for groups in self.groups]
        return self._filter(masks)

    def without_retracts(self) -> _Folded:
        """Return the rows that are not retract rows."""
        masks = [(rows.column(KIND).to_numpy() & 1) == 0 for rows in self.tables]
        return self._filter(masks)

    def _filter(self, masks: list[Ints]) -> _Folded:
        tables = [t if mask.all() else t.filter(pa.array(mask)) for t, mask in zip(self.tables, masks, strict=True)]
        return _Folded(tables, [groups[mask] for groups, mask in zip(self.groups, masks, strict=True)])


def _reduce(parts: list[_Part], plan: MergePlan) -> Iterator[pa.Table]:
    if len(parts) == 1:
        rows = _without_retracts(parts[0].rows) if plan.drop_retracts else parts[0].rows
        if rows.num_rows:
            yield plan.select_output(rows)
        return
    big = max(range(len(parts)), key=lambda index: parts[index].rows.num_rows)
    base = parts[big]
    rest = sorted((part for index, part in enumerate(parts) if index != big), key=lambda part: part.age)
    base_keys, *rest_keys = window([base.keys, *(part.keys for part in rest)])
    small = _gather(rest, rest_keys)
    groups = _Groups.of(small.keys)
    places, hits = locate(base_keys, small.keys.take(groups.firsts))
    found = _fold(small, groups, base, hits, places, plan)
    keep = _mask_unreplaced(base, places[hits], plan)
    rows = plan.select_output(base.rows)
    if plan.ordered:
        yield from _interleave(rows, keep, places, found)
        return
    left = rows if keep.all() else rows.filter(pa.array(keep))
    yield from (rows for rows in (left, *found.tables) if rows.num_rows)


def _gather(parts: Sequence[_Part], keys: Sequence[Keys]) -> _GatheredRows:
    counts = [part.rows.num_rows for part in parts]
    return _GatheredRows(
        pa.concat_tables([part.rows for part in parts]).combine_chunks(),
        concat(keys),
        np.repeat([part.age for part in parts], counts),
        np.repeat([part.level for part in parts], counts),
    )


def _mask_unreplaced(base: _Part, replaced: Ints, plan: MergePlan) -> Ints:
    """Return a mask of the base rows that stay as they are."""
    keep = np.ones(base.rows.num_rows, dtype=bool)
    keep[replaced] = False
    if plan.drop_retracts and (kinds := _kinds(base.rows)) is not None:
        keep &= (kinds & 1) == 0
    return keep


def _interleave(base: pa.Table, keep: Ints, places: Ints, found: _Folded) -> Iterator[pa.Table]:
    """Yield the rows kept from the base and the merged rows, sorted by key."""
    kept = np.nonzero(keep)[0]
    if not found.tables:
        if len(kept):
            yield base if len(kept) == len(keep) else base.filter(pa.array(keep))
        return
    groups = np.concatenate(found.groups)
    # A merged row goes in front of its position in the base, hence the even numbers; groups are sorted by key.
    where = np.concatenate([kept * 2 + 1, places[groups] * 2])
    within = np.concatenate([np.zeros(len(kept), np.int64), groups])
    order = np.lexsort((within, where))
    rows = pa.concat_tables([base.filter(pa.array(keep)), *found.tables]).combine_chunks()
    yield rows.take(pa.array(order))


# ------------------------------------------------------------------------------------------------ versions


def _fold(
    small: _GatheredRows,
    groups: _Groups,
    base: _Part | None,
    hits: Ints,
    places: Ints,
    plan: MergePlan,
    *,
    beyond: _GroupedOlder | None = None,
    lone: bool = False,
) -> _Folded:
    """Merge the keys of the smaller parts with their versions in the base and on lower levels.

    With `lone` the engine also folds keys that have a single version.
    """
    out = _Folded()
    sizes = groups.sizes
    oldest = int(small.ages.min())
    newer = (base is None or base.age < oldest) and (beyond is None or int(beyond.ages.max()) < oldest)
    if newer and plan.engine.takes_last and plan.by_age and not plan.sequence:
        rows = small.rows if plan.drop_retracts else plan.select_output(small.rows)
        out.add(rows.take(pa.array(groups.lasts)), np.arange(groups.count), plan)
        return out
    several = (sizes > 1) | hits | lone
    if beyond is not None:
        several[beyond.groups] = True
    alone = np.nonzero(~several)[0]
    if len(alone):
        out.add(small.rows.take(pa.array(groups.firsts[alone])), alone, plan)
    chosen = np.nonzero(several)[0]
    if len(chosen):
        versions = _versions(small, groups, base, hits, places, chosen, plan, beyond)
        rows, which = plan.engine.fold(versions)
        out.add(rows, chosen[which], plan)
    return out


def _versions(
    small: _GatheredRows,
    groups: _Groups,
    base: _Part | None,
    hits: Ints,
    places: Ints,
    chosen: Ints,
    plan: MergePlan,
    beyond: _GroupedOlder | None,
) -> Versions:
    """Collect all versions of the chosen groups, group after group, oldest first."""
    sizes = groups.sizes
    number = np.full(groups.count, -1, np.int64)
    number[chosen] = np.arange(len(chosen))
    of_row = np.repeat(np.arange(groups.count), sizes)
    mine = number[of_row] >= 0
    members = groups.order[mine]
    group = number[of_row[mine]]
    rows = small.rows.take(pa.array(members))
    ages, levels = small.ages[members], small.levels[members]
    if base is not None and hits.any():
        hit = np.nonzero(hits)[0]
        rows = pa.concat_tables([rows, base.rows.take(pa.array(places[hit]))])
        group = np.concatenate([group, number[hit]])
        ages = np.concatenate([ages, np.full(len(hit), base.age)])
        levels = np.concatenate([levels, np.full(len(hit), base.level)])
    if beyond is not None:
        rows = pa.concat_tables([rows, beyond.rows])
        group = np.concatenate([group, number[beyond.groups]])
        ages = np.concatenate([ages, beyond.ages])
        levels = np.concatenate([levels, beyond.levels])
    if plan.newest_level_only:
        live = _newest_level(group, levels, len(chosen))
        rows, group, ages, levels = rows.filter(pa.array(live)), group[live], ages[live], levels[live]
    order = np.lexsort((*_ties(rows, ages, plan), group))
    starts = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=len(chosen)))])
    table = rows.combine_chunks().take(pa.array(order))
    return Versions(table, starts.astype(np.int64), _kinds(table))


def _newest_level(group: Ints, levels: Ints, count: int) -> Ints:
    best = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(best, group[levels > 0], levels[levels > 0])
    live: Ints = (levels <= 0) | (levels == best[group])
    return live


def _ties(rows: pa.Table, ages: Ints, plan: MergePlan) -> list[Ints]:
    """Return the sort keys that order the versions of a key, least important first, as `np.lexsort` wants them."""
    keys: list[Ints] = []
    if plan.by_age:
        keys.append(ages)
    else:
        # Of two rows with one sequence number the addition counts as newer than the retraction: -U comes before +U.
        if (kinds := _kinds(rows)) is not None:
            keys.append((kinds & 1) == 0)
        keys.append(rows.column(SEQUENCE).to_numpy())
    return [*keys, *(sequence_ranks(rows.column(name), descending=plan.descending) for name in reversed(plan.sequence))]


# ------------------------------------------------------------------------------------------------ rows


def _kinds(rows: pa.Table) -> Ints | None:
    if KIND not in rows.column_names:
        return None
    kinds: Ints = rows.column(KIND).to_numpy()
    return kinds


def _without_retracts(rows: pa.Table) -> pa.Table:
    kinds = _kinds(rows)
    if kinds is None or not (kinds & 1).any():
        return rows
    return rows.filter(pa.array((kinds & 1) == 0))


def _join_by_group(found: _Folded, schema: pa.Schema) -> pa.Table:
    if not found.tables:
        return schema.empty_table()
    groups = np.concatenate(found.groups)
    rows = pa.concat_tables(found.tables).combine_chunks()
    order = np.argsort(groups, kind="stable")
    return rows if (order == np.arange(len(order))).all() else rows.take(pa.array(order))
