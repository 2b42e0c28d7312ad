"""MERGE into primary-key tables: upserts, new versions of rows, or rewritten sections.

The merge engine decides which of them is right, as for DELETE and UPDATE (`keyed_verbs`): a new version is written if
the last version wins; otherwise it replaces the old one in its file.

Invariant: a merge that is not a plain upsert is published only if no other job changed its keys since it read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from tidelake.cleanup import undo_on_error
from tidelake.expr.node import Scalar
from tidelake.expr.scalar import ColumnRef
from tidelake.expr.sides import TARGET, column_of, full_name
from tidelake.expr.tree import ALWAYS, Predicate
from tidelake.lsm.engines.build import MergeOptions
from tidelake.ops.change.keyed import (
    CopyOnWrite,
    Unchanged,
    assigned_order,
    find_null_sensitive_columns,
    keeps_the_first,
    keeps_whole_rows,
    put_in_place,
    versions_win,
)
from tidelake.ops.change.merge_join import Columns, MatchedPairs, Matcher
from tidelake.ops.change.merge_parts import (
    MatchFinder,
    NoNewMatches,
    Prepared,
    find_deciding_columns,
    find_needed_columns,
    insert,
    pieces,
    plan_target_read,
    qualify_columns,
    reach,
    take_rows,
)
from tidelake.ops.change.merge_rules import Action, Merge, Rule, When, blind_values
from tidelake.ops.commit.guards import Guard
from tidelake.ops.context import TableContext
from tidelake.ops.placement.cross_partition import KeysUnmoved
from tidelake.ops.read.append import ReadRequest
from tidelake.ops.read.rows import read_rows
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.ops.write.opening import open_writer
from tidelake.options import TableOptions
from tidelake.spec.rows.row_kind import KINDS
from tidelake.spec.schemas.bucket_mode import BucketMode
from tidelake.spec.types.data_types import Root


def upsert_values(target: TableContext, merge: Merge, has_nulls: Callable[[str], bool]) -> Mapping[str, Scalar] | None:
    """The values to write for every source row, if the target does not have to be read; else None.

    `has_nulls` says whether a column of the source has nulls; it is called only where a null matters.
    """
    schema, options = target.store.schema, target.options
    keys = schema.primary_keys
    if any(schema.field(name).type.root in (Root.FLOAT, Root.DOUBLE) for name in keys):
        return None  # 0.0 and -0.0 match in a join, but they are two keys
    if keeps_the_first(options):
        return _first_only(merge, keys)
    if not versions_win(options, merge.assigned_columns):
        return None
    watch = find_null_sensitive_columns(options, "+U", merge.assigned_columns)
    # Where the engine ignores nulls, a column that is not set keeps its value, unless it must have one.
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
    """The values of a merge that only inserts: a first-row table ignores new rows of existing keys by itself."""
    rule = merge.rules[0]
    plain = len(merge.rules) == 1 and rule.when is When.NOT_MATCHED and rule.condition is None
    return rule.values if plain and merge.by_key(keys) and merge.inserts_own(keys) else None


def write_versions(target: TableContext, matcher: Matcher) -> Prepared | None:
    """Write changed rows as new versions; None, without any new file, if one would lose against the old version."""
    schema, merge = target.store.schema, matcher.merge
    plan = plan_target_read(target, reach(target, matcher))
    order = assigned_order(target.options, merge.assigned_columns)
    wanted = {*find_needed_columns(target, merge), *order}
    columns_read = tuple(name for name in schema.names if name in wanted)
    request = ReadRequest(schema=schema, columns=columns_read, where=plan.where)
    watch = {
        Action.UPDATE: find_null_sensitive_columns(target.options, "+U", merge.assigned_columns),
        Action.DELETE: find_null_sensitive_columns(target.options, "-D"),
    }
    counts: dict[Action, int] = {}
    writer = open_writer(target)
    with undo_on_error(writer.abort):
        for rows in pieces(read_rows(target, plan.splits, request), matcher.count):
            columns = qualify_columns(rows)
            pairs = matcher.find_pairs(columns, rows.num_rows)
            for rule, own in by_rule(merge, pairs):
                old = take_rows(columns, own.rows)
                changed = matcher.make_updates(rule, schema, old, own)
                older = rule.action is Action.UPDATE and is_older(target.options, order, old, changed)
                if older or any(changed.column(name).null_count for name in watch[rule.action]):
                    writer.abort()
                    return None
                kind = KINDS["+U" if rule.action is Action.UPDATE else "-D"]
                writer.write(changed, pa.repeat(pa.scalar(kind, pa.int8()), changed.num_rows))
                counts[rule.action] = counts.get(rule.action, 0) + changed.num_rows
        counts[Action.INSERT] = insert(target, matcher, writer.write)
        messages = tuple(writer.prepare())
    return Prepared(messages, counts, keyed_guards(target, matcher, plan.snapshot.id if plan.snapshot else 0))


def by_rule(merge: Merge, pairs: MatchedPairs) -> Iterator[tuple[Rule, MatchedPairs]]:
    """The pairs of each rule with pairs."""
    for number, rule in enumerate(merge.rules):
        own = pairs.of(number)
        if len(own):
            yield rule, own


def is_older(options: TableOptions, order: Sequence[str], old: Columns, new: pa.RecordBatch) -> bool:
    """Whether a new row is older than the row that it replaces, by the sequence columns."""
    if not order:
        return False
    descending = options.of(MergeOptions).is_descending
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
    """The changes of a merge to the rows of a section that is rewritten."""

    target: TableContext
    matcher: Matcher
    counts: dict[Action, int] = field(default_factory=dict)

    @property
    def where(self) -> Predicate:
        """A condition that holds for all rows that may change."""
        found = reach(self.target, self.matcher)
        return ALWAYS if found is None else found

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide which rule applies to a row."""
        return find_deciding_columns(self.target, self.matcher.merge)

    def count(self, rows: pa.Table) -> int:
        """Count the rows that change, in total and by action."""
        pairs = self.matcher.find_pairs(qualify_columns(rows), rows.num_rows)
        for number, rule in enumerate(self.matcher.merge.rules):
            self.counts[rule.action] = self.counts.get(rule.action, 0) + len(pairs.of(number))
        return len(pairs)

    def change_rows(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """Replace updated rows by new ones, and drop deleted rows."""
        columns = qualify_columns(rows.select(list(names)))
        pairs = self.matcher.find_pairs(columns, rows.num_rows)
        stays = np.ones(rows.num_rows, dtype=bool)
        for rule, own in by_rule(self.matcher.merge, pairs):
            if rule.action is Action.DELETE:
                stays[own.rows] = False
            else:
                new = self.matcher.make_updates(rule, self.target.store.schema, take_rows(columns, own.rows), own)
                rows = put_in_place(rows, own.rows, new)
        return rows if stays.all() else rows.filter(pa.array(stays))


def rewrite_sections(target: TableContext, matcher: Matcher) -> Prepared:
    """Rewrite sections with changed rows, and write new rows."""
    matcher.met[:] = False
    edit = MergeEdit(target, matcher)
    copied = CopyOnWrite(target.store, target.paths, target.options, edit)
    found = copied.prepare()
    # The writer of new rows must not compact, because it could replace the same sections.
    writer = KeyedTableWriter(target, compacts=False)
    with undo_on_error(writer.abort, lambda: copied.abort(found.messages)):
        inserted = insert(target, matcher, writer.write)
        messages = (*found.messages, *writer.prepare())
    guards = keyed_guards(target, matcher, found.snapshot_id)
    return Prepared(messages, {**edit.counts, Action.INSERT: inserted}, guards, hidden=bool(inserted))


def keyed_guards(target: TableContext, matcher: MatchFinder, snapshot_id: int) -> tuple[Guard, ...]:
    """The guards that check the commits since the snapshot that a merge was computed from."""
    guards: list[Guard] = [Unchanged(target.store, target.paths, target.options, snapshot_id)]
    if target.bucket_mode is BucketMode.CROSS_PARTITION:
        # Another commit may have moved a key to a bucket that the merge did not read.
        guards.append(KeysUnmoved(target.store, target.paths, since=snapshot_id))
    if matcher.merge.does(Action.INSERT) and not matcher.merge.covers(target.store.schema.primary_keys):
        guards.append(NoNewMatches(target, matcher, snapshot_id, keeps_whole_rows(target.options)))
    return tuple(guards)
