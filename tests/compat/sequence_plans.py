"""What a seed draws: the table of a random sequence and its steps, as plain values. Nothing is carried out here.

The columns beside the key are always `v` STRING, `n` BIGINT, `s` INT, `m` of a type with an order, and `x` of any type,
nested ones among them. Values are those of the driver (see `oracle/types.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

__all__ = ["Condition", "Layout", "Plan", "Step", "draw_plan"]

LENGTH = 9
KEYS = 15

# ------------------------------------------------------------------------------------------------ types and values

LTZ = " WITH LOCAL TIME ZONE"
# Whole seconds before 1970: ORC does not hold more there.
EARLY, LATE = dt.datetime(1969, 12, 31, 23, 59, 50), dt.datetime(2024, 2, 29, 13, 0, 0)
MILLIS, MICROS = LATE.replace(microsecond=5000), LATE.replace(microsecond=123_456)
NANOS = 1_700_000_000_123_456_789


def _in_utc(*moments: dt.datetime) -> tuple[dt.datetime, ...]:
    return tuple(moment.replace(tzinfo=dt.UTC) for moment in moments)


NAN = float("nan")
ORDERED: dict[str, tuple[Any, ...]] = {
    "DOUBLE": (0.5, -1e300, NAN),
    "FLOAT": (0.5, -2.0, NAN),
    "DECIMAL(9, 2)": (Decimal("0.00"), Decimal("1.25"), Decimal("-30.10")),
    "DECIMAL(18, 4)": (Decimal("0.5000"), Decimal("12345678901.2500"), Decimal("-7.0001")),
    "DECIMAL(30, 6)": (Decimal("1.000000"), Decimal("12345678901234567890.500000"), Decimal("-0.000001")),
    "DATE": (EARLY.date(), LATE.date(), dt.date(2000, 1, 1)),
    "TIMESTAMP(3)": (EARLY, LATE, MILLIS),
    "TIMESTAMP(6)": (EARLY, MILLIS, MICROS),
    "TIMESTAMP(9)": (0, NANOS, NANOS + 1),
    "TIMESTAMP(3)" + LTZ: _in_utc(EARLY, LATE, MILLIS),
    "TIMESTAMP(6)" + LTZ: _in_utc(EARLY, MILLIS, MICROS),
    "TIMESTAMP(9)" + LTZ: (0, NANOS, NANOS + 1),
}
NESTED: dict[str, tuple[Any, ...]] = {
    "ROW<a INT, b STRING>": ({"a": 1, "b": None}, {"a": None, "b": "q"}, {"a": None, "b": None}),
    "ROW<a INT, b STRING, z INT>": ({"a": 1, "b": "", "z": 9}, {"a": 2, "b": "é", "z": None}),
    "ROW<d DECIMAL(20, 3), r ROW<t TIMESTAMP(6), l ARRAY<INT>>>": (
        {"d": Decimal("1.500"), "r": None},
        {"d": None, "r": {"t": MICROS, "l": [1, None]}},
        {"d": Decimal("-99999999999999999.999"), "r": {"t": None, "l": []}},
    ),
    "ARRAY<INT>": ([], [1], [2, None, 3]),
    "ARRAY<ROW<a INT, d DECIMAL(9, 2)>>": ([], [None, {"a": 1, "d": None}], [{"a": None, "d": Decimal("1.25")}]),
    "MAP<STRING, INT>": ({}, {"a": 1}, {"a": None, "b": 2}),
    "MAP<INT, ARRAY<STRING>>": ({}, {1: ["a", None]}, {1: None, 2: []}),
}
PLAIN: dict[str, tuple[Any, ...]] = {
    "STRING": ("", "a", "bé", "x" * 40),
    "BIGINT": (0, -5, 7, 2**40),
    "INT": (1, -2, 2**31 - 1),
    "BOOLEAN": (True, False),
    "BYTES": (b"", b"\x80a"),
}
VALUES = {**PLAIN, **ORDERED, **NESTED}
WIDER = {
    "INT": "BIGINT",
    "DECIMAL(9, 2)": "DECIMAL(18, 4)",
    "TIMESTAMP(3)": "TIMESTAMP(6)",
    "TIMESTAMP(3)" + LTZ: "TIMESTAMP(6)" + LTZ,
}
GROWN = {"ROW<a INT, b STRING>": "ROW<a INT, b STRING, z INT>"}
"""What a ROW becomes by the member `z`."""


def _fits(dtype: str, file_format: str) -> bool:
    return not (file_format == "avro" and dtype.startswith("TIMESTAMP(9)"))


# ------------------------------------------------------------------------------------------------ the table

ADDS, ANY, FIRST = ("+I", "+U"), ("+I", "+I", "+I", "+U", "-D", "-U"), ("+I",)
PARTIAL = {"merge-engine": "partial-update"}
GROUP = {**PARTIAL, "fields.n.sequence-group": "v,s"}
TWO_GROUPS = {**PARTIAL, "fields.n.sequence-group": "v,x", "fields.m.sequence-group": "s"}
AGGREGATION = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "fields.v.aggregate-function": "max",
    "fields.s.aggregate-function": "last_non_null_value",
}
FUNCTIONS = {"DECIMAL": "sum", "TIMESTAMP": "max", "ROW": "last_value", "ARRAY": "collect", "MAP": "merge_map"}


WHATEVER_THE_SIZES = {"compaction.size-ratio": "1000000", "compaction.max-size-amplification-percent": "1000000"}
"""Compactions are picked by the number of runs alone: where an older row may come after a deletion, what is shown
depends on whether a compaction has dropped the deletion by then, and files of the two differ in size."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A way to merge the rows of a key."""

    options: Mapping[str, str]
    kinds: tuple[str, ...]
    removes: bool = False
    """Whether a `-D` row removes its key, so that Paimon can delete by condition too."""


DEDUPLICATE, BY_SEQUENCE, FIRST_ROW = "deduplicate", "deduplicate by sequence", "first-row"
ENGINES: dict[str, Engine] = {
    DEDUPLICATE: Engine({}, ANY, True),
    BY_SEQUENCE: Engine({"sequence.field": "n"}, ANY, True),
    "deduplicate by a moment": Engine({"sequence.field": "m"}, ANY, True),
    "deduplicate by two, descending": Engine(
        {"sequence.field": "s,m", "sequence.field.sort-order": "descending"}, ANY, True
    ),
    "partial-update": Engine(PARTIAL, ADDS),
    "partial-update by sequence": Engine({**PARTIAL, "sequence.field": "m"}, ADDS),
    "partial-update, deletes remove": Engine({**PARTIAL, "partial-update.remove-record-on-delete": "true"}, ANY, True),
    "group": Engine(GROUP, ANY),
    "two groups": Engine(TWO_GROUPS, ANY),
    "group, deletes remove": Engine({**GROUP, "partial-update.remove-record-on-sequence-group": "n"}, ANY),
    "aggregation": Engine(AGGREGATION, ADDS),
    "aggregation by sequence": Engine({**AGGREGATION, "sequence.field": "m"}, ADDS),
    # Without `-U`: `max` takes nothing back, and is asked to by every kind but the one that removes the row.
    "aggregation, deletes remove": Engine(
        {**AGGREGATION, "aggregation.remove-record-on-delete": "true"}, ("+I", "+I", "+U", "-D"), True
    ),
    FIRST_ROW: Engine({"merge-engine": "first-row"}, FIRST),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The table as it is made."""

    columns: Mapping[str, str]
    keys: tuple[str, ...]
    partitions: tuple[str, ...]
    options: Mapping[str, str]
    kinds: tuple[str, ...]
    removes: bool
    updates: bool = False
    """Whether rows can be updated and merged by what Paimon's core has: read, and written again."""


def draw_layout(rng: Random) -> Layout:
    """An append table or a primary-key table of any engine."""
    partitions = rng.choice(((), (), ("p",), ("p",), ("p", "q")))
    file_format = rng.choice(("parquet", "orc", "avro"))
    types = [dtype for dtype in VALUES if _fits(dtype, file_format)]
    columns = {
        "k": "INT NOT NULL",
        "p": "STRING NOT NULL",
        "q": "INT NOT NULL",
        "v": "STRING",
        "n": "BIGINT",
        "s": "INT",
    }
    columns |= {"m": rng.choice([dtype for dtype in types if dtype in ORDERED]), "x": rng.choice(types)}
    options = {"file.format": file_format}
    if rng.random() < 0.3:
        return _draw_append(rng, columns | {"q": "INT"}, partitions, options)
    name = rng.choice(list(ENGINES))
    engine = ENGINES[name]
    options |= {"bucket": rng.choice(("1", "2", "-1")), **engine.options, **_functions(engine, columns)}
    options |= WHATEVER_THE_SIZES if any("sequence" in key for key in engine.options) else {}
    options |= _draw_changelog(rng, name)
    updates = name == DEDUPLICATE
    return Layout(columns, ("k", *partitions), partitions, options, engine.kinds, engine.removes, updates)


def _draw_append(
    rng: Random, columns: Mapping[str, str], partitions: tuple[str, ...], options: dict[str, str]
) -> Layout:
    bucket = rng.choice(("-1", "2"))
    options |= {"bucket": bucket, **({"bucket-key": "k"} if bucket == "2" else {})}
    if rng.random() < 0.5:
        options |= {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": rng.choice(("true", "false"))}
    return Layout(columns, (), partitions, options, FIRST, True, True)


def _functions(engine: Engine, columns: Mapping[str, str]) -> dict[str, str]:
    """Functions of the columns of drawn types; the default is `last_non_null_value`."""
    if engine.options.get("merge-engine") != "aggregation":
        return {}
    found = {name: FUNCTIONS.get(columns[name].split("(")[0].split("<")[0]) for name in ("m", "x")}
    found = {name: function for name, function in found.items() if name != engine.options.get("sequence.field")}
    return {f"fields.{name}.aggregate-function": function for name, function in found.items() if function}


def _draw_changelog(rng: Random, engine: str) -> dict[str, str]:
    producers = ["none", "none", "lookup", "full-compaction"]
    if engine.startswith(DEDUPLICATE):
        producers.append("input")
    producer = "none" if engine == FIRST_ROW else rng.choice(producers)
    options = {"changelog-producer": producer}
    # Paimon refuses deletion vectors with these producers and with first-row.
    if producer in ("none", "lookup") and engine != FIRST_ROW and rng.random() < 0.4:
        options["deletion-vectors.enabled"] = "true"
    return options


# ------------------------------------------------------------------------------------------------ conditions


def _ranked(value: Any) -> Any:
    """What orders a value: NaN equals itself and comes after every number."""
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda value, given: _ranked(value) == _ranked(given),
    "<": lambda value, given: _ranked(value) < _ranked(given),
    ">=": lambda value, given: _ranked(value) >= _ranked(given),
    "in": lambda value, given: value in given,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of one column."""

    column: str
    sign: str
    value: Any

    def holds(self, row: Mapping[str, Any]) -> bool:
        value = row[self.column]
        if self.sign == "isnull":
            return value is None
        return value is not None and _HOLDS[self.sign](value, self.value)


def draw_condition(rng: Random, columns: Mapping[str, str]) -> Condition:
    """A condition that some of the rows fulfil."""
    column = rng.choice(("k", "k", "v", "n", "m"))
    # A number of nanoseconds is not a moment to a condition.
    if column == "k" or columns[column].startswith("TIMESTAMP(9)"):
        sign = rng.choice(("=", "<", ">=", "in"))
        key = rng.randrange(KEYS)
        return Condition("k", sign, (key, (key + 4) % KEYS, (key + 9) % KEYS) if sign == "in" else key)
    sign = rng.choice(("=", "<", ">=", "isnull"))
    return Condition(column, sign, None if sign == "isnull" else rng.choice(VALUES[columns[column]]))


# ------------------------------------------------------------------------------------------------ steps

STEPS = (
    *("write",) * 6,
    *("compact", "delete", "update", "merge") * 2,
    *("add", "grow", "rename", "drop", "widen"),
    *("tag", "tag", "branch", "rollback", "expire", "overwrite", "overwrite dynamic", "truncate"),
    *("read tag", "read snapshot", "read moment", "find"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation, and on which copy tidelake does it."""

    action: str
    argument: Any
    turn: int

    def __str__(self) -> str:
        return f"{self.action} {self.argument!r}, ours on copy {self.turn + 1}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed draws."""

    seed: int
    layout: Layout
    turn: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What the steps so far have made of the table."""

    columns: Mapping[str, str]
    added: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    forwarded: bool = False
    """Whether a branch took the place of the table."""
    tagged: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = field(default_factory=dict)
    """The columns when a tag was made, and which of them had been added."""

    def after(self, step: Step) -> State:
        match step.action, step.argument:
            case "add", (name, dtype):
                return replace(self, columns={**self.columns, name: dtype}, added=(*self.added, name))
            case "rename", (old, new):
                columns = {new if name == old else name: dtype for name, dtype in self.columns.items()}
                return replace(self, columns=columns, added=tuple(new if each == old else each for each in self.added))
            case "drop", name:
                columns = {each: dtype for each, dtype in self.columns.items() if each != name}
                return replace(self, columns=columns, added=tuple(each for each in self.added if each != name))
            case "widen", (name, dtype):
                return replace(self, columns={**self.columns, name: dtype})
            case "grow", name:
                return replace(self, columns={**self.columns, name: GROWN[self.columns[name]]})
            case "tag", name:
                tagged = {**self.tagged, name: (self.columns, self.added)}
                return replace(self, tags=(*self.tags, name), tagged=tagged)
            case "branch", (tag, _, _):
                # The branch has the schema of the snapshot that was tagged, and takes the place of what came since.
                columns, added = self.tagged[tag]
                tags = self.tags[: self.tags.index(tag) + 1]
                return replace(self, columns=columns, added=added, tags=tags, forwarded=True)
            case "rollback", tag:
                return replace(self, tags=self.tags[: self.tags.index(tag) + 1])
        return self


def draw_plan(seed: int) -> Plan:
    """The table and the steps; the first writes."""
    rng = Random(seed)
    layout, turn = draw_layout(rng), rng.randint(0, 1)
    state, steps = State(layout.columns), []
    for number in range(LENGTH):
        action = rng.choice(STEPS) if number else "write"
        argument = _draw_argument(rng, action, number, layout, state)
        if argument is None:
            action, argument = "write", draw_rows(rng, layout, state.columns)
        steps.append(Step(action, argument, rng.randint(0, 1)))
        state = state.after(steps[-1])
    return Plan(seed, layout, turn, tuple(steps))


def _draw_argument(rng: Random, action: str, number: int, layout: Layout, state: State) -> Any:
    """What the step is about; None if there is nothing yet that it could be about."""
    types = [dtype for dtype in VALUES if _fits(dtype, layout.options["file.format"])]
    match action:
        case "write" | "overwrite":
            return draw_rows(rng, layout, state.columns)
        case "overwrite dynamic":
            return draw_rows(rng, layout, state.columns) if layout.partitions else None
        case "update":
            return (draw_condition(rng, state.columns), rng.choice(("", "new", "é"))) if layout.updates else None
        case "merge":
            return _draw_source(rng, layout, state.columns) if layout.updates else None
        case "compact":
            return rng.random() < 0.5
        case "delete" | "find":
            return draw_condition(rng, state.columns)
        case "truncate":
            return f"p{rng.randint(0, 1)}" if layout.partitions else None
        case "add":
            return f"c{number}", rng.choice(types)
        case "rename":
            return (rng.choice(state.added), f"c{number}") if state.added else None
        case "drop":
            return rng.choice(state.added) if state.added else None
        case "widen":
            open_to = [name for name in state.added if state.columns[name] in WIDER]
            chosen = rng.choice(open_to) if open_to else None
            return (chosen, WIDER[state.columns[chosen]]) if chosen else None
        case "grow":
            rows = [name for name, dtype in state.columns.items() if dtype in GROWN]
            return rng.choice(rows) if rows else None
        case "tag":
            return f"t{number}"
        case "branch":
            tag = rng.choice(state.tags) if state.tags else None
            return (tag, f"b{number}", draw_rows(rng, layout, state.tagged[tag][0])) if tag else None
        case "read tag" | "rollback":
            return rng.choice(state.tags) if state.tags else None
        case "expire":
            # After a fast-forward Paimon expires the wrong snapshots: see W21 in docs/spec-notes.md.
            return None if state.forwarded else rng.randint(1, 3)
    return rng.random()  # a place among the snapshots


def draw_rows(rng: Random, layout: Layout, columns: Mapping[str, str]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Some rows with their kinds; some keys are there twice."""
    keys = rng.choices(range(KEYS), k=rng.randint(1, 10))
    return tuple((rng.choice(layout.kinds), _draw_row(rng, key, layout, columns)) for key in keys)


def _draw_source(rng: Random, layout: Layout, columns: Mapping[str, str]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Rows to merge, each of another key."""
    return tuple(("+I", _draw_row(rng, key, layout, columns)) for key in rng.sample(range(KEYS), rng.randint(1, 6)))


def _draw_row(rng: Random, key: int, layout: Layout, columns: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"k": key, "p": f"p{key % 2}", "q": key % 3}
    if not layout.keys and key % 3 == 2:
        row["q"] = None
    return row | {name: rng.choice((None, *VALUES[dtype])) for name, dtype in columns.items() if name not in row}
