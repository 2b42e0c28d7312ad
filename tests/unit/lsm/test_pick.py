"""Which runs are compacted next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.lsm_trees import Sized, file, names, tree
from tidelake.lsm.options import CompactionOptions
from tidelake.lsm.pick import (
    Pick,
    PickState,
    first_state,
    may_drop_deletes,
    pick_level0,
    pick_runs,
    pick_universal,
    plan_compaction,
    plan_full_compaction,
)

HOUR_MS = 3_600_000
DEFAULTS = CompactionOptions()


def runs(text: str) -> list[Sized]:
    return [Sized(*map(int, each.split(":"))) for each in text.split()]


def universal(text: str, options: CompactionOptions = DEFAULTS, **how: object) -> Pick | None:
    given = {"max_level": 5, "now_ms": 0, **how}
    return pick_universal(runs(text), options, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0:1 0:1 0:1 4:3 5:100", Pick(4, 4)),
        ("0:10 0:8 0:9 0:7 5:12", Pick(5, 5)),
        ("0:1 0:5 0:6 4:50 5:500", None),
        ("0:1 0:5 0:6 0:4 4:50 5:500", Pick(4, 3)),
        ("0:1 0:1 0:1 1:400 5:500", Pick(4, 4)),
    ],
)
def test_the_examples_of_the_format(text: str, wanted: Pick | None) -> None:
    assert universal(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        ("5:9", None),
        ("0:1 0:1 0:1 5:9", None),
        # All of level 0 and nothing below.
        ("0:1 0:1 0:1 0:1 0:1", Pick(5, 5)),
        # A prefix that ends inside level 0 or above level 1 goes on to the next run that is not on level 0.
        ("0:1 0:1 0:900 0:1 3:2 4:950 5:9000", Pick(5, 3)),
        ("0:1 0:1 1:5 2:90 3:900 4:9000", Pick(3, 1)),
        # Level 1 is next and too large, yet the output must not be level 0.
        ("0:1 0:1 0:1 0:1 1:900", Pick(5, 5)),
    ],
)
def test_more_picks(text: str, wanted: Pick | None) -> None:
    assert universal(text) == wanted


def test_release_2_0_stops_at_a_large_run_of_level_1_and_writes_to_level_1() -> None:
    assert universal("0:1 0:1 0:1 1:400 5:500", absorb=False) == Pick(4, 1)


def test_as_many_bytes_above_the_oldest_run_as_allowed_are_not_too_many() -> None:
    assert universal("0:1 0:5 0:26 0:168 5:100") is None
    assert universal("0:1 0:5 0:27 0:168 5:100") == Pick(5, 5)


def test_the_size_ratio_is_computed_in_floating_point_as_everywhere_else() -> None:
    assert universal("0:100 0:101 3:9999 4:99999 5:999999", absorb=False) == Pick(2, 2)
    assert universal("0:100 0:102 3:9999 4:99999 5:999999", absorb=False) is None


@pytest.mark.parametrize(
    ("start", "end", "quiet"),
    [
        (1, 4, {1, 2, 3}),
        (22, 2, {22, 23, 0, 1}),
        (0, 23, set(range(23))),
        (-1, 4, set()),
        (4, -1, set()),
        (7, 7, set()),
    ],
)
def test_quiet_hours_widen_the_size_ratio(start: int, end: int, quiet: set[int]) -> None:
    options = CompactionOptions(offpeak_start_hour=start, offpeak_end_hour=end, offpeak_ratio_percent=50)
    text = "0:100 0:140 3:9999 4:99999 5:999999"
    day = 86_400_000 * 400
    for hour in range(24):
        picked = universal(text, options, now_ms=day + hour * HOUR_MS + HOUR_MS - 1)
        assert (picked is not None) == (hour in quiet)


def test_a_full_compaction_comes_due_by_time() -> None:
    options = CompactionOptions(optimization_interval_ms=100)
    assert universal("0:1 5:9", options, now_ms=500) == Pick(2, 5)
    assert universal("0:1 5:9", options, now_ms=500, last_full_ms=400) is None
    assert universal("0:1 5:9", options, now_ms=501, last_full_ms=400) == Pick(2, 5)
    assert universal("5:9", options, now_ms=500) is None


def test_a_small_bucket_is_always_compacted_fully() -> None:
    options = CompactionOptions(total_size_threshold=10)
    assert universal("0:1 5:8", options) == Pick(2, 5)
    assert universal("0:1 5:9", options) is None
    assert universal("0:1", options) is None


def test_too_many_bytes_above_the_lowest_level_start_a_full_compaction() -> None:
    options = CompactionOptions(incremental_size_threshold=10)
    assert universal("0:1 4:9 5:8", options) is None
    assert universal("0:2 4:9 5:8", options) == Pick(3, 5)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        ("3:5 5:9", None),
        ("0:1 5:9", Pick(1, 4)),
        ("0:1 3:1 5:9", Pick(2, 4)),
        ("0:1 1:900 5:9", Pick(3, 5)),
        ("0:1 1:9 5:900", Pick(2, 4)),
        ("0:1 0:9 2:90", Pick(2, 1)),
        ("0:1 0:9", Pick(2, 5)),
    ],
)
def test_level_0_can_be_lifted_by_force(text: str, wanted: Pick | None) -> None:
    assert pick_level0(runs(text), DEFAULTS, max_level=5, now_ms=0) == wanted


def test_a_table_that_looks_up_lifts_level_0_at_once_or_gently_now_and_then() -> None:
    text, state = runs("0:1 5:9"), PickState()
    radical, _ = pick_runs(text, DEFAULTS, max_level=5, now_ms=0, state=state, needs_lookup=True)
    assert radical == Pick(1, 4)
    plain, _ = pick_runs(text, DEFAULTS, max_level=5, now_ms=0, state=state)
    assert plain is None
    forced = replace(DEFAULTS, force_up_level0=True)
    assert pick_runs(text, forced, max_level=5, now_ms=0, state=state)[0] == Pick(1, 4)

    options = CompactionOptions.parse({"lookup-compact": "gentle", "lookup-compact.max-interval": "6"})
    picked = []
    for _ in range(13):
        pick, state = pick_runs(text, options, max_level=5, now_ms=0, state=state, needs_lookup=True)
        picked.append(pick)
    assert [place for place, pick in enumerate(picked, start=1) if pick] == [6, 12]


def test_a_pick_of_everything_is_remembered_as_a_full_compaction() -> None:
    pick, state = pick_runs(runs("0:9 0:9 0:9 0:9 5:9"), DEFAULTS, max_level=5, now_ms=77, state=PickState())
    assert pick == Pick(5, 5)
    assert state.last_full_ms == 77
    pick, state = pick_runs(runs("0:1 0:1 0:1 4:3 5:100"), DEFAULTS, max_level=5, now_ms=99, state=state)
    assert pick == Pick(4, 4)
    assert state.last_full_ms == 77


def test_a_writer_takes_the_newest_file_of_the_lowest_level_for_the_last_full_compaction() -> None:
    levels = tree(
        file(1, 2, level=5, creation_time_ms=40),
        file(3, 4, level=5, creation_time_ms=50),
        file(5, 6, level=5, creation_time_ms=None),
        file(1, 9, level=4, creation_time_ms=90),
    )
    assert first_state(levels).last_full_ms == 50
    assert first_state(tree(file(1, 2))).last_full_ms is None


# ------------------------------------------------------------------------------------------------ on trees


def test_the_picked_files_are_those_of_the_picked_runs() -> None:
    level0 = [file(1, 9, name=f"l{i}", size=1, max_sequence=i) for i in range(3)]
    levels = tree(*level0, file(1, 9, level=4, size=3, name="four"), file(1, 9, level=5, size=100, name="five"))
    compaction, _ = plan_compaction(levels, DEFAULTS, now_ms=0, state=PickState())
    assert compaction is not None
    assert names(compaction.files) == ["l2", "l1", "l0", "four"]
    assert (compaction.output_level, compaction.drop_delete, compaction.one_by_one) == (4, False, False)


def test_a_single_file_that_is_already_there_is_not_compacted() -> None:
    options = CompactionOptions(trigger=1, max_size_amplification_percent=-1)
    assert universal("5:9", options) == Pick(1, 5)
    compaction, _ = plan_compaction(tree(file(1, 2, level=5)), options, now_ms=0, state=PickState())
    assert compaction is None
    compaction, _ = plan_compaction(tree(file(1, 2, level=4)), options, now_ms=0, state=PickState())
    assert compaction is not None


def test_deletions_are_dropped_only_where_nothing_older_can_lie_below() -> None:
    levels = tree(file(1, 2), file(1, 2, level=3))
    assert [may_drop_deletes(levels, level, deletion_vectors=False) for level in range(6)] == [
        False, False, False, True, True, True,
    ]  # fmt: skip
    assert [may_drop_deletes(levels, level, deletion_vectors=True) for level in range(3)] == [False, True, True]


def test_a_full_compaction_takes_everything_to_the_lowest_level() -> None:
    levels = tree(file(1, 2, name="new"), file(1, 2, level=5, name="old"))
    compaction = plan_full_compaction(levels, DEFAULTS)
    assert compaction is not None
    assert names(compaction.files) == ["new", "old"]
    assert (compaction.output_level, compaction.drop_delete, compaction.one_by_one) == (5, True, False)
    assert plan_full_compaction(tree(), DEFAULTS) is None
    lifted = plan_full_compaction(tree(file(1, 2, level=4)), DEFAULTS)
    assert lifted is not None
    assert not lifted.one_by_one


def test_a_full_compaction_of_a_flat_tree_rewrites_only_what_has_a_reason() -> None:
    levels = tree(*(file(i, i, level=5, name=f"f{i}") for i in range(4)))
    assert plan_full_compaction(levels, DEFAULTS) is None
    some = plan_full_compaction(levels, DEFAULTS, expired={"f3"}, with_vectors={"f1", "gone"})
    assert some is not None
    assert names(some.files) == ["f1", "f3"]
    assert some.one_by_one
    every = plan_full_compaction(levels, CompactionOptions(force_rewrite_all_files=True))
    assert every is not None
    assert len(every.files) == 4


def test_unset_options_follow_the_trigger() -> None:
    options = CompactionOptions.parse({"num-sorted-run.compaction-trigger": "7"})
    assert (options.stop_trigger, options.num_levels) == (10, 8)
    assert options.lookup_interval is None
    options = CompactionOptions.parse({"num-sorted-run.stop-trigger": "2", "lookup-compact": "GENTLE"})
    assert (options.stop_trigger, options.lookup_interval) == (5, 10)
    assert CompactionOptions().small_file_bytes == 93_952_409
    given = {"target-file-size": "100 b", "compaction.small-file-ratio": "0.5"}
    assert CompactionOptions.parse(given).small_file_bytes == 50
