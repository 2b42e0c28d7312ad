"""The writer of primary-key tables: rows that wait on disk, compactions beside writing, sequence numbers."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from kit.keyed_writers import Kit, level_counts, numbered, part, shown
from tidelake.errors import CommitConflictError, FormatError, InvalidInputError, StorageError
from tidelake.lsm.engines.deduplicate import Deduplicate
from tidelake.lsm.kernel import MergePlan
from tidelake.lsm.keys import KeyCodec
from tidelake.ops.commit.loop import SEQUENCE_PROPERTY
from tidelake.ops.write import keyed as keyed_module
from tidelake.ops.write import spill as spill_module
from tidelake.ops.write.buffer import SortedRows, _join_chunks
from tidelake.ops.write.keyed_options import KeyedWriteOptions
from tidelake.ops.write.spill import Spill
from tidelake.testing import Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.faulty import READS


@pytest.fixture
def kit() -> Kit:
    return Kit()


# ------------------------------------------------------------------------------------------------ buffer and disk


@pytest.mark.parametrize("dtype", [pa.int32(), pa.string(), pa.bool_(), pa.list_(pa.int8())], ids=str)
def test_neighbouring_slices_of_a_column_are_joined_as_concatenation_would(dtype):
    values = {pa.string(): ["a", None, "ccc"], pa.bool_(): [True, None, False], pa.list_(pa.int8()): [[1], None, [2]]}
    column = pa.array(values.get(dtype, [1, None, 3]) * 20, dtype)
    slices = [column.slice(start, 7) for start in range(3, 45, 7)]
    found = _join_chunks(slices)
    assert found.equals(pa.concat_arrays(slices))
    assert _join_chunks([*slices, slices[0]]).equals(pa.concat_arrays([*slices, slices[0]]))
    assert _join_chunks([slices[0], slices[2]]).equals(pa.concat_arrays([slices[0], slices[2]]))
    if dtype == pa.string():
        assert found.buffers()[2].address == column.buffers()[2].address


@pytest.mark.parametrize("block", ["1 kb", "64 kb", "4 mb"])
def test_segments_of_runs_on_disk_are_read_several_at_a_time_where_there_is_room(kit, monkeypatch, block):
    monkeypatch.setattr(spill_module, "_SEGMENT_BYTES_MIN", 256)
    spill = Spill(KeyedWriteOptions.parse({"write-buffer-size": block, "local-sort.max-num-file-handles": "1000"}))
    plan = MergePlan(KeyCodec(("k",), (pa.int64(),)), Deduplicate(), by_age=True, ordered=True)
    runs = [range(n, 3000, n + 1) for n in range(4)]
    for age, keys in enumerate(runs):
        rows = pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array([age] * len(keys))})
        spill.add([SortedRows(0, rows, np.arange(len(keys)))], kit.beside)
    tables = [window.merge_rows(plan) for window in spill.windows(0, None, plan.keys)]
    found = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    assert found == [(k, max(n for n in range(4) if k in runs[n])) for k in range(3000)]
    assert (len(tables) < 20) == (block != "1 kb")
    spill.clear()


def test_rows_that_do_not_fit_in_memory_wait_on_disk_and_make_one_file(kit, monkeypatch):
    made = []
    monkeypatch.setattr(keyed_module, "Spill", lambda options: made.append(Spill(options)) or made[-1])
    table = kit.table(write_buffer_size="512", write_only="true")
    writer = table.new_write()
    for n in range(20):
        writer.write(part(*range(n, n + 100), n=n))
    assert made[0].bytes > 0
    assert not kit.data_files()
    table.new_commit().commit(writer.prepare_commit())
    assert level_counts(table) == {0: 1}
    assert shown(table) == {k: min(k, 19) for k in range(119)}
    assert made[0].bytes == 0


def test_without_leave_to_spill_a_full_buffer_is_flushed_to_level_0(kit):
    table = kit.table(write_buffer_size="512", write_only="true", write_buffer_spillable="false")
    writer = table.new_write()
    for n in range(5):
        writer.write(part(*range(100), n=n))
    assert len(kit.data_files()) >= 4
    table.new_commit().commit(writer.prepare_commit())
    assert shown(table) == dict.fromkeys(range(100), 4)


@pytest.mark.parametrize("limit", [{"write-buffer-spill.max-disk-size": "1"}, {"local-sort.max-num-file-handles": "1"}])
def test_where_the_disk_is_used_up_rows_are_flushed(kit, limit):
    table = kit.table(write_buffer_size="512", write_only="true", **limit)
    writer = table.new_write()
    for n in range(3):
        writer.write(part(*range(100), n=n))
    assert len(kit.data_files()) == 3
    table.new_commit().commit(writer.prepare_commit())
    assert shown(table) == dict.fromkeys(range(100), 2)
    assert sorted(table.files()["min_sequence"].to_pylist()) == [0, 100, 200]


def test_buckets_with_few_rows_go_on_waiting_when_memory_is_flushed(kit):
    table = kit.lake.create_table(
        "d.p",
        {"dt": "STRING NOT NULL", "k": "INT NOT NULL"},
        primary_key=["dt", "k"],
        partition_by=["dt"],
        options={"bucket": "1", "write-buffer-size": "2 kb", "write-buffer-spillable": "false"},
    )
    writer = table.new_write()
    writer.write([{"dt": "quiet", "k": 1}])
    writer.write([{"dt": "hot", "k": k} for k in range(500)])
    assert list(kit.io.list("d.db/p/dt=hot/bucket-0"))
    assert not list(kit.io.list("d.db/p/dt=quiet/bucket-0"))
    table.new_commit().commit(writer.prepare_commit())
    assert table.count() == 501


def test_a_full_local_disk_is_told_with_a_way_out(kit, monkeypatch):
    from tidelake.io import scratch

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scratch.os, "pwrite", full)
    table = kit.table(write_buffer_size="512")
    writer = table.new_write()
    with pytest.raises(StorageError, match="local disk for spilled rows failed") as caught:
        writer.write(part(*range(1000)))
    assert "write-buffer-spillable=false" in (caught.value.hint or "")
    writer.close()


def test_a_codec_that_nobody_knows_is_refused(kit):
    with pytest.raises(InvalidInputError, match="spill-compression zstd, lz4 or none"):
        kit.table(write_buffer_size="512", spill_compression="brotli")


@pytest.mark.parametrize("codec", ["none", "lz4", "lzo", "ZSTD"])
def test_every_codec_of_the_format_is_taken(kit, codec):
    table = kit.table(write_buffer_size="512", spill_compression=codec)
    table.write(part(*range(1000), n=5))
    assert shown(table) == dict.fromkeys(range(1000), 5)


@pytest.mark.parametrize("target", ["128 mb", "1 kb"], ids=["at the end", "beside"])
def test_a_flush_that_fails_leaves_no_file_of_any_bucket(target):
    def scenario(io: FaultyFileIO) -> None:
        table = Kit(io).table(bucket="4", write_only="true", write_buffer_size="512", target_file_size=target)
        writer = table.new_write()
        try:
            for n in range(3):
                writer.write(part(*range(100), n=n))
            writer.prepare_commit()
        except BaseException:
            writer.close()
            raise

    scenario(FaultyFileIO(MemoryFileIO()))  # the storage is tried out once in a process
    clean = FaultyFileIO(MemoryFileIO())
    scenario(clean)
    writes = [op for op in clean.ops if "bucket-" in op.path and op.name not in READS]
    assert len({op.path for op in writes}) == (4 if target == "128 mb" else 12)
    for op in writes:
        faulty = FaultyFileIO(MemoryFileIO(), {op.number: Fault.BEFORE})
        with pytest.raises(StorageError):
            scenario(faulty)
        left = [status.path for n in range(4) for status in faulty.inner.list(f"d.db/t/bucket-{n}")]
        assert not left, (op, left)


# ------------------------------------------------------------------------------------------------ beside writing


def test_while_a_block_of_rows_is_written_the_next_one_comes_in(kit):
    table = kit.table(write_buffer_size="4 kb", target_file_size="1 kb", write_only="true")
    writer = table.new_write()
    writer.write(part(*range(500), n=1))
    assert len(kit.beside.waiting) == 1
    assert not kit.data_files()
    writer.write(part(*range(250, 300), n=2))  # not enough to need its room
    assert len(kit.beside.waiting) == 1
    writer.write(part(*range(400, 900), n=3))
    assert len(kit.data_files()) == 1
    table.new_commit().commit(writer.prepare_commit())
    assert not kit.beside.waiting
    assert level_counts(table) == {0: 2}
    assert shown(table) == {k: 3 if k >= 400 else 2 if 250 <= k < 300 else 1 for k in range(900)}


def test_closing_a_writer_removes_what_is_still_being_written(kit):
    table = kit.table(write_buffer_size="4 kb", target_file_size="1 kb", write_only="true")
    writer = table.new_write()
    writer.write(part(*range(500), n=1))
    kit.beside.run()
    assert kit.data_files()
    writer.close()
    assert not kit.data_files()


def test_behind_a_compaction_rows_are_not_left_waiting(kit):
    table = kit.table(write_buffer_size="4 kb", target_file_size="1 kb", **{"num-sorted-run.compaction-trigger": "3"})
    writer = table.new_write("u")
    for n in range(3):
        numbered(table, writer, n, part(*range(100), n=n))
    assert len(kit.beside.waiting) == 1
    writer.write(part(*range(500), n=9))
    assert len(kit.beside.waiting) == 1
    writer.close()


def test_a_numbered_commit_does_not_wait_for_a_compaction_and_a_later_one_holds_its_result(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2"})
    writer = table.new_write("u")
    numbered(table, writer, 1, part(1, n=1))
    (message,) = numbered(table, writer, 2, part(2, n=2))
    assert kit.beside.started == 1
    assert not message.compact.after
    assert level_counts(table) == {0: 2}
    kit.beside.run()
    (message,) = numbered(table, writer, 3, part(3, n=3))
    assert [file.level for file in message.compact.after] == [2]
    assert level_counts(table) == {0: 1, 2: 1}
    assert shown(table) == {1: 1, 2: 2, 3: 3}
    assert table.check(deep=True).ok


def test_the_result_of_a_compaction_is_collected_although_no_row_came_to_its_bucket(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2"})
    writer = table.new_write("u")
    numbered(table, writer, 1, part(1))
    numbered(table, writer, 2, part(2))
    kit.beside.run()
    messages = writer.prepare_commit(3)
    assert [len(message.compact.before) for message in messages] == [2]
    table.new_commit("u").commit(messages, identifier=3)
    assert level_counts(table) == {2: 1}


def test_while_a_compaction_runs_no_other_is_started(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "100"})
    writer = table.new_write("u")
    for number in range(1, 6):
        numbered(table, writer, number, part(number))
    assert kit.beside.started == 1
    assert level_counts(table) == {0: 5}


def test_too_many_runs_make_a_writer_wait(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "3"})
    writer = table.new_write("u")
    for number in range(1, 5):
        numbered(table, writer, number, part(number))
    assert level_counts(table) == {0: 4}
    numbered(table, writer, 5, part(5))  # four runs are more than three: the flush waits for the compaction
    assert sum(level_counts(table).values()) <= 4
    assert set(shown(table)) == {1, 2, 3, 4, 5}


def test_a_commit_waits_where_the_table_has_far_too_many_runs(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2"})
    quiet = table.with_options({"write-only": "true"})
    for number in range(4):
        quiet.write(part(number))
    (message,) = numbered(table, table.new_write("u"), 1, part(9))
    assert message.compact.after
    assert not kit.beside.waiting


@pytest.mark.parametrize("how", [{}, {"commit.force-compact": "true"}])
def test_a_batch_waits_for_its_compaction_and_so_does_a_commit_that_is_told_to(kit, how):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2"}, **how)
    table.write(part(1))
    if how:
        numbered(table, table.new_write("u"), 1, part(2))
    else:
        table.write(part(2))
    assert level_counts(table) == {2: 1}


def test_rows_that_only_show_once_compacted_are_waited_for(kit):
    table = kit.table(merge_engine="first-row")
    numbered(table, table.new_write("u"), 1, part(1, n=1))
    assert shown(table) == {1: 1}
    late = table.with_options({"lookup-wait": "false"})
    numbered(late, late.new_write("v"), 1, part(2, n=2))
    assert shown(table) == {1: 1}


def test_a_compaction_that_failed_is_told_by_the_next_commit(kit, monkeypatch):
    from tidelake.ops.write import tree

    def broken(*_: object) -> None:
        raise FormatError("a file is damaged", path="x")

    monkeypatch.setattr(tree, "run_compaction", broken)
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2"})
    writer = table.new_write("u")
    numbered(table, writer, 1, part(1))
    numbered(table, writer, 2, part(2))
    kit.beside.run()
    writer.write(part(3))
    with pytest.raises(FormatError, match="a file is damaged"):
        writer.prepare_commit(3)
    writer.close()


def test_a_compaction_whose_files_another_job_compacted_is_dropped_without_a_trace(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2"})
    writer = table.new_write("u")
    numbered(table, writer, 1, part(1, n=1))
    numbered(table, writer, 2, part(2, n=2))
    table.compact(full=True)
    before = kit.data_files()
    kit.beside.run()
    assert kit.data_files() > before
    (message,) = numbered(table, writer, 3, part(3, n=3))
    assert not message.compact.before
    assert kit.data_files() - before <= set(table.files()["file_name"].to_pylist())
    assert shown(table) == {1: 1, 2: 2, 3: 3}


def test_a_compaction_of_rows_that_are_not_committed_yet_is_held_back(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2"})
    writer = table.new_write("u")
    commit = table.new_commit("u")
    numbered(table, writer, 1, part(1, n=1))
    writer.write(part(2, n=2))
    second = writer.prepare_commit(2)
    kit.beside.run()
    writer.write(part(3, n=3))
    third = writer.prepare_commit(3)
    assert not any(message.compact.before for message in third)
    commit.commit(second, identifier=2)
    commit.commit(third, identifier=3)
    fourth = writer.prepare_commit(4)
    assert [len(message.compact.before) for message in fourth] == [2]
    commit.commit(fourth, identifier=4)
    assert shown(table) == {1: 1, 2: 2, 3: 3}
    assert table.check(deep=True).ok


def test_sequence_numbers_go_on_although_the_last_round_is_not_committed(kit):
    table = kit.table(write_only="true")
    writer = table.new_write("u")
    commit = table.new_commit("u")
    rounds = []
    for number in (1, 2, 3):
        writer.write(part(7, n=number))
        rounds.append(writer.prepare_commit(number))
    names = {file.file_name for messages in rounds for message in messages for file in message.data.new_files}
    for number, messages in enumerate(rounds, start=1):
        commit.commit(messages, identifier=number)
    assert shown(table) == {7: 3}
    assert kit.data_files() == names  # nothing had to be written again


def test_closing_a_writer_removes_what_a_running_compaction_made(kit):
    table = kit.table(**{"num-sorted-run.compaction-trigger": "2"})
    writer = table.new_write("u")
    numbered(table, writer, 1, part(1))
    numbered(table, writer, 2, part(2))
    before = kit.data_files()
    assert kit.beside.waiting
    writer.close()
    assert not kit.beside.waiting
    assert kit.data_files() == before


# ------------------------------------------------------------------------------------------------ full compactions


def test_every_batch_commit_compacts_fully_where_the_table_says_so(kit):
    table = kit.table(**{"full-compaction.delta-commits": "3"})
    table.write(part(1))
    assert level_counts(table) == {5: 1}
    table.write(part(2))
    assert level_counts(table) == {5: 1}


def test_numbered_commits_compact_fully_every_so_many(kit):
    table = kit.table(bucket="1", **{"full-compaction.delta-commits": "3"})
    writer = table.new_write("u")
    found = []
    for number in (1, 2, 3, 4, 7):
        numbered(table, writer, number, part(number))
        found.append(level_counts(table))
    # 6 never came: 7 does what it should have done
    assert found == [{0: 1}, {0: 2}, {5: 1}, {0: 1, 5: 1}, {5: 1}]


def test_a_full_compaction_takes_in_buckets_written_since_the_last_one(kit):
    table = kit.table(bucket="2", **{"full-compaction.delta-commits": "2"})
    writer = table.new_write("u")
    by_bucket: dict[int, int] = {}
    for k in range(20):
        probe = table.new_write()
        probe.write(part(k))
        by_bucket.setdefault(probe.prepare_commit()[0].bucket, k)
    numbered(table, writer, 1, part(by_bucket[0]))
    numbered(table, writer, 2, part(by_bucket[1]))
    assert level_counts(table) == {5: 2}


# ------------------------------------------------------------------------------------------------ sequence numbers


def test_sequence_numbers_start_from_the_snapshot_and_no_manifest_is_read(kit, monkeypatch):
    table = kit.table(write_only="true", **{"write.sequence-number-init-mode": "snapshot"})
    table.write(part(1, 2, 3, n=1))
    assert table.latest_snapshot().properties[SEQUENCE_PROPERTY] == "2"
    from tidelake.ops.write import restore

    def never(*_: object, **__: object) -> None:
        raise AssertionError("read a manifest")

    monkeypatch.setattr(restore, "live_entries", never)
    table.write(part(1, n=2))
    assert table.latest_snapshot().properties[SEQUENCE_PROPERTY] == "3"
    assert shown(table) == {1: 2, 2: 1, 3: 1}


def test_keys_are_not_doubled_when_the_bucket_count_changes_and_no_file_was_looked_at(kit):
    table = kit.table(bucket="2", write_only="true", **{"write.sequence-number-init-mode": "snapshot"})
    table.write(part(*range(20), n=1))
    table.alter(set_options={"bucket": "3"})
    before = [kit.io.list(f"d.db/t/bucket-{number}") for number in range(3)]
    with pytest.raises(CommitConflictError, match="two bucket counts"):
        kit.lake.table("d.t").write(part(*range(20), n=2))
    assert [kit.io.list(f"d.db/t/bucket-{number}") for number in range(3)] == before
    assert shown(kit.lake.table("d.t")) == dict.fromkeys(range(20), 1)


def test_sequence_numbers_are_looked_up_where_the_snapshot_does_not_tell(kit):
    table = kit.table(write_only="true")
    table.write(part(1, 2, 3, n=1))
    told = table.with_options({"write.sequence-number-init-mode": "snapshot"})
    told.write(part(1, n=2))
    assert table.latest_snapshot().properties[SEQUENCE_PROPERTY] == "3"
    assert shown(table) == {1: 2, 2: 1, 3: 1}


def test_a_sequence_number_of_a_snapshot_that_is_none_is_refused(kit):
    table = kit.table(write_only="true", **{"write.sequence-number-init-mode": "snapshot"})
    writer = table.new_write()
    writer.write(part(1))
    properties = {SEQUENCE_PROPERTY: "many"}
    table.with_options({"write.sequence-number-init-mode": "scan"}).new_commit().commit(
        writer.prepare_commit(), properties=properties
    )
    with pytest.raises(FormatError, match="snapshot property is not a number"):
        table.write(part(2))


# ------------------------------------------------------------------------------------------------ local merge


def test_rows_of_equal_keys_are_merged_before_they_are_sent(kit):
    table = kit.table(
        merge_engine="aggregation", local_merge_buffer_size="1 mb", **{"fields.n.aggregate-function": "sum"}
    )
    table.write(pa.table({"k": pa.array([1] * 1000 + [2], pa.int32()), "n": pa.array([1] * 1001, pa.int32())}))
    assert shown(table) == {1: 1000, 2: 1}
    assert table.files()["max_sequence"].to_pylist() == [1]  # two rows were sent


def test_a_deletion_that_was_merged_locally_still_deletes(kit):
    table = kit.table(local_merge_buffer_size="1 mb")
    table.write(part(1, 2, n=1))
    table.write([{"k": 1, "n": 1, "rowkind": "+U"}, {"k": 1, "n": 1, "rowkind": "-D"}])
    assert shown(table) == {2: 1}


# ------------------------------------------------------------------------------------------------ values


def test_nulls_take_the_default_of_their_column_and_are_refused_where_there_is_none(kit):
    table = kit.lake.create_table(
        "d.v", {"k": "INT NOT NULL", "n": "INT NOT NULL"}, primary_key=["k"], options={"bucket": "1"}
    )
    with pytest.raises(InvalidInputError, match="must not be null"):
        table.write([{"k": 1, "n": None}])
    assert table.latest_snapshot() is None


def test_a_merge_that_would_leave_a_null_where_none_may_be_is_refused_and_leaves_nothing(kit):
    table = kit.lake.create_table(
        "d.v",
        {"k": "INT NOT NULL", "n": "INT NOT NULL"},
        primary_key=["k"],
        options={"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "last_value"},
    )
    with pytest.raises(InvalidInputError, match="NOT NULL"):
        table.write([{"k": 1, "n": 1, "rowkind": "+I"}, {"k": 1, "n": 1, "rowkind": "-U"}])
    assert table.latest_snapshot() is None
    assert not list(kit.io.list("d.db/v/bucket-0"))


# ------------------------------------------------------------------------------------------------ memory

_STREAM = """
import sys
import numpy as np, pyarrow as pa
import tidelake as tl

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024

def batches(count):
    rng = np.random.default_rng(1)
    for _ in range(count):
        keys = rng.integers(0, 2**62, 50_000)
        yield pa.record_batch({"k": keys, "v": pa.array(keys).cast(pa.string()), "w": keys, "x": keys})

columns = {"k": "BIGINT NOT NULL", "v": "STRING", "w": "BIGINT", "x": "BIGINT"}
options = {"bucket": "2", "write-buffer-size": "16 mb", "write-only": "true", "spill-compression": "none"}
table = tl.connect(sys.argv[1]).create_table("d.t", columns, primary_key=["k"], options=options)
table.write(batches(int(sys.argv[2])))
print(table.files()["row_count"].to_pylist(), peak())
"""


@pytest.mark.long
def test_six_times_the_rows_take_no_more_memory(tmp_path):
    found = []
    for count in (10, 60):
        command = [sys.executable, "-c", _STREAM, str(tmp_path / str(count)), str(count)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows, peak = answer.rsplit(" ", 1)
        assert sum(json.loads(rows)) == count * 50_000
        assert len(json.loads(rows)) == 2  # one file of level 0 for each bucket: the rows waited on disk
        found.append(int(peak))
    assert found[1] < found[0] + 96, found  # 130 MB of rows more; allocators keep now less, now more
