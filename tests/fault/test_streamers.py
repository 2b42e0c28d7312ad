"""T4 for change streams: who writes them and who follows them is killed by SIGKILL again and again.

Every commit is there once, and the changes that the follower noted lead to the table: none is missing, and one that
came again, because its consumer died before it acknowledged it, came with the same rows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fault.streamers import Pair

pytestmark = pytest.mark.long

KINDS = {
    "lookup": {"changelog-producer": "lookup"},
    "vectors": {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_and_a_follower_that_are_killed_lose_and_double_no_change(kind: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "lake", tmp_path / "notes", KINDS[kind], turns=40, seed=3)
    pair.run(pause_s=(0.15, 0.5), kills=3, at_most_s=120)
    assert pair.problems() == [], f"REPRO seed={pair.seed} {dict(pair.kills)}"
    assert pair.kills["writer"] >= 2
    print(f"{kind}: {dict(pair.kills)} kills")
