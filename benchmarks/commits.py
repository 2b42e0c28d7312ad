"""Small durable commits after 100, 1,000 and 5,000 commits, and one commit of 10,000 files."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.lakes import fill, make_table, message, new_file
from benchmarks.peers import Peer
from benchmarks.timing import Result, interleaved, result

WINDOWS = (100, 1_000, 5_000)


def run(peer: Peer | None, repeat: int = 7) -> list[Result]:
    return [*_small(peer), *_big(peer, repeat)]


def _small(peer: Peer | None) -> list[Result]:
    with tempfile.TemporaryDirectory() as scratch:
        table = make_table(Path(scratch))
        commit = table.new_commit()
        times = []
        for number in range(WINDOWS[-1] + 100):
            messages = [message(table, f"d{number % 10:05d}", [new_file(table, number)])]
            started = time.perf_counter()
            commit.commit(messages)
            times.append(time.perf_counter() - started)
        windows = {start: times[start : start + 100] for start in WINDOWS}
    results = []
    first = windows[WINDOWS[0]]
    for start, window in windows.items():
        for name, of in (("median", statistics.median), ("p99", _p99)):
            ratio = of(window) / of(first)
            met = ratio <= 1.5 if start == WINDOWS[-1] else None
            work = f"small commit after {start:,}, {name}"
            results.append(Result(work, of(window), "first window", of(first), ratio, "<= 1.5 x", met))
    return results + (_small_peers(peer, windows[1_000]) if peer else [])


def _small_peers(peer: Peer, ours: list[float]) -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        contenders = {
            "pypaimon native": lambda n: peer.ask(
                "small_commits", warehouse=f"{scratch}/n", name="bench.n", count=n, native=True
            ),
            "pypaimon Python": lambda n: peer.ask(
                "small_commits", warehouse=f"{scratch}/p", name="bench.p", count=n, native=False
            ),
            "deltalake": lambda n: peer.ask("delta_commits", path=f"{scratch}/d", count=n),
        }
        for name, ask in contenders.items():
            ask(1_000)
            window = [float(t) for t in ask(100)["times"]]  # type: ignore[attr-defined]
            for label, of in (("median", statistics.median), ("p99", _p99)):
                mine, theirs = of(ours), of(window)
                work = f"small commit after 1,000, {label}"
                results.append(Result(work, mine, name, theirs, mine / theirs, "< 1 x", mine < theirs))
    return results


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
