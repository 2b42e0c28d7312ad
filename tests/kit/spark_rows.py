"""What the tests of reading share: rows of both ways in one form, and which way Spark took."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelake.engines.spark.bridge.types import spark_arrow, to_spark_batch
from tidelake.query import Scan


def expected_rows(scan: Scan) -> list[str]:
    """The rows that are read in process, as Spark would see them, in a fixed order."""
    fields = scan.request().fields
    schema = pa.schema([(field.name, spark_arrow(field.type)) for field in fields])
    batches = [to_spark_batch(batch, fields) for batch in scan.to_arrow().to_batches()]
    return shown(pa.Table.from_batches(batches, schema))


def spark_rows(frame: Any, schema: pa.Schema | None = None) -> list[str]:
    """The rows of a frame, in a fixed order."""
    rows = frame.toArrow()
    return shown(rows if schema is None else rows.cast(schema))


def shown(rows: pa.Table) -> list[str]:
    """Rows as texts: NaN equals itself there, and -0.0 is not 0.0."""
    utc = [
        field.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(field.type) and field.type.tz else field
        for field in rows.schema
    ]
    return sorted(map(repr, rows.cast(pa.schema(utc)).to_pylist()))


def assert_same(spark: Any, scan: Scan) -> Any:
    """Assert that Spark reads what is read in process; gives the frame."""
    frame = scan.to_spark(spark)
    assert frame.columns == list(scan.columns)
    assert spark_rows(frame) == expected_rows(scan)
    return frame


def is_native(frame: Any) -> bool:
    """Whether Spark reads the files itself, all of them or some."""
    return bool(frame.inputFiles())
