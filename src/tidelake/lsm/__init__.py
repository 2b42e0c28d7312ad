"""The tree of sorted runs behind a primary-key table: which files there are, which to merge, and how. Opens no file.

files      data files with comparable keys       sections   files cut into independent ranges; splits of a read
levels     level 0 and the sorted levels         rewrite    one compaction as steps: rewrite these, move that
pick       which runs to compact next            measure    how the tree is doing
options    what a user can tune
"""
