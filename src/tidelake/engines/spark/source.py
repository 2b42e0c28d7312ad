"""The data source `tidelake` of Spark: tables by path, for who only has `spark.read` and `df.write`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class TidelakeSource(DataSource):
    """Reads and writes tables by path."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tidelake"
