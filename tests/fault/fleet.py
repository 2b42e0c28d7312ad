"""A fleet of processes on one primary-key table, killed one by one with SIGKILL and started again (T4, T8).

Writers number their commits and note each acknowledgement in a file outside the table, synced before they go on; who
starts again repeats the first commit that is not in it. A compactor, an expirer and readers work beside them. The
expirer writes down whose snapshots it is about to expire, so that at the end the whole history is known: what a read of
any snapshot must have shown follows from the commits up to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import tidelake as tl
from tidelake.errors import CommitConflictError, CommitUnknownError, NotFoundError, TidelakeError
from tidelake.io.clock import SystemClock
from tidelake.io.ids import Ids, SeededIds, SystemIds
from tidelake.ops.commit.messages import BATCH_IDENTIFIER
from tidelake.ops.maintain.expire import ExpirePlan
from tidelake.spec.documents.snapshot import Snapshot
from tidelake.table import Table
from tidelake.testing.scenario import read_snapshots

NAME = "db.fleet"
SHARED = 4
"""Keys that every commit of every writer writes."""
RETAINED = 24
COLUMNS = {"k": "INT NOT NULL", "n": "BIGINT", "a": "STRING", "b": "STRING"}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.a.aggregate-function": "last_value",
        "fields.b.aggregate-function": "max",
    },
    "partial-update": {"merge-engine": "partial-update"},
}

T = TypeVar("T")
Row = dict[str, Any]
Rows = dict[int, Row]


# ------------------------------------------------------------------------------------------------ what must be there


def written(writer: int, turn: int) -> list[Row]:
    """The rows of one commit: shared keys, of which each writer fills one of two texts, and a key of its own."""
    text = f"{writer}-{turn:03}"
    mine = {"a": text, "b": None} if writer % 2 else {"a": None, "b": text}
    keys = [*((turn + k) % SHARED for k in range(SHARED // 2)), 1_000 * (writer + 1) + turn]
    return [{"k": key, "n": 1 + turn, **mine} for key in keys]


def folded(old: Row, new: Row, engine: str) -> Row:
    """What two versions of a key make."""
    if engine == "deduplicate":
        return new
    kept = {name: old[name] if value is None else value for name, value in new.items()}
    if engine == "partial-update":
        return kept
    texts = [row["b"] for row in (old, new) if row["b"] is not None]
    return {"k": new["k"], "n": old["n"] + new["n"], "a": new["a"], "b": max(texts, default=None)}


def told(rows: Iterable[Row]) -> str:
    """Rows as a short text that tells whether two of them are the same."""
    ordered = sorted(([row["k"], row["n"], row["a"], row["b"]] for row in rows), key=lambda row: row[0])
    return f"{len(ordered)} {hashlib.blake2b(json.dumps(ordered).encode(), digest_size=12).hexdigest()}"


def commit_of(snapshot: Snapshot) -> tuple[int, int] | None:
    """The writer and the turn of an APPEND snapshot."""
    if snapshot.commit_identifier == BATCH_IDENTIFIER or snapshot.commit_kind.value != "APPEND":
        return None
    return int(snapshot.commit_user.removeprefix("writer-")), snapshot.commit_identifier


# ------------------------------------------------------------------------------------------------ processes


@dataclass(frozen=True, slots=True)
class Post:
    """What one process of the fleet does, and where."""

    role: str
    number: int
    lake: str
    notes: str
    """The folder of the notes, outside the table."""
    turns: int = 0

    @property
    def file(self) -> Path:
        """Where the process notes what it was told."""
        return Path(self.notes) / f"{self.role}-{self.number}"

    def note(self, **what: object) -> None:
        """Write a line and wait until it is on disk."""
        with self.file.open("a") as file:
            file.write(json.dumps(what) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def noted(self) -> list[dict[str, Any]]:
        """The lines so far; one that a kill cut in two was never noted."""
        if not self.file.exists():
            return []
        found = []
        for line in self.file.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found


def work(post: Post) -> None:
    """The whole life of one process."""
    table = tl.connect(post.lake).table(NAME)
    ROLES[post.role](post, table)


def write(post: Post, table: Table) -> None:
    """Commit what is not noted as acknowledged, under the same identifiers as ever."""
    if post.number % 2:
        table = table.with_options({"write-only": "true"})
    done = max((line["turn"] for line in post.noted() if "turn" in line), default=-1)
    turn = done + 1
    while turn < post.turns:
        started = time.perf_counter()
        try:
            rows = written(post.number, turn)
            result = table.write(rows, commit_user=f"writer-{post.number}", identifier=turn)
        except CommitUnknownError as error:
            post.note(unknown=str(error))
            continue  # as its hint says: repeated with its identifier it is published only if it is not there
        except TidelakeError as error:
            post.note(failed=f"{type(error).__name__}: {error}")
            return
        post.note(
            turn=turn,
            snapshots=result.snapshot_ids,
            repeated=result.repeated,
            seconds=time.perf_counter() - started,
        )
        turn += 1


def compact(post: Post, table: Table) -> None:
    """Compact again and again, what is due or everything."""
    chance = SystemIds()
    while True:
        try:
            result = table.compact(full=chance.random() < 0.3)
            post.note(snapshots=getattr(result, "snapshot_ids", ()))
        except CommitConflictError as error:
            post.note(lost=error.code)
        except TidelakeError as error:
            post.note(failed=f"{type(error).__name__}: {error}")
        SystemClock().sleep(0.05)


def expire(post: Post, table: Table) -> None:
    """Expire old snapshots, each after its commit was written down."""
    while True:
        try:
            plan = table.expire_snapshots(retain_max=RETAINED, retain_min=1, plan_only=True)
            assert isinstance(plan, ExpirePlan)
            for snapshot_id in plan.snapshot_ids:
                post.note(id=snapshot_id, commit=commit_of(table.snapshot(snapshot_id)))
            if plan.snapshot_ids:
                # Oldest first: no more of them than are written down.
                table.expire_snapshots(retain_max=RETAINED, retain_min=1, max_deletes=len(plan.snapshot_ids))
        except (CommitConflictError, NotFoundError):
            pass
        except TidelakeError as error:
            post.note(failed=f"{type(error).__name__}: {error}")
        SystemClock().sleep(0.2)


def read(post: Post, table: Table) -> None:
    """Read the newest snapshot again and again, and some older one."""
    chance = SystemIds()
    post.note(begun=True)
    while True:
        try:
            latest = table.latest_snapshot()
            if latest is not None:
                for snapshot_id in (latest.id, max(1, latest.id - int(chance.random() * RETAINED))):
                    rows = table.at(snapshot=snapshot_id).to_arrow().to_pylist()
                    post.note(id=snapshot_id, rows=told(rows), latest=snapshot_id == latest.id)
        except NotFoundError as error:
            post.note(expired=error.code)
        except TidelakeError as error:
            post.note(failed=f"{type(error).__name__}: {error}")
        SystemClock().sleep(0.02)


ROLES: Mapping[str, Callable[[Post, Table], None]] = {
    "writer": write,
    "compactor": compact,
    "expirer": expire,
    "reader": read,
}


# ------------------------------------------------------------------------------------------------ the fleet


@dataclass(slots=True)
class Fleet:
    """Starts the processes, kills them by chance, and starts them again."""

    lake: Path
    notes: Path
    engine: str
    writers: int
    turns: int
    buckets: int = 2
    seed: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    posts: list[Post] = field(default_factory=list)

    def sail(self, *, pause_s: tuple[float, float], at_most_s: float, kills: int = 0) -> None:
        """Run until every writer is done, killing one process after each pause, and so often at least."""
        table = tl.connect(str(self.lake)).create_table(
            NAME,
            COLUMNS,
            primary_key=["k"],
            options={
                "bucket": str(self.buckets),
                "num-sorted-run.compaction-trigger": "3",
                "snapshot.num-retained.max": "1000",
                **ENGINES[self.engine],
            },
        )
        table.latest_snapshot()
        self.notes.mkdir(exist_ok=True)
        where = (str(self.lake), str(self.notes))
        self.posts = [Post("writer", number, *where, self.turns) for number in range(self.writers)]
        self.posts += [Post("compactor", 0, *where), Post("expirer", 0, *where)]
        self.posts += [Post("reader", number, *where) for number in range(2)]
        chance = SeededIds(self.seed)
        started = time.perf_counter()
        running = {post: _start(post) for post in self.posts}
        try:
            while any(post.role == "writer" for post in running) or self.kills.total() < kills:
                SystemClock().sleep(pause_s[0] + chance.random() * (pause_s[1] - pause_s[0]))
                assert time.perf_counter() - started < at_most_s, f"REPRO seed={self.seed}: {self._how_far()}"
                for post, process in list(running.items()):
                    if not process.is_alive():
                        del running[post]
                        assert post.role == "writer", f"{post.role} ended by itself: {post.noted()[-1:]}"
                        assert process.exitcode == 0, f"{post} ended with {process.exitcode}: {post.noted()[-1:]}"
                post, process = _one_of(list(running.items()), chance)
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                process.join()
                if process.exitcode == -signal.SIGKILL:
                    self.kills[post.role] += 1
                running[post] = _start(post)
        finally:
            for process in running.values():
                process.kill()
                process.join()
            self.seconds = time.perf_counter() - started

    def _how_far(self) -> dict[str, int]:
        return {f"{post.role}-{post.number}": len(post.noted()) for post in self.posts}

    def lines(self, role: str) -> Iterator[tuple[Post, dict[str, Any]]]:
        """What the processes of a role noted."""
        return ((post, line) for post in self.posts if post.role == role for line in post.noted())

    def problems(self) -> list[str]:
        """Whatever is wrong with the table or with what a process was told, one sentence each."""
        lines = [(post, line) for role in ROLES for post, line in self.lines(role)]
        wrong = [f"{post.role} {post.number}: {line['failed']}" for post, line in lines if "failed" in line]
        table = tl.connect(str(self.lake)).table(NAME)
        kept = read_snapshots(table)
        expired = [line for _, line in self.lines("expirer") if "id" in line]
        history: dict[int, tuple[int, int] | None]
        history = {line["id"]: line["commit"] and tuple(line["commit"]) for line in expired}
        history |= {snapshot.id: commit_of(snapshot) for snapshot in kept}
        if sorted(history) != list(range(1, len(history) + 1)):
            wrong.append(f"snapshot ids are not dense: {sorted(history)}")
        counts = Counter(commit for commit in history.values() if commit is not None)
        wrong += [f"published {count} times: {commit}" for commit, count in counts.items() if count != 1]
        asked = {(post.number, turn) for post in self.posts if post.role == "writer" for turn in range(self.turns)}
        wrong += [f"never published: {commit}" for commit in sorted(asked - set(counts))]
        acked = {(post.number, line["turn"]) for post, line in self.lines("writer") if "turn" in line}
        wrong += [f"never acknowledged: {commit}" for commit in sorted(asked - acked)]
        expected = dict(self._expected(history))
        wrong += self._wrong_reads(expected)
        for snapshot in kept:
            found = told(table.at(snapshot=snapshot.id).to_arrow().to_pylist())
            if found != expected[snapshot.id]:
                wrong.append(f"snapshot {snapshot.id} shows {found} instead of {expected[snapshot.id]}")
        report = table.check(deep=True, rows=True)
        wrong += [str(each) for each in report.findings if each in report.errors or each.invariant == "I5"]
        return wrong

    def _expected(self, history: Mapping[int, tuple[int, int] | None]) -> Iterator[tuple[int, str]]:
        rows: Rows = {}
        for snapshot_id in sorted(history):
            commit = history[snapshot_id]
            for row in written(*commit) if commit else ():
                old = rows.get(row["k"])
                rows[row["k"]] = row if old is None else folded(old, row, self.engine)
            yield snapshot_id, told(rows.values())

    def _wrong_reads(self, expected: Mapping[int, str]) -> Iterator[str]:
        newest: dict[int, int] = {}
        for post, line in self.lines("reader"):
            if "begun" in line:
                newest[post.number] = 0
            if "rows" not in line:
                continue
            if line["rows"] != expected.get(line["id"]):
                yield f"reader {post.number} saw {line['rows']} in snapshot {line['id']}: {expected.get(line['id'])}"
            if line["latest"]:
                if line["id"] < newest[post.number]:
                    yield f"reader {post.number} saw snapshot {line['id']} after {newest[post.number]}"
                newest[post.number] = line["id"]

    def figures(self) -> str:
        """What happened, in one line."""
        seconds = sorted(line["seconds"] for _, line in self.lines("writer") if "turn" in line)
        count = Counter(post.role for role in ROLES for post, line in self.lines(role) if {"turn", "rows"} & set(line))
        repeated = sum(line.get("repeated", False) for _, line in self.lines("writer"))
        unknown = sum("unknown" in line for _, line in self.lines("writer"))
        compactions = sum(bool(line.get("snapshots")) for _, line in self.lines("compactor"))
        lost = sum("lost" in line for _, line in self.lines("compactor"))
        expired = sum("id" in line for _, line in self.lines("expirer"))
        gone = sum("expired" in line for _, line in self.lines("reader"))
        return (
            f"{self.engine}: {count['writer']} commits ({repeated} found there, {unknown} asked again), "
            f"{self.kills.total()} kills {dict(self.kills)}, {compactions} compactions and {lost} lost races, "
            f"{expired} snapshots expired, "
            f"{count['reader']} reads and {gone} of expired snapshots, {self.seconds:.0f} s; commit median "
            f"{seconds[len(seconds) // 2]:.2f} s, p95 {seconds[len(seconds) * 95 // 100]:.2f} s"
        )


def _one_of(items: Sequence[T], chance: Ids) -> T:
    return items[int(chance.random() * len(items))]


def _start(post: Post) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    # Loaded once, so that a process that starts again is at work at once.
    context.set_forkserver_preload(["tidelake", "tidelake.table", "tidelake.ops.write.keyed", "fault.fleet"])
    process = context.Process(target=work, args=(post,), daemon=True)
    process.start()
    return process
