"""Laws of aggregate functions: columns give what one value after the other gives, however versions are grouped."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.aggregate import Aggregate, aggregate_for
from tidelake.options import TableOptions
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import DataType
from tidelake.spec.types.type_codec import parse_type
from tidelake.testing.aggregate import SlowAggregate, frozen_value, slow_fold

pytestmark = pytest.mark.filterwarnings("error")


class Case(NamedTuple):
    name: str
    type: str
    values: st.SearchStrategy[Any]
    settings: Mapping[str, str] = MappingProxyType({})

    @property
    def dtype(self) -> DataType:
        return parse_type(self.type)

    def fast(self) -> Aggregate:
        options = {f"fields.c.{key}": value for key, value in self.settings.items()}
        return aggregate_for("c", self.dtype, self.name, TableOptions(options))

    def slow(self) -> SlowAggregate:
        return SlowAggregate(self.dtype, self.name, self.settings)

    def array(self, values: list[Any]) -> pa.Array:
        """The values in the middle of a longer array: nothing may forget an offset."""
        return pa.array([None, *values, None], to_arrow(self.dtype)).slice(1, len(values))

    def frozen(self, values: Any) -> list[Any]:
        return [frozen_value(value, self.dtype) for value in values]


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(-4, 4), st.sampled_from([-(2**bits), -(2**bits) + 1, 2**bits - 1, 2 ** (bits - 1)]))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    edge = 10**precision - 1
    numbers = st.one_of(st.integers(-30, 30), st.sampled_from([edge, -edge, edge // 2, 10 ** (precision // 2)]))
    return numbers.map(lambda number: Decimal(f"{number}e-{scale}"))


FLOATS = st.sampled_from([0.0, -0.0, 1.0, -2.5, 0.1, 1e30, float("inf"), float("-inf"), float("nan"), 3e38, 7.0])
WORDS = st.sampled_from(
    ["", " ", "a", "b", "a,b", "b,a,b", ",", "a, b", "\u3000", "é", "\xa0", "x;;y", ";", "y;;x;;;a"]
)
SMALL = st.integers(0, 3)


def rows(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({name: st.none() | member for name, member in members.items()})


def lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.none() | items, max_size=4)


def maps(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(keys, st.none() | values), max_size=4, unique_by=lambda pair: pair[0])


KEYED = rows(k=SMALL, s=FLOATS, v=SMALL)
TABLE = "ARRAY<ROW<k INT, s DOUBLE, v INT>>"
TIMED = maps(SMALL, rows(v=SMALL, t=st.sampled_from(["", "1", "10", "9", "é"])))
BINARIES = st.sampled_from([b"", b"\x00", b"\x7f", b"\x80", b"a", b"ab"])
TEXTS = st.sampled_from(["", "a", "é", "\uffff", "\U00010000", "ab"])
DAYS = st.sampled_from([dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)])
MOMENTS = st.sampled_from([dt.datetime(1969, 12, 31, 23, 59, 59, 5), dt.datetime(2024, 2, 29)])
NESTED = rows(a=SMALL, b=lists(FLOATS), m=maps(SMALL, SMALL))

CASES = [
    *(Case(f, t, integers(b)) for f in ("sum", "product") for t, b in (("TINYINT", 7), ("SMALLINT", 15), ("INT", 31))),
    *(Case(f, "BIGINT", integers(63)) for f in ("sum", "product", "max", "min")),
    *(Case(f, "DOUBLE", FLOATS) for f in ("sum", "product", "max", "min")),
    *(Case(f, "FLOAT", FLOATS.map(lambda each: float(np.float32(each)))) for f in ("sum", "product", "max", "min")),
    *(
        Case(f, f"DECIMAL({p}, {s})", decimals(p, s))
        for f in ("sum", "product", "max", "min")
        for p, s in ((5, 2), (18, 0), (19, 4), (38, 18), (38, 0))
    ),
    *(
        Case(f, t, values)
        for f in ("max", "min")
        for t, values in (
            ("BOOLEAN", st.booleans()),
            ("STRING", TEXTS),
            ("BYTES", BINARIES),
            ("DATE", DAYS),
            ("TIMESTAMP(6)", MOMENTS),
            ("TINYINT", integers(7)),
            ("TIME(3)", st.sampled_from([dt.time(0), dt.time(23, 59, 59, 999000)])),
        )
    ),
    *(Case(f, "BOOLEAN", st.booleans()) for f in ("bool_and", "bool_or")),
    *(
        Case(f, t, values)
        for f in ("last_value", "last_non_null_value", "first_value", "first_non_null_value", "first_not_null_value")
        for t, values in (("INT", SMALL), ("STRING", TEXTS), ("ROW<a INT, b ARRAY<DOUBLE>, m MAP<INT, INT>>", NESTED))
    ),
    Case("listagg", "STRING", WORDS),
    Case("listagg", "STRING", WORDS, {"list-agg-delimiter": ""}),
    *(Case("listagg", "STRING", WORDS, {"distinct": "true", "list-agg-delimiter": d}) for d in (",", ";;", "", " ")),
    *(
        Case("collect", f"ARRAY<{t}>", lists(values), distinct)
        for distinct in ({}, {"distinct": "true"})
        for t, values in (
            ("INT", SMALL),
            ("DOUBLE", FLOATS),
            ("STRING", TEXTS),
            ("BYTES", BINARIES),
            ("ROW<a INT, b ARRAY<DOUBLE>, m MAP<INT, INT>>", NESTED),
            ("ARRAY<INT>", lists(SMALL)),
        )
    ),
    Case("merge_map", "MAP<INT, INT>", maps(SMALL, SMALL)),
    Case("merge_map", "MAP<STRING, ROW<a INT>>", maps(TEXTS, rows(a=SMALL))),
    Case("merge_map_with_keytime", "MAP<INT, ROW<v INT, t STRING>>", TIMED),
    Case("merge_map_with_keytime", "MAP<INT, ROW<v INT, t STRING>>", TIMED, {"ts-field": "t"}),
    Case("nested_update", TABLE, lists(KEYED)),
    Case("nested_update", TABLE, lists(KEYED), {"count-limit": "3"}),
    Case("nested_update", TABLE, lists(KEYED), {"nested-key": "k"}),
    Case("nested_update", TABLE, lists(KEYED), {"nested-key": "k,v", "count-limit": "2"}),
    Case("nested_update", TABLE, lists(KEYED), {"nested-key": "k", "nested-sequence-field": "s"}),
    Case("nested_update", TABLE, lists(KEYED), {"nested-key": "k", "nested-sequence-field": "v,s", "count-limit": "2"}),
    Case("nested_update", TABLE, lists(KEYED), {"nested-key": "s", "nested-key-null-strategy": "ignore"}),
    Case("nested_update", TABLE, lists(KEYED), {"nested-key": "k", "nested-key-null-strategy": "error"}),
    Case("nested_partial_update", TABLE, lists(KEYED), {"nested-key": "k"}),
    Case("nested_partial_update", TABLE, lists(KEYED), {"nested-key": "v,k"}),
    Case("max", "INT", SMALL, {"ignore-retract": "true"}),
    Case("collect", "ARRAY<INT>", lists(SMALL), {"ignore-retract": "true"}),
]
IDS = [f"{number}-{case.name}-{case.type[:14]}" for number, case in enumerate(CASES)]
RETRACTING = [
    case
    for case in CASES
    if case.name in ("sum", "product", "last_value", "last_non_null_value", "collect", "merge_map", "nested_update")
    or "ignore-retract" in case.settings
]

Groups = list[list[Any]]


def groups_of(case: Case) -> st.SearchStrategy[Groups]:
    return st.lists(st.lists(st.none() | case.values, max_size=5), min_size=1, max_size=4)


def outcome(compute: Callable[[], Any]) -> Any:
    """What comes out, errors included: an error of the world's making is an answer too."""
    try:
        return compute()
    except (InvalidInputError, UnsupportedError) as error:
        return type(error)


def folded(case: Case, groups: list[list[tuple[bool, Any]]]) -> list[Any]:
    """All groups at once, one version after the other."""
    function = case.fast()
    states: dict[int, Any] = {}
    for step in range(max(map(len, groups), default=0)):
        for retracted in (False, True):
            rows = [g for g, group in enumerate(groups) if len(group) > step and group[step][0] is retracted]
            if not rows:
                continue
            values = case.array([groups[g][step][1] for g in rows])
            if step == 0:
                after = function.first(values, np.full(len(rows), retracted))
            else:
                before = case.array([states[g] for g in rows])
                after = function.retract(before, values) if retracted else function.merge(before, values)
            assert after.type == values.type
            after.validate(full=True)
            states |= zip(rows, after.to_pylist(), strict=True)
    return case.frozen(states.get(g) for g in range(len(groups)))


@pytest.mark.parametrize("case", CASES, ids=IDS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_columns_groups_and_trees_give_what_single_values_give(case: Case, data: st.DataObject) -> None:
    groups = data.draw(groups_of(case))
    versions = [[(False, value) for value in group] for group in groups]
    expected = outcome(lambda: case.frozen(slow_fold(case.slow, group) for group in versions))
    assert outcome(lambda: folded(case, versions)) == expected

    starts = np.concatenate([[0], np.cumsum([len(group) for group in groups])])
    values = case.array([value for group in groups for value in group])
    result = outcome(lambda: case.fast().reduce(values, starts))
    if isinstance(result, pa.Array):
        assert result.type == values.type
        result.validate(full=True)
        assert case.frozen(result.to_pylist()) == expected
    else:
        assert result is None or result == expected

    if case.fast().associative:
        for group in groups:
            cut = data.draw(st.integers(0, len(group)))
            assert outcome(lambda: branched(case, group, cut)) == outcome(lambda: branched(case, group, 0))  # noqa: B023


def branched(case: Case, group: list[Any], cut: int) -> list[Any]:
    """The versions before and from the cut on, each folded, and the two results merged."""
    function = case.fast()
    states = []
    for part in (group[:cut], group[cut:]):
        for place, value in enumerate(part):
            added = case.array([value])
            states.append(function.merge(states.pop(), added) if place else function.first(added))
    while len(states) > 1:
        newer, older = states.pop(), states.pop()
        states.append(function.merge(older, newer))
    return case.frozen(states[0].to_pylist()) if states else []


@pytest.mark.parametrize("case", RETRACTING, ids=[f"{case.name}-{case.type[:14]}" for case in RETRACTING])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_values_are_taken_back_as_one_by_one(case: Case, data: st.DataObject) -> None:
    version = st.tuples(st.booleans(), st.none() | case.values)
    groups = data.draw(st.lists(st.lists(version, max_size=5), min_size=1, max_size=4))
    expected = outcome(lambda: case.frozen(slow_fold(case.slow, group) for group in groups))
    assert outcome(lambda: folded(case, groups)) == expected


@pytest.mark.parametrize("case", CASES, ids=IDS)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_a_late_row_is_merged_as_an_older_one(case: Case, data: st.DataObject) -> None:
    state, value = (data.draw(st.none() | case.values) for _ in range(2))

    def slowly() -> list[Any]:
        slow = case.slow()
        return case.frozen([slow.add_older(slow.add(None, state), value)])

    def fast() -> list[Any]:
        function = case.fast()
        result = function.merge_reversed(function.first(case.array([state])), case.array([value]))
        return case.frozen(result.to_pylist())

    assert outcome(fast) == outcome(slowly)


NESTED_TABLES = [case for case in CASES if case.name == "nested_update"]


@pytest.mark.parametrize("case", NESTED_TABLES, ids=[str(dict(case.settings)) for case in NESTED_TABLES])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_rows_that_come_late_or_are_taken_back_change_small_tables_as_one_by_one(
    case: Case, data: st.DataObject
) -> None:
    """Here a state may have a key twice: a late row is the older side, or the whole state, as it was written."""
    steps = data.draw(
        st.lists(st.tuples(st.sampled_from(["add", "older", "back"]), st.none() | case.values), min_size=1, max_size=4)
    )
    begin = data.draw(st.none() | case.values)

    def slowly() -> list[Any]:
        slow = case.slow()
        state = slow.add(None, begin)
        for how, value in steps:
            step = {"add": slow.add, "older": slow.add_older, "back": slow.retract}[how]
            state = step(state, value)
        return case.frozen([state])

    def fast() -> list[Any]:
        function = case.fast()
        state = function.first(case.array([begin]))
        for how, value in steps:
            step = {"add": function.merge, "older": function.merge_reversed, "back": function.retract}[how]
            state = step(state, case.array([value]))
        state.validate(full=True)
        return case.frozen(state.to_pylist())

    assert outcome(fast) == outcome(slowly)
