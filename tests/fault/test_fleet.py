"""T4 and T8: writers, a compactor, an expirer and readers on one table are killed by SIGKILL again and again.

Nothing acknowledged is lost, no commit is there twice, and every read of a snapshot showed what the commits up to it
make, whether it ran before or after a compaction.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fault.fleet import Fleet

pytestmark = pytest.mark.long

KILLS = 10


@pytest.mark.parametrize("engine", ["aggregation"])
def test_a_fleet_that_is_killed_again_and_again_loses_and_doubles_nothing(engine: str, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "lake", tmp_path / "notes", engine, writers=4, turns=20, seed=1)
    fleet.sail(pause_s=(0.2, 1.0), at_most_s=240, kills=KILLS)
    assert fleet.problems() == [], fleet.figures()
    assert fleet.kills.total() >= KILLS
    print(fleet.figures())
