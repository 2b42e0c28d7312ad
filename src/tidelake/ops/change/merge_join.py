"""Which target rows match which source rows, and which rule of a merge applies to each. Opens no file.

The source is in memory and its keys are numbered once; the target comes batch by batch. A batch is looked up in a hash
table of the key numbers, so the cost of the lookup does not depend on the number of matched pairs. Pairs are built in
slices of bounded size, and the rest of the condition is evaluated on them.

Invariant: a target row gets at most one rule and one source row. If two source rows would change it, that is an error
that names its key, whatever their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.expr.coerce import INTEGERS, is_text, to_common_type
from tidelake.expr.evaluate import evaluate_scalar, matches
from tidelake.expr.node import Node
from tidelake.expr.scalar import ColumnRef
from tidelake.expr.sides import TARGET, column_of, full_name, of_target, side_of, sides_to_sql
from tidelake.expr.tree import And, In, Predicate, col
from tidelake.ops.change.merge_rules import Action, Equal, Join, Merge, Rule, When
from tidelake.ops.write.values import fit_column
from tidelake.spec.rows.binary_hash import hash_rows
from tidelake.spec.schemas.schema import Schema
from tidelake.spec.types.arrow_types import from_arrow, row_to_arrow, to_arrow

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Columns = Mapping[str, pa.Array]
"""Columns of the target by their full names."""

_PAIRS: Final = 1 << 18
"""Pairs that are evaluated together, at most; a single row may have more."""
LISTED: Final = 256
"""Values of a column that a pruning condition lists; of more values it has only the range."""
_GROUP: Final = "group"
_INTEGER_BOUNDS: Final = {bits: (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class MatchedPairs:
    """Target rows that a rule changes, by position, with the rule and the source row of each (-1: none)."""

    rows: Ints
    rules: Ints
    source: Ints

    def of(self, rule: int) -> MatchedPairs:
        """The pairs of one rule."""
        return self.at(np.flatnonzero(self.rules == rule))

    def at(self, places: Ints) -> MatchedPairs:
        """The pairs at these positions of the list."""
        return MatchedPairs(self.rows[places], self.rules[places], self.source[places])

    def __len__(self) -> int:
        return len(self.rows)


def join_pairs(parts: Sequence[MatchedPairs]) -> MatchedPairs:
    """Join pairs of several rules to one list, in the order of target rows."""
    none: Ints = np.empty(0, np.int64)
    rows = np.concatenate([none, *(part.rows for part in parts)])
    order = np.argsort(rows, kind="stable")
    rules = np.concatenate([none, *(part.rules for part in parts)])
    source = np.concatenate([none, *(part.source for part in parts)])
    return MatchedPairs(rows[order], rules[order], source[order])


class Matcher:
    """Finds matched pairs of target and source rows, and remembers which source rows had a match."""

    def __init__(self, source: pa.Table, merge: Merge) -> None:
        """Number the keys of the source.

        Raises:
            InvalidInputError: a key cannot be computed.
        """
        self.source = source.combine_chunks()
        self.merge = merge
        self.met: Bools = np.zeros(source.num_rows, dtype=bool)
        join = merge.join
        names = {name for each in join.equals for name in each.source.columns()}
        columns = {name: _column(self.source, column_of(name)) for name in names}
        self.keys = [evaluate_scalar(each.source, columns, source.num_rows) for each in join.equals]
        frame, whole = _frame(join.equals, self.keys, source.num_rows)
        order: Ints = np.flatnonzero(whole)
        if join.equals:
            grouped = frame.with_row_index("row").filter(pl.Series(whole)).group_by(frame.columns).agg("row")
            sizes = grouped["row"].list.len().to_numpy().astype(np.int64)
            order = grouped["row"].explode().to_numpy().astype(np.int64) if len(grouped) else order[:0]
            self._groups = grouped.drop("row").with_columns(pl.Series(_GROUP, np.arange(len(grouped)), pl.Int64))
        else:
            sizes = np.array([len(order)], np.int64)
            self._groups = pl.DataFrame()
        self._order, self._sizes = order, sizes
        self._starts: Ints = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)

    @property
    def count(self) -> int:
        """The number of keys of the source; a batch of the target with as many rows is worth a lookup."""
        return len(self._sizes)

    # -------------------------------------------------------------------------------------------- pairs

    def pairs(self, columns: Columns, count: int) -> Iterator[tuple[Ints, Ints]]:
        """The matched pairs of `count` target rows: positions of target rows, ascending, and of their source rows."""
        groups = self._group_of(columns, count)
        rows: Ints = np.flatnonzero(groups >= 0)
        sizes = self._sizes[groups[rows]] if len(rows) else np.empty(0, np.int64)
        ends = np.cumsum(sizes)
        done = 0
        while done < len(rows):
            before = int(ends[done - 1]) if done else 0
            until = max(int(np.searchsorted(ends, before + _PAIRS, side="right")), done + 1)
            here, lengths = rows[done:until], sizes[done:until]
            target = np.repeat(here, lengths)
            offsets = np.arange(len(target)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            source = self._order[np.repeat(self._starts[groups[here]], lengths) + offsets]
            yield self._keep_matching(columns, target, source)
            done = until

    def _group_of(self, columns: Columns, count: int) -> Ints:
        """The number of each target row's key; -1 if the source does not have the key."""
        equals = self.merge.join.equals
        if not equals:
            return np.full(count, 0 if len(self._order) else -1, np.int64)
        values = [evaluate_scalar(each.target, columns, count) for each in equals]
        frame, whole = _frame(equals, values, count)
        found = frame.join(self._groups, on=frame.columns, how="left", nulls_equal=True, maintain_order="left")[
            _GROUP
        ].fill_null(-1)
        groups: Ints = np.where(whole, found.to_numpy(), -1)
        return groups

    def _keep_matching(self, columns: Columns, target: Ints, source: Ints) -> tuple[Ints, Ints]:
        rest = self.merge.join.rest
        if rest is None or not len(target):
            return target, source
        keep = np.asarray(matches(rest, self.take_columns([rest], columns, target, source), len(target)))
        return target[keep], source[keep]

    def take_columns(
        self, nodes: Sequence[Node], columns: Columns, target: Ints | None, source: Ints | None
    ) -> Columns:
        """Take the columns that expressions use, for these pairs."""
        found: dict[str, pa.Array] = {}
        for name in frozenset[str]().union(*(node.columns() for node in nodes)):
            if side_of(name) == TARGET:
                found[name] = columns[name] if target is None else columns[name].take(pa.array(target))
            else:
                whole = _column(self.source, column_of(name))
                found[name] = whole if source is None else whole.take(pa.array(source))
        return found

    # -------------------------------------------------------------------------------------------- rules

    def meets(self, columns: Columns, count: int) -> bool:
        """Whether one of these target rows has a match."""
        return any(len(target) for target, _ in self.pairs(columns, count))

    def find_pairs(self, columns: Columns, count: int) -> MatchedPairs:
        """Which of `count` target rows change, by which rule and source row; remembers matched source rows.

        Raises:
            InvalidInputError: two source rows change one target row, or a condition cannot be computed.
        """
        matched = self.merge.of(When.MATCHED)
        alone: Bools = np.ones(count, dtype=bool)
        found: list[MatchedPairs] = []
        for target, source in self.pairs(columns, count):
            alone[target] = False
            self.met[source] = True
            found.append(self._apply_rules(matched, columns, target, source))
        orphans = self.merge.of(When.BY_SOURCE)
        if orphans:
            rows: Ints = np.flatnonzero(alone)
            found.append(self._apply_rules(orphans, columns, rows, None))
        return self._once(join_pairs(found), columns)

    def unmet(self) -> Iterator[tuple[Rule, Ints]]:
        """For each rule the positions of the source rows to insert, which never had a match."""
        left: Ints = np.flatnonzero(~self.met)
        pairs = self._apply_rules(self.merge.of(When.NOT_MATCHED), {}, None, left)
        for number, rule in self.merge.of(When.NOT_MATCHED):
            places = pairs.source[pairs.rules == number]
            if len(places):
                yield rule, places

    def _apply_rules(
        self, rules: Sequence[tuple[int, Rule]], columns: Columns, target: Ints | None, source: Ints | None
    ) -> MatchedPairs:
        """Find the first rule whose condition is true for each pair; pairs without one are dropped."""
        given = target if target is not None else source
        assert given is not None
        decided = np.full(len(given), -1, np.int64)
        for number, rule in rules:
            left = np.flatnonzero(decided < 0)
            if not len(left):
                break
            if rule.condition is not None:
                there = self.take_columns(
                    [rule.condition],
                    columns,
                    None if target is None else target[left],
                    None if source is None else source[left],
                )
                left = left[np.asarray(matches(rule.condition, there, len(left)))]
            decided[left] = number
        places = np.flatnonzero(decided >= 0)
        none: Ints = np.full(len(places), -1, np.int64)
        return MatchedPairs(
            none if target is None else target[places], decided[places], none if source is None else source[places]
        )

    def _once(self, pairs: MatchedPairs, columns: Columns) -> MatchedPairs:
        """Refuse target rows with several pairs, and return each row once.

        Several source rows may delete one row if an unconditional DELETE is the only rule for matched rows.
        """
        again = np.flatnonzero(pairs.rows[1:] == pairs.rows[:-1])
        if not len(again):
            return pairs
        rules = [rule for _, rule in self.merge.of(When.MATCHED)]
        if len(rules) == 1 and rules[0].action is Action.DELETE and rules[0].condition is None:
            return pairs.at(np.concatenate([[0], np.flatnonzero(np.diff(pairs.rows)) + 1]))
        row = np.array([pairs.rows[again[0]]])
        raise InvalidInputError(
            "several source rows change one row of the table",
            code="merge-ambiguous",
            row=_describe_row(self.merge.join, columns, row),
            hint="give the source one row for each row of the table, or choose one with conditions of the clauses",
        )

    # -------------------------------------------------------------------------------------------- values

    def reach(self, schema: Schema) -> Predicate | None:
        """A condition that holds for every target row with a match, for pruning; None if nothing is known."""
        parts: list[Predicate] = []
        if self.merge.join.about_target is not None:
            parts.append(of_target(self.merge.join.about_target))
        for each, keys in zip(self.merge.join.equals, self.keys, strict=True):
            if isinstance(each.target, ColumnRef) and not each.nulls:
                parts += within(schema, column_of(each.target.column), keys)
        return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))

    def make_updates(self, rule: Rule, schema: Schema, columns: Columns, pairs: MatchedPairs) -> pa.RecordBatch:
        """Make the new rows for target rows that a rule updates; `columns` have one value for each hit.

        Raises:
            InvalidInputError: a value cannot be computed, or does not fit.
        """
        count = len(pairs)
        there = self.take_columns(list(rule.values.values()), columns, None, pairs.source)
        arrow = row_to_arrow(schema.fields)
        arrays = [
            fit_column(evaluate_scalar(rule.values[each.name], there, count), each, arrow.field(each.name).type, count)
            if each.name in rule.values
            else columns[full_name(TARGET, each.name)]
            for each in schema.fields
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)

    def make_inserts(self, values: Mapping[str, Any], schema: Schema, places: Ints | None) -> pa.RecordBatch:
        """Make the rows to insert for source rows (None: all), with defaults or nulls in columns without a value.

        Raises:
            InvalidInputError: a value cannot be computed, or does not fit.
        """
        count = self.source.num_rows if places is None else len(places)
        there = self.take_columns(list(values.values()), {}, None, places)
        arrow = row_to_arrow(schema.fields)
        arrays = [
            fit_column(
                evaluate_scalar(values[each.name], there, count) if each.name in values else None,
                each,
                arrow.field(each.name).type,
                count,
            )
            for each in schema.fields
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def refuse_repeated_keys(rows: pa.RecordBatch, keys: Sequence[str]) -> None:
    """Refuse two new rows with one key: which of them wins would depend on their order.

    Raises:
        InvalidInputError: two rows have the same key.
    """
    frame = pl.DataFrame(pa.Table.from_batches([rows.select(list(keys))]))
    twice = frame.is_duplicated()
    if twice.any():
        first = frame.row(int(twice.arg_max() or 0), named=True)
        raise InvalidInputError(
            "several source rows have one key",
            code="merge-ambiguous",
            row=", ".join(f"{name} = {value}" for name, value in first.items()),
            hint="give the source one row for each key",
        )


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _frame(equals: Sequence[Equal], values: Sequence[pa.Array], count: int) -> tuple[pl.DataFrame, Bools]:
    """Keys as machine values, and which of them can have a match: null equals nothing, NaN equals itself."""
    whole: Bools = np.ones(count, dtype=bool)
    columns: dict[str, pl.Series] = {}
    for number, (each, array) in enumerate(zip(equals, values, strict=True)):
        array = _machine(to_common_type(array, each.dtype))
        series = pl.Series(pl.from_arrow(array))
        if series.dtype.is_float():
            series = series + 0.0  # -0.0 becomes 0.0
        if not each.nulls and array.null_count:
            whole &= series.is_not_null().to_numpy()
        columns[str(number)] = series
    return pl.DataFrame(columns), whole


def _machine(values: pa.Array) -> pa.Array:
    if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def key_hashes(equals: Sequence[Equal], values: Sequence[pa.Array]) -> Ints:
    """A number for each key, the same for equal keys; for rows that are shuffled by their key."""
    machine = [
        _to_hashable(_machine(to_common_type(array, each.dtype))) for each, array in zip(equals, values, strict=True)
    ]
    return hash_rows(machine, [from_arrow(array.type, True) for array in machine]).astype(np.int64)


def _to_hashable(values: pa.Array) -> pa.Array:
    """Convert keys so that equal keys have the same bytes."""
    if pa.types.is_floating(values.type):
        plain = pc.add(values, pa.scalar(0, values.type))  # -0.0 becomes 0.0; all NaN become one below
        return pc.if_else(pc.is_nan(plain), pa.scalar(math.nan, plain.type), plain)
    return values.cast(pa.string()) if pa.types.is_decimal256(values.type) else values


def prunes(schema: Schema, column: str, dtype: pa.DataType) -> bool:
    """Whether a column can be pruned by values of this type: only if both types have the same order."""
    own = to_arrow(schema.field(column).type)
    plain = own in INTEGERS or is_text(own) or pa.types.is_date32(own)
    return plain and (dtype == own or (own in INTEGERS and dtype in INTEGERS))


def between(schema: Schema, column: str, low: Any, high: Any) -> list[Predicate]:
    """The condition that a column is between two values of the source; None matches nothing."""
    dtype = to_arrow(schema.field(column).type)
    if low is not None and dtype in INTEGERS:  # the column cannot equal a value that it cannot hold
        bounds = _INTEGER_BOUNDS[dtype.bit_width]
        low, high = max(low, bounds[0]), min(high, bounds[1])
    if low is None or low > high:
        return [In(column, ())]
    return [col(column) >= low, col(column) <= high]


def within(schema: Schema, column: str, keys: pa.Array) -> list[Predicate]:
    """The condition that a column has a value of the source, or is between them; none for other types."""
    if not prunes(schema, column, keys.type):
        return []
    dtype = to_arrow(schema.field(column).type)
    values = pl.Series(pl.from_arrow(keys)).drop_nulls().unique()
    if dtype in INTEGERS:  # the column cannot equal a value that it cannot hold
        low, high = _INTEGER_BOUNDS[dtype.bit_width]
        values = values.cast(pl.Int64)
        values = values.filter(values.is_between(low, high))
    if len(values) <= LISTED:
        return [In(column, tuple(values.to_list()))]
    return between(schema, column, values.min(), values.max())


def _describe_row(join: Join, columns: Columns, row: Ints) -> str | None:
    parts = []
    for each in join.equals:
        there = {name: columns[name].take(pa.array(row)) for name in each.target.columns()}
        value = evaluate_scalar(each.target, there, 1)[0].as_py()
        parts.append(f"{sides_to_sql(each.target)} = {value}")
    return ", ".join(parts) or None


__all__ = [
    "LISTED",
    "Columns",
    "MatchedPairs",
    "Matcher",
    "between",
    "join_pairs",
    "key_hashes",
    "prunes",
    "refuse_repeated_keys",
    "within",
]
