"""MERGE against a dictionary: random clauses, conditions and rows, for every kind of table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import tidelake as tl
from tidelake.errors import InvalidInputError
from tidelake.ops.change.merge import Way

Row = dict[str, Any]
COLUMNS = {"k": "INT NOT NULL", "a": "INT", "b": "STRING"}
BY_KEY = {"bucket": "2", "target-file-size": "1 mb"}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "append": ([], {}),
    "append, buckets": ([], {"bucket": "2", "bucket-key": "k"}),
    "append, vectors": ([], {"deletion-vectors.enabled": "true"}),
    "deduplicate": (["k"], BY_KEY),
    "deduplicate, vectors": (["k"], {**BY_KEY, "deletion-vectors.enabled": "true"}),
    "dynamic buckets": (["k"], {"dynamic-bucket.target-row-num": "3"}),
    "by sequence": (["k"], {**BY_KEY, "sequence.field": "a"}),
    "partial-update": (["k"], {**BY_KEY, "merge-engine": "partial-update"}),
    "aggregation": (["k"], {**BY_KEY, "merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}),
    "first-row": (["k"], {**BY_KEY, "merge-engine": "first-row"}),
}


def known(*values: object) -> bool:
    return all(value is not None for value in values)


PAIR: dict[str, Callable[[Row, Row], bool]] = {
    "t.a > 1": lambda t, s: known(t["a"]) and t["a"] > 1,
    "s.a is null": lambda t, s: s["a"] is None,
    "t.a < s.a": lambda t, s: known(t["a"], s["a"]) and t["a"] < s["a"],
    "not (s.b = 'x')": lambda t, s: known(s["b"]) and s["b"] != "x",
}
ALONE: dict[str, Callable[[Row], bool]] = {
    "a > 1": lambda row: known(row["a"]) and row["a"] > 1,
    "b is null": lambda row: row["b"] is None,
    "k % 2 = 0": lambda row: row["k"] % 2 == 0,
}
ONS: dict[Any, Callable[[Row, Row], bool]] = {
    ("k",): lambda t, s: t["k"] == s["k"],
    "t.k = s.k and t.a <= s.a": lambda t, s: t["k"] == s["k"] and known(t["a"], s["a"]) and t["a"] <= s["a"],
    "t.b = s.b": lambda t, s: known(t["b"], s["b"]) and t["b"] == s["b"],
    "t.a <=> s.a": lambda t, s: t["a"] == s["a"],
    "t.a + 1 > s.k and s.k = t.k": lambda t, s: known(t["a"]) and t["a"] + 1 > s["k"] and s["k"] == t["k"],
}
NEW: dict[str, Callable[[Row, Row], Any]] = {
    "s.a": lambda t, s: s["a"],
    "coalesce(t.a, 0) + coalesce(s.a, 5)": lambda t, s: (t["a"] or 0) + (5 if s["a"] is None else s["a"]),
    "null": lambda t, s: None,
}


@dataclass(frozen=True)
class Step:
    """A clause: which method, with which condition and value."""

    method: str
    condition: str | None
    value: str = ""


def conditions(named: dict[str, Any]) -> st.SearchStrategy[str | None]:
    return st.one_of(st.none(), st.sampled_from(sorted(named)))


matched = st.builds(
    Step,
    st.sampled_from(["when_matched_update", "when_matched_delete", "update all"]),
    conditions(PAIR),
    st.sampled_from(sorted(NEW)),
)
inserts = st.builds(Step, st.sampled_from(["when_not_matched_insert", "insert some"]), conditions(ALONE))
orphans = st.builds(
    Step,
    st.sampled_from(["when_not_matched_by_source_update", "when_not_matched_by_source_delete"]),
    conditions(ALONE),
)


def in_order(steps: list[Step]) -> list[Step]:
    """Without clauses behind one that has no condition: they are refused."""
    kept: list[Step] = []
    for step in steps:
        kept.append(step)
        if step.condition is None:
            break
    return kept


clauses = st.builds(
    lambda a, b, c: [*in_order(a), *in_order(b), *in_order(c)],
    st.lists(matched, max_size=3),
    st.lists(inserts, max_size=2),
    st.lists(orphans, max_size=2),
).filter(bool)
values = st.fixed_dictionaries(
    {"k": st.integers(0, 6), "a": st.none() | st.integers(0, 4), "b": st.none() | st.sampled_from("xyz")}
)
bases = st.lists(values, max_size=7)
sources = st.lists(values, max_size=5)


class AmbiguousError(Exception):
    """The merge is one that must be refused."""


def apply(
    target: list[Row], source: list[Row], on: Any, steps: list[Step], keyed: bool
) -> tuple[list[Row], tuple[int, ...]]:
    """What a merge does, row by row."""
    meets = ONS[on]
    mine = [step for step in steps if step.method in ("when_matched_update", "when_matched_delete", "update all")]
    inserting = [step for step in steps if step.method in ("when_not_matched_insert", "insert some")]
    lonely = [step for step in steps if "by_source" in step.method]
    sole_delete = [(step.method, step.condition) for step in mine] == [("when_matched_delete", None)]
    kept: list[Row] = []
    updated = deleted = 0
    met = [False] * len(source)
    for row in target:
        partners = [number for number, other in enumerate(source) if meets(row, other)]
        for number in partners:
            met[number] = True
        fitting = []
        for number in partners:
            other = source[number]
            step = next((each for each in mine if each.condition is None or PAIR[each.condition](row, other)), None)
            if step is not None:
                fitting.append((step, other))
        if len(fitting) > 1 and not sole_delete:
            raise AmbiguousError
        if not partners:
            step = next((each for each in lonely if each.condition is None or ALONE[each.condition](row)), None)
            fitting = [] if step is None else [(step, row)]
        if not fitting:
            kept.append(row)
            continue
        step, other = fitting[0]
        if step.method.endswith("delete"):
            deleted += 1
            continue
        updated += 1
        match step.method:
            case "when_matched_update":
                kept.append({**row, "a": NEW[step.value](row, other)})
            case "update all":
                kept.append({**row, "a": other["a"], "b": other["b"]} if keyed else dict(other))
            case _:
                kept.append({**row, "b": "late"})
    added = []
    for number, row in enumerate(source):
        if met[number]:
            continue
        step = next((each for each in inserting if each.condition is None or ALONE[each.condition](row)), None)
        if step is not None:
            added.append(
                dict(row) if step.method == "when_not_matched_insert" else {"k": row["k"], "a": row["a"], "b": None}
            )
    if keyed:
        if len({row["k"] for row in added}) < len(added):
            raise AmbiguousError
        new = {row["k"] for row in added}
        kept = [row for row in kept if row["k"] not in new]
    return kept + added, (updated, deleted, len(added))


def build(merge: Any, steps: list[Step]) -> Any:
    for step in steps:
        side = "s" if "insert" in step.method else "t"
        alone = (
            None
            if step.condition is None
            else step.condition.replace("a >", f"{side}.a >")
            .replace("b is", f"{side}.b is")
            .replace("k %", f"{side}.k %")
        )
        match step.method:
            case "when_matched_update":
                merge = merge.when_matched_update({"a": step.value}, condition=step.condition)
            case "update all":
                merge = merge.when_matched_update(condition=step.condition)
            case "when_matched_delete":
                merge = merge.when_matched_delete(step.condition)
            case "when_not_matched_insert":
                merge = merge.when_not_matched_insert(condition=alone)
            case "insert some":
                merge = merge.when_not_matched_insert({"k": "s.k", "a": "s.a"}, condition=alone)
            case "when_not_matched_by_source_update":
                merge = merge.when_not_matched_by_source_update({"b": "'late'"}, condition=alone)
            case _:
                merge = merge.when_not_matched_by_source_delete(alone)
    return merge


def shown(rows: list[Row]) -> list[str]:
    return sorted(repr(tuple(row[name] for name in COLUMNS)) for row in rows)


NUMBERS = count()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=bases, found=sources, steps=clauses, on=st.sampled_from(list(ONS)), again=st.booleans())
def test_a_merge_does_what_a_loop_over_rows_does(kind, base, found, steps, on, again):
    key, options = KINDS[kind]
    lake = tl.connect("memory://")
    table = lake.create_table(f"d.t{next(NUMBERS)}", COLUMNS, primary_key=key, options=options)
    if key:
        base = list({row["k"]: row for row in base}.values())
    if key and on != ("k",) and (kind != "deduplicate" or any(step.method == "update all" for step in steps)):
        on = ("k",)  # elsewhere a row that is inserted may meet one of its key, and fold into it
    for part in (base[::2], base[1::2]):
        if part:
            table.write(part)
    merge = build(table.merge(found, on=list(on) if isinstance(on, tuple) else on), steps)
    try:
        wanted, counts = apply(base, found, on, steps, bool(key))
    except AmbiguousError:
        event("refused")
        # Of a table with a key, two new rows of one key are refused as well.
        with pytest.raises(
            InvalidInputError, match="several source rows" if key else "several source rows change one row"
        ):
            merge.run()
        assert shown(table.to_arrow().to_pylist()) == shown(base)
        return
    if merge.run(plan_only=True).way is Way.UPSERT and len({row["k"] for row in found}) < len(found):
        # Without a look at the table nobody can tell whether the key that comes twice is there.
        with pytest.raises(InvalidInputError, match="several source rows have one key"):
            merge.run()
        return
    done = merge.run()
    event(merge.explain().splitlines()[0].partition(": ")[2])
    assert shown(table.to_arrow().to_pylist()) == shown(wanted)
    assert (done.deleted, done.written) == (counts[1], counts[0] + counts[2])
    if done.updated is not None:
        assert (done.updated, done.inserted) == (counts[0], counts[2])
    assert table.check().ok
    if again and key:
        table.compact(full=True)
        assert shown(table.to_arrow().to_pylist()) == shown(wanted)
