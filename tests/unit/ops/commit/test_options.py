"""The options that the commit honours."""

from __future__ import annotations

import pytest

from tidelake.errors import InvalidInputError
from tidelake.ops.commit.options import CommitOptions, ManifestOptions, TableShape, check_options
from tidelake.options import TableOptions


def retry(**options: str):
    return CommitOptions.parse({f"commit.{key.replace('_', '-')}": value for key, value in options.items()}).retry()


def test_without_options_the_back_off_is_ours():
    ours = retry()
    assert (ours.delay_min_ms, ours.delay_max_ms, ours.tries_min, ours.tries_max) == (50, 2_000, 30, None)
    assert ours.elapsed_max_ms == 120_000


def test_options_of_the_format_win_over_ours():
    found = retry(max_retries="3", min_retry_wait="10 ms", max_retry_wait="20 ms")
    assert (found.delay_min_ms, found.delay_max_ms, found.tries_max) == (10, 20, 4)
    assert found.elapsed_max_ms > 10**12


def test_a_timeout_alone_ends_the_tries():
    found = retry(timeout="7 s")
    assert (found.elapsed_max_ms, found.tries_min, found.tries_max) == (7_000, 1, None)


def test_the_largest_wait_is_never_below_the_smallest():
    assert retry(min_retry_wait="5 s").delay_max_ms == 5_000


def test_manifest_options_have_the_defaults_of_the_format():
    options = ManifestOptions.parse({})
    assert (options.target_bytes, options.merge_min_count, options.full_threshold_bytes) == (8 << 20, 30, 16 << 20)
    assert options.compression == "zstd"


@pytest.mark.parametrize(
    ("given", "level"), [({}, 5), ({"num-levels": "3"}, 2), ({"num-sorted-run.compaction-trigger": "9"}, 9)]
)
def test_the_highest_level_follows_from_the_options(given, level):
    assert TableShape.parse(given).max_level == level


def test_the_old_spelling_of_write_only_is_understood():
    assert TableShape.parse({"write.compaction-skip": "true"}).write_only
    assert not TableShape.parse({}).write_only
    assert TableShape.parse({"write.sequence-number-init-mode": "snapshot"}).sequence_from_snapshot


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bucket", "many"),
        ("commit.max-retries", "x"),
        ("commit.max-retries", str(2**40)),
        ("commit.timeout", "-3 s"),
        ("commit.min-retry-wait", "soon"),
        ("manifest.target-file-size", "banana"),
        ("manifest.merge-min-count", "2.5"),
        ("manifest.compression", "lz9"),
        ("data-file.path-directory", "../x"),
        ("data-file.path-directory", "/etc"),
        ("branch", "a/b"),
        ("write-only", "perhaps"),
        ("write.sequence-number-init-mode", "guess"),
    ],
)
def test_a_value_that_no_commit_could_use_is_refused_by_name(key, value):
    with pytest.raises(InvalidInputError) as caught:
        check_options(TableOptions({key: value}))
    assert value in str(caught.value)


def test_good_values_and_foreign_keys_pass():
    check_options(
        TableOptions({"bucket": "4", "manifest.compression": "snappy", "data-file.path-directory": "a/b", "x": "\x00"})
    )
