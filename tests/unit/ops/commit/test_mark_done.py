"""Marking partitions done."""

from __future__ import annotations

import pytest

from kit.small_tables import message, new_table
from tidelake.errors import InvalidInputError
from tidelake.ops.commit.mark_done import mark_done
from tidelake.spec.documents.success import Success, success_from_json
from tidelake.spec.layout import TableLayout
from tidelake.testing import FakeClock, MemoryFileIO


def read(io, path) -> Success:
    return success_from_json(io.read(path), path=path)


def test_a_mark_keeps_the_time_of_the_first_and_renews_the_other():
    io, clock = MemoryFileIO(), FakeClock(100)
    assert mark_done(io, TableLayout(), ["dt=d1", "dt=d2"], clock) == ["dt=d1/_SUCCESS", "dt=d2/_SUCCESS"]
    clock.sleep(5)
    mark_done(io, TableLayout(), ["dt=d1"], clock)
    first = read(io, "dt=d1/_SUCCESS")
    assert first.modification_time_ms == first.creation_time_ms + 5_000
    assert read(io, "dt=d2/_SUCCESS").creation_time_ms == first.creation_time_ms


@pytest.mark.parametrize("damaged", [b"", b"{", b"x" * (1 << 17), b'{"creationTime":"a"}'])
def test_a_damaged_mark_is_replaced(damaged):
    io, clock = MemoryFileIO(), FakeClock(100)
    io.write("dt=d1/_SUCCESS", damaged)
    mark_done(io, TableLayout(), ["dt=d1"], clock)
    assert read(io, "dt=d1/_SUCCESS").creation_time_ms == clock.now_ms()


def test_a_path_that_leads_elsewhere_is_refused():
    with pytest.raises(InvalidInputError):
        mark_done(MemoryFileIO(), TableLayout(), ["../dt=d1"], FakeClock(1))


def test_only_a_batch_commit_with_the_option_marks_its_partitions():
    table = new_table(partition__end_input_to_done="true")
    commit = table.new_commit("u")
    commit.commit([message("a"), message("b", dt=None)])
    io = table.store.env.io
    assert io.exists("dt=d1/_SUCCESS")
    assert io.exists("dt=__DEFAULT_PARTITION__/_SUCCESS")
    commit.commit([message("c", dt="d3")], identifier=1)
    assert not io.exists("dt=d3/_SUCCESS")
    plain = new_table()
    plain.new_commit("u").commit([message("a")])
    assert not plain.store.env.io.exists("dt=d1/_SUCCESS")
