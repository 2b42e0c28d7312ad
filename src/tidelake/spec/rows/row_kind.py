"""Row kinds: their texts and the numbers that data files store for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["KINDS"]

KINDS: Final[Mapping[str, int]] = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
"""The number of each row kind in the column `_VALUE_KIND`."""
