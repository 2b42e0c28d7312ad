"""The merge engines.

* `deduplicate`, `first_row`, `partial_update`, `aggregation`: one engine each
* `build`: the merge options, and the engine that a schema and its options ask for
* `folding`: folds one column with its aggregate function
* `retractions`: which columns cannot take retract rows
"""
