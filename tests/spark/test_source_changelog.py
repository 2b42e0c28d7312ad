"""The changelog of tables with the producer `input` that the data source writes: a stream must not miss its rows."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from tidelake.catalog.lake import Lake
from tidelake.engines.spark.datasource import stream_writer, writer
from tidelake.engines.spark.datasource.source import TidelakeSource
from tidelake.table import Table

STRUCT = StructType().add("id", LongType()).add("v", StringType()).add("rowkind", StringType())
ROWS = [[("+I", 1, "a"), ("+I", 2, "a")], [("-U", 1, "a"), ("+U", 1, "b"), ("-D", 2, "a")]]
"""What each of two tasks writes to one bucket."""


class Task:
    """Stands for the context of a task."""

    def __init__(self, number: int) -> None:
        self.number = number

    def partitionId(self) -> int:  # noqa: N802 - PySpark's name
        return self.number

    def getLocalProperty(self, key: str) -> str:  # noqa: N802 - PySpark's name
        return "a query"


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_that_the_data_source_writes_are_not_missing_from_the_changelog(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    options = {"bucket": "1", "changelog-producer": "input"}
    table = lake.create_table("db.t", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"], options=options)
    source = TidelakeSource({"path": table.location})
    made: Any = source.streamWriter(STRUCT, False) if streaming else source.writer(STRUCT, False)
    sent = []
    for number, rows in enumerate(ROWS):
        monkeypatch.setattr((stream_writer if streaming else writer).TaskContext, "get", lambda at=number: Task(at))
        kinds, keys, values = zip(*rows, strict=True)
        batch = pa.record_batch({"id": pa.array(keys, pa.int64()), "v": list(values), "rowkind": list(kinds)})
        sent.append(pickle.loads(pickle.dumps(made.write(iter([batch])))))
    made.commit(sent, 0) if streaming else made.commit(sent)
    assert changed(table) == [each for rows in ROWS for each in rows]
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "b"}]
    report = table.check(deep=True)
    assert report.ok, report
    assert report.orphans == ()


def changed(table: Table) -> list[tuple[Any, ...]]:
    return [(row["rowkind"], row["id"], row["v"]) for row in table.changes(0).to_arrow().to_pylist()]
