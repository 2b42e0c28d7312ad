"""A writer of a table that tells of its changes and a follower of it, killed with SIGKILL and started again (T4).

The writer numbers its commits and notes each acknowledgement; now and then it lets snapshots expire. The follower notes
every change it was given before it asks for the next one. Both notes lie outside the table and are synced. Rows are
summed up, so that a commit that came twice shows.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import tidelake as tl
from fault.fleet import Post
from tidelake.errors import CommitUnknownError
from tidelake.io.clock import SystemClock
from tidelake.io.ids import SeededIds
from tidelake.table import Table

NAME, CONSUMER = "db.told", "reader"
KEYS = 6
COLUMNS = {"k": "INT NOT NULL", "n": "BIGINT"}
SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}


def written(turn: int) -> list[dict[str, int]]:
    """The rows of one commit."""
    return [{"k": (turn + each) % KEYS, "n": 1 + turn} for each in range(KEYS // 2)]


def write(post: Post, table: Table) -> None:
    """Commit what is not noted as acknowledged, under the same identifiers as ever."""
    turn = 1 + max((line["turn"] for line in post.noted()), default=-1)
    while turn < post.turns:
        try:
            table.write(written(turn), commit_user="writer", identifier=turn)
        except CommitUnknownError:
            continue
        post.note(turn=turn)
        if turn % 5 == 4:
            table.expire_snapshots(retain_max=2, retain_min=1)
        turn += 1


def follow(post: Post, table: Table) -> None:
    """Note every change; it counts as handled only once it is noted."""
    for change in table.follow(consumer=CONSUMER, start="earliest", poll=0.02):
        post.note(id=change.snapshot_id, rows=change.to_arrow().to_pylist())


ROLES: Mapping[str, Callable[[Post, Table], None]] = {"writer": write, "follower": follow}


def work(post: Post) -> None:
    """The whole life of one process."""
    ROLES[post.role](post, tl.connect(post.lake).table(NAME))


def started(post: Post) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tidelake", "tidelake.table", "tidelake.ops.write.keyed", "fault.streamers"])
    process = context.Process(target=work, args=(post,), daemon=True)
    process.start()
    return process


@dataclass(slots=True)
class Pair:
    """A writer and a follower of one table."""

    lake: Path
    notes: Path
    options: Mapping[str, str]
    turns: int
    seed: int
    kills: Counter[str] = field(default_factory=Counter)

    def run(self, *, pause_s: tuple[float, float], kills: int, at_most_s: float) -> None:
        """Run until the writer is done; after each pause one of the two is killed, the follower so often at least."""
        table = tl.connect(str(self.lake)).create_table(
            NAME, COLUMNS, primary_key=["k"], options={"bucket": "1", **SUMS, **self.options}
        )
        table.reset_consumer(CONSUMER, 1)  # expiry waits for it from the first snapshot on
        self.notes.mkdir()
        posts = [Post(role, 0, str(self.lake), str(self.notes), self.turns) for role in ROLES]
        chance, began = SeededIds(self.seed), time.perf_counter()
        running = {post: started(post) for post in posts}
        try:
            while any(post.role == "writer" for post in running) or self.kills["follower"] < kills:
                SystemClock().sleep(pause_s[0] + chance.random() * (pause_s[1] - pause_s[0]))
                assert time.perf_counter() - began < at_most_s, f"REPRO seed={self.seed}: {self.kills}"
                for post in [post for post, process in running.items() if not process.is_alive()]:
                    assert running.pop(post).exitcode == 0, f"REPRO seed={self.seed}: {post.role} failed"
                post = min(running, key=lambda each: self.kills[each.role])
                process = running[post]
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                process.join()
                self.kills[post.role] += process.exitcode == -signal.SIGKILL
                running[post] = started(post)
        finally:
            for process in running.values():
                process.kill()
                process.join()

    def problems(self) -> list[str]:
        """Whatever is wrong with the table or with what the follower was told."""
        table = tl.connect(str(self.lake)).table(NAME)
        follower = Post("follower", 0, str(self.lake), str(self.notes))
        table.compact(full=True)
        for change in table.follow(consumer=CONSUMER, start="earliest", timeout=0):
            follower.note(id=change.snapshot_id, rows=change.to_arrow().to_pylist())
        expected: Counter[int] = Counter()
        for turn in range(self.turns):
            for row in written(turn):
                expected[row["k"]] += row["n"]
        there = {row["k"]: row["n"] for row in table.to_arrow().to_pylist()}
        wrong = [] if there == dict(expected) else [f"the table shows {there} instead of {dict(expected)}"]
        changes: dict[int, list[dict[str, Any]]] = {}
        last = 0
        for line in follower.noted():
            number = line["id"]
            if changes.setdefault(number, line["rows"]) != line["rows"]:
                wrong.append(f"change {number} came again with other rows")
            if number < last:
                wrong.append(f"change {number} came after {last}")
            last = number
        state: dict[int, int] = {}
        for number, rows in changes.items():
            for row in rows:
                if row["rowkind"] in ("-U", "-D"):
                    if state.pop(row["k"], None) != row["n"]:
                        wrong.append(f"change {number} takes back {row}, which was not there")
                elif row["k"] in state:
                    wrong.append(f"change {number} brings {row}, whose key is there")
                else:
                    state[row["k"]] = row["n"]
        if state != there:
            wrong.append(f"changes lead to {state} instead of {there}")
        report = table.check(deep=True, rows=True)
        return [*wrong, *map(str, report.errors)]
