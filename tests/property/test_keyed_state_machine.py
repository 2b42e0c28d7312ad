"""The machine of `keyed_machine.py`, run on a few examples."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidelake as tl
from property.keyed_machine import ENGINES, KeptTable, KeyedTable, Values, rows

TestKeyedTable = KeyedTable.TestCase
TestKeptTable = KeptTable.TestCase
TestKeyedTable.settings = TestKeptTable.settings = settings(
    max_examples=10, stateful_step_count=10, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@settings(max_examples=6, deadline=None)
@given(engine=st.sampled_from(list(ENGINES)), first=rows, second=rows, third=rows, write_only=st.booleans())
def test_of_writers_whose_work_overlaps_the_later_commit_is_the_newer_one(
    engine: str, first: Values, second: Values, third: Values, write_only: bool
) -> None:
    machine = KeyedTable()
    machine.create(engine, "1", "5", False, write_only, "parquet")
    machine.write(first, "table", False)
    machine.two_writers(first, second, False)
    machine.the_newest_snapshot_shows_the_model()
    machine.two_writers(third, first, True)
    machine.the_newest_snapshot_shows_the_model()
    fresh = [each for each in machine.table.check().findings if each.invariant == "I5"]
    assert fresh == []
    machine.compact(True, "table")
    machine.teardown()


def test_a_key_has_one_row_whatever_was_written() -> None:
    table = tl.connect("memory://one-row").create_table(
        "d.t", {"k": "INT NOT NULL", "v": "INT"}, primary_key=["k"], options={"bucket": "1"}
    )
    for number in range(7):
        table.write([{"k": 1, "v": number}, {"k": number, "v": -number}])
    assert sorted(table.to_arrow()["k"].to_pylist()) == list(range(7))


def test_a_deletion_outlives_compactions_as_long_as_an_older_version_lies_below() -> None:
    table = tl.connect("memory://below").create_table(
        "d.t",
        {"k": "INT NOT NULL", "v": "INT"},
        primary_key=["k"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "3"},
    )
    table.write([{"k": key, "v": key} for key in range(20_000)])
    table.compact(full=True)
    for key in range(8):
        table.write([{"k": key, "v": key, "rowkind": "-D"}])
    levels = set(table.inspect.lsm()["level"].to_pylist())
    assert levels - {0, 5}, f"no compaction stopped above the old rows: {levels}"
    assert table.count() == 20_000 - 8
    assert min(table.to_arrow()["k"].to_pylist()) == 8
    table.compact(full=True)
    assert table.count() == 20_000 - 8
