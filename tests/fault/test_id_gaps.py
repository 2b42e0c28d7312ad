"""One small document with a number far above the others costs neither memory nor time, whatever is done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fault.gaps_child import FAR, KINDS, PLANTS, verbs

CHILD = Path(__file__).with_name("gaps_child.py")


def answers(folder: Path, kind: str, plants: list[str]) -> dict[tuple[str, str], str]:
    done = subprocess.run(
        [sys.executable, str(CHILD), str(folder), kind, *plants],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "ARROW_DEFAULT_MEMORY_POOL": "system", "POLARS_MAX_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = {(plant, verb): answer for plant, verb, answer in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == {(plant, verb) for plant in plants for verb, _ in verbs(kind)}
    return found


def check_answers(found: dict[tuple[str, str], str]) -> None:
    assert {place: answer for place, answer in found.items() if answer.startswith("UNTYPED")} == {}
    damaged = {place: answer for place, answer in found.items() if "Unknown" in answer or "plan-overtaken" in answer}
    assert damaged == {}
    assert all(answer == "done 4" for (_, verb), answer in found.items() if verb in ("read", "count"))


def test_a_snapshot_with_an_id_of_a_billion_does_not_take_all_memory(tmp_path: Path) -> None:
    found = answers(tmp_path, "keyed", ["hinted_snapshot", "far_others"])
    check_answers(found)
    missing = f"snapshots are missing between the earliest and the latest: 5 to {FAR - 1}"
    assert found["hinted_snapshot", "check"] == f"checked ['{missing}']"
    assert found["hinted_snapshot", "changes"] == "NotFoundError snapshot-not-found"
    # A consumer still has to read the second; what lies on the other side of the gap stays too.
    assert found["hinted_snapshot", "expire"] == "done 1"
    assert found["far_others", "expire"] == "done 3"
    assert found["hinted_snapshot", "roll back"] == "done 3"


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_document_with_a_far_number_costs_nothing(tmp_path: Path, kind: str) -> None:
    check_answers(answers(tmp_path, kind, list(PLANTS)))
