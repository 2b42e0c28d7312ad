"""When automatic tags are due, by clocks and watermarks, and what they are called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kit.tables_with_files import add, new_table
from tidelake.errors import InvalidInputError
from tidelake.ops.maintain.tag_schedule import (
    AutomaticTags,
    HeldTag,
    NewTag,
    TagCreation,
    TagSchedule,
    TagScheduleOptions,
    make_schedule,
    needs_snapshot,
    plan_automatic_tags,
    plan_batch_tag,
)
from tidelake.spec.documents.snapshot import CommitKind, Snapshot
from tidelake.spec.documents.tag import Tag
from tidelake.spec.documents.tag_periods import TagFormat, TagPeriod, TagPeriodOptions


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def snapshots(*times: str | int, watermarks: tuple[int | None, ...] = ()) -> list[Snapshot]:
    marks = watermarks or (None,) * len(times)
    return [
        Snapshot(
            id=number,
            schema_id=0,
            base_manifest_list=f"base-{number}",
            delta_manifest_list=f"delta-{number}",
            commit_user="u",
            commit_identifier=number,
            commit_kind=CommitKind.APPEND,
            time_ms=time if isinstance(time, int) else ms(time),
            watermark=mark,
            total_record_count=0,
            delta_record_count=0,
        )
        for number, (time, mark) in enumerate(zip(times, marks, strict=True), start=1)
    ]


def schedule(**given: object) -> TagSchedule:
    options = TagPeriodOptions()
    how = {"creation": TagCreation.PROCESS_TIME, "periods": options.periods, "zone": UTC, **given}
    return TagSchedule(**how)  # type: ignore[arg-type]


def made(plan: AutomaticTags) -> dict[str, int]:
    return {each.name: each.snapshot.id for each in plan.created}


def test_the_day_that_is_over_is_tagged_once_its_delay_is_over() -> None:
    past = snapshots("2024-05-01 12:00", "2024-05-02 00:05", "2024-05-02 00:12", "2024-05-02 23:00")
    plan = plan_automatic_tags(schedule(delay_ms=600_000), {"2024-04-30": 1}, past)
    assert made(plan) == {"2024-05-01": 3}
    assert str(plan) == "1 tag to create (2024-05-01 of snapshot 3)"


def test_missed_days_get_no_tag_unless_tags_are_completed() -> None:
    past = snapshots("2024-05-01 12:00", "2024-05-05 12:00", "2024-05-05 13:00")
    assert made(plan_automatic_tags(schedule(), {}, past)) == {"2024-04-30": 1, "2024-05-04": 2}
    completed = plan_automatic_tags(schedule(completes=True), {}, past)
    assert made(completed) == {"2024-04-30": 1, "2024-05-01": 2, "2024-05-02": 3}


def test_the_local_midnight_counts() -> None:
    past = snapshots("2024-05-01 15:59", "2024-05-01 16:00")
    assert made(plan_automatic_tags(schedule(), {}, past)) == {"2024-04-30": 1}
    east = schedule(zone=timezone(timedelta(hours=8)))
    assert made(plan_automatic_tags(east, {}, past)) == {"2024-04-30": 1, "2024-05-01": 2}


def test_a_missing_lowest_or_endless_watermark_makes_no_tag_due() -> None:
    marks = (None, -(2**63), 2**63 - 1, ms("2024-05-02 00:00"), ms("2024-05-02 12:00"))
    past = snapshots(1, 2, 3, 4, 5, watermarks=marks)
    assert made(plan_automatic_tags(schedule(creation=TagCreation.WATERMARK), {}, past)) == {"2024-05-01": 4}


def test_only_the_newest_automatic_tags_are_kept_and_those_made_by_hand_stay() -> None:
    past = snapshots("2024-05-01 12:00", "2024-05-02 12:00", "2024-05-03 12:00", "2024-05-04 12:00")
    tags = {"2024-04-30": 1, "mine": 1, "2024-05-01": 2}
    plan = plan_automatic_tags(schedule(retained_max=2), tags, past)
    assert (made(plan), plan.deleted) == ({"2024-05-02": 3, "2024-05-03": 4}, ("2024-04-30", "2024-05-01"))
    assert "2 tags to delete (2024-04-30, 2024-05-01)" in str(plan)
    assert plan_automatic_tags(schedule(retained_max=1), {}, past) == AutomaticTags((NewTag("2024-05-03", past[3]),))


def test_a_name_that_is_taken_stays_where_it_is() -> None:
    past = snapshots("2024-05-01 12:00", "2024-05-02 12:00", "2024-05-03 12:00")
    tags = {"2024-05-02 by hand": 1}
    assert made(plan_automatic_tags(schedule(), tags, past)) == {}
    assert made(plan_automatic_tags(schedule(), {"2024-05-01": 1}, past)) == {"2024-05-02": 3}


def test_two_automatic_tags_of_one_snapshot_count_as_one_and_go_together() -> None:
    past = snapshots("2024-05-01 12:00", "2024-05-03 12:00")
    plan = plan_automatic_tags(schedule(retained_max=1), {"2024-04-28": 1, "2024-04-01": 1}, past)
    assert (made(plan), plan.deleted) == ({"2024-05-02": 2}, ("2024-04-01", "2024-04-28"))


@pytest.mark.parametrize(
    ("tags", "now", "wanted"),
    [
        ({}, "2024-05-01 12:00", True),
        ({"mine": 1}, "2024-05-01 12:00", True),
        ({"2024-04-30": 1}, "2024-05-02 00:09", False),
        ({"2024-04-30": 1}, "2024-05-02 00:10", True),
        ({"2024-04-30": 3, "2024-05-01": 2}, "2024-05-02 00:10", True),
    ],
)
def test_an_empty_commit_is_wanted_when_a_tag_is_due_by_the_clock(tags: dict[str, int], now: str, wanted: bool) -> None:
    assert needs_snapshot(schedule(delay_ms=600_000), tags, ms(now)) is wanted
    assert not needs_snapshot(schedule(creation=TagCreation.WATERMARK), tags, ms(now))


@pytest.mark.parametrize(
    ("options", "name", "others"),
    [
        (TagPeriodOptions(), "2024-05-01", ["2024-05-01 rest", "2024-05-01 "]),
        (TagPeriodOptions(form=TagFormat.WITHOUT_DASHES), "20240501", ["20240501 03"]),
        (TagPeriodOptions(form=TagFormat.WITHOUT_DASHES_AND_SPACES), "20240501", []),
        (TagPeriodOptions(period=TagPeriod.HOURLY), "2024-05-01 23", []),
        (TagPeriodOptions(period=TagPeriod.HOURLY, form=TagFormat.WITHOUT_DASHES), "20240501 23", []),
        (TagPeriodOptions(period=TagPeriod.HOURLY, form=TagFormat.WITHOUT_DASHES_AND_SPACES), "2024050123", []),
        (TagPeriodOptions(period=TagPeriod.TWO_HOURS, form=TagFormat.WITHOUT_DASHES), "2024-05-01 22", []),
        (TagPeriodOptions(duration_ms=90 * 60_000), "202405012230", []),
    ],
)
def test_a_name_stands_for_the_beginning_of_its_period(options: TagPeriodOptions, name: str, others: list[str]) -> None:
    periods = options.periods
    begin = periods.find_last_ended(ms("2024-05-02 00:00"))
    assert periods.name_of(begin) == name
    assert [periods.find_time(each) for each in (name, *others)] == [begin] * (1 + len(others))


@pytest.mark.parametrize("name", ["2024-5-1", "2024-02-30", "2024-05-01x", "x2024-05-01", "20240501", "0000-01-01"])
def test_other_names_are_not_those_of_automatic_tags(name: str) -> None:
    assert TagPeriodOptions().periods.find_time(name) is None


def test_times_that_no_calendar_holds_have_no_name() -> None:
    periods = TagPeriodOptions().periods
    assert [periods.name_of(time) for time in (2**63 - 1, -(2**63), ms("0001-01-02"))] == [None] * 3


def test_the_tag_of_a_batch_job_moves_to_the_newest_snapshot() -> None:
    first, second = snapshots("2024-05-01 20:00", "2024-05-01 21:00")
    options = TagScheduleOptions(process_zone="+08:00", retained_max=2)
    plan = plan_batch_tag(options, first, {})
    assert plan == AutomaticTags((NewTag("batch-write-2024-05-02", first),))
    held = {
        "batch-write-2024-05-02": HeldTag(Tag(snapshot=first), 5),
        "late": HeldTag(Tag(snapshot=first), 9),
        "early": HeldTag(Tag(snapshot=first), 7),
    }
    plan = plan_batch_tag(options, second, held)
    assert (made(plan), plan.replaced, plan.deleted) == ({"batch-write-2024-05-02": 2}, tuple(made(plan)), ("early",))


def test_the_tag_of_a_batch_job_stays_if_it_is_right_and_has_no_lifetime() -> None:
    (only,) = snapshots("2024-05-01 20:00")
    options = TagScheduleOptions(batch_name="job")
    assert plan_batch_tag(options, only, {"job": HeldTag(Tag(snapshot=only), 5)}).is_empty
    limited = Tag(snapshot=only, create_time_ns=1, time_retained_ns=1)
    assert plan_batch_tag(options, only, {"job": HeldTag(limited, 5)}).replaced == ("job",)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"tag.creation-delay": "1 d"}, "tag.creation-delay"),
        ({"tag.creation-delay": "90 min", "tag.creation-period-duration": "1 h"}, "tag.creation-delay"),
        ({"tag.creation-period-duration": "0 s"}, "tag.creation-period-duration"),
        ({"sink.process-time-zone": "Mars"}, "sink.process-time-zone"),
        ({"sink.process-time-zone": "Europe"}, "sink.process-time-zone"),
        ({"tag.automatic-creation": "watermark", "sink.watermark-time-zone": "Mars"}, "sink.watermark-time-zone"),
        ({"tag.automatic-creation": "batch", "sink.process-time-zone": "Mars"}, "sink.process-time-zone"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_before_a_commit(options: dict[str, str], key: str) -> None:
    table = new_table()
    add(table, "a")
    wrong = table.with_options({"tag.automatic-creation": "process-time", **options})
    with pytest.raises(InvalidInputError) as caught:
        add(wrong, "b")
    assert caught.value.facts["option"] == key
    assert table.store.snapshots.ids() == [1]


def test_without_a_clock_or_a_watermark_there_is_no_schedule() -> None:
    for creation in ("none", "batch"):
        assert make_schedule(new_table(tag__automatic_creation=creation).context.options) is None
