"""Laws of predicates: the columnar answer equals the slow one, and pruning never says no where a row matches."""

from __future__ import annotations

import datetime as dt
import math
import operator
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.expr.evaluate import matches
from tidelake.expr.prune import Bounds, may_match
from tidelake.expr.tree import OPERATORS, And, Compare, In, IsNull, Not, Or, Predicate
from tidelake.ops.scan.partitions import EveryPartition, PartitionPredicate, PartitionSet
from tidelake.spec.data_file import DataFile
from tidelake.spec.manifests.manifest import ADD, entries_table
from tidelake.spec.manifests.manifest_meta import combine_metas, meta_of_entries
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import BOOLEAN, BYTES, DATE, DOUBLE, INT, STRING, DataType, DecimalType

EPOCH = dt.date(1970, 1, 1)


class Kind(NamedTuple):
    """A column type, the Python values a predicate compares with, and the same values as a stored row holds them."""

    type: DataType
    values: tuple[Any, ...]

    def stored(self, value: Any) -> Any:
        return (value - EPOCH).days if isinstance(value, dt.date) else value


KINDS = {
    "i": Kind(INT, (-(2**31), -1, 0, 1, 7, 2**31 - 1)),
    "s": Kind(STRING, ("", "a", "b", "é", "\U0001f40b", "a\x00")),
    "f": Kind(DOUBLE, (-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan)),
    "b": Kind(BOOLEAN, (False, True)),
    "d": Kind(DATE, (dt.date(1969, 12, 31), dt.date(2026, 11, 15), dt.date(1, 1, 1))),
    "n": Kind(DecimalType(precision=5, scale=2), (Decimal("-1.25"), Decimal("0.00"), Decimal("999.99"))),
    "y": Kind(BYTES, (b"", b"\x00", b"\x7f", b"\xff")),
}
NAMES = tuple(KINDS)
ROWS = st.tuples(*(st.sampled_from((None, *kind.values)) for kind in KINDS.values()))
COMPARE = dict(
    zip(OPERATORS, (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge), strict=True)
)


def leaves(names: tuple[str, ...]) -> st.SearchStrategy[Predicate]:
    def of(name: str) -> st.SearchStrategy[Predicate]:
        values = st.sampled_from((None, *KINDS[name].values))
        return st.one_of(
            st.builds(Compare, st.just(name), st.sampled_from(OPERATORS), values),
            st.builds(In, st.just(name), st.lists(values, max_size=3).map(tuple)),
            st.builds(IsNull, st.just(name)),
        )

    return st.sampled_from(names).flatmap(of)


def predicates(names: tuple[str, ...] = NAMES) -> st.SearchStrategy[Predicate]:
    def grow(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        parts = st.lists(inner, max_size=3).map(tuple)
        return st.one_of(st.builds(And, parts), st.builds(Or, parts), st.builds(Not, inner))

    return st.recursive(leaves(names), grow, max_leaves=6)


def ordered(value: Any) -> Any:
    """A value by which Python compares as SQL does: NaN equals itself and is greater than every number."""
    return (math.isnan(value), 0 if math.isnan(value) else value) if isinstance(value, float) else value


def slow(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """SQL's three truth values, one row at a time."""
    match predicate:
        case Compare(name, op, value):
            return None if row[name] is None or value is None else bool(COMPARE[op](ordered(row[name]), ordered(value)))
        case In(name, options):
            return slow(Or(tuple(Compare(name, "=", option) for option in options)), row)
        case IsNull(name):
            return row[name] is None
        case Not(part):
            answer = slow(part, row)
            return None if answer is None else not answer
        case And(parts):
            answers = [slow(part, row) for part in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [slow(part, row) for part in parts]
            return True if True in answers else None if None in answers else False
    raise AssertionError(predicate)


def named(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(NAMES, row, strict=True))


def arrow(name: str, values: list[Any]) -> pa.Array:
    return pa.array(values, to_arrow(KINDS[name].type))


def bounds_of(name: str, groups: list[list[tuple[Any, ...]]], *, nan_is: str) -> Bounds:
    """What a writer records of each group: NaN makes the bounds unknown, is the greatest value, or is left out."""
    at = NAMES.index(name)
    low, high, nulls = [], [], []
    for group in groups:
        values = [row[at] for row in group if row[at] is not None]
        nan = [value for value in values if isinstance(value, float) and math.isnan(value)]
        plain = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
        if nan and nan_is == "unknown":
            plain = nan = []
        if nan_is == "left out":
            nan = []
        low.append(min(plain, default=nan[0] if nan else None))
        high.append(nan[0] if nan else max(plain, default=None))
        nulls.append(len(group) - len(values))
    return Bounds(
        arrow(name, low), arrow(name, high), pa.array(nulls, pa.int64()), pa.array([len(g) for g in groups], pa.int64())
    )


@given(predicate=predicates(), rows=st.lists(ROWS, max_size=6))
@settings(max_examples=300, deadline=None)
def test_the_columnar_answer_equals_that_of_each_row(predicate, rows):
    columns = {name: arrow(name, [row[i] for row in rows]) for i, name in enumerate(NAMES)}
    found = matches(predicate, columns, len(rows))
    assert found.null_count == 0
    assert found.to_pylist() == [slow(predicate, named(row)) is True for row in rows]


@given(
    predicate=predicates(),
    groups=st.lists(st.lists(ROWS, min_size=1, max_size=4), max_size=4),
    known=st.sets(st.sampled_from(NAMES)),
    nan_is=st.sampled_from(["unknown", "greatest", "left out"]),
)
@settings(max_examples=400, deadline=None)
def test_pruning_never_says_no_for_a_group_that_holds_a_matching_row(predicate, groups, known, nan_is):
    bounds = {name: bounds_of(name, groups, nan_is=nan_is) for name in known}
    if nan_is == "unknown":
        bounds = {name: replace(each, without_nan=True) for name, each in bounds.items()}
    answer = may_match(predicate, bounds, len(groups))
    assert answer.null_count == 0
    for group, kept in zip(groups, answer.to_pylist(), strict=True):
        assert kept or not any(slow(predicate, named(row)) is True for row in group)


@given(predicate=predicates(), groups=st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_bounds_that_say_nothing_prune_nothing(predicate, groups):
    nothing = {
        name: Bounds(
            arrow(name, [None] * len(groups)),
            arrow(name, [None] * len(groups)),
            pa.nulls(len(groups), pa.int64()),
            pa.nulls(len(groups), pa.int64()),
        )
        for name in NAMES
    }
    for group, kept in zip(groups, may_match(predicate, nothing, len(groups)).to_pylist(), strict=True):
        assert kept or not any(slow(predicate, named(row)) is True for row in group)


# ------------------------------------------------------------------------------------------------ partitions

KEYS = ("i", "s", "f", "d")
TYPES = tuple(KINDS[name].type for name in KEYS)
PARTITIONS = st.tuples(*(st.sampled_from((None, *KINDS[name].values)) for name in KEYS))


def encoded(values: tuple[Any, ...]) -> bytes:
    return encode_row([KINDS[name].stored(v) for name, v in zip(KEYS, values, strict=True)], TYPES)


def metas_of(groups: list[list[tuple[Any, ...]]], *, joined: bool):
    """One manifest per group; `joined` describes each by combining one manifest per partition."""
    metas = []
    for number, group in enumerate(groups):
        rows = [
            (ADD, encoded(values), 0, 1, DataFile(file_name=f"f{number}-{i}", file_size=1, row_count=1))
            for i, values in enumerate(group)
        ]
        tables = [entries_table([row]) for row in rows] if joined else [entries_table(rows)]
        parts = [meta_of_entries(table, f"m{number}", 1, TYPES, schema_id=0) for table in tables]
        metas.append(combine_metas(parts, f"m{number}", 1, TYPES) if joined else parts[0])
    return metas


GROUPS = st.lists(st.lists(PARTITIONS, min_size=1, max_size=4), min_size=1, max_size=4)


@given(predicate=predicates(KEYS), groups=GROUPS, joined=st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_partition_predicate_prunes_soundly_and_masks_exactly(predicate, groups, joined):
    chosen = PartitionPredicate(predicate, KEYS, TYPES)
    wanted = [[slow(predicate, dict(zip(KEYS, row, strict=True))) is True for row in group] for group in groups]
    metas = metas_of(groups, joined=joined)
    kept = {meta.file_name for meta in chosen.prune(metas)}
    assert kept >= {meta.file_name for meta, mask in zip(metas, wanted, strict=True) if any(mask)}
    rows = pa.array([encoded(values) for group in groups for values in group], pa.large_binary())
    assert chosen.mask(rows).to_pylist() == [answer for mask in wanted for answer in mask]
    assert chosen.mask(pa.chunked_array([rows.slice(0, 1), rows.slice(1)])).equals(chosen.mask(rows))


@given(groups=GROUPS, data=st.data(), joined=st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_partition_set_prunes_soundly_and_masks_exactly(groups, data, joined):
    everything = sorted({encoded(values) for group in groups for values in group})
    others = data.draw(st.lists(PARTITIONS, max_size=2))
    rows = frozenset(data.draw(st.sets(st.sampled_from(everything)))) | {encoded(values) for values in others}
    chosen = PartitionSet(rows, TYPES)
    metas = metas_of(groups, joined=joined)
    kept = [meta.file_name for meta in chosen.prune(metas)]
    held = [any(encoded(values) in rows for values in group) for group in groups]
    assert set(kept) >= {meta.file_name for meta, hit in zip(metas, held, strict=True) if hit}
    assert kept == [meta.file_name for meta in metas if meta.file_name in set(kept)]
    flat = pa.array([encoded(values) for group in groups for values in group], pa.large_binary())
    assert chosen.mask(flat).to_pylist() == [row in rows for row in flat.to_pylist()]


@given(groups=GROUPS)
@settings(max_examples=20, deadline=None)
def test_every_partition_is_every_partition(groups):
    metas = metas_of(groups, joined=False)
    assert EveryPartition().prune(metas) == metas
    assert EveryPartition().mask(pa.array([b"x", b"y"])).to_pylist() == [True, True]
