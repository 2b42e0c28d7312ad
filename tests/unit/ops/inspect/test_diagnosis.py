"""The doctor of a table: each finding comes above its threshold, not below it, and names the command that helps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

import tidelake as tl
from kit.command_line import answer, run
from kit.small_tables import committer, message, ranged
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.inspect.diagnosis import THRESHOLDS, ConsumerFact, TableFacts, TagFact, diagnose
from tidelake.testing import FakeClock, MemoryFileIO

MB = 1 << 20
DAY = 86_400_000
WELL = TableFacts(name="d.t", is_keyed=True, has_fixed_buckets=True, is_write_only=False, bytes=1_000 * MB)


def consumer(**facts: Any) -> ConsumerFact:
    return ConsumerFact(**{"name": "nightly", "snapshots_behind": 3, "behind_ms": 0, "is_lost": False, **facts})


CASES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"compaction_debt_bytes": 600 * MB}, {"compaction_debt_bytes": 499 * MB}, "compaction-debt", "compact d.t"),
    ({"sorted_runs": 20}, {"sorted_runs": 19}, "sorted-runs", "compact d.t"),
    ({"small_files": 30, "buckets_with_small_files": 2}, {"small_files": 0}, "small-files", "compact d.t"),
    (
        {"buckets": 4, "largest_bucket": "bucket-1", "largest_bucket_bytes": 80 * MB, "median_bucket_bytes": 20 * MB},
        {"buckets": 4, "largest_bucket": "bucket-1", "largest_bucket_bytes": 60 * MB, "median_bucket_bytes": 1 * MB},
        "skewed-buckets",
        "rescale d.t",
    ),
    ({"manifests": 40, "small_manifests": 30}, {"manifests": 40, "small_manifests": 29}, "many-manifests", "manifest"),
    (
        {"manifests": 8, "manifest_overlap": 0.6},
        {"manifests": 8, "manifest_overlap": 0.5},
        "unsorted-manifests",
        "manifest",
    ),
    ({"expirable_snapshots": 50}, {"expirable_snapshots": 49}, "missing-expiry", "expire d.t"),
    ({"snapshots": 1_000}, {"snapshots": 999}, "many-snapshots", "expire d.t"),
    (
        {"consumers": (consumer(behind_ms=7 * DAY),)},
        {"consumers": (consumer(behind_ms=6 * DAY),)},
        "stale-consumer",
        "--forget nightly",
    ),
    ({"consumers": (consumer(is_lost=True),)}, {"consumers": (consumer(),)}, "stale-consumer", "--forget nightly"),
    (
        {"tags": (TagFact(name="old", age_ms=90 * DAY, expires=False),)},
        {"tags": (TagFact(name="old", age_ms=900 * DAY, expires=True),)},
        "long-lived-tags",
        "tag delete d.t old",
    ),
]


@pytest.mark.parametrize(("ill", "well", "code", "command"), CASES, ids=[case[2] for case in CASES])
def test_a_finding_comes_at_its_threshold_with_its_command(ill: Any, well: Any, code: str, command: str) -> None:
    assert diagnose(replace(WELL, **well)) == ()
    (found,) = diagnose(replace(WELL, **ill))
    assert found.code == code
    assert command in found.command
    assert code in str(found)


def test_thresholds_can_be_given() -> None:
    assert diagnose(replace(WELL, sorted_runs=5), replace(THRESHOLDS, sorted_runs=5))[0].code == "sorted-runs"


def test_a_write_only_table_needs_a_job_and_not_one_run() -> None:
    facts = replace(WELL, is_write_only=True, compaction_debt_bytes=900 * MB, expirable_snapshots=60)
    debt, expiry = diagnose(facts)
    assert debt.command == "tidelake keep-compacted d.t"
    assert "write-only" in expiry.message


# ------------------------------------------------------------------------------------------------ real tables


def make_table(clock: FakeClock, **how: Any) -> tl.Table:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(clock=clock), clock, SeededIds(1))))
    return lake.create_table("d.t", {"id": "INT NOT NULL", "dt": "STRING", "v": "STRING"}, **how)


def codes(table: tl.Table) -> set[str]:
    return {each.code for each in table.diagnose()}


def test_a_new_table_and_a_small_one_have_no_findings() -> None:
    table = make_table(FakeClock(1_000_000))
    assert table.diagnose() == ()
    table.write([{"id": 1, "dt": "a", "v": "x"}])
    assert table.diagnose() == ()


def test_small_files_are_counted_in_the_buckets_that_have_many() -> None:
    table = make_table(FakeClock(1_000_000), partition_by=["dt"])
    committer(table).commit(committable(*(message(f"a{n}", dt="a") for n in range(10))))
    assert codes(table) == {"small-files"}
    (found,) = table.diagnose()
    assert found.message.startswith("10 small files in 1 bucket ")


def test_a_bucket_is_compared_with_those_of_its_partition() -> None:
    table = make_table(FakeClock(1_000_000), primary_key=["id"], options={"bucket": "3"})
    sizes = {0: 90 * MB, 1: MB, 2: MB}
    files = (message(ranged(f"f{b}", 1, 2, file_size=s), dt=None, bucket=b, total=3) for b, s in sizes.items())
    committer(table).commit(committable(*(replace(each, partition=bytes(12)) for each in files)))
    (found,) = table.diagnose()
    assert found.message == "bucket-0 has 90 MB, 90 times the median"


def test_snapshots_consumers_and_tags_grow_old() -> None:
    clock = FakeClock(1_000_000)
    table = make_table(clock, options={"write-only": "true", "snapshot.num-retained.min": "1"})
    for number in range(4):
        table.write([{"id": number}])
    table.reset_consumer("slow", 2)
    table.create_tag("old", snapshot=1)
    table.create_tag("timed", snapshot=1, time_retained="1000 d")
    limits = replace(THRESHOLDS, expirable_snapshots=3)
    assert table.diagnose(limits) == ()
    clock.advance(100 * 86_400 + 600)
    found = {each.code: each.message for each in table.diagnose(limits)}
    assert set(found) == {"missing-expiry", "stale-consumer", "long-lived-tags"}
    assert found["missing-expiry"].startswith("3 snapshots are past their retention")
    assert "3 snapshots and 100 days behind" in found["stale-consumer"]
    assert found["long-lived-tags"].endswith("100 days ago: old")
    assert "expiration-time" in found["stale-consumer"]
    assert table.expire_snapshots(older_than=timedelta(days=1), plan_only=True) is not None


def test_manifests_are_unsorted_if_each_covers_all_partitions() -> None:
    table = make_table(FakeClock(1_000_000), partition_by=["dt"], options={"manifest.merge-min-count": "100"})
    for number in range(9):
        committer(table).commit(committable(*(message(f"{dt}{number}", dt=dt) for dt in "abcd")))
    assert "unsorted-manifests" in codes(table)
    apart = make_table(FakeClock(1_000_000), partition_by=["dt"], options={"manifest.merge-min-count": "100"})
    for dt in "abcdefghi":
        committer(apart).commit(committable(message(f"f{dt}", dt=dt)))
    assert codes(apart) == set()


def test_the_command_prints_findings_and_exits_with_0(tmp_path: Any) -> None:
    table = tl.connect(str(tmp_path)).create_table("d.t", {"id": "INT"})
    assert "nothing to do for d.t" in run("-w", str(tmp_path), "doctor", "d.t").output
    committer(table).commit(committable(*(replace(message(f"a{n}"), partition=bytes(12)) for n in range(10))))
    done = run("-w", str(tmp_path), "doctor", "d.t")
    assert done.exit_code == 0
    assert "help: tidelake compact d.t" in done.output
    found = answer("-w", str(tmp_path), "doctor", "d.t", "--json")
    assert [each["code"] for each in found["findings"]] == ["small-files"]


def committable(*messages: Any) -> Any:
    from tidelake.ops.commit.messages import Committable

    return Committable(messages=messages)
