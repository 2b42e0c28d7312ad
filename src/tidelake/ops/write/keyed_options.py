"""Options of the writer of primary-key tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelake.options import Affects, Bytes, OptionGroup, at_least, option, same_option
from tidelake.spec.schemas.schema_options import SchemaOptions

__all__ = ["KeyedWriteOptions"]

_WRITE: Final = (Affects.WRITE,)
_BLOCK_BYTES_MAX: Final = 1 << 30
_CODECS: Final = {"zstd": "zstd", "lz4": "lz4", "lzo": "lz4", "none": None}
"""The codec for each word. Only this writer reads the files, so one fast codec may replace another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWriteOptions(OptionGroup):
    """How rows of primary-key tables are written."""

    write_only: bool = same_option(SchemaOptions, "write_only")
    buffer_bytes: Bytes = option(
        "write-buffer-size",
        Bytes(256 << 20),
        doc="Memory for buffered rows, over all buckets.",
        affects=_WRITE,
        check=at_least(1),
    )
    spillable: bool = option(
        "write-buffer-spillable",
        True,
        doc="Spill rows that no longer fit in memory to local disk, instead of writing small files of the table.",
        affects=_WRITE,
    )
    spill_bytes: Bytes = option(
        "write-buffer-spill.max-disk-size",
        Bytes(2**63 - 1),
        doc="Local disk for spilled rows; beyond it they are written to the table.",
        affects=_WRITE,
    )
    spill_files: int = option(
        "local-sort.max-num-file-handles",
        128,
        doc="Local files of spilled rows at a time; beyond them the rows are written to the table.",
        affects=_WRITE,
        check=at_least(1),
    )
    spill_compression: str = option(
        "spill-compression",
        "zstd",
        doc="Codec of rows on local disk: zstd, lz4 or none.",
        affects=_WRITE,
        check=lambda word: None if word.lower() in _CODECS else "zstd, lz4 or none",
    )
    spill_zstd_level: int = option(
        "spill-compression.zstd-level", 1, doc="Effort of zstd on local disk.", affects=_WRITE
    )
    local_merge_bytes: Bytes | None = option(
        "local-merge-buffer-size",
        None,
        doc="Merge rows of equal keys in a buffer of this size before they are sent to their buckets.",
        affects=_WRITE,
        check=at_least(1),
    )
    force_compact: bool = option(
        "commit.force-compact", False, doc="Every commit waits for the compaction that is due.", affects=_WRITE
    )
    lookup_wait: bool = option(
        "lookup-wait",
        True,
        doc="Commits wait for the compactions that make their rows visible.",
        affects=_WRITE,
        fallback=("changelog-producer.lookup-wait",),
    )

    @property
    def block_bytes(self) -> int:
        """Bytes of rows that are sorted at once: the buffer size, but never more than one array of texts can hold."""
        return min(self.buffer_bytes, _BLOCK_BYTES_MAX)

    @property
    def spill_codec(self) -> str | None:
        """The Arrow name of the codec, None for no compression."""
        return _CODECS[self.spill_compression.lower()]
