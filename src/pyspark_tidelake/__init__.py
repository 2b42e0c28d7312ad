"""The data source `tidelake`, where PySpark looks for it: a package `pyspark_…` with a class of this name."""

from tidelake.engines.spark.datasource.source import TidelakeSource as DefaultSource

__all__ = ["DefaultSource"]
