"""The merge: sorted runs in, one row per key out, in bounded memory.

Each run gives sorted pieces. The smallest "last key in hand" bounds a window; every run gives its rows up to it, the
window is reduced, and the runs are refilled. Of a window the largest part is the base: it is only searched and
filtered, never sorted or gathered. Keys with one version pass through untouched; the versions of the others are put in
order and folded by the engine, all keys at once.

Invariant: the rows that come out are those that feeding every version of each key, oldest first, to the engine gives;
with `ordered`, sorted by key. Memory is about the pieces in hand, whatever the size of the runs.
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
from tidelake.spec.types import Field


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one file, sorted by key, each key once. The first key column of several may be an Arrow dictionary."""

    rows: pa.Table
    age: int = 0
    """Larger is newer. Decides between versions where `MergePlan.by_age`; otherwise breaks no tie."""
    level: int = 0


@dataclass(frozen=True, slots=True)
class MergePlan:
    """How versions of a key are put in order and what becomes of them."""

    keys: KeyCodec
    engine: Engine
    sequence: tuple[str, ...] = ()
    """Columns that order versions before their sequence number does."""
    descending: bool = False
    by_age: bool = False
    """The sequence numbers of a newer file are all larger, so its age stands for them."""
    newest_level_only: bool = False
    """Of the versions above level 0 only the one at the smallest level counts: it holds what lies below."""
    drop_retracts: bool = False
    ordered: bool = False
    output: tuple[str, ...] | None = None
    """The columns that come out, all if None; keys and the like are then not copied only to be dropped."""

    def shown(self, rows: pa.Table) -> pa.Table:
        """Rows with the columns that come out."""
        return rows if self.output is None else rows.select(self.output)

    def carried(self, rows: pa.Table) -> pa.Table:
        """Rows once their keys are known: without key columns that nobody asks for, the others no dictionaries."""
        if self.output is not None and self.engine.takes_last:
            unwanted = set(self.keys.columns).difference(self.output, self.sequence)
            rows = rows.drop_columns([name for name in rows.column_names if name in unwanted])
        return without_dictionaries(rows)


def without_dictionaries(rows: pa.Table) -> pa.Table:
    """Rows whose Arrow dictionaries are plain columns."""
    for index, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type):
            field = rows.field(index).with_type(column.type.value_type)
            rows = rows.set_column(index, field, column.cast(field.type))
    return rows


def merge(runs: Sequence[Iterator[Piece]], plan: MergePlan) -> Iterator[pa.Table]:
    """Merge runs, each sorted by key without a key twice.

    Raises:
        InvalidInputError: a version is one the engine does not accept, or a key is null.
    """
    for parts in _windows(runs, plan):
        yield from _reduce(parts, plan)


def merge_rows(rows: pa.Table, plan: MergePlan) -> pa.Table:
    """Merge rows in the order of their arrival into sorted rows with each key once.

    Where `plan.by_age`, the later row is the newer one.

    Raises:
        InvalidInputError: a version is one the engine does not accept, or a key is null.
    """
    if not rows.num_rows:
        return rows
    (keys,) = window([plan.keys.encode(rows)], sorted_parts=False)
    group = _Groups.of(keys)
    none = np.zeros(rows.num_rows, np.int64)
    found = _fold(
        _One(rows.combine_chunks(), keys, none, none),
        group,
        None,
        np.zeros(group.count, bool),
        np.zeros(group.count, np.int64),
        plan,
    )
    return _joined(found, plan.shown(rows).schema)


def sort_versions(rows: pa.Table, plan: MergePlan) -> pa.Table:
    """Rows in the order of their arrival as a merge would be fed with them: by key, versions of a key oldest first.

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
    """Versions of keys that lie outside of the runs."""

    places: Ints
    """Which of the keys that were asked for have one, ascending."""
    rows: pa.Table | None = None
    """Those versions, with the columns of the runs; None where it only counts that they exist."""
    levels: Ints | None = None
    ages: Ints | None = None


class Below(Protocol):
    """Knows the versions that lie below the runs of a merge."""

    def find(self, rows: pa.Table) -> Older:
        """The older versions of keys, which are sorted, and all behind those of the call before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Which versions are new, and what a merge tells of the keys that have one."""

    top: int | None = None
    """The level that holds what was known before; all others are new. None: level 0 is new, all others are known."""
    below: Below | None = None
    """Looked into for keys that are new and not among what is known."""
    tells: bool = True
    """Whether changes are wanted."""
    compared: tuple[Field, ...] | None = None
    """The columns in which an update must differ to be told; None tells every update."""
    first_wins: bool = False
    """A key that is known stays as it is, and only keys that are not known are told of, as they come."""
    folds_lone: bool = False
    """Whether the engine is also given keys of one version, new or known, which it may change."""
    columns: tuple[Field, ...] = ()
    """All columns of a row: a known row that the engine changes alone is told of if one of them differs."""

    def is_new(self, level: int) -> bool:
        """Whether versions of a level are new."""
        return level <= 0 if self.top is None else level != self.top


@dataclass(frozen=True, slots=True)
class Reduced:
    """Rows of a window, by key, and what changed with them, by key; None where nothing did."""

    rows: pa.Table | None
    changes: pa.Table | None = None


def merge_watched(runs: Sequence[Iterator[Piece]], plan: MergePlan, watch: Watch) -> Iterator[Reduced]:
    """Merge runs into rows by key, and tell what became of the keys with new versions.

    The rows are those of `merge`, with the versions that lie below folded in. All columns come out.

    Raises:
        InvalidInputError: a version is one the engine does not accept, or a key is null.
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
    """The rows of a known part that the engine may change alone apart from the others, so that they become groups."""
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
    small = _together(rest, keys[-len(rest) :])
    groups = _Groups.of(small.keys)
    if base is not None:
        places, hits = locate(keys[0], small.keys.take(groups.firsts))
    else:
        places, hits = np.zeros(groups.count, np.int64), np.zeros(groups.count, bool)
    alone = any(part.changes_alone for part in parts)
    versions = _Known.of(small, groups, base, places, hits, watch, untouched=alone)
    asked = np.flatnonzero(versions.touched & ~versions.there)
    older: Older | None = None
    if watch.below is not None and len(asked):
        keys_alone = small.rows.select(list(plan.keys.columns))
        older = watch.below.find(keys_alone.take(pa.array(groups.firsts[asked])))
        if not len(older.places):
            older = None
    beyond = None if older is None or older.rows is None else _Extra.of(older, asked)
    unfiltered = replace(plan, drop_retracts=False)
    found = _fold(small, groups, base, hits, places, unfiltered, beyond=beyond, lone=watch.folds_lone)
    if watch.first_wins:
        fresh = np.zeros(groups.count, bool)
        fresh[asked] = True
        if older is not None:
            fresh[asked[older.places]] = False
            found = found.without(asked[older.places])
        changes = found.chosen(fresh).rows if watch.tells else None
    elif watch.tells:
        known_rows, told_of = versions.rows(beyond), versions.touched
        if len(known_rows.keys) and alone:
            others = ~told_of
            changed = changed_keys(known_rows.only(others[known_rows.keys]), found.chosen(others), watch.columns)
            told_of = told_of.copy()
            told_of[changed] = True
        before = known_rows.only(told_of[known_rows.keys])
        changes = difference(before, found.chosen(told_of), compared=watch.compared)
    else:
        changes = None
    told = changes if changes is not None and changes.num_rows else None
    if plan.drop_retracts:
        found = found.added()
    if base is None:
        merged = _joined(found, small.rows.schema)
        return Reduced(merged if merged.num_rows else None, told)
    keep = _kept(base, places[hits], plan)
    tables = list(_interleave(base.rows, keep, places, found))
    return Reduced(pa.concat_tables(tables) if tables else None, told)


@dataclass(frozen=True, slots=True)
class _Extra:
    """Versions from below, and which group each is of."""

    rows: pa.Table
    groups: Ints
    ages: Ints
    levels: Ints

    @classmethod
    def of(cls, older: Older, asked: Ints) -> _Extra:
        assert older.rows is not None
        assert older.ages is not None
        assert older.levels is not None
        return cls(older.rows, asked[older.places], older.ages, older.levels)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was known of each group: of its versions that are not new, the one at the smallest level."""

    small: _One
    base: _Part | None
    touched: Ints
    """Which groups have a new version."""
    there: Ints
    """Which groups have a version that is not new."""
    in_small: tuple[Ints, Ints]
    """Groups, and the rows of theirs among the smaller parts."""
    in_base: tuple[Ints, Ints]
    """Groups, and the rows of theirs in the base."""

    @classmethod
    def of(
        cls,
        small: _One,
        groups: _Groups,
        base: _Part | None,
        places: Ints,
        hits: Ints,
        watch: Watch,
        *,
        untouched: bool,
    ) -> _Known:
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

    def rows(self, beyond: _Extra | None) -> KeyRows:
        """What was known of the groups that have a new version, or of all, with what lies below."""
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
    """Parts of the runs with all versions of the keys up to a bound, one bound after the other."""
    hands = [hand for run in runs if (hand := _Hand(run, plan)).refill()]
    while hands:
        bound = min(hand.last for hand in hands)
        yield [part for hand in hands if (part := hand.give(bound)) is not None]
        hands = [hand for hand in hands if hand.refill()]


class _Hand:
    """What is in hand of one run."""

    def __init__(self, run: Iterator[Piece], plan: MergePlan) -> None:
        self._run = run
        self._plan = plan
        self._rows: pa.Table | None = None
        self._keys: KeyArray = np.empty(0, np.uint64)
        self._piece: Piece | None = None
        self.last: Any = None

    def refill(self) -> bool:
        """Take the next piece if nothing is in hand; False at the end of the run."""
        while not len(self._keys):
            piece = next(self._run, None)
            if piece is None:
                return False
            if piece.rows.num_rows:
                self._piece = piece
                rows = piece.rows.combine_chunks()
                self._keys = self._plan.keys.encode(rows)
                self._rows = self._plan.carried(rows)
                _, self.last = first_and_last(self._keys)
        return True

    def give(self, bound: Any) -> _Part | None:
        """The rows up to the bound."""
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
    """Whether the engine may change each of the rows even where it is the only version of its key."""


@dataclass(frozen=True, slots=True)
class _One:
    """Rows of several parts as one table, and what is known of each row."""

    rows: pa.Table
    keys: Keys
    ages: Ints
    levels: Ints


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows ordered by key, cut into the versions of each key."""

    order: Ints
    starts: Ints
    """One more than there are groups; the last is the number of rows."""

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
    """Rows that come out of groups, and which group each is of."""

    tables: list[pa.Table] = field(default_factory=list)
    groups: list[Ints] = field(default_factory=list)

    def add(self, rows: pa.Table, groups: Ints, plan: MergePlan) -> None:
        if plan.drop_retracts and (kinds := _kinds(rows)) is not None:
            adds = (kinds & 1) == 0
            if not adds.all():
                rows, groups = plan.shown(rows).filter(pa.array(adds)), groups[adds]
        if rows.num_rows:
            self.tables.append(plan.shown(rows))
            self.groups.append(groups)

    def chosen(self, wanted: Ints) -> KeyRows:
        """The rows of the groups for which a mask holds."""
        return KeyRows(pa.concat_tables(self.tables), np.concatenate(self.groups)).only(
            wanted[np.concatenate(self.groups)]
        )

    def without(self, gone: Ints) -> _Folded:
        """Without the rows of some groups."""
        masks = [~np.isin(groups, gone) for groups in self.groups]
        return self._masked(masks)

    def added(self) -> _Folded:
        """Without rows that delete or take back."""
        masks = [(rows.column(KIND).to_numpy() & 1) == 0 for rows in self.tables]
        return self._masked(masks)

    def _masked(self, masks: list[Ints]) -> _Folded:
        tables = [t if mask.all() else t.filter(pa.array(mask)) for t, mask in zip(self.tables, masks, strict=True)]
        return _Folded(tables, [groups[mask] for groups, mask in zip(self.groups, masks, strict=True)])


def _reduce(parts: list[_Part], plan: MergePlan) -> Iterator[pa.Table]:
    if len(parts) == 1:
        rows = _without_retracts(parts[0].rows) if plan.drop_retracts else parts[0].rows
        if rows.num_rows:
            yield plan.shown(rows)
        return
    big = max(range(len(parts)), key=lambda index: parts[index].rows.num_rows)
    base = parts[big]
    rest = sorted((part for index, part in enumerate(parts) if index != big), key=lambda part: part.age)
    base_keys, *rest_keys = window([base.keys, *(part.keys for part in rest)])
    small = _together(rest, rest_keys)
    groups = _Groups.of(small.keys)
    places, hits = locate(base_keys, small.keys.take(groups.firsts))
    found = _fold(small, groups, base, hits, places, plan)
    keep = _kept(base, places[hits], plan)
    rows = plan.shown(base.rows)
    if plan.ordered:
        yield from _interleave(rows, keep, places, found)
        return
    left = rows if keep.all() else rows.filter(pa.array(keep))
    yield from (rows for rows in (left, *found.tables) if rows.num_rows)


def _together(parts: Sequence[_Part], keys: Sequence[Keys]) -> _One:
    counts = [part.rows.num_rows for part in parts]
    return _One(
        pa.concat_tables([part.rows for part in parts]).combine_chunks(),
        concat(keys),
        np.repeat([part.age for part in parts], counts),
        np.repeat([part.level for part in parts], counts),
    )


def _kept(base: _Part, replaced: Ints, plan: MergePlan) -> Ints:
    """Which rows of the base come out as they are."""
    keep = np.ones(base.rows.num_rows, dtype=bool)
    keep[replaced] = False
    if plan.drop_retracts and (kinds := _kinds(base.rows)) is not None:
        keep &= (kinds & 1) == 0
    return keep


def _interleave(base: pa.Table, keep: Ints, places: Ints, found: _Folded) -> Iterator[pa.Table]:
    """The rows that are kept of the base and those that were found, by key."""
    kept = np.nonzero(keep)[0]
    if not found.tables:
        if len(kept):
            yield base if len(kept) == len(keep) else base.filter(pa.array(keep))
        return
    groups = np.concatenate(found.groups)
    # A row of a group goes in front of its place in the base; groups are in the order of their keys.
    where = np.concatenate([kept * 2 + 1, places[groups] * 2])
    within = np.concatenate([np.zeros(len(kept), np.int64), groups])
    order = np.lexsort((within, where))
    rows = pa.concat_tables([base.filter(pa.array(keep)), *found.tables]).combine_chunks()
    yield rows.take(pa.array(order))


# ------------------------------------------------------------------------------------------------ versions


def _fold(
    small: _One,
    groups: _Groups,
    base: _Part | None,
    hits: Ints,
    places: Ints,
    plan: MergePlan,
    *,
    beyond: _Extra | None = None,
    lone: bool = False,
) -> _Folded:
    """What becomes of the keys of the smaller parts, with their versions in the base and below.

    With `lone` also keys of one version are given to the engine.
    """
    out = _Folded()
    sizes = groups.sizes
    oldest = int(small.ages.min())
    newer = (base is None or base.age < oldest) and (beyond is None or int(beyond.ages.max()) < oldest)
    if newer and plan.engine.takes_last and plan.by_age and not plan.sequence:
        rows = small.rows if plan.drop_retracts else plan.shown(small.rows)
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
    small: _One,
    groups: _Groups,
    base: _Part | None,
    hits: Ints,
    places: Ints,
    chosen: Ints,
    plan: MergePlan,
    beyond: _Extra | None,
) -> Versions:
    """All versions of the chosen groups, group after group, oldest first."""
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
    """What orders versions of a key, least important first."""
    keys: list[Ints] = []
    if plan.by_age:
        keys.append(ages)
    else:
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


def _joined(found: _Folded, schema: pa.Schema) -> pa.Table:
    if not found.tables:
        return schema.empty_table()
    groups = np.concatenate(found.groups)
    rows = pa.concat_tables(found.tables).combine_chunks()
    order = np.argsort(groups, kind="stable")
    return rows if (order == np.arange(len(order))).all() else rows.take(pa.array(order))
