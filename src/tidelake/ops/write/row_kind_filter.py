"""Which rows the merge engine of a primary-key table accepts: options drop some, and others are refused."""

from __future__ import annotations

import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import MergeEngine, MergeOptions, sequence_groups
from tidelake.lsm.engines.retractions import find_unretractable_columns
from tidelake.options import TableOptions
from tidelake.spec.rows.row_kind import KINDS
from tidelake.spec.schemas.schema import Schema

__all__ = ["RowKindFilter"]


class RowKindFilter:
    """Checks the row kinds of new rows before anything else does."""

    def __init__(self, schema: Schema, options: TableOptions) -> None:
        """Read the options.

        Raises:
            InvalidInputError: an option has a wrong value.
        """
        self._merge = merge = options.of(MergeOptions)
        groups = bool(sequence_groups(options))
        self._unretractable = find_unretractable_columns(schema, options)
        self._refuses = merge.engine is MergeEngine.FIRST_ROW or (
            merge.engine is MergeEngine.PARTIAL_UPDATE and not (groups or merge.remove_on_delete)
        )

    def drop_ignored_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the rows that the options ignore.

        Raises:
            InvalidInputError: there is a deletion, and the merge engine takes none.
            UnsupportedError: an aggregate function would have to retract a value, and cannot.
        """
        merge = self._merge
        kinds = rows.column(KIND).to_numpy()
        if merge.ignore_delete or merge.ignore_update_before:
            drop = (kinds & 1) == 1 if merge.ignore_delete else kinds == KINDS["-U"]
            if drop.any():
                rows, kinds = rows.filter(pa.array(~drop)), kinds[~drop]
        if self._refuses and (kinds & 1).any():
            # A lone deletion could be stored, but merging another version of its key with it would fail every read.
            raise InvalidInputError(
                "merge engine of the table does not accept -U and -D rows",
                option="merge-engine",
                value=merge.engine.value,
                hint="use delete(), or set ignore-delete=true to drop them",
            )
        for each in self._unretractable if (kinds & 1).any() else ():
            if each.rows_to_retract(
                kinds, lambda name: rows.column(name).is_valid().to_numpy(zero_copy_only=False)
            ).any():
                # Once the row is stored, every merge of its key would fail.
                raise UnsupportedError(
                    "aggregate function cannot retract a row",
                    column=each.column,
                    function=each.function,
                    hint=f"use delete(), or set fields.{each.column}.ignore-retract to true",
                )
        return rows
