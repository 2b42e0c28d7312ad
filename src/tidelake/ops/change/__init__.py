"""Row-level changes: DELETE, UPDATE and MERGE, for every kind of table.

Modules:
    verbs            DELETE and UPDATE as verbs of a table
    copy_on_write    append tables: files with changed rows are rewritten
    merge_on_write   append tables with deletion vectors: positions of changed rows are added to them
    keyed            primary-key tables: new versions, or sections rewritten
    merge            MERGE as a verb of a table
    merge_rules      the clauses of a merge, resolved
    merge_join       matches source rows with target rows, and finds the rule for each pair
    merge_parts      what merges into all kinds of tables share
    merge_append     MERGE into append tables
    merge_keyed      MERGE into primary-key tables
    merge_source     the source of a merge as one Arrow table
"""
