"""Streams through hundreds of kills at random points, and their memory over a thousand batches (T14, T19).

Parts of it: TIDELAKE_STREAM_KILLS=20, TIDELAKE_STREAM_BATCHES=200, and TIDELAKE_STREAM_SEED=5 for other kills.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tidelake as tl
from kit.kill_points import POINTS, Order
from kit.spark_cluster import kill_group
from kit.stream_lives import TESTS, Lives, describe_end

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(14_400)]

KILLS = int(os.environ.get("TIDELAKE_STREAM_KILLS", "200"))
BATCHES = int(os.environ.get("TIDELAKE_STREAM_BATCHES", "1000"))
SEED = int(os.environ.get("TIDELAKE_STREAM_SEED", "14"))
GROUPS = (("sums", "more"), ("log",), ("a", "b"))
"""Queries that run in one driver."""
NOT_REACHED = {"to: query", "to: task", "sink: task", "abort"}
"""Points that need another driver or an error."""
SPARK_SAW_TWO_DRIVERS = (
    "CONCURRENT_STREAM_LOG_UPDATE",  # the other driver noted the batch first
    "Multiple streaming queries are concurrently using",  # it created the metadata of the checkpoint first
)
MEMORY_SLACK_KB = 8 << 10
SMALL_CACHE = """import pathlib

if "pyspark.daemon" not in pathlib.Path("/proc/self/cmdline").read_text():
    import tidelake.api

    tidelake.api.CACHE_BYTES = 1 << 20
"""
"""The start of each process of a driver but the one that forks tasks: the cache of manifests, which takes 1,500 commits
to be full, is full after 50."""
CHILD = Path(__file__).with_name("stream_memory_child.py")


def orders_for(group: tuple[str, ...], lives: Lives) -> list[Order]:
    """A random point at which these queries can be killed."""
    chance = lives.chance.random
    tables = {"sums": "sums", "more": "sums", "log": "log", "a": "a", "b": "b"}
    table = tables[group[int(chance() * len(group))]]
    kinds = {"b": {"sink", "source"}, "log": {"sink"}}.get(table, {"to"})
    names = sorted(
        name
        for name in POINTS
        if name not in NOT_REACHED
        and name.partition(":")[0] in {*kinds, name}
        and (table in ("sums", "a") or name != "compaction")
    )
    point = names[int(chance() * len(names))]
    # The source reads another table than the one that its rows are written to.
    about = "a" if point.startswith("source") else table
    return [Order(point, about, at=1 + int(chance() * 3))]


def run_to_the_end(lives: Lives, group: tuple[str, ...]) -> None:
    life = lives.run_once(*group)
    assert life.code == 0, life.log
    assert life.errors == dict.fromkeys(group)


def add_files(lives: Lives, group: tuple[str, ...], count: int) -> None:
    for name in group:
        if name == "a":
            lives.add_changes(count)
        elif name != "b":
            lives.add_rows(name, count)


def test_streams_that_are_killed_at_random_points_lose_and_double_nothing(tmp_path: Path) -> None:
    lives = Lives(tmp_path, seed=SEED)
    print(f"REPRO TIDELAKE_STREAM_SEED={SEED} TIDELAKE_STREAM_KILLS={KILLS}")
    lives.create_sums()
    lives.create_log()
    lives.create_chain()
    kills: Counter[str] = Counter()
    for turn in range(3 * KILLS + 3):
        if kills.total() == KILLS:
            break
        group = GROUPS[turn % len(GROUPS)]
        add_files(lives, group, 2)
        orders = orders_for(group, lives) if lives.chance.random() < 0.6 else []
        life = lives.run_once(*group, orders=orders, kill_after_s=None if orders else 2 + 12 * lives.chance.random())
        if life.was_killed:
            kills[life.hits[-1] if life.hits else "at some moment"] += 1
        else:
            assert life.code == 0, f"REPRO seed={SEED} life={lives.count}: {life.log}"
            assert life.errors == dict.fromkeys(group), f"REPRO seed={SEED} life={lives.count}"
        assert lives.find_problems_of_progress() == [], f"REPRO seed={SEED} life={lives.count}"
        if turn % 10 == 9:  # those that would show what was committed are gone
            for name in ("sums", "log"):
                lives.open_table(name).expire_snapshots(retain_max=1, retain_min=1, older_than="2100-01-01")
    for group in GROUPS:
        run_to_the_end(lives, group)
    wrong = [
        *lives.find_problems_of_sums("sums", "more"),
        *lives.find_problems_of_log(),
        *lives.find_problems_of_chain(),
    ]
    assert wrong == [], f"REPRO TIDELAKE_STREAM_SEED={SEED} TIDELAKE_STREAM_KILLS={KILLS} {dict(kills)}"
    assert kills.total() == KILLS
    print(f"{lives.count} lives, {dict(kills)}")


def test_memory_and_open_files_of_source_and_sink_stay_flat_over_a_thousand_batches(tmp_path: Path) -> None:
    lake = tl.connect(tmp_path / "lake", storage={"durability": "none"})
    source = lake.create_table("db.from", {"id": "BIGINT NOT NULL", "v": "BIGINT"})
    options = {"bucket": "1", "snapshot.num-retained.max": "20", "snapshot.num-retained.min": "10"}
    target = lake.create_table("db.to", {"id": "BIGINT NOT NULL", "v": "BIGINT"}, primary_key=["id"], options=options)
    for number in range(BATCHES):
        source.write([{"id": number % 50, "v": number}])
    start = tmp_path / "start"
    start.mkdir()
    (start / "sitecustomize.py").write_text(SMALL_CACHE)
    path = os.pathsep.join((str(start), str(TESTS), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(
        [sys.executable, str(CHILD), str(tmp_path), str(BATCHES)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate()
    finally:
        kill_group(process)
    assert process.returncode == 0
    early, late = json.loads(printed.splitlines()[-1])
    print(f"after {BATCHES // 5} batches {early}, after {BATCHES} {late}")
    for role in ("sink", "source"):
        assert late[role]["kb"] < 1.1 * early[role]["kb"] + MEMORY_SLACK_KB, (role, early, late)
        assert late[role]["files"] <= early[role]["files"] + 4, (role, early, late)
    newest = {number % 50: number for number in range(BATCHES)}
    assert {row["id"]: row["v"] for row in target.reload().to_arrow().to_pylist()} == newest


def test_two_drivers_of_two_queries_on_one_table_write_every_batch_once(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.create_sums()
    lives.add_rows("sums", 4)
    lives.add_rows("more", 4)
    assert lives.run_once("sums", orders=[Order("to: before", "sums")]).was_killed
    meet = [Order("to: query", "sums", at=0, action="meet")]
    with (
        lives.start_driver("sums", "more", orders=meet) as (one, folder),
        lives.start_driver("sums", "more", orders=meet, notes=folder) as (other, _),
    ):
        ends = [describe_end(each, folder, each.communicate()[0]) for each in (one, other)]
    lives.note_commits()
    assert [end.code for end in ends] == [0, 0], ends
    assert len(ends[0].hits) > 4, "both came to the same batch"
    for query in ("sums", "more"):
        assert None in [end.errors[query] for end in ends], "one of them goes on to the end"
        for end in ends:
            assert end.errors[query] is None or any(each in end.errors[query] for each in SPARK_SAW_TWO_DRIVERS)
    assert lives.find_problems_of_sums("sums", "more") == []
