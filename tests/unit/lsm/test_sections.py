"""Files cut into sections, and packed into splits."""

from __future__ import annotations

from typing import Any

import pytest

from kit.lsm_trees import MB, file, names
from tidelake.lsm.files import RunFile
from tidelake.lsm.sections import partition_files
from tidelake.ops.scan.keyed import plan_split_groups
from tidelake.ops.scan.options import SplitOptions


def cut(*files: RunFile) -> list[list[list[str]]]:
    return [[names(run) for run in section.runs] for section in partition_files(files)]


def test_a_new_section_starts_above_the_greatest_key_so_far() -> None:
    files = [file(1, 10, name="a"), file(2, 3, name="b"), file(4, 5, name="c"), file(11, 12, name="d")]
    assert cut(*reversed(files)) == [[["a"], ["b", "c"]], [["d"]]]


def test_files_that_share_one_key_are_in_one_section() -> None:
    assert cut(file(1, 5, name="a"), file(5, 9, name="b"), file(9, 9, name="c")) == [[["a", "c"], ["b"]]]


def test_a_file_goes_behind_the_run_that_ended_first() -> None:
    files = [file(1, 4, name="a"), file(1, 9, name="b"), file(5, 6, name="c"), file(7, 20, name="d")]
    assert cut(*files) == [[["a", "c", "d"], ["b"]]]


def test_without_files_there_are_no_sections() -> None:
    assert partition_files([]) == ()
    assert groups([]) == []


def groups(files: list[RunFile], **how: Any) -> list[tuple[list[str], bool]]:
    one_version = how.pop("one_version", False)
    options = SplitOptions(**{"target_bytes": 128 * MB, "open_file_cost": 4 * MB, **how})
    found = plan_split_groups(files, options, one_version=one_version)
    return [(names(each.files), each.raw_convertible) for each in found]


def test_sections_are_packed_whole() -> None:
    shapes = {
        "a": (1, 2, 1),
        "b": (3, 4, 1),
        "c": (5, 180, 60),
        "d": (5, 190, 90),
        "e": (200, 600, 70),
        "f": (210, 700, 70),
    }
    files = [file(low, high, size=size * MB, name=name) for name, (low, high, size) in shapes.items()]
    assert groups(files) == [(["a", "b"], False), (["c", "d"], False), (["e", "f"], False)]


def test_files_of_one_sorted_level_need_no_merge() -> None:
    files = [file(i, i, level=5, size=50 * MB, name=f"f{i}") for i in range(5)]
    assert groups(files) == [(["f0", "f1"], True), (["f2", "f3"], True), (["f4"], True)]


def test_files_of_several_levels_need_no_merge_where_keys_are_unique_above_level_0() -> None:
    files = [file(1, 9, level=5, name="five"), file(1, 9, level=4, name="four")]
    assert groups(files, one_version=True) == [(["five", "four"], True)]
    assert groups(files) == [(["five", "four"], False)]


@pytest.mark.parametrize("one_version", [False, True])
@pytest.mark.parametrize("odd", [{"level": 0}, {"level": 5, "delete_row_count": 1}], ids=["level 0", "deletions"])
def test_one_file_with_deletions_or_on_level_0_makes_all_others_sections(
    odd: dict[str, int], one_version: bool
) -> None:
    files = [file(1, 5, level=5, name="a"), file(9, 9, name="b", **odd)]
    assert groups(files, one_version=one_version) == [(["a", "b"], False)]


def test_a_split_of_a_single_file_without_deletions_needs_no_merge_on_any_level() -> None:
    assert groups([file(1, 5, name="a")]) == [(["a"], True)]
    assert groups([file(1, 5, name="a", delete_row_count=None)]) == [(["a"], True)]
    assert groups([file(1, 5, name="a", delete_row_count=2)]) == [(["a"], False)]
    big = [file(1, 5, name="a", size=200 * MB), file(6, 9, name="b", size=200 * MB)]
    assert groups(big) == [(["a"], True), (["b"], True)]


def test_small_files_weigh_what_opening_them_costs() -> None:
    files = [file(i, i, level=5, size=1, name=str(i)) for i in range(5)]
    assert groups(files, target_bytes=8, open_file_cost=4) == [(["0", "1"], True), (["2", "3"], True), (["4"], True)]
