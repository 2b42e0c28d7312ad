"""The lives of a driver: it is started, killed at a point or at some moment, and started again on the same checkpoints.

What must hold after each life and in the end is checked here, from outside, by a process without Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidelake as tl
from kit.kill_points import NOTES, ORDERS, Order, orders_to_text, read_hits
from kit.spark_cluster import PATIENCE_S, kill_group
from kit.stream_queries import fold
from kit.streams import Feed
from tidelake.catalog.lake import Lake
from tidelake.io.ids import SeededIds
from tidelake.spec.documents.snapshot import CommitKind
from tidelake.table import Table

PROGRAM = Path(__file__).with_name("stream_driver.py")
TESTS = Path(__file__).parents[1]
KEYS = 24
"""Keys of the tables, few enough that most files update and delete some."""
Row = dict[str, Any]
Commit = tuple[str, int, CommitKind]
"""Who committed, under which number, and what."""


@dataclass(slots=True)
class Life:
    """How one life of a driver ended."""

    code: int
    hits: list[str]
    errors: Mapping[str, str | None] | None
    """The error of each query, if the driver came to its end."""
    log: str

    @property
    def was_killed(self) -> bool:
        """Whether it ended by SIGKILL."""
        return self.code == -signal.SIGKILL


@dataclass(slots=True)
class Lives:
    """A lake, files for the queries on it, their checkpoints, and drivers that run them."""

    folder: Path
    lake: Lake = field(init=False)
    seed: int = 0
    count: int = 0
    """How many lives there were."""
    feeds: dict[str, Feed] = field(default_factory=dict)
    commits: dict[str, dict[int, Commit]] = field(default_factory=dict)
    """Of each table all snapshots that were seen, also those that expired."""
    live: dict[int, int] = field(default_factory=dict)
    """The rows of `db.a` after all files with changes."""
    chance: SeededIds = field(init=False)

    def __post_init__(self) -> None:
        self.lake = tl.connect(self.folder / "lake", storage={"durability": "none"})
        self.lake.create_database("db")
        self.chance = SeededIds(self.seed)
        (self.folder / "feeds").mkdir()

    # -------------------------------------------------------------------------------------------- tables and files

    def create_sums(self) -> Table:
        """The table of the queries `sums` and `more`: sums, compacted often."""
        options = {
            "bucket": "2",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.s.aggregate-function": "max",
            "num-sorted-run.compaction-trigger": "2",
        }
        return self.lake.create_table(
            "db.sums", {"id": "BIGINT NOT NULL", "v": "BIGINT", "s": "STRING"}, primary_key=["id"], options=options
        )

    def create_log(self) -> Table:
        """The table of the query `log`: the rows as they come."""
        return self.lake.create_table("db.log", {"id": "BIGINT", "v": "BIGINT", "s": "STRING"})

    def create_chain(self, **options: str) -> tuple[Table, Table]:
        """The table of the query `a`, which has a changelog, and that of the query `b`, which follows it."""
        first = self.lake.create_table(
            "db.a",
            {"k": "INT NOT NULL", "v": "BIGINT"},
            primary_key=["k"],
            options={"bucket": "1", "changelog-producer": "lookup", **options},
        )
        columns = {"kind": "STRING", "k": "INT", "v": "BIGINT", "batch": "BIGINT", "part": "INT", "place": "BIGINT"}
        return first, self.lake.create_table("db.b", columns)

    def find_feed(self, name: str) -> Feed:
        """The folder of files of a query."""
        return self.feeds.setdefault(name, Feed(self.folder / "feeds" / name))

    def add_rows(self, name: str, files: int = 1, rows: int = 40) -> None:
        """Add files with rows to sum up."""
        for _ in range(files):
            ids = [self._draw(KEYS) for _ in range(rows)]
            values = [self._draw(1_000) for _ in range(rows)]
            texts = [f"{name} {len(self.find_feed(name).files):04} {value}" for value in values]
            self.find_feed(name).add(
                pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int64()), "s": texts})
            )

    def add_changes(self, files: int = 1) -> None:
        """Add files with insertions, updates and deletions, at most one of each key."""
        feed = self.find_feed("a")
        for _ in range(files):
            kinds, keys, values = [], [], []
            for key in range(KEYS):
                choice = self._draw(6)
                if choice > 2:
                    continue
                keys.append(key)
                if choice == 0 and key in self.live:
                    kinds.append("-D")
                    values.append(self.live.pop(key))
                else:
                    kinds.append("+U" if key in self.live else "+I")
                    values.append(len(feed.files) * 1_000 + key)
                    self.live[key] = values[-1]
            feed.add(pa.table({"rowkind": kinds, "k": pa.array(keys, pa.int32()), "v": pa.array(values, pa.int64())}))

    def _draw(self, below: int) -> int:
        return int(self.chance.random() * below)

    # -------------------------------------------------------------------------------------------- drivers

    @contextmanager
    def start_driver(
        self, *queries: str, orders: Sequence[Order] = (), notes: Path | None = None
    ) -> Iterator[tuple[subprocess.Popen[str], Path]]:
        """A driver that runs queries, in a process group of its own; it is gone afterwards.

        Drivers with the same notes count the calls of a point together.
        """
        self.count += 1
        folder = self.folder / f"life-{self.count:04}"
        notes = notes or folder
        start = folder / "start"
        start.mkdir(parents=True)
        (start / "sitecustomize.py").write_text("from kit.kill_points import obey_orders\n\nobey_orders()\n")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(start), str(TESTS), os.environ.get("PYTHONPATH", ""))),
            # Each of the many short processes would compile all modules again.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", str(self.folder / "pycache")),
            "SPARK_LOCAL_IP": "127.0.0.1",
            ORDERS: orders_to_text(tuple(orders)),
            NOTES: str(notes),
        }
        with (folder / "stderr").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.folder), *queries],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                start_new_session=True,
            )
        try:
            yield process, folder
        finally:
            kill_group(process)
            assert process.stdout is not None
            process.stdout.close()

    def run_once(self, *queries: str, orders: Sequence[Order] = (), kill_after_s: float | None = None) -> Life:
        """Run queries until they end or are killed: by an order, or after some seconds."""
        with self.start_driver(*queries, orders=orders) as (process, folder):
            try:
                printed, _ = process.communicate(timeout=PATIENCE_S if kill_after_s is None else kill_after_s)
            except subprocess.TimeoutExpired:
                kill_group(process)
                printed = ""
            life = describe_end(process, folder, printed)
        self.note_commits()
        return life

    # -------------------------------------------------------------------------------------------- what happened

    def note_commits(self) -> None:
        """Note the snapshots of all tables; one that was seen before must be what it was."""
        for name in self.lake.tables("db"):
            table = self.open_table(name)
            seen = self.commits.setdefault(name.rpartition(".")[2], {})
            for each in table.store.snapshots.newest_first():
                commit = (each.commit_user, each.commit_identifier, each.commit_kind)
                assert seen.setdefault(each.id, commit) == commit

    def open_table(self, name: str) -> Table:
        """A table by its last name."""
        found = self.lake.table(name if "." in name else f"db.{name}")
        assert isinstance(found, Table)
        return found

    def read_user(self, query: str) -> str:
        """The commit user of a query: its id."""
        found: str = json.loads((self.find_checkpoint(query) / "metadata").read_text())["id"]
        return found

    def find_checkpoint(self, query: str) -> Path:
        """The checkpoint of a query."""
        return self.folder / "checkpoints" / query

    def find_planned(self, query: str) -> int:
        """The newest batch that Spark planned."""
        return max(list_numbers(self.find_checkpoint(query) / "offsets"), default=-1)

    def is_done(self, query: str, batch: int) -> bool:
        """Whether Spark stored that a batch is done."""
        return batch in list_numbers(self.find_checkpoint(query) / "commits")

    def list_batches(self, query: str, table: str) -> list[int]:
        """The numbers under which a query committed rows, in the order of the snapshots."""
        user, found = self.read_user(query), self.commits.get(table, {})
        kept = [found[number] for number in sorted(found)]
        return [number for who, number, kind in kept if who == user and kind is not CommitKind.COMPACT]

    def read_end(self, query: str, batch: int) -> tuple[int, int]:
        """Where a batch of a stream of a table ends: a snapshot, and the split in it, -1 if it is before the first."""
        line = (self.find_checkpoint(query) / "offsets" / str(batch)).read_text().splitlines()[-1]
        document = json.loads(line)
        return document["snapshotId"], document["index"]

    # -------------------------------------------------------------------------------------------- problems

    def find_problems_of_sums(self, *queries: str) -> list[str]:
        """What is wrong with the table of sums after these queries read all of their files."""
        rows = pa.concat_tables([file for name in queries for file in self.find_feed(name).files])
        grouped = rows.group_by("id").aggregate([("v", "sum"), ("s", "max")])
        expected = {row["id"]: (row["v_sum"], row["s_max"]) for row in grouped.to_pylist()}
        table = self.open_table("sums")
        found = {row["id"]: (row["v"], row["s"]) for row in table.to_arrow().to_pylist()}
        wrong = [] if found == expected else [f"sums are {found}, not {expected}"]
        return [*wrong, *self._find_problems("sums", *queries)]

    def find_problems_of_log(self) -> list[str]:
        """What is wrong with the append table after its query read all of its files."""
        expected = Counter(map(make_key, pa.concat_tables(self.find_feed("log").files).to_pylist()))
        found = Counter(map(make_key, self.open_table("log").to_arrow().to_pylist()))
        wrong = [] if found == expected else [f"lost {expected - found}, too many {found - expected}"]
        return [*wrong, *self._find_problems("log", "log")]

    def _find_problems(self, table: str, *queries: str) -> list[str]:
        """What is wrong with a table and its batches: each file is one, and each was committed once."""
        wrong = []
        for query in queries:
            batches, files = self.list_batches(query, table), len(self.find_feed(query).files)
            if batches != list(range(files)):
                wrong.append(f"query {query} committed the batches {batches} for {files} files")
        return [*wrong, *self.find_problems_of_files(table)]

    def find_problems_of_files(self, name: str) -> list[str]:
        """What is wrong with the files of a table: damage, or a data file that is neither in use nor an orphan."""
        table = self.open_table(name)
        report = table.check(deep=True, rows=True)
        latest = table.latest_snapshot()
        kept = [] if latest is None else table.store.snapshots.ids()
        reached = {file for number in kept for file in list_data_files(table, number)}
        there = {path.name for path in Path(table.location).rglob("data-*") if path.is_file()}
        orphans = {Path(path).name for path in report.orphans if Path(path).name.startswith("data-")}
        wrong = [str(error) for error in report.errors]
        if orphans != there - reached:
            wrong.append(f"{name}: orphans are {orphans}, but no snapshot names {there - reached}")
        return wrong

    def find_problems_of_chain(self) -> list[str]:
        """What is wrong with the chain of tables after both queries read all that there is.

        The input of the second query, folded up to where its batches end, has to be the first table at each snapshot.
        """
        first, second = self.open_table("a"), self.open_table("b")
        wrong = [*self._find_problems("a", "a"), *self.find_problems_of_files("b")]
        rows = second.to_arrow().sort_by([("batch", "ascending"), ("part", "ascending"), ("place", "ascending")])
        changes = [{"rowkind": row.pop("kind"), **row} for row in rows.to_pylist()]
        got = [make_key({"rowkind": row["rowkind"], "k": row["k"], "v": row["v"]}) for row in changes]
        expected = [make_key(row) for each in first.follow(start=1, timeout=0) for row in each.to_arrow().to_pylist()]
        if Counter(got) != Counter(expected):
            wrong.append(f"lost {Counter(expected) - Counter(got)}, too many {Counter(got) - Counter(expected)}")
        batches = self.list_batches("b", "b")
        if batches != sorted(set(batches)):
            wrong.append(f"query b committed the batches {batches}")
        if set(batches) != {row["batch"] for row in changes}:
            wrong.append(f"query b committed the batches {batches}, but rows are of others")
        live = {row["k"]: row["v"] for row in first.to_arrow().to_pylist()}
        if live != self.live:
            wrong.append(f"the first table is {live}, not {self.live}")
        return [*wrong, *self._find_problems_of_folds(changes)]

    def find_problems_of_progress(self) -> list[str]:
        """Whether the saved progress of the consumer is ahead of what its sink has committed."""
        done = self.list_batches("b", "b") if (self.find_checkpoint("b") / "metadata").exists() else []
        saved = self.open_table("a").consumers().get("b", 0)
        end = self.read_end("b", done[-1])[0] if done else 1
        return [] if saved <= end else [f"progress is saved up to {saved}, but changes only up to {end} are committed"]

    def _find_problems_of_folds(self, changes: list[Row]) -> list[str]:
        first = self.open_table("a")
        wrong, checked = [], 0
        kinds = {number: kind for number, (_, _, kind) in self.commits["a"].items()}
        ends = {batch: self.read_end("b", batch) for batch in range(self.find_planned("b") + 1)}
        for number in sorted(kinds):
            # The changes of a commit are in the snapshot of its compaction.
            complete = next(
                (each for each in sorted(kinds) if each >= number and kinds[each] is CommitKind.COMPACT), None
            )
            until = next(
                (batch for batch, (end, index) in ends.items() if complete is not None and (end > complete)), None
            )
            if complete is None or until is None:
                wrong.append(f"the changes of snapshot {number} did not come")
                continue
            if ends[until][1] >= 0:
                wrong.append(f"batch {until} ends inside a snapshot, although each has one split")
            before = [{"rowkind": r["rowkind"], "k": r["k"], "v": r["v"]} for r in changes if r["batch"] <= until]
            state = sorted(first.at(snapshot=number).to_arrow().to_pylist(), key=lambda row: row["k"])
            if fold(before, "k") != state:
                wrong.append(f"changes up to snapshot {number} fold to {fold(before, 'k')}, not {state}")
            checked += 1
        return wrong if checked else [*wrong, "no snapshot was compared"]


def describe_end(process: subprocess.Popen[str], folder: Path, printed: str) -> Life:
    """How the life of a driver ended that is over."""
    lines = printed.splitlines()
    log = (folder / "stderr").read_text()[-6_000:]
    return Life(process.returncode, read_hits(folder), json.loads(lines[-1]) if lines else None, log)


def list_numbers(folder: Path) -> list[int]:
    """The numbers of the batches in a folder of a checkpoint."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


def list_data_files(table: Table, snapshot: int) -> list[str]:
    """The data files of a snapshot."""
    found: list[str] = table.files(snapshot=snapshot, columns=["file_name"]).column("file_name").to_pylist()
    return found


def make_key(row: Mapping[str, Any]) -> str:
    """A row as something that can be counted."""
    return json.dumps(row, sort_keys=True)
