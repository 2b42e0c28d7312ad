"""Merging sorted runs equals feeding every version of a key, oldest first, to a slow merge."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.engines.deduplicate import Deduplicate
from tidelake.lsm.engines.first_row import FirstRow
from tidelake.lsm.kernel import MergePlan, Piece, merge, merge_rows
from tidelake.lsm.keys import KeyCodec, concat, locate, window

# ------------------------------------------------------------------------------------------------ keys

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "a", "a\0", "a\0b", "user-0000000001", "user-0000000002", "user-00000000020", "é", "\U0001f600"]
    ),
    st.integers(0, 3000).map(lambda n: f"user-{n:012d}"),
    st.integers(0, 3000).map(lambda n: f"{n:08d}-aaaa-bbbb-{n % 7:012d}"),
)
KEY_TYPES = {
    "BOOLEAN": (pa.bool_(), st.booleans()),
    "TINYINT": (pa.int8(), st.integers(-128, 127)),
    "SMALLINT": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "INT": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "BIGINT": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "DOUBLE": (pa.float64(), st.floats()),
    "FLOAT": (pa.float32(), st.floats(width=32)),
    "DATE": (pa.date32(), st.dates()),
    "TIMESTAMP": (pa.timestamp("us"), st.datetimes(min_value=dt.datetime(1900, 1, 1))),
    "DECIMAL(10,2)": (
        pa.decimal128(10, 2),
        st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    ),
    "DECIMAL(30,2)": (
        pa.decimal128(30, 2),
        st.integers(-(10**29), 10**29).map(
            lambda n: Decimal(str(n)[:-2] + "." + str(n)[-2:]) if abs(n) > 99 else Decimal(0)
        ),
    ),
    "STRING": (pa.string(), TEXTS),
    "BYTES": (pa.binary(), st.binary(max_size=12)),
}


def comparable(value):
    """The key order of the format, told by Python's own comparison."""
    if isinstance(value, float):
        if value != value:
            return (1, 0)
        bits = struct.unpack(">Q", struct.pack(">d", value))[0]
        return (0, ~bits & (2**64 - 1) if bits >> 63 else bits | 1 << 63)
    if isinstance(value, str):
        return value.encode()
    return value


def rounded(value, dtype):
    return pa.scalar(value, dtype).as_py()


@st.composite
def keys(draw, columns):
    count = draw(st.integers(1, 30))
    return [tuple(rounded(draw(KEY_TYPES[name][1]), KEY_TYPES[name][0]) for name in columns) for _ in range(count)]


def table_of(rows, columns):
    return pa.table({f"c{i}": pa.array([row[i] for row in rows], KEY_TYPES[name][0]) for i, name in enumerate(columns)})


COMBINATIONS = [(name,) for name in KEY_TYPES] + [
    ("INT", "INT"),
    ("TINYINT", "DATE", "BOOLEAN"),
    ("STRING", "INT"),
    ("INT", "STRING"),
    ("STRING", "STRING"),
    ("BYTES", "BIGINT", "STRING"),
    ("DECIMAL(30,2)", "DOUBLE"),
]


@pytest.mark.parametrize("columns", COMBINATIONS, ids="-".join)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_encoded_keys_sort_as_the_format_sorts_them(columns, data):
    rows = data.draw(keys(columns))
    codec = KeyCodec(tuple(f"c{i}" for i in range(len(columns))), tuple(KEY_TYPES[name][0] for name in columns))
    (found,) = window([codec.encode(table_of(rows, columns))], sorted_parts=False)
    order = found.order()
    plain = [tuple(comparable(value) for value in row) for row in rows]
    assert [plain[i] for i in order] == sorted(plain)
    assert order.tolist() == sorted(range(len(rows)), key=lambda i: plain[i])
    starts = found.starts(order)
    assert len(starts) == len(set(plain))


@pytest.mark.parametrize("columns", COMBINATIONS, ids="-".join)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_key_is_found_where_it_stands(columns, data):
    def ordered(rows):
        return [row for _, row in sorted({tuple(map(comparable, row)): row for row in rows}.items())]

    base, needles = ordered(data.draw(keys(columns))), data.draw(keys(columns))
    needles = ordered(needles + base[::3])
    codec = KeyCodec(tuple(f"c{i}" for i in range(len(columns))), tuple(KEY_TYPES[name][0] for name in columns))
    held, wanted = window([codec.encode(table_of(base, columns)), codec.encode(table_of(needles, columns))])
    places, hits = locate(held, concat([wanted]))
    plain = [tuple(map(comparable, row)) for row in base]
    for row, place, hit in zip(needles, places.tolist(), hits.tolist(), strict=True):
        key = tuple(map(comparable, row))
        assert place == sum(other < key for other in plain)
        assert hit == (key in plain)


def test_many_keys_with_one_prefix_are_distinguished():
    texts = sorted(f"same-prefix-{'x' * (n % 3)}{n:030d}" for n in range(500))
    codec = KeyCodec(("k",), (pa.string(),))
    held, wanted = window([codec.encode(pa.table({"k": texts})), codec.encode(pa.table({"k": texts[::7]}))])
    places, hits = locate(held, wanted)
    assert hits.all()
    assert places.tolist() == list(range(0, 500, 7))


# ------------------------------------------------------------------------------------------------ merging


def slow(versions, engine, *, ignore_delete=False, sequence=False, descending=False):
    """versions: (key, seq, kind, user sequence, value) in any order."""
    groups = {}
    for version in versions:
        groups.setdefault(version[0], []).append(version)
    out = {}
    for key, found in groups.items():
        # null is the oldest, in both directions
        user = (
            (lambda v: (v[3] is not None, (-v[3] if descending else v[3]) if v[3] is not None else 0))
            if sequence
            else (lambda v: 0)
        )
        found = sorted(found, key=lambda v: (user(v), v[1], v[2] % 2 == 0))
        if len(found) > 1 and ignore_delete:
            found = [v for v in found if v[2] % 2 == 0]
        if found:
            out[key] = found[-1] if engine == "deduplicate" else found[0]
    return out


@st.composite
def runs_of(draw, *, retracts=True, ordered_ages=True):
    texts = draw(st.booleans())
    kinds = st.sampled_from([0, 1, 2, 3] if retracts else [0, 2])
    key = st.integers(0, 40)
    sequence = 0
    runs, versions = [], []
    for age in range(draw(st.integers(1, 5))):
        names = sorted(draw(st.sets(key, min_size=0, max_size=30)))
        rows = []
        for name in names:
            number = sequence if ordered_ages else draw(st.integers(0, 6))
            sequence += 1
            label = f"user-{name:09d}-{'x' * (name % 4)}" if texts else name
            rows.append((label, number, draw(kinds), draw(st.one_of(st.none(), st.integers(0, 3))), sequence))
        versions += rows
        pieces = []
        cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            part = rows[start:stop]
            columns = {
                "k": pa.array([r[0] for r in part], pa.string() if texts else pa.int32()),
                SEQUENCE: pa.array([r[1] for r in part], pa.int64()),
                KIND: pa.array([r[2] for r in part], pa.int8()),
                "u": pa.array([r[3] for r in part], pa.int32()),
                "v": pa.array([r[4] for r in part], pa.int64()),
            }
            pieces.append(Piece(pa.table(columns), age=age))
        runs.append(pieces)
    codec = KeyCodec(("k",), (pa.string() if texts else pa.int32(),))
    return codec, runs, versions


def rows_of(tables):
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


@given(case=runs_of(), ordered=st.booleans(), drop=st.booleans(), ignore=st.booleans())
@settings(max_examples=150, deadline=None)
def test_merging_by_age_keeps_the_newest_version(case, ordered, drop, ignore):
    codec, runs, versions = case
    plan = MergePlan(codec, Deduplicate(ignore), by_age=True, ordered=ordered, drop_retracts=drop)
    found = rows_of(merge([iter(run) for run in runs], plan))
    expected = slow(versions, "deduplicate", ignore_delete=ignore)
    wanted = sorted(v for v in expected.values() if not (drop and v[2] % 2))
    assert sorted(found) == wanted
    if ordered:
        assert [row[0] for row in found] == [row[0] for row in wanted]


@given(
    case=runs_of(ordered_ages=False),
    descending=st.booleans(),
    use_sequence=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_merging_by_sequence_columns_and_numbers_keeps_the_newest_version(case, descending, use_sequence):
    codec, runs, versions = case
    plan = MergePlan(codec, Deduplicate(), sequence=("u",) if use_sequence else (), descending=descending, ordered=True)
    found = {row[0]: row for row in rows_of(merge([iter(run) for run in runs], plan))}
    expected = slow(versions, "deduplicate", sequence=use_sequence, descending=descending)
    assert found.keys() == expected.keys()
    for key, row in found.items():
        # a tie of all that orders versions leaves open which of equal ones wins
        assert row[1:3] == expected[key][1:3] or row[1] == expected[key][1]
        assert (row[3] == expected[key][3]) or not use_sequence


@given(case=runs_of(retracts=False), ordered=st.booleans())
@settings(max_examples=100, deadline=None)
def test_first_row_keeps_the_oldest_version(case, ordered):
    codec, runs, versions = case
    plan = MergePlan(codec, FirstRow(), by_age=True, ordered=ordered)
    found = rows_of(merge([iter(run) for run in runs], plan))
    assert sorted(found) == sorted(slow(versions, "first-row").values())


@given(case=runs_of())
@settings(max_examples=60, deadline=None)
def test_a_buffer_is_merged_in_the_order_of_arrival(case):
    codec, runs, versions = case
    pieces = [piece.rows for run in runs for piece in run]
    found = rows_of([merge_rows(pa.concat_tables(pieces), MergePlan(codec, Deduplicate(), by_age=True))])
    assert found == sorted(slow(versions, "deduplicate").values())


@st.composite
def composite_runs(draw):
    """Runs of keys of a text and a number, of which every piece has the texts plainly or as a dictionary of its own."""
    texts = draw(st.sampled_from([["a", "b", "c"], ["", "a\0", "a", "shop-000000001", "shop-000000010", "é"]]))
    runs, versions = [], []
    for age in range(draw(st.integers(1, 4))):
        keys = draw(st.sets(st.tuples(st.sampled_from(texts), st.integers(-(2**31), 2**31 - 1) | st.integers(0, 4))))
        rows = sorted(keys, key=lambda key: (key[0].encode(), key[1]))
        versions += [(*row, age) for row in rows]
        cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
        pieces = []
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            part = rows[start:stop]
            column = pa.array([row[0] for row in part], pa.string())
            if draw(st.booleans()):
                values = draw(st.permutations([*texts, "unused"]))
                codes = pa.array([values.index(row[0]) for row in part], pa.int32())
                column = pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string()))
            numbers = pa.array([row[1] for row in part], pa.int32())
            ages = pa.array([age] * len(part), pa.int64())
            pieces.append(Piece(pa.table({"t": column, "n": numbers, "v": ages}), age=age))
        runs.append(pieces)
    return runs, versions


@given(
    case=composite_runs(),
    ordered=st.booleans(),
    output=st.sampled_from([None, ("v",), ("n", "v"), ("t", "n", "v")]),
    engine=st.sampled_from([Deduplicate(), Deduplicate(ignore_delete=True), FirstRow()]),
)
@settings(max_examples=80, deadline=None)
def test_keys_by_number_and_plain_ones_merge_alike(case, ordered, output, engine):
    runs, versions = case
    codec = KeyCodec(("t", "n"), (pa.string(), pa.int32()))
    plan = MergePlan(codec, engine, by_age=True, ordered=ordered, output=output)
    tables = list(merge([iter(run) for run in runs], plan))
    newest = sorted(versions, key=lambda version: version[2], reverse=isinstance(engine, FirstRow))
    rows = sorted({row[:2]: row for row in newest}.values(), key=lambda row: (row[0].encode(), row[1]))
    names = ("t", "n", "v") if output is None else output
    wanted = [tuple(row["tnv".index(name)] for name in names) for row in rows]
    assert sorted(rows_of(tables)) == sorted(wanted)
    if ordered:
        assert rows_of(tables) == wanted
    assert not any(pa.types.is_dictionary(dtype) for table in tables for dtype in table.schema.types)


def test_of_several_levels_only_the_topmost_counts_after_lookups():
    def piece(value, age, level):
        return Piece(pa.table({"k": pa.array([1]), SEQUENCE: pa.array([age]), "v": pa.array([value])}), age, level)

    class Sum:
        takes_last = False

        def fold(self, versions):
            return versions.rows.slice(0, 1).set_column(2, "v", [[sum(versions.rows["v"].to_pylist())]]), np.arange(1)

    runs = [[piece(2, 0, 5)], [piece(6, 1, 4)], [piece(1, 2, 0)]]
    codec = KeyCodec(("k",), (pa.int64(),))
    plan = MergePlan(codec, Sum(), by_age=True, newest_level_only=True)
    assert rows_of(merge([iter(run) for run in runs], plan))[0][2] == 7
