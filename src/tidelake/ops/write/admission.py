"""Which rows the merge engine of a primary-key table takes: what options leave out, and what it must not be given."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.lsm.engine import KIND, SEQUENCE
from tidelake.lsm.engines.build import MergeEngine, MergeOptions, sequence_groups
from tidelake.lsm.kernel import MergePlan, merge_rows
from tidelake.ops.write.kinds import KINDS

__all__ = ["Admission"]


class Admission:
    """Looks at the kinds of rows before anything else does."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Look at the options.

        Raises:
            InvalidInputError: an option has a value that is none of its.
        """
        self._merge = merge = MergeOptions.parse(options)
        groups = bool(sequence_groups(options))
        self._refuses = merge.engine is MergeEngine.FIRST_ROW or (
            merge.engine is MergeEngine.PARTIAL_UPDATE and not (groups or merge.remove_on_delete)
        )

    def counted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without the rows that the options leave out.

        Raises:
            InvalidInputError: the merge engine takes no deletions, and there is one.
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
        return rows


def try_retraction(rows: pa.RecordBatch, plan: MergePlan) -> bool:
    """Merge the first row that takes something back with itself, where rows are not merged for a long time to come.

    Returns whether there was one.

    Raises:
        UnsupportedError: a function of the engine cannot take anything back.
    """
    kinds = rows.column(KIND).to_numpy()
    found = (kinds & 1).nonzero()[0]
    if not len(found):
        return False
    first = pa.Table.from_batches([rows.slice(int(found[0]), 1)])
    both = pa.concat_tables([first, first]).combine_chunks()
    place = both.column_names.index(KIND)
    both = both.set_column(place, both.schema.field(place), pa.array([KINDS["+I"], kinds[found[0]]], pa.int8()))
    merge_rows(both.append_column(SEQUENCE, pa.array([0, 1], pa.int64())), plan)
    return True
