"""Reading the rows of splits.

Rows:
    rows                rows of splits of any table; the stages of a read
    append              rows of append splits
    keyed               rows of primary-key splits, merged on read
    staged              staged rows, as runs that a read merges in
    order               rows in an order, all or the first
    extremes            the least and the greatest value of a column
    placed              rows with the place where each is stored

Changes:
    changes             rows with their row kinds
    keyed_changes       the same of primary-key tables
    binlog              the two rows of an update packed into one
"""
