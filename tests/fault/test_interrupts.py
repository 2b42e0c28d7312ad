"""Real signals at moments of chance, on disk, with threads: at most one interrupted write in twenty leaves a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("interrupt_child.py")


@pytest.mark.long
def test_at_most_one_interrupt_in_twenty_leaves_a_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CHILD), str(tmp_path), "60", "7"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    print({name: value for name, value in told.items() if name != "files"})
    assert told["interrupts"] >= 60
    # Between two steps of Python a signal can come that no handler is around for; a replay by identifier is for those.
    # One was seen in about 150 published writes: three of some 20 are not chance.
    assert told["unnamed"] < 3, "a write was published, and the interrupt did not say so"
    assert told["left"] * 20 <= told["interrupts"], told
