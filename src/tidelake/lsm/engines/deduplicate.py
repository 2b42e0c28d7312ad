"""`merge-engine = deduplicate`: the newest version wins; if it is a retract row, the key is deleted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.lsm.engine import Ints, Versions, last_of_each


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """Keeps the last version. With `ignore_delete`, retract rows do not count."""

    ignore_delete: bool = False

    @property
    def takes_last(self) -> bool:
        """See `Engine.takes_last`."""
        return not self.ignore_delete

    def changes_alone(self, rows: pa.Table) -> Ints | None:  # noqa: ARG002 - other engines look at the rows
        """See `Engine.changes_alone`: a single version stays unchanged."""
        return None

    def fold(self, versions: Versions) -> tuple[pa.Table, Ints]:
        """Return the last version of each key that counts."""
        last = versions.starts[1:] - 1
        if self.ignore_delete and versions.kinds is not None:
            last = last_of_each((versions.kinds & 1) == 0, versions.starts)
        keys = np.nonzero(last >= 0)[0]
        return versions.rows.take(pa.array(last[keys])), keys
