"""The numbers of a tree."""

from __future__ import annotations

import pytest

from kit.lsm_trees import MB, file, tree
from tidelake.lsm.measure import measure
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import PickState

DEFAULTS = CompactionOptions()


def test_a_tree_in_numbers() -> None:
    levels = tree(
        file(1, 50, size=10, row_count=5, delete_row_count=2),
        file(40, 90, size=20, row_count=6, delete_row_count=1, max_sequence=9),
        file(200, 300, size=30, row_count=7),
        file(1, 100, level=5, size=100, row_count=100),
        file(150, 160, level=5, size=40, row_count=40, delete_row_count=None),
    )
    report = measure(levels, DEFAULTS, now_ms=0, state=PickState(), appended_bytes=100, compacted_bytes=250)
    level0, *middle, bottom = report.levels
    assert (level0.files, level0.runs, level0.bytes, level0.rows) == (3, 3, 60, 18)
    assert (level0.deletes, level0.overlap) == (3, 2)
    assert all((each.files, each.runs, each.overlap, each.deletes) == (0, 0, 0, 0) for each in middle)
    assert (bottom.level, bottom.files, bottom.runs, bottom.overlap, bottom.deletes) == (5, 2, 1, 1, None)
    assert report.sorted_runs == 4
    # The first section has three runs and 130 bytes; the other two have one run each and 70 bytes.
    assert report.read_amplification == pytest.approx((130 * 3 + 70) / 200)
    assert report.write_amplification == pytest.approx(3.5)
    assert report.space_amplification == pytest.approx(200 / 140)
    assert report.compaction_debt_bytes == 0
    assert report.full_compaction_bytes == 200


def test_an_empty_tree_costs_nothing() -> None:
    report = measure(tree(), DEFAULTS, now_ms=0, state=PickState())
    assert (report.sorted_runs, report.compaction_debt_bytes, report.full_compaction_bytes) == (0, 0, 0)
    assert (report.read_amplification, report.write_amplification, report.space_amplification) == (1.0, None, 1.0)


def test_debt_is_what_the_compactions_that_are_due_rewrite() -> None:
    levels = tree(
        *(file(1, 9, size=1, max_sequence=i) for i in range(3)),
        file(1, 9, level=4, size=3),
        file(1, 9, level=5, size=100),
    )
    assert measure(levels, DEFAULTS, now_ms=0, state=PickState()).compaction_debt_bytes == 6


def test_debt_of_a_table_with_lookups_includes_level_0() -> None:
    levels = tree(file(1, 9, size=7), file(1, 9, level=5, size=100))
    assert measure(levels, DEFAULTS, now_ms=0, state=PickState()).compaction_debt_bytes == 0
    assert measure(levels, DEFAULTS, now_ms=0, state=PickState(), needs_lookup=True).compaction_debt_bytes == 7


def test_files_that_would_only_move_are_no_cost_of_a_full_compaction() -> None:
    levels = tree(file(1, 9, size=200 * MB), file(20, 30, size=5), file(25, 30, size=6, max_sequence=1))
    assert measure(levels, DEFAULTS, now_ms=0, state=PickState()).full_compaction_bytes == 11
