"""Laws of the tree: picks keep the order of ages, sections are as few runs as can be, steps lose no file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.lsm.files import RunFile
from tidelake.lsm.levels import Levels, build_levels
from tidelake.lsm.options import CompactionOptions, LookupCompact
from tidelake.lsm.pick import PickState, first_state, pick_runs, plan_compaction, plan_full_compaction
from tidelake.lsm.rewrite import Rewrite, Upgrade, plan_steps
from tidelake.lsm.sections import partition_files
from tidelake.ops.scan.keyed import plan_split_groups
from tidelake.ops.scan.options import SplitOptions
from tidelake.spec.data_file import DataFile

KEYS = 60


@dataclass(frozen=True, slots=True)
class Sized:
    level: int
    size: int


@st.composite
def options(draw: st.DrawFn) -> CompactionOptions:
    maybe = st.one_of(st.none(), st.integers(0, 3000))
    return CompactionOptions(
        trigger=draw(st.integers(1, 7)),
        num_levels_given=draw(st.one_of(st.none(), st.integers(2, 8))),
        max_size_amplification_percent=draw(st.sampled_from([0, 50, 200, 10_000])),
        size_ratio_percent=draw(st.sampled_from([-99, 0, 1, 100])),
        offpeak_start_hour=draw(st.integers(-1, 23)),
        offpeak_end_hour=draw(st.integers(-1, 23)),
        offpeak_ratio_percent=draw(st.sampled_from([0, 500])),
        optimization_interval_ms=draw(maybe),
        total_size_threshold=draw(maybe),
        incremental_size_threshold=draw(maybe),
        force_up_level0=draw(st.booleans()),
        lookup_compact=draw(st.sampled_from(LookupCompact)),
        target_size=draw(st.sampled_from([None, 100])),
    )


@st.composite
def run_lists(draw: st.DrawFn, *, max_level: int) -> list[Sized]:
    sizes = st.one_of(st.integers(1, 5), st.integers(1, 10_000))
    level0 = draw(st.lists(sizes, max_size=12))
    upper = draw(st.sets(st.integers(1, max_level)))
    return [*(Sized(0, size) for size in level0), *(Sized(level, draw(sizes)) for level in sorted(upper))]


states = st.builds(PickState, last_full_ms=st.one_of(st.none(), st.integers(0, 4000)), fruitless=st.integers(0, 5))


@settings(max_examples=120, deadline=None)
@given(st.data(), options(), states, st.booleans(), st.booleans(), st.integers(0, 10**8))
def test_a_pick_is_a_prefix_and_its_output_is_right_above_the_rest(
    data: st.DataObject, chosen: CompactionOptions, state: PickState, lookup: bool, absorb: bool, now_ms: int
) -> None:
    max_level = chosen.num_levels - 1
    runs = data.draw(run_lists(max_level=max_level))
    how = {"max_level": max_level, "now_ms": now_ms, "needs_lookup": lookup, "absorb": absorb}
    pick, after = pick_runs(runs, chosen, state=state, **how)  # type: ignore[arg-type]
    assert pick_runs(runs, chosen, state=state, **how) == (pick, after)  # type: ignore[arg-type]
    if pick is None:
        assert len(runs) <= chosen.trigger
        return
    assert 1 <= pick.count <= len(runs)
    assert 1 <= pick.output_level <= max_level
    assert all(run.level > pick.output_level for run in runs[pick.count :])
    assert (after.last_full_ms == now_ms) or pick.count < len(runs)


@settings(max_examples=120, deadline=None)
@given(st.data(), options(), st.booleans(), st.booleans())
def test_compacting_what_is_picked_comes_to_an_end_with_few_runs(
    data: st.DataObject, chosen: CompactionOptions, lookup: bool, absorb: bool
) -> None:
    max_level = chosen.num_levels - 1
    runs = data.draw(run_lists(max_level=max_level))
    state = PickState()
    for _ in range(2 * len(runs) + 2 * (chosen.lookup_interval or 0) + 20):
        pick, state = pick_runs(
            runs, chosen, max_level=max_level, now_ms=1, state=state, needs_lookup=lookup, absorb=absorb
        )
        if pick is None or (pick.count == 1 and runs[0].level == pick.output_level):
            if not (lookup and chosen.lookup_interval) or state.fruitless == 0:
                break
            continue
        runs = [Sized(pick.output_level, sum(run.size for run in runs[: pick.count])), *runs[pick.count :]]
    else:
        raise AssertionError("picking never ends")
    assert len(runs) <= chosen.trigger
    if lookup or chosen.force_up_level0:
        assert all(run.level > 0 for run in runs)


# ------------------------------------------------------------------------------------------------ trees of files


@st.composite
def ranges(draw: st.DrawFn, *, disjoint: bool, count: int) -> list[tuple[int, int]]:
    if not disjoint:
        return [
            (low, min(KEYS, low + draw(st.integers(0, 20))))
            for low in draw(st.lists(st.integers(0, KEYS), max_size=count))
        ]
    cuts = sorted(draw(st.sets(st.integers(0, KEYS), max_size=2 * count)))
    return [(low, high) for low, high in zip(cuts[::2], cuts[1::2], strict=False)]


@st.composite
def trees(draw: st.DrawFn) -> Levels:
    files: list[RunFile] = []
    for level in range(4):
        for low, high in draw(ranges(disjoint=level > 0, count=6)):
            meta = DataFile(
                file_name=f"f{len(files)}",
                file_size=draw(st.sampled_from([1, 60, 500])),
                row_count=1,
                level=level,
                max_sequence=draw(st.integers(0, 3)),
                delete_row_count=draw(st.sampled_from([0, 0, 3, None])),
            )
            files.append(RunFile(meta, (low,), (high,)))
    return build_levels(draw(st.permutations(files)), num_levels=draw(st.integers(2, 6)))


@settings(max_examples=60, deadline=None)
@given(trees())
def test_sections_are_apart_and_their_runs_sorted_and_as_few_as_keys_demand(levels: Levels) -> None:
    sections = partition_files(levels.files)
    assert sorted(file.name for section in sections for file in section.files) == sorted(f.name for f in levels.files)
    highest = (-1,)
    for section in sections:
        assert min(file.min_key for file in section.files) > highest
        highest = max(file.max_key for file in section.files)
        for run in section.runs:
            assert all(one.max_key < other.min_key for one, other in pairwise(run))
        depth = max(sum(f.min_key <= (key,) <= f.max_key for f in section.files) for key in range(KEYS + 1))
        assert len(section.runs) == depth


@settings(max_examples=60, deadline=None)
@given(trees(), st.booleans(), st.integers(1, 300))
def test_splits_hold_every_file_once_and_never_part_files_that_share_a_key(
    levels: Levels, one_version: bool, target: int
) -> None:
    weights = SplitOptions(target_bytes=target, open_file_cost=5)
    groups = plan_split_groups(levels.files, weights, one_version=one_version)
    assert sorted(f.name for group in groups for f in group.files) == sorted(f.name for f in levels.files)
    parted = [group for group in groups if not group.raw_convertible]
    for group in parted:
        for other in groups:
            if other is not group:
                assert not any(
                    a.min_key <= b.max_key and b.min_key <= a.max_key for a in group.files for b in other.files
                )
    for group in groups:
        if group.raw_convertible:
            assert not any(file.known_to_hold_deletes for file in group.files)


@settings(max_examples=60, deadline=None)
@given(trees(), options(), st.booleans(), st.booleans())
def test_the_steps_of_a_compaction_give_a_valid_tree_without_losing_a_file(
    levels: Levels, chosen: CompactionOptions, full: bool, lookup: bool
) -> None:
    state = first_state(levels)
    if full:
        compaction = plan_full_compaction(levels, chosen)
    else:
        compaction, _ = plan_compaction(levels, chosen, now_ms=1, state=state, needs_lookup=lookup)
    if compaction is None:
        return
    steps = plan_steps(compaction, chosen, max_level=levels.max_level)
    before: list[RunFile] = []
    after: list[RunFile] = []
    for number, step in enumerate(steps):
        if isinstance(step, Upgrade):
            before.append(step.file)
            after.append(step.after)
            continue
        assert isinstance(step, Rewrite)
        before += step.files
        low, high = min(f.min_key for f in step.files), max(f.max_key for f in step.files)
        meta = DataFile(file_name=f"new{number}", file_size=1, row_count=1, level=step.output_level)
        after.append(RunFile(meta, low, high))
    assert len({file.name for file in before}) == len(before)
    stayed = [file for file in compaction.files if file not in before]
    assert all(file.level == compaction.output_level for file in stayed)
    settled = levels.apply(before, after)
    picked = {file.name for file in compaction.files}
    assert all(file.level >= compaction.output_level or file.name not in picked for file in settled.files)
    if full:
        assert settled.number_of_sorted_runs == 1
