"""Aggregate functions beside those of Apache Paimon: value by value, and as merged rows of its tables."""

from __future__ import annotations

import datetime as dt
import random  # noqa: TID251
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import jpype
import numpy as np
import pyarrow as pa
import pytest

import oracle
import tidelake as tl
from oracle.types import to_java, to_python
from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.aggregate import FUNCTION_NAMES, Aggregate, aggregate_for
from tidelake.lsm.engines.folding import FIRST_VALUES
from tidelake.lsm.engines.retractions import find_unretractable_columns
from tidelake.options import TableOptions
from tidelake.spec.types.arrow_types import to_arrow
from tidelake.spec.types.data_types import BYTES, DataType, MapType
from tidelake.spec.types.type_codec import parse_type
from tidelake.testing.aggregate import SlowAggregate, frozen_value, slow_fold

pytestmark = pytest.mark.oracle

NAN, INF = float("nan"), float("inf")
FLOATS = [0.0, -0.0, 1.0, -2.5, 0.5, INF, -INF, NAN, 7.0]
INTS = [0, 1, -1, 2, 3, 7]
TEXTS = ["", "a", "é", "\uffff", "\U00010000", "ab"]
WORDS = ["", " ", "a", "b", "a,b", "b,a,b", ",", "a, b", "\u3000", "\xa0", "x;;y", ";", "y;;x;;;a", "\t"]
DAYS = [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]
MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 5), dt.datetime(2024, 2, 29)]


def edges(bits: int) -> list[int]:
    return [*INTS, 2**bits - 1, -(2**bits), 2 ** (bits - 1)]


def decimals(precision: int, scale: int) -> list[Decimal]:
    numbers = [0, 1, -1, 5, 25, -105, 150, 10**precision - 1, -(10**precision) + 1, 10 ** (precision // 2)]
    return [Decimal(f"{number}e-{scale}") for number in numbers]


def lists(items: Sequence[Any], null: bool = True) -> list[list[Any]]:
    choose = random.Random(len(items))
    pool = [None, *items] if null else list(items)
    return [choose.choices(pool, k=size) for size in (0, 1, 2, 2, 3, 3, 4)]


def maps(keys: Sequence[Any], values: Sequence[Any]) -> list[dict[Any, Any]]:
    choose = random.Random(len(keys))
    picked = [choose.sample(list(keys), size) for size in (0, 1, 1, 2, 2, 3)]
    return [{key: choose.choice([None, *values]) for key in each} for each in picked]


def rows(**members: Sequence[Any]) -> list[dict[str, Any]]:
    choose = random.Random(len(members))
    return [{name: choose.choice([None, *values]) for name, values in members.items()} for _ in range(12)]


@dataclass(frozen=True)
class Case:
    """A function on a type, and values to feed it. `unordered`: the items of an array come in any order."""

    name: str
    type: str
    values: Sequence[Any]
    settings: dict[str, str] = field(default_factory=dict)
    unordered: bool = False

    @property
    def dtype(self) -> DataType:
        return parse_type(self.type)

    def fast(self) -> Aggregate:
        return aggregate_for("c", self.dtype, self.name, TableOptions(self.options()))

    def slow(self) -> SlowAggregate:
        return SlowAggregate(self.dtype, self.name, self.settings)

    def options(self) -> dict[str, str]:
        return {f"fields.c.{key}": value for key, value in self.settings.items()}

    def java(self) -> Any:
        conf = oracle.java("options.Options")()
        for key, value in self.options().items():
            conf.set(key, value)
        factory = oracle.java("mergetree.compact.aggregate.factory.FieldAggregatorFactory")
        return factory.create(oracle.data_type(self.type), "c", self.name, oracle.java("CoreOptions")(conf))

    def seen(self, value: Any) -> Any:
        """A value of either side in a form that can be compared."""
        if value is None:
            return None
        frozen = frozen_value(pairs(value, self.dtype), self.dtype)
        if self.unordered and "count-limit" in self.settings:
            return len(frozen)  # which keys come first, and so stay, depends on the order of a Java hash map
        return Counter(frozen) if self.unordered else frozen


def pairs(value: Any, dtype: DataType) -> Any:
    """Maps as the twin and Arrow have them."""
    return list(value.items()) if isinstance(dtype, MapType) and isinstance(value, dict) else value


KEYED = rows(k=[1, 2, 3], s=[0.0, -0.0, 1.0, NAN], v=[1, 2])
TABLE = "ARRAY<ROW<k INT, s DOUBLE, v INT>>"
ROWS = "ARRAY<ROW<a INT, b DOUBLE>>"
PLAIN = rows(a=[1, 2], b=[0.0, -0.0, NAN])
TIMED = maps([1, 2, 3], rows(v=[1, 2], t=["", "1", "10", "9", "é"]))
KEY = {"nested-key": "k"}

CASES = [
    *(
        Case(f, t, edges(b))
        for f in ("sum", "product", "max", "min")
        for t, b in (("TINYINT", 7), ("SMALLINT", 15), ("INT", 31), ("BIGINT", 63))
    ),
    *(Case(f, t, FLOATS) for f in ("sum", "product", "max", "min") for t in ("FLOAT", "DOUBLE")),
    *(
        Case(f, f"DECIMAL({p}, {s})", decimals(p, s))
        for f in ("sum", "product", "max", "min")
        for p, s in ((5, 2), (18, 4), (19, 4), (38, 18))
        if f != "sum" or p > 18
    ),
    *(Case("sum", f"DECIMAL({p}, 2)", decimals(p, 2)[:7]) for p in (5, 18)),
    *(
        Case(f, t, values)
        for f in ("max", "min")
        for t, values in (("STRING", TEXTS), ("BYTES", [b"", b"\x7f", b"\x80", b"a"]), ("DATE", DAYS))
    ),
    *(Case(f, "TIMESTAMP(6)", MOMENTS) for f in ("max", "min", "last_value")),
    *(
        Case(
            f, f"TIMESTAMP({digits}) WITH LOCAL TIME ZONE", [at.replace(microsecond=0, tzinfo=dt.UTC) for at in MOMENTS]
        )
        for f in ("max", "min")
        for digits in (3, 6)
    ),
    *(Case(f, "TIME(3)", [dt.time(0), dt.time(23, 59, 59, 999000)]) for f in ("max", "min")),
    *(Case(f, "BOOLEAN", [True, False]) for f in ("bool_and", "bool_or")),
    *(
        Case(f, "INT", INTS)
        for f in ("last_value", "last_non_null_value", "first_value", "first_non_null_value", "first_not_null_value")
    ),
    *(Case("listagg", "STRING", WORDS, {"list-agg-delimiter": d}) for d in (",", ";;", "")),
    *(Case("listagg", "STRING", WORDS, {"distinct": "true", "list-agg-delimiter": d}) for d in (",", ";;", "", " ")),
    *(
        Case("collect", f"ARRAY<{t}>", values)
        for t, values in (("INT", lists(INTS)), ("DOUBLE", lists(FLOATS)), ("STRING", lists(TEXTS)))
    ),
    *(
        Case("collect", f"ARRAY<{t}>", values, {"distinct": "true"}, unordered=True)
        for t, values in (("INT", lists(INTS)), ("DOUBLE", lists(FLOATS)), ("STRING", lists(TEXTS)))
    ),
    # Null rows inside an array and NULL items inside inner arrays make the distinct collect of 2.0.0 fail or miss.
    Case("collect", ROWS, lists(PLAIN, null=False), {"distinct": "true"}, unordered=True),
    Case("collect", "ARRAY<ARRAY<INT>>", lists(lists(INTS, null=False))),
    Case("merge_map", "MAP<INT, INT>", maps([1, 2, 3], INTS)),
    Case("merge_map", "MAP<STRING, ROW<a INT>>", maps(TEXTS, rows(a=INTS))),
    Case("merge_map_with_keytime", "MAP<INT, ROW<v INT, t STRING>>", TIMED),
    Case("merge_map_with_keytime", "MAP<INT, ROW<v INT, t STRING>>", TIMED, {"ts-field": "t"}),
    Case("nested_update", TABLE, lists(KEYED)),
    Case("nested_update", TABLE, lists(KEYED), {"count-limit": "3"}),
    *(
        Case("nested_update", TABLE, lists(KEYED), {**KEY, **more}, unordered=True)
        for more in (
            {},
            {"count-limit": "2"},
            {"nested-sequence-field": "s"},
            {"nested-key": "k,v", "nested-sequence-field": "s,k", "count-limit": "3"},
            {"nested-key-null-strategy": "ignore"},
            {"nested-key-null-strategy": "error"},
        )
    ),
    Case("nested_partial_update", TABLE, lists(KEYED), KEY, unordered=True),
    Case("nested_partial_update", TABLE, lists(KEYED), {"nested-key": "v,k"}, unordered=True),
    *(Case(f, "INT", INTS, {"ignore-retract": "true"}) for f in ("sum", "max", "primary-key", "last_value")),
    Case("primary-key", "STRING", TEXTS),
]
IDS = [f"{number}-{case.name}-{case.type[:14]}" for number, case in enumerate(CASES)]
RETRACTABLE = {"sum", "product", "last_value", "last_non_null_value", "collect", "merge_map", "nested_update"}
Version = tuple[str, Any]
ERRORS = (InvalidInputError, UnsupportedError)


def test_every_function_of_the_release_is_known(jvm: None) -> None:
    factory = oracle.java("mergetree.compact.aggregate.factory.FieldAggregatorFactory").class_
    names = oracle.java("factories.FactoryUtil").discoverIdentifiers(factory.getClassLoader(), factory)
    assert {str(name) for name in names} == set(FUNCTION_NAMES)


# ----------------------------------------------------------------------------------------------------- value by value


def java_fold(case: Case, versions: Sequence[Version], functions: Any) -> Any:
    function, inward, outward = functions
    function.reset()
    state = None
    step = {"+": function.agg, "-": function.retract, "older": function.aggReversed}
    for kind, value in versions:
        try:
            state = step[kind](state, inward(value))
        except jpype.JException:
            return "error"
    return case.seen(outward(state))


def our_fold(case: Case, versions: Sequence[Version], function: Aggregate) -> Any:
    kind = to_arrow(case.dtype)
    state: pa.Array | None = None
    for sign, value in versions:
        array = pa.array([pairs(value, case.dtype)], kind)
        try:
            if state is None:
                state = function.first(array, np.array([sign == "-"]))
            elif sign == "older":
                state = function.merge_reversed(state, array)
            else:
                state = function.retract(state, array) if sign == "-" else function.merge(state, array)
        except ERRORS:
            return "error"
    return None if state is None else case.seen(state[0].as_py())


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_random_versions_are_folded_alike(jvm: None, case: Case) -> None:
    dtype = oracle.data_type(case.type)
    functions = case.java(), to_java(dtype), to_python(dtype)
    function = case.fast()
    choose = random.Random(case.name + case.type)
    for number in range(60):
        signs = ["+", "+", "+", "-"] if case.name in RETRACTABLE or number % 10 == 0 else ["+"]
        versions = [(choose.choice(signs), choose.choice([None, *case.values])) for _ in range(choose.randrange(1, 5))]
        assert our_fold(case, versions, function) == java_fold(case, versions, functions), versions
        late = [("+", choose.choice([None, *case.values])), ("older", choose.choice([None, *case.values]))]
        if case.name not in FIRST_VALUES and not (case.unordered and "count-limit" in case.settings):
            late += [(choose.choice([*signs, "older"]), choose.choice([None, *case.values])) for _ in range(2)]
        assert our_fold(case, late, function) == java_fold(case, late, functions), late


# ------------------------------------------------------------------------------------------------- rows of its tables


def merged(case: Case, versions: Sequence[Version]) -> Version:
    """What the aggregation engine makes of the versions of one key: a lone one passes as it is."""
    if len(versions) == 1:
        return versions[0]
    state = slow_fold(case.slow, [(kind in ("-U", "-D"), pairs(value, case.dtype)) for kind, value in versions])
    return "+I", state


def expected_row(case: Case, commits: Iterable[Sequence[Version]]) -> Version | None:
    """Each commit merges what it was given before anyone sees it; a reader then merges the commits."""
    kind, value = merged(case, [merged(case, commit) for commit in commits if commit])
    return None if kind in ("-U", "-D") else (kind, pairs(value, case.dtype))


TWINNED = [case for case in CASES if case.name != "primary-key"]


def harmless(case: Case) -> list[Any]:
    """Values that never overflow: a table whose merge fails can only be dropped."""
    if case.name in ("sum", "product") and case.type in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        return [1, 2, 3]
    if case.name in ("sum", "product") and case.type.startswith("DECIMAL"):
        scale = int(case.type.rstrip(")").split(", ")[1])
        return [Decimal(f"{number}e-{scale}") for number in (10**scale, 2 * 10**scale, 5 * 10**scale)]
    if case.settings.get("nested-key-null-strategy") == "error":
        return [[row for row in each if row and row["k"] is not None] for each in case.values]
    return list(case.values)


@pytest.mark.parametrize("case", TWINNED, ids=[f"{n}-{c.name}-{c.type[:14]}" for n, c in enumerate(TWINNED)])
def test_merged_rows_of_a_table_are_those_of_the_twin(catalog: oracle.Catalog, case: Case) -> None:
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.c.aggregate-function": case.name}
    options |= {**case.options(), "write-only": "true", "file.format": "avro"}
    table = catalog.create_table("d.t", {"k": "INT NOT NULL", "c": case.type}, ["k"], (), options)
    choose = random.Random(case.name)
    kinds = ["+I", "+U"]
    if case.name in RETRACTABLE - {"product"} or "ignore-retract" in case.settings:
        kinds += ["-U", "-D"]
    values = [None, *harmless(case)]
    keys = range(25)
    history: dict[int, list[list[Version]]] = {key: [] for key in keys}
    for number in range(3):
        written = []
        for key in keys:
            versions = [(choose.choice(kinds), choose.choice(values)) for _ in range(choose.randrange(3))]
            if number == 0:
                versions.insert(0, ("+I", choose.choice(values)))
            history[key].append(versions)
            written += [(kind, (key, value)) for kind, value in versions]
        table.write(written)
    expected = {key: expected_row(case, commits) for key, commits in history.items()}
    wanted = {key: case.seen(row[1]) for key, row in expected.items() if row is not None}
    assert {row["k"]: case.seen(row["c"]) for row in table.read()} == wanted
    table.compact()
    assert {row["k"]: case.seen(row["c"]) for row in table.read()} == wanted


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize(
    "engine",
    [
        {"merge-engine": "partial-update", "fields.s.sequence-group": "c"},
        {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true", "sequence.field": "s"},
    ],
    ids=["sequence group", "deletes remove"],
)
def test_moments_with_a_zone_that_only_paimon_wrote_are_read_alike(
    catalog: oracle.Catalog, tmp_path: Path, name: str, engine: dict[str, str]
) -> None:
    columns = {"k": "INT NOT NULL", "c": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "s": "INT"}
    options = {"bucket": "1", "fields.c.aggregate-function": name, "write-only": "true", **engine}
    theirs = catalog.create_table("d.t", columns, ["k"], (), options)
    early, late = (at.replace(microsecond=0, tzinfo=dt.UTC) for at in MOMENTS)
    for order in (2, 1, 3):
        theirs.write([(0, early, order), (1, late, order), (2, (late, early)[order % 2], order), (3, None, order)])
    if engine["merge-engine"] == "aggregation":
        theirs.write([("-D", (2, late, 9))])
        theirs.write([(2, early, 10), (3, late, 10)])
    ours = tl.connect(tmp_path).table("d.t").to_arrow().sort_by("k").to_pylist()
    assert ours == sorted(theirs.read(), key=lambda row: row["k"])


GROUPS = {
    "before": ("m,s", {"fields.s.sequence-group": "m"}),
    "after": ("s,m", {"fields.s.sequence-group": "m"}),
    "after the first of two": ("t,m,s", {"fields.t,s.sequence-group": "m"}),
    "before both": ("m,t,s", {"fields.t,s.sequence-group": "m"}),
    "in another group, before": ("m,t,n,s", {"fields.t.sequence-group": "m", "fields.s.sequence-group": "n"}),
    "in another group, after": ("s,n,m,t", {"fields.t.sequence-group": "m", "fields.s.sequence-group": "n"}),
    "in another group, behind its order": ("t,m,s,n", {"fields.t.sequence-group": "m", "fields.s.sequence-group": "n"}),
}
NOTHING_BACK = ("max", "listagg", "first_value", "bool_or", "first_non_null_value")


@pytest.mark.parametrize("place", GROUPS)
def test_paimon_reads_what_a_delete_left_in_groups_of_functions_that_take_nothing_back(
    catalog: oracle.Catalog, tmp_path: Path, place: str
) -> None:
    order, groups = GROUPS[place]
    for name in NOTHING_BACK:
        dtype, value = {"listagg": ("STRING", "a"), "bool_or": ("BOOLEAN", True)}.get(name, ("INT", 1))
        columns = {"k": "INT NOT NULL"} | {each: dtype if each == "m" else "INT" for each in order.split(",")}
        options = {"bucket": "1", "merge-engine": "partial-update", "fields.m.aggregate-function": name, **groups}
        options["partial-update.remove-record-on-sequence-group"] = "s"
        rows = [{each: key if each == "k" else value if each == "m" else 1 for each in columns} for key in (1, 2)]

        theirs = catalog.create_table(f"d.theirs_{name}", columns, ["k"], (), {**options, "write-only": "true"})
        theirs.write([("+I", row) for row in rows])
        theirs.write([("-D", rows[0])])
        try:
            readable = theirs.read() == rows[1:]
        except jpype.JException:
            readable = False

        ours = tl.connect(tmp_path).create_table(f"d.ours_{name}", columns, primary_key=["k"], options=options)
        (unwilling,) = find_unretractable_columns(ours.schema, ours.context.options)
        assert unwilling.spares_deletions == readable, name
        ours.write(rows)
        ours.delete("k = 1")
        mirror = catalog.table(f"d.ours_{name}")
        assert mirror.read() == ours.to_arrow().to_pylist() == rows[1:]
        direct = [{"rowkind": "-D", **rows[1]}]
        if readable:
            ours.write(direct)
            rows = []
        else:
            with pytest.raises(UnsupportedError, match="cannot retract a row"):
                ours.write(direct)
        ours.write(rows[:1])  # comes back as if it had never been there
        shown = [] if readable else rows[:2]
        assert mirror.read() == ours.to_arrow().to_pylist() == shown
        mirror.compact()
        assert mirror.read() == ours.to_arrow().to_pylist() == shown


# -------------------------------------------------------------------------------------------------- bitmaps, sketches


def java_bytes(value: bytes) -> Any:
    return jpype.JArray(jpype.JByte)(value)


def low_bits(choose: random.Random) -> list[int]:
    """Values of a container that Java keeps as an array, as runs or as a bitmap, and at the borders between these."""
    start = choose.randrange(60000)
    return choose.choice(
        [
            lambda: choose.sample(range(65536), choose.randrange(1, 40)),
            lambda: list(range(start, start + choose.randrange(1, 5000))),
            lambda: list(range(choose.randrange(3), 65536, choose.choice([2, 3, 16]))),
            lambda: [each for i in range(choose.randrange(1, 60)) for each in (i * 5, i * 5 + 1)],
            lambda: choose.sample(range(65536), choose.choice([4095, 4096, 4097])),
        ]
    )()


def bitmap32(choose: random.Random) -> bytes:
    highs = choose.sample(range(6), choose.randrange(4))
    values = [high << 16 | low for high in highs for low in low_bits(choose)]
    return bytes(oracle.java("utils.RoaringBitmap32").bitmapOf(*[jpype.JInt(each) for each in values]).serialize())


def bitmap64(choose: random.Random) -> bytes:
    """Trees with nodes of every size: few keys, many neighbours, and keys far apart."""
    highs = choose.choice(
        [
            lambda: choose.sample(range(6), choose.randrange(4)),
            lambda: choose.sample(range(300), choose.randrange(1, 120)),
            lambda: [choose.randrange(2**47) for _ in range(choose.randrange(40))],
            lambda: [-1, choose.randrange(300) * 256, choose.randrange(300) * 65536],
        ]
    )()
    few = len(highs) < 4
    values = [high << 16 | low for high in highs for low in (low_bits(choose) if few else [choose.randrange(65536)])]
    choose.shuffle(values)
    bitmap = oracle.java("utils.RoaringBitmap64")()
    for each in values:
        bitmap.add(jpype.JLong(each))
    return bytes(bitmap.serialize())


@pytest.mark.parametrize(("name", "make"), [("rbm32", bitmap32), ("rbm64", bitmap64)])
def test_united_bitmaps_have_the_bytes_of_java(jvm: None, name: str, make: Callable[[random.Random], bytes]) -> None:
    case = Case(name, "BYTES", [])
    java, ours = case.java(), case.fast()
    choose = random.Random(name)
    for _ in range(12):
        state = make(choose)
        for _ in range(3):
            more = make(choose)
            theirs = bytes(java.agg(java_bytes(state), java_bytes(more)))
            mine = ours.merge(pa.array([state], pa.binary()), pa.array([more], pa.binary()))
            assert mine[0].as_py() == theirs
            state = theirs


def sketch(name: str, start: int, size: int) -> bytes:
    maker = oracle.java("utils.HllSketchUtil" if name == "hll_sketch" else "utils.ThetaSketch")
    return bytes(maker.sketchOf(jpype.JArray(jpype.JInt)(list(range(start, start + size)))))


def estimate(name: str, value: bytes) -> float:
    """What Java reads out of a sketch."""
    package = "org.apache.paimon.shade.org.apache.datasketches."
    if name == "hll_sketch":
        return float(oracle.java(package + "hll.HllSketch").heapify(java_bytes(value)).getEstimate())
    memory = oracle.java(package + "memory.Memory").wrap(java_bytes(value))
    return float(oracle.java(package + "theta.Sketches").wrapSketch(memory).getEstimate())


SIZES = [(0, 0), (1, 0), (1, 1), (3, 4), (10, 50), (100, 200), (5000, 5000), (60000, 30000)]


@pytest.mark.parametrize(("first", "second"), SIZES)
@pytest.mark.parametrize("name", ["hll_sketch", "theta_sketch"])
def test_united_sketches_are_read_alike(jvm: None, name: str, first: int, second: int) -> None:
    case = Case(name, "BYTES", [])
    java, ours = case.java(), case.fast()
    one, two, more = sketch(name, 0, first), sketch(name, first // 2, second), sketch(name, -77, 50)
    theirs = bytes(java.agg(java_bytes(one), java_bytes(two)))
    mine = ours.merge(pa.array([one], pa.binary()), pa.array([two], pa.binary()))[0].as_py()
    assert len(mine) == len(theirs)
    assert estimate(name, mine) == estimate(name, theirs)
    if name == "theta_sketch" or first >= 5000:
        assert mine == theirs
    # Java goes on with our sketch as with its own.
    further = [bytes(java.agg(java_bytes(each), java_bytes(more))) for each in (mine, theirs)]
    assert estimate(name, further[0]) == estimate(name, further[1])


@pytest.mark.parametrize("name", ["rbm32", "rbm64", "hll_sketch", "theta_sketch"])
def test_tables_of_binaries_merge_to_our_bytes(catalog: oracle.Catalog, name: str) -> None:
    choose = random.Random(name)
    make = {"rbm32": bitmap32, "rbm64": bitmap64}.get(name)
    values = [
        None if choose.random() < 0.2 else make(choose) if make else sketch(name, choose.randrange(900), size)
        for size in (5, 30, 300, 3000, 9000, 20000) * 2
    ]
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.c.aggregate-function": name, "write-only": "true"}
    table = catalog.create_table("d.t", {"k": "INT NOT NULL", "c": "BYTES"}, ["k"], (), options)
    keys = range(6)
    history = [[choose.choice(values) for _ in keys] for _ in range(4)]
    for commit in history:
        table.write([(key, value) for key, value in zip(keys, commit, strict=True)])
    function = aggregate_for("c", BYTES, name, TableOptions())
    state = function.first(pa.array(history[0], pa.binary()))
    for commit in history[1:]:
        state = function.merge(state, pa.array(commit, pa.binary()))
    theirs = [row["c"] for row in sorted(table.read(), key=lambda row: row["k"])]
    if name == "hll_sketch":
        read = [
            [None if each is None else estimate(name, each) for each in side] for side in (state.to_pylist(), theirs)
        ]
        assert read[0] == read[1]
    else:
        assert state.to_pylist() == theirs
