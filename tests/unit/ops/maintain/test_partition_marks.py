"""Marking partitions done: by hand and after batch commits, with files and with reports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.report_server import ReportServer, report_server
from kit.small_tables import new_table, with_foreign_options
from tidelake.errors import InvalidInputError, NotFoundError, StorageError, UnsupportedError
from tidelake.table import Table

URL = "partition.mark-done-action.http.url"


@pytest.fixture
def server() -> Iterator[ReportServer]:
    with report_server() as made:
        yield made


def table_with(*days: str | None, keyed: bool = False, **options: str) -> Table:
    table = new_table(keyed=keyed, **options)
    for number, day in enumerate(days):
        table.write([{"id": number, "dt": day, "v": "v"}])
    return table


def marked(table: Table, day: str) -> bool:
    return table.store.env.io.exists(f"dt={day}/_SUCCESS")


def test_a_plan_names_the_folders_and_marks_nothing() -> None:
    table = table_with("a", "b", None)
    plan = table.mark_partition_done([{"dt": "b"}, {"dt": None}, {"dt": "b"}], plan_only=True)
    assert plan.partitions == ("dt=b", "dt=__DEFAULT_PARTITION__")
    assert str(plan) == "2 partitions (dt=b; dt=__DEFAULT_PARTITION__) done by success-file"
    assert not marked(table, "b")
    assert table.mark_partition_done({"dt": "b"}).partitions == ("dt=b",)
    assert marked(table, "b")
    assert not marked(table, "a")


@pytest.mark.parametrize("specification", [{"dt": "c"}, {"dt": "../a"}, {"dt": None}])
def test_a_partition_without_files_is_not_marked(specification: dict[str, object]) -> None:
    table = table_with("a", "c")
    table.drop_partitions("dt = 'c'")
    with pytest.raises(NotFoundError) as caught:
        table.mark_partition_done([{"dt": "a"}, specification])
    assert caught.value.code == "partition-not-found"
    assert not marked(table, "a")
    assert not marked(table, "c")


def test_a_partition_is_named_by_all_its_columns_and_no_others() -> None:
    table = table_with("a")
    for wrong in ({}, {"v": "v"}, {"dt": "a", "v": "v"}):
        with pytest.raises(InvalidInputError, match="each partition column"):
            table.mark_partition_done(wrong)
    with pytest.raises(InvalidInputError, match="no partition"):
        table.mark_partition_done([])
    with pytest.raises(InvalidInputError, match="not a mapping"):
        table.mark_partition_done(["dt=a"])  # type: ignore[list-item]
    with pytest.raises(NotFoundError):
        new_table().mark_partition_done({"dt": "a"})


@pytest.mark.parametrize("action", ["done-partition", "mark-event", "custom", "success-file,custom"])
def test_actions_that_are_not_supported_are_refused_where_they_are_set_and_used(action: str) -> None:
    with pytest.raises(UnsupportedError, match="not supported"):
        new_table(partition__mark_done_action=action)
    table = with_foreign_options(table_with("a"), {"partition.mark-done-action": action})
    with pytest.raises(UnsupportedError) as caught:
        table.mark_partition_done({"dt": "a"})
    assert caught.value.facts["value"] in action
    assert not marked(table, "a")
    table.write([{"id": 1, "dt": "a", "v": "v"}])  # a commit that marks nothing goes on


def test_an_action_that_does_not_exist_and_a_missing_address_are_mistakes() -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        new_table(partition__mark_done_action="whatever")
    for url in ({}, {"partition__mark-done-action__http__url": "ftp://x"}):
        with pytest.raises(InvalidInputError, match="needs the address"):
            new_table(partition__mark_done_action="http-report", **url)


def test_reports_say_which_partition_of_which_table(server: ReportServer) -> None:
    table = table_with("a", "b")
    table.alter(
        set_options={
            "partition.mark-done-action": "success-file,http-report",
            "partition.mark-done-action.http.url": server.url,
            "partition.mark-done-action.http.params": "team=x",
        }
    )
    table = table.reload()
    table.mark_partition_done([{"dt": "a"}, {"dt": "b"}])
    wanted = {"table": "db.t", "path": table.location, "params": "team=x"}
    assert server.posted == [{"partition": "dt=a/", **wanted}, {"partition": "dt=b/", **wanted}]
    assert marked(table, "a")
    silent = table.with_options({"partition.mark-done-action": "success-file"})
    silent.mark_partition_done({"dt": "a"})
    assert len(server.posted) == 2


def test_a_report_that_is_not_accepted_is_an_error_and_after_a_commit_a_warning(server: ReportServer) -> None:
    options = {"partition.mark-done-action": "http-report", URL: server.url}
    table = table_with("a").with_options({**options, "partition.end-input-to-done": True})
    server.answer = b'{"result":"later"}'
    with pytest.raises(StorageError, match="did not accept") as caught:
        table.mark_partition_done({"dt": "a"})
    assert caught.value.code == "report-refused"
    (warning,) = table.write([{"id": 1, "dt": "b", "v": "v"}]).warnings
    assert warning.startswith("committed, but marking partitions done failed: receiver of the report")
    assert [each["partition"] for each in server.posted] == ["dt=a/", "dt=b/"]
    assert table.count() == 2


def test_a_batch_job_marks_what_it_wrote_and_not_what_it_dropped_or_compacted() -> None:
    table = table_with(*"abcabc", keyed=True, write_only="true")
    table.alter(set_options={"partition.end-input-to-done": "true"})
    table = table.reload()
    table.drop_partitions("dt = 'a'")
    assert table.compact(full=True).files
    table.write([{"id": 9, "dt": "c", "v": "v"}], commit_user="job", identifier=1)
    assert not any(marked(table, day) for day in "abc")
    table.write([{"id": 9, "dt": "b", "v": "v"}], mode="overwrite-dynamic")
    assert [day for day in "abc" if marked(table, day)] == ["b"]
