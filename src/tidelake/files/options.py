"""The options of data files, and what the name of a data file says of its format.

A table may mix formats: a file says by its name what it holds; the options only say how new files are
written. Options of a format's own library (`parquet.*`, `orc.*`, `avro.*`) are honoured one by one; one that we do not
know is refused by name when a file of that format is written, because ignoring it would write other bytes than asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelake.errors import InvalidInputError, UnsupportedError
from tidelake.lsm.options import CompactionOptions
from tidelake.options import (
    INT64_MAX,
    Affects,
    Bytes,
    Int64,
    OptionGroup,
    TextMap,
    at_least,
    between,
    option,
    same_option,
)
from tidelake.options import parse_bool as _parse_bool
from tidelake.options import parse_bytes as _parse_bytes
from tidelake.options import parse_float as _parse_float
from tidelake.options import parse_int as _parse_int
from tidelake.spec.schemas.schema import KEY_COLUMN_PREFIX, SYSTEM_COLUMNS
from tidelake.spec.stats.stats_modes import KEY_MODE, NONE, StatsMode, parse_stats_mode
from tidelake.spec.types.data_types import Field

__all__ = ["FORMATS", "FileOptions", "codec_of", "extension_of", "format_of"]

FORMATS: Final = ("parquet", "orc", "avro")
"""The formats we read and write."""

_NOTHING: Final = TextMap()
_WRITE = (Affects.WRITE,)

# What each format's reference implementation accepts as `file.compression`, and what our libraries call it.
_CODECS: Final[Mapping[str, Mapping[str, str]]] = {
    "parquet": {
        "none": "NONE",
        "uncompressed": "NONE",
        "snappy": "SNAPPY",
        "gzip": "GZIP",
        "lz4": "LZ4",
        "lz4_raw": "LZ4",
        "zstd": "ZSTD",
    },
    "orc": {"none": "UNCOMPRESSED", "snappy": "SNAPPY", "zlib": "ZLIB", "lz4": "LZ4", "zstd": "ZSTD"},
    "avro": {
        "null": "null",
        "deflate": "deflate",
        "snappy": "snappy",
        "bzip2": "bzip2",
        "zstd": "zstandard",
        "zstandard": "zstandard",
    },
}
_COMPRESSION_ENDINGS: Final = frozenset(
    {"zst", "zstd", "zstandard", "gz", "gzip", "snappy", "lz4", "lz4_raw", "bz2", "bzip2", "deflate", "zlib", "lzo"}
    | {"xz", "br", "brotli", "none", "null", "uncompressed"}
)
_FORMAT_KEY: Final = re.compile(r"(parquet|orc|avro)\.(.+)", re.DOTALL)
_COLUMN_STATS: Final = re.compile(r"fields\.(.+)\.stats-mode", re.DOTALL)

# Options of the formats' libraries that have an effect here; the value is their parser.
_HONOURED: Final[Mapping[str, Callable[[str], object]]] = {
    "parquet.block.size": _parse_bytes,
    "parquet.page.size": _parse_bytes,
    "parquet.dictionary.page.size": _parse_bytes,
    "parquet.compression.codec.zstd.level": _parse_int,
    "orc.stripe.size": _parse_bytes,
    "orc.row.index.stride": _parse_int,
    "orc.dictionary.key.threshold": _parse_float,
    # Only other zones than UTC make a difference here, and files are written in UTC.
    "orc.timestamp-ltz.legacy.type": _parse_bool,
}
_DECLARED: Final = frozenset({"parquet.enable.dictionary", "orc.write.batch-size"})


def _lower(text: str) -> str:
    return text.strip().lower()


def _switch(text: str) -> bool:
    # The format's option catalog calls it an integer, its library reads a boolean: both spellings are met.
    if text.strip() in ("0", "1"):
        return text.strip() == "1"
    return _parse_bool(text)


def _stats_mode(text: str) -> str:
    return str(parse_stats_mode(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions(OptionGroup):
    """How data files are written, and in what pieces they are read."""

    format: str = option(
        "file.format", "parquet", doc="Format of new data files: parquet, orc or avro.", affects=_WRITE, parse=_lower
    )
    compression: str = option("file.compression", "zstd", doc="Codec of new data files.", affects=_WRITE, parse=_lower)
    zstd_level: int = option(
        "file.compression.zstd-level", 1, doc="Level of the zstd codec.", affects=_WRITE, check=between(1, 22)
    )
    block_size: Bytes | None = option(
        "file.block-size",
        None,
        doc="Size of a row group or stripe; unset: 128 MB in Parquet, 64 MB in ORC.",
        affects=_WRITE,
        check=at_least(1),
    )
    target_size: Bytes | None = same_option(CompactionOptions, "target_size")
    target_rows: Int64 = option(
        "target-file-row-num",
        Int64(INT64_MAX),
        doc="Rows at which a new file is begun.",
        affects=_WRITE,
        check=at_least(1),
    )
    suffix_with_compression: bool = option(
        "file.suffix.include.compression", False, doc="Put the codec into file names.", affects=_WRITE
    )
    prefix: str = option("data-file.prefix", "data-", doc="How names of data files begin.", affects=_WRITE)
    write_batch_rows: int = option(
        "write.batch-size",
        1024,
        doc="Rows a format's writer takes at a time.",
        affects=_WRITE,
        fallback=("orc.write.batch-size",),
        check=at_least(1),
    )
    stats_mode: str = option(
        "metadata.stats-mode",
        "truncate(16)",
        doc="Statistics kept of a column: none, counts, truncate(n) or full.",
        affects=_WRITE,
        parse=_stats_mode,
    )
    stats_dense: bool = option(
        "metadata.stats-dense-store", True, doc="Store only columns that have statistics.", affects=_WRITE
    )
    stats_first_columns: int = option(
        "metadata.stats-keep-first-n-columns",
        -1,
        doc="Keep statistics of the first n columns only; -1 for all.",
        affects=_WRITE,
        check=at_least(-1),
    )
    dictionary: bool = option(
        "parquet.enable.dictionary", True, doc="Dictionary encoding in Parquet.", affects=_WRITE, parse=_switch
    )
    format_per_level: TextMap = option(
        "file.format.per.level", TextMap(), doc="Format by level, such as 0:avro.", affects=_WRITE
    )
    compression_per_level: TextMap = option(
        "file.compression.per.level", TextMap(), doc="Codec by level, such as 0:lz4.", affects=_WRITE
    )
    stats_mode_per_level: TextMap = option(
        "metadata.stats-mode.per.level", TextMap(), doc="Statistics by level, such as 0:none.", affects=_WRITE
    )
    changelog_prefix: str = option(
        "changelog-file.prefix", "changelog-", doc="How names of changelog files begin.", affects=_WRITE
    )
    changelog_format: str | None = option(
        "changelog-file.format",
        None,
        doc="Format of changelog files; unset: that of data files.",
        affects=_WRITE,
        parse=_lower,
    )
    changelog_compression: str | None = option(
        "changelog-file.compression",
        None,
        doc="Codec of changelog files; unset: that of data files.",
        affects=_WRITE,
        parse=_lower,
    )
    changelog_stats_mode: str | None = option(
        "changelog-file.stats-mode",
        None,
        doc="Statistics kept of changelog files; unset: those of data files.",
        affects=_WRITE,
        parse=_stats_mode,
    )
    thin: bool = option("data-file.thin-mode", False, doc="Data files do not repeat key columns.", affects=_WRITE)
    passthrough: TextMap = _NOTHING
    """Options of the formats' own libraries, as the user wrote them."""
    column_stats: TextMap = _NOTHING
    """The statistics mode of single columns (`fields.<name>.stats-mode`)."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> FileOptions:
        """The group that these options describe, with the keys of the formats and of single columns.

        Raises:
            InvalidInputError: (``option-value``) when a value is not of the declared form.
        """
        # Not super(): slots=True builds the class twice, and its zero-argument super() would still mean the first one.
        group: FileOptions = OptionGroup.parse.__func__(cls, options)  # type: ignore[attr-defined]
        passthrough = [
            (key, value) for key, value in options.items() if _FORMAT_KEY.fullmatch(key) and key not in _DECLARED
        ]
        columns = [
            (found[1], _stats_mode(value))
            for key, value in options.items()
            if (found := _COLUMN_STATS.fullmatch(key)) is not None
        ]
        return replace(group, passthrough=TextMap(tuple(passthrough)), column_stats=TextMap(tuple(columns)))

    def for_level(self, level: int) -> FileOptions:
        """The options of files of one level of a primary-key table.

        Raises:
            InvalidInputError: (``option-value``) a statistics mode given for the level is not known.
        """
        key = str(level)
        return replace(
            self,
            format=_lower(self.format_per_level.get(key, self.format)),
            compression=_lower(self.compression_per_level.get(key, self.compression)),
            stats_mode=_stats_mode(self.stats_mode_per_level.get(key, self.stats_mode)),
        )

    def for_changelog(self, level: int) -> FileOptions:
        """The options of changelog files that are written with data files of a level.

        Raises:
            InvalidInputError: (``option-value``) a statistics mode given for the level is not known.
        """
        data = self.for_level(level)
        return replace(
            data,
            prefix=self.changelog_prefix,
            format=self.changelog_format or data.format,
            compression=self.changelog_compression or data.compression,
            stats_mode=self.changelog_stats_mode or data.stats_mode,
        )

    def target_bytes(self, *, primary_key: bool) -> int:
        """The size at which a new file is begun."""
        return self.target_size or (128 << 20 if primary_key else 256 << 20)

    def stats_modes(self, fields: Sequence[Field], keys: Collection[str] = ()) -> tuple[StatsMode, ...]:
        """What is kept of each column of a file.

        Args:
            fields: The columns of the file.
            keys: Names of value columns that stand for key columns (files without `_KEY_*` columns).
        """
        table = parse_stats_mode(self.stats_mode)
        modes = []
        position = 0
        for field in fields:
            system = field.name in SYSTEM_COLUMNS or field.name.startswith(KEY_COLUMN_PREFIX)
            if field.name in self.column_stats:
                modes.append(parse_stats_mode(self.column_stats[field.name]))
            elif system or field.name in keys:
                modes.append(KEY_MODE)
            else:
                modes.append(NONE if 0 <= self.stats_first_columns <= position else table)
            position += not system
        return tuple(modes)

    def library_option(self, key: str) -> object | None:
        """The typed value of an option of a format's library, None when it is not set.

        Raises:
            InvalidInputError: (``option-value``) the value is not of the expected form.
        """
        if key not in self.passthrough:
            return None
        text = self.passthrough[key]
        try:
            return _HONOURED[key](text)
        except ValueError as error:
            raise InvalidInputError(
                "option has a value of the wrong form",
                code="option-value",
                key=key,
                value=text,
                hint=f"give it {error}",
            ) from error

    def check_library_options(self, format: str) -> None:  # noqa: A002 - the word of the contract
        """Refuse options of this format's library that have no effect here.

        Raises:
            UnsupportedError: such an option is set.
        """
        for key in self.passthrough:
            if key.startswith(format + ".") and key not in _HONOURED:
                honoured = ", ".join(name for name in _HONOURED if name.startswith(format + ".")) or "none"
                raise UnsupportedError(
                    "option of the file format is not supported",
                    code="option-unsupported",
                    key=key,
                    hint=f"remove it; of {format}.* these are honoured: {honoured}",
                )


def format_of(file_name: str) -> str:
    """The format of a data file by its name: what follows the last dot, a compression ending left out.

    Raises:
        UnsupportedError: the format is not one of `FORMATS`.
    """
    parts = file_name.rpartition("/")[2].split(".")[1:]
    while len(parts) > 1 and parts[-1].lower() in _COMPRESSION_ENDINGS:
        parts.pop()
    found = parts[-1] if parts else ""
    return check_format(found, file=file_name)


def check_format(found: str, *, file: str | None = None) -> str:
    """The format if it is one of `FORMATS`.

    Raises:
        UnsupportedError: it is not.
    """
    if found in FORMATS:
        return found
    raise UnsupportedError(
        "format of data files is not supported",
        code="file-format",
        format=found or "(none)",
        file=file,
        hint=f"supported are {', '.join(FORMATS)}",
    )


def codec_of(format: str, compression: str) -> str:  # noqa: A002 - the word of the contract
    """What the library of the format calls a codec.

    Raises:
        InvalidInputError: (``option-value``) the format has no such codec.
        UnsupportedError: the format is not one of `FORMATS`.
    """
    known = _CODECS[check_format(format)]
    if compression not in known:
        raise InvalidInputError(
            "file format does not know the codec",
            code="option-value",
            key="file.compression",
            value=compression,
            format=format,
            hint=f"use one of {', '.join(known)}",
        )
    return known[compression]


def extension_of(format: str, options: FileOptions) -> str:  # noqa: A002 - the word of the contract
    """What follows the dot in the name of a new file, such as `parquet` or `zstd.parquet`.

    Raises:
        InvalidInputError: (``option-value``) the format does not know the codec.
        UnsupportedError: the format is not one of `FORMATS`.
    """
    codec_of(format, options.compression)
    return f"{options.compression}.{format}" if options.suffix_with_compression else format
