"""The matrix of primary-key tables: engines and functions, formats, bucket modes, types of keys, states of the tree.

A `Feature` is a way to merge: the columns beside the key, the options, and the kinds of rows it takes. The functions of
columns are dealt out many to a table. A `Cell` is a feature on a layout (format, bucket mode, key). `LIFE` takes every
cell through all states: rows on level 0 only, a middle level, the lowest level, and what follows on each. `deal` picks
the cells; `coverage` says what they cover, so that a test can count it.

Values are those of the driver (see `oracle/types.py`). The bytes of bitmaps and sketches are made by Java.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import jpype

import oracle

__all__ = [
    "BUCKETS", "FEATURES", "FORMATS", "KEYS", "LIFE", "LIFT", "STATES", "Cell", "Column", "Feature", "Kinded", "Row",
    "coverage", "deal", "feature_of", "fits", "golden_cells", "make_rows", "seen",
]  # fmt: skip

Row = dict[str, Any]
Kinded = tuple[str, Row]
NAN, INF = float("nan"), float("inf")
UTC = dt.UTC
FORMATS = ("parquet", "orc", "avro")
STATES = ("before", "minor", "full")
LIFT = {
    "compaction.force-up-level-0": "true",
    "compaction.size-ratio": "-99",
    "compaction.max-size-amplification-percent": "100000",
}
"""With these a compaction that is not full brings level 0 to a middle level."""
BUCKETS: dict[str, dict[str, str]] = {
    "default": {"bucket": "2"},
    "mod": {"bucket": "3", "bucket-function.type": "mod"},
    "hive": {"bucket": "2", "bucket-function.type": "hive"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "6"},
}
LIFE: tuple[tuple[str, str], ...] = (
    ("write", "before"),
    ("write", "before"),
    ("compact", "full"),
    ("write", "full"),
    ("write", "full"),
    ("lift", "minor"),
    ("write", "minor"),
    ("compact", "full"),
)
"""What happens, and the state after it. Each is one commit, and gives one snapshot."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, its values, and the function that folds it."""

    type: str
    values: Callable[[], Sequence[Any]]
    function: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    retracts: bool = False
    """Whether the function takes values back."""
    order: str = "exact"
    """How values are compared: `exact`, as a `bag` of items in any order, or by `size` only."""
    null: bool = True
    """Whether null is one of the values."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A way to merge."""

    name: str
    columns: Mapping[str, Column]
    options: Mapping[str, str]
    kinds: tuple[str, ...]
    facts: bool = True
    """Whether the metadata of files is compared too."""
    releases: tuple[str, ...] = ("2.0.0",)

    @property
    def functions(self) -> set[str]:
        """The aggregate functions it uses."""
        return {column.function for column in self.columns.values() if column.function}


# ------------------------------------------------------------------------------------------------ columns of functions


def just(*values: Any) -> Callable[[], Sequence[Any]]:
    return lambda: values


def java_bytes(name: str) -> Callable[[], Sequence[Any]]:
    """Bitmaps or sketches, in the bytes of Java."""

    @cache
    def make() -> Sequence[Any]:
        if name == "rbm32":
            maker = oracle.java("utils.RoaringBitmap32").bitmapOf
            chosen = ([1, 2, 3], [3, 70000], list(range(0, 9000, 2)), [-5])
            return tuple(bytes(maker(*[jpype.JInt(each) for each in values]).serialize()) for values in chosen)
        if name == "rbm64":
            made = []
            for values in ([1, 2], [2**40, 5], [*range(300)], [-1, 2**62]):
                bitmap = oracle.java("utils.RoaringBitmap64")()
                for each in values:
                    bitmap.add(jpype.JLong(each))
                made.append(bytes(bitmap.serialize()))
            return tuple(made)
        maker = oracle.java("utils.HllSketchUtil" if name == "hll_sketch" else "utils.ThetaSketch")
        # Small sketches of either kind have several forms that mean the same; these have one (spec-notes A9).
        spans = (range(5000), range(3000, 9000), range(-6000, 0))
        if name == "theta_sketch":
            spans = (range(3), range(2, 40), range(100, 200))
        return tuple(bytes(maker.sketchOf(jpype.JArray(jpype.JInt)(list(span)))) for span in spans)

    return make


TABLE = "ARRAY<ROW<k INT, s DOUBLE, v STRING>>"
NESTED = just(
    [],
    [{"k": 1, "s": 1.0, "v": "a"}],
    [{"k": 1, "s": 0.5, "v": None}, {"k": 2, "s": None, "v": "b"}],
    [{"k": 3, "s": -0.0, "v": "c"}, {"k": None, "s": 2.0, "v": "n"}],
    [{"k": 4, "s": NAN, "v": "d"}, {"k": 2, "s": 3.0, "v": "e"}, {"k": 1, "s": 0.5, "v": "f"}],
)
NESTED_KEYED = just([{"k": 1, "s": 1.0, "v": "a"}], [{"k": 2, "s": None, "v": "b"}, {"k": 1, "s": 0.5, "v": None}], [])
TIMED = "MAP<INT, ROW<v INT, t STRING>>"
TIMES = just(
    {}, {1: {"v": 1, "t": "5"}}, {1: {"v": 2, "t": "10"}, 2: {"v": 3, "t": "9"}}, {2: None, 3: {"v": 4, "t": None}},
    {3: {"v": 5, "t": ""}},
)  # fmt: skip
DAY = dt.date(1969, 12, 31)
AT = dt.datetime(1969, 12, 31, 23, 59, 59)
LIMIT = {"nested-key": "k", "count-limit": "2"}

FUNCTIONS: dict[str, Column] = {
    "sum_int": Column("INT", just(1, -2, 30), "sum", retracts=True),
    "sum_tiny": Column("TINYINT", just(1, -1, 2), "sum", retracts=True),
    "sum_small": Column("SMALLINT", just(100, -3), "sum", retracts=True),
    "sum_big": Column("BIGINT", just(2**40, -1), "sum", retracts=True),
    "sum_float": Column("FLOAT", just(0.25, -1.5, 3.0), "sum", retracts=True),
    "sum_double": Column("DOUBLE", just(0.1, 1e16, -0.3, 2.5), "sum", retracts=True),
    "sum_compact": Column("DECIMAL(12, 2)", just(Decimal("1.25"), Decimal("-30.10")), "sum", retracts=True),
    "sum_wide": Column("DECIMAL(30, 4)", just(Decimal("12345678901234567890.5"), Decimal(-1)), "sum", retracts=True),
    "product_big": Column("BIGINT", just(1, 2, -3), "product"),
    # Division of whole numbers truncates, and what is zero once cannot be divided by later.
    "product_unit": Column("BIGINT", just(1, -1), "product", retracts=True),
    "product_double": Column("DOUBLE", just(0.5, -2.0, 1.1), "product", retracts=True),
    "product_decimal": Column("DECIMAL(30, 6)", just(Decimal("0.5"), Decimal(2), Decimal("1.25")), "product"),
    "max_int": Column("INT", just(5, -7, 2**31 - 1), "max"),
    # Only one of the zeros: Java takes a batch of both in ORC for a repetition of the first (spec-notes F7).
    "max_double": Column("DOUBLE", just(-0.0, NAN, -INF, 2.5), "max"),
    "max_text": Column("STRING", just("", "a", "é", "\uffff", "\U00010000"), "max"),
    "max_moment": Column("TIMESTAMP(3)", just(AT, dt.datetime(2024, 2, 29, 0, 0, 0, 5000)), "max"),
    "min_big": Column("BIGINT", just(5, -(2**60), 0), "min"),
    "min_decimal": Column("DECIMAL(20, 3)", just(Decimal("1.500"), Decimal("-9.001")), "min"),
    "min_day": Column("DATE", just(DAY, dt.date(2024, 2, 29)), "min"),
    "min_bytes": Column("BYTES", just(b"", b"\x7f", b"\x80a"), "min"),
    "min_time": Column("TIME(3)", just(dt.time(0), dt.time(23, 59, 59, 999000)), "min"),
    "last": Column("STRING", just("x", "y", ""), "last_value", retracts=True),
    "last_row": Column(
        "ROW<a INT, b STRING>", just({"a": 1, "b": None}, {"a": None, "b": "q"}), "last_value", retracts=True
    ),
    "last_filled": Column("DOUBLE", just(1.5, NAN, -0.0), "last_non_null_value", retracts=True),
    "first": Column("STRING", just("p", "q"), "first_value"),
    "first_filled": Column("INT", just(1, 2, 3), "first_non_null_value"),
    "first_not": Column("DATE", just(DAY, dt.date(2000, 1, 1)), "first_not_null_value"),
    "all_true": Column("BOOLEAN", just(True, False), "bool_and"),
    "any_true": Column("BOOLEAN", just(True, False), "bool_or"),
    "list": Column("STRING", just("a", "", " ", "b,c"), "listagg"),
    "list_semi": Column("STRING", just("a", "b;;a", "c"), "listagg", {"list-agg-delimiter": ";;"}),
    "list_once": Column("STRING", just("a", "b,a", "c", " "), "listagg", {"distinct": "true"}),
    "collected": Column("ARRAY<INT>", just([], [1], [2, None, 2], [3]), "collect", retracts=True),
    "collected_once": Column(
        "ARRAY<STRING>", just([], ["a"], ["b", "a", None]), "collect", {"distinct": "true"}, True, "bag"
    ),
    "map": Column("MAP<STRING, INT>", just({}, {"a": 1}, {"a": None, "b": 2}), "merge_map", retracts=True),
    "map_timed": Column(TIMED, TIMES, "merge_map_with_keytime"),
    "map_by_field": Column(TIMED, TIMES, "merge_map_with_keytime", {"ts-field": "t"}),
    "nested": Column(TABLE, NESTED, "nested_update", retracts=True),
    "nested_few": Column(TABLE, NESTED, "nested_update", {"count-limit": "3"}),
    "nested_keyed": Column(TABLE, NESTED, "nested_update", {"nested-key": "k"}, True, "bag"),
    "nested_ordered": Column(
        TABLE, NESTED, "nested_update", {"nested-key": "k", "nested-sequence-field": "s"}, True, "bag"
    ),
    "nested_skip": Column(
        TABLE, NESTED, "nested_update", {"nested-key": "k,v", "nested-key-null-strategy": "ignore"}, True, "bag"
    ),
    "nested_strict": Column(
        TABLE, NESTED_KEYED, "nested_update", {"nested-key": "k", "nested-key-null-strategy": "error"}, True, "bag"
    ),
    "nested_limit": Column(TABLE, NESTED, "nested_update", LIMIT, order="size"),
    "nested_partial": Column(TABLE, NESTED, "nested_partial_update", {"nested-key": "k"}, order="bag"),
    "bits": Column("BYTES", java_bytes("rbm32"), "rbm32"),
    "long_bits": Column("BYTES", java_bytes("rbm64"), "rbm64"),
    "hll": Column("BYTES", java_bytes("hll_sketch"), "hll_sketch"),
    "theta": Column("BYTES", java_bytes("theta_sketch"), "theta_sketch"),
    "key_like": Column("INT", just(1, 2, 3), "primary-key", retracts=True),
    "nothing_said": Column("STRING", just("d", "e"), None, retracts=True),
}


def settings_of(columns: Mapping[str, Column], *, taken_back: bool = False) -> dict[str, str]:
    """The options of functions; with `taken_back` those that cannot retract ignore it."""
    options = {}
    for name, column in columns.items():
        if column.function:
            options[f"fields.{name}.aggregate-function"] = column.function
        options |= {f"fields.{name}.{key}": value for key, value in column.settings.items()}
        if taken_back and not column.retracts:
            options[f"fields.{name}.ignore-retract"] = "true"
    return options


# ------------------------------------------------------------------------------------------------ features

ADDS, ANY, TWO_WAY = ("+I", "+U"), ("+I", "+I", "+I", "+U", "-D", "-U"), ("+I", "+I", "+U", "-U", "-D")
PLAIN: dict[str, Column] = {
    "c": Column("INT", just(7, 8)),
    "v": Column("STRING", just("a", "b", "cc", "text that is longer than sixteen characters")),
    "n": Column("BIGINT", just(1, 2, 3, 4)),
    "s": Column("INT", just(5, 6, 7)),
    "m": Column("TIMESTAMP(6)", just(AT, AT + dt.timedelta(seconds=5, milliseconds=250))),
}
REQUIRED = {**PLAIN, "r": Column("INT NOT NULL", just(1, 2), null=False)}
PARTIAL = {"merge-engine": "partial-update"}
GROUP = {**PARTIAL, "fields.n.sequence-group": "v,s"}
TWO = {**PARTIAL, "fields.n.sequence-group": "v", "fields.s,m.sequence-group": "c"}
AGGREGATION = {"merge-engine": "aggregation"}
SUMS = {**AGGREGATION, "fields.n.aggregate-function": "sum", "fields.s.aggregate-function": "sum"}
EVERY = ("2.0.0", "1.4.2", "1.3.1", "0.9.0")

FEATURES: dict[str, Feature] = {}
OLDER: dict[str, Feature] = {}
"""What does not go through the whole matrix: what older releases knew, and what one format does otherwise."""


def feature(
    name: str,
    options: Mapping[str, str],
    kinds: Sequence[str],
    columns: Mapping[str, Column] = PLAIN,
    releases: Sequence[str] = ("2.0.0",),
    **how: Any,
) -> None:
    FEATURES[name] = Feature(name, columns, dict(options), tuple(kinds), releases=tuple(releases), **how)


feature("deduplicate", {}, ANY, releases=EVERY)
feature("deduplicate, required", {}, ANY, REQUIRED)
feature("deduplicate, deletes ignored", {"ignore-delete": "true"}, ANY)
feature("deduplicate, old images ignored", {"ignore-update-before": "true"}, ANY)
feature("deduplicate by sequence", {"sequence.field": "n"}, ANY, releases=EVERY)
feature("deduplicate by two, descending", {"sequence.field": "n,m", "sequence.field.sort-order": "descending"}, ANY)
feature("deduplicate by text", {"sequence.field": "v,s"}, ANY)
_kind = {"kind": Column("STRING", just(*ANY), null=False), **PLAIN}
feature("deduplicate, kind in a column", {"rowkind.field": "kind"}, ("+I",), _kind)
feature("thin", {"data-file.thin-mode": "true", "metadata.stats-mode": "full"}, ANY)
feature("no statistics", {"metadata.stats-mode": "none"}, ANY)
feature("statistics of some", {"metadata.stats-mode": "counts", "fields.v.stats-mode": "truncate(2)"}, ANY)
feature("statistics of all", {"metadata.stats-mode": "full", "metadata.stats-dense-store": "false"}, ANY)
feature("statistics by level", {"metadata.stats-mode.per.level": "0:none,5:full"}, ANY)
FEW = {"metadata.stats-keep-first-n-columns": "3"}
OLDER["statistics of the first"] = Feature("statistics of the first", PLAIN, FEW, ANY, releases=())
feature("formats by level", {"file.format.per.level": "0:avro,5:orc", "file.compression.per.level": "0:snappy"}, ANY)
feature("partial-update", PARTIAL, ADDS, releases=EVERY)
feature("partial-update, required", PARTIAL, ADDS, REQUIRED)
feature("partial-update by sequence", {**PARTIAL, "sequence.field": "n"}, ADDS)
feature("partial-update, deletes ignored", {**PARTIAL, "ignore-delete": "true"}, ANY)
feature("partial-update, deletes remove", {**PARTIAL, "partial-update.remove-record-on-delete": "true"}, ANY)
feature("sequence group", GROUP, ANY)
# With deletions 0.9 writes null where the key should be.
OLDER["sequence group, adds"] = Feature("sequence group, adds", PLAIN, GROUP, ADDS, releases=EVERY[1:])
feature("two groups", TWO, ANY)
feature("groups and a sequence, descending", {
    **TWO, "sequence.field": "n", "sequence.field.sort-order": "descending",
}, ANY)  # fmt: skip
feature("group, deletes remove", {**GROUP, "partial-update.remove-record-on-sequence-group": "n"}, ANY)
feature("two groups, deletes by one remove", {**TWO, "partial-update.remove-record-on-sequence-group": "s"}, ANY)
feature("group, deletes ignored", {**GROUP, "ignore-delete": "true"}, ANY)
feature("group with a default function", {
    **GROUP, "fields.default-aggregate-function": "last_non_null_value", "fields.s.aggregate-function": "sum",
}, ANY)  # fmt: skip
feature("aggregation, deletes remove", {
    **SUMS, "aggregation.remove-record-on-delete": "true", "fields.v.aggregate-function": "first_value",
    "fields.c.aggregate-function": "first_non_null_value", "fields.m.aggregate-function": "last_value",
}, ("+I", "+I", "+U", "-D"))  # fmt: skip
feature("aggregation by sequence", {**SUMS, "sequence.field": "m"}, TWO_WAY)
feature("aggregation with a default function", {
    **AGGREGATION, "fields.default-aggregate-function": "last_value",
}, TWO_WAY)  # fmt: skip
feature("aggregation, deletes ignored", {**SUMS, "ignore-delete": "true"}, ANY)
feature("first-row", {"merge-engine": "first-row"}, ("+I",), facts=False, releases=EVERY)
feature("first-row, deletes ignored", {"merge-engine": "first-row", "ignore-delete": "true"}, ANY, facts=False)

_all = FUNCTIONS
_back = {name: column for name, column in FUNCTIONS.items() if name != "nested_limit"}
_groups: dict[str, Column] = {
    "g": Column("INT", just(1, 2, 3, 4)),
    "h": Column("BIGINT", just(10, 20)),
    "i": Column("TIMESTAMP(3)", just(AT, AT + dt.timedelta(days=3))),
}
# What 2.0.0 remembers of nulls is not in its files (spec-notes A4), nor which keys a limit keeps (A8).
_inside: dict[str, Column] = {
    name: Column(c.type, c.values, c.function, c.settings, c.retracts, c.order, not name.startswith("first"))
    for name, c in _back.items()
    if name not in ("key_like", "nested_few")
}
_halves = list(_inside)
feature("every function", {**AGGREGATION, **settings_of(_all)}, ADDS, _all)
for _release, _missing in {
    "1.4.2": (),
    "1.3.1": ("map_timed", "map_by_field", "nested_partial"),
    "0.9.0": ("map_timed", "map_by_field", "nested_partial", "first_not", "key_like"),
}.items():
    # Blanks in lists, limits and the newer settings of nested tables are as 2.0.0 has them (spec-notes A10).
    _newer = ("list", "list_once", "nested_ordered", "nested_skip", "nested_strict", "nested_limit", "nested_few")
    _known = {name: column for name, column in FUNCTIONS.items() if name not in (*_missing, *_newer)}
    OLDER[f"functions of {_release}"] = Feature(
        f"functions of {_release}", _known, {**AGGREGATION, **settings_of(_known)}, ADDS, releases=(_release,)
    )
feature("every function, taken back", {**AGGREGATION, **settings_of(_back, taken_back=True)}, TWO_WAY, _back)
feature("every function in groups", {
    **PARTIAL,
    **settings_of(_inside, taken_back=True),
    "fields.g.sequence-group": ",".join(_halves[::2]),
    "fields.h,i.sequence-group": ",".join(_halves[1::2]),
}, TWO_WAY, {**_groups, **_inside})  # fmt: skip
WIDE = ("every function",)

# ------------------------------------------------------------------------------------------------ keys


def part(number: int, *values: Any) -> Any:
    return values[number % len(values)]


def moment(number: int, micros: int = 0) -> dt.datetime:
    # Before 1970 whole seconds only: ORC does not hold more (spec 20, 3c).
    fraction = micros if number > 10 else 0
    return dt.datetime(1969, 12, 31, 23, 59, 50) + dt.timedelta(seconds=number, microseconds=fraction)


KEYS: dict[str, tuple[tuple[str, ...], Callable[[int], tuple[Any, ...]]]] = {
    "INT": (("INT",), lambda n: (n - 9,)),
    "BIGINT": (("BIGINT",), lambda n: ((n - 9) * 2**40,)),
    "SMALLINT, TINYINT": (("SMALLINT", "TINYINT"), lambda n: (n * -300, n % 2 - 1)),
    "BOOLEAN, INT": (("BOOLEAN", "INT"), lambda n: (n % 2 == 0, n // 2)),
    "STRING": (("STRING",), lambda n: (f"key-{n:03d}" + "é" * (n % 3),)),
    "CHAR(4), VARCHAR(9)": (("CHAR(4)", "VARCHAR(9)"), lambda n: (part(n, "ab", "abcd", "b"), f"{n}é")),
    "DECIMAL(9, 2)": (("DECIMAL(9, 2)",), lambda n: (Decimal(n - 9).scaleb(-2) * 5,)),
    "DECIMAL(18, 0)": (("DECIMAL(18, 0)",), lambda n: (Decimal((n - 9) * 10**15),)),
    "DECIMAL(20, 2)": (("DECIMAL(20, 2)",), lambda n: (Decimal((n - 9) * 10**15 + n).scaleb(-2),)),
    "DECIMAL(38, 10)": (("DECIMAL(38, 10)",), lambda n: (Decimal((n - 9) * 10**30).scaleb(-10),)),
    "DATE": (("DATE",), lambda n: (DAY + dt.timedelta(days=n - 3),)),
    "TIME(3)": (("TIME(3)",), lambda n: (dt.time(n, 0, 0, 1000 * n),)),
    "TIMESTAMP(0)": (("TIMESTAMP(0)",), lambda n: (moment(n),)),
    "TIMESTAMP(3)": (("TIMESTAMP(3)",), lambda n: (moment(n, 7000),)),
    "TIMESTAMP(6)": (("TIMESTAMP(6)",), lambda n: (moment(n, 1),)),
    "TIMESTAMP(9)": (("TIMESTAMP(9)",), lambda n: ((n + 1) * 1_000_000_001,)),
    "TIMESTAMP(3) LTZ": (("TIMESTAMP(3) WITH LOCAL TIME ZONE",), lambda n: (moment(n).replace(tzinfo=UTC),)),
    "TIMESTAMP(6) LTZ": (("TIMESTAMP(6) WITH LOCAL TIME ZONE",), lambda n: (moment(n, 3).replace(tzinfo=UTC),)),
    "BYTES": (("BYTES",), lambda n: (bytes([n, 255 - n])[: 1 + n % 2],)),
    "BINARY(3)": (("BINARY(3)",), lambda n: (bytes([200 + n, 0, n]),)),
    "FLOAT": (("FLOAT",), lambda n: (part(n, -0.0, 0.0, NAN, INF, -INF) if n < 5 else n / 4,)),
    "DOUBLE": (("DOUBLE",), lambda n: (part(n, -0.0, 0.0, NAN, INF, -INF) if n < 5 else -n / 3,)),
    "STRING, BIGINT": (("STRING", "BIGINT"), lambda n: (part(n, "", "a", "aa"), -n)),
    "DECIMAL(25, 5), TIMESTAMP(6), BYTES": (
        ("DECIMAL(25, 5)", "TIMESTAMP(6)", "BYTES"),
        lambda n: (Decimal(n // 6) / 8, moment(n % 2), bytes([n % 3])),
    ),
    "INT, STRING, DATE, DOUBLE": (
        ("INT", "STRING", "DATE", "DOUBLE"),
        lambda n: (n % 2, part(n, "x", "y", "zzzzzzzz and more"), DAY, n / 2),
    ),
}
KEY_COUNT = 18
ONLY_MOD = ("INT", "BIGINT")
NOT_HIVE = ("TIMESTAMP", "TIME(")
NOT_AVRO = ("TIMESTAMP(9)",)


def fits(key: str, file_format: str, buckets: str) -> bool:
    """Whether the format holds the key and the bucket function takes it."""
    if file_format == "avro" and key in NOT_AVRO:
        return False
    if buckets == "mod":
        return key in ONLY_MOD
    return buckets != "hive" or not any(word in key for word in NOT_HIVE)


# ------------------------------------------------------------------------------------------------ cells


@dataclass(frozen=True, slots=True)
class Cell:
    """A feature on a layout."""

    feature: str
    format: str
    buckets: str
    key: str

    def __str__(self) -> str:
        return f"{self.feature}-{self.format}-{self.buckets}-{self.key}"

    @property
    def columns(self) -> dict[str, str]:
        """Names and types, the key first."""
        types, _ = KEYS[self.key]
        keys = {f"k{place}": f"{dtype} NOT NULL" for place, dtype in enumerate(types)}
        return {**keys, **{name: column.type for name, column in feature_of(self).columns.items()}}

    @property
    def primary_key(self) -> list[str]:
        return [f"k{place}" for place in range(len(KEYS[self.key][0]))]

    @property
    def options(self) -> dict[str, str]:
        return {
            "file.format": self.format,
            "write-only": "true",
            **BUCKETS[self.buckets],
            **feature_of(self).options,
        }


def feature_of(cell: Cell) -> Feature:
    return FEATURES.get(cell.feature) or OLDER[cell.feature]


def deal() -> Iterator[Cell]:
    """The cells: functions on every pair of format and bucket mode, each engine on every format and on every mode.

    Of the types of keys that fit, each cell gets the one least seen with its engine, its format and its mode.
    """
    met: Counter[tuple[str, str]] = Counter()
    rooms = {key: sum(fits(key, kind, mode) for kind in FORMATS for mode in BUCKETS) for key in KEYS}

    def cell(name: str, file_format: str, buckets: str) -> Cell:
        around = (FEATURES[name].options.get("merge-engine", "deduplicate"), file_format, buckets)
        open_to = [key for key in KEYS if fits(key, file_format, buckets)]
        key = min(open_to, key=lambda key: ([met[key, each] for each in around], rooms[key]))
        met.update((key, each) for each in around)
        return Cell(name, file_format, buckets, key)

    for number, name in enumerate(FEATURES):
        if name in WIDE:
            for file_format in FORMATS:
                yield from (cell(name, file_format, buckets) for buckets in BUCKETS)
        else:
            for place, buckets in enumerate(BUCKETS):
                yield cell(name, FORMATS[(number + place) % 3], buckets)


def third(cells: Sequence[Cell]) -> list[Cell]:
    """A third of the cells of every feature, of each at least one, not the same third of all."""
    by_feature: dict[str, list[Cell]] = {}
    for cell in cells:
        by_feature.setdefault(cell.feature, []).append(cell)
    return [cell for number, found in enumerate(by_feature.values()) for cell in found[number % 3 :: 3]]


def golden_cells() -> Iterator[tuple[Cell, tuple[str, ...]]]:
    """One cell of each feature for the newest release, and on a plain layout for the older ones; with the releases."""
    dealt: dict[str, list[Cell]] = {}
    for cell in deal():
        dealt.setdefault(cell.feature, []).append(cell)
    for number, (name, cells) in enumerate(dealt.items()):
        yield cells[number % len(cells)], ("2.0.0",)
        if len(FEATURES[name].releases) > 1:
            key = ("STRING", "INT")[number % 2]
            yield Cell(name, FORMATS[(number + 1) % 3], "default", key), FEATURES[name].releases[1:]
    for number, (name, feature) in enumerate(OLDER.items()):
        yield Cell(name, FORMATS[number % 3], "default", "INT"), feature.releases


def coverage(cells: Sequence[Cell]) -> set[tuple[str, str, str, str]]:
    """(feature or function, state, format, bucket mode) of everything that is compared."""
    found = set()
    for cell in cells:
        for name in {cell.feature, *FEATURES[cell.feature].functions}:
            found |= {(name, state, cell.format, cell.buckets) for state in STATES}
    return found


def make_rows(cell: Cell, rng: Random, count: int = 24, keys: int = KEY_COUNT) -> list[Kinded]:
    """Rows of one commit: some keys twice, some of every kind the feature takes."""
    wanted = feature_of(cell)
    _, make = KEYS[cell.key]
    rows = []
    for _ in range(count):
        row: Row = {f"k{place}": value for place, value in enumerate(make(rng.randrange(keys)))}
        for name, column in wanted.columns.items():
            values = list(column.values())
            row[name] = rng.choice([None, *values] if column.null else values)
        rows.append((rng.choice(wanted.kinds), row))
    return rows


def seen(rows: Sequence[Row], columns: Mapping[str, Column]) -> list[Row]:
    """Rows in a form that can be compared: where no order is promised there is none."""
    loose = {name: column.order for name, column in columns.items() if column.order != "exact"}
    return [
        {
            name: value
            if name not in loose or value is None
            else len(value)
            if loose[name] == "size"
            else sorted(value, key=repr)
            for name, value in row.items()
        }
        for row in rows
    ]
