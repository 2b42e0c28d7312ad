"""Files of a bucket arranged as levels."""

from __future__ import annotations

import itertools

import pytest

from kit.lsm_trees import file, names, tree
from tidelake.errors import FormatError, InvalidInputError
from tidelake.lsm.levels import build_levels


def test_level_0_is_newest_first_and_levels_above_are_in_key_order() -> None:
    levels = tree(
        file(50, 60, level=2, name="e"),
        file(1, 9, name="a", max_sequence=5),
        file(1, 9, name="b", max_sequence=9),
        file(10, 20, level=2, name="d"),
        file(0, 99, level=1, name="c"),
    )
    assert names(levels.files) == ["b", "a", "c", "d", "e"]
    assert [(run.level, names(run.files), run.size) for run in levels.runs()] == [
        (0, ["b"], 10),
        (0, ["a"], 10),
        (1, ["c"], 10),
        (2, ["d", "e"], 20),
    ]
    assert levels.number_of_sorted_runs == 4
    assert levels.non_empty_highest_level == 2
    assert levels.max_level == 5


def test_two_level_0_files_with_equal_sequence_numbers_are_both_kept_in_one_order() -> None:
    equal = {"max_sequence": 9, "min_sequence": 3, "creation_time_ms": 7}
    files = [
        file(1, 1, name="z", max_sequence=10),
        file(1, 1, name="p", **{**equal, "min_sequence": 2}),
        file(1, 1, name="y", **{**equal, "creation_time_ms": 6}),
        file(1, 1, name="a", **equal),
        file(1, 1, name="b", **equal),
    ]
    for order in itertools.permutations(files):
        assert names(tree(*order).level0) == ["z", "p", "y", "a", "b"]


def test_names_break_ties_as_utf_16_does() -> None:
    # The whale is two code units that begin below U+FFFF.
    assert names(tree(file(1, 1, name="\uffff"), file(1, 1, name="\U0001f40b")).level0) == ["\U0001f40b", "\uffff"]


@pytest.mark.parametrize("ranges", [[(1, 5), (5, 9)], [(1, 9), (3, 4)], [(3, 4), (1, 9)]])
def test_files_that_touch_on_a_sorted_level_are_refused_and_both_are_named(ranges: list[tuple[int, int]]) -> None:
    one, other = (file(*each, level=3, name=name) for each, name in zip(ranges, "ab", strict=True))
    with pytest.raises(FormatError, match="overlap") as caught:
        tree(one, other)
    assert {caught.value.facts["first"], caught.value.facts["second"]} == {"a", "b"}
    assert caught.value.facts["level"] == "3"


def test_the_same_files_may_overlap_on_level_0() -> None:
    assert tree(file(1, 5), file(5, 9)).number_of_sorted_runs == 2


def test_more_levels_on_disk_than_configured_make_the_tree_grow() -> None:
    levels = tree(file(1, 5, level=7), num_levels=3)
    assert levels.max_level == 7
    assert levels.non_empty_highest_level == 7
    assert levels.apply((), [file(1, 2)]).max_level == 7


def test_an_empty_tree_has_no_runs() -> None:
    levels = tree()
    assert levels.runs() == ()
    assert (levels.number_of_sorted_runs, levels.non_empty_highest_level) == (0, -1)
    assert tree(file(1, 2)).non_empty_highest_level == 0


def test_a_compaction_is_applied_as_a_new_tree() -> None:
    old, gone, moved = file(1, 9, level=5), file(1, 5, name="gone"), file(20, 30, name="moved")
    levels = tree(old, gone, moved)
    after = levels.apply([gone, moved], [file(1, 5, level=4, name="new"), moved.at(4)])
    assert names(after.upper[3]) == ["new", "moved"]
    assert names(levels.level0) == ["gone", "moved"]
    assert after.level0 == ()


def test_taking_out_what_is_not_there_is_refused() -> None:
    one = file(1, 9, name="one")
    with pytest.raises(InvalidInputError, match="not in the tree") as caught:
        tree(one).apply([one.at(3)], ())
    assert caught.value.facts == {"file": "one", "level": "3"}


def test_one_file_twice_is_refused() -> None:
    one = file(1, 9, name="one")
    for level in (0, 2):
        with pytest.raises(FormatError, match=r"twice|overlap"):
            tree(one.at(level), one.at(level))


def test_a_negative_level_and_a_flat_tree_are_refused() -> None:
    with pytest.raises(FormatError, match="negative"):
        tree(file(1, 2, level=-1))
    with pytest.raises(InvalidInputError, match="two levels"):
        build_levels((), num_levels=1)
