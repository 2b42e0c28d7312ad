"""The fault tests with larger counts: by hand before a release and after a change of the commit path (`make soak`).

The code is that of `tests/fault`; only the numbers differ. Seeds continue where the short runs end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fault import test_contention as contention
from fault import test_contention_rows as contention_rows
from fault import test_every_io as every_io
from fault import test_interleaving as interleaving
from fault import test_random_faults as random_faults
from fault import test_unsynced as unsynced
from fault.harness import MODES, Walk, memory_with, step_names
from fault.workers import Place
from kit.s3_server import BUCKET, moto_s3
from tidelake.testing.scenario import SCENARIO
from tidelake.testing.simulation import Seeded

pytestmark = pytest.mark.slow

STEPS = range(len(SCENARIO))


@pytest.mark.parametrize("number", STEPS, ids=step_names())
def test_every_operation_fails_in_every_way_and_the_replay_goes_to_the_end(number: int) -> None:
    walk = Walk(memory_with, end_every=1)
    operations = walk.operations(number)
    for op in operations:
        for fault in MODES:
            walk.visit(number, op, fault)
    assert walk.visits == len(MODES) * len(operations)


@pytest.mark.parametrize("number", STEPS, ids=step_names())
def test_on_disk_with_fsync_every_operation_fails_in_every_way(number: int, tmp_path: Path) -> None:
    walk = Walk(lambda image: every_io.folder_with(image, tmp_path / "lake", durability="fsync"))
    for op in walk.operations(number):
        for fault in MODES:
            walk.visit(number, op, fault)


@pytest.mark.s3
@pytest.mark.parametrize("seed", range(10, 20))
def test_on_s3_many_operations_fail_in_every_way(seed: int, s3_options: dict[str, str]) -> None:
    every_io.visit_sample(Walk(every_io.bucket_with(s3_options, name=f"soak-{seed}")), count=60, seed=seed)


@pytest.mark.parametrize("number", STEPS, ids=step_names())
def test_power_loss_at_any_call_in_five_ways(number: int) -> None:
    unsynced.cut_power_everywhere(number, subsets=5, full_look_every=1)


@pytest.mark.parametrize("part", range(30))
def test_three_thousand_seeds_of_random_faults(part: int) -> None:
    for seed in range(1_000 + part * 100, 1_100 + part * 100):
        random_faults.survive(seed)


@pytest.mark.parametrize("run", range(20))
def test_contention_on_disk(run: int, tmp_path: Path) -> None:
    contention.contend(Place(str(tmp_path)), processes=8 + 8 * (run % 2), commits=30 - 10 * (run % 2))


@pytest.mark.parametrize("run", range(5))
def test_contention_over_rows(run: int, tmp_path: Path) -> None:
    options = {"bucket": "3", "bucket-key": "id"} if run % 2 else {}
    contention_rows.contend(Place(str(tmp_path)), options, writers=8, turns=15)


@pytest.mark.s3
@pytest.mark.parametrize("run", range(5))
def test_contention_on_s3(run: int, s3_options: dict[str, str]) -> None:
    contention.contend(Place(f"s3://{BUCKET}/contention-{run}", s3_options), processes=6, commits=30)


@pytest.mark.parametrize("part", range(40))
def test_twenty_thousand_interleavings(part: int) -> None:
    for seed in range(10_000 + part * 500, 10_500 + part * 500):
        history = interleaving.play(interleaving.jobs_of(seed), Seeded(seed), seed=seed)
        wrong = interleaving.wrong_with(history)
        assert wrong == [], f"REPRO seed={seed} {[job.__name__ for job in interleaving.jobs_of(seed)]}: {wrong}"


def test_all_schedules_of_two_appends_with_at_most_three_preemptions() -> None:
    played, _ = interleaving.all_schedules((interleaving.append_once, interleaving.append_once), preemptions=3)
    assert played > 5_000


def test_all_schedules_of_an_append_and_an_overwrite_with_at_most_two_preemptions() -> None:
    played, _ = interleaving.all_schedules((interleaving.append_once, interleaving.overwrite_once), preemptions=2)
    assert played > 1_000


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with moto_s3(BUCKET) as options:
        yield options
