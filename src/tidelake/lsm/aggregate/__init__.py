"""The aggregate functions of columns: how the versions of one key become one value.

A function works on whole columns: row i of its arguments is one key. It is pure and keeps no state between calls, so
the state of a key is always an ordinary value of the column, which can be stored, read back and merged further. Nulls,
overflow and retract rows are handled as Paimon handles them; `docs/spec-notes.md` says where its releases disagree with
the documented format.

* `registry`: the function of a column, from its options and type
* `base`: the protocol of aggregate functions and what they share
* `choice`: `first_value`, `last_value` and the like
* `extremes`: `max`, `min`, `bool_and`, `bool_or`
* `numbers`: `sum`, `product`
* `text`: `listagg`
* `collect`: `collect`
* `maps`: `merge_map`, `merge_map_with_keytime`
* `tables`: `nested_update`, `nested_partial_update`
* `binaries`: bitmaps and sketches; `roaring64`: Java's form of 64-bit bitmaps
* `arrays`, `lists`, `structure`: vectorised steps on Arrow arrays
"""

from tidelake.lsm.aggregate.base import Aggregate
from tidelake.lsm.aggregate.registry import FUNCTION_NAMES, aggregate_for, column_functions

__all__ = ["FUNCTION_NAMES", "Aggregate", "aggregate_for", "column_functions"]
