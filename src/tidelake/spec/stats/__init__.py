"""Column statistics of data files.

Modules:
    column_stats      collect, encode and decode column statistics
    stats_evolution   statistics of files with an older schema
    stats_modes       none, counts, truncate(n), full
"""
