"""Tables on Apache Spark: the driver plans, tasks read, merge and write, and the driver commits once.

`engine` answers what the core asks of an engine, `session` starts Spark, `bridge` translates between the two worlds,
`read` and `write` are the two directions, `stream` runs them batch by batch, `merge` and `compact` are jobs over both,
`datasource` is the format `tidelake` of `spark.read` and `df.write`. Only public PySpark is used, and nothing of ours
runs in the JVM.
"""
