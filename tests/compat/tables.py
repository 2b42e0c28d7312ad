"""The matrix of append tables: what is done to each, said so that either implementation can do it.

A `Script` is a table and the steps of its life. `actors` has one actor per implementation that carries steps out: the
reference alone makes the golden tables, both in turns make the live ones. Every table has an integer column `id`, by
which rows are deleted.

Values are those of the driver (see `oracle/types.py`): moments finer than microseconds are counts of nanoseconds.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from oracle.types import Variant

__all__ = ["FORMATS", "SCRIPTS", "Script", "Step"]

Row = dict[str, Any]
Step = tuple[Any, ...]
"""("write", rows[, options]), ("overwrite", rows, partition or None for dynamic), ("delete", low, high) of ids,
("compact",), ("truncate",), ("drop", partition), ("alter", change, ...) as the driver spells changes, ("tag", name),
("branch", name, tag), ("branch-write", name, rows), ("rollback", snapshot)."""

FORMATS = ("parquet", "orc", "avro")
UTC = dt.UTC


@dataclass(frozen=True, slots=True)
class Script:
    """One table: how it is made and what happens to it."""

    name: str
    columns: Mapping[str, str]
    steps: tuple[Step, ...]
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    releases: tuple[str, ...] = ("2.0.0",)
    """Releases of which a golden table is kept."""


SCRIPTS: dict[str, Script] = {}
NEWER = ("2.0.0", "1.4.2", "1.3.1")
EVERY = (*NEWER, "0.9.0")


def script(
    name: str,
    columns: Mapping[str, str],
    steps: Sequence[Step],
    partition_by: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    releases: Sequence[str] = ("2.0.0",),
) -> None:
    assert name not in SCRIPTS, name
    texts = {key: str(value) for key, value in (options or {}).items()}
    SCRIPTS[name] = Script(name, dict(columns), tuple(steps), tuple(partition_by), texts, tuple(releases))


def in_rows(values: Mapping[str, Sequence[Any]], *, nulls: bool = True) -> tuple[dict[str, str], list[Row]]:
    """A column per type, its values one below the other, filled up with nulls or with the values from the start."""
    columns = {"id": "INT NOT NULL", **{f"c{index}": dtype for index, dtype in enumerate(values)}}
    count = max(map(len, values.values())) + nulls
    rows = []
    for number in range(count):
        row: Row = {"id": number}
        for index, column in enumerate(values.values()):
            there = number < len(column) or not nulls
            row[f"c{index}"] = column[number % len(column)] if there else None
        rows.append(row)
    return columns, rows


# ------------------------------------------------------------------------------------------------ types and values

BIG = Decimal(10**38 - 1)
ATOMS: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127, 0],
    "SMALLINT": [-(2**15), 2**15 - 1, 0],
    "INT": [-(2**31), 2**31 - 1, 0],
    "BIGINT": [-(2**63), 2**63 - 1, 0],
    "FLOAT": [math.nan, math.inf, -math.inf, -0.0, 0.0, 3.4028234663852886e38, 1.401298464324817e-45],
    "DOUBLE": [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.7976931348623157e308, 5e-324],
    "CHAR(5)": ["ab", "éééé", "abcde"],
    "VARCHAR(9)": ["", "abc", "日本語", "123456789"],
    "BINARY(3)": [b"abc", b"\x00\xff\x7f"],
    "VARBINARY(4)": [b"", b"\x00", b"\xff\xfe\xfd\xfc"],
    "DECIMAL(1, 0)": [Decimal(-9), Decimal(9)],
    "DECIMAL(9, 2)": [Decimal("-9999999.99"), Decimal("0.01")],
    "DECIMAL(18, 0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1)],
    "DECIMAL(19, 4)": [Decimal("-123456789012345.6789"), Decimal("0.0001")],
    "DECIMAL(38, 0)": [BIG, BIG.copy_negate(), Decimal(0), Decimal(-1), Decimal(255), Decimal(-256)],
    "DECIMAL(38, 38)": [Decimal("0." + "9" * 38), Decimal("-1E-38")],
    "DATE": [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    "TIME(0)": [dt.time(0), dt.time(23, 59, 59)],
    "TIME(3)": [dt.time(0), dt.time(23, 59, 59, 999000), dt.time(1, 2, 3, 4000)],
}
NESTED: dict[str, list[Any]] = {
    "ARRAY<INT>": [[], [1, None, -1]],
    "ARRAY<STRING NOT NULL>": [["", "é"], []],
    "ARRAY<ARRAY<ARRAY<DECIMAL(20, 3)>>>": [[[[Decimal("1.500"), None]], None, []], []],
    "MAP<STRING, INT>": [{}, {"a": 1, "": None}],
    "MAP<INT, ROW<x INT, y STRING>>": [{1: {"x": 1, "y": "z"}, -2: None}, {}],
    "MAP<STRING, MAP<STRING, ARRAY<DATE>>>": [{"a": {"b": [dt.date(1969, 12, 31), None], "c": None}, "d": None}],
    "MAP<DECIMAL(20, 2), BOOLEAN NOT NULL>": [{Decimal("-1.50"): True, Decimal("0.00"): False}],
    "MULTISET<STRING>": [{"a": 2, "b": 1}, {}],
    "ROW<a INT, b ROW<c STRING, d ARRAY<MAP<STRING, DOUBLE>>>>": [
        {"a": 1, "b": {"c": "x", "d": [{"k": math.nan}, None, {}]}},
        {"a": None, "b": None},
        {"a": 2, "b": {"c": None, "d": None}},
    ],
    "ROW<n INT NOT NULL, t STRING NOT NULL, l ARRAY<INT> NOT NULL>": [{"n": 1, "t": "", "l": []}],
    "ROW<a ROW<b ROW<c ROW<d ROW<e ARRAY<ROW<f STRING>>>>>>>": [
        {"a": {"b": {"c": {"d": {"e": [{"f": "deep"}, {"f": None}, None]}}}}},
        {"a": {"b": {"c": {"d": None}}}},
        {"a": None},
    ],
    "ARRAY<ROW<f FLOAT, m MAP<STRING, BYTES>>>": [[{"f": -0.0, "m": {"k": b"\x00"}}, {"f": None, "m": None}, None]],
}


def moments(kind: str) -> dict[str, list[Any]]:
    """TIMESTAMP and TIMESTAMP WITH LOCAL TIME ZONE of every precision that a format holds, before and after 1970."""
    base = [
        dt.datetime(1969, 12, 31, 23, 59, 58),
        dt.datetime(1900, 2, 3, 4, 5, 6),
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 2, 29, 23, 59, 59),
    ]
    # ORC is read in 64 bits of nanoseconds.
    far = [] if kind == "orc" else [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)]
    found: dict[str, list[Any]] = {}
    for precision in range(7 if kind == "avro" else 10):
        digits = "123456789"[:precision].ljust(9, "0")
        if precision <= 6:
            fraction = dt.timedelta(microseconds=int(digits) // 1000)
            plain: list[Any] = [moment + fraction for moment in (*base, *far)]
            aware: list[Any] = [moment.replace(tzinfo=UTC) for moment in plain]
        else:
            seconds = [int(moment.replace(tzinfo=UTC).timestamp()) for moment in base]
            plain = [second * 10**9 + int(digits) for second in seconds]
            aware = [*plain, 2**62 // 1000 * 1000, -(2**62) // 1000 * 1000]
        found[f"TIMESTAMP({precision})"] = plain
        found[f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE"] = aware
    return found


ONLY_PARQUET: dict[str, list[Any]] = {
    "ARRAY<TIMESTAMP(9)>": [[-1, None, 5], []],
    "ROW<t TIMESTAMP(9), m MAP<STRING, TIMESTAMP(7)>>": [{"t": -1, "m": {"a": -(10**18) - 100}}],
    "MULTISET<INT>": [{1: 2, -3: 1}],
}
VECTORS: dict[str, list[Any]] = {"VECTOR<FLOAT, 3>": [[1.0, -2.5, -0.0], [math.inf, 0.0, 1.5]]}


def twice(rows: list[Row]) -> list[Step]:
    """Some rows, then the others, then all of them again: three snapshots."""
    half = len(rows) // 2 or 1
    again = [{**row, "id": row["id"] + 100} for row in rows]
    return [("write", rows[:half]), ("write", rows[half:] or rows), ("write", again)]


for _kind in FORMATS:
    _how = {"file.format": _kind}
    _columns, _rows = in_rows(ATOMS)
    script(f"atoms_{_kind}", _columns, [*twice(_rows), ("delete", 1, 2)], options=_how, releases=EVERY)
    _columns, _rows = in_rows({**NESTED, **({} if _kind == "orc" else VECTORS)})
    script(f"nested_{_kind}", _columns, [*twice(_rows), ("delete", 1, 1)], options=_how)
    _columns, _rows = in_rows(NESTED)
    _old = [step for step in twice(_rows) if step[0] != "delete"]
    script(f"nested_plain_{_kind}", _columns, _old, options=_how, releases=("1.4.2", "1.3.1"))
    _columns, _rows = in_rows(moments(_kind))
    # 0.9 does not read back what it writes of nanoseconds before 1970.
    script(f"moments_{_kind}", _columns, twice(_rows), options=_how, releases=NEWER if _kind == "parquet" else EVERY)
    _required = {f"{dtype} NOT NULL": values for dtype, values in {**ATOMS, **NESTED}.items()}
    _columns, _rows = in_rows(_required, nulls=False)
    script(f"not_null_{_kind}", _columns, twice(_rows), options=_how)
    _texts: dict[str, list[Any]] = {
        "STRING": ["", "x" * 300_000, "\x00\U0001f600", " blank ", "\n\t\"'\\", "é" * 20_000, "\U0010ffff", "e\u0301"],
        "BYTES": [b"", b"\xff" * 300_000, b"\x00", bytes(range(256))],
        "VARCHAR(100000)": ["y" * 100_000, ""],
        "ARRAY<STRING>": [["z" * 50_000, "", None]],
    }
    _columns, _rows = in_rows(_texts)
    script(f"texts_{_kind}", _columns, twice(_rows), options=_how)

_variants = [Variant(b"\x0c\x01", b"\x01\x00\x00"), Variant(b"\x00", b"\x01\x00\x00")]
_columns, _rows = in_rows({"VARIANT": _variants, "ROW<v VARIANT, n INT>": [{"v": _variants[0], "n": 1}]})
script("variants", _columns, twice(_rows), options={"file.format": "parquet"}, releases=NEWER[:1])
_columns, _rows = in_rows(ONLY_PARQUET)
script("only_parquet", _columns, twice(_rows), releases=NEWER[:2])

CODECS = {
    "parquet": ("zstd", "none", "snappy", "gzip", "lz4"),
    "orc": ("zstd", "none", "snappy", "zlib", "lz4"),
    "avro": ("zstd", "null", "snappy", "deflate", "bzip2"),
}
SIMPLE = {"id": "INT NOT NULL", "v": "STRING", "n": "BIGINT", "d": "DOUBLE"}


def simple(start: int, count: int = 6, **more: Any) -> list[Row]:
    return [
        {"id": i, "v": None if i % 4 == 3 else f"v{i % 5}", "n": i * 10**10 if i % 3 else None, "d": i / 4, **more}
        for i in range(start, start + count)
    ]


for _kind, _codecs in CODECS.items():
    _steps: list[Step] = [
        ("write", simple(1000 * number, 300), {"file.compression": codec}) for number, codec in enumerate(_codecs)
    ]
    script(f"codecs_{_kind}", SIMPLE, [*_steps, ("compact",)], options={"file.format": _kind})
_steps = [
    ("write", simple(100 * number), {"file.format": kind}) for number, kind in enumerate(("avro", "orc", "parquet") * 2)
]
script("mixed_formats", SIMPLE, [*_steps, ("delete", 100, 203), ("compact",)], releases=EVERY)

# ------------------------------------------------------------------------------------------------ partitions

_TEXT_PARTITIONS = [
    "a", "", " ", "   ", None, "/", "%", "a/b=c", "%2F", "日本 語", "é", "e\u0301", "a.b", "..", "x:y*z?", "\\", "'\"",
    "[]{}^#", "&+,~|<>@", "\x01\x7f", "__DEFAULT_PARTITION__", "null", "A",
]  # fmt: skip
PARTITIONS: dict[str, dict[str, list[Any]]] = {
    "whole": {
        "pb": [True, False, None],
        "p1": [-128, 127, None],
        "p2": [-(2**15), None],
        "p4": [-(2**31), 0, 2**31 - 1],
        "p8": [-(2**63), None, 2**63 - 1],
    },
    "fraction": {
        "pf": [1.5, -0.25, None],
        "pd": [1.0, -0.0, 1e10, 1e-7, math.nan, math.inf, None],
        "pm": [Decimal("-1.50"), Decimal("0.00"), None],
        "pn": [Decimal("1E-10"), Decimal("9" * 28 + "." + "9" * 10), None],
    },
    "moment": {
        "pt": [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
        "p3": [dt.datetime(1969, 12, 31, 23, 59, 58, 5000), dt.datetime(2024, 2, 29), None],
        "p6": [
            dt.datetime(1900, 1, 1, 1, 1, 1, 123456),
            dt.datetime(2024, 1, 1),
            None,
            dt.datetime(2024, 1, 1, 0, 0, 5),
        ],
        "pz": [dt.datetime(2024, 1, 1, 12, tzinfo=UTC), None, dt.datetime(1960, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)],
    },
    "time": {
        "pt": [dt.time(0), dt.time(1, 1, 1, 1000), dt.time(23, 59, 59, 120000), None],
        "p9": [-1, 10**18, 1_700_000_000_000_000_000, None],
    },
    "text": {"ps": _TEXT_PARTITIONS},
    "short": {"pc": ["ab", "", None, "abcde"], "pv": ["x y", "%", None]},
}
PARTITION_TYPES = {
    "pb": "BOOLEAN", "p1": "TINYINT", "p2": "SMALLINT", "p4": "INT", "p8": "BIGINT", "pd": "DOUBLE",
    "pm": "DECIMAL(5, 2)", "pn": "DECIMAL(38, 10)", "pt": "DATE", "p3": "TIMESTAMP(3)", "p6": "TIMESTAMP(6)",
    "pz": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "p9": "TIMESTAMP(9)", "ps": "STRING", "pc": "CHAR(5)",
    "pv": "VARCHAR(4)", "pf": "FLOAT",
}  # fmt: skip

for _name, _values in PARTITIONS.items():
    for _legacy in (True, False):
        _types = {key: "TIME(3)" if (_name, key) == ("time", "pt") else PARTITION_TYPES[key] for key in _values}
        _count = max(map(len, _values.values())) + 2
        _rows = [
            {"id": number, "v": f"v{number}", **{key: each[number % len(each)] for key, each in _values.items()}}
            for number in range(_count)
        ]
        _later = [{**row, "id": row["id"] + 100} for row in _rows[: _count // 2]]
        script(
            f"partition_{_name}_{'legacy' if _legacy else 'sql'}",
            {"id": "INT NOT NULL", "v": "STRING", **_types},
            [("write", _rows), ("write", _later), ("delete", 1, 2), ("overwrite", _later[:2], None)],
            list(_values),
            {"partition.legacy-name": str(_legacy).lower()},
            EVERY if _name in ("whole", "text") and _legacy else ("2.0.0",),
        )

DAYS = {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING", "hr": "INT"}


def days(start: int, count: int = 8, day: str | None = "") -> list[Row]:
    known = ["d1", "d2", None]
    return [
        {"id": i, "dt": known[i % 3] if day == "" else day, "v": f"v{i}" if i % 4 else None, "hr": i % 2}
        for i in range(start, start + count)
    ]


_named = {"partition.default-name": "(nothing)", "data-file.prefix": "rows-", "data-file.path-directory": "data"}
script(
    "partition_named", DAYS, [("write", days(0)), ("overwrite", days(20, 2, "d1"), {"dt": "d1"})], ["dt", "hr"], _named
)
_compressed = {"file.suffix.include.compression": "true", "partition.end-input-to-done": "false"}
script("suffixed", DAYS, [("write", days(0)), ("write", days(10)), ("delete", 3, 4)], ["dt"], _compressed)

# ------------------------------------------------------------------------------------------------ buckets

LAYOUTS: dict[str, dict[str, Any]] = {
    "unaware": {},
    "default": {"bucket": 3, "bucket-key": "id"},
    "mod": {"bucket": 3, "bucket-key": "id", "bucket-function.type": "mod"},
    "hive": {"bucket": 3, "bucket-key": "id", "bucket-function.type": "hive"},
}


def life(rows: Callable[..., list[Row]]) -> list[Step]:
    """Appends, a compaction, a deletion and an overwrite of everything."""
    return [
        *(("write", rows(20 * number)) for number in range(5)),
        ("compact",),
        ("delete", 2, 23),
        ("write", rows(200)),
        ("tag", "kept"),
        ("compact",),
        ("write", rows(300)),
        ("truncate",),
        ("write", rows(400)),
    ]


for _layout, _how in LAYOUTS.items():
    script(
        f"bucket_{_layout}", SIMPLE, life(simple), options=_how, releases=EVERY if _layout == "default" else ("2.0.0",)
    )
    _steps = [
        ("write", days(0)),
        ("write", days(20)),
        ("overwrite", days(100, 3, "d1"), {"dt": "d1"}),
        ("overwrite", days(120, 2, None), None),
        ("drop", {"dt": "d2"}),
        ("write", days(200)),
        ("compact",),
        ("overwrite", days(300), {}),
        ("write", days(400)),
    ]
    script(f"overwrite_{_layout}", DAYS, _steps, ["dt"], _how, NEWER if _layout == "unaware" else ("2.0.0",))

_keys = {"k1": "BIGINT", "k2": "STRING", "k3": "DECIMAL(20, 2)", "k4": "DATE", "k5": "BOOLEAN", "k6": "DOUBLE"}
_key_rows = [
    {
        "id": number,
        "k1": (-1) ** number * 2 ** (2 * number),
        "k2": [None, "", "é" * 9, "abcdefgh"][number % 4],
        "k3": None if number % 5 == 4 else Decimal(number).scaleb(-2),
        "k4": dt.date(1969, 12, 25) + dt.timedelta(days=number),
        "k5": [True, False, None][number % 3],
        "k6": [0.0, -0.0, math.nan, number / 8][number % 4],
    }
    for number in range(30)
]
for _function in ("default", "hive"):
    _how = {"bucket": 5, "bucket-key": ",".join(_keys), "bucket-function.type": _function}
    _usable = {name: dtype for name, dtype in _keys.items() if _function == "default" or name != "k6"}
    _how["bucket-key"] = ",".join(_usable)
    _picked = [{"id": row["id"], **{name: row[name] for name in _usable}} for row in _key_rows]
    script(f"bucket_keys_{_function}", {"id": "INT NOT NULL", **_usable}, twice(_picked), options=_how)
script("bucket_mod_negative", {"id": "INT NOT NULL", "k": "BIGINT NOT NULL"}, [
    ("write", [{"id": number, "k": (number - 10) * 7**number} for number in range(20)]),
    ("write", [{"id": 100 + number, "k": -number} for number in range(9)]),
], options={"bucket": 4, "bucket-key": "k", "bucket-function.type": "mod"})  # fmt: skip
script("bucket_rescaled", SIMPLE, [
    ("write", simple(0, 12)), ("alter", ("set", "bucket", "5")), ("overwrite", simple(50, 12), {}),
    ("write", simple(100)),
], options={"bucket": 2, "bucket-key": "id"})  # fmt: skip

# ------------------------------------------------------------------------------------------------ schema changes


def pair(start: int, **values: Any) -> list[Row]:
    """A row with the values and one with nulls."""
    return [{"id": start, **values}, {"id": start + 1, **dict.fromkeys(values)}]


WIDEN: dict[str, tuple[str, Any, Any]] = {
    "i1_i2": ("TINYINT>SMALLINT", -128, 2**15 - 1),
    "i1_i4": ("TINYINT>INT", 127, -(2**31)),
    "i1_i8": ("TINYINT>BIGINT", -1, 2**63 - 1),
    "i1_f4": ("TINYINT>FLOAT", 5, 1.5),
    "i1_m": ("TINYINT>DECIMAL(5, 2)", 12, Decimal("-999.99")),
    "i2_i4": ("SMALLINT>INT", -(2**15), 2**31 - 1),
    "i2_i8": ("SMALLINT>BIGINT", 2**15 - 1, -(2**63)),
    "i2_f8": ("SMALLINT>DOUBLE", 300, 1e300),
    "i4_i8": ("INT>BIGINT", -(2**31), 2**63 - 1),
    "i4_f4": ("INT>FLOAT", 2**24 + 1, 0.5),
    "i4_f8": ("INT>DOUBLE", 2**31 - 1, -0.0),
    "i4_m": ("INT>DECIMAL(20, 5)", -7, Decimal("0.00001")),
    "i8_f8": ("BIGINT>DOUBLE", 2**53 + 1, math.nan),
    "i8_m": ("BIGINT>DECIMAL(38, 10)", -(2**63), Decimal("1E-10")),
    "f4_f8": ("FLOAT>DOUBLE", 0.10000000149011612, 0.1),
    "m_m": ("DECIMAL(10, 2)>DECIMAL(20, 4)", Decimal("-12345678.90"), Decimal("0.0001")),
    "m_f8": ("DECIMAL(10, 2)>DOUBLE", Decimal("12.35"), math.inf),
    "c_c": ("CHAR(2)>CHAR(6)", "ab", "abcdef"),
    "c_v": ("CHAR(3)>VARCHAR(10)", "abc", "longer"),
    "v_v": ("VARCHAR(3)>VARCHAR(300)", "abc", "x" * 300),
    "v_s": ("VARCHAR(3)>STRING", "é", "y" * 999),
    "b_b": ("BINARY(2)>VARBINARY(5)", b"ab", b"abcde"),
    "vb_b": ("VARBINARY(2)>BYTES", b"\xff", b"z" * 99),
    "t3_t6": (
        "TIMESTAMP(3)>TIMESTAMP(6)",
        dt.datetime(2001, 2, 3, 4, 5, 6, 789000),
        dt.datetime(2024, 1, 1, 0, 0, 0, 1),
    ),
    "t_d": ("TIMESTAMP(3)>DATE", dt.datetime(1969, 12, 31, 23), dt.date(2024, 2, 29)),
    "t_z": (
        "TIMESTAMP(6)>TIMESTAMP(6) WITH LOCAL TIME ZONE",
        dt.datetime(2001, 2, 3, 4, 5, 6, 7),
        dt.datetime(2024, 1, 1, tzinfo=UTC),
    ),
}
CAST: dict[str, tuple[str, Any, Any]] = {
    "i8_i4": ("BIGINT>INT", 5_000_000_000, 7),
    "i4_i1": ("INT>TINYINT", 300, -1),
    "f8_i4": ("DOUBLE>INT", 1e20, 5),
    "f8_f4": ("DOUBLE>FLOAT", 0.1, 0.5),
    "m_i": ("DECIMAL(10, 2)>INT", Decimal("-12.99"), 4),
    "m_m": ("DECIMAL(10, 2)>DECIMAL(4, 1)", Decimal("12.35"), Decimal("1.5")),
    "m_over": ("DECIMAL(10, 2)>DECIMAL(4, 2)", Decimal("12345.67"), Decimal("1.50")),
    "i_s": ("INT>STRING", -42, "x"),
    "i_b": ("INT>BOOLEAN", 2, False),
    "b_i": ("BOOLEAN>INT", True, 5),
    "b_s": ("BOOLEAN>STRING", False, "maybe"),
    "s_i": ("STRING>INT", "12", 3),
    "s_m": ("STRING>DECIMAL(6, 2)", "3.145", Decimal("9.99")),
    "s_d": ("STRING>DATE", "2024-02-29", dt.date(1969, 12, 31)),
    "s_c": ("STRING>CHAR(3)", "abcdef", "xyz"),
    "d_s": ("DATE>STRING", dt.date(1969, 12, 31), "text"),
    "t_s": ("TIMESTAMP(3)>STRING", dt.datetime(2001, 2, 3, 4, 5, 6, 120000), "text"),
    "t6_t3": ("TIMESTAMP(6)>TIMESTAMP(3)", dt.datetime(2001, 2, 3, 4, 5, 6, 789999), dt.datetime(2024, 1, 1)),
    "f8_s": ("DOUBLE>STRING", 1e10, "big"),
    "i_t": ("BIGINT>TIMESTAMP(3)", 10, dt.datetime(2024, 1, 1)),
}


def typed_changes(cases: Mapping[str, tuple[str, Any, Any]], prefix: str = "") -> tuple[dict[str, str], list[Step]]:
    before = {f"c_{name}": text.split(">")[0] for name, (text, _, _) in cases.items()}
    changes = [("type", f"c_{name}", text.split(">")[1]) for name, (text, _, _) in cases.items()]
    old = pair(0, **{f"c_{name}": value for name, (_, value, _) in cases.items()})
    new = pair(10, **{f"c_{name}": value for name, (_, _, value) in cases.items()})
    return {"id": "INT NOT NULL", **before}, [("write", old), ("alter", *changes), ("write", new), ("delete", 1, 1)]


NESTED_START = {
    "id": "INT NOT NULL", "r": "ROW<x INT, y STRING, z ROW<u TINYINT, w DOUBLE>>", "l": "ARRAY<ROW<p INT, q DOUBLE>>",
    "m": "MAP<STRING, ROW<u INT, gone STRING>>", "s": "ARRAY<INT>",
}  # fmt: skip
NESTED_STEPS: list[Step] = [
    ("alter", ("add", ["r", "first"], "INT", "first")),
    ("write", pair(0, r={"first": 1, "x": 1, "y": "a", "z": {"u": 5, "w": 0.5}}, l=[{"p": 7, "q": 1.5}, None],
                   m={"k": {"u": 5, "gone": "g"}, "n": None}, s=[1, None])),
    ("write", [{"id": 5, "r": {"first": None, "x": None, "y": None, "z": None}, "l": [], "m": {}, "s": []}]),
    ("alter", ("add", ["r", "n"], "ARRAY<STRING>"), ("type", ["r", "x"], "BIGINT"), ("type", ["r", "z", "u"], "INT")),
    ("alter", ("rename", ["r", "y"], "yy"), ("drop", ["l", "element", "q"]), ("drop", ["m", "value", "gone"])),
    ("alter", ("add", ["m", "value", "w"], "ROW<deep DATE>"), ("add", ["r", "z", "new"], "DECIMAL(9, 2)")),
    ("write", pair(10, r={"first": 2, "x": 2**40, "yy": "b", "z": {"u": 2**20, "w": None, "new": Decimal("1.50")},
                          "n": ["x", None]},
                   l=[{"p": 9}], m={"k": {"u": 1, "w": {"deep": dt.date(1969, 12, 31)}}}, s=[])),
    ("alter", ("add", ["m", "value", "gone"], "INT"), ("type", ["s", "element"], "BIGINT"), ("drop", ["r", "first"])),
    ("write", pair(20, r={"x": 3, "yy": "c", "z": {"u": 1, "w": 2.5, "new": None}, "n": []}, l=[],
                   m={"k": {"u": 2, "w": None, "gone": 4}}, s=[2**40])),
    ("alter", ("rename", ["l", "element", "p"], "pp"), ("comment", ["r", "x"], "a number"), ("move", "m", "first")),
    ("write", pair(30, m=None, r=None, l=[{"pp": 1}], s=None)),
    ("compact",),
    ("delete", 0, 10),
]  # fmt: skip
COLUMN_STEPS: list[Step] = [
    ("write", pair(0, a=1, b="b", c=0.5)),
    ("alter", ("add", "d", "DATE"), ("add", "f", "INT", "first"), ("add", "g", "STRING", ("after", "a"))),
    ("write", pair(10, f=1, a=2, g="g", b="bb", c=1.5, d=dt.date(2024, 2, 29))),
    ("alter", ("rename", "a", "z"), ("drop", "b")),
    ("alter", ("add", "a", "STRING"), ("add", "b", "INT"), ("comment", "z", "it was a"), ("table-comment", "changed")),
    ("write", pair(20, f=2, z=3, g=None, c=2.5, d=None, a="new a", b=4)),
    ("alter", ("move", "c", "first"), ("move", "f", ("after", "id")), ("move", "d", "last"), ("set", "note", "x")),
    ("write", pair(30, c=3.5, f=3, z=4, g="x", a="aa", b=5, d=dt.date(1, 1, 1))),
    ("alter", ("rename", "c", "tmp"), ("rename", "z", "c")),
    ("alter", ("rename", "tmp", "z"), ("reset", "note")),
    ("write", pair(40, z=4.5, f=4, c=5, g="y", a="aaa", b=6, d=None)),
    ("compact",),
    ("delete", 10, 21),
    ("alter", ("drop", "g"), ("drop", "f")),
    ("write", pair(50, z=5.5, c=6, a="", b=None, d=None)),
]
for _kind in FORMATS:
    _how = {"file.format": _kind, "compaction.min.file-num": 3}
    _columns, _steps = typed_changes(WIDEN)
    script(f"widen_{_kind}", _columns, _steps, options=_how, releases=NEWER[:2])
    _columns, _steps = typed_changes(CAST)
    script(f"cast_{_kind}", _columns, _steps, options=_how)
    script(f"nested_changes_{_kind}", NESTED_START, NESTED_STEPS, options=_how, releases=NEWER[:2])
    _old_columns = {"id": "INT NOT NULL", "a": "INT", "b": "STRING", "c": "DOUBLE"}
    script(f"column_changes_{_kind}", _old_columns, COLUMN_STEPS, options=_how, releases=EVERY)
script("changes_before_data", {"id": "INT NOT NULL", "a": "INT", "r": "ROW<x INT>"}, [
    ("alter", ("add", "b", "STRING", "first"), ("rename", "a", "aa"), ("type", "aa", "BIGINT")),
    ("alter", ("drop", "b"), ("add", ["r", "y"], "STRING"), ("type", ["r", "x"], "DOUBLE")),
    ("alter", ("add", "a", "ROW<k INT NOT NULL, l ARRAY<INT> NOT NULL>", ("after", "id"))),
    ("write", pair(0, a={"k": 1, "l": []}, aa=2**40, r={"x": 0.5, "y": "s"})),
    ("write", pair(10, a={"k": 2, "l": [1]}, aa=None, r=None)),
])  # fmt: skip
script("nullability", {"id": "INT NOT NULL", "a": "INT NOT NULL", "r": "ROW<x INT NOT NULL> NOT NULL"}, [
    ("write", [{"id": 0, "a": 1, "r": {"x": 1}}]),
    ("alter", ("nullable", "a", True), ("nullable", ["r", "x"], True)),
    ("write", [{"id": 1, "a": None, "r": {"x": None}}]),
    ("alter", ("nullable", "r", True)),
    ("write", [{"id": 2, "a": None, "r": None}]),
    ("delete", 0, 0),
], releases=NEWER[:2])  # fmt: skip
script("required_members_added", {"id": "INT NOT NULL", "v": "STRING"}, [
    *(("write", [{"id": number, "v": str(number)}]) for number in range(4)),
    ("alter", ("add", "r", "ROW<x INT NOT NULL, t TIMESTAMP(9) NOT NULL, l ARRAY<INT NOT NULL> NOT NULL>"),
     ("add", "q", "ARRAY<ROW<s STRING NOT NULL>>")),
    ("write", [{"id": 10, "v": None, "r": {"x": 1, "t": -1, "l": [5]}, "q": [{"s": "a"}, None]}]),
    ("compact",),
    ("write", [{"id": 11, "v": "x", "r": None, "q": None}]),
    ("delete", 0, 1),
], options={"compaction.min.file-num": 2})  # fmt: skip
script("partitioned_changes", {**DAYS, "n": "INT"}, [
    ("write", [{**row, "n": row["id"]} for row in days(0)]),
    ("alter", ("type", "n", "BIGINT"), ("rename", "v", "w"), ("add", "x", "INT", ("after", "id"))),
    ("write", [{"id": row["id"], "x": 1, "dt": row["dt"], "w": row["v"], "hr": row["hr"], "n": 2**40}
               for row in days(20)]),
    ("overwrite", [{"id": 90, "x": None, "dt": "d1", "w": "o", "hr": 1, "n": None}], {"dt": "d1"}),
    ("alter", ("drop", "w"), ("move", "hr", "first")),
    ("delete", 2, 3),
    ("compact",),
], ["dt", "hr"])  # fmt: skip

# ------------------------------------------------------------------------------------------------ tags, branches, rest

script("tags_and_branches", SIMPLE, [
    ("write", simple(0)), ("tag", "one"), ("write", simple(10)), ("tag", "two.odd_name"),
    ("alter", ("add", "x", "INT")),
    ("write", [{**row, "x": 1} for row in simple(20)]),
    ("branch", "dev", "two.odd_name"), ("branch-write", "dev", simple(500)), ("delete", 3, 12),
    ("branch-write", "dev", simple(600)), ("truncate",), ("write", [{**row, "x": None} for row in simple(40)]),
], releases=NEWER)  # fmt: skip
script("rolled_back", SIMPLE, [
    ("write", simple(0)), ("write", simple(10)), ("write", simple(20)), ("rollback", 2), ("write", simple(30)),
])  # fmt: skip
script("stats_modes", {**SIMPLE, "t": "STRING"}, [
    ("write", simple(0, t="é" * 40)), ("write", simple(10, t=None)), ("write", simple(20, t="abcdefgh")),
    ("delete", 4, 11),
], options={"metadata.stats-mode": "none", "fields.id.stats-mode": "full", "fields.v.stats-mode": "truncate(2)",
            "fields.t.stats-mode": "counts", "metadata.stats-dense-store": "false"})  # fmt: skip
script("file_index", SIMPLE, [("write", simple(0, 50)), ("write", simple(100, 50)), ("delete", 3, 4)], options={
    "file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b",
})  # fmt: skip
script("many_files", SIMPLE, [("write", simple(10 * number, 3)) for number in range(35)], options={
    "manifest.merge-min-count": 5, "compaction.min.file-num": 1000,
})  # fmt: skip
script("row_groups", SIMPLE, [
    ("write", simple(0, 4000)), ("write", simple(10_000, 4000)), ("delete", 1000, 10_500), ("compact",),
], options={"parquet.block.size": 16_384, "parquet.page.size": 1024})  # fmt: skip
script("odd_names", {"id": "INT NOT NULL", "a.b": "INT", "日本": "STRING", "with blank": "DOUBLE", "Id": "INT"}, [
    ("write", pair(0, **{"a.b": 1, "日本": "x", "with blank": 0.5, "Id": 7})),
    ("write", pair(10, **{"a.b": 2, "日本": "", "with blank": -0.0, "Id": 8})),
    ("delete", 0, 0),
])  # fmt: skip
