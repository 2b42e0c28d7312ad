"""The LSM tree behind a primary-key table: which files it has, which to compact, and how to merge them. Opens no file.

The tree and its compactions:

* `files`: data files with comparable keys
* `levels`: level 0 and the sorted levels of one bucket
* `sections`: files grouped into key ranges that do not overlap
* `pick`: which sorted runs to compact next
* `rewrite`: the steps of one compaction, each a rewrite or an upgrade
* `record_expiry`: which rows a compaction drops because of their age
* `measure`: amplification and compaction debt of a tree
* `options`: the compaction options

The merge of sorted runs:

* `kernel`: merges sorted runs window by window
* `keys`, `words`, `packing`, `coded`, `order`: key columns as machine words that sort as the format sorts keys
* `ranks`: sequence columns as numbers that order versions
* `engine`: the protocol of merge engines; `engines` has one module for each of them
* `aggregate`: the aggregate functions of columns
* `difference`: the changelog rows between two states of some keys
* `two_states`: a merge engine that compares two states of a table
"""
