"""Frames into tables: `job` plans and commits, `evolve` compares columns, `batches` prepares rows for a writer.

How a row finds its task depends on the bucket mode: `buckets` for fixed buckets, `dynamic_buckets`, `cross_partition`
and `postponed_buckets` for the others; `receive` writes the rows that other tasks sent.
"""
