"""Keys that move between partitions: a table and a dictionary that are treated alike stay alike, row by row.

The model takes one row after the other; the table takes batches of any size, with writers that live for one commit or
for many, compactions, row-level changes and other writers in between. No key is ever in two partitions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kit.changelogs import changelogs
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.change import keyed as keyed_verbs
from tidelake.ops.placement.moves import Policy, known_place, parts_of, plan_moves
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO

Row = dict[str, Any]
Model = dict[tuple[int, int], Row]
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}

row = st.fixed_dictionaries(
    {
        "rowkind": st.sampled_from(["+I", "+I", "+U", "-D"]),
        "a": st.integers(0, 1),
        "dt": st.sampled_from(["x", "y", "z"]),
        "k": st.integers(0, 5),
        "v": st.none() | st.integers(0, 9),
    }
)
batch = st.lists(row, min_size=1, max_size=9)
step = st.one_of(
    st.tuples(st.just("write"), batch),
    st.tuples(st.just("stream"), batch),
    st.tuples(st.just("stream"), batch),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("update"), st.integers(0, 5)),
    st.tuples(st.just("drop"), st.sampled_from(["x", "y", "z"])),
)


def create(engine: str, trigger: int = 3) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    return lake.create_table(
        "d.t",
        {"a": "INT NOT NULL", "dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT"},
        primary_key=["a", "k"],
        partition_by=["a", "dt"],
        options={
            "bucket": "-1",
            "dynamic-bucket.target-row-num": "2",
            "num-sorted-run.compaction-trigger": str(trigger),
            **ENGINES[engine],
        },
    )


def taken(rows: list[Row], engine: str) -> list[Row]:
    """The rows that the engine accepts at all."""
    return rows if engine == "deduplicate" else [{**row, "rowkind": "+I"} for row in rows]


def upsert(model: Model, rows: list[Row], engine: str) -> None:
    for row in rows:
        key, values = (row["a"], row["k"]), {name: row[name] for name in ("a", "dt", "k", "v")}
        old = model.get(key)
        if row["rowkind"] == "-D":
            model.pop(key, None)
        elif old is None or engine == "deduplicate":
            model[key] = values
        elif engine == "partial-update":
            old["v"] = old["v"] if row["v"] is None else row["v"]
        elif engine == "aggregation":
            old["v"] = old["v"] if row["v"] is None else row["v"] + (old["v"] or 0)


def by_key(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((row["a"], row["k"], row["dt"], -1 if row["v"] is None else row["v"]) for row in rows)


@settings(max_examples=14, deadline=None, suppress_health_check=list(HealthCheck))
@given(engine=st.sampled_from(list(ENGINES)), steps=st.lists(step, min_size=2, max_size=7))
def test_a_table_stays_what_a_dictionary_is(engine: str, steps: list[tuple[str, Any]]) -> None:
    table, model = create(engine), {}
    writer, commit, number = table.new_write("job"), table.new_commit("job"), 0
    for name, what in steps:
        if name == "write":
            table.write(taken(what, engine))
            upsert(model, taken(what, engine), engine)
        elif name == "stream":
            number += 1
            for one in range(0, len(what), 3):
                writer.write(taken(what[one : one + 3], engine))
            # What is read of first-row tables is compacted: a batch job waits for it, a stream need not.
            commit.commit(writer.prepare_commit(None if engine == "first-row" else number), identifier=number)
            upsert(model, taken(what, engine), engine)
        elif name == "compact":
            table.compact(full=what)
        elif name == "delete":
            table.delete(f"k = {what}")
            for key in [key for key in model if key[1] == what]:
                del model[key]
        elif name == "drop":
            table.drop_partitions(f"dt = '{what}'")
            for key in [key for key, row in model.items() if row["dt"] == what]:
                del model[key]
        else:
            changes: dict[str, object] = {"v": "7"} | ({"dt": "'z'"} if engine == "deduplicate" else {})
            table.update(changes, f"k = {what}")
            for key in [key for key in model if key[1] == what]:
                model[key] |= {"v": 7} | ({"dt": "z"} if engine == "deduplicate" else {})
        if engine == "first-row":
            table.compact()
        assert by_key(table.to_arrow().to_pylist()) == by_key(model.values())
    writer.close()
    assert not table.check(rows=True).findings


# ------------------------------------------------------------------------------------------------ found or looked up

REMOVES = {"partial-update.remove-record-on-delete": "true"}
LOOKS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full compaction": {"changelog-producer": "full-compaction"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors, lookup": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
    "partial-update": {"merge-engine": "partial-update"},
    "partial-update, removes": {"merge-engine": "partial-update", **REMOVES},
    "partial-update, lookup": {"merge-engine": "partial-update", "changelog-producer": "lookup", **REMOVES},
    "partial-update, group": {
        "merge-engine": "partial-update",
        "fields.v.sequence-group": "w",
        "partial-update.remove-record-on-sequence-group": "v",
    },
    "aggregation": ENGINES["aggregation"],
    "aggregation, removes": {**ENGINES["aggregation"], "aggregation.remove-record-on-delete": "true"},
    "aggregation, full compaction": {**ENGINES["aggregation"], "changelog-producer": "full-compaction"},
    "first-row": ENGINES["first-row"],
    "first-row, lookup": {**ENGINES["first-row"], "changelog-producer": "lookup"},
}
condition = st.one_of(
    st.builds("k = {}".format, st.integers(0, 5)),
    st.builds("dt = '{}' and k < {}".format, st.sampled_from("xyz"), st.integers(1, 6)),
    st.builds("v >= {}".format, st.integers(0, 9)),
)
values = st.dictionaries(st.sampled_from("vw"), st.sampled_from(["1", "null", "coalesce(v, 0) + 1"]), min_size=1)
move = st.sampled_from([{}, {"dt": "'z'"}, {"dt": "case when dt = 'x' then 'y' else 'x' end"}])
change = st.one_of(
    st.tuples(st.just("write"), batch),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("delete"), condition),
    st.tuples(st.just("update"), st.tuples(values, move, condition)),
)


class LookedUp(KeyedTableWriter):
    """Looks up where every row belongs, whatever is said."""

    def write(self, batch: Any, kinds: Any = None, buckets: Any = None) -> None:
        del buckets
        super().write(batch, kinds)


SWAP = ("update", ({"v": "1"}, {"dt": "case when dt = 'x' then 'y' else 'x' end"}, "v >= 0"))
LATER = ("write", [{"rowkind": "+I", "a": 0, "dt": "x", "k": 0, "v": None}])
LEAVE = [
    ("write", [{"rowkind": "+I", "a": 0, "dt": to, "k": k, "v": None}]) for k, to in ((4, "x"), (1, "x"), (3, "y"))
]
TO_Y = ("update", ({"v": "1"}, {"dt": "case when dt = 'x' then 'y' else 'x' end"}, "k = 0"))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(look=st.sampled_from(list(LOOKS)), write_only=st.booleans(), steps=st.lists(change, min_size=2, max_size=6))
@example(look="deduplicate", write_only=False, steps=[SWAP, LATER])  # room that keys left is used again
@example(
    look="deduplicate", write_only=True, steps=[("write", [each for _, (each,) in LEAVE]), TO_Y]
)  # an empty bucket
@example(look="vectors, lookup", write_only=True, steps=[SWAP, ("delete", "v >= 0")])  # rows that wait on level 0
@example(look="first-row, lookup", write_only=True, steps=[SWAP, ("delete", "k = 1")])
def test_rows_go_where_a_look_at_all_keys_would_have_sent_them(
    look: str, write_only: bool, steps: list[tuple[str, Any]]
) -> None:
    engine = LOOKS[look].get("merge-engine", "deduplicate")
    first = ("write", [{"rowkind": "+I", "a": 0, "dt": "xyz"[k % 3], "k": k, "v": k} for k in range(6)])
    found, looked_up = (watched_table(LOOKS[look], write_only) for _ in range(2))
    for step in (first, *steps):
        result = done(found, step, engine)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keyed_verbs, "KeyedTableWriter", LookedUp)
            patch.setattr(keyed_verbs, "_movers", lambda *_: None)
            assert done(looked_up, step, engine) == result
        assert state(found) == state(looked_up)
    for table in (found, looked_up):
        table.compact(full=True)
        assert not table.check(rows=True).findings
    assert state(found) == state(looked_up)
    assert changelogs(found) == changelogs(looked_up)


def watched_table(options: dict[str, str], write_only: bool) -> Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    return lake.create_table(
        "d.t",
        {"a": "INT NOT NULL", "dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "INT", "w": "INT"},
        primary_key=["a", "k"],
        partition_by=["a", "dt"],
        options={
            "bucket": "-1",
            "dynamic-bucket.target-row-num": "2",
            "num-sorted-run.compaction-trigger": "3",
            "write-only": str(write_only).lower(),
            **options,
        },
    )


def done(table: Table, step: tuple[str, Any], engine: str) -> Any:
    """What became of a step: how many rows changed, or why none did."""
    name, what = step
    try:
        if name == "write":
            return table.write([{**row, "w": row["v"]} for row in taken(what, engine)]).rows
        if name == "compact":
            return table.compact(full=what).rows
        if name == "delete":
            return table.delete(what).rows
        values, move, where = what
        return table.update({**values, **(move if engine == "deduplicate" else {})}, where).rows
    except InvalidInputError as error:
        return error.code, error.message


def state(table: Table) -> tuple[list[str], ...]:
    """What reads show, and what lies in which buckets and levels."""
    columns = ("partition", "bucket", "level", "row_count", "delete_row_count", "min_key", "max_key")
    files = table.files().select(columns).to_pylist()
    return (
        sorted(map(repr, table.to_arrow().to_pylist())),
        sorted(map(repr, table.inspect.audit_log().to_arrow().to_pylist())),
        sorted(repr(each) for each in files),
    )


# ------------------------------------------------------------------------------------------------ a batch at once


def one_by_one(
    keys: list[int], known: list[int], partitions: list[int], policy: Policy
) -> tuple[list[tuple[int, bool, int, int]], dict[int, int]]:
    """Row after row, with a bucket of its own for every new key: the number of the row that brought it."""
    state = {key: place for key, place in enumerate(known) if place >= 0}
    out: list[tuple[int, bool, int, int]] = []
    for row, (key, partition) in enumerate(zip(keys, partitions, strict=True)):
        place = state.get(key)
        fresh = int(known_place(np.int64(partition), np.int64(100 + row)))
        if place is None:
            state[key] = fresh
            out.append((row, False, partition, 100 + row))
            continue
        home, bucket = (int(part[0]) for part in parts_of(np.array([place])))
        if home == partition or policy is Policy.STAYS:
            out.append((row, False, home, bucket))
        elif policy is Policy.MOVES:
            out += [(row, True, home, bucket), (row, False, partition, 100 + row)]
            state[key] = fresh
    return out, state


@settings(max_examples=100, deadline=None)
@given(data=st.data(), policy=st.sampled_from(Policy), count=st.integers(1, 12))
def test_a_batch_is_planned_as_its_rows_would_be_one_by_one(data: Any, policy: Policy, count: int) -> None:
    distinct = data.draw(st.integers(1, 4))
    keys = [*range(distinct), *(data.draw(st.integers(0, distinct - 1)) for _ in range(count))]
    keys = data.draw(st.permutations(keys))
    partitions = [data.draw(st.integers(0, 2)) for _ in keys]
    known = [
        data.draw(st.just(-1) | st.builds(lambda p, b: (p << 15) | b, st.integers(0, 2), st.integers(0, 3)))
        for _ in range(distinct)
    ]
    arrays = (np.array(values, np.int64) for values in (keys, known, partitions))
    moves = plan_moves(*arrays, policy, lambda rows, where: 100 + rows)
    wanted, state = one_by_one(keys, known, partitions, policy)
    columns = (moves.rows, moves.deletes, moves.partitions, moves.buckets)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == wanted
    assert {key: int(place) for key, place in enumerate(moves.places)} == state
