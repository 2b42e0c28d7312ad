"""A compaction of its own while others write: what it follows, what it costs, and what it does when it is overtaken."""

from __future__ import annotations

import threading  # noqa: TID251 - other jobs
from dataclasses import replace

import pytest

import tidelake as tl
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import CommitConflictError, FormatError, InvalidInputError, UnsupportedError
from tidelake.io.env import Env
from tidelake.ops.commit.messages import CompactIncrement
from tidelake.ops.compact.buckets import Choice
from tidelake.ops.compact.dedicated import DedicatedCompaction, Round, TableToCompact
from tidelake.table import Table
from tidelake.testing import FakeClock, FaultyFileIO, MemoryFileIO, Op, TracingFileIO

COLUMNS = {"k": "INT NOT NULL", "dt": "STRING NOT NULL", "v": "BIGINT"}


def make(io: object = None, **options: str) -> Table:
    env = Env(io or MemoryFileIO(), clock=FakeClock(tick_ms=1))
    given = {"bucket": "2", "write-only": "true", **options}
    return Lake(FileSystemCatalog(env)).create_table(
        "d.t", COLUMNS, primary_key=["k", "dt"], partition_by=["dt"], options=given
    )


def write(table: Table, turn: int, *, partitions: str = "a", keys: int = 20) -> None:
    table.write([{"k": key, "dt": dt, "v": turn} for dt in partitions for key in range(keys)])


def job(table: Table, choice: Choice | None = None) -> DedicatedCompaction:
    """The job itself, to be led round by round."""
    user = "compactor"

    def desk() -> TableToCompact:
        opened = table._newest()
        return TableToCompact(opened.context, opened._committer(user, expires=True))

    return DedicatedCompaction(desk, choice or Choice())


def runs(table: Table) -> dict[tuple[str, int], int]:
    found = table.inspect.lsm().to_pylist()
    return {(row["partition"], row["bucket"]): row["sorted_runs"] for row in found}


def content(table: Table) -> list[str]:
    return sorted(map(repr, table.to_arrow().to_pylist()))


def knows_exactly(compaction: DedicatedCompaction, table: Table) -> bool:
    """Whether the known buckets hold exactly the files that are live in them."""
    files = table.files()
    columns = (files[name].to_pylist() for name in ("partition", "bucket", "level", "file_name"))
    live = {row for row in zip(*columns, strict=True) if row[:2] in compaction._trees}
    known = {(*place, f.level, f.name) for place, tree in compaction._trees.items() for f in tree.levels.files}
    return known == live


def kinds(table: Table) -> list[tuple[str, bool]]:
    """The kind of every snapshot, and whether the job made it."""
    found = [table.snapshot(each) for each in table.store.snapshots.ids()]
    return [(each.commit_kind.value, each.commit_user == "compactor") for each in found]


# ------------------------------------------------------------------------------------------------ following


def test_a_snapshot_that_expires_while_its_changes_are_read_does_not_end_the_job() -> None:
    memory = MemoryFileIO()
    armed: list[bool] = []

    def expire_all(op: Op) -> None:
        if armed and op.name == "read" and "/manifest/manifest-list-" in op.path:
            armed.clear()
            other = Lake(FileSystemCatalog(Env(memory, clock=FakeClock(tick_ms=1)))).table("d.t")
            write(other, 3)
            other.expire_snapshots(retain_max=1, retain_min=1)

    table = make(FaultyFileIO(memory, expire_all))
    compaction = job(table)
    write(table, 1)
    compaction.round()
    write(table, 2)
    armed.append(True)
    compaction.round()
    assert not armed
    compaction.round()
    assert knows_exactly(compaction, table)
    assert {row["v"] for row in table.to_arrow().to_pylist()} == {3}


def test_runs_stay_few_while_others_only_write():
    table = make()
    compaction = job(table)
    for turn in range(16):
        write(table, turn, partitions="ab" if turn % 2 else "a", keys=6)
        compaction.round()
        assert max(runs(table).values()) <= 6
        assert knows_exactly(compaction, table)
    assert set(table.to_arrow()["v"].to_pylist()) == {15}
    assert table.count() == 12
    assert not table.check(rows=True).findings
    assert all(kind == ("COMPACT" if ours else "APPEND") for kind, ours in kinds(table))
    assert ("COMPACT", True) in kinds(table)


def test_what_lies_there_when_it_starts_is_compacted_too():
    table = make()
    for turn in range(8):
        write(table, turn, partitions="ab")
    done = job(table).round()
    assert (done.compacted, done.commits, done.snapshot_id) == (4, 1, 8)
    assert set(runs(table).values()) == {1}


def test_it_starts_after_the_newest_compaction():
    io = TracingFileIO(MemoryFileIO())
    table = make(io)
    for turn in range(8):
        write(table, turn)
    table.compact()
    for turn in range(5):
        write(table, turn, partitions="b")
    compaction = job(table)
    done = compaction.round()
    assert (done.compacted, compaction.known_count) == (2, 2)  # the buckets of `a` have no news and are not even opened


def test_a_table_without_snapshots_is_waited_for():
    table = make()
    compaction = job(table)
    assert compaction.round() == Round()
    for turn in range(6):
        write(table, turn)
    assert compaction.round().compacted == 2


def test_an_idle_round_reads_no_manifest_and_no_list():
    io = TracingFileIO(MemoryFileIO())
    table = make(io)
    for turn in range(8):
        write(table, turn)
    compaction = job(table)
    compaction.round()
    compaction.round()  # sees its own commit
    start = len(io.ops)
    assert compaction.round().is_idle
    assert not [op.path for op in io.ops[start:] if "manifest" in op.path or "bucket-" in op.path]


def test_a_round_costs_by_what_was_written_and_not_by_the_size_of_the_table():
    def cost(partitions: int) -> int:
        io = TracingFileIO(MemoryFileIO())
        table = make(io, **{"manifest.merge-min-count": "1000"})
        for number in range(partitions):
            table.write([{"k": 1, "dt": f"p{number}", "v": 1}])
        write(table, 0)
        compaction = job(table)
        compaction.round()
        write(table, 1)
        start = len(io.ops)
        compaction.round()
        return sum("manifest/" in op.path for op in io.ops[start:])

    assert cost(20) == cost(2) <= 4


def test_the_next_look_after_work_is_at_once_and_else_after_the_interval():
    table = make()
    clock = table.store.env.clock
    assert isinstance(clock, FakeClock)
    for turn in range(8):
        write(table, turn)
    clock.slept.clear()
    told: list[Round] = []
    done = table.keep_compacted(max_rounds=4, interval="30 s", progress=told.append)
    assert [round_.compacted for round_ in told] == [2, 0, 0, 0]
    assert (done.rounds, done.compacted, done.commits, done.snapshot_id) == (4, 2, 1, 9)
    assert clock.slept == pytest.approx([30, 30])


# ------------------------------------------------------------------------------------------------ ending


def test_it_ends_at_the_moment_it_is_told():
    table = make()
    clock = table.store.env.clock
    until = clock.now_ms() + 95_000
    done = table.keep_compacted(until=until, interval="30 s")
    assert done.rounds == 4
    assert until <= clock.now_ms() < until + 1_000


def test_it_ends_when_an_event_is_set():
    table = make()
    stop = threading.Event()
    seen: list[Round] = []

    def told(done: Round) -> None:
        seen.append(done)
        if len(seen) == 3:
            stop.set()

    assert table.keep_compacted(stop=stop, progress=told).rounds == 3


def test_an_event_is_answered_long_before_the_interval_is_over(tmp_path):
    table = tl.connect(tmp_path).create_table("d.t", {"k": "INT NOT NULL"}, primary_key=["k"], options={"bucket": "1"})
    stop = threading.Event()
    thread = threading.Thread(target=lambda: table.keep_compacted(stop=stop, interval="1 h"))
    thread.start()
    stop.set()
    thread.join(timeout=20)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "how", [{"max_rounds": 0}, {"interval": 0}, {"interval": "soon"}, {"where": "v = 1"}], ids=repr
)
def test_what_cannot_be_meant_is_refused(how):
    with pytest.raises(InvalidInputError):
        make().keep_compacted(**{"max_rounds": 1, **how})


def test_append_tables_are_left_to_the_other_verb():
    table = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock=FakeClock()))).create_table("d.a", {"k": "INT"})
    with pytest.raises(UnsupportedError, match="primary-key") as caught:
        table.keep_compacted(max_rounds=1)
    assert "compact()" in (caught.value.hint or "")


def test_only_the_chosen_partitions_are_looked_after():
    table = make()
    for turn in range(8):
        write(table, turn, partitions="ab")
    table.keep_compacted("dt = 'b'", max_rounds=2)
    assert runs(table) == {("dt=a", 0): 8, ("dt=a", 1): 8, ("dt=b", 0): 1, ("dt=b", 1): 1}


def test_snapshots_that_are_due_expire_after_its_commits():
    table = make(**{"snapshot.num-retained.max": "3", "snapshot.num-retained.min": "1"})
    for turn in range(8):
        write(table, turn)
    table.keep_compacted(max_rounds=1)
    assert table.store.snapshots.earliest_id() == 7


# ------------------------------------------------------------------------------------------------ surprises


def test_snapshots_that_expired_unseen_make_it_look_at_everything():
    table = make()
    compaction = job(table)
    write(table, 0)
    compaction.round()
    for turn in range(8):
        write(table, turn, partitions="ab")
    table.expire_snapshots(retain_max=1, retain_min=1)
    done = compaction.round()
    assert done.compacted == 4
    assert set(runs(table).values()) == {1}
    assert table.count() == 40


def test_a_rollback_makes_it_look_at_everything():
    table = make()
    compaction = job(table)
    for turn in range(4):
        write(table, turn)
    compaction.round()
    table.rollback_to(snapshot=2)
    for turn in range(4):
        write(table, 10 + turn)
    before = content(table)
    assert compaction.round().compacted == 2
    assert content(table) == before
    assert table.check(deep=True, rows=True).ok  # what was rolled back lies about as orphans


@pytest.mark.parametrize("other", ["compact", "overwrite", "truncate", "rescale", "delete"])
def test_what_other_jobs_do_between_two_rounds_is_seen(other):
    table = make()
    compaction = job(table)
    for turn in range(4):
        write(table, turn)
    compaction.round()
    if other == "compact":
        table.compact(full=True)
    elif other == "overwrite":
        table.write([{"k": 1, "dt": "a", "v": 5}], mode="overwrite", partition={"dt": "a"})
    elif other == "truncate":
        table.truncate()
    elif other == "rescale":
        table.rescale(3)
        table = table.set_options({"bucket": 3})
    else:
        table.delete("k < 10")
    assert compaction.round().overtaken == 0
    assert knows_exactly(compaction, table)
    for turn in range(5):
        write(table, 10 + turn)
    before = content(table)
    compaction.round()
    assert knows_exactly(compaction, table)
    assert content(table) == before
    assert max(runs(table).values()) <= 5
    assert not table.check(deep=True, rows=True).findings


def test_a_compaction_that_another_job_overtakes_is_given_up_and_the_bucket_looked_at_again(monkeypatch):
    table = make()
    compaction = job(table)
    for turn in range(8):
        write(table, turn)
    before = content(table)
    compact = table.compact
    stolen: list[object] = []

    def steal(opened: TableToCompact) -> TableToCompact:
        """The job is about to commit when another one compacts bucket 0."""
        commit = opened.committer.commit

        def late(committable, **how):
            if not stolen:
                stolen.append(compact(full=True, buckets=[0]))
            return commit(committable, **how)

        monkeypatch.setattr(opened.committer, "commit", late)
        return opened

    open_table = compaction.open_table
    compaction.open_table = lambda: steal(open_table())
    first = compaction.round()
    assert (first.compacted, first.overtaken) == (1, 1)
    assert content(table) == before
    assert set(runs(table).values()) == {1}
    assert compaction.round().overtaken == 0
    for turn in range(5):
        write(table, 20 + turn)
    assert compaction.round().compacted == 2
    assert not table.check(deep=True, rows=True).findings


def test_a_sorted_run_never_gets_overlapping_files_from_two_compactions():
    """The rule that keeps two compactions apart when neither took a file of the other."""
    table = make(bucket="1")
    for turn in range(2):
        write(table, turn)
    plan = table.compact(full=True, plan_only=True)
    (due,) = plan.rewrites
    first, second = (replace(file, level=5) for file in due.files)
    writer = table.new_commit()
    message = replace_message(due, (due.files[0],), (first,))
    writer.commit([message])
    with pytest.raises(CommitConflictError, match="overlapping files") as caught:
        table.new_commit().commit([replace_message(due, (due.files[1],), (second,))])
    assert caught.value.code == "key-range"


def replace_message(due, before, after):
    from tidelake.ops.commit.messages import CommitMessage

    split = due.split
    return CommitMessage(
        partition=split.partition,
        bucket=split.bucket,
        total_buckets=split.total_buckets,
        compact=CompactIncrement(before=before, after=after),
    )


def test_a_column_that_writers_add_meanwhile_is_kept():
    table = make()
    compaction = job(table)
    for turn in range(4):
        write(table, turn)
    compaction.round()
    newer = table.alter(add={"w": "INT"})
    for turn in range(4):
        newer.write([{"k": key, "dt": "a", "v": turn, "w": key} for key in range(20)])
    assert compaction.round().compacted == 2
    assert sorted(newer.to_arrow()["w"].to_pylist()) == list(range(20))


def test_a_damaged_file_ends_the_job_with_an_error_and_leaves_nothing_behind():
    table = make()
    for turn in range(8):
        write(table, turn)
    files = table.files()
    place = table.paths.bucket(files["partition"][0].as_py(), files["bucket"][0].as_py())
    table.store.env.io.delete(f"{place}/{files['file_name'][0].as_py()}")
    with pytest.raises(FormatError, match="missing"):
        table.keep_compacted(max_rounds=1)
    io = table.store.env.io
    assert sum(len(list(io.list(f"dt=a/bucket-{bucket}"))) for bucket in (0, 1)) == 15


def test_dynamic_buckets_are_followed_as_well():
    table = make(bucket="-1", **{"dynamic-bucket.target-row-num": "8"})
    compaction = job(table)
    for turn in range(12):
        write(table, turn, keys=20 + turn)
        compaction.round()
    assert max(runs(table).values()) <= 6
    assert len(runs(table)) == 4
    assert table.count() == 31


def test_due_by_time_alone_is_seen_without_news():
    table = make(**{"compaction.optimization-interval": "1 h"})
    clock = table.store.env.clock
    compaction = job(table)
    write(table, 0)
    compaction.round()
    write(table, 1)
    while not compaction.round().is_idle:
        pass
    write(table, 2)
    compaction.round()
    assert max(runs(table).values()) == 2
    clock.advance(7_200)
    assert compaction.round().compacted == 2
    assert set(runs(table).values()) == {1}


# ------------------------------------------------------------------------------------------------ all at once


def test_writers_in_threads_and_the_job_beside_them_lose_nothing(tmp_path):
    """Three write-only writers on shared and on own partitions, and the job: every row is there, once."""
    lake = tl.connect(tmp_path, storage={"durability": "none"})
    options = {"bucket": "2", "write-only": "true", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    lake.create_table("d.t", COLUMNS, primary_key=["k", "dt"], partition_by=["dt"], options=options)
    stop, errors, most = threading.Event(), [], []

    def guarded(act) -> threading.Thread:
        def run() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001 - told to the test
                errors.append(error)

        return threading.Thread(target=run)

    def writing(number: int):
        def act() -> None:
            table = tl.connect(tmp_path, storage={"durability": "none"}).table("d.t")
            for _ in range(8):
                rows = [{"k": key, "dt": dt, "v": 1} for dt in ("a", f"own{number}") for key in range(10)]
                table.write(rows)

        return act

    def compacting() -> None:
        table = tl.connect(tmp_path, storage={"durability": "none"}).table("d.t")
        done = table.keep_compacted(stop=stop, interval="10 ms")
        most.append(done)

    writers = [guarded(writing(number)) for number in range(3)]
    compactor = guarded(compacting)
    for each in (*writers, compactor):
        each.start()
    for each in writers:
        each.join()
    table = lake.table("d.t")
    table.keep_compacted(max_rounds=1)  # and a second job at the same time
    stop.set()
    compactor.join()
    assert not errors
    table.keep_compacted(max_rounds=3, interval="1 ms")
    found = {(row["dt"], row["k"]): row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {
        **{("a", key): 24 for key in range(10)},
        **{(f"own{number}", key): 8 for number in range(3) for key in range(10)},
    }
    assert max(runs(table).values()) <= 6
    assert most[0].commits > 0
    assert table.check(rows=True).ok
