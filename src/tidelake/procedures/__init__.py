"""Paimon's procedures: methods of tables under the names, arguments and result columns of `CALL sys.<name>(...)`.

`lake.call`, `lake.procedures`, `tidelake call` and `docs/procedures.md` are generated from the registry.

Modules:
    registry     find, list, preview and call procedures
    procedure    what a procedure is, and the arguments that several share
    arguments    the kinds of arguments, and how texts and values are parsed
    compacting   compact, compact_manifest, materialize_deletion_vectors, rescale
    expiring     expire_snapshots, expire_tags, remove_orphan_files
    partitions   expire_partitions, mark_partition_done
    files        purge_files, remove_unexisting_files, copy, repair, compact_database
    references   tags, branches, consumers and rollback
    refused      what Paimon has and is not supported here
"""
