"""Which rows the merge engine of a primary-key table takes: what options leave out, and what it must not be given."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.engine import KIND
from tidelake.lsm.engines.build import MergeEngine, MergeOptions, sequence_groups
from tidelake.lsm.engines.retractions import find_unwilling
from tidelake.ops.write.kinds import KINDS
from tidelake.spec.schema import Schema

__all__ = ["Admission"]


class Admission:
    """Looks at the kinds of rows before anything else does."""

    def __init__(self, schema: Schema, options: Mapping[str, str]) -> None:
        """Look at the options.

        Raises:
            InvalidInputError: an option has a value that is none of its.
        """
        self._merge = merge = MergeOptions.parse(options)
        groups = bool(sequence_groups(options))
        self._unwilling = find_unwilling(schema, options)
        self._refuses = merge.engine is MergeEngine.FIRST_ROW or (
            merge.engine is MergeEngine.PARTIAL_UPDATE and not (groups or merge.remove_on_delete)
        )

    def counted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without the rows that the options leave out.

        Raises:
            InvalidInputError: the merge engine takes no deletions, and there is one.
            UnsupportedError: a function of the merge engine would have to take a value back, and cannot.
        """
        merge = self._merge
        kinds = rows.column(KIND).to_numpy()
        if merge.ignore_delete or merge.ignore_update_before:
            drop = (kinds & 1) == 1 if merge.ignore_delete else kinds == KINDS["-U"]
            if drop.any():
                rows, kinds = rows.filter(pa.array(~drop)), kinds[~drop]
        if self._refuses and (kinds & 1).any():
            # A lone one could be stored, but no version of its key could ever be read together with it.
            raise InvalidInputError(
                "merge engine of the table takes no deletions",
                option="merge-engine",
                value=merge.engine.value,
                hint="use delete(), or set ignore-delete=true to leave them out",
            )
        for each in self._unwilling if (kinds & 1).any() else ():
            if each.asked(kinds, lambda name: rows.column(name).is_valid().to_numpy(zero_copy_only=False)).any():
                # Once it is stored, nobody could merge its key any more.
                raise UnsupportedError(
                    "aggregate function cannot take a row back",
                    column=each.column,
                    function=each.function,
                    hint=f"use delete(), or set fields.{each.column}.ignore-retract to true",
                )
        return rows
