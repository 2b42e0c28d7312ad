"""Rows become data files and commit messages.

Verbs:
    verbs            write and overwrite: rows in, one commit out
    opening          the writer and the committer's ports, by bucket mode
    rescale          rewrites partitions with another number of fixed buckets
    replay           compactions that give staged rows their buckets

Rows as users give them:
    rows             anything tabular as Arrow batches with exactly the table's columns
    frames           frames of pandas and Polars as Arrow data
    values           whether the values of an Arrow column fit a column of the table
    kinds            row kinds in the data
    row_kind_filter  which rows the merge engine accepts

Writers:
    append           append tables
    keyed            primary-key tables
    keyed_options    options of the writer of primary-key tables
    postpone         tables with postponed buckets
    buffer           the write buffer
    spill            sorted runs on local disk
    local_merge      merges rows before they are sent to their buckets
    restore          what a writer takes over from the live files of a bucket
    tree             the LSM tree of one bucket while it is written to
    increments       successive compactions of one bucket as one

Written rows that another commit overtook:
    sequence_rebaser   gives them newer sequence numbers
    reassign         puts them into the buckets where their keys are now
    reassign_keys    puts them where their keys live now, also in another partition
    bucket_count     distributes them over another number of buckets
    rewrite          rewrites files that are not committed yet
"""
