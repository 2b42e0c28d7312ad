"""Moments without a zone: in the local one, or in that of the Spark session, in every verb that takes a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tidelake as tl
from kit.command_line import answer, run
from tidelake.errors import InvalidInputError
from tidelake.io.clock import moment_ms
from tidelake.ops.maintain import times
from tidelake.ops.scan.travel import parse_time
from tidelake.table import Table

NOON = datetime(2026, 1, 2, 12)
NOON_UTC_MS = 1_767_355_200_000
HOUR_MS = 3_600_000


@pytest.fixture
def kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local zone that is five hours and three quarters ahead."""
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)  # a session that another test left does not count
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def table(kathmandu: None, tmp_path) -> Table:
    made = tl.connect(tmp_path / "lake").create_table("db.t", {"id": "INT"})
    for number in (1, 2, 3):
        made.write([{"id": number}])
    return made


def session_in(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    session = SimpleNamespace(conf={"spark.sql.session.timeZone": zone})
    stand_in = SimpleNamespace(SparkSession=SimpleNamespace(getActiveSession=lambda: session))
    monkeypatch.setitem(sys.modules, "pyspark.sql", stand_in)  # type: ignore[arg-type]


@pytest.mark.usefixtures("kathmandu")
def test_a_moment_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    local = NOON_UTC_MS - 5 * HOUR_MS - 45 * 60_000
    assert moment_ms(NOON) == parse_time("2026-01-02 12:00:00") == local
    assert moment_ms(NOON.replace(tzinfo=UTC)) == parse_time("2026-01-02T12:00:00Z") == NOON_UTC_MS
    assert parse_time("2026-01-02 12:00:00+02:00") == NOON_UTC_MS - 2 * HOUR_MS
    for zone, hours in (("UTC", 0), ("Z", 0), ("America/New_York", -5), ("+02:00", 2), ("GMT-3", -3)):
        session_in(monkeypatch, zone)
        assert moment_ms(NOON) == parse_time("2026-01-02 12:00:00") == NOON_UTC_MS - hours * HOUR_MS
    session_in(monkeypatch, "Mars/Olympus")
    with pytest.raises(InvalidInputError, match="time zone of the Spark session"):
        moment_ms(NOON)


def test_every_verb_takes_a_moment_by_the_local_clock(table: Table) -> None:
    local = datetime.fromtimestamp(table.snapshot(2).time_ms / 1000, UTC).astimezone().replace(tzinfo=None)
    first, third = local - timedelta(milliseconds=1), table.inspect.snapshots().column("commit_time")[2].as_py()
    for moment in (local, str(local)):
        assert table.at(timestamp=moment).count() == 2
        assert table.rollback_to(timestamp=moment, plan_only=True).target.id == 2
    assert table.expire_snapshots(older_than=third, retain_min=1, plan_only=True).snapshot_ids == (1,)
    assert table.with_options({"scan.timestamp": str(local)}).count() == 2
    between = table.with_options({"incremental-between-timestamp": f"{first},{local}"})
    assert between.to_arrow().column("id").to_pylist() == [2]
    streams = (
        table.follow(start=local, poll=0, timeout=0),
        table.with_options({"scan.timestamp": str(local)}).follow(poll=0, timeout=0),
    )
    for stream in streams:
        assert [change.snapshot_id for change in stream] == [2, 3]
    table.create_tag("kept", snapshot=1, time_retained="1 d")
    assert table.expire_tags(older_than=local) == ()
    assert table.expire_tags(older_than=local + timedelta(minutes=1)) == ("kept",)


def test_times_that_are_shown_can_be_given_back(table: Table) -> None:
    shown = table.inspect.snapshots().column("commit_time").to_pylist()
    assert [table.at(timestamp=each).count() for each in shown] == [1, 2, 3]
    place = ("--table-path", table.location)
    assert answer(*place, "log")[0]["time"].endswith("+05:45")
    assert len(answer(*place, "head", "--timestamp", str(shown[1]))) == 2
    assert "3" in run(*place, "follow", "--start", str(shown[2]), "--timeout", "0").output


@pytest.mark.parametrize(
    "moment",
    [
        pd.Timestamp("2026-01-02 12:00"),
        pd.Timestamp("2026-01-02 12:00:00.000000001"),
        np.datetime64("2026-01-02T12:00", "ns"),
        pa.scalar(NOON, pa.timestamp("us")),
        pd.Timestamp("2026-01-02 06:15", tz="UTC"),
        np.int64(NOON_UTC_MS - 5 * HOUR_MS - 3 * HOUR_MS // 4),
    ],
    ids=repr,
)
def test_a_moment_of_another_library_is_one(kathmandu: None, moment: Any) -> None:
    """One of pandas without a zone was a TypeError in every verb, and others were taken for a number."""
    assert times.moment_ms(moment) == NOON_UTC_MS - 5 * HOUR_MS - 3 * HOUR_MS // 4


def test_a_date_is_its_local_beginning(kathmandu: None) -> None:
    assert times.moment_ms(NOON.date()) == times.moment_ms("2026-01-02")


@pytest.mark.parametrize("wrong", [True, 1.5, None, [], timedelta(days=1)], ids=repr)
def test_what_is_not_a_moment_is_refused(table: Table, wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="moment is not understood"):
        times.moment_ms(wrong)


@pytest.mark.parametrize("digits", ["20200101", "2020", " 5 "])
def test_a_number_without_a_unit_deletes_nothing(table: Table, digits: str) -> None:
    """`older_than="20200101"` was read as 20,200,101 milliseconds ago, and snapshots of the same day went."""
    for verb in (table.expire_snapshots, table.expire_changelogs, table.expire_tags, table.remove_orphans):
        with pytest.raises(InvalidInputError, match="number without a unit"):
            verb(older_than=digits)
    assert table.inspect.snapshots().num_rows == 3


def test_a_duration_without_a_unit_is_refused_where_something_expires_by_it() -> None:
    lake = tl.connect("memory://units")
    table = lake.create_table("d.t", {"id": "INT", "dt": "STRING"}, partition_by=["dt"])
    table.write([{"id": 1, "dt": "2026-01-01"}])
    for call in (
        lambda: table.create_tag("t", time_retained="90"),
        lambda: table.expire_partitions("30", plan_only=True),
        lambda: lake.call("create_tag", "d.t", "t", time_retained="90"),
    ):
        with pytest.raises(tl.InvalidInputError, match="without a unit"):
            call()
    assert table.tags() == {}
