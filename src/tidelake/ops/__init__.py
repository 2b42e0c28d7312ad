"""The verbs of a table. Each takes a table context, never a table handle.

Modules:
    context     a table to work on: documents, paths, options in force
    scan        which files a read needs
    read        the rows of these files
    commit      publishes what writers prepared
    placement   the partition and bucket of a row
    vectors     deletion vectors as compactions and row-level changes write them
    compact     rewrites files so that reads get cheaper
    write       rows to data files and commit messages
    change      DELETE, UPDATE and MERGE
    define      schemas and options are created and changed
    inspect     system tables
    maintain    expiry, tags, branches, rollback, orphan files, checks
    hooks       what follows a commit
"""
