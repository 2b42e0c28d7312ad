"""What is checked of options before they are stored, or used for one read or write.

Only what is given now is judged: a table that another writer made with an option of a wrong form opens, is read where
the option does not matter, and can be repaired.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping

from tidelake.errors import InvalidInputError
from tidelake.files.options import FileOptions, codec_of
from tidelake.ops.commit.options import check_options
from tidelake.ops.scan.batch import check_read_options
from tidelake.spec.option_catalog import check_values, unknown_keys
from tidelake.spec.schema import Schema

_CODEC_KEYS = frozenset({"file.format", "file.compression"})
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
    """
    check_values(given)
    check_options(given)
    if any(key.startswith(_READ_PREFIXES) for key in given):
        check_read_options(options)
    if _CODEC_KEYS & given.keys():
        files = FileOptions.parse({key: options[key] for key in _CODEC_KEYS if key in options})
        codec_of(files.format, files.compression)


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
