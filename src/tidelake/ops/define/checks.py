"""Checks of options before they are stored, or used for one read or write.

Only options that are set now are checked: a table that another writer created with an invalid option can be opened, can
be read if the option does not matter, and can be repaired.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.files.options import FORMATS, FileOptions, codec_of
from tidelake.ops.commit.mark_done import MarkDoneOptions, check_mark_done
from tidelake.ops.commit.options import TableShape, check_options, check_shape
from tidelake.ops.scan.batch import check_read_options
from tidelake.ops.scan.partition_times import PartitionExpiryOptions, PartitionTimes, Strategy
from tidelake.options import TableOptions
from tidelake.options.capabilities import refuse_given
from tidelake.options.catalogue import check_values, unknown_keys
from tidelake.spec.schemas.bucket_mode import derive_bucket_mode
from tidelake.spec.schemas.evolution import doubtful_casts
from tidelake.spec.schemas.schema import Schema, schema_violations
from tidelake.spec.schemas.schema_options import SchemaOptions
from tidelake.store.paths import PathOptions

_FILE_PREFIXES = ("file.format", "file.compression", "changelog-file.", "parquet.", "orc.", "avro.")
_EXPIRY_PREFIXES = ("partition.expiration-", "partition.timestamp-")
_READ_PREFIXES = ("scan.", "incremental-", "log.scan", "source.split.")
_MERGING = frozenset({"merge-engine", "sequence.field", "sequence.field.sort-order"})
_ENGINES_OF = (
    (re.compile(r"fields\..+\.sequence-group|partial-update\.remove-record-.+"), ("partial-update",)),
    (re.compile(r"fields\.(.+\.aggregate|default-aggregate)-function"), ("aggregation", "partial-update")),
    (re.compile(r"aggregation\.remove-record-on-delete"), ("aggregation",)),
)


def check_given(given: Mapping[str, str], options: TableOptions) -> None:
    """Check options that are set now, together with all that are then in force.

    Raises:
        InvalidInputError: a value has a wrong form, or two options contradict each other.
        UnsupportedError: an option is not supported.
    """
    check_values(given)
    refuse_given(given)
    check_options(TableOptions(given))
    if any(key.startswith(_READ_PREFIXES) for key in given):
        check_read_options(options)
    if any(key.startswith(_FILE_PREFIXES) for key in given):
        _check_files(given, options)


def _check_files(given: Mapping[str, str], options: TableOptions) -> None:
    """Refuse formats, codecs and settings of their libraries with which no file can be written."""
    files = TableOptions({key: text for key, text in options.items() if key.startswith(_FILE_PREFIXES)}).of(FileOptions)
    levels = {*map(int, filter(str.isdecimal, {*files.format_per_level, *files.compression_per_level}))}
    for each in (files, *map(files.for_level, sorted(levels)), files.for_changelog(0)):
        codec_of(each.format, each.compression)
    mine = TableOptions(given).of(FileOptions)
    for file_format in FORMATS:
        mine.check_library_options(file_format)


def check_table(schema: Schema, branch: str, given: Mapping[str, str]) -> None:
    """Refuse options that every commit would refuse, if they are set now.

    Raises:
        UnsupportedError: an option names another branch, or is not supported.
    """
    if "branch" in given:
        check_shape(TableOptions({"branch": given["branch"]}).of(TableShape), branch)
    if any(key.startswith("partition.") for key in given):
        _check_partition_options(schema, given)
    beside = "index-file-in-data-file-dir"
    dynamic = derive_bucket_mode(schema, SchemaOptions.read_leniently(schema.options).bucket).is_dynamic
    wanted = PathOptions.read_leniently(schema.options).index_beside_data
    if {beside, "bucket"} & given.keys() and dynamic and wanted:
        raise UnsupportedError(
            "index files in the folder of data files are not supported with dynamic buckets",
            code="option-unsupported",
            option=beside,
            hint="remove the option, or give the table a fixed number of buckets",
        )


def _check_partition_options(schema: Schema, given: Mapping[str, str]) -> None:
    """Refuse ways to mark partitions done, or to find out how old they are, that are not supported."""
    options = TableOptions({key: text for key, text in schema.options.items() if key.startswith("partition.")})
    if any(key.startswith("partition.mark-done") or key == "partition.end-input-to-done" for key in given):
        check_mark_done(options.of(MarkDoneOptions))
    if any(key.startswith(_EXPIRY_PREFIXES) for key in given):
        expiry = options.of(PartitionExpiryOptions)
        if expiry.strategy is Strategy.VALUES_TIME and schema.partition_keys:
            PartitionTimes(schema, expiry)


def check_use(schema: Schema, options: TableOptions) -> None:
    """Refuse options of one use that break a rule of the schema which the table alone keeps.

    Raises:
        InvalidInputError: a rule is broken.
    """
    known = {str(error) for error in schema_violations(schema)}
    for error in schema_violations(replace(schema, options=dict(options))):
        if str(error) not in known:
            raise error


def check_keyed(given: Mapping[str, str], schema: Schema) -> None:
    """Check options of the writer and the LSM tree of a primary-key table; other tables do not import their modules.

    Raises:
        InvalidInputError: a value has a wrong form.
    """
    if not given or not schema.primary_keys:
        return
    from tidelake.lsm.options import CompactionOptions
    from tidelake.ops.placement.dynamic_buckets import DynamicBucketOptions
    from tidelake.ops.write.keyed_options import KeyedWriteOptions

    options = TableOptions(given)
    for group in (CompactionOptions, DynamicBucketOptions, KeyedWriteOptions):
        options.of(group)


def check_engine(schema: Schema, before: Schema | None = None) -> None:
    """Refuse a primary-key table that cannot be merged; one that could not before either may still be changed.

    Raises:
        InvalidInputError: a column has a function that does not exist or does not fit its type.
    """
    if not schema.primary_keys or "merge-engine" not in schema.options:
        return
    from tidelake.lsm.engines.build import engine_for  # only tables with such an engine need it

    try:
        engine_for(schema, TableOptions(schema.options))
    except InvalidInputError:
        if before is not None:
            try:
                engine_for(before, TableOptions(before.options))
            except InvalidInputError:
                return
        raise


def warn_unknown(keys: Iterable[str], *, stacklevel: int = 3) -> None:
    """Warn of unknown keys, and suggest the known key that is most similar; unknown keys are stored all the same."""
    for unknown in unknown_keys(keys):
        meant = f"; did you mean `{unknown.nearest}`?" if unknown.nearest else ""
        warnings.warn(f"option `{unknown.key}` is not known{meant}", stacklevel=stacklevel)


def warn_casts(before: Schema, after: Schema, *, stacklevel: int = 4) -> None:
    """Warn of columns whose type changes from text, so that reads may fail. No data is read."""
    for column, source, target in doubtful_casts(before, after):
        warnings.warn(
            f"column `{column}` changes from {source} to {target}: reads of existing rows fail where a text is not"
            f" such a value; change the type back to read them, or add a new column and fill it",
            stacklevel=stacklevel,
        )


def warn_idle(options: Mapping[str, str], *, keyed: bool, stacklevel: int = 3) -> None:
    """Warn of options about merging the versions of a key that have no effect on this table."""
    engine = options.get("merge-engine", "deduplicate").strip().lower().replace("_", "-")
    for key in options:
        wanted = next((engines for pattern, engines in _ENGINES_OF if pattern.fullmatch(key)), None)
        if not keyed and (wanted is not None or key in _MERGING):
            meant = "the table has no primary key"
        elif wanted is not None and engine not in wanted:
            meant = f"merge-engine is {engine}, and it is for {' and '.join(wanted)}"
        else:
            continue
        warnings.warn(f"option `{key}` has no effect: {meant}", stacklevel=stacklevel)
