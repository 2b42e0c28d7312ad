"""One compaction as steps."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kit.lsm_trees import MB, file, names
from tidelake.lsm.files import RunFile
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import Compaction
from tidelake.lsm.rewrite import LookupRules, Rewrite, Step, Upgrade, plan_steps

DEFAULTS = CompactionOptions()


def steps(*files: RunFile, level: int = 5, one_by_one: bool = False, **how: Any) -> tuple[Step, ...]:
    options = how.pop("options", DEFAULTS)
    compaction = Compaction(files=files, output_level=level, drop_delete=level == 5, one_by_one=one_by_one)
    return plan_steps(compaction, options, max_level=5, **how)


def describe_steps(*files: RunFile, **how: Any) -> list[str]:
    """Each step in a word: the names rewritten together, or the name moved and where to."""
    return [
        f"{step.file.name}->{step.level}" if isinstance(step, Upgrade) else "+".join(sorted(names(step.files)))
        for step in steps(*files, **how)
    ]


def worked_example(**more: Any) -> list[RunFile]:
    ranges = {
        "A": (1, 10, 5),
        "B": (11, 20, 120),
        "C": (15, 30, 10),
        "D": (40, 50, 200),
        "E": (60, 70, 3),
        "F": (71, 80, 4),
    }
    return [file(low, high, size=size * MB, name=name, **more) for name, (low, high, size) in ranges.items()]


def test_the_worked_example_of_the_format() -> None:
    assert describe_steps(*worked_example()) == ["A+B+C", "D->5", "E+F"]
    first, moved, last = steps(*worked_example())
    assert isinstance(first, Rewrite)
    assert [[names(run) for run in section.runs] for section in first.sections] == [[["A"]], [["B"], ["C"]]]
    assert (first.output_level, first.drop_delete) == (5, True)
    assert isinstance(moved, Upgrade)
    assert (moved.after.name, moved.after.level, moved.file.level) == ("D", 5, 0)
    assert isinstance(last, Rewrite)


def test_steps_survive_pickling() -> None:
    planned = steps(*worked_example())
    assert pickle.loads(pickle.dumps(planned)) == planned


def test_a_large_file_with_deletions_is_moved_between_middle_levels_and_rewritten_to_the_lowest() -> None:
    for count in (3, None):
        big = file(1, 9, size=200 * MB, name="a", delete_row_count=count)
        assert describe_steps(big, level=4) == ["a->4"]
        assert describe_steps(big, level=5) == ["a"]


def test_a_small_file_that_is_alone_is_moved_not_rewritten() -> None:
    assert describe_steps(file(1, 9, name="a"), level=4) == ["a->4"]
    large = file(20, 30, size=200 * MB, name="b", level=5)
    assert describe_steps(file(1, 9, name="a"), large, file(40, 50, name="c")) == ["a->5", "c->5"]


def test_a_large_file_that_is_already_there_has_no_step() -> None:
    assert describe_steps(file(1, 9, size=200 * MB, name="a", level=5), file(20, 30, size=200 * MB, name="b")) == [
        "b->5"
    ]


def test_files_are_rewritten_if_forced_or_if_rows_expired() -> None:
    here = file(1, 9, size=200 * MB, name="a", level=5)
    assert describe_steps(here, options=CompactionOptions(force_rewrite_all_files=True)) == ["a"]
    assert describe_steps(here, expired={"a"}) == ["a"]
    assert describe_steps(here, expired={"b"}) == []


def test_files_of_a_flat_tree_are_rewritten_one_by_one() -> None:
    assert describe_steps(file(1, 2, level=5, name="a"), file(3, 4, level=5, name="b"), one_by_one=True) == ["a", "b"]


@pytest.mark.parametrize(
    ("rules", "level", "more", "wanted"),
    [
        (LookupRules(last_wins=True), 4, {}, "a->4"),
        (LookupRules(), 4, {}, "a"),
        (LookupRules(), 5, {}, "a->5"),
        (LookupRules(), 4, {"level": 3}, "a->4"),
        (LookupRules(last_wins=True, format_changes=True), 5, {}, "a"),
        (LookupRules(last_wins=True, deletion_vectors=True), 4, {"delete_row_count": 1}, "a"),
        (LookupRules(last_wins=True, deletion_vectors=True), 4, {"delete_row_count": None}, "a"),
        (LookupRules(last_wins=True, deletion_vectors=True), 4, {}, "a->4"),
    ],
)
def test_a_file_leaves_level_0_unread_only_where_nothing_below_changes_its_rows(
    rules: LookupRules, level: int, more: dict[str, int], wanted: str
) -> None:
    planned = steps(file(1, 9, name="a", **more), level=level, lookup=rules)
    assert describe_steps(file(1, 9, name="a", **more), level=level, lookup=rules) == [wanted]
    moved = [step.watched for step in planned if isinstance(step, Upgrade)]
    assert moved == ([more.get("level", 0) == 0] if "->" in wanted else [])
