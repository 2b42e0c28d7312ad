"""Between the core and Spark, for every job.

`types` and `conditions` translate, `grants` is how a task opens a table, `tasks` spreads work, `packed_rows` sends
rows from task to task, `output` is what a task reports to the driver, `failures` raises errors of tasks there.
"""
