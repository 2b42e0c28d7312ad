"""Tables on Apache Spark: the plan is made on the driver, tasks read, merge and write, and the driver commits once.

`session` starts Spark, `types` maps types, `remote` is what a task knows of a table, `rows` reads, `write` writes,
`compact` compacts, `source` is the data source `tidelake`. Only public PySpark is used, and nothing runs in the JVM.
"""
