"""The fault tests of primary-key tables with larger counts (`make soak`). The code is that of `tests/fault`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from fault import test_contention_keyed as contention
from fault import test_every_io_follow as follow
from fault import test_every_io_keyed as every_io
from fault import test_reader_maintenance as reader_maintenance
from fault import test_streamers as streamers
from fault import test_unsynced_keyed as unsynced
from fault.fleet import ENGINES as FLEET_ENGINES
from fault.fleet import Fleet
from fault.keyed import ENGINES, steps_of
from fault.keyed_walk import Walk, disk_place, memory_place, still
from fault.places import bucket_with
from fault.streamers import Pair
from fault.workers import Place
from kit.s3_server import BUCKET, moto_s3
from property.changelog_machine import ToldTable
from property.keyed_machine import KeptTable, KeyedTable

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("swap", [False, True], ids=["own-buckets", "other-buckets"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_operation_fails_in_every_way(engine: str, swap: bool) -> None:
    options = every_io.SWAPPED[ENGINES[engine]["bucket"]] if swap else ()
    walk = Walk(memory_place, engine, options, whole_every=4)
    for number, op, fault in every_io.all_points(walk):
        walk.visit(number, op, fault)
    print(f"{engine}: {walk.visits} faults led to {walk.looked_at} different storages")


@pytest.mark.parametrize("engine", ENGINES)
def test_on_disk_many_operations_fail_in_every_way(engine: str, tmp_path: Path) -> None:
    every_io.visit_sample(Walk(disk_place(tmp_path / "lake"), engine, whole_every=4), count=300, seed=15)


@pytest.mark.s3
@pytest.mark.parametrize("engine", ENGINES)
def test_on_s3_many_operations_fail_in_every_way(engine: str, s3_options: dict[str, str]) -> None:
    walk = Walk(still(bucket_with(s3_options, f"soak-{engine}")), engine)
    every_io.visit_sample(walk, count=60, seed=16, young=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_power_loss_at_any_call_in_five_ways(engine: str) -> None:
    for number in range(len(steps_of(engine))):
        unsynced.cut_power_everywhere(engine, number, share=1, subsets=5, full_look_every=4)


@pytest.mark.parametrize("engine", FLEET_ENGINES)
def test_a_large_fleet_is_killed_two_hundred_times(engine: str, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "lake", tmp_path / "notes", engine, writers=8, turns=100, seed=2)
    fleet.sail(pause_s=(0.2, 2.0), at_most_s=3_000, kills=200)
    assert fleet.problems() == [], fleet.figures()
    assert fleet.kills.total() >= 200
    print(fleet.figures())


@pytest.mark.parametrize("run", range(20))
def test_contention_on_one_bucket(run: int, tmp_path: Path) -> None:
    options = {**contention.SUMS, "write-only": str(run % 2 == 0).lower()}
    contention.contend(Place(str(tmp_path)), options, processes=8 + 8 * (run % 3 == 2), turns=30)


def test_ten_minutes_of_reading_beside_maintenance(tmp_path: Path) -> None:
    reader_maintenance.disturb(Place(str(tmp_path)), seconds=600.0)


@pytest.mark.parametrize("kind", follow.KINDS)
def test_consumers_and_expiry_of_changelogs_die_at_every_operation(kind: str) -> None:
    follow.kill_consumers(kind, share=1)
    for name in follow.STEPS:
        follow.kill_expiry(kind, name, share=1)


@pytest.mark.parametrize("kind", streamers.KINDS)
def test_a_writer_and_a_follower_are_killed_sixty_times(kind: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "lake", tmp_path / "notes", streamers.KINDS[kind], turns=150, seed=4)
    pair.run(pause_s=(0.1, 0.8), kills=30, at_most_s=1_500)
    assert pair.problems() == [], f"REPRO seed={pair.seed} {dict(pair.kills)}"
    assert pair.kills.total() >= 60


@pytest.mark.parametrize("machine", [KeyedTable, KeptTable, ToldTable])
def test_the_state_machines_go_further(machine: type[RuleBasedStateMachine]) -> None:
    further = settings(max_examples=500, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=further)


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with moto_s3(BUCKET) as options:
        yield options
