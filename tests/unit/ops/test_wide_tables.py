"""Tables of many columns: the work of a verb grows with their number, not with its square."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.expr.sides import Sides
from tidelake.spec.types.data_types import INT, Field
from tidelake.table import Table

FEW, MANY = 500, 5_000
RATIO_MAX = 40.0
"""On a quiet machine 8 to 12 (`benchmarks/wide.py` has the bar of 15); work that grows with the square of the columns
would make it 100."""


def made(place: str, columns: int, *, keyed: bool) -> tuple[Table, pa.Table]:
    names = [f"c{number}" for number in range(columns)]
    table = tl.connect(f"memory://wide-{place}-{columns}-{keyed}").create_table(
        "db.t",
        {"id": "INT NOT NULL", **dict.fromkeys(names, "INT")},
        primary_key=["id"] if keyed else [],
        options={"bucket": "1"} if keyed else {},
    )
    two = pa.array([1, 2], pa.int32())
    rows = pa.table({"id": two, **dict.fromkeys(names, two)})
    table.write(rows)
    table.write(rows)
    return table, rows


def processor_time(verb: Callable[[], object]) -> float:
    """The least of three, so that what others do on the machine hardly counts."""
    found = []
    for _ in range(3):
        start = time.process_time()
        verb()
        found.append(time.process_time() - start)
    return min(found)


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
def test_ten_times_the_columns_do_not_cost_a_hundred_times_the_time(keyed: bool) -> None:
    times: dict[int, dict[str, float]] = {}
    for columns in (50, FEW, MANY):  # the first of them loads what is loaded once
        table, rows = made("ratio", columns, keyed=keyed)
        times[columns] = {
            "write": processor_time(lambda table=table, rows=rows: table.write(rows)),
            "read": processor_time(lambda table=table: table.to_arrow()),
            "filter": processor_time(lambda table=table: table.to_arrow(where="c7 > 0")),
            "merge": processor_time(
                lambda table=table, rows=rows: (
                    table.merge(rows.slice(0, 1), ["id"])
                    .when_matched_update()
                    .when_not_matched_insert()
                    .run(plan_only=True)
                )
            ),
        }
    ratios = {verb: times[MANY][verb] / times[FEW][verb] for verb in times[FEW]}
    assert max(ratios.values()) <= RATIO_MAX, (ratios, times)


def test_columns_are_found_without_a_look_at_all_the_others() -> None:
    table, _ = made("found", 10, keyed=False)
    assert table.schema.field("c9") is table.schema.fields[-1]
    sides = Sides((Field(0, "id", INT),), (Field(0, "id", INT),))
    assert sides.known is sides.known
    assert list(sides.known) == [each.name for each in sides.fields] == ["t.id", "s.id"]
