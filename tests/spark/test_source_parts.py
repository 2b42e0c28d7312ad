"""The pieces of the data source on their own: what crosses processes, what an abort may remove, what is refused."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as ds
from pyspark.sql.types import LongType, StringType, StructType

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.datasource import stream_writer
from tidelake.engines.spark.datasource import writer as source_write
from tidelake.engines.spark.datasource.reader import to_predicate
from tidelake.engines.spark.datasource.source import SourceOptions, TidelakeSource
from tidelake.engines.spark.datasource.stream_writer import StreamTableWriter
from tidelake.engines.spark.datasource.writer import STRIPE, TableWriter, by_bucket
from tidelake.errors import CommitConflictError, CommitUnknownError, InvalidInputError, NotFoundError, UnsupportedError
from tidelake.expr.tree import And, Compare, IsNull, Not, StartsWith
from tidelake.spec.types.type_codec import parse_type
from tidelake.store.snapshots import SnapshotStore
from tidelake.table import Table

STRUCT = StructType().add("id", LongType()).add("v", StringType())


@pytest.fixture
def keyed(lake: Lake) -> Table:
    return lake.create_table("db.k", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options={"bucket": "1"})


class Task:
    """Stands for the context of a task."""

    def __init__(self, number: int) -> None:
        self.number = number

    def partitionId(self) -> int:  # noqa: N802 - PySpark's name
        return self.number

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802 - PySpark's name
        return None


def source(table: Table, **options: str) -> TidelakeSource:
    return TidelakeSource({"path": table.location, **options})


def writer(table: Table, *, overwrite: bool = False) -> TableWriter:
    made = source(table).writer(STRUCT, overwrite)
    assert isinstance(made, TableWriter)
    return made


def written(made: TableWriter, task: int, monkeypatch: pytest.MonkeyPatch, **row: Any) -> Any:
    """What a task returns that writes one row, as it reaches the committing process."""
    monkeypatch.setattr(source_write.TaskContext, "get", lambda: Task(task))
    again = pickle.loads(pickle.dumps(made))
    return pickle.loads(pickle.dumps(again.write(iter([pa.RecordBatch.from_pylist([row])]))))


def files_of(table: Table) -> int:
    return len(list(table.store.env.io.list("bucket-0")))


def test_rows_that_another_commit_overtook_are_numbered_above_it(keyed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.write([{"id": 1, "v": "first"}])
    slow = writer(keyed)
    parts = [written(slow, task, monkeypatch, id=1, v=f"slow {task}") for task in range(3)]
    for _ in range(2):
        quick = writer(keyed)
        quick.commit([written(quick, 5, monkeypatch, id=1, v="quick")])
    slow.commit([parts[2], parts[0], parts[1]])
    assert keyed.to_arrow().to_pylist() == [{"id": 1, "v": "slow 2"}]
    assert keyed.check(deep=True, rows=True).ok


def test_a_task_starts_from_the_snapshot_that_was_planned(keyed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(keyed)
    early = written(made, 1, monkeypatch, id=1, v="task 1")
    keyed.write([{"id": 1, "v": "between"}])
    late = written(made, 0, monkeypatch, id=1, v="task 0")
    assert (late.messages[0].data.new_files[0].min_sequence, early.messages[0].data.new_files[0].min_sequence) == (
        0,
        STRIPE,
    )
    made.commit([late, early])
    assert keyed.to_arrow().to_pylist() == [{"id": 1, "v": "task 1"}]


def test_stripes_that_run_into_each_other_are_refused(keyed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(keyed)
    part = written(made, 0, monkeypatch, id=1, v="a")
    with pytest.raises(UnsupportedError, match="more rows"):
        by_bucket([part, part], renumber=False)


@pytest.mark.parametrize("failed", [False, True])
def test_an_abort_after_a_commit_removes_nothing(keyed: Table, monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    made = writer(keyed)
    part = written(made, 0, monkeypatch, id=1, v="a")
    made.commit([part])
    made.abort([part, None] if failed else [part])
    assert keyed.to_arrow().to_pylist() == [{"id": 1, "v": "a"}]


def test_an_abort_after_a_commit_of_unknown_outcome_removes_nothing(
    keyed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(keyed)
    part = written(made, 0, monkeypatch, id=1, v="a")

    def lost(*_: object, **__: object) -> None:
        raise CommitUnknownError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "publish", lost)
        with pytest.raises(CommitUnknownError):
            made.commit([part])
    made.abort([part])
    assert files_of(keyed) == 1


def test_an_abort_removes_what_tasks_wrote_when_another_failed(keyed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(keyed)
    part = written(made, 0, monkeypatch, id=1, v="a")
    made.abort([part, None])
    assert files_of(keyed) == 0


def test_building_readers_and_writers_changes_nothing(lake: Lake, keyed: Table) -> None:
    before = sorted(each.name for each in lake.env.io.list("db.db/k"))
    for _ in range(3):
        source(keyed).writer(STRUCT, True)
        source(keyed).reader(STRUCT)
        TidelakeSource({"path": f"{lake.location}/db.db/fresh"}).writer(STRUCT, False)
    assert sorted(each.name for each in lake.env.io.list("db.db/k")) == before
    assert "db.fresh" not in lake


def test_a_table_that_another_job_made_meanwhile_is_not_written_to(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    made = TidelakeSource({"path": f"{lake.location}/db.db/fresh"}).writer(STRUCT, False)
    assert isinstance(made, TableWriter)
    part = written(made, 0, monkeypatch, id=1, v="a")
    other = lake.create_table("db.fresh", {"id": "BIGINT"})
    with pytest.raises(InvalidInputError, match="another job created the table"):
        made.commit([part])
    assert other.latest_snapshot() is None


@pytest.mark.parametrize(
    "table_options", [{}, {"bucket": "1", "merge-engine": "first-row"}], ids=["dynamic buckets", "first-row"]
)
def test_tables_whose_rows_need_a_shuffle_are_refused_with_what_to_use(
    lake: Lake, table_options: Mapping[str, object]
) -> None:
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options=table_options)
    with pytest.raises(UnsupportedError) as caught:
        source(table).writer(STRUCT, False)
    assert "table.write(df)" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("struct", "said"),
    [
        (StructType().add("id", LongType()).add("w", StringType()), "does not have"),
        (StructType().add("v", StringType()), "must not be null"),
        (StructType().add("id", StructType().add("a", LongType())), "does not fit"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_a_task_runs(keyed: Table, struct: StructType, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        source(keyed).writer(struct, False)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "temporary view"),
        ({"database": "db", "table": "t"}, "not named"),
        ({"warehouse": "w", "path": "p"}, "both"),
        ({"warehouse": "w", "table": "t"}, "database.table"),
        ({"catalog": "c", "table": "t"}, "catalogs"),
        ({"paths": "[]"}, "several paths"),
        ({"path": "p", "numpartitions": "none"}, "numPartitions must be a positive integer"),
        ({"path": "p", "partitionoverwritemode": "some"}, "must be static or dynamic"),
        ({"path": "p", "columns": "[1"}, "JSON"),
    ],
)
def test_options_that_name_no_table_or_say_nothing_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        SourceOptions.parse(given)


def test_credentials_are_not_shown() -> None:
    options = SourceOptions.parse({"path": "s3://b/t", "storage.secret_access_key": "hush", "branch": "b"})
    assert options.storage == {"secret_access_key": "hush"}
    assert options.table == {"branch": "b"}
    assert "hush" not in repr(options)


def test_only_filters_that_mean_the_same_are_translated() -> None:
    types = {name: parse_type(text) for name, text in {"i": "INT", "s": "STRING", "x": "DOUBLE", "f": "FLOAT"}.items()}
    i, s, x, f = (("i",), ("s",), ("x",), ("f",))
    assert to_predicate(ds.GreaterThan(i, 3), types) == Compare("i", ">", 3)
    assert to_predicate(ds.Not(ds.EqualTo(s, "a")), types) == Not(Compare("s", "=", "a"))
    assert to_predicate(ds.StringStartsWith(s, "a"), types) == StartsWith("s", "a")
    assert to_predicate(ds.EqualNullSafe(i, None), types) == IsNull("i")
    assert to_predicate(ds.EqualNullSafe(i, 1), types) == And((Not(IsNull("i")), Compare("i", "=", 1)))
    for number in (1.0, math.inf, math.nan):  # NaN is the greatest number, and equal to itself, on both sides
        assert repr(to_predicate(ds.GreaterThan(x, number), types)) == repr(Compare("x", ">", number))
        assert repr(to_predicate(ds.Not(ds.LessThan(x, number)), types)) == repr(Not(Compare("x", "<", number)))
    for left in (
        ds.EqualTo(x, 1),
        ds.EqualTo(f, 1.0),
        ds.EqualTo(i, 1 << 40),
        ds.EqualTo(i, True),
        ds.StringEndsWith(s, "a"),
        ds.EqualTo(("i", "j"), 1),
        ds.In(s, ("a", None)),
    ):
        assert to_predicate(left, types) is None, left


def test_a_stream_into_a_table_that_does_not_exist_is_refused_by_our_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="table does not exist"):
        TidelakeSource({"path": str(tmp_path / "somewhere")}).streamWriter(STRUCT, overwrite=False)


def test_a_commit_between_two_tasks_of_a_batch_is_named_and_not_taken_for_too_many_rows(
    keyed: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stream(query_id: str) -> StreamTableWriter:
        checkpoint = tmp_path / query_id
        checkpoint.mkdir()
        (checkpoint / "metadata").write_text(f'{{"id": "{query_id}"}}')
        return StreamTableWriter.of(keyed, STRUCT, overwrite=False, checkpoint=str(checkpoint))

    def run_task(made: StreamTableWriter, task: int, key: int) -> Any:
        monkeypatch.setattr(stream_writer.TaskContext, "get", lambda: Task(task))
        return made.write(iter([pa.RecordBatch.from_pylist([{"id": key, "v": f"{task}"}])]))

    slow, quick = stream("slow"), stream("quick")
    late = run_task(slow, 1, 10)
    quick.commit([run_task(quick, task, task) for task in range(3)], 0)
    parts = [run_task(slow, 0, 10), late]
    with pytest.raises(CommitConflictError, match="another job committed to the bucket between two tasks"):
        slow.commit(parts, 0)
    slow.commit([run_task(slow, task, 10) for task in range(2)], 0)
    rows = sorted(keyed.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [*({"id": n, "v": f"{n}"} for n in range(3)), {"id": 10, "v": "1"}]
