"""What is checked of options before they are stored, or used for one read or write.

Only what is given now is judged: a table that another writer made with an option of a wrong form opens, is read where
the option does not matter, and can be repaired.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.files.options import FORMATS, FileOptions, codec_of
from tidelake.ops.commit.options import TableShape, check_options, check_shape
from tidelake.ops.scan.batch import check_read_options
from tidelake.spec.evolution import doubtful_casts
from tidelake.spec.option_catalog import check_values, unknown_keys
from tidelake.spec.option_rules import bool_option, int_option
from tidelake.spec.option_support import refuse_given
from tidelake.spec.schema import Schema, schema_violations

_FILE_PREFIXES = ("file.format", "file.compression", "changelog-file.", "parquet.", "orc.", "avro.")
_SHAPE_KEYS = frozenset({"branch", "partition.end-input-to-done", "partition.mark-done-action"})
_READ_PREFIXES = ("scan.", "incremental-", "log.scan", "source.split.")
_MERGING = frozenset({"merge-engine", "sequence.field", "sequence.field.sort-order"})
_ENGINES_OF = (
    (re.compile(r"fields\..+\.sequence-group|partial-update\.remove-record-.+"), ("partial-update",)),
    (re.compile(r"fields\.(.+\.aggregate|default-aggregate)-function"), ("aggregation", "partial-update")),
    (re.compile(r"aggregation\.remove-record-on-delete"), ("aggregation",)),
)


def check_given(given: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Check options that are given now, among all that are then in force.

    Raises:
        InvalidInputError: a value is not of the form its key takes, or two options contradict each other.
        UnsupportedError: an option is not honoured.
    """
    check_values(given)
    refuse_given(given)
    check_options(given)
    if any(key.startswith(_READ_PREFIXES) for key in given):
        check_read_options(options)
    if any(key.startswith(_FILE_PREFIXES) for key in given):
        _check_files(given, options)


def _check_files(given: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Refuse formats, codecs and settings of their libraries that no file could be written with."""
    files = FileOptions.parse({key: text for key, text in options.items() if key.startswith(_FILE_PREFIXES)})
    levels = {*map(int, filter(str.isdecimal, {*files.format_per_level, *files.compression_per_level}))}
    for each in (files, *map(files.for_level, sorted(levels)), files.for_changelog(0)):
        codec_of(each.format, each.compression)
    for file_format in FORMATS:
        FileOptions.parse(given).check_library_options(file_format)


def check_table(schema: Schema, branch: str, given: Mapping[str, str]) -> None:
    """Refuse a table that commits would refuse, for what is given now.

    Raises:
        UnsupportedError: an option names another branch, or asks for what is not done.
    """
    shape = {key: text for key, text in schema.options.items() if key in _SHAPE_KEYS}
    if shape.keys() & given.keys():
        check_shape(TableShape.parse(shape), branch)
    beside = "index-file-in-data-file-dir"
    dynamic = bool(schema.primary_keys) and int_option(schema.options, "bucket", default=-1) == -1
    if {beside, "bucket"} & given.keys() and dynamic and bool_option(schema.options, beside):
        raise UnsupportedError(
            "index files beside data files are not written",
            code="option-unsupported",
            option=beside,
            hint="leave it out, or give the table a fixed number of buckets",
        )


def check_use(schema: Schema, options: Mapping[str, str]) -> None:
    """Refuse options of one use under which the table would break a rule that it keeps by itself.

    Raises:
        InvalidInputError: they break one.
    """
    known = {str(error) for error in schema_violations(schema)}
    for error in schema_violations(replace(schema, options=options)):
        if str(error) not in known:
            raise error


def check_keyed(given: Mapping[str, str], schema: Schema) -> None:
    """Check options of the writer and the tree of a primary-key table, whose readers are imported only where needed.

    Raises:
        InvalidInputError: a value is not of the form its key takes.
    """
    if not given or not schema.primary_keys:
        return
    from tidelake.lsm.options import CompactionOptions
    from tidelake.ops.write.assign import DynamicBucketOptions
    from tidelake.ops.write.keyed_options import KeyedWriteOptions

    for group in (CompactionOptions, DynamicBucketOptions, KeyedWriteOptions):
        group.parse(given)


def check_engine(schema: Schema, before: Schema | None = None) -> None:
    """Refuse a primary-key table that could never be merged; one that already was so before can still be changed.

    Raises:
        InvalidInputError: a column has a function that does not exist or does not fit its type.
    """
    if not schema.primary_keys or "merge-engine" not in schema.options:
        return
    from tidelake.lsm.engines.build import engine_for  # only tables with such an engine need it

    try:
        engine_for(schema, schema.options)
    except InvalidInputError:
        if before is not None:
            try:
                engine_for(before, before.options)
            except InvalidInputError:
                return
        raise


def warn_unknown(keys: Iterable[str], *, stacklevel: int = 3) -> None:
    """Warn of keys that nobody knows, with the known one they resemble; they are kept nevertheless."""
    for unknown in unknown_keys(keys):
        meant = f"; did you mean `{unknown.nearest}`?" if unknown.nearest else ""
        warnings.warn(f"option `{unknown.key}` is not known{meant}", stacklevel=stacklevel)


def warn_casts(before: Schema, after: Schema, *, stacklevel: int = 4) -> None:
    """Warn of columns whose texts are read as something else from now on. No data is looked at."""
    for column, source, target in doubtful_casts(before, after):
        warnings.warn(
            f"column `{column}` goes from {source} to {target}: reads of rows that are there fail where a text is not"
            f" such a value; give it its old type again to read them, or add a new column and fill it",
            stacklevel=stacklevel,
        )


def warn_idle(options: Mapping[str, str], *, keyed: bool, stacklevel: int = 3) -> None:
    """Warn of options that say how versions of a key are merged and that this table will never ask."""
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
