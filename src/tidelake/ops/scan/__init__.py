"""Planning reads: which snapshot or changes are read, and the splits of their files.

What is read:
    request             the read request, from the scan down to the file
    options             options of planning
    modes               scan modes: a state, added files, or a difference
    travel              the snapshot that an id, a tag, a time or a watermark names

Plans:
    batch               plan a batch read
    planner             plan a state of an append table; pruning
    keyed               plan a state of a primary-key table
    changes             plan changes and differences
    follow              plan a stream, snapshot by snapshot
    stream              plan a stream in batches that can be planned again, between positions
    postponed           staged rows: their order and their number of buckets

Files:
    plan                live files and changes of snapshots, as tables of entries
    partitions          partition filters
    partition_times     the options of partition expiry, and the times in the values of partitions
    topn                files that may contain the first rows of an order
    exact               what metadata says exactly of minimum and maximum
    deletion_vectors    deletion vectors of the files that are read
    split               splits, and packing files into them
"""
