"""The rules of `test_append_state_machine` for tables whose deletes and updates mark rows, and leave files as they are.

Files do not count as small, so that compactions leave marks in place that cover little of a file, and remove others.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from property.append_machine import KINDS, AppendTable, Values, fresh_rows

MARKS = {"deletion-vectors.enabled": "true", "compaction.small-file-ratio": "0"}
LAYOUTS: tuple[dict[str, str], ...] = (
    {**MARKS, "deletion-vector.index-file.target-size": "30 b"},
    {**MARKS, "deletion-vectors.bitmap64": "true"},
    {**MARKS, "bucket": "2", "bucket-key": "id", "index-file-in-data-file-dir": "true"},
)
"""With several index files in one bucket, with one, and with one beside the data of each bucket."""


class MarkedTable(AppendTable):
    """The same table with deletion vectors."""

    @initialize(
        layout=st.sampled_from(LAYOUTS),
        partitioned=st.booleans(),
        kind=st.sampled_from(KINDS),
        grown=st.lists(fresh_rows, min_size=1, max_size=2),
    )
    def create(self, layout: dict[str, str], partitioned: bool, kind: str, grown: list[Values]) -> None:
        super().create(layout, partitioned, kind, grown)


MarkedTable.TestCase.settings = settings(AppendTable.TestCase.settings, max_examples=16)
TestMarkedTable = MarkedTable.TestCase
