"""Partitions expire and are marked done alike: Apache Paimon and tidelake do the same to two copies of a table.

A table that Java wrote is copied as a folder; Java expires partitions in one copy and tidelake in the other. Afterwards
both hold the same partitions and kinds of snapshots, and each side goes on with what the other left.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import oracle
import tidelake as tl
from kit.report_server import report_server
from tidelake.errors import TidelakeError
from tidelake.ops.maintain.partition_expiry import PartitionExpiryPlan, PartitionExpiryResult
from tidelake.spec.documents.success import success_from_json
from tidelake.spec.rows.binary_row_scalar import encode_row
from tidelake.spec.rows.partition_time import TimeExtractor
from tidelake.spec.types.data_types import STRING

pytestmark = pytest.mark.oracle

FIELDS = {"id": "INT NOT NULL", "dt": "STRING", "hour": "INT", "v": "INT"}
NOW = datetime.now(UTC).replace(tzinfo=None)  # noqa: TID251 - Java reads its own clock
OLD, OLDER, YOUNG = (f"{NOW - timedelta(days=days):%Y-%m-%d}" for days in (40, 400, 1))
PLAIN = {"write-only": "true", "partition.expiration-check-interval": "0"}


class Pair:
    """Two copies of a table that Java filled: `theirs` for Java to work on, `ours` for tidelake."""

    def __init__(
        self,
        folder: Path,
        rows: Sequence[tuple[Any, ...]],
        *,
        by: Sequence[str] = ("dt",),
        keys: Sequence[str] = (),
        **options: str,
    ) -> None:
        self.folder = folder
        given = {**PLAIN, **{key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}}
        made = oracle.Catalog(folder / "theirs").create_table("d.t", FIELDS, keys, by, given)
        for row in rows:
            made.write([row])
        shutil.copytree(folder / "theirs", folder / "ours")

    @property
    def theirs(self) -> oracle.Table:
        return oracle.Catalog(self.folder / "theirs").table("d.t")

    @property
    def ours(self) -> tl.Table:
        return tl.connect(str(self.folder / "ours")).table("d.t")

    def expire(self) -> tuple[list[str], list[str]]:
        """What each side says that it dropped."""
        loaded = self.theirs.load()
        java = loaded.store().newPartitionExpire("", loaded).expire(oracle.core.BATCH)
        done = self.ours.expire_partitions()
        assert isinstance(done, PartitionExpiryResult)
        return [str(each)[1:-1] for each in java or ()], [str(each) for each in done.partitions]

    def compare(self) -> list[str]:
        """Both hold the same rows, partitions and snapshots; returns the values of `dt` that are left."""
        ours_in_java = oracle.Catalog(self.folder / "ours").table("d.t")
        assert shape(ours_in_java) == shape(self.theirs)
        rows = sorted(map(str, self.theirs.read()))
        assert sorted(map(str, ours_in_java.read())) == rows
        assert sorted(map(str, self.ours.to_arrow().to_pylist())) == rows
        report = self.ours.check(deep=True)
        assert report.ok, str(report)
        return sorted({str(row["dt"]) for row in self.theirs.read()})


def shape(table: oracle.Table) -> list[tuple[object, ...]]:
    keys = ("commitKind", "totalRecordCount", "deltaRecordCount", "operation", "commitIdentifier")
    folder = Path(str(table.load().location().toUri().getPath())) / "snapshot"
    found = sorted(folder.glob("snapshot-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    documents = [json.loads(path.read_text()) for path in found]
    # Java's writer here does not say by which statement it writes, and ours does.
    plain = [{**each, "operation": None} if each["commitKind"] == "APPEND" else each for each in documents]
    return [tuple(each.get(key) for key in keys) for each in plain]


ROWS = [
    (1, OLD, 1, 1),
    (2, OLDER, 2, 2),
    (3, YOUNG, 3, 3),
    (4, None, 4, 4),
    (5, "no time", 5, 5),
    (6, OLD, 6, 6),
    (7, "", 7, 7),
]


def test_values_that_make_an_old_time_go_and_others_stay(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, ROWS, partition__expiration_time="30 d")
    theirs, ours = pair.expire()
    assert ours == theirs == [f"dt={OLDER}", f"dt={OLD}"]
    assert pair.compare() == sorted(["", "None", YOUNG, "no time"])
    assert pair.expire() == ([], [])


def test_the_greatest_number_and_the_batches_are_theirs(jvm: None, tmp_path: Path) -> None:
    days = [f"{NOW - timedelta(days=50 + number):%Y-%m-%d}" for number in range(5)]
    pair = Pair(
        tmp_path,
        [(number, day, number, number) for number, day in enumerate(days)],
        partition__expiration_time="30 d",
        partition__expiration_max_num="3",
        partition__expiration_batch_size="2",
    )
    theirs, ours = pair.expire()
    assert ours == theirs == [f"dt={day}" for day in sorted(days)[:3]]
    assert pair.compare() == sorted(days)[3:]
    assert [kind for kind, *_ in shape(pair.theirs)[-2:]] == ["OVERWRITE", "OVERWRITE"]


def test_patterns_and_formatters_give_the_same_times(jvm: None, tmp_path: Path) -> None:
    compact = NOW - timedelta(days=40)
    rows = [
        (1, f"{compact:%Y%m%d}", 7, 1),
        (2, f"{NOW:%Y%m%d}", 0, 2),
        (3, f"{compact:%Y%m%d}", None, 3),
        (4, "20200101", 24, 4),
        (5, "20200101", 25, 5),
    ]
    pair = Pair(
        tmp_path,
        rows,
        by=("dt", "hour"),
        partition__expiration_time="30 d",
        partition__timestamp_pattern="$dt $hour:00",
        partition__timestamp_formatter="yyyyMMdd H:mm",
    )
    theirs, ours = pair.expire()
    assert ours == theirs == ["dt=20200101, hour=24", f"dt={compact:%Y%m%d}, hour=7"]
    assert len(pair.compare()) == 3


def test_by_update_time_partitions_without_a_new_file_go(jvm: None, tmp_path: Path) -> None:
    rows = (ROWS[0], ROWS[1], ROWS[3])
    pair = Pair(tmp_path, rows, partition__expiration_time="3 s", partition__expiration_strategy="update-time")
    time.sleep(3.1)  # noqa: TID251 - Java reads its own clock
    for table in (pair.theirs, oracle.Catalog(tmp_path / "ours").table("d.t")):
        table.write([(8, OLDER, 8, 8)])
    theirs, ours = pair.expire()
    assert ours == theirs == [f"dt={OLD}", "dt=__DEFAULT_PARTITION__"]
    assert pair.compare() == [OLDER]


def test_each_side_goes_on_with_what_the_other_left(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, ROWS, partition__expiration_time="30 d")
    pair.expire()
    (tmp_path / "theirs").rename(tmp_path / "swap")
    (tmp_path / "ours").rename(tmp_path / "theirs")
    (tmp_path / "swap").rename(tmp_path / "ours")
    pair.theirs.write([(10, OLD, 1, 1), (11, YOUNG, 1, 1)])
    pair.ours.write([{"id": 10, "dt": OLD, "hour": 1, "v": 1}, {"id": 11, "dt": YOUNG, "hour": 1, "v": 1}])
    theirs, ours = pair.expire()
    assert ours == theirs == [f"dt={OLD}"]
    assert pair.compare() == sorted(["", "None", YOUNG, "no time"])


@pytest.mark.parametrize("identifier", [None, 7], ids=["batch", "numbered"])
def test_after_a_commit_the_same_partitions_go_in_the_same_snapshots(
    jvm: None, tmp_path: Path, identifier: int | None
) -> None:
    pair = Pair(tmp_path, ROWS[:4], partition__expiration_time="30 d")
    pair.theirs.alter(("set", "write-only", "false"))
    pair.ours.alter(set_options={"write-only": "false"})
    if identifier is None:
        pair.theirs.write([(9, YOUNG, 9, 9)])
        pair.ours.write([{"id": 9, "dt": YOUNG, "hour": 9, "v": 9}])
    else:
        with pair.theirs.writer(user="job") as writer:
            writer.write([(9, YOUNG, 9, 9)])
            writer.commit(identifier)
        row = [{"id": 9, "dt": YOUNG, "hour": 9, "v": 9}]
        pair.ours.write(row, commit_user="job", identifier=identifier)
        assert pair.ours.write(row, commit_user="job", identifier=identifier).repeated
    assert pair.compare() == sorted(["None", YOUNG])
    assert [kind for kind, *_ in shape(pair.theirs)[-2:]] == ["APPEND", "OVERWRITE"]


def test_dates_are_numbers_of_days_and_never_expire_by_their_values(jvm: None, tmp_path: Path) -> None:
    options = {**PLAIN, "partition.expiration-time": "30 d"}
    table = oracle.Catalog(tmp_path / "theirs").create_table("d.t", {"id": "INT", "dt": "DATE"}, (), ["dt"], options)
    table.write([(1, datetime(2020, 1, 1).date())])
    loaded = table.load()
    assert not loaded.store().newPartitionExpire("", loaded).expire(oracle.core.BATCH)
    plan = tl.connect(str(tmp_path / "theirs")).table("d.t").expire_partitions(plan_only=True)
    assert isinstance(plan, PartitionExpiryPlan)
    assert (plan.partitions, plan.timeless) == ((), ("dt=18262",))


def test_a_job_with_late_rows_hears_of_both_that_their_partition_expired(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, ROWS[:1] * 2, keys=("dt", "id"), bucket="1", partition__expiration_time="30 d")
    options = {"write-only": False, "num-sorted-run.compaction-trigger": 2}
    with pair.theirs.writer(user="late", options=options) as late:
        late.compact(full=True)
        messages = late.java.prepareCommit(True, 1)
        ours = pair.ours.with_options(options).new_write("late")
        ours.compact(encode_row([OLD], [STRING]), 0, full=True)
        prepared = ours.prepare_commit(1)
        assert [bool(each.compact.before) for each in prepared] == [True]
        pair.expire()
        with pytest.raises(Exception, match="expired partitions"):
            late.committer.commit(1, messages)
        # Both publish the part that wrote nothing; where Java then fails, ours leaves the compaction out and says so.
        (warning,) = pair.ours.new_commit("late").commit(prepared, identifier=1).warnings
    assert "rows were written to partitions that have expired" in warning
    assert pair.compare() == []


# ------------------------------------------------------------------------------------------------ times

TEXTS = (
    """
2024-01-01|2024-1-1|2024-13-45|2024-02-31|20240101|20240231|2024010123|2024-01-01 10:11:12|2024-01-01 25:61:61
2024-01-01 10:11:12.5|2024-01-01 10:11|2024-01-01T10:11:12|-5-1-1|10000-01-01|+10000-01-01|0000-01-01|2024-00-00
99999999999-1-1|1000000000-1-1|240101|20240101 24|20240101 24:00|20240101 24:01|2024/01/01|2024年01月01日|x2024-01-01
2024-01-01 |202401|2024|2024-01-01-07|20240101 10:11:12.123|20240101235959|2024-01-01 -1:00:00|00000101|2024-06-31
2024-6-1 1:2:3|２０２４-01-01|2023-02-29|20240101 1011|2024-01-01 10:60:00|2024-01-32|x'y 2024-01-01
""".strip()
    .replace("\n", "|")
    .split("|")
)
FORMATTERS = (
    """
yyyyMMdd|yyyy-MM-dd|yyyyMMddHH|yyyy-MM-dd HH:mm:ss|yyyyMMdd HH|yyyyMMdd HH:mm|yyyy/MM/dd|yyyy'年'MM'月'dd'日'
'x'yyyy-MM-dd|yyMMdd|yyyyMM|yyyy-M-d|uuuu-MM-dd|yyyy-MM-dd-HH|yyyyMMddHHmmss|yyyy-MM-dd'T'HH:mm:ss
yyyyMMdd HH:mm:ss.SSS|yyyy-MM-dd[ HH:mm:ss]|yyyy-M-d H:m:s|y-M-d|yyyyMMdd HHmm|yyyy-MM-dd HH:mm[:ss]|yyyyLLdd
yyyy-MM-dd HH:ss|'x''y 'yyyy-MM-dd
""".strip()
    .replace("\n", "|")
    .split("|")
)


@pytest.mark.parametrize("formatter", [None, *FORMATTERS])
def test_a_text_is_the_time_that_java_parses(jvm: None, formatter: str | None) -> None:
    java = oracle.java("partition.PartitionTimeExtractor")(None, formatter)
    ours = TimeExtractor.make(["dt"], None, formatter)
    zone = oracle.java("java.time.ZoneOffset").UTC
    names = oracle.java("java.util.ArrayList")(["dt"])
    for text in TEXTS:
        try:
            moment = java.extract(names, oracle.java("java.util.ArrayList")([text]))
            wanted = int(moment.toEpochSecond(zone)) * 10**9 + int(moment.getNano())
        except oracle.java("java.time.DateTimeException"):
            wanted = None
        assert ours.extract([text]) == wanted, (text, formatter)


def test_java_replaces_columns_in_their_order_and_ours_the_longest_name_first(jvm: None) -> None:
    names, texts, lists = ["dt", "dt_hour"], ["2024-01-01", "10"], oracle.java("java.util.ArrayList")
    pattern = "$dt $dt_hour:00:00"
    java = oracle.java("partition.PartitionTimeExtractor")(pattern, None)
    with pytest.raises(oracle.java("java.time.DateTimeException")):
        java.extract(lists(names), lists(texts))
    turned = java.extract(lists(names[::-1]), lists(texts[::-1]))
    seconds = int(turned.toEpochSecond(oracle.java("java.time.ZoneOffset").UTC))
    assert TimeExtractor.make(names, pattern, None).extract(texts) == seconds * 10**9


# ------------------------------------------------------------------------------------------------ marks


def mark_theirs(table: oracle.Table, partition: str) -> None:
    loaded = table.load()
    loader = oracle.java("java.lang.Thread").currentThread().getContextClassLoader()
    for action in oracle.java("partition.actions.PartitionMarkDoneAction").createActions(
        loader, loaded, loaded.coreOptions()
    ):
        action.markDone(partition)
        action.close()


def test_success_files_of_one_are_renewed_by_the_other(jvm: None, tmp_path: Path) -> None:
    pair = Pair(tmp_path, ROWS[:2], by=("dt", "hour"))
    marker = tmp_path / "ours/d.db/t" / f"dt={OLD}/hour=1/_SUCCESS"
    pair.ours.mark_partition_done({"dt": OLD, "hour": 1})
    ours = success_from_json(marker.read_bytes(), path="m")
    time.sleep(0.01)  # noqa: TID251 - Java reads its own clock
    mark_theirs(oracle.Catalog(tmp_path / "ours").table("d.t"), f"dt={OLD}/hour=1/")
    theirs = success_from_json(marker.read_bytes(), path="m")
    assert theirs.creation_time_ms == ours.creation_time_ms
    assert theirs.modification_time_ms > ours.modification_time_ms
    time.sleep(0.01)  # noqa: TID251 - Java reads its own clock
    pair.ours.mark_partition_done({"dt": OLD, "hour": 1})
    again = success_from_json(marker.read_bytes(), path="m")
    assert (again.creation_time_ms, again.modification_time_ms > theirs.modification_time_ms) == (
        ours.creation_time_ms,
        True,
    )
    java = oracle.java("partition.file.SuccessFile").fromJson(marker.read_text())
    assert (int(java.creationTime()), int(java.modificationTime())) == (
        again.creation_time_ms,
        again.modification_time_ms,
    )
    assert not (tmp_path / "ours/d.db/t" / f"dt={OLDER}/hour=2/_SUCCESS").exists()


def test_reports_over_http_are_theirs(jvm: None, tmp_path: Path) -> None:
    pair = Pair(
        tmp_path,
        ROWS[:1],
        by=("dt", "hour"),
        partition__mark_done_action="http-report",
    )
    with report_server() as server:
        for params in (None, "a=1"):
            options = {"partition.mark-done-action.http.url": server.url}
            options |= {} if params is None else {"partition.mark-done-action.http.params": params}
            pair.theirs.alter(*(("set", key, text) for key, text in options.items()))
            pair.ours.alter(set_options=options)
            server.posted.clear()
            server.types.clear()
            mark_theirs(pair.theirs, f"dt={OLD}/hour=1/")
            pair.ours.mark_partition_done({"dt": OLD, "hour": 1})
            theirs, ours = server.posted
            assert server.types == ["application/json"] * 2
            assert ours.pop("path").endswith("/ours/d.db/t")
            assert theirs.pop("path").endswith("/theirs/d.db/t")
            assert ours == theirs
            assert ours["params"] == params


@pytest.mark.parametrize("action", ["done-partition", "mark-event"])
def test_actions_that_need_a_metastore_are_refused_by_both(jvm: None, tmp_path: Path, action: str) -> None:
    pair = Pair(tmp_path, ROWS[:1], partition__mark_done_action=action)
    with pytest.raises(Exception, match="metastore"):
        mark_theirs(pair.theirs, f"dt={OLD}/")
    with pytest.raises(TidelakeError, match="not supported"):
        pair.ours.mark_partition_done({"dt": OLD})
