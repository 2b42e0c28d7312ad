"""Tables that the reference wrote once: primary keys with every merge engine, and rows marked as deleted.

Each is a `Keyed` script: the steps are those of the driver, as tuples of a method's name and its arguments. What the
reference reads at each snapshot is kept beside the table. `MERGING` has a table for every feature of `keyed_cells`,
taken through all states of the tree.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import oracle
from compat import keyed_cells

__all__ = ["KEYED", "MARKED", "MERGING", "STREAMED", "Keyed", "run"]


@dataclass(frozen=True, slots=True)
class Keyed:
    """One table and what happens to it."""

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    steps: tuple[tuple[Any, ...], ...]
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    releases: tuple[str, ...] = ("2.0.0",)


KEYED: dict[str, Keyed] = {}
MARKED: dict[str, Keyed] = {}
"""Append tables with deletion vectors or row tracking."""
STREAMED: list[str] = []
"""Primary-key tables whose changes outlive their snapshots; what a stream reads is kept beside them."""
SOME = ("2.0.0", "1.4.2", "0.9.0")
LIFT = {"compaction.force-up-level-0": True, "compaction.size-ratio": -99}


def keyed(
    name: str,
    columns: Mapping[str, str],
    steps: Sequence[tuple[Any, ...]],
    options: Mapping[str, Any] | None = None,
    key: Sequence[str] = ("id",),
    partition_by: Sequence[str] = (),
    releases: Sequence[str] = ("2.0.0",),
) -> None:
    into = KEYED if key else MARKED
    how = {"bucket": 1, **(options or {})} if key else dict(options or {})
    into[name] = Keyed(name, dict(columns), tuple(key), tuple(steps), tuple(partition_by), how, tuple(releases))


def run(catalog: oracle.Catalog, script: Keyed) -> oracle.Table:
    """Make the table."""
    columns, options = dict(script.columns), dict(script.options)
    table = catalog.create_table(f"d.{script.name}", columns, script.key, script.partition_by, options)
    for step in script.steps:
        match step:
            case ("write", rows):
                table.write(rows)
            case ("write", rows, how):
                table.write(rows, **how)
            case ("compact",):
                table.compact()
            case ("lift",):
                table.compact(full=False, options=LIFT)
            case ("lift", how):
                table.compact(full=False, options=how)
            case ("rows", cell, seed, count, keys):
                rows = keyed_cells.make_rows(cell, Random(seed), count, keys)
                table.write([(kind, tuple(row.values())) for kind, row in rows])
            case ("mark", index, positions):
                names = sorted((each["rows"], each["file"]) for each in table.files())
                table.delete_positions(names[index][1], positions)
            case ("alter", *changes):
                table.alter(*changes)
            case ("truncate", partitions):
                table.truncate(partitions)
            case ("tag", name):
                table.create_tag(name)
            case ("expire", keep):
                table.expire_snapshots(keep, changelog_max=100)
            case ("upsert", rows):
                from compat.moving_keys import TheirUpsert  # needs a running Java

                TheirUpsert(table, f"job-{len(table.snapshots())}").upsert(rows)
            case _:
                raise ValueError(step)
    return table


# ------------------------------------------------------------------------------------------------ deduplicate

PLAIN = {"id": "INT NOT NULL", "v": "STRING", "n": "BIGINT"}


def rows(start: int, count: int, text: str) -> list[tuple[str, tuple[Any, ...]]]:
    return [("+I", (i, None if i % 5 == 4 else f"{text}{i}", i * 10)) for i in range(start, start + count)]


CHANGES: list[tuple[Any, ...]] = [
    ("write", rows(0, 12, "a")),
    ("write", [("-U", (1, "a1", 10)), ("+U", (1, "b", 11)), ("-D", (2, "a2", 20)), ("+I", (50, "new", None))]),
    ("compact",),
    ("write", rows(8, 8, "c")),
    ("write", [("-D", (8, "c8", 80)), ("+I", (2, "back", 21))]),
    ("tag", "before"),
    ("lift",),
    ("write", [("-D", (0, "a0", 0))]),
    ("compact",),
    ("write", rows(30, 3, "d")),
]
for _producer in ("none", "input", "lookup", "full-compaction"):
    _name = f"deduplicate_{_producer.replace('-', '_')}"
    keyed(_name, PLAIN, CHANGES, {"changelog-producer": _producer}, releases=SOME)
for _format in ("orc", "avro"):
    keyed(f"deduplicate_{_format}", PLAIN, CHANGES, {"file.format": _format, "write-only": True}, releases=SOME)
keyed("per_level", PLAIN, CHANGES, {"file.format.per.level": "0:avro,5:orc", "file.compression.per.level": "0:null"})
keyed("thin", PLAIN, CHANGES, {"data-file.thin-mode": True})
keyed("ignore_delete", PLAIN, CHANGES, {"ignore-delete": True})
keyed("sequence", {**PLAIN, "s": "INT"}, [
    ("write", [(1, "a", 0, 5), (2, "b", 0, 5), (3, "c", 0, None)]),
    ("write", [(1, "old", 0, 4), (2, "new", 0, 6), (3, "d", 0, 1)]),
    ("write", [("-D", (2, "late", 0, 3)), ("-D", (1, "gone", 0, 9))]),
    ("compact",),
    ("write", [(1, "zombie", 0, 7), (3, "e", 0, 1)]),
], {"sequence.field": "s", "write-only": True}, releases=SOME)  # fmt: skip
keyed("partitioned", {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "STRING"}, [
    ("write", [(i, f"d{i % 3}", "a") for i in range(12)]),
    ("write", [(i, f"d{i % 3}", "b") for i in range(5)]),
    ("write", [(99, "d0", "over")], {"overwrite": {"dt": "d0"}, "options": {"dynamic-partition-overwrite": False}}),
    ("truncate", [{"dt": "d2"}]),
    ("write", [("-D", (1, "d1", "b")), (5, "d/ü=", "odd")]),
    ("compact",),
], {"bucket": 2}, ("dt", "id"), ("dt",), SOME)  # fmt: skip
keyed("keys", {
    "s": "STRING NOT NULL", "n": "SMALLINT NOT NULL", "m": "DECIMAL(20, 3) NOT NULL", "t": "TIMESTAMP(6) NOT NULL",
    "b": "BINARY(2) NOT NULL", "f": "DOUBLE NOT NULL", "d": "DATE NOT NULL", "v": "INT",
}, [
    ("write", [("k" * i, i - 3, Decimal(i) / 8, dt.datetime(1960, 1, 1, 1, 2, 3, 456) + dt.timedelta(days=900 * i),
                bytes([i, 255 - i]), [-0.0, 0.0, float("nan"), 1.5][i % 4], dt.date(1969, 12, 30 + i % 2), i)
               for i in range(8)]),
    ("write", [("k" * i, i - 3, Decimal(i) / 8, dt.datetime(1960, 1, 1, 1, 2, 3, 456) + dt.timedelta(days=900 * i),
                bytes([i, 255 - i]), [-0.0, 0.0, float("nan"), 1.5][i % 4], dt.date(1969, 12, 30 + i % 2), -i)
               for i in range(2, 6)]),
    ("compact",),
], {"bucket": 3}, ("s", "n", "m", "t", "b", "f", "d"))  # fmt: skip
keyed("changed", PLAIN, [
    ("write", rows(0, 5, "a")),
    ("alter", ("add", "x", "INT", "first"), ("rename", "v", "w"), ("type", "n", "DOUBLE")),
    ("write", [(1, 3, "new", 0.5), (None, 9, None, None)]),
    ("alter", ("rename", "id", "key"), ("drop", "x")),
    ("write", [(3, "again", 1.5)]),
    ("compact",),
])  # fmt: skip
keyed("dynamic", {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "INT"}, [
    ("write", [(i, f"p{i % 2}", i) for i in range(24)]),
    ("write", [(i, f"p{i % 2}", -i) for i in range(30)]),
    ("write", [(1, "p1", 100)], {"overwrite": {"dt": "p1"}, "options": {"dynamic-partition-overwrite": False}}),
], {"bucket": -1, "dynamic-bucket.target-row-num": 5}, ("dt", "id"), ("dt",), SOME)  # fmt: skip
keyed("postponed", PLAIN, [("write", rows(0, 5, "a")), ("write", rows(3, 5, "b"))], {"bucket": -2})
keyed("cross_partition", {"id": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "INT"}, [
    ("write", [(1, "a", 1), (2, "b", 2)], {"bucket": 0}), ("write", [("-D", (1, "a", 1)), (1, "b", 3)], {"bucket": 0}),
], {"bucket": -1}, ("id",), ("dt",))  # fmt: skip

# ------------------------------------------------------------------------------------------------ other engines

PARTIAL = {"id": "INT NOT NULL", "a": "STRING", "b": "INT", "c": "DOUBLE"}
PARTIAL_STEPS: list[tuple[Any, ...]] = [
    ("write", [(1, "a", None, None), (2, None, 2, None), (3, "c", 3, 0.5)]),
    ("write", [(1, None, 1, None), (2, "b", None, 1.5)]),
    ("compact",),
    ("write", [(1, None, None, -0.0), (3, "d", None, None), (4, None, None, None)]),
    ("lift",),
    ("write", [(2, None, 7, None)]),
]
for _producer in ("none", "lookup", "full-compaction"):
    _how = {"merge-engine": "partial-update", "changelog-producer": _producer}
    keyed(f"partial_update_{_producer.replace('-', '_')}", PARTIAL, PARTIAL_STEPS, _how, releases=SOME)
_grouped = {"id": "INT NOT NULL", "a": "INT", "g1": "INT", "b": "INT", "c": "STRING", "g2": "INT"}
keyed("partial_update_groups", _grouped, [
    ("write", [(1, 10, 1, 100, "x", 1), (2, 20, 2, 200, "y", None)]),
    ("write", [(1, 11, 0, 101, None, 2), (2, 21, 3, None, "z", 5)]),
    ("write", [(1, 12, 2, 1, "late", 1)]),
    ("compact",),
    ("write", [(2, None, None, 5, None, 9)]),
], {"merge-engine": "partial-update", "fields.g1.sequence-group": "a", "fields.g2.sequence-group": "b,c",
    "fields.b.aggregate-function": "sum"}, releases=SOME[:2])  # fmt: skip
keyed("partial_update_deletes", PARTIAL, [
    ("write", [(1, "a", 1, None), (2, "b", 2, None)]), ("write", [("-D", (1, None, None, None)), (2, None, 3, None)]),
    ("write", [(1, None, 9, None)]), ("compact",),
], {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": True})  # fmt: skip

FUNCTIONS = {
    "sum": ("INT", [1, None, 3]), "product": ("BIGINT", [2, 3, 4]), "max": ("DOUBLE", [1.5, -2.0, None]),
    "min": ("DATE", [dt.date(2024, 1, 1), dt.date(1969, 12, 31), None]), "last_value": ("STRING", ["a", "b", None]),
    "last_non_null_value": ("STRING", ["a", "b", None]), "first_value": ("STRING", [None, "b", "c"]),
    "listagg": ("STRING", ["x", None, "z"]), "bool_and": ("BOOLEAN", [True, None, False]),
    "bool_or": ("BOOLEAN", [False, None, True]), "collect": ("ARRAY<INT>", [[1], [2, 2], None]),
    "merge_map": ("MAP<STRING, INT>", [{"a": 1}, {"b": 2}, {"a": 3}]),
}  # fmt: skip
_columns = {"id": "INT NOT NULL", **{f"f_{name}": dtype for name, (dtype, _) in FUNCTIONS.items()}}
_aggregates = {f"fields.f_{name}.aggregate-function": name for name in FUNCTIONS}
for _producer in ("none", "lookup"):
    keyed(f"aggregation_{_producer}", _columns, [
        *(("write", [(key, *(values[(at + key) % 3] for _, values in FUNCTIONS.values())) for key in range(3)])
          for at in range(3)),
        ("compact",),
        ("write", [(1, *(values[0] for _, values in FUNCTIONS.values()))]),
        ("lift",),
        ("write", [(0, *(values[1] for _, values in FUNCTIONS.values()))]),
    ], {"merge-engine": "aggregation", "changelog-producer": _producer, **_aggregates}, releases=SOME)  # fmt: skip
keyed("aggregation_retract", {"id": "INT NOT NULL", "s": "INT", "l": "STRING", "k": "INT"}, [
    ("write", [(1, 10, "a", 1), (2, 20, "b", 2)]),
    ("write", [("-U", (1, 10, "a", 1)), ("+U", (1, 15, "c", 3))]),
    ("write", [("-D", (2, 5, "x", 9))]),
    ("compact",),
    ("write", [("-U", (1, 1, None, None))]),
], {"merge-engine": "aggregation", "fields.s.aggregate-function": "sum", "fields.l.aggregate-function": "last_value",
    "fields.k.aggregate-function": "max", "fields.k.ignore-retract": True})  # fmt: skip
for _producer in ("none", "lookup"):
    keyed(f"first_row_{_producer}", PLAIN, [
        ("write", rows(0, 5, "a")), ("write", rows(3, 5, "b")), ("compact",), ("write", rows(6, 4, "c")),
    ], {"merge-engine": "first-row", "changelog-producer": _producer}, releases=SOME)  # fmt: skip

# ------------------------------------------------------------------------------------------------ deletion vectors

for _name, _how in {
    "vectors": {},
    "vectors_64": {"deletion-vectors.bitmap64": True},
    "vectors_lookup": {"changelog-producer": "lookup"},
    "vectors_partial": {"merge-engine": "partial-update"},
    "vectors_orc": {"file.format": "orc"},
    "vectors_buckets": {"bucket": 3},
}.items():
    keyed(_name, PLAIN, [
        ("write", rows(0, 20, "a")), ("compact",), ("write", rows(3, 4, "b")), ("write", rows(5, 4, "c")),
        *([] if _name == "vectors_partial" else [("write", [("-D", (10, "a10", 100))])]),
        ("write", rows(40, 2, "d")),
    ], {"deletion-vectors.enabled": True, **_how}, releases=SOME if _name == "vectors" else SOME[:1])  # fmt: skip
_marks: list[tuple[Any, ...]] = [
    ("write", [(i, "a", i) for i in range(10)]), ("write", [(i, "b", i) for i in range(20, 32)]),
    ("mark", 0, [0, 9]), ("mark", 1, [5]), ("mark", 0, [1]), ("write", [(99, "c", 99)]),
]  # fmt: skip
for _name, _how in {
    "marked": {},
    "marked_64": {"deletion-vectors.bitmap64": True},
    "marked_buckets": {"bucket": 1, "bucket-key": "id"},
}.items():
    keyed(_name, PLAIN, _marks, {"deletion-vectors.enabled": True, **_how}, key=())
keyed("row_tracking", PLAIN, [
    ("write", [(i, "a", i) for i in range(5)]), ("write", [(i, "b", i) for i in range(10, 13)]),
    ("alter", ("add", "x", "INT")), ("write", [(20, "c", 1, 5)]),
], {"row-tracking.enabled": True}, key=())  # fmt: skip


# ------------------------------------------------------------------------------------------------ change streams

for _name, _how in {
    "kept_none": {},
    "kept_input": {"changelog-producer": "input"},
    "kept_lookup": {"changelog-producer": "lookup"},
    "kept_full_compaction": {"changelog-producer": "full-compaction"},
    "kept_vectors": {"changelog-producer": "lookup", "deletion-vectors.enabled": True},
    "kept_vectors_64": {"deletion-vectors.enabled": True, "deletion-vectors.bitmap64": True},
}.items():
    keyed(_name, PLAIN, [
        ("write", rows(0, 6, "a")), ("write", [("-D", (1, "a1", 10)), ("+U", (2, "b", 20))]), ("compact",),
        ("write", rows(4, 4, "c")), ("expire", 2), ("write", [("-D", (7, "c7", 70))]), ("compact",), ("expire", 1),
        ("write", rows(20, 1, "d")),
    ], {"changelog.time-retained": "3650 d", **_how})  # fmt: skip
    STREAMED.append(_name)
keyed("vectors_merged_on_read", PLAIN, [
    ("write", rows(0, 20, "a")), ("compact",), ("write", rows(3, 4, "b")),
    ("write", [*rows(5, 4, "c"), ("-D", (10, "a10", 100))], {"options": {"write-only": True}}),
], {"deletion-vectors.enabled": True, "deletion-vectors.merge-on-read": True})  # fmt: skip
_moving = {"c": "INT NOT NULL", "dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT"}
for _engine in ("deduplicate", "partial-update", "first-row"):
    _how = {"bucket": -1, "dynamic-bucket.target-row-num": 4, "merge-engine": _engine}
    keyed(f"moving_{_engine.replace('-', '_')}", _moving, [
        ("upsert", [("+I", (1, f"d{i % 3}", i, i)) for i in range(10)]),
        ("upsert", [("+I", (1, f"d{(i + 1) % 3}", i, -i)) for i in range(4, 14)]),
        *([("upsert", [("-D", (1, "d1", 0, 0))])] if _engine == "deduplicate" else []),
        ("compact",),
        ("upsert", [("+I", (1, "d2", 3, None)), ("+I", (2, "d0", 3, 7))]),
    ], _how, ("c", "id"), ("c", "dt"))  # fmt: skip


# ------------------------------------------------------------------------------------------------ every way to merge


def name_of(cell: keyed_cells.Cell, releases: Sequence[str]) -> str:
    """The name of the golden table of a cell."""
    words = re.sub("[^a-z0-9]+", "_", cell.feature.lower())
    return f"merge_{words}" if "2.0.0" in releases else f"merge_{words}_older"


MERGING: dict[str, keyed_cells.Cell] = {}
"""Golden tables that go through all states with one way to merge, and their cells."""
for _cell, _releases in keyed_cells.golden_cells():
    _wide = len(_cell.columns) > 20
    _steps = [
        ("rows", _cell, f"{_cell} {_number}", 12 if _wide else 20, 5 if _wide else 12)
        if _step == "write"
        else ("lift", keyed_cells.LIFT)
        if _step == "lift"
        else (_step,)
        for _number, (_step, _) in enumerate(keyed_cells.LIFE)
    ]
    _name = name_of(_cell, _releases)
    keyed(_name, _cell.columns, _steps, _cell.options, _cell.primary_key, releases=_releases)
    MERGING[_name] = _cell
