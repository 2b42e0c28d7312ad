"""What a caller tells a writer of a primary-key table wins over the options of the table."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tidelake as tl
from tidelake.ops.commit.messages import CompactIncrement
from tidelake.ops.write.keyed import KeyedTableWriter
from tidelake.spec.types.arrow_types import row_to_arrow
from tidelake.table import Table


def table_with(**options: str) -> Table:
    lake = tl.connect("memory://")
    given = {"bucket": "1", "num-sorted-run.compaction-trigger": "2", **options}
    table = lake.create_table("d.t", {"k": "INT NOT NULL", "v": "INT"}, primary_key=["k"], options=given)
    table.with_options({"write-only": "true"}).write([{"k": 1, "v": 1}])
    return table


def compacts(table: Table, **how: bool) -> bool:
    writer = KeyedTableWriter(table.context, **how)
    rows = pa.Table.from_pylist([{"k": 1, "v": 2}], schema=row_to_arrow(table.schema.fields))
    writer.write(rows.to_batches()[0])
    return any(message.compact != CompactIncrement() for message in writer.prepare(wait=True))


@pytest.mark.parametrize("write_only", ["true", "false"])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_writer_compacts_as_its_caller_says_whatever_the_option_says(write_only: str, wanted: bool) -> None:
    assert compacts(table_with(**{"write-only": write_only}), compacts=wanted) is wanted


@pytest.mark.parametrize(("write_only", "expected"), [("true", False), ("false", True)])
def test_without_a_word_of_its_caller_the_option_decides(write_only: str, expected: bool) -> None:
    assert compacts(table_with(**{"write-only": write_only})) is expected


@pytest.mark.parametrize("wanted", [True, False])
def test_rows_that_were_merged_before_are_not_merged_locally_again(wanted: bool) -> None:
    table = table_with(**{"local-merge-buffer-size": "1 mb"})
    assert (KeyedTableWriter(table.context, merges_locally=wanted)._merger is not None) is wanted
