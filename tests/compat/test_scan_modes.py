"""Where a batch read starts: every mode and option, asked of both implementations over one table.

Method: one history with every kind of commit, tags and watermarks, written in turns. For each set of options both give
the same rows or both refuse; `DIFFERENT` lists what we do otherwise on purpose, and docs/spec-notes.md says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import oracle
import tidelake as tl
from tidelake.errors import TidelakeError
from tidelake.table import Table

pytestmark = pytest.mark.oracle

COLUMNS = {"id": "INT", "p": "STRING"}
Options = dict[str, Any]
REFUSED = "refused"


class History:
    """A table after nine snapshots, and when each was committed."""

    def __init__(self, folder: Path) -> None:
        self.lake = tl.connect(str(folder))
        options = {"compaction.min.file-num": "2"}
        self.ours = self.lake.create_table("d.t", COLUMNS, partition_by=["p"], options=options)
        self.theirs = oracle.Catalog(folder).table("d.t")
        with self.theirs.writer(user="job") as writer:
            self._commit(writer, [(1, "a"), (2, "b")], 10)  # 1
        self.ours.write([{"id": 3, "p": "a"}])  # 2
        with self.theirs.writer(user="job") as writer:
            writer.next_identifier = 2
            self._commit(writer, [(4, "a")], 30)  # 3
            self._commit(writer, [(9, "a")], 31)  # 4
            self._commit(writer, [(10, "a")], 32)  # 5
        self.ours.compact(full=True)  # 6
        with self.theirs.writer(user="job") as writer:
            writer.next_identifier = 10
            self._commit(writer, [(5, "b")], 40)  # 7
        self.theirs.create_tag("t1", 1)
        self.theirs.create_tag("5", 3)  # a tag that is named like a snapshot
        self.theirs.create_tag("t7", 7)
        self.theirs.create_tag("2024-01-01", 3)
        self.theirs.create_tag("2024-01-02", 7)
        self.ours.write([{"id": 6, "p": "b"}], mode="overwrite", partition={"p": "b"})  # 8
        with self.theirs.writer(user="job") as writer:
            writer.next_identifier = 20
            self._commit(writer, [(7, "c")], 60)  # 9
        self.ours = self.ours.reload()
        documents = self.theirs.snapshots()
        kinds = [each["commitKind"] for each in documents]
        assert kinds == ["APPEND"] * 5 + ["COMPACT", "APPEND", "OVERWRITE", "APPEND"]
        self.time = {each["id"]: each["timeMillis"] for each in documents}

    @staticmethod
    def _commit(writer: oracle.core.Writer, rows: list[tuple[Any, ...]], watermark: int) -> None:
        writer.write(rows)
        writer.commit(watermark=watermark)


@pytest.fixture(scope="module")
def history(jvm: None, tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(tmp_path_factory.mktemp("modes"))


def ours(table: Table, options: Options) -> Any:
    try:
        return sorted(table.with_options(options).to_arrow().column("id").to_pylist())
    except TidelakeError:
        return REFUSED


def theirs(table: oracle.Table, options: Options) -> Any:
    try:
        return sorted(row["id"] for row in table.read(options=options))
    except oracle.java("java.lang.Throwable"):
        return REFUSED


def places(time: Mapping[int, int]) -> Iterator[Options]:
    """Each option that says where, at, before, between and after what is there."""
    for number in (0, 1, 3, 6, 8, 9, 10):
        yield {"scan.snapshot-id": number}
    for tag in ("t1", "t7", "5", "nope"):
        yield {"scan.tag-name": tag}
        yield {"scan.version": tag}
    for version in ("4", "watermark-31", "watermark-99", "zz"):
        yield {"scan.version": version}
    for moment in moments(time):
        yield {"scan.timestamp-millis": moment}
        yield {"scan.creation-time-millis": moment}
        yield {"scan.file-creation-time-millis": moment}
    for text in ("2000-01-01 00:00:00", "2100-01-01", "2100-01-01 00:00:00.123", "never"):
        yield {"scan.timestamp": text}
    for watermark in (5, 10, 11, 31, 60, 61):
        yield {"scan.watermark": watermark}


def moments(time: Mapping[int, int]) -> list[int]:
    around = [time[number] + shift for number in (1, 3, 7, 9) for shift in (-1, 0, 1)]
    return [0, *around, time[9] + 10**6]


MODES = (
    "default", "latest-full", "full", "latest", "compacted-full", "from-timestamp", "from-snapshot",
    "from-snapshot-full", "from-creation-timestamp", "from-file-creation-time", "incremental", "no-such-mode",
)  # fmt: skip


def modes(time: Mapping[int, int]) -> Iterator[Options]:
    """Each mode alone and with one option of each kind."""
    chosen = ({"scan.snapshot-id": 3}, {"scan.tag-name": "t1"}, {"scan.version": "t1"}, {"scan.watermark": 31})
    times = ({"scan.timestamp-millis": time[3]}, {"scan.timestamp": "2100-01-01"})
    others = ({"scan.file-creation-time-millis": time[7]}, {"incremental-between": "1,3"})
    for mode in MODES:
        yield {"scan.mode": mode}
        for where in (*chosen, *times, *others):
            yield {"scan.mode": mode, **where}


def ranges(time: Mapping[int, int]) -> Iterator[Options]:
    """Changes between snapshots, tags and times, in each mode of taking them."""
    pairs = [
        "1,3",
        "0,3",
        "0,9",
        "1,1",
        "3,1",
        "5,9",
        "6,7",
        "7,8",
        "7,9",
        "0,99",
        "-1,3",
        "1",
        "1,2,3",
        "a,b",
        " 1 , 3 ",
    ]
    pairs += ["t1,t7", "t7,t1", "t1,7", "1,t7", "t1,5", "5,t1", "5,5", "t1,t1", "nope,t7", "2,5"]
    for pair, mode in itertools.product(pairs, (None, "auto", "delta", "changelog", "diff")):
        how = {} if mode is None else {"incremental-between-scan-mode": mode}
        yield {"incremental-between": pair, **how}
    for pair in ("t1,t7", "5,t7", "1,5"):
        yield {"incremental-between": pair, "incremental-between-tag-to-snapshot": True}
    spans = [(1, 3), (3, 3), (3, 1), (1, 9), (3, 7)]
    stretches = [(time[first], time[last]) for first, last in spans]
    stretches += [
        (0, time[9]),
        (time[1] - 1, time[3]),
        (time[9] + 5, time[9] + 9),
        (0, time[1] - 1),
        (time[1], time[9] + 10**6),
    ]
    for (first, last), mode in itertools.product(stretches, (None, "delta", "changelog", "diff")):
        how = {} if mode is None else {"incremental-between-scan-mode": mode}
        yield {"incremental-between-timestamp": f"{first},{last}", **how}
    yield {"incremental-between-timestamp": "2000-01-01 00:00:00,2100-01-01 00:00:00"}
    yield {"incremental-between-timestamp": "x,y"}
    yield {"incremental-between-timestamp": "5"}
    for tag in ("t7", "2024-01-02", "2024-01-01", "2024-01-05", "2024-13-01"):
        yield {"incremental-to-auto-tag": tag}


def settings(time: Mapping[int, int]) -> Iterator[Options]:
    """Options that change how a read is planned, and not what it finds."""
    yield {"scan.bounded.watermark": 5}
    yield {"scan.plan-sort-partition": True}
    yield {"scan.manifest.parallelism": 3}
    yield {"source.split.target-size": "1 b", "source.split.open-file-cost": "0 b"}
    yield {"scan.ignore-corrupt-files": True, "scan.ignore-lost-files": True}


def conflicts(time: Mapping[int, int]) -> Iterator[Options]:
    """Two options that say where."""
    yield {"scan.snapshot-id": 3, "scan.tag-name": "t1"}
    yield {"scan.snapshot-id": 3, "scan.timestamp-millis": time[3]}
    yield {"scan.timestamp": "2100-01-01", "scan.timestamp-millis": time[3]}
    yield {"scan.snapshot-id": 3, "scan.file-creation-time-millis": time[3]}
    yield {"scan.snapshot-id": 3, "incremental-between": "1,3"}
    yield {"scan.tag-name": "t1", "incremental-between": "1,3"}
    yield {"scan.timestamp-millis": time[3], "incremental-between": "1,3"}
    yield {"scan.version": "1", "incremental-between": "1,3"}
    yield {"scan.file-creation-time-millis": 0, "incremental-between": "1,3"}
    yield {"incremental-between": "1,3", "incremental-between-timestamp": f"{time[1]},{time[3]}"}


def known_difference(history: History, options: Options, mine: Any, yours: Any) -> str | None:
    """The entry of docs/spec-notes.md that explains a difference; None: nothing does."""
    diff = options.get("incremental-between-scan-mode") == "diff"
    start = str(options.get("incremental-between", "")).partition(",")[0]
    if diff and start == "0" and yours == REFUSED:
        return "R1"  # before the first snapshot the table was empty
    first = str(options.get("incremental-between-timestamp", "")).partition(",")[0]
    if diff and first.isdigit() and int(first) < history.time[1] and mine != REFUSED:
        return "R1"
    if {"scan.mode", "scan.watermark"} <= options.keys() and mine == REFUSED:
        return "R2"  # they pass over a watermark that does not go with the mode
    return None


@pytest.mark.parametrize("draw", [places, modes, ranges, settings, conflicts])
def test_both_find_the_same_rows_or_both_refuse(history: History, draw: Any) -> None:
    wrong = []
    found = refused = 0
    for options in draw(history.time):
        mine, yours = ours(history.ours, options), theirs(history.theirs, options)
        if mine != yours and known_difference(history, options, mine, yours) is None:
            wrong.append((options, mine, yours))
        found += mine != REFUSED
        refused += mine == REFUSED
    assert not wrong
    assert found > 3 or draw is conflicts
    assert refused > 3 or draw is settings


def test_changes_by_option_and_by_method_are_the_same(history: History) -> None:
    for since, until in ((0, 9), (1, 3), (5, 9)):
        by_method = sorted(history.ours.changes(since=since, until=until).to_arrow().column("id").to_pylist())
        assert by_method == ours(history.ours, {"incremental-between": f"{since},{until}"})


def test_options_of_the_table_are_honoured_as_those_of_a_read(jvm: None, tmp_path: Path) -> None:
    stored = History(tmp_path)
    stored.ours.alter(set_options={"scan.mode": "compacted-full"})
    mine = sorted(stored.lake.table("d.t").to_arrow().column("id").to_pylist())
    assert mine == theirs(stored.theirs, {}) == [1, 2, 3, 4, 9, 10]


# ------------------------------------------------------------------------------------------------ branches


def ids(rows: Any) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_a_branch_is_read_and_written_in_turns(jvm: None, tmp_path: Path) -> None:
    lake, catalog = tl.connect(str(tmp_path)), oracle.Catalog(tmp_path)
    main = lake.create_table("d.t", COLUMNS, partition_by=["p"])
    main.write([{"id": 1, "p": "a"}])
    yours = catalog.table("d.t")
    yours.create_tag("now", 1)
    yours.create_branch("dev", "now")
    dev = main.branch("dev")
    dev.write([{"id": 2, "p": "a"}])
    yours.branch("dev").write([(3, "b")])
    main.write([{"id": 4, "p": "c"}])
    assert ids(dev.to_arrow().to_pylist()) == ids(yours.branch("dev").read()) == [1, 2, 3]
    assert ids(lake.table("d.t$branch_dev").to_arrow().to_pylist()) == [1, 2, 3]
    assert ids(main.to_arrow().to_pylist()) == ids(yours.read()) == [1, 4]
    assert dev.branch("main").count() == 2
    dev.delete("id = 1")
    assert ids(yours.branch("dev").read()) == [2, 3]


def test_partitions_that_a_branch_lacks_come_from_its_fallback(jvm: None, tmp_path: Path) -> None:
    lake, catalog = tl.connect(str(tmp_path)), oracle.Catalog(tmp_path)
    main = lake.create_table("d.t", COLUMNS, partition_by=["p"])
    yours = catalog.table("d.t")
    yours.create_branch("old")
    main.branch("old").write([{"id": 1, "p": "a"}, {"id": 2, "p": "b"}, {"id": 3, "p": "c"}])
    main.write([{"id": 10, "p": "b"}, {"id": 11, "p": "d"}])
    filled = main.alter(set_options={"scan.fallback-branch": "old"})
    assert ids(filled.to_arrow().to_pylist()) == ids(yours.read()) == [1, 3, 10, 11]
    assert filled.count() == 4
    for where, expected in (("p = 'b'", [10]), ("p = 'a'", [1]), ("id < 3", [1]), ("id = 2", [])):
        assert ids(filled.to_arrow(where=where).to_pylist()) == expected
    assert filled.to_arrow(order_by="id", limit=2).column("id").to_pylist() == [1, 3]
    assert filled.to_arrow(limit=3).num_rows == 3


# ------------------------------------------------------------------------------------------------ what a format holds

KINDS = (
    "INT", "TIME(3)", "TIME(6)", "TIMESTAMP(6)", "TIMESTAMP(7)", "TIMESTAMP(9) WITH LOCAL TIME ZONE", "VARIANT",
    "ROW<a VARIANT>", "ARRAY<TIMESTAMP(9)>", "MAP<INT, TIMESTAMP(9)>", "VECTOR<FLOAT, 3>", "MULTISET<STRING>",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_a_format_that_cannot_hold_a_type_is_refused_by_both(jvm: None, tmp_path: Path, kind: str) -> None:
    lake, catalog = tl.connect(str(tmp_path)), oracle.Catalog(tmp_path)
    for number, dtype in enumerate(KINDS):
        options = {"file.format": kind}
        try:
            lake.create_table(f"d.ours{number}", {"x": dtype}, options=options)
            mine = True
        except TidelakeError:
            mine = False
        try:
            catalog.create_table(f"d.theirs{number}", {"x": dtype}, options=options)
            yours = True
        except oracle.java("java.lang.Throwable"):
            yours = False
        assert mine == yours, (kind, dtype)
