"""Finds databases and tables by name.

Modules:
    lake          what `tl.connect` returns: the databases and tables of a catalog
    protocol      what a lake needs from a catalog
    filesystem    the catalog of a folder: databases and tables are folders
    global_tables   the system tables of a lake, in the database `sys`
    names         parses `database.table$branch_name$view`
    engine_port   what a lake needs from an engine such as Spark
"""
