"""Tables whose keys move between partitions: one row per key whoever writes, and clear words where that is not so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kit.counting_io import CountedFileIO
from tidelake.catalog.filesystem import FileSystemCatalog
from tidelake.catalog.lake import Lake
from tidelake.errors import FormatError, InvalidInputError
from tidelake.io.env import Env
from tidelake.io.ids import SeededIds
from tidelake.ops.placement import cross_partition
from tidelake.ops.placement.cross_partition import MovingKeys
from tidelake.ops.placement.dynamic_buckets import Assigner
from tidelake.ops.placement.key_index import Digester, Digests, KeyIndex, Layer, sorted_layer
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.spec.types.data_types import BIGINT, STRING
from tidelake.table import Table, load_table
from tidelake.testing import FakeClock, MemoryFileIO

COLUMNS = {"dt": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}


def create(clock: FakeClock | None = None, **options: str) -> Table:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), clock or FakeClock(1_000, tick_ms=1), SeededIds(1))))
    return lake.create_table("d.t", COLUMNS, primary_key=["id"], partition_by=["dt"], options={"bucket": "-1", **given})


def rows(*facts: tuple[str, int, str]) -> list[dict[str, Any]]:
    return [{"dt": dt, "id": number, "v": v} for dt, number, v in facts]


def shown(table: Table) -> list[tuple[str, int, str]]:
    found = [(row["dt"], row["id"], row["v"]) for row in table.to_arrow().to_pylist()]
    return sorted(found, key=lambda row: row[1])


def other(table: Table) -> Table:
    """The same table as another job sees it."""
    return load_table(replace(table.store.env, ids=SeededIds(99)), table.name)


# ------------------------------------------------------------------------------------------------ one row per key


def test_a_key_that_moves_leaves_its_old_partition() -> None:
    table = create()
    table.write(rows(("a", 1, "x"), ("a", 2, "x")))
    table.write(rows(("b", 1, "y")))
    assert shown(table) == [("b", 1, "y"), ("a", 2, "x")]
    assert table.scan(where="dt = 'a'").to_arrow().column("id").to_pylist() == [2]


def test_why_tells_where_a_key_was_and_what_its_new_place_shows() -> None:
    table = create(write_only="true")
    for version in range(3):
        table.write(rows(("a", 1, f"a{version}")))
    table.write(rows(("b", 1, "b")))
    told = table.why({"id": 1})
    assert told.row == {"dt": "b", "id": 1, "v": "b"}
    where = [(each["kind"], each["dt"]) for each in told.versions.to_pylist()]
    assert where == [("+I", "a")] * 3 + [("-D", "a"), ("+I", "b")]
    table.delete("id = 1")
    assert table.why({"id": 1}).row is None


def test_the_bootstrap_sees_rows_of_level_0() -> None:
    table = create(write_only="true")
    table.write(rows(("a", 1, "x")))
    assert table.files().column("level").to_pylist() == [0]
    table.write(rows(("b", 1, "y")))
    assert shown(table) == [("b", 1, "y")]


def test_first_row_tables_know_keys_that_no_read_shows_yet() -> None:
    table = create(merge_engine="first-row", write_only="true")
    table.write(rows(("a", 1, "x")))
    table.write(rows(("b", 1, "y"), ("b", 2, "y")))
    table.compact()
    assert shown(table) == [("a", 1, "x"), ("b", 2, "y")]


def test_full_buckets_are_followed_by_new_ones_and_room_that_keys_leave_is_used_again() -> None:
    table = create(dynamic_bucket__target_row_num="2")
    table.write(rows(*(("a", n, "x") for n in range(5))))
    places = set(zip(*(table.files().column(name).to_pylist() for name in ("partition", "bucket")), strict=True))
    assert sorted(bucket for _, bucket in places) == [0, 1, 2]
    assert set(table.files().column("total_buckets").to_pylist()) == {-1}
    table.write(rows(("b", 0, "y"), ("b", 1, "y")))
    table.write(rows(("a", 10, "x"), ("a", 11, "x"), ("a", 12, "x")))
    entries = table.files()
    here = [
        bucket
        for partition, bucket in zip(*(entries.column(n).to_pylist() for n in ("partition", "bucket")), strict=True)
        if b"a" in partition
    ]
    assert max(here) == 2


def test_a_delete_takes_the_key_away_wherever_it_is() -> None:
    table = create()
    table.write(rows(("a", 1, "x"), ("a", 2, "x")))
    table.write([{"dt": "b", "id": 1, "v": None, "rowkind": "-D"}])
    assert shown(table) == [("a", 2, "x")]


def test_keys_with_partition_columns_in_them_are_told_apart() -> None:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    columns = {"c": "STRING NOT NULL", "dt": "STRING NOT NULL", "id": "INT NOT NULL"}
    table = lake.create_table("d.t", columns, primary_key=["c", "id"], partition_by=["c", "dt"])
    table.write([{"c": "x", "dt": "1", "id": 1}, {"c": "y", "dt": "1", "id": 1}])
    table.write([{"c": "x", "dt": "2", "id": 1}])
    found = sorted((row["c"], row["dt"]) for row in table.to_arrow().to_pylist())
    assert found == [("x", "2"), ("y", "1")]


def test_local_merging_is_left_out_because_the_first_row_of_a_key_may_decide() -> None:
    table = create(merge_engine="partial-update", local_merge_buffer_size="1 mb")
    table.write(rows(("a", 1, "x"), ("b", 1, "y")))
    assert shown(table) == [("a", 1, "y")]


# ------------------------------------------------------------------------------------------------ several jobs


def test_two_writers_of_one_key_do_not_double_it() -> None:
    table = create()
    first, second = table.new_write("one"), other(table).new_write("two")
    first.write(rows(("a", 1, "x")))
    second.write(rows(("b", 1, "y")))
    messages = second.prepare_commit(1)
    table.new_commit("one").commit(first.prepare_commit(1), identifier=1)
    other(table).new_commit("two").commit(messages, identifier=1)
    assert shown(table) == [("b", 1, "y")]
    assert table.check(rows=True).ok


def test_two_writers_of_different_keys_both_commit() -> None:
    table = create()
    first, second = table.new_write("one"), other(table).new_write("two")
    first.write(rows(("a", 1, "x")))
    second.write(rows(("a", 2, "y")))
    messages = second.prepare_commit(1)
    table.new_commit("one").commit(first.prepare_commit(1), identifier=1)
    other(table).new_commit("two").commit(messages, identifier=1)
    assert shown(table) == [("a", 1, "x"), ("a", 2, "y")]
    table.write(rows(("b", 1, "z"), ("b", 2, "z")))
    assert shown(table) == [("b", 1, "z"), ("b", 2, "z")]


@pytest.mark.parametrize("made", [list, iter], ids=["rows", "a stream of rows"])
def test_a_write_that_lost_the_race_for_a_key_puts_its_rows_where_the_key_is(
    made: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create()
    rival, settle, calls = other(table), MovingKeys.settle, []

    def late(self: MovingKeys, batch: pa.RecordBatch) -> Any:
        found = settle(self, batch)
        calls.append(1)
        if len(calls) == 1:
            rival.write(rows(("b", 1, "theirs")))
        return found

    monkeypatch.setattr(MovingKeys, "settle", late)
    table.write(made(rows(("a", 1, "ours"))))
    assert shown(table) == [("a", 1, "ours")]
    assert len(calls) == 2


def test_a_long_lived_writer_reads_the_keys_once_unless_another_job_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create()
    table.write(rows(("a", 0, "x")))
    loads: list[int] = []
    known = cross_partition.key_splits
    monkeypatch.setattr(cross_partition, "key_splits", lambda *given: loads.append(given[1].id) or known(*given))
    writer, commit = table.new_write("job"), table.new_commit("job")
    for number in range(1, 4):
        writer.write(rows(("abc"[number - 1], 0, str(number)), ("a", number, "x")))
        commit.commit(writer.prepare_commit(number), identifier=number)
        table.compact()
    assert len(loads) == 1
    other(table).write(rows(("z", 0, "theirs")))
    writer.write(rows(("q", 0, "ours")))
    commit.commit(writer.prepare_commit(9), identifier=9)
    assert len(loads) == 3
    assert shown(table)[0] == ("q", 0, "ours")
    assert len(shown(table)) == 4


def test_rows_that_wait_while_another_job_writes_are_known_again_when_the_next_are_committed() -> None:
    table = create()
    writer, commit = table.new_write("job"), table.new_commit("job")
    writer.write(rows(("a", 1, "x")))
    first = writer.prepare_commit(1)
    other(table).write(rows(("b", 2, "y")))
    writer.write(rows(("b", 1, "z"), ("c", 2, "z")))
    second = writer.prepare_commit(2)
    commit.commit(first, identifier=1)
    commit.commit(second, identifier=2)
    assert shown(table) == [("b", 1, "z"), ("c", 2, "z")]
    assert table.check(rows=True).ok


def test_rounds_that_are_prepared_before_the_first_is_committed_know_of_each_other() -> None:
    table = create()
    writer, commit = table.new_write("job"), table.new_commit("job")
    writer.write(rows(("a", 1, "x")))
    first = writer.prepare_commit(1)
    writer.write(rows(("b", 1, "y")))
    second = writer.prepare_commit(2)
    commit.commit(first, identifier=1)
    commit.commit(second, identifier=2)
    assert shown(table) == [("b", 1, "y")]


def test_a_key_that_is_twice_in_the_table_is_named_with_its_places() -> None:
    table = create()
    table.write(rows(("a", 1, "x")))
    # as a job that knows nothing of other partitions would write
    table.with_options({"bucket": "1"}).write(rows(("b", 1, "y")))
    with pytest.raises(FormatError) as caught:
        table.write(rows(("c", 2, "z")))
    assert caught.value.code == "key-twice"
    assert {caught.value.facts["first"], caught.value.facts["second"]} == {"dt=a/bucket-0", "dt=b/bucket-0"}


# ------------------------------------------------------------------------------------------------ overwrites


def test_an_overwrite_of_all_starts_from_no_key() -> None:
    table = create()
    table.write(rows(("a", 1, "x"), ("a", 2, "x")))
    table.write(rows(("b", 1, "y"), ("c", 1, "z")), mode="overwrite")
    assert shown(table) == [("c", 1, "z")]


@pytest.mark.parametrize("how", [{"mode": "overwrite", "partition": {"dt": "b"}}, {"mode": "overwrite-dynamic"}])
def test_an_overwrite_of_a_partition_does_not_double_keys_of_others(how: dict[str, Any]) -> None:
    table = create()
    table.write(rows(("a", 1, "x"), ("b", 2, "x")))
    with pytest.raises(InvalidInputError) as caught:
        table.write(rows(("b", 1, "y")), **how)
    assert caught.value.code == "key-elsewhere"
    table.write(rows(("b", 3, "y")), **how)
    assert shown(table) == [("a", 1, "x"), ("b", 3, "y")]


# ------------------------------------------------------------------------------------------------ rules


def test_sequence_fields_and_ignored_deletions_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="sequence field"):
        create(sequence__field="v")
    table = create(ignore_delete="true")
    with pytest.raises(InvalidInputError, match="could not leave its partition"):
        table.write(rows(("a", 1, "x")))


def test_an_update_moves_rows_only_where_keys_can_move() -> None:
    table = create()
    table.write(rows(("a", 1, "x"), ("a", 2, "x")))
    assert table.update({"dt": "'b'"}, "id = 1").rows == 1
    assert shown(table) == [("b", 1, "x"), ("a", 2, "x")]
    for options in ({"merge_engine": "partial-update"}, {"bucket": "2"}):
        with pytest.raises(InvalidInputError, match="cannot move to another partition"):
            create(**options).update({"dt": "'b'"}, "id = 1")


def test_the_index_forgets_keys_of_old_files() -> None:
    clock = FakeClock(1_000)
    table = create(clock, cross_partition_upsert__index_ttl="1 h")
    table.write(rows(("a", 1, "x")))
    clock.advance(7200)
    table.write(rows(("b", 1, "y"), ("b", 2, "y")))
    assert [row[1] for row in shown(table)] == [1, 1, 2]


# ------------------------------------------------------------------------------------------------ the index


def digests(numbers: Any) -> Digests:
    digester = Digester(("k",), (BIGINT,), (1, 2))
    return digester.digests(pa.record_batch({"k": pa.array(np.asarray(list(numbers), np.int64))}))


@pytest.mark.parametrize("limit", [1, 1 << 30], ids=["on disk", "in memory"])
def test_the_index_tells_the_newest_place_of_every_key(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.ops.placement.key_index._CHUNK_KEYS", 100)
    index = KeyIndex(limit)
    base = digests(range(1000))
    assert (
        len(index.load([sorted_layer(base[:600], np.arange(600)), sorted_layer(base[600:], np.arange(600, 1000))])) == 0
    )
    assert index.counts() == dict.fromkeys(range(1000), 1)
    wanted = {number: number for number in range(1000)}
    for number in range(40):
        changed = range(number * 13, number * 13 + 37)
        keys = digests(changed)
        layer = sorted_layer(keys, np.full(37, 10_000 + number))
        index.put(layer)
        wanted |= dict.fromkeys(changed, 10_000 + number)
    found = index.find(digests(range(1100))).tolist()
    assert found == [wanted.get(number, -1) for number in range(1100)]
    assert all(layer.in_memory for layer in index._layers) == (limit > 1)


def test_keys_that_share_half_of_their_digest_are_different() -> None:
    high, low = np.array([5, 5, 5, 9], np.uint64), np.array([1, 2, 3, 2], np.uint64)
    layer = Layer(Digests(high, low), np.arange(4))
    index = KeyIndex(1 << 20)
    index.put(layer)
    wanted = Digests(np.array([5, 5, 5, 9, 9], np.uint64), np.array([3, 1, 4, 2, 1], np.uint64))
    assert index.find(wanted).tolist() == [2, 0, -1, 3, -1]


def test_keys_that_are_loaded_twice_come_back() -> None:
    index = KeyIndex(1 << 20)
    one, two = sorted_layer(digests([1, 2]), np.array([10, 20])), sorted_layer(digests([2, 3]), np.array([30, 40]))
    twice = index.load([one, two])
    assert sorted(twice.places.tolist()) == [20, 30]


def test_digests_of_texts_and_of_several_columns_differ() -> None:
    digester = Digester(("a", "b"), (STRING, STRING), (1, 2))
    found = digester.digests(pa.record_batch({"a": ["x", "xy", "x", "x" * 50], "b": ["yz", "z", "yz", ""]}))
    firsts, numbers = found.group_keys()
    assert len(firsts) == 3
    assert numbers[0] == numbers[2]


# ------------------------------------------------------------------------------------------------ several owners


def test_an_owner_fills_its_own_buckets_and_those_that_keys_live_in() -> None:
    table = create(dynamic_bucket__target_row_num="2")
    table.write(rows(*(("a", number, "x") for number in range(5))))
    latest = table.latest_snapshot()
    splits = cross_partition.key_splits(table.context, latest)
    known = list(cross_partition.read_keys(table.context, splits))
    assert sorted({bucket for _, bucket, _ in known}) == [0, 1, 2]
    owner = MovingKeys(
        table.context,
        None,
        assigner=Assigner(id=1, assigners=2, channels=2),
        known=iter(known),
    )
    owner.load()
    batch = pa.RecordBatch.from_pylist([{**row, "_VALUE_KIND": 0} for row in rows(*(("a", n, "y") for n in range(9)))])
    batch = batch.set_column(3, "_VALUE_KIND", batch.column(3).cast(pa.int8()))
    _, _, buckets = owner.settle(batch)
    assert buckets[:5].tolist() == [0, 0, 1, 1, 2]  # where they live
    assert buckets[5:].tolist() == [3, 3, 5, 5]  # bucket 1 is full, and the even ones are another's, room or not


def test_rows_that_others_have_settled_are_written_as_they_are() -> None:
    table = create()
    writer = KeyedTableWriter(table.context, base_id=0)
    batch = pa.RecordBatch.from_pylist(rows(("a", 1, "x"), ("b", 1, "x"), ("a", 2, "x")))
    writer.write(batch, None, np.array([4, 0, 7]))
    assert sorted(bucket for _, bucket in writer.places) == [0, 4, 7]
    messages = writer.prepare()
    assert sorted(message.bucket for message in messages) == [0, 4, 7]
    assert {message.base_snapshot_id for message in messages} == {0}


# ------------------------------------------------------------------------------------------------ rows that were found


def many(io: CountedFileIO, **options: str) -> Table:
    """Twenty partitions with keys of their own, and the storage counts from here on."""
    lake = Lake(FileSystemCatalog(Env(io, FakeClock(1_000, tick_ms=1), SeededIds(1))))
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    table = lake.create_table(
        "d.t", COLUMNS, primary_key=["id"], partition_by=["dt"], options={"bucket": "-1", **given}
    )
    table.write(rows(*((f"p{n // 500}", n, f"value {n * 7919}") for n in range(10_000))))
    if not options:
        table.compact(full=True)
    io.reads.clear()
    io.ops.clear()
    return table


def partitions_read(io: CountedFileIO) -> set[str]:
    """The partitions whose data files were opened."""
    found = (part for read in io.reads for part in read.path.split("/") if part.startswith("dt="))
    return {part.removeprefix("dt=") for part in found}


CHANGES: dict[str, Callable[[Table], Any]] = {
    "delete": lambda table: table.delete("id = 1501"),
    "delete in a partition": lambda table: table.delete("dt = 'p3' and v like 'value 1%'"),
    "update": lambda table: table.update({"v": "'new'"}, "id between 1500 and 1510"),
    "update to where rows are": lambda table: table.update({"dt": "'p3'"}, "id = 1501"),
    "move": lambda table: table.update({"dt": "'p9'"}, "id = 1501"),
    "move to a new partition": lambda table: table.update({"dt": "'new'"}, "id = 1501"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("options", [{}, {"write_only": "true"}], ids=["compacted", "level 0"])
def test_a_change_reads_what_its_condition_selects_and_not_the_keys_of_the_table(
    name: str, options: dict[str, str]
) -> None:
    io = CountedFileIO(MemoryFileIO())
    table = many(io, **options)
    total = sum(table.files().column("file_size").to_pylist())
    assert CHANGES[name](table).rows > 0
    assert partitions_read(io) == {"p3"}
    assert io.bytes_read < total / 5
    assert table.check(rows=True).ok


def test_writes_of_rows_that_were_not_found_still_know_every_key() -> None:
    io = CountedFileIO(MemoryFileIO())
    table = many(io)
    table.write(rows(("new", 1501, "moved")))
    assert len(partitions_read(io)) == 20
    assert table.scan(where="id = 1501").to_arrow().column("dt").to_pylist() == ["new"]


MOVE = rows(("b", 1, "theirs"))
RIVALS: dict[str, tuple[Callable[[Table], Any], int]] = {
    "moves the key": (lambda rival: rival.write(MOVE), 2),
    "moves the key by an update": (lambda rival: rival.update({"dt": "'b'", "v": "'theirs'"}, "id = 1"), 2),
    "changes the key": (lambda rival: rival.write(rows(("a", 1, "theirs"))), 2),
    "deletes the key": (lambda rival: rival.delete("id = 1"), 2),
    "drops the partition": (lambda rival: rival.drop_partitions("dt = 'a'"), 2),
    "replaces the table": (lambda rival: rival.write(MOVE, mode="overwrite"), 2),
    "writes another key beside it": (lambda rival: rival.write(rows(("a", 7, "theirs"))), 1),
    "moves another key there": (lambda rival: rival.write(rows(("a", 3, "theirs"))), 1),
    "compacts": (lambda rival: rival.compact(full=True), 1),
}
VERBS: dict[str, Callable[[Table], Any]] = {
    "delete": lambda table: table.delete("id = 1"),
    "delete there": lambda table: table.delete("dt = 'a' and id = 1"),
    "update": lambda table: table.update({"v": "concat(v, '!')"}, "id = 1"),
    "update there": lambda table: table.update({"v": "concat(v, '!')"}, "dt = 'a' and id = 1"),
    "move": lambda table: table.update({"dt": "'c'", "v": "concat(v, '!')"}, "id = 1"),
}


@pytest.mark.parametrize("when", ["before it writes", "before it commits"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("rival", RIVALS)
def test_a_change_that_lost_the_race_for_its_rows_is_planned_again(
    rival: str, verb: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, plans = RIVALS[rival]
    tables = [create(write_only="true") for _ in range(2)]
    for table in tables:
        table.write(rows(("a", 1, "x"), ("a", 2, "x"), ("b", 3, "x")))
    raced, one_after_the_other = tables
    act(other(one_after_the_other))
    VERBS[verb](one_after_the_other)
    calls: list[int] = []
    patched = "write" if when == "before it writes" else "prepare"
    original = getattr(KeyedTableWriter, patched)

    def late(self: KeyedTableWriter, *given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            monkeypatch.setattr(KeyedTableWriter, patched, original)
            act(other(raced))
            monkeypatch.setattr(KeyedTableWriter, patched, late)
        return original(self, *given, **named)

    monkeypatch.setattr(KeyedTableWriter, patched, late)
    VERBS[verb](raced)
    monkeypatch.undo()
    assert shown(raced) == shown(one_after_the_other)
    assert raced.check(rows=True).ok
    if when == "before it commits":
        assert len(calls) == plans


@pytest.mark.parametrize("rival", [name for name in RIVALS if name != "compacts"])
def test_a_write_that_was_planned_before_another_change_comes_after_it(rival: str) -> None:
    act, _ = RIVALS[rival]
    tables = [create() for _ in range(2)]
    for table in tables:
        table.write(rows(("a", 1, "x"), ("a", 2, "x"), ("b", 3, "x")))
    raced, one_after_the_other = tables
    late = other(raced).new_write("two")
    late.write(rows(("c", 1, "y"), ("a", 4, "y")))
    messages = late.prepare_commit(1)
    for table in tables:
        act(other(table))
    other(raced).new_commit("two").commit(messages, identifier=1)
    one_after_the_other.write(rows(("c", 1, "y"), ("a", 4, "y")))
    assert shown(raced) == shown(one_after_the_other)
    assert raced.check(rows=True).ok


def test_a_deletion_that_was_planned_before_its_key_moved_takes_it_away_there() -> None:
    table = create()
    table.write(rows(("a", 1, "x"), ("a", 2, "x")))
    late = other(table).new_write("two")
    late.write([{"dt": "a", "id": 1, "v": "x", "rowkind": "-D"}])
    messages = late.prepare_commit(1)
    table.write(rows(("b", 1, "y")))
    other(table).new_commit("two").commit(messages, identifier=1)
    assert shown(table) == [("a", 2, "x")]


def test_a_key_that_the_index_forgot_is_deleted_where_it_is() -> None:
    clock = FakeClock(1_000)
    table = create(clock, cross_partition_upsert__index_ttl="1 h", dynamic_bucket__target_row_num="1")
    table.write(rows(("a", 1, "x"), ("a", 2, "x"), ("a", 3, "x")))
    clock.advance(7200)
    assert table.delete("id = 3").rows == 1
    assert table.update({"v": "'y'"}, "id = 2").rows == 1
    assert shown(table) == [("a", 1, "x"), ("a", 2, "y")]


def test_a_key_that_is_twice_in_the_table_can_be_deleted_and_is_not_moved() -> None:
    table = create()
    table.write(rows(("a", 1, "x")))
    table.with_options({"bucket": "1"}).write(rows(("b", 1, "y")))
    with pytest.raises(FormatError) as caught:
        table.update({"dt": "'c'"}, "id = 1")
    assert caught.value.code == "key-twice"
    assert {caught.value.facts["first"], caught.value.facts["second"]} == {"dt=a/bucket-0", "dt=b/bucket-0"}
    assert table.delete("dt = 'a' and id = 1").rows == 1
    table.write(rows(("c", 1, "z")))
    assert shown(table) == [("c", 1, "z")]


def test_rows_without_a_partition_are_found_and_come_back() -> None:
    lake = Lake(FileSystemCatalog(Env(MemoryFileIO(), FakeClock(1_000, tick_ms=1), SeededIds(1))))
    table = lake.create_table(
        "d.t", {**COLUMNS, "dt": "STRING"}, primary_key=["id"], partition_by=["dt"], options={"bucket": "-1"}
    )
    table.write([{"dt": None, "id": number, "v": "x"} for number in range(4)])
    table.update({"v": "'y'"}, "id = 1")
    table.update({"dt": "'a'"}, "id in (1, 2)")
    table.update({"dt": "null"}, "id = 2")
    table.delete("id = 3")
    assert shown(table) == [(None, 0, "x"), ("a", 1, "y"), (None, 2, "x")]
    assert table.check(rows=True).ok


def test_rows_that_move_fill_the_buckets_that_have_room() -> None:
    table = create(dynamic_bucket__target_row_num="2", write_only="true")
    table.write(rows(*(("a", n, "x") for n in range(3)), *(("b", n, "x") for n in range(10, 16))))
    assert table.update({"dt": "'a'"}, "dt = 'b'").rows == 6
    table.compact(full=True)
    entries = table.files().to_pylist()
    here = sorted((each["bucket"], each["row_count"]) for each in entries if b"a" in each["partition"])
    assert here == [(0, 2), (1, 2), (2, 2), (3, 2), (4, 1)]
