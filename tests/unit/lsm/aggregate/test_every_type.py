"""Every aggregate function on every type it accepts, in every engine that uses it, beside the slow twin.

One table has a column of each type; what is tested is that no type meets a computation that does not know it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import datasketches
import pyarrow as pa
import pyroaring
import pytest

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.aggregate import FUNCTION_NAMES, aggregate_for
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.engines.build import MergeOptions, engine_for
from tidelake.lsm.kernel import MergePlan, Piece, merge
from tidelake.lsm.keys import KeyCodec
from tidelake.options import TableOptions
from tidelake.spec.schemas.schema import Schema, new_schema
from tidelake.spec.types.type_codec import parse_type
from tidelake.testing.aggregate import frozen_value
from tidelake.testing.merge import SlowMerge, Version

UTC = dt.UTC
MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 1)]
ZONED = [each.replace(tzinfo=UTC) for each in MOMENTS]

COMPARABLE: dict[str, list[Any]] = {
    "BOOLEAN": [False, True, False],
    "TINYINT": [3, -2, 1],
    "SMALLINT": [3, -2, 1],
    "INT": [3, -2, 1],
    "BIGINT": [3, -2, 1],
    "FLOAT": [0.0, -0.0, 2.5],
    "DOUBLE": [0.0, float("nan"), -2.5],
    "DECIMAL(5, 2)": [Decimal("1.00"), Decimal("-2.00"), Decimal("2.50")],
    "DECIMAL(18, 0)": [Decimal(3), Decimal(-2), Decimal(1)],
    "DECIMAL(38, 2)": [Decimal("1.00"), Decimal("-2.00"), Decimal("2.50")],
    "CHAR(2)": ["ab", "\uffff\uffff", "\U00010000a"],
    "VARCHAR(5)": ["", "b", "a"],
    "STRING": ["é", "b", "a,b"],
    "BINARY(2)": [b"ab", b"\x80\x00", b"\x7f\x00"],
    "VARBINARY(5)": [b"", b"\x80", b"\x7f"],
    "BYTES": [b"", b"\x80", b"\x7f"],
    "DATE": [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(1970, 1, 1)],
    "TIME(0)": [dt.time(1), dt.time(23, 59, 59), dt.time(0)],
    "TIME(3)": [dt.time(1), dt.time(23, 59, 59, 999000), dt.time(0)],
    **{f"TIMESTAMP({digits})": MOMENTS for digits in (0, 3, 6, 9)},
    **{f"TIMESTAMP({digits}) WITH LOCAL TIME ZONE": ZONED for digits in (0, 3, 6, 9)},
}
VARIANTS = [{"value": bytes([12, number]), "metadata": b"\x01\x00\x00"} for number in range(3)]
OTHERS: dict[str, list[Any]] = {
    "VARIANT": VARIANTS,
    "BLOB": [b"", b"b", b"a"],
    "GEOMETRY": [b"", b"b", b"a"],
    "VECTOR<FLOAT, 2>": [[1.0, 2.0], [-0.0, 3.0], [0.0, 3.0]],
    "MULTISET<STRING>": [[("a", 1)], [("a", 2), ("b", 1)], []],
    "ROW<a INT, b STRING>": [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": 2, "b": "y"}],
}
# Inside other types, one of each way in which Arrow keeps values.
ALIKE = ("SMALLINT", "INT", "DECIMAL(18, 0)", "VARCHAR(5)", "CHAR(2)", "BINARY(2)", "VARBINARY(5)", "TIME(0)")
INNER = {name: values for name, values in COMPARABLE.items() if name not in ALIKE and "P(0)" not in name}
ARRAYS = {f"ARRAY<{inner}>": [[values[0], None], values[1:], values] for inner, values in (INNER | OTHERS).items()}
MAPS = {
    f"MAP<{inner}, {inner}>": [[(values[0], None)], [(values[1], values[0])], [(values[1], values[1])]]
    for inner, values in INNER.items()
    if inner != "BOOLEAN"
}
TIMED = {
    f"MAP<{inner}, ROW<v {inner}, t STRING>>": [
        [(values[0], {"v": values[0], "t": "1"})],
        [(values[1], {"v": values[1], "t": "2"}), (values[0], {"v": values[2], "t": "0"})],
        [(values[1], None)],
    ]
    for inner, values in INNER.items()
}
TABLES = {
    f"ARRAY<ROW<k {inner}, s {inner}>>": [
        [{"k": values[0], "s": values[0]}, {"k": None, "s": values[1]}],
        [{"k": values[1], "s": values[0]}, {"k": values[0], "s": None}],
        [{"k": values[1], "s": values[1]}, None],
    ]
    for inner, values in INNER.items()
}
EVERY = COMPARABLE | OTHERS | ARRAYS | MAPS | TIMED | TABLES
OF_EACH_SHAPE = COMPARABLE | OTHERS | dict(next(iter(shape.items())) for shape in (ARRAYS, MAPS, TIMED, TABLES))
NUMBERS = {
    name: values
    for name, values in COMPARABLE.items()
    if isinstance(values[0], int | float | Decimal) and name != "BOOLEAN"
}
ACCEPTED: dict[str, Mapping[str, list[Any]]] = {
    "sum": NUMBERS,
    "product": NUMBERS,
    "max": COMPARABLE,
    "min": COMPARABLE,
    "last_value": EVERY,
    "last_non_null_value": EVERY,
    "first_value": EVERY,
    "first_non_null_value": EVERY,
    "first_not_null_value": EVERY,
    "bool_and": {"BOOLEAN": COMPARABLE["BOOLEAN"]},
    "bool_or": {"BOOLEAN": COMPARABLE["BOOLEAN"]},
    "listagg": {"STRING": COMPARABLE["STRING"]},
    "collect": ARRAYS | TABLES,
    "merge_map": MAPS | TIMED,
    "merge_map_with_keytime": TIMED,
    "nested_update": {"ARRAY<ROW<a INT, b STRING>>": ARRAYS["ARRAY<ROW<a INT, b STRING>>"], **TABLES},
    "nested_partial_update": {"ARRAY<ROW<a INT, b STRING>>": ARRAYS["ARRAY<ROW<a INT, b STRING>>"], **TABLES},
    **{name: {t: [] for t in ("VARBINARY(5)", "BYTES")} for name in ("rbm32", "rbm64", "hll_sketch", "theta_sketch")},
    "primary-key": EVERY,
}
SETTINGS: dict[str, list[dict[str, str]]] = {
    "collect": [{}, {"distinct": "true"}],
    "listagg": [{}, {"distinct": "true"}],
    "nested_update": [{}, {"nested-key": "k"}, {"nested-key": "k", "nested-sequence-field": "s", "count-limit": "2"}],
    "nested_partial_update": [{"nested-key": "k"}],
}
TWINNED = [
    (name, settings)
    for name in FUNCTION_NAMES
    if ACCEPTED[name].get("BYTES") != [] and name != "primary-key"
    for settings in SETTINGS.get(name, [{}])
]
TAKES_BACK = {"sum", "last_value", "last_non_null_value", "collect", "merge_map", "nested_update"}
GROUP = {"merge-engine": "partial-update"}
# Options, and the kinds of the rows fed: +I 0, -U 1, -D 3.
ENGINES: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "aggregation": ({"merge-engine": "aggregation"}, (0,)),
    "aggregation, rows taken back": ({"merge-engine": "aggregation"}, (0, 1)),
    "aggregation by sequence": ({"merge-engine": "aggregation", "sequence.field": "s"}, (0,)),
    "aggregation, deletes remove": (
        {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"},
        (0, 3),
    ),
    "sequence groups": (GROUP, (0,)),
    "sequence groups, rows taken back": (GROUP, (0, 3)),
    "sequence groups, deletes remove": (GROUP | {"partial-update.remove-record-on-sequence-group": "s"}, (0, 3)),
}

PLACES = (None, 0, 1, 2)
ORDERS = ((1, 2, 3), (3, 2, 1), (2, None, 1), (1, 1, 1))

CASES = [
    (name, settings, engine)
    for name, settings in TWINNED
    for engine in ENGINES
    if "taken back" not in engine or name in TAKES_BACK
]


def table_schema(options: dict[str, str], columns: Mapping[str, str]) -> tuple[Schema, dict[str, str]]:
    if options["merge-engine"] == "partial-update":
        options = {**options, "fields.s.sequence-group": ",".join(columns)}
    written = {"k": "INT NOT NULL", **columns, "s": "INT"}
    return new_schema(written, primary_keys=["k"], options={"bucket": "1", **options}, time_ms=0), options


def histories(kinds: tuple[int, ...]) -> list[list[tuple[int, int | None, int | None]]]:
    """Of each key its versions: kind, which value, place in the order."""
    found = []
    for number in range(0, len(PLACES) ** 3, 5):
        values = [PLACES[number // len(PLACES) ** step % len(PLACES)] for step in range(3)]
        marks = [kinds[(number // 2 + number * step) % len(kinds)] for step in range(3)]
        found.append(list(zip(marks, values, ORDERS[number % len(ORDERS)], strict=True)))
    return found


def merged(schema: Schema, options: Mapping[str, str], versions: list[list[Version]]) -> dict[str, list[Any]]:
    """The merge of runs, the n-th of which has the n-th version of each key."""
    arrow = schema.to_arrow()
    chosen = MergeOptions.parse(options)
    runs = []
    for age in range(3):
        fed = [each[age] for each in versions]
        columns = {name: pa.array([v[2][name] for v in fed], arrow.field(name).type) for name in schema.names}
        columns |= {SEQUENCE: pa.array([v[0] for v in fed], pa.int64()), KIND: pa.array([v[1] for v in fed], pa.int8())}
        runs.append(iter([Piece(pa.table(columns), age=age)]))
    codec = KeyCodec(("k",), (pa.int32(),))
    engine = engine_for(schema, TableOptions(options))
    plan = MergePlan(codec, engine, sequence=chosen.sequence, descending=chosen.is_descending, ordered=True)
    found = pa.concat_tables(list(merge(runs, plan)))
    found.validate(full=True)
    return {name: found.column(name).to_pylist() for name in found.column_names}


@pytest.mark.parametrize(("name", "settings", "engine"), CASES, ids=str)
def test_a_function_works_on_every_type_it_accepts(name: str, settings: dict[str, str], engine: str) -> None:
    chosen, kinds = ENGINES[engine]
    accepted = OF_EACH_SHAPE if ACCEPTED[name] is EVERY else ACCEPTED[name]
    if name in ("collect", "merge_map"):  # what else these accept is a matter of the functions for such types
        accepted = ARRAYS if name == "collect" else MAPS
    samples = {t: values for t, values in accepted.items() if "nested-key" not in settings or t in TABLES}
    columns = {f"c{place}": dtype for place, dtype in enumerate(samples)}
    options = dict(chosen)
    for column in columns:
        options[f"fields.{column}.aggregate-function"] = name
        options |= {f"fields.{column}.{key}": value for key, value in settings.items()}
    schema, options = table_schema(options, columns)

    def row(key: int, kind: int, value: int | None, order: int | None) -> tuple[int, dict[str, Any]]:
        given = {column: None if value is None else samples[dtype][value] for column, dtype in columns.items()}
        return kind, {"k": key, **given, "s": order}

    versions = [
        [(3 * key + step, *row(key, *version)) for step, version in enumerate(history)]
        for key, history in enumerate(histories(kinds))
    ]
    slow = SlowMerge(schema, options)
    usable, expected = [], []
    for each in versions:
        try:
            answer = slow.merge(each)
        except (InvalidInputError, UnsupportedError):
            continue
        assert answer is not None
        usable.append(each)
        expected.append(answer)
    assert len(usable) >= len(versions) // 4
    found = merged(schema, options, usable)
    assert found[KIND] == [answer[1] for answer in expected]
    for field in schema.fields:
        ours = [frozen_value(value, field.type) for value in found[field.name]]
        assert ours == [frozen_value(answer[2][field.name], field.type) for answer in expected], str(field.type)


@pytest.mark.parametrize("name", FUNCTION_NAMES)
def test_a_function_accepts_the_types_it_is_said_to_accept(name: str) -> None:
    settings = {"fields.c.nested-key": "k"} if name == "nested_partial_update" else {}

    def accepts(dtype: str) -> bool:
        try:
            aggregate_for("c", parse_type(dtype), name, TableOptions(settings))
        except InvalidInputError:
            return False
        return True

    expected = set(ACCEPTED[name]) - ({"ARRAY<ROW<a INT, b STRING>>"} if settings else set())
    assert {dtype for dtype in EVERY if accepts(dtype)} == expected


@pytest.mark.parametrize("dtype", COMPARABLE)
@pytest.mark.parametrize("role", ["sequence.field", "sequence group", "descending"])
def test_versions_are_ordered_by_a_column_of_every_type(dtype: str, role: str) -> None:
    options = {"fields.s.sequence-group": "v", "merge-engine": "partial-update"}
    if role != "sequence group":
        options = {"sequence.field": "s", "sequence.field.sort-order": "ascending" if role[0] == "s" else role}
    columns = {"k": "INT NOT NULL", "v": "INT", "s": dtype}
    schema = new_schema(columns, primary_keys=["k"], options={"bucket": "1", **options}, time_ms=0)
    values = [None, *COMPARABLE[dtype]]
    versions: list[list[Version]] = [
        [(step, 0, {"k": key, "v": step, "s": values[place]}) for step, place in enumerate(places)]
        for key, places in enumerate([(a, b, c) for a in range(4) for b in range(4) for c in range(4)])
    ]
    ranks = {None: 0} | {frozen_value(each, parse_type(dtype)): 0 for each in values}
    for rank, value in enumerate(sorted(COMPARABLE[dtype], key=order_key)):
        ranks[frozen_value(value, parse_type(dtype))] = rank + 1
    if role == "descending":
        ranks = {value: -rank if rank else -9 for value, rank in ranks.items()}

    def newest(each: list[Version]) -> Any:
        return max(each, key=lambda v: (ranks[frozen_value(v[2]["s"], parse_type(dtype))], v[0]))[2]["v"]

    found = merged(schema, options | {"bucket": "1"}, versions)["v"]
    if role == "sequence group":  # a row without a place in the order counts for nothing
        expected = [None if all(v[2]["s"] is None for v in each) else newest(each) for each in versions]
    else:
        expected = [newest(each) for each in versions]
    assert found == expected


def order_key(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (value != value, value, str(value) != "-0.0")
    return value


def hll() -> bytes:
    sketch = datasketches.hll_sketch(12)
    sketch.update(1)
    return bytes(sketch.serialize_compact())


def theta() -> bytes:
    sketch = datasketches.update_theta_sketch()
    sketch.update(1)
    return bytes(sketch.compact().serialize())


SKETCHES = {
    "rbm32": pyroaring.BitMap([1, 7]).serialize(),
    "rbm64": b"\0",
    "hll_sketch": hll(),
    "theta_sketch": theta(),
}


@pytest.mark.parametrize("engine", ["aggregation", "aggregation by sequence", "sequence groups"])
@pytest.mark.parametrize("name", SKETCHES)
def test_a_sketch_united_with_itself_stays_what_it_is(name: str, engine: str) -> None:
    chosen, kinds = ENGINES[engine]
    raw = pa.array([SKETCHES[name]], pa.binary())
    value = aggregate_for("c", parse_type("BYTES"), name, TableOptions()).merge(raw, raw)[0].as_py()
    schema, options = table_schema(chosen | {"fields.c.aggregate-function": name}, {"c": "BYTES"})
    versions: list[list[Version]] = [
        [
            (3 * key + step, kind, {"k": key, "c": None if place is None else value, "s": order})
            for step, (kind, place, order) in enumerate(history)
        ]
        for key, history in enumerate(histories(kinds))
    ]
    twin = SlowMerge(schema, options | {"fields.c.aggregate-function": "max"})
    found = merged(schema, options, versions)["c"]
    assert found == [answer[2]["c"] for each in versions if (answer := twin.merge(each)) is not None]
