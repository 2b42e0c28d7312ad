"""Random sequences of operations, done by us and by the real Paimon on copies of a table: four reads show the same.

`TIDELAKE_SEQUENCES=first:last` chooses the seeds; `make soak` runs a thousand of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compat.sequences import run_sequence

pytestmark = pytest.mark.oracle

FIRST, LAST = map(int, os.environ.get("TIDELAKE_SEQUENCES", "0:30").split(":"))


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_four_reads_show_the_same_rows_after_every_step(seed: int, jvm: None, tmp_path: Path) -> None:
    run_sequence(seed, tmp_path)
