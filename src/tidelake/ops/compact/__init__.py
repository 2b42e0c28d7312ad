"""Compaction: rewrite files so that reads get cheaper. It changes no row.

Tables:
    table           compact a table once: plan, run, commit
    dedicated       a job that compacts a primary-key table while others write
    buckets         choose the buckets to look at, each with all its live files
    steps           steps of a compaction and the step runners
    materialize     rewrite files so that none keeps a deletion vector
    publish         commit compactions, and drop those that another job overtook

Append tables:
    append          join small files and drop deleted rows

Primary-key tables:
    keyed_table     which buckets are due, and the step that compacts one
    keyed           compact one bucket: merge the picked files to a lower level
    changelog       what a compaction has to look up and to report as changes
    level_lookup    find older versions of keys below the output level
"""
