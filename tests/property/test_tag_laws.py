"""Laws of automatic tags, over random schedules and histories: a plan finds all that is due, and finds it once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.ops.maintain.tag_schedule import AutomaticTags, TagCreation, TagSchedule, plan_automatic_tags
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.documents.tag_periods import TagFormat, TagPeriod, TagPeriodOptions

MINUTE_MS = 60_000
BEGIN_MS = 1_714_000_000_000

periods = st.one_of(
    st.builds(TagPeriodOptions, period=st.sampled_from(TagPeriod), form=st.sampled_from(TagFormat)),
    st.builds(TagPeriodOptions, duration_ms=st.integers(1, 3_000).map(lambda number: number * MINUTE_MS)),
).map(lambda options: options.periods)


@st.composite
def schedules(draw: st.DrawFn) -> TagSchedule:
    chosen = draw(periods)
    return TagSchedule(
        creation=draw(st.sampled_from([TagCreation.PROCESS_TIME, TagCreation.WATERMARK])),
        periods=chosen,
        delay_ms=draw(st.integers(0, chosen.period_ms - 1)),
        completes=draw(st.booleans()),
        retained_max=draw(st.none() | st.integers(1, 3)),
        zone=timezone(timedelta(minutes=draw(st.integers(-12 * 60, 14 * 60)))),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Snapshots after pauses of any length; clocks may be set back, and watermarks may be missing."""
    found, time_ms = [], BEGIN_MS
    for number in range(1, draw(st.integers(1, 12)) + 1):
        time_ms += draw(st.sampled_from([0, 1, 59_999, 30 * MINUTE_MS, 7_200_000, 86_400_000, 400_000_000, -7_200_000]))
        mark = draw(st.sampled_from([None, -(2**63), time_ms, time_ms, time_ms, 2**63 - 1]))
        found.append(
            Snapshot(
                id=number,
                schema_id=0,
                base_manifest_list=f"base-{number}",
                delta_manifest_list=f"delta-{number}",
                commit_user="u",
                commit_identifier=number,
                commit_kind=CommitKind.APPEND,
                time_ms=time_ms,
                watermark=mark,
                total_record_count=0,
                delta_record_count=0,
            )
        )
    return found


def carry_out(tags: dict[str, int], plan: AutomaticTags) -> dict[str, int]:
    left = {name: number for name, number in tags.items() if name not in {*plan.deleted, *plan.replaced}}
    return {**{each.name: each.snapshot.id for each in plan.created}, **left}


foreign = st.dictionaries(
    st.sampled_from(["mine", "2024-05-01", "2024-04-26 02", "20240426", "202404260000", "2030-01-01"]),
    st.integers(1, 6),
    max_size=3,
)


@settings(max_examples=80, deadline=None)
@given(schedules(), histories(), foreign)
def test_a_second_plan_finds_nothing_to_do(schedule: TagSchedule, past: list[Snapshot], tags: dict[str, int]) -> None:
    left = carry_out(tags, plan_automatic_tags(schedule, tags, past))
    assert plan_automatic_tags(schedule, left, past).is_empty


@settings(max_examples=80, deadline=None)
@given(schedules(), histories())
def test_looking_after_each_snapshot_or_once_at_the_end_makes_the_same_tags(
    schedule: TagSchedule, past: list[Snapshot]
) -> None:
    tags: dict[str, int] = {}
    for number in range(len(past)):
        tags = carry_out(tags, plan_automatic_tags(schedule, tags, past[: number + 1]))
    assert tags == carry_out({}, plan_automatic_tags(schedule, {}, past))


@settings(max_examples=80, deadline=None)
@given(schedules(), histories(), st.none() | st.integers(1, 3))
def test_a_tag_stands_for_a_period_that_was_over_and_a_snapshot_has_one(
    schedule: TagSchedule, past: list[Snapshot], limit: int | None
) -> None:
    schedule = replace(schedule, retained_max=limit)
    plan = plan_automatic_tags(schedule, {}, past)
    assert limit is None or len(plan.created) <= limit
    assert len({each.snapshot.id for each in plan.created}) == len(plan.created)
    for each in plan.created:
        begin, time_ms = schedule.periods.find_time(each.name), schedule.find_time(each.snapshot)
        assert begin is not None
        assert time_ms is not None
        assert begin + schedule.periods.period_ms <= time_ms
