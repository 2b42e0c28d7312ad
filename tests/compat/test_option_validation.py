"""What a table may be made and changed with: every option and shape is offered to both implementations.

Method: for each case both create a table of the same shape with the same options, in a warehouse of their own, and
open it; both accept, or both refuse. Changes are offered to a table that has a snapshot. `STRICTER` lists what only we
refuse and `LOOSER` what only they refuse; docs/spec-notes.md (O6) says why. A difference that is gone fails too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import oracle
import tidelake as tl
from tidelake.errors import TidelakeError

pytestmark = pytest.mark.oracle

COLUMNS: Final = {"k": "INT NOT NULL", "p": "STRING NOT NULL", "v": "INT", "t": "STRING"}
SHAPES: Final[dict[str, tuple[list[str], list[str]]]] = {
    "append": ([], []),
    "parted": ([], ["p"]),
    "keyed": (["k"], []),
    "keyed in partitions": (["k", "p"], ["p"]),
    "keyed across partitions": (["k"], ["p"]),
}
"""Primary key and partition keys by name of the shape."""


@dataclass(frozen=True)
class Case:
    shape: str
    options: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.shape}: " + ", ".join(f"{key}={value}" for key, value in self.options)


def case(shape: str, **options: str) -> Case:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return Case(shape, tuple(given.items()))


def with_keys(shape: str, *options: tuple[str, str]) -> Case:
    return Case(shape, options)


def _cases() -> Iterator[Case]:
    for shape in SHAPES:
        for bucket in ("-3", "-2", "-1", "0", "1", "4"):
            yield case(shape, bucket=bucket)
        yield case(shape, bucket="2", bucket_key="k")
        yield case(shape, bucket="2", bucket_key="v")
        yield case(shape, bucket="2", bucket_key="p")
        yield case(shape, bucket="2", bucket_key="nothing")
        yield case(shape, bucket="-1", bucket_key="k")
        for producer in ("none", "input", "full-compaction", "lookup"):
            yield case(shape, changelog_producer=producer)
            yield with_keys(shape, ("changelog-producer", producer), ("deletion-vectors.enabled", "true"))
            yield with_keys(shape, ("changelog-producer", producer), ("streaming-read-overwrite", "true"))
            yield with_keys(shape, ("changelog-producer", producer), ("full-compaction.delta-commits", "3"))
            yield with_keys(shape, ("changelog-producer", producer), ("merge-engine", "first-row"))
        for engine in ("deduplicate", "partial-update", "aggregation", "first-row"):
            yield case(shape, merge_engine=engine)
            yield with_keys(shape, ("merge-engine", engine), ("sequence.field", "v"))
            yield with_keys(shape, ("merge-engine", engine), ("deletion-vectors.enabled", "true"))
        for key, value in (
            ("sequence.field", "v"),
            ("sequence.field", "v,v"),
            ("sequence.field", "nothing"),
            ("rowkind.field", "t"),
            ("rowkind.field", "nothing"),
            ("deletion-vectors.enabled", "true"),
            ("deletion-vectors.bitmap64", "true"),
            ("snapshot.num-retained.min", "0"),
            ("snapshot.num-retained.max", "5"),
            ("changelog.num-retained.min", "0"),
            ("file.format", "nothing"),
            ("file.format", "orc"),
            ("record-level.expire-time", "1 h"),
            ("ignore-delete", "true"),
            ("partition.default-name", "none"),
            ("partition.legacy-name", "false"),
            ("data-evolution.compaction.rewrite-row-ids", "true"),
            ("bucket-append-ordered", "false"),
            ("consumer-id", "me"),
            ("dynamic-bucket.max-buckets", "0"),
            ("force-lookup", "true"),
            ("scan.snapshot-id", "1"),
            ("scan.mode", "from-snapshot"),
            ("write-only", "true"),
            ("num-sorted-run.compaction-trigger", "0"),
            ("num-levels", "1"),
            ("local-merge-buffer-size", "1 mb"),
            ("index-file-in-data-file-dir", "true"),
            ("fields.v.aggregate-function", "sum"),
            ("fields.v.aggregate-function", "nothing"),
            ("fields.nothing.aggregate-function", "sum"),
            ("fields.v.sequence-group", "t"),
            ("fields.nothing.sequence-group", "t"),
            ("fields.default-aggregate-function", "nothing"),
            ("merge-engine", "nothing"),
            ("bucket", "many"),
            ("write-only", "perhaps"),
            ("metadata.stats-mode", "nothing"),
            ("file.compression", "nothing"),
            ("postpone.default-bucket-num", "0"),
            ("auto-create", "true"),
            ("changelog.num-retained.max", "7"),
            ("manifest-sort.enabled", "true"),
            ("variant.shredding.maxInferBufferRow", "0"),
            ("table-read.sequence-number.enabled", "true"),
            ("scan.version", "1"),
            ("incremental-to-auto-tag", "2024-01-01"),
            ("scan.fallback-branch", "later"),
            ("scan.primary-branch", "later"),
            ("vector.file.format", "nothing"),
        ):
            yield with_keys(shape, (key, value))


CASES: Final = tuple(dict.fromkeys(_cases()))

CHANGES: Final = (
    ("append", "bucket", "2"),
    ("append", "merge-engine", "aggregation"),
    ("append", "row-tracking.enabled", "true"),
    ("append", "bucket-key", "k"),
    ("append", "file.format", "orc"),
    ("append", "deletion-vectors.enabled", "true"),
    ("append", "write-only", "true"),
    ("keyed", "bucket", "2"),
    ("keyed", "bucket", "-1"),
    ("keyed", "bucket", "-2"),
    ("keyed", "merge-engine", "partial-update"),
    ("keyed", "sequence.field", "v"),
    ("keyed", "changelog-producer", "lookup"),
    ("keyed", "deletion-vectors.enabled", "true"),
    ("keyed", "ignore-delete", "true"),
    ("keyed", "rowkind.field", "t"),
    ("keyed", "snapshot.num-retained.min", "0"),
    ("keyed", "num-levels", "7"),
    ("keyed", "bucket-function.type", "mod"),
    ("keyed", "force-lookup", "true"),
    ("keyed", "partition", "p"),
    ("keyed", "type", "format-table"),
)

STRICTER: Final = {
    "record-level.expire-time=1 h": "its reads fail in 2.0.0 without record-level.time-field",
    "dynamic-bucket.max-buckets=0": "a table without buckets takes no row",
    "num-sorted-run.compaction-trigger=0": "the tree would have one level, which no compaction can move rows to",
    "num-levels=1": "as above",
    "write-only=perhaps": "it is not a truth value",
    "metadata.stats-mode=nothing": "every write fails",
    "file.compression=nothing": "every write fails",
    "postpone.default-bucket-num=0": "rows would wait for ever",
    "keyed: index-file-in-data-file-dir=true": "not done here",
    "keyed in partitions: index-file-in-data-file-dir=true": "not done here",
    "keyed across partitions: index-file-in-data-file-dir=true": "not done here",
}
"""What only we refuse, in every shape or in the one that is named."""
LOOSER: Final = {
    "scan.version=1": "it is for one use; a table that has it reads that version",
    "incremental-to-auto-tag=2024-01-01": "as above",
    "scan.fallback-branch=later": "the branch may be made later; a read says that it does not exist",
    "scan.primary-branch=later": "as above",
    "vector.file.format=nothing": "no file of its own is written for vectors here",
}
"""What only they refuse."""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[tl.Lake, oracle.Catalog]:
    folder = tmp_path_factory.mktemp("validation")
    return tl.connect(str(folder / "ours")), oracle.Catalog(folder / "theirs")


def ours_accepts(lake: tl.Lake, name: str, of: Case) -> bool:
    keys, parts = SHAPES[of.shape]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lake.create_table(name, COLUMNS, primary_key=keys, partition_by=parts, options=dict(of.options))
            lake.table(name)
    except TidelakeError:
        return False
    return True


def theirs_accepts(catalog: oracle.Catalog, name: str, of: Case) -> bool:
    keys, parts = SHAPES[of.shape]
    try:
        catalog.create_table(name, COLUMNS, primary_key=keys, partition_by=parts, options=dict(of.options)).load()
    except oracle.java("java.lang.Throwable"):
        return False
    return True


def expected(of: str, theirs: bool) -> bool:
    options = of.partition(": ")[2]
    if of in STRICTER or options in STRICTER:
        assert theirs, "they refuse it too now"
        return False
    if of in LOOSER or options in LOOSER:
        assert not theirs, "they accept it too now"
        return True
    return theirs


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: str(CASES[number]))
def test_a_table_is_made_with_the_options_that_paimon_takes(number: int, lakes: tuple[tl.Lake, oracle.Catalog]) -> None:
    ours, theirs = lakes
    of = CASES[number]
    accepted = theirs_accepts(theirs, f"d.t{number}", of)
    assert ours_accepts(ours, f"d.t{number}", of) is expected(str(of), accepted)


@pytest.mark.parametrize(("shape", "key", "value"), CHANGES)
def test_an_option_changes_where_paimon_lets_it(tmp_path: Path, shape: str, key: str, value: str) -> None:
    keys, _ = SHAPES[shape]
    start = {"bucket": "1"} if keys else {}
    ours = tl.connect(str(tmp_path / "ours")).create_table("d.t", COLUMNS, primary_key=keys, options=start)
    theirs = oracle.Catalog(tmp_path / "theirs").create_table("d.t", COLUMNS, primary_key=keys, options=start)
    ours.write([{"k": 1, "p": "a", "v": 1, "t": "+I"}])
    theirs.write([(1, "a", 1, "+I")])
    try:
        theirs.alter(("set", key, value))
        accepted = True
    except oracle.java("java.lang.Throwable"):
        accepted = False
    try:
        ours.alter(set_options={key: value})
        mine = True
    except TidelakeError:
        mine = False
    assert mine is expected(f"change {shape}: {key}={value}", accepted)
