"""MERGE into primary-key tables: upserts, new versions of rows, or sections written anew.

Which of them is right depends on the merge engine, as for DELETE and UPDATE (`keyed_verbs`): a version is written where
the last one wins, and replaces the old one in its file where it would not.

Invariant: a merge that is not a plain upsert is published only on top of the state it read, as far as its keys go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from tidelake.expr.node import Scalar
from tidelake.expr.scalar import ColumnRef
from tidelake.expr.sides import TARGET, column_of, full_name
from tidelake.expr.tree import ALWAYS, Predicate
from tidelake.lsm.engines.build import MergeOptions
from tidelake.ops.commit.committer import Guard
from tidelake.ops.commit.messages import CommitMessage
from tidelake.ops.read.append import ReadRequest
from tidelake.ops.read.rows import read_rows
from tidelake.ops.write.cross_partition import KeysUnmoved
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.keyed_verbs import (
    CopyOnWrite,
    Unchanged,
    assigned_order,
    keeps_the_first,
    keeps_whole_rows,
    put_in_place,
    versions_win,
    watched,
)
from tidelake.ops.write.kinds import KINDS
from tidelake.ops.write.merge_join import Columns, Hits, Matcher
from tidelake.ops.write.merge_parts import (
    NewPartners,
    Partners,
    Prepared,
    deciding,
    insert,
    making,
    named,
    pieces,
    planned,
    reach,
    taken_at,
)
from tidelake.ops.write.merge_rules import Action, Merge, Rule, When, blind_values
from tidelake.ops.write.verbs import Target
from tidelake.spec.snapshot import Snapshot
from tidelake.spec.types import Root


def upsert_values(target: Target, merge: Merge, has_nulls: Callable[[str], bool]) -> Mapping[str, Scalar] | None:
    """What to write for every source row where nothing has to be known about the target.

    `has_nulls` tells of a column of the source; it is asked only where a null matters.
    """
    schema, options = target.store.schema, target.options
    keys = schema.primary_keys
    if any(schema.field(name).type.root in (Root.FLOAT, Root.DOUBLE) for name in keys):
        return None  # 0.0 and -0.0 are equal and meet in a join, but they are two keys
    if keeps_the_first(options):
        return _first_only(merge, keys)
    if not versions_win(options, merge.assigned):
        return None
    watch = watched(options, "+U", merge.assigned)
    # Where nulls are passed over, a column that is not set keeps what it has; unless it has to be filled.
    filled = [each.name for each in schema.fields if each.default is not None or not each.type.nullable]
    values = blind_values(merge, keys, filled if watch else schema.names)
    if values is None:
        return None
    for name in watch:
        value = values[name]
        if not isinstance(value, ColumnRef) or has_nulls(column_of(value.column)):
            return None
    return values


def _first_only(merge: Merge, keys: Sequence[str]) -> Mapping[str, Scalar] | None:
    """A table that keeps the first row of a key does by itself what a merge that only inserts asks for."""
    rule = merge.rules[0]
    plain = len(merge.rules) == 1 and rule.when is When.NOT_MATCHED and rule.condition is None
    return rule.values if plain and merge.by_key(keys) and merge.inserts_own(keys) else None


def write_versions(target: Target, matcher: Matcher) -> Prepared | None:
    """Changed rows written again; None, and nothing is left behind, if one would lose against what it replaces."""
    schema, merge = target.store.schema, matcher.merge
    plan = planned(target, reach(target, matcher))
    order = assigned_order(target.options, merge.assigned)
    wanted = {*making(target, merge), *order}
    columns_read = tuple(name for name in schema.names if name in wanted)
    request = ReadRequest(schema=schema, columns=columns_read, where=plan.where)
    watch = {
        Action.UPDATE: watched(target.options, "+U", merge.assigned),
        Action.DELETE: watched(target.options, "-D"),
    }
    counts: dict[Action, int] = {}
    writer = target.writer()
    try:
        for rows in pieces(read_rows(target.store, plan.splits, request, target.options), matcher.count):
            columns = named(rows)
            hits = matcher.hits(columns, rows.num_rows)
            for rule, own in by_rule(merge, hits):
                old = taken_at(columns, own.rows)
                changed = matcher.updated(rule, schema, old, own)
                older = rule.action is Action.UPDATE and is_older(target.options, order, old, changed)
                if older or any(changed.column(name).null_count for name in watch[rule.action]):
                    writer.abort()
                    return None
                kind = KINDS["+U" if rule.action is Action.UPDATE else "-D"]
                writer.write(changed, pa.repeat(pa.scalar(kind, pa.int8()), changed.num_rows))
                counts[rule.action] = counts.get(rule.action, 0) + changed.num_rows
        counts[Action.INSERT] = insert(target, matcher, writer.write)
        messages = tuple(writer.prepare())
    except BaseException:
        writer.abort()
        raise
    return Prepared(messages, counts, keyed_guard(target, matcher, plan.snapshot.id if plan.snapshot else 0))


def by_rule(merge: Merge, hits: Hits) -> Iterator[tuple[Rule, Hits]]:
    """The hits of each rule that has some."""
    for number, rule in enumerate(merge.rules):
        own = hits.of(number)
        if len(own):
            yield rule, own


def is_older(options: Mapping[str, str], order: Sequence[str], old: Columns, new: pa.RecordBatch) -> bool:
    """Whether a new row comes before the one that it replaces, by the columns that say which is newer."""
    if not order:
        return False
    descending = MergeOptions.parse(options).descending
    older = np.zeros(new.num_rows, dtype=bool)
    equal = np.ones(new.num_rows, dtype=bool)
    for name in order:
        both = pa.chunked_array([old[full_name(TARGET, name)], new.column(name)])
        ranks = pl.Series(pl.from_arrow(both)).rank("dense").cast(pl.Int64)
        ranks = (-ranks if descending else ranks).fill_null(-len(ranks) - 1)  # null is the oldest, either way
        before, after = ranks.to_numpy()[: new.num_rows], ranks.to_numpy()[new.num_rows :]
        older |= equal & (after < before)
        equal &= after == before
    return bool(older.any())


@dataclass(slots=True)
class MergeEdit:
    """What a merge does to the rows of a section that is written anew."""

    target: Target
    matcher: Matcher
    counts: dict[Action, int] = field(default_factory=dict)

    @property
    def where(self) -> Predicate:
        """What rows that may change fulfil."""
        found = reach(self.target, self.matcher)
        return ALWAYS if found is None else found

    @property
    def columns(self) -> tuple[str, ...]:
        """What says which rule a row falls under."""
        return deciding(self.target, self.matcher.merge)

    def count(self, rows: pa.Table) -> int:
        """How many rows change; each is counted with what happens to it."""
        hits = self.matcher.hits(named(rows), rows.num_rows)
        for number, rule in enumerate(self.matcher.merge.rules):
            self.counts[rule.action] = self.counts.get(rule.action, 0) + len(hits.of(number))
        return len(hits)

    def changed(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """The rows with new ones in the place of those that are updated, and without those that are deleted."""
        columns = named(rows.select(list(names)))
        hits = self.matcher.hits(columns, rows.num_rows)
        stays = np.ones(rows.num_rows, dtype=bool)
        for rule, own in by_rule(self.matcher.merge, hits):
            if rule.action is Action.DELETE:
                stays[own.rows] = False
            else:
                new = self.matcher.updated(rule, self.target.store.schema, taken_at(columns, own.rows), own)
                rows = put_in_place(rows, own.rows, new)
        return rows if stays.all() else rows.filter(pa.array(stays))


def rewrite_sections(target: Target, matcher: Matcher) -> Prepared:
    """Sections with changed rows written anew; new rows beside them."""
    matcher.met[:] = False
    edit = MergeEdit(target, matcher)
    copied = CopyOnWrite(target.store, target.paths, target.options, edit, target.thin)
    found = copied.prepare()
    # Sections that are replaced here must not be compacted by who writes the new rows.
    writer = KeyedTableWriter(target.store, target.paths, {**target.options, "write-only": "true"})
    try:
        inserted = insert(target, matcher, writer.write)
        messages = (*found.messages, *writer.prepare())
    except BaseException:
        writer.abort()
        copied.abort(found.messages)
        raise
    guard = keyed_guard(target, matcher, found.snapshot_id)
    return Prepared(messages, {**edit.counts, Action.INSERT: inserted}, guard, hidden=bool(inserted))


def keyed_guard(target: Target, matcher: Partners, snapshot_id: int) -> Guard:
    """Who looks at commits since the snapshot that a merge was computed from."""
    guards: list[Guard] = [Unchanged(target.store, target.paths, target.options, snapshot_id)]
    if target.moves_keys:  # a key that is gone meanwhile may have got a place of which they know nothing
        guards.append(KeysUnmoved(target.store, target.paths, since=snapshot_id))
    if matcher.merge.does(Action.INSERT) and not matcher.merge.covers(target.store.schema.primary_keys):
        guards.append(NewPartners(target, matcher, snapshot_id, keeps_whole_rows(target.options)))
    return all_of(guards)


def all_of(guards: Sequence[Guard]) -> Guard:
    """Several guards as one."""

    def guard(latest: Snapshot | None, messages: tuple[CommitMessage, ...]) -> None:
        for each in guards:
            each(latest, messages)

    return guard
