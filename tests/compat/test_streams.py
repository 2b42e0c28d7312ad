"""Streams on Spark beside the real Paimon: it follows what our sinks write, and our source follows what it writes.

Streams of both sides follow one table, turn by turn. In every turn both must return the same rows with the same kinds,
and what they returned so far must make the table that both read at that snapshot. Rows also go through a model of the
merge engine, which knows neither of the two.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random  # noqa: TID251 - drawn from fixed seeds
from typing import Any

import pyarrow as pa
import pytest

import oracle
import tidelake as tl
from compat.actors import encoded
from compat.moving_keys import TheirUpsert
from kit.stream_queries import READ_ALL, StreamQuery, all_rows
from kit.streams import COLUMNS, SCHEMA, Feed, forget_commit, run_source_sink, run_stream
from tidelake.engines.spark.stream.batches import BatchSink
from tidelake.engines.spark.stream.requests import SinkRequest
from tidelake.errors import InvalidInputError
from tidelake.table import Table

pytestmark = pytest.mark.oracle

Values = tuple[Any, ...]
Drawn = list[tuple[str, Values]]
State = dict[Values, dict[str, Any]]

KINDS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "unaware": ([], ["p"], {"bucket": "-1"}),
    "append-fixed": ([], [], {"bucket": "2", "bucket-key": "id"}),
    "fixed": (["id", "p"], ["p"], {"bucket": "2"}),
    "dynamic": (["id", "p"], ["p"], {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}),
    "cross-partition": (
        ["id"],
        ["p"],
        # The partition is a value here: a sum whose rows are retracted would lose it.
        {"bucket": "-1", "dynamic-bucket.target-row-num": "3", "fields.p.ignore-retract": "true"},
    ),
    "postponed": (["id", "p"], ["p"], {"bucket": "-2", "postpone.default-bucket-num": "2"}),
}
"""Primary key, partition columns and options of each kind of table."""
ENGINES: dict[str, dict[str, str]] = {
    "append": {},
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "sum": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.aggregate-function": "max",
        "fields.s.ignore-retract": "true",
    },
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}
PRODUCERS = ("none", "input", "lookup", "full-compaction")
EXACT = ("lookup", "full-compaction")
"""Producers whose changelog leads from state to state: what an update replaces is in it."""
EVERY_CELL = os.environ.get("TIDELAKE_EVERY_CELL") == "1"
APPEND = [("unaware", "append", "none"), ("append-fixed", "append", "none")]
_ENGINES_OF_KINDS = {
    "fixed": ("deduplicate", "sum", "partial-update", "sum"),
    "dynamic": ("sum", "deduplicate", "deduplicate", "partial-update"),
    "cross-partition": ("deduplicate", "deduplicate", "sum", "deduplicate"),
    "postponed": ("deduplicate",) * 4,
}
KEYED = [(kind, *each) for kind, all_of in _ENGINES_OF_KINDS.items() for each in zip(all_of, PRODUCERS, strict=True)]
CELLS = [*APPEND, *KEYED, ("fixed", "first-row", "lookup")]
"""Kind of table, merge engine and changelog producer: every kind with every producer, each engine with some."""
if EVERY_CELL:
    CELLS += [("fixed", "first-row", "none"), ("cross-partition", "first-row", "lookup")]
    CELLS += [("cross-partition", "partial-update", "none"), ("dynamic", "sum", "lookup")]
    _ALL = [
        ("fixed", engine, producer) for engine in ("deduplicate", "partial-update", "sum") for producer in PRODUCERS
    ]
    CELLS += [cell for cell in _ALL if cell not in CELLS]
IN_TURNS = [
    *APPEND,
    ("fixed", "partial-update", "none"),
    ("dynamic", "deduplicate", "input"),
    ("dynamic", "partial-update", "full-compaction"),
    ("cross-partition", "deduplicate", "input"),
    ("cross-partition", "deduplicate", "full-compaction"),
    ("postponed", "deduplicate", "none"),
]
ON_SPARK = [cell for cell in CELLS if EVERY_CELL or cell in APPEND or cell not in IN_TURNS]
"""A batch on Spark takes longer than all reads of it, so no cell is tried twice there."""


# ------------------------------------------------------------------------------------------------ rows and their merge


@dataclass(slots=True)
class Drawer:
    """Draws changes as a database captures them: an update comes with the row that it replaces."""

    rng: Random
    adds_only: bool = False
    by_id: bool = False
    """Whether `id` alone is the key, so that rows move between partitions."""
    rows: dict[Values, Values] = field(default_factory=dict)

    def draw(self, count: int = 8) -> Drawn:
        found: Drawn = []
        for _ in range(count):
            place = (self.rng.randint(0, 6), self.rng.choice("ab"))
            row = (*place, self.rng.choice([None, 1, 2, 30]), self.rng.choice([None, "x", "y", ""]))
            key = place[:1] if self.by_id else place
            old = self.rows.get(key)
            if self.adds_only or old is None:
                found.append(("+I", row))
            elif self.rng.random() < 0.3:
                found.append(("-D", old))
                del self.rows[key]
                continue
            else:
                found += [("-U", old), ("+U", row)]
            self.rows[key] = row
        return found

    def delete(self, count: int = 2) -> Drawn:
        """Delete some of the rows that are there."""
        return [("-D", self.rows.pop(key)) for key in self.rng.sample(sorted(self.rows), min(count, len(self.rows)))]


def add(one: int | None, other: int | None, sign: int = 1) -> int | None:
    if other is None:
        return one
    return (one or 0) + sign * other


def merge(engine: str, state: State, key: Values, kind: str, row: dict[str, Any]) -> None:
    """Apply a row to a state as the merge engine does."""
    old, retracts = state.get(key), kind in ("-U", "-D")
    match engine:
        case "deduplicate":
            if retracts:
                state.pop(key, None)
            else:
                state[key] = row
        case "partial-update":
            if not retracts:
                state[key] = row if old is None else {**old, **known(row)}
        case "first-row":
            if not retracts:
                state.setdefault(key, row)
        case "sum":
            old = old or {**row, "v": None, "s": None}
            largest = old["s"] if retracts else max((s for s in (old["s"], row["s"]) if s is not None), default=None)
            number = add(old["v"], row["v"], -1 if retracts else 1)
            state[key] = {**old, **known(row), "v": number, "s": largest}
        case _:
            raise ValueError(engine)


def known(row: dict[str, Any]) -> dict[str, Any]:
    """The values behind the key and the partition that are not null."""
    return {name: value for name, value in row.items() if name not in ("id", "p") and value is not None}


def follow_exactly(state: State, key: Values, kind: str, row: dict[str, Any]) -> None:
    """Apply a row of a changelog which says of every row what it replaces."""
    if kind in ("-U", "-D"):
        assert state.pop(key, None) == row, (kind, row)
    else:
        assert key not in state, (kind, row, state[key])
        state[key] = row


def named(values: Values) -> dict[str, Any]:
    return dict(zip(COLUMNS, values, strict=True))


# ------------------------------------------------------------------------------------------------ both streams


class Followers:
    """A stream of theirs and one of ours on the same table, from its first snapshot on."""

    def __init__(self, theirs: oracle.Table, ours: Table, cell: Sequence[str], **options: str) -> None:
        self.theirs, self.ours = theirs, ours
        self.kind, self.engine, self.producer = cell
        # From the first snapshot on. With its id, a stream has the columns of that snapshot, however late it is loaded.
        self._begin = {"scan.timestamp-millis": "1", **options}
        self.stream = theirs.stream(self._begin)
        self.query = StreamQuery(ours, read_changelog=True, maxFilesPerTrigger=1)
        self.query.options.update(self._begin)
        self.state: State = {}
        self.added: list[dict[str, Any]] = []
        """The rows of an append table."""
        self.seen = 0
        self.compared = 0
        """With how many snapshots the streams were compared."""

    def load_again(self, *added: str) -> None:
        """Go on with columns that were added, as a query that is loaded again."""
        position = self.stream.checkpoint()
        self.stream = self.theirs.stream(self._begin)
        self.stream.restore(position)
        nulls = dict.fromkeys(added)
        self.state = {key: {**row, **nulls} for key, row in self.state.items()}
        self.added = [{**row, **nulls} for row in self.added]

    def begin_with(self, rows: Iterable[dict[str, Any]]) -> None:
        """Replace what the streams returned so far, where they pass over what an overwrite removed."""
        rows = list(rows)
        self.state, self.added = {(row["id"], row["p"]): row for row in rows}, rows

    def follow(self, *, whole: bool = True, folds: bool = True) -> list[dict[str, Any]]:
        """Read what is new with both, and compare; the rows.

        Args:
            whole: Whether everything that was written is in the changelog by now.
            folds: Whether what is new fits what came before it.
        """
        steps = self.stream.drain()
        expected = [{"rowkind": kind, **row} for _, rows in steps for kind, row in rows]
        found = read_with_restarts(self.query)
        assert Counter(encoded(found)) == Counter(encoded(expected))
        if self.engine != "append" and self.kind != "cross-partition":
            assert in_order(found) == in_order(expected)
        new = self.theirs.snapshots()[self.seen :]
        first, self.seen = self.seen, self.seen + len(new)
        assert all(first < at - 1 <= self.seen for at, _ in steps)
        for document in new if folds else ():
            number = document["id"]
            self._fold([row for at, rows in steps if at == number + 1 for row in rows])
            if whole and self._is_whole(document):
                self.compare(number)
        return found

    def _is_whole(self, document: dict[str, Any]) -> bool:
        """Whether a batch read of a snapshot shows what streams have returned up to it."""
        if self.kind == "postponed" or self.engine == "first-row" or self.producer in EXACT:
            # A compaction writes the changelog of what is there already, or makes rows visible that streams have read.
            return document["commitKind"] == "COMPACT" or document["id"] == self.seen
        return True

    def _fold(self, rows: list[tuple[str, dict[str, Any]]]) -> None:
        if self.kind == "cross-partition" and self.producer != "input":
            # A key that moved away and back may be in two buckets of its partition, and buckets come in any order.
            rows = sorted(rows, key=lambda each: each[0] in ("+I", "+U"))
        for kind, row in rows:
            if self.engine == "append":
                assert kind == "+I"
                self.added.append(row)
                continue
            key = (row["id"], row["p"])
            if self.producer in EXACT:
                follow_exactly(self.state, key, kind, row)
            else:
                merge(self.engine, self.state, key, kind, row)

    def compare(self, snapshot: int) -> None:
        """Compare what the streams returned so far with what both read at a snapshot."""
        wanted = encoded(self.theirs.read(snapshot=snapshot))
        assert encoded(self.ours.at(snapshot=snapshot).to_arrow().to_pylist()) == wanted, snapshot
        assert encoded(self.added if self.engine == "append" else self.state.values()) == wanted, snapshot
        self.compared += 1


def read_with_restarts(query: StreamQuery) -> list[dict[str, Any]]:
    """What is new, with a restart after each batch; the driver dies in every other batch, which is then repeated."""
    found: list[dict[str, Any]] = []
    number = 0
    while batch := query.run(most=1, crash=number % 2 == 0):
        if number % 2 == 0:
            lost, batch = batch, query.run(most=1)
            assert batch == lost
        found += all_rows(batch)
        number += 1
    return found


def in_order(rows: list[dict[str, Any]]) -> dict[Values, list[str]]:
    """The changes of each key, in their order."""
    found: dict[Values, list[str]] = {}
    for row in rows:
        found.setdefault((row["id"], row["p"]), []).append(repr(sorted(row.items())))
    return found


# ------------------------------------------------------------------------------------------------ our sink


class Sink:
    """A query of one table, whose batches are written without starting Spark's stream."""

    def __init__(self, spark: Any, table: Table, folder: Path) -> None:
        self.query_id = str(uuid.uuid5(uuid.NAMESPACE_URL, folder.name))
        self._folder = folder / "offsets"
        self._folder.mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": self.query_id}))
        self._spark, self._table, self._request = spark, table, SinkRequest(str(folder), {}, row_kind="rowkind")
        self.restart()

    def restart(self) -> None:
        """Go on as another process does, which knows only the checkpoint."""
        self._sink = BatchSink(self._spark, self._table.reload(), self._request)

    def write(self, rows: Drawn, number: int) -> None:
        """Write a batch; all its rows are in one task, so that versions of a key keep their order."""
        (self._folder / f"{number}").write_text(f'v1\n{{}}\n{{"number":{number}}}')
        frame = self._spark.createDataFrame(to_arrow(rows)).coalesce(1)
        self._sink.write_batch(frame, number)


def to_arrow(rows: Drawn) -> pa.Table:
    types = {"id": pa.int64(), "p": pa.string(), "v": pa.int64(), "s": pa.string()}
    columns = zip(*(values for _, values in rows), strict=True)
    arrays = {name: pa.array(each, types[name]) for name, each in zip(types, columns, strict=True)}
    return pa.table({**arrays, "rowkind": pa.array([kind for kind, _ in rows])})


def create(folder: Path, cell: Sequence[str], **more: str) -> Table:
    kind, engine, producer = cell
    keys, partitions, options = KINDS[kind]
    given = {**options, **ENGINES[engine], **more}
    if keys:
        given["changelog-producer"] = producer
    return tl.connect(folder).create_table("d.t", COLUMNS, primary_key=keys, partition_by=partitions, options=given)


def drawer(cell: Sequence[str]) -> Drawer:
    return Drawer(Random(" ".join(cell)), adds_only="append" in cell, by_id="cross-partition" in cell)


def model_of(cell: Sequence[str], rows: Iterable[tuple[str, Values]]) -> list[str]:
    """What a table has after rows, however they were committed."""
    kind, engine, _ = cell
    if engine == "append":
        return encoded(named(values) for _, values in rows)
    state: State = {}
    for word, values in rows:
        row = named(values)
        key = (row["id"],) if kind == "cross-partition" else (row["id"], row["p"])
        merge(engine, state, key, word, row)
    return encoded(state.values())


def changes_of(cell: Sequence[str], rows: Drawn) -> Counter[str]:
    """Rows as the producer `input` writes them to the changelog."""
    ignored = ("-U", "-D") if "ignore-delete" in ENGINES[cell[1]] else ()
    return Counter(encoded({"rowkind": kind, **named(values)} for kind, values in rows if kind not in ignored))


def name_cell(cell: Sequence[str]) -> str:
    return " ".join(cell)


@pytest.mark.parametrize("cell", ON_SPARK, ids=name_cell)
def test_they_follow_the_batches_of_our_sink(
    spark: Any, catalog: oracle.Catalog, tmp_path: Path, cell: tuple[str, str, str]
) -> None:
    kind, _, producer = cell
    ours, theirs = create(tmp_path, cell), catalog.table("d.t")
    sink, source = Sink(spark, ours, tmp_path / "checkpoint"), drawer(cell)
    both = Followers(theirs, ours, cell)
    written: Drawn = []
    batches = 2 if kind in ("dynamic", "cross-partition") else 3
    for number in range(batches):
        rows = source.draw()
        sink.write(rows, number)
        written += rows
        returned = both.follow(whole=kind != "postponed")
        if kind == "postponed":
            ours.compact(full=True)
            returned += both.follow()
        assert encoded(theirs.read()) == model_of(cell, written)
        if producer == "input":
            extra = Counter(encoded(returned)) - changes_of(cell, rows)
            assert changes_of(cell, rows) - Counter(encoded(returned)) == Counter()
            # A row that moves to another partition is deleted where it was.
            assert all('"-D"' in each for each in extra) if kind == "cross-partition" else not extra
    assert both.compared >= batches
    assert ours.check(deep=True, rows=True).findings == ()


@pytest.mark.parametrize(
    ("cell", "run"),
    [
        (("unaware", "append", "none"), run_source_sink),
        (("fixed", "deduplicate", "input"), run_source_sink),
        (("fixed", "sum", "full-compaction"), run_stream),
    ],
    ids=["append, data source", "keyed, data source", "keyed, stream_to"],
)
def test_queries_go_on_after_their_commits_and_have_each_batch_once(
    spark: Any, catalog: oracle.Catalog, tmp_path: Path, cell: tuple[str, str, str], run: Any
) -> None:
    ours, theirs = create(tmp_path, cell, **{"commit.user-prefix": "orders"}), catalog.table("d.t")
    feed, source, checkpoint = Feed(tmp_path / "in"), drawer(cell), tmp_path / "checkpoint"
    both = Followers(theirs, ours, cell)
    written: Drawn = []

    def add_files(count: int) -> None:
        for _ in range(count):
            rows = source.draw()
            feed.add(to_arrow(rows))
            written.extend(rows)

    add_files(2)
    kinds = f"{SCHEMA}, rowkind string"
    query = run(feed.stream(spark, kinds), ours, checkpoint)
    both.follow()
    forget_commit(checkpoint, 1)
    rows = source.draw()
    their_commit(theirs, cell, rows, "theirs")
    written += rows
    both.follow()
    add_files(1)
    again = run(feed.stream(spark, kinds), ours, checkpoint)
    both.follow()
    assert again.id == query.id
    user = f"orders_{query.id}"
    assert numbered(theirs, user) == [(user, 0), (user, 1), ("theirs", 1), (user, 2)]
    assert encoded(theirs.read()) == model_of(cell, written)


def numbered(theirs: oracle.Table, user: str) -> list[tuple[str, int]]:
    """The commits with rows as they see them; a compaction of our sink has the number of the batch before it."""
    documents = theirs.snapshots()
    found: list[tuple[str, int]] = []
    for document in documents:
        commit = (document["commitUser"], document["commitIdentifier"])
        if document["commitKind"] == "COMPACT":
            assert commit[0] != user or commit == found[-1]
        else:
            found.append(commit)
    return found


# ------------------------------------------------------------------------------------------------ in turns


def their_commit(theirs: oracle.Table, cell: Sequence[str], rows: Drawn, user: str, **how: Any) -> None:
    """One commit of a job of theirs; one that writes changes by full compactions makes one with every commit."""
    kind, engine, producer = cell
    if kind == "cross-partition":
        TheirUpsert(theirs, user).upsert(rows)
    else:
        with theirs.writer(user=user, **how) as writer:
            writer.write(rows)
            writer.commit(1)
    if kind != "postponed" and (producer == "full-compaction" or engine == "first-row"):
        theirs.compact()


@pytest.mark.parametrize("cell", IN_TURNS, ids=name_cell)
def test_our_sink_and_they_write_one_table_in_turns(
    spark: Any, catalog: oracle.Catalog, tmp_path: Path, cell: tuple[str, str, str]
) -> None:
    ours, theirs = create(tmp_path, cell), catalog.table("d.t")
    sink, source = Sink(spark, ours, tmp_path / "checkpoint"), drawer(cell)
    both = Followers(theirs, ours, cell)
    drawn = [source.draw() for _ in range(5)]
    for turn, rows in enumerate(drawn):
        if turn % 2:
            their_commit(theirs, cell, rows, f"theirs{turn}")
        else:
            sink.write(rows, turn // 2)
        if cell[0] == "postponed":
            both.follow(whole=False)
            ours.compact(full=True)
        if turn == 1:
            before = len(theirs.snapshots())
            sink.write(drawn[0], 0)  # Spark repeats a batch that is in the table
            assert len(theirs.snapshots()) == before
            theirs.compact(options={"bucket": 2} if cell[0] == "postponed" else None)
            sink.restart()
        both.follow()
        assert encoded(theirs.read()) == model_of(cell, [row for each in drawn[: turn + 1] for row in each])
    users = [(sink.query_id, 0), ("theirs1", 1), (sink.query_id, 1), ("theirs3", 1), (sink.query_id, 2)]
    assert numbered(theirs, sink.query_id) == users
    assert ours.check(deep=True, rows=True).findings == ()


# ------------------------------------------------------------------------------------------------ our source


@pytest.mark.parametrize("cell", CELLS, ids=name_cell)
def test_our_source_follows_what_they_write(
    catalog: oracle.Catalog, tmp_path: Path, cell: tuple[str, str, str]
) -> None:
    kind, engine, producer = cell
    ours, theirs = create(tmp_path, cell), catalog.table("d.t")
    overwrites = "streaming-read-append-overwrite" if engine == "append" else "streaming-read-overwrite"
    reads_overwrites = producer not in EXACT
    both = Followers(theirs, ours, cell, **({overwrites: "true"} if reads_overwrites else {}))
    source = drawer(cell)

    def turn(rows: Drawn, user: str, **how: Any) -> list[dict[str, Any]]:
        their_commit(theirs, cell, rows, user, **how)
        if kind != "postponed":
            return both.follow()
        staged = both.follow(whole=False)
        ours.compact(full=user == "second")
        return staged + both.follow()

    assert turn(source.draw(), "first")
    assert turn(source.draw(), "second")
    theirs.compact(options={"bucket": 2} if kind == "postponed" else None)
    both.follow()
    if engine == "append":
        theirs.rewrite(lambda row: row["id"] % 3 != 0)
        both.follow(folds=False)
        both.begin_with(theirs.read())
    else:
        turn(source.delete(), "deleting")
    if producer in ("none", "input") and engine != "first-row":
        assert turn(source.draw(), "write-only", options={"write-only": True})
    # What is overwritten: the streams return it as deleted rows, or pass over it.
    old = [] if engine == "append" else list(both.state.values())
    removed = overwrite(theirs, cell, source)
    returned = both.follow(folds=False)
    deleted = [row for row in returned if row.pop("rowkind") == "-D"]
    gone = [row for row in old if removed is None or row["p"] == removed]
    assert encoded(deleted) == encoded(gone if reads_overwrites else [])
    if engine == "append":
        assert [row["s"] for row in returned] == ["new"] * 3
    both.begin_with(theirs.read())
    assert turn(source.draw(), "after the overwrite")
    # A column more: a query that runs stops in front of it, and goes on once it is loaded again.
    reader, start = both.query.reader(), json.loads(both.query.offsets[-1])
    assert reader.latestOffset(start, READ_ALL) == start
    theirs.alter(("add", "more", "INT"))
    source.adds_only = True
    wider = [(word, (*values, 7)) for word, values in [*source.draw(3), ("+I", (50, "b", 1, "new"))]]
    their_commit(theirs, cell, wider, "wider")
    if kind == "postponed":
        ours.reload().compact(full=True)
    with pytest.raises(InvalidInputError, match="altered while it was streamed") as caught:
        reader.latestOffset(start, READ_ALL)
    assert caught.value.code == "stream-schema-changed"
    assert caught.value.facts["columns"] == "more"
    both.ours = ours.reload()
    both.load_again("more")
    seen = both.follow()
    assert 7 in {row["more"] for row in seen}
    assert both.compared >= 4


def overwrite(theirs: oracle.Table, cell: Sequence[str], source: Drawer) -> str | None:
    """Replace a partition, or the table; the partition."""
    kind, engine, producer = cell
    if kind in ("cross-partition", "append-fixed"):
        source.rows.clear()
    else:
        source.rows = {key: row for key, row in source.rows.items() if row[1] != "a"}
    fresh = [("+I", (number, "a", number, "new")) for number in range(3)]
    match kind:
        case "cross-partition":
            theirs.truncate()
            return None
        case "dynamic" | "postponed":
            theirs.truncate([{"p": "a"}])
            return "a"
    partition = {} if kind == "append-fixed" else {"p": "a"}
    theirs.write(fresh, {"dynamic-partition-overwrite": False}, overwrite=partition)
    source.rows |= {values[:2]: values for _, values in fresh}
    if producer == "full-compaction" or engine == "first-row":
        theirs.compact()
    return partition.get("p")
