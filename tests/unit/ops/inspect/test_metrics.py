"""What commits cost: on their results, and one row for each snapshot that is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import tidelake as tl
from kit.command_line import answer
from kit.keyed_writers import Deferred
from kit.small_tables import committer, message, new_table, other_handle
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.commit.messages import CommitResult, Committable, Compacted
from tidelake.ops.commit.replan import replan
from tidelake.spec.documents.snapshot import snapshot_to_json
from tidelake.table import Table
from tidelake.testing import FakeClock, MemoryFileIO


def write(table: Table, *names: str) -> CommitResult:
    return committer(table).commit(Committable(messages=tuple(message(name) for name in names)))


def test_each_snapshot_says_what_it_added_and_deleted() -> None:
    table = new_table()
    write(table, "a", "b")
    table.store.env.clock.sleep(5)
    table.truncate()
    first, second = table.inspect.metrics().to_pylist()
    assert (first["files_added"], first["rows_added"], first["bytes_added"]) == (2, 20, 200)
    assert (second["files_deleted"], second["rows_deleted"], second["bytes_deleted"]) == (2, 20, 200)
    assert (first["files_deleted"], second["files_added"], second["total_rows"]) == (0, 0, 0)
    assert (first["since_previous"], first["attempts"], first["retries"]) == (None, 1, 0)
    assert second["since_previous"] >= timedelta(seconds=5)
    assert (first["commit_kind"], second["commit_kind"]) == ("APPEND", "OVERWRITE")


def test_changelog_files_are_counted_and_an_empty_table_has_no_rows() -> None:
    table = new_table(keyed=True, bucket="1", changelog_producer="input")
    assert table.inspect.metrics().num_rows == 0
    table.write([{"id": 1, "dt": "a", "v": "x"}, {"id": 2, "dt": "a", "v": "x"}])
    (row,) = table.inspect.metrics().to_pylist()
    assert (row["changelog_files"], row["changelog_rows"]) == (1, 2)
    assert row["changelog_bytes"] > 0


def test_a_lost_race_is_recorded_by_the_snapshot_and_its_result() -> None:
    table = new_table()
    slow, fast = committer(table, "slow"), committer(other_handle(table), "fast")
    raced = slow._loop._publisher

    class Late:
        """Lets another commit take the id first, once."""

        relies_on_storage = raced.relies_on_storage
        done = False

        def __getattr__(self, name: str) -> object:
            return getattr(raced, name)

        def publish(self, *given: object, **how: object) -> object:
            if not self.done:
                self.done = True
                fast.commit(Committable(messages=(message("f"),)))
            return raced.publish(*given, **how)

    slow._loop._publisher = Late()  # type: ignore[assignment]
    result = slow.commit(Committable(messages=(message("s"),)))
    assert (result.snapshot_ids, result.attempts, result.retries) == ((2,), 2, 1)
    assert table.inspect.metrics().select(["attempts", "retries"]).to_pylist() == [
        {"attempts": 1, "retries": 0},
        {"attempts": 2, "retries": 1},
    ]
    write(table, "later")
    assert table.inspect.metrics()["attempts"].to_pylist() == [1, 2, 1]


def test_other_writers_do_not_record_their_attempts() -> None:
    table = new_table()
    write(table, "a")
    snapshot = table.snapshot(1)
    path = table.store.layout.snapshot_path(1)
    table.store.env.io.overwrite(path, snapshot_to_json(replace(snapshot, writer_version="paimon-2.0.0")))
    (row,) = other_handle(table).inspect.metrics().to_pylist()
    assert (row["attempts"], row["retries"]) == (None, None)


def test_a_compaction_says_what_it_read_and_wrote_and_a_moved_file_is_neither() -> None:
    table = new_table(keyed=True, bucket="1", write_only="true")
    table.write([{"id": 1, "dt": "a", "v": "x"}])
    moved = table.compact(full=True)
    assert moved.compacted == Compacted()
    table.write([{"id": 1, "dt": "a", "v": "y"}])
    done = table.compact(full=True)
    found = done.compacted
    assert (found.files_in, found.rows_in, found.files_out, found.rows_out) == (2, 2, 1, 1)
    assert found.bytes_in > found.bytes_out == done.bytes


def test_plans_that_met_a_conflict_are_counted() -> None:
    failures = [CommitConflictError("overtaken", code="rows-changed")] * 2

    def attempt() -> CommitResult:
        if failures:
            raise failures.pop()
        return CommitResult(snapshot_ids=(3,), attempts=1)

    assert replan(attempt).conflicts == 2
    assert replan(attempt).conflicts == 0


def test_the_command_prints_metrics(tmp_path: object) -> None:
    tl.connect(str(tmp_path)).create_table("d.t", {"id": "INT"}).write([{"id": 1}])
    (row,) = answer("-w", str(tmp_path), "metrics", "d.t", "--json")
    assert (row["snapshot_id"], row["rows_added"]) == (1, 1)


class Slow(Deferred):
    """What is started takes three seconds as soon as a caller waits for it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def start(self, fn: Callable[[], Any]) -> Any:
        def run() -> Any:
            self.clock.advance(3)
            return fn()

        return super().start(run)


def test_the_time_that_a_writer_waited_for_compactions_is_on_its_result() -> None:
    clock = FakeClock(1_000)
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock, SeededIds(1), Slow(clock))))
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2"}
    table = lake.create_table("d.t", {"k": "INT NOT NULL"}, primary_key=["k"], options=options)
    assert table.write([{"k": 1}]).compaction_wait_ms == 0
    compacting = table.write([{"k": 2}])
    assert len(compacting.snapshot_ids) == 2
    assert 3_000 <= compacting.compaction_wait_ms < 4_000
    assert compacting.compacted.files_in == 2
