"""The options that planning a read honours."""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.options import Affects, Bytes, OptionGroup, option
from tidelake.spec.bucket import BucketFunction

_READ = (Affects.READ,)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOptions(OptionGroup):
    """How rows find their bucket."""

    bucket: int = option(
        "bucket", -1, doc="Buckets: > 0 fixed, -1 dynamic or none, -2 postponed.", affects=(Affects.READ, Affects.WRITE)
    )
    function: BucketFunction = option(
        "bucket-function.type",
        BucketFunction.DEFAULT,
        doc="How the bucket key is hashed.",
        affects=(Affects.READ, Affects.WRITE),
        immutable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions(OptionGroup):
    """How large a split is."""

    target_bytes: Bytes = option(
        "source.split.target-size", Bytes(128 << 20), doc="Bytes of the files of one split.", affects=_READ
    )
    open_file_cost: Bytes = option(
        "source.split.open-file-cost", Bytes(4 << 20), doc="Least weight of a file.", affects=_READ
    )
