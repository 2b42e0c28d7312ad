"""A purged table has its schema and one snapshot without files; what dies in between can be repeated."""

from __future__ import annotations

import pytest

from kit.small_tables import new_table
from tidelake.errors import InvalidInputError
from tidelake.ops.commit.committer import Committer
from tidelake.table import Table


def full(**options: str) -> Table:
    table = new_table(keyed=True, **options)
    for number in range(4):
        table.write([{"id": n, "dt": "d1", "v": str(number)} for n in range(5)])
    table.create_tag("t", snapshot=2)
    table.create_branch("b", tag="t")
    table.reset_consumer("c", 2)
    return table


def data_left(table: Table) -> list[str]:
    return [each.path for folder in table.store.env.io.list("dt=d1") for each in table.store.env.io.list(folder.path)]


@pytest.mark.parametrize("producer", ["none", "input"])
def test_everything_goes_but_the_schema_and_one_empty_snapshot(producer: str) -> None:
    table = full(changelog_producer=producer, changelog__num_retained__max="100", changelog__num_retained__min="90")
    table.expire_snapshots(retain_max=2, retain_min=1)
    plan = table.purge_files(plan_only=True)
    assert (plan.rows, plan.tags, plan.branches, plan.consumers) == (20, ("t",), ("b",), ("c",))
    assert str(plan).endswith("1 tag, 1 branch and 1 consumer")
    assert not plan.is_empty
    assert table.count() == 5
    done = table.purge_files()
    assert done.result is not None
    assert (done.left, len(done.result.snapshot_ids)) == ((), 1)
    assert (table.tags(), table.branches(), table.consumers()) == ({}, [], {})
    assert table.store.snapshots.ids() == list(done.result.snapshot_ids)
    assert table.store.changelogs.ids() == []
    assert table.count() == table.files().num_rows == 0
    assert data_left(table) == []
    assert table.reload().schema == table.schema
    assert table.check(deep=True).ok
    table.write([{"id": 1, "dt": "d1", "v": "again"}])
    assert table.count() == 1
    assert table.check(deep=True).ok


def test_a_purge_that_stopped_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    table = full()
    with monkeypatch.context() as patch:

        def stop(self: Committer, **_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(Committer, "truncate", stop)
        with pytest.raises(KeyboardInterrupt):
            table.purge_files()
    assert table.count() == 5
    assert table.check(deep=True).ok
    table.purge_files()
    assert table.count() == 0
    assert len(table.store.snapshots.ids()) == 1
    assert data_left(table) == []


def test_an_empty_table_and_a_branch() -> None:
    table = new_table()
    assert table.purge_files(plan_only=True).is_empty
    table.purge_files()
    assert table.count() == 0
    with pytest.raises(InvalidInputError, match="branch cannot be purged"):
        full().branch("b").purge_files()


def test_the_tag_of_a_batch_job_goes_too() -> None:
    table = full(tag__automatic_creation="batch")
    table.purge_files()
    assert table.tags() == {}
    assert table.count() == 0
