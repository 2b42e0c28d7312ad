"""Every merge engine, folded for all keys at once, equals its slow twin fed one version at a time."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.errors import TidelakeError
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.engines.build import MergeOptions, engine_for, merge_columns
from tidelake.lsm.kernel import MergePlan, Piece, merge, merge_rows
from tidelake.lsm.keys import KeyCodec
from tidelake.options import TableOptions
from tidelake.spec.schemas.schema import new_schema
from tidelake.testing.merge import SlowMerge

COLUMNS = {"k": "INT NOT NULL", "a": "INT", "b": "STRING", "g": "INT", "h": "INT", "c": "INT", "d": "BIGINT"}
GROUPS = {"fields.g.sequence-group": "a,b", "fields.h.sequence-group": "c"}
PAIR = {"fields.g,h.sequence-group": "a,b,c"}
CASES = {
    "deduplicate": ({}, True),
    "deduplicate, deletes ignored": ({"ignore-delete": "true"}, True),
    "deduplicate by sequence": ({"sequence.field": "g,h"}, True),
    "deduplicate by sequence, descending": ({"sequence.field": "g", "sequence.field.sort-order": "descending"}, True),
    "first-row": ({"merge-engine": "first-row"}, False),
    "first-row, deletes ignored": ({"merge-engine": "first-row", "ignore-delete": "true"}, True),
    "partial-update": ({"merge-engine": "partial-update"}, False),
    "partial-update by sequence": ({"merge-engine": "partial-update", "sequence.field": "g"}, False),
    "partial-update, deletes ignored": ({"merge-engine": "partial-update", "ignore-delete": "true"}, True),
    "partial-update, deletes remove": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        True,
    ),
    "sequence groups": ({"merge-engine": "partial-update", **GROUPS}, True),
    "sequence groups, adds": ({"merge-engine": "partial-update", **GROUPS}, False),
    "sequence groups of two columns": ({"merge-engine": "partial-update", **PAIR}, True),
    "sequence groups, deletes ignored": ({"merge-engine": "partial-update", **GROUPS, "ignore-delete": "true"}, True),
    "sequence groups, deletes remove": (
        {"merge-engine": "partial-update", **GROUPS, "partial-update.remove-record-on-sequence-group": "h"},
        True,
    ),
    "sequence groups with sums": (
        {
            "merge-engine": "partial-update",
            **GROUPS,
            "fields.a.aggregate-function": "sum",
            "fields.b.aggregate-function": "last_non_null_value",
            "fields.c.aggregate-function": "last_value",
        },
        True,
    ),
    "sequence groups with lists": (
        {
            "merge-engine": "partial-update",
            **PAIR,
            "fields.b.aggregate-function": "listagg",
            "fields.a.aggregate-function": "max",
            "fields.c.aggregate-function": "first_non_null_value",
        },
        False,
    ),
    "aggregation": ({"merge-engine": "aggregation"}, True),
    "aggregation of sums": (
        {
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "fields.d.aggregate-function": "sum",
            "fields.b.aggregate-function": "last_value",
        },
        True,
    ),
    "aggregation of many": (
        {
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "max",
            "fields.b.aggregate-function": "listagg",
            "fields.c.aggregate-function": "first_value",
            "fields.d.aggregate-function": "min",
            "fields.g.aggregate-function": "first_non_null_value",
        },
        False,
    ),
    "aggregation, deletes remove": (
        {
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "fields.b.aggregate-function": "listagg",
            "fields.g.aggregate-function": "first_value",
            "aggregation.remove-record-on-delete": "true",
        },
        "-D",
    ),
    "aggregation, retractions ignored": (
        {
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "max",
            "fields.a.ignore-retract": "true",
            "fields.b.aggregate-function": "listagg",
            "fields.b.ignore-retract": "true",
        },
        True,
    ),
}

small = st.one_of(st.none(), st.integers(0, 4))


@st.composite
def histories(draw, retracts):
    """Commits: each a list of (key, kind, values)."""
    kinds = [0, 2] if not retracts else [0, 0, 2, 3] if retracts == "-D" else [0, 0, 2, 1, 3]
    row = st.fixed_dictionaries(
        {
            "k": st.integers(0, 5),
            "a": small,
            "b": st.one_of(st.none(), st.sampled_from(["x", "y", ""])),
            "g": small,
            "h": small,
            "c": small,
            "d": small,
        }
    )
    commit = st.lists(st.tuples(st.sampled_from(kinds), row), min_size=1, max_size=12)
    return draw(st.lists(commit, min_size=1, max_size=5))


def table_of(versions, schema):
    """Versions as a table: value columns, sequence number, kind."""
    arrow = schema.to_arrow()
    columns = {name: pa.array([v[2][name] for v in versions], arrow.field(name).type) for name in schema.names}
    columns[SEQUENCE] = pa.array([v[0] for v in versions], pa.int64())
    columns[KIND] = pa.array([v[1] for v in versions], pa.int8())
    return pa.table(columns)


def versions_of(tables, names):
    return [
        (row[SEQUENCE], row[KIND], {name: row[name] for name in names}) for table in tables for row in table.to_pylist()
    ]


def outcome(act):
    try:
        return act()
    except TidelakeError as error:
        return type(error)


def slow_merge(slow, versions):
    found = {}
    for version in versions:
        found.setdefault(version[2]["k"], []).append(version)
    merged = [slow.merge(each) for _, each in sorted(found.items())]
    return [version for version in merged if version is not None]


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_buffers_and_runs_merge_as_the_slow_twin_does(case, data):
    options, retracts = CASES[case]
    schema = new_schema(COLUMNS, primary_keys=["k"], options={"bucket": "1", **options}, time_ms=0)
    slow = SlowMerge(schema, options)
    chosen = MergeOptions.parse(options)
    engine = engine_for(schema, TableOptions(options))
    codec = KeyCodec(("k",), (pa.int32(),))
    plan = MergePlan(codec, engine, sequence=chosen.sequence, descending=chosen.is_descending, ordered=True)
    buffer = MergePlan(codec, engine, sequence=chosen.sequence, descending=chosen.is_descending, by_age=True)
    number = 0
    runs, fed = [], []
    for age, commit in enumerate(data.draw(histories(retracts))):
        versions = [(number + i, kind, values) for i, (kind, values) in enumerate(commit)]
        number += len(commit)
        expected = outcome(lambda versions=versions: slow_merge(slow, versions))
        flushed = outcome(lambda versions=versions: merge_rows(table_of(versions, schema), buffer))
        if isinstance(expected, type):
            assert flushed == expected
            return
        found = versions_of([flushed], schema.names)
        assert found == expected
        runs.append(Piece(flushed, age=age))
        fed += expected
    expected = outcome(lambda: slow_merge(slow, fed))
    found = outcome(lambda: versions_of(list(merge([iter([run]) for run in runs], plan)), schema.names))
    assert found == expected


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_a_merge_of_some_columns_gives_what_the_whole_merge_gives(case, data):
    options, _ = CASES[case]
    schema = new_schema(COLUMNS, primary_keys=["k"], options={"bucket": "1", **options}, time_ms=0)
    wanted = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
    columns = merge_columns(schema, TableOptions(options), wanted)
    chosen = MergeOptions.parse(options)
    plan = MergePlan(
        KeyCodec(("k",), (pa.int32(),)),
        engine_for(schema, TableOptions(options)),
        sequence=chosen.sequence,
        descending=chosen.is_descending,
        ordered=True,
    )
    number, runs = 0, []
    for age, commit in enumerate(data.draw(histories(False))):
        keys = {}
        for kind, values in commit:
            keys[values["k"]] = (number, kind, values)
            number += 1
        runs.append((age, table_of([keys[k] for k in sorted(keys)], schema)))
    whole = pa.concat_tables(merge([iter([Piece(t, age)]) for age, t in runs], plan))
    narrow = [iter([Piece(t.select([*columns, SEQUENCE, KIND]), age)]) for age, t in runs]
    assert pa.concat_tables(merge(narrow, plan)).select(wanted).equals(whole.select(wanted))
