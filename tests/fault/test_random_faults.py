"""T3: storage that fails by chance, in every operation and in every way, while a stubborn job tries each step again.

After an error or an interrupt the job goes on with the same open handles, as an impatient caller does; after a death it
starts anew.
"""

from __future__ import annotations

import pytest

from fault.harness import doors
from tidelake.errors import CommitConflictError, InternalError, InvalidInputError, TidelakeError
from tidelake.io.selftest import probe_create_exclusive
from tidelake.testing import Chance, Crash, Fault, FaultyFileIO, MemoryFileIO
from tidelake.testing.scenario import SCENARIO, Model, Session, problems

SEEDS = 60
TRIES = 200


@pytest.mark.parametrize("part", range(6))
def test_a_stubborn_job_ends_with_every_commit_once(part: int) -> None:
    faults = 0
    for seed in range(part * SEEDS // 6, (part + 1) * SEEDS // 6):
        faults += survive(seed)
    assert faults > SEEDS // 6
    print(f"{faults} faults")


def survive(seed: int) -> int:
    """Bring the scenario to its end through faults drawn by the seed; returns how many there were."""
    storage = MemoryFileIO()
    probe_create_exclusive(FaultyFileIO(storage))
    chance = Chance(seed, p=1 / (50 + seed % 51), max_faults=100, faults=tuple(Fault))
    faulty = FaultyFileIO(storage, chance)
    lives = 0
    session = Session(doors(faulty, seed * 1_000))
    for step in SCENARIO:
        for _ in range(TRIES):
            try:
                whole = session.perform(step)
            except Crash:
                faulty.revive()
                lives += 1
                session = Session(doors(faulty, seed * 1_000 + lives))
                continue
            except (InternalError, InvalidInputError, CommitConflictError) as error:
                pytest.fail(f"REPRO seed={seed} step={step}: a fault of the storage became {error!r}")
            except (TidelakeError, KeyboardInterrupt):
                continue
            except RuntimeError as error:
                assert str(error) == "fault was injected"  # noqa: PT017 - any other is a bug
                continue
            if whole:
                break
        else:
            pytest.fail(f"REPRO seed={seed} step={step}: no end in {TRIES} tries")
    wrong = problems(doors(storage, 1), Model().after(*SCENARIO), history=seed % 4 == 0)
    assert wrong == [], f"REPRO seed={seed}: {wrong}, faults: {faulty.injected_faults}"
    return len(faulty.injected_faults)
