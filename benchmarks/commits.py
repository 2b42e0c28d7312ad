"""Small commits after 100, 1,000 and 5,000 commits, also of a long-lived writer, and one commit of 10,000 files."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import tidelake as tl
from benchmarks.lakes import fill, make_table, message, new_file
from benchmarks.peers import Peer
from benchmarks.timing import Result, interleaved, result
from tidelake.table import Table

WINDOWS = (100, 1_000, 5_000)


def run(peer: Peer | None, repeat: int = 7) -> list[Result]:
    return [*_small(peer), *_long_lived(), *_big(peer, repeat)]


def _small(peer: Peer | None) -> list[Result]:
    """One hundred commits on tables of three ages, in turns, so that noise hits all ages and all contenders alike."""
    with tempfile.TemporaryDirectory() as scratch:
        tables = {age: _aged(Path(scratch) / str(age), age) for age in WINDOWS}
        commits = {age: table.new_commit() for age, table in tables.items()}
        others = _peers(peer, scratch) if peer else {}
        times: dict[object, list[float]] = {name: [] for name in (*WINDOWS, *others)}
        for number in range(100):
            for age, table in tables.items():
                messages = [message(table, f"d{number % 10:05d}", [new_file(table, number)])]
                started = time.perf_counter()
                commits[age].commit(messages)
                times[age].append(time.perf_counter() - started)
            for name, ask in others.items():
                times[name] += [float(t) for t in ask(1)["times"]]  # type: ignore[attr-defined]
    results = []
    for label, of in (("median", statistics.median), ("p99", _p99)):
        first = of(times[WINDOWS[0]])
        for age in WINDOWS[1:]:
            ratio = of(times[age]) / first
            met = ratio <= 1.5 if age == WINDOWS[-1] else None
            work = f"small commit after {age:,}, {label}"
            results.append(Result(work, of(times[age]), "after 100", first, ratio, "<= 1.5 x", met))
        for name in others:
            mine, theirs = of(times[1_000]), of(times[name])
            work = f"small commit after 1,000, {label}"
            results.append(Result(work, mine, str(name), theirs, mine / theirs, "< 1 x", mine < theirs))
    return results


def _long_lived() -> list[Result]:
    """Processor time of one hundred small commits of writers that have made 100 and 5,000 commits before, in turns."""
    young, old = 100, 5_000
    with tempfile.TemporaryDirectory() as scratch:
        jobs = {age: _LongJob(Path(scratch) / str(age)) for age in (young, old)}
        for age, job in jobs.items():
            for _ in range(age):
                job.commit()
        times: dict[int, list[float]] = {age: [] for age in jobs}
        for _ in range(100):
            for age, job in jobs.items():
                started = time.process_time()
                job.commit()
                times[age].append(time.process_time() - started)
        for job in jobs.values():
            job.close()
    results = []
    for label, of in (("median", statistics.median), ("mean", statistics.mean)):
        ours, other = of(times[old]), of(times[young])
        work = f"processor time of a small commit of a writer after {old:,}, {label}"
        results.append(Result(work, ours, f"after {young:,}", other, ours / other, "<= 1.2 x", ours <= 1.2 * other))
    return results


class _LongJob:
    """A job that upserts ten rows of a thousand keys in each of its numbered commits."""

    def __init__(self, folder: Path) -> None:
        lake = tl.connect(folder, storage={"durability": "none"})
        columns = {"id": "BIGINT NOT NULL", "v": "BIGINT"}
        table = lake.create_table("bench.t", columns, primary_key=["id"], options={"bucket": "1"})
        self._write, self._commit, self._number = table.new_write("job"), table.new_commit("job"), 0

    def commit(self) -> None:
        """Write ten rows and commit them."""
        self._number += 1
        ids = [(self._number * 37 + each * 101) % 1_000 for each in range(10)]
        self._write.write(pa.table({"id": ids, "v": [self._number] * len(ids)}))
        self._commit.commit(self._write.prepare_commit(self._number), identifier=self._number)

    def close(self) -> None:
        """Close the writer."""
        self._write.close()


def _aged(folder: Path, commits: int) -> Table:
    """A table with that many small commits behind it; they were made without waiting for the disk."""
    make_table(folder)
    quick = tl.connect(folder, storage={"durability": "none"}).table("bench.t")
    commit = quick.new_commit()
    for number in range(commits):
        commit.commit([message(quick, f"d{number % 10:05d}", [new_file(quick, number)])])
    return tl.connect(folder).table("bench.t")


def _peers(peer: Peer, scratch: str) -> dict[str, Callable[[int], dict[str, object]]]:
    """The others, each on a table with 1,000 small commits behind it."""
    asks: dict[str, Callable[[int], dict[str, object]]] = {
        "pypaimon native": lambda n: peer.ask(
            "small_commits", warehouse=f"{scratch}/n", name="bench.n", count=n, native=True
        ),
        "pypaimon Python": lambda n: peer.ask(
            "small_commits", warehouse=f"{scratch}/p", name="bench.p", count=n, native=False
        ),
        "deltalake": lambda n: peer.ask("delta_commits", path=f"{scratch}/d", count=n),
    }
    for ask in asks.values():
        ask(1_000)
    return asks


def _p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


def _big(peer: Peer | None, repeat: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as scratch:
        table = make_table(Path(scratch))
        fill(table, files=10, commits=1, days=1, scattered=False)
        files = [new_file(table, number) for number in range(10_000)]
        messages = [message(table, "d00001", files)]

        def ours() -> float:
            fresh = make_table(Path(tempfile.mkdtemp(dir=scratch)))
            commit = fresh.new_commit()
            started = time.perf_counter()
            commit.commit(messages)
            return time.perf_counter() - started

        runs = {"tidelake": ours}
        if peer:
            for label, native in (("pypaimon native", True), ("pypaimon Python", False)):
                runs[label] = lambda n=native: peer.seconds(
                    "big_commit", warehouse=tempfile.mkdtemp(dir=scratch), name="bench.b", files=10_000, native=n
                )
        times = interleaved(runs, repeat)
    work = "one commit of 10,000 files"
    if peer is None:
        return [Result(work, statistics.median(times["tidelake"]), "-", None, None, "", None)]
    return [result(work, times, name, 1.0) for name in ("pypaimon native", "pypaimon Python")]
