"""What the tests of merges on Spark share: a small table, sources for it, and a merge that uses every clause."""

from __future__ import annotations

from typing import Any

from tidelake.table import Table
from tidelake.table.merge_builder import Merge

COLUMNS = {"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "STRING", "n": "BIGINT"}
SOURCE = "k int, p string, v string, n bigint"
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
BASE = [(1, "a", "a", 1), (2, "b", "b", 2), (3, "a", None, None), (4, "b", "d", 4), (5, "a", "e", 5)]


def data(*found: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


def rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)


def frame(spark: Any, found: list[dict[str, Any]], schema: str = SOURCE) -> Any:
    return spark.createDataFrame(found, schema)


def every_clause(table: Table, source: Any) -> Merge:
    return (
        table.merge(source, on="t.k = s.k and t.p = s.p")
        .when_matched_delete("s.v = 'gone'")
        .when_matched_update({"v": "s.v", "n": "t.n + s.n"})
        .when_not_matched_insert({"k": "s.k", "p": "s.p", "n": "s.n"}, condition="s.n > 0")
        .when_not_matched_by_source_update({"v": "concat(t.v, '!')"}, condition="t.k = 5")
        .when_not_matched_by_source_delete("t.n is null")
    )


FOR_EVERY_CLAUSE = data((1, "a", "x", 100), (2, "b", "gone", 0), (7, "c", "new", 7), (8, "a", "left", 0))
AFTER_EVERY_CLAUSE = [(1, "a", "x", 101), (4, "b", "d", 4), (5, "a", "e!", 5), (7, "c", None, 7)]
