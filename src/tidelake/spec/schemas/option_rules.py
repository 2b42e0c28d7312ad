"""What the format says about table options: which never change, which name columns, which exclude each other.

Everything here is data and small pure rules over the string map of a schema. A rule yields errors instead of raising
them, so that a table which already breaks one (another writer made it) can still be altered in other respects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidelake.errors import InvalidInputError
from tidelake.options import parse_bool, parse_int
from tidelake.spec.schemas.schema_options import (
    BUCKETS_OPEN,
    ChangelogProducer,
    MergeEngine,
    SchemaOptions,
    restate_problem,
)

IMMUTABLE_OPTIONS: Final = frozenset(
    {
        "aggregation.remove-record-on-delete",
        "blob-descriptor-field",
        "blob-field",
        "blob-view-field",
        "bucket-function.type",
        "bucket-key",
        "data-evolution.enabled",
        "data-file.path-directory",
        "dynamic-bucket.initial-buckets",
        "force-lookup",
        "index-file-in-data-file-dir",
        "merge-engine",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
        "partition",
        "pk-clustering-override",
        "primary-key",
        "primary-key.nullable",
        "row-tracking.enabled",
        "rowkind.field",
        "sequence.snapshot-ordering",
        "type",
    }
)
"""Options that cannot change once the table has a snapshot, nor be overridden for one read or write."""

_FOLDER_OPTIONS: Final = {"partition.default-name": "__DEFAULT_PARTITION__", "partition.legacy-name": "true"}
"""Options that say how the folders of partitions are called, with their defaults."""

COLUMN_OPTIONS: Final = frozenset(
    {
        "blob-descriptor-field",
        "blob-field",
        "blob-view-field",
        "bucket-key",
        "changelog-producer.row-deduplicate-ignore-fields",
        "clustering.columns",
        "partial-update.remove-record-on-sequence-group",
        "pk-bitmap.index.columns",
        "pk-btree.index.columns",
        "pk-full-text.index.columns",
        "pk-multivalue.index.columns",
        "pk-vector.index.columns",
        "record-level.time-field",
        "rowkind.field",
        "sequence.field",
        "upsert-key",
        "vector-field",
    }
)
"""Options whose value is a comma separated list of columns."""

_FIELD_PREFIX: Final = "fields."
_FIELD_DEFAULT: Final = "fields.default-aggregate-function"
_SEQUENCE_GROUP: Final = "sequence-group"
_NEWEST_VALUE: Final = "last_non_null_value"
_NESTED_LISTS: Final = {"nested-key": "element", "nested-sequence-field": "element", "ts-field": "value"}
_FIELD_SUFFIXES: Final = (
    "aggregate-function",
    "count-limit",
    "distinct",
    "ignore-retract",
    "list-agg-delimiter",
    "map.shared-shredding.column-placement-policy",
    "map.shared-shredding.max-columns",
    "map.storage-layout",
    "nested-key",
    "nested-key-null-strategy",
    "nested-sequence-field",
    "pk-bitmap.index.options",
    "pk-btree.index.options",
    "pk-full-text.index.options",
    "pk-multivalue.index.options",
    "pk-vector.distance.metric",
    "pk-vector.index.options",
    "pk-vector.index.type",
    _SEQUENCE_GROUP,
    "stats-mode",
    "ts-field",
)
_FILE_INDEX_PREFIX: Final = "file-index."


# ------------------------------------------------------------------------------------------------- reading an option


def bool_option(options: Mapping[str, str], key: str, *, default: bool = False) -> bool:
    """The option as a boolean.

    Raises:
        InvalidInputError: If the value is neither true nor false.
    """
    try:
        return parse_bool(options[key]) if key in options else default
    except ValueError as error:
        raise InvalidInputError(
            "option is not a boolean", option=key, value=options[key], hint="use true or false"
        ) from error


def int_option(options: Mapping[str, str], key: str, *, default: int) -> int:
    """The option as an integer.

    Raises:
        InvalidInputError: If the value is not a 32-bit integer.
    """
    text = options.get(key)
    try:
        return default if text is None else parse_int(text)
    except ValueError as error:
        raise InvalidInputError(
            "option is not an integer", option=key, value=options[key][:80], hint=f"give {key} a number such as 4"
        ) from error


def enum_option(options: Mapping[str, str], key: str, choices: Collection[str]) -> str:
    """The option as one of the choices, of which the first is the default; case and `_` for `-` do not matter.

    Raises:
        InvalidInputError: If the value is none of them.
    """
    text = options.get(key)
    if text is None:
        return next(iter(choices))
    value = text.lower().replace("_", "-")
    if value not in choices:
        raise InvalidInputError("option has an unknown value", option=key, value=text, hint=f"use {', '.join(choices)}")
    return value


def names_option(options: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The option as a list of names, trimmed; empty when unset.

    `bucket-key` is not trimmed: the reference implementation takes it literally.
    """
    text = options.get(key, "")
    parts = text.split(",") if text else []
    return tuple(parts) if key == "bucket-key" else tuple(name for part in parts if (name := part.strip()))


# ------------------------------------------------------------------------------------------- options that name columns


def column_references(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each (option, column) where an option names a column of the table."""
    for key, value in options.items():
        if key in COLUMN_OPTIONS:
            yield from ((key, name) for name in names_option(options, key))
        elif (field := _split_field_option(key)) is not None:
            names, suffix = field
            yield from ((key, name) for name in names)
            if suffix == _SEQUENCE_GROUP:
                yield from ((key, name) for name in names_option(options, key))
        elif (index := _split_file_index(key)) is not None and index[1] == "columns":
            yield from ((key, name) for name, _ in _indexed(value))


@dataclass(frozen=True, slots=True)
class FileIndex:
    """A file index that options ask for: its kind, the column, and whether one key of a MAP column is meant."""

    option: str
    kind: str
    column: str
    of_map_key: bool


def file_indexes(options: Mapping[str, str]) -> Iterator[FileIndex]:
    """Each file index that the options ask for."""
    for key, value in options.items():
        index = _split_file_index(key)
        if index is not None and index[1] == "columns":
            yield from (FileIndex(key, index[0], name, of_key) for name, of_key in _indexed(value))


def idle_index_settings(options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Each (option, kind, column) that sets something of a file index which no option asks for."""
    asked = {(index.kind, index.column) for index in file_indexes(options)}
    for key in options:
        kind, rest = _split_file_index(key) or ("", "columns")
        column = rest.rpartition(".")[0]
        if rest != "columns" and (kind, column) not in asked:
            yield key, kind, column


def _indexed(value: str) -> Iterator[tuple[str, bool]]:
    for part in value.split(","):
        name, bracket, _ = part.strip().partition("[")
        if name:
            yield name, bool(bracket)


def rename_in_options(options: Mapping[str, str], path: tuple[str, ...], name: str) -> dict[str, str]:
    """The options after the column or nested member at `path` got another name."""
    renamed: dict[str, str] = {}
    for key, value in options.items():
        if len(path) == 1:
            key, value = _rename_column(key, value, path[0], name)
        elif (field := _split_field_option(key)) is not None:
            names, suffix = field
            if len(path) == 3 and names == path[:1] and _NESTED_LISTS.get(suffix) == path[1]:
                value = _rename_in_list(value, path[2], name)
        renamed[key] = value
    return renamed


def _rename_column(key: str, value: str, old: str, new: str) -> tuple[str, str]:
    if key in COLUMN_OPTIONS:
        return key, _rename_in_list(value, old, new)
    if (field := _split_field_option(key)) is not None:
        names, suffix = field
        key = f"{_FIELD_PREFIX}{','.join(new if name == old else name for name in names)}.{suffix}"
        return key, _rename_in_list(value, old, new) if suffix == _SEQUENCE_GROUP else value
    if (index := _split_file_index(key)) is not None:
        kind, rest = index
        if rest == "columns":
            return key, _rename_in_list(value, old, new)
        column, _, setting = rest.rpartition(".")
        return f"{_FILE_INDEX_PREFIX}{kind}.{new}.{setting}" if column == old else key, value
    return key, value


def _rename_in_list(value: str, old: str, new: str) -> str:
    """Replace a name in a comma separated list; `old[key]`, an index on a map key, is renamed too."""
    parts = []
    for part in value.split(","):
        name, bracket, rest = part.strip().partition("[")
        parts.append(new + bracket + rest if name == old else part)
    return ",".join(parts)


def _split_field_option(key: str) -> tuple[tuple[str, ...], str] | None:
    """Columns and setting of a key such as `fields.a,b.sequence-group`; a column may have dots in its name."""
    if not key.startswith(_FIELD_PREFIX) or key == _FIELD_DEFAULT:
        return None
    rest = key[len(_FIELD_PREFIX) :]
    for suffix in _FIELD_SUFFIXES:
        if rest.endswith("." + suffix):
            names = rest[: -len(suffix) - 1]
            return tuple(names.split(",")) if suffix == _SEQUENCE_GROUP else (names,), suffix
    name, dot, suffix = rest.partition(".")
    return ((name,), suffix) if dot else None


def _split_file_index(key: str) -> tuple[str, str] | None:
    """Kind and setting of a key such as `file-index.bitmap.columns` or `file-index.bloom-filter.c.fpp`."""
    if not key.startswith(_FILE_INDEX_PREFIX):
        return None
    kind, dot, rest = key[len(_FILE_INDEX_PREFIX) :].partition(".")
    return (kind, rest) if dot and (rest == "columns" or "." in rest) else None


# -------------------------------------------------------------------------------------------------- changing an option


def moves_partitions(options: Mapping[str, str], key: str, value: str | None) -> bool:
    """Whether an option with this value (None: removed) would make readers look for partitions in other folders."""
    default = _FOLDER_OPTIONS.get(key)
    return default is not None and options.get(key, default) != (default if value is None else value)


def option_change_problem(options: Mapping[str, str], key: str, value: str | None) -> InvalidInputError | None:
    """Why an option of a table that has snapshots cannot get this value (None: be removed), if it cannot.

    Removing an option counts as setting its default, so that a removal cannot get around a rule.
    """
    try:
        return _change_problem(options, key, value)
    except InvalidInputError as error:
        return error


def _change_problem(options: Mapping[str, str], key: str, value: str | None) -> InvalidInputError | None:
    changed = dict(options)
    if value is None:
        changed.pop(key, None)
    else:
        changed[key] = value
    default = "table" if key == "type" else None
    if options.get(key, default) == changed.get(key, default):
        return None
    if key in IMMUTABLE_OPTIONS:
        return _refusal("option cannot change once the table has a snapshot", key, "create a new table with it")
    before, wrong_before = SchemaOptions.parse_leniently(options)
    after, wrong_after = SchemaOptions.parse_leniently(changed)
    for error in (*wrong_before, *wrong_after):
        if error.facts["key"] == key:
            return restate_problem(error)
    if key == "bucket" and before.bucket != after.bucket and BUCKETS_OPEN in (before.bucket, after.bucket):
        return _refusal("bucket cannot change from or to -1", key, "create a new table with the new bucket count")
    if before.deletion_vectors != after.deletion_vectors and not before.vectors_modifiable:
        hint = "set deletion-vectors.modifiable to true first, and compact fully before reading"
        return _refusal("deletion vectors cannot be switched", key, hint)
    for was, remains in (
        (before.ignore_delete, after.ignore_delete),
        (before.ignore_update_before, after.ignore_update_before),
    ):
        if was and not remains:
            return _refusal("option cannot go from true to false", key, "create a new table without it")
    if key in ("clustering.columns", "sink.clustering.by-columns") and before.clusters_keys:
        return _refusal("clustering columns cannot change under pk-clustering-override", key, "create a new table")
    return None


def _refusal(message: str, option: str, hint: str | None = None) -> InvalidInputError:
    return InvalidInputError(message, option=option, hint=hint)


# ----------------------------------------------------------------------------------------------------- rules of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionContext:
    """What the rules look at."""

    options: Mapping[str, str]
    columns: Collection[str]
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]

    @property
    def typed_options(self) -> SchemaOptions:
        """The options that rules compare; one of a wrong form is reported by itself and counts as unset."""
        return SchemaOptions.read_leniently(self.options)


_CHECKED_AS_VALUES = frozenset(
    {
        "add-column-before-partition",
        "aggregation.remove-record-on-delete",
        "alter-column-null-to-not-null.disabled",
        "clustering.incremental",
        "deduplicate.ignore-delete",
        "deletion-vectors.modifiable",
        "disable-explicit-type-casting",
        "first-row.ignore-delete",
        "ignore-delete",
        "ignore-update-before",
        "partial-update.ignore-delete",
        "partial-update.remove-record-on-delete",
        "pk-clustering-override",
        "primary-key.nullable",
        "table-read.sequence-number.enabled",
        "write-only",
        "write.compaction-skip",
    }
)
"""Options whose malformed values break no rule: the check of single values reports them, by its own code."""


def option_violations(context: OptionContext) -> Iterator[InvalidInputError]:
    """Every rule between options that the table breaks."""
    _, problems = SchemaOptions.parse_leniently(context.options)
    yield from (restate_problem(each) for each in problems if each.facts["key"] not in _CHECKED_AS_VALUES)
    for rule in _RULES:
        try:
            yield from rule(context)
        except InvalidInputError as error:
            yield error  # the option of a column that the rule looks at has a value that cannot be read


def _columns_exist(context: OptionContext) -> Iterator[InvalidInputError]:
    for key, column in column_references(context.options):
        if column not in context.columns:
            hint = "change or remove the option, or add the column"
            yield InvalidInputError("option names a column that does not exist", option=key, column=column, hint=hint)


def _sequence_fields(context: OptionContext) -> Iterator[InvalidInputError]:
    names = names_option(context.options, "sequence.field")
    if len(set(names)) != len(names):
        yield _refusal("sequence field is given twice", "sequence.field", "list each column once")
    if names and context.primary_keys and not set(context.partition_keys) <= set(context.primary_keys):
        hint = "put the partition columns into the primary key, or remove the option"
        yield _refusal("keys that move between partitions take no sequence field", "sequence.field", hint)
    for name in names:
        if f"fields.{name}.aggregate-function" in context.options:
            yield InvalidInputError("a sequence field cannot have an aggregate function", column=name)


def _changelog_producer(context: OptionContext) -> Iterator[InvalidInputError]:
    typed, producer = context.typed_options, context.typed_options.changelog_producer
    if producer is not ChangelogProducer.NONE and not context.primary_keys:
        yield _refusal("a changelog producer needs a primary key", "changelog-producer", "define a primary key")
    if producer is ChangelogProducer.LOOKUP and "full-compaction.delta-commits" in context.options:
        hint = "remove it, or use the full-compaction producer"
        yield _refusal("option does not go with the lookup producer", "full-compaction.delta-commits", hint)
    if typed.streaming_read_overwrite:
        if not context.primary_keys:
            yield _refusal("option needs a primary key", "streaming-read-overwrite")
        if producer in (ChangelogProducer.FULL_COMPACTION, ChangelogProducer.LOOKUP):
            yield _refusal(f"option does not go with the {producer.value} producer", "streaming-read-overwrite")
    if typed.deletion_vectors and producer is ChangelogProducer.FULL_COMPACTION:
        hint = "use the lookup producer"
        yield _refusal("deletion vectors do not go with the full-compaction producer", "changelog-producer", hint)


def _append_without_buckets(context: OptionContext) -> Iterator[InvalidInputError]:
    key = "full-compaction.delta-commits"
    if not context.primary_keys and context.typed_options.bucket == BUCKETS_OPEN and key in context.options:
        yield _refusal("append tables without buckets are not compacted every so many commits", key, "remove it")


def _first_row(context: OptionContext) -> Iterator[InvalidInputError]:
    typed = context.typed_options
    if typed.merge_engine is not MergeEngine.FIRST_ROW:
        return
    if typed.changelog_producer not in (ChangelogProducer.NONE, ChangelogProducer.LOOKUP):
        yield _refusal("first-row takes no changelog producer but lookup", "changelog-producer", "use none or lookup")
    if "sequence.field" in context.options:
        yield _refusal("first-row takes no sequence field", "sequence.field", "remove the option")
    if typed.deletion_vectors:
        yield _refusal("first-row needs no deletion vectors", "deletion-vectors.enabled", "remove the option")


def _partial_update(context: OptionContext) -> Iterator[InvalidInputError]:
    options, typed = context.options, context.typed_options
    if typed.merge_engine is not MergeEngine.PARTIAL_UPDATE:
        return
    whole, part = "partial-update.remove-record-on-delete", "partial-update.remove-record-on-sequence-group"
    group_of: dict[str, str] = {}
    ordering: set[str] = set()
    for key in options:
        names, suffix = _split_field_option(key) or ((), "")
        if suffix != _SEQUENCE_GROUP:
            continue
        ordering.update(names)
        for name in names_option(options, key):
            if group_of.setdefault(name, key) != key:
                yield InvalidInputError(
                    "column is in two sequence groups", option=key, column=name, hint=f"it is in {group_of[name]} too"
                )
        for name in (*names, *names_option(options, key)):
            if name in context.primary_keys:
                hint = "a key never changes: leave it out"
                yield InvalidInputError("sequence group has a column of the key", option=key, column=name, hint=hint)
    removes = typed.remove_on_delete
    if removes and ordering:
        yield _refusal("sequence groups say themselves what a deletion does", whole, f"remove it, or use {part}")
    for key, given in ((whole, removes), (part, part in options)):
        if given and typed.ignore_delete:
            yield _refusal("deletions that are ignored cannot remove rows", key, "remove it, or ignore-delete")
    for name in names_option(options, part):
        if name not in ordering:
            hint = "name columns that order a sequence group (fields.<column>.sequence-group)"
            yield InvalidInputError("column orders no sequence group", option=part, column=name, hint=hint)
    ordered = {*group_of, *ordering, *context.primary_keys, *names_option(options, "sequence.field")}
    yield from _functions_in_groups(context, ordered)


def _functions_in_groups(context: OptionContext, ordered: Collection[str]) -> Iterator[InvalidInputError]:
    """In a partial-update table a function folds in the order of a group; outside of one it would be passed over."""
    options = context.options
    for name in sorted(context.columns):
        key = f"fields.{name}.aggregate-function"
        key = key if key in options else _FIELD_DEFAULT
        if name not in ordered and options.get(key, _NEWEST_VALUE) != _NEWEST_VALUE:
            hint = (
                "put the column in a sequence group (fields.<column>.sequence-group), or use merge-engine=aggregation"
            )
            yield InvalidInputError("function needs a sequence group", option=key, column=name, hint=hint)


def _aggregation(context: OptionContext) -> Iterator[InvalidInputError]:
    options, removes = context.options, "aggregation.remove-record-on-delete"
    typed = context.typed_options
    if typed.merge_engine is not MergeEngine.AGGREGATION or not typed.aggregation_remove_on_delete:
        return
    for key in options:
        if (_split_field_option(key) or ((), ""))[1] == "ignore-retract" and bool_option(options, key):
            yield _refusal(f"option does not go with {removes}", key, "remove one of the two")


def _retention(context: OptionContext) -> Iterator[InvalidInputError]:
    typed = context.typed_options
    least, most = typed.changelogs_min, typed.changelogs_max  # those of snapshots where they are not given
    changelogs = (typed.snapshots_min if least is None else least, typed.snapshots_max if most is None else most)
    for family, (fewest, limit) in (
        ("snapshot", (typed.snapshots_min, typed.snapshots_max)),
        ("changelog", changelogs),
    ):
        low, high = f"{family}.num-retained.min", f"{family}.num-retained.max"
        if fewest < 1:
            yield _refusal("at least one must be retained", low, "use 1 or more")
        if fewest > limit:
            yield _refusal(f"{low} is larger than {high}", low, "raise the maximum or lower the minimum")


def _manifest_order(context: OptionContext) -> Iterator[InvalidInputError]:
    key = "manifest-sort.enabled"
    if not context.partition_keys and context.options.get(key, "false").strip().lower() == "true":
        yield _refusal("manifests are sorted by partition, and the table has none", key, "remove it")


def _sequence_numbers(context: OptionContext) -> Iterator[InvalidInputError]:
    if context.typed_options.shows_sequence_numbers and not context.primary_keys:
        key = "table-read.sequence-number.enabled"
        yield _refusal("rows have sequence numbers only in tables with a primary key", key, "remove it")


def _row_tracking(context: OptionContext) -> Iterator[InvalidInputError]:
    typed = context.typed_options
    if typed.row_tracking and context.primary_keys:
        yield _refusal("row tracking goes without a primary key", "row-tracking.enabled", "drop the primary key")
    if typed.row_tracking and typed.bucket != BUCKETS_OPEN:
        yield _refusal("row tracking needs bucket -1", "bucket", "remove the option")
    if typed.data_evolution:
        if not typed.row_tracking:
            yield _refusal("data evolution needs row tracking", "data-evolution.enabled", "set row-tracking.enabled")
        if typed.clusters_incrementally:
            yield _refusal("data evolution excludes incremental clustering", "clustering.incremental")


def _snapshot_ordering(context: OptionContext) -> Iterator[InvalidInputError]:
    key = "sequence.snapshot-ordering"
    if not context.typed_options.snapshot_ordering:
        return
    if not context.primary_keys:
        yield _refusal("snapshot ordering needs a primary key", key)
    if not context.typed_options.write_only:
        yield _refusal("snapshot ordering needs write-only", key, "set write-only to true")
    if "sequence.field" in context.options:
        yield _refusal("snapshot ordering excludes a sequence field", key, "remove one of the two")


_RULES: Final[tuple[Callable[[OptionContext], Iterator[InvalidInputError]], ...]] = (
    _columns_exist,
    _sequence_fields,
    _changelog_producer,
    _append_without_buckets,
    _first_row,
    _partial_update,
    _aggregation,
    _retention,
    _manifest_order,
    _sequence_numbers,
    _row_tracking,
    _snapshot_ordering,
)
